"""The contract of schedulers: Foretail's own keep it, and broken ones are told which rule they break."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail import testing
from foretail.configs.schema import training
from foretail.configs.schema.network import circuits
from foretail.features.demand.matrix import DemandMatrix
from foretail.models.scoring.threshold_rules import F1, THRESHOLD_RULES, ThresholdCounts
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.arrivals.workloads import WORKLOADS, Uniform
from foretail.sim_bridge.circuits.schedules import SCHEDULERS, RoundRobin
from foretail.sim_bridge.policies import OF_ARRIVALS
from foretail.testing import check_policy, check_scheduler, check_threshold_rule, check_workload
from tests.broken import broken
from tests.sim_bridge.arrivals.test_workloads import OTHERS, UNLIMITED


@pytest.mark.parametrize(
    ("check", "one"),
    [
        *((check_scheduler, one) for one in SCHEDULERS.values()),
        *((check_threshold_rule, one) for one in THRESHOLD_RULES.values()),
        *((check_workload, one) for one in (*WORKLOADS.values(), *OTHERS, *UNLIMITED)),
        *((check_policy, one) for one in OF_ARRIVALS),
    ],
)
def test_our_own_keep_their_contract(check: Callable[[Any], None], one: Any) -> None:
    check(one)


def test_settings_know_our_own_names() -> None:
    assert tuple(SCHEDULERS) == circuits.SCHEDULERS
    assert {*THRESHOLD_RULES, "recovered_loss"} == {*training.THRESHOLDS}


def without_demand(usual: Callable[..., Any], demand: DemandMatrix, *asked: int) -> Any:
    demand.demand.setflags(write=True)
    demand.demand[0] = 0
    return usual(demand, *asked)


def to_itself(usual: Callable[..., Any], *asked: Any) -> Any:
    found = usual(*asked).copy()
    found[0, 0, 0] = 0
    return found


def drawn(usual: Callable[..., Any], *asked: Any) -> Any:
    return np.random.default_rng().permutation(np.repeat(usual(*asked), 50, axis=0))


RULE = """
#include <cstdint>

struct Rule : foretail::buffer::PolicyTraits {{
    template <class Queues>
    foretail::buffer::Outcome decide(const foretail::buffer::Arrival& arrival, const Queues& queues) {{
        using foretail::buffer::Outcome;
        {body}
        return queues.fits(arrival.size) ? Outcome::accepted : Outcome::buffer_full;
    }}
    std::int64_t seen = 0;
}};
"""


def rule(folder: Path, body: str) -> str:
    """A policy in a header, whose decision begins with `body`."""
    header = folder / "rule.hpp"
    header.write_text(RULE.format(body=body))
    return f"{header}:Rule"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "clause"),
    [
        (
            "if (2 * queues.length(queues.queue_of(arrival)) < queues.capacity()) return Outcome::accepted;",
            "answer every arrival: the policy Rule accepts a packet that does not",
        ),
        ("return Outcome::pushed_out;", "answers pushed_out, which says what becomes of a queued packet"),
        ("static int runs = 0; if (++runs % 7 == 0) return Outcome::over_threshold;", "the same arrivals, the same"),
        ("if (++seen == 1) return Outcome::over_threshold;", "a packet at an empty switch must be accepted"),
        ("if (queues.kapacity() == 1) return Outcome::accepted;", "the header must compile: .* line 8: .*kapacity"),
    ],
)
def test_the_contract_catches_policies_that_break_it(tmp_path: Path, body: str, clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        check_policy(rule(tmp_path, body))


@pytest.mark.slow
def test_a_policy_of_ones_own_keeps_the_contract(tmp_path: Path) -> None:
    check_policy(rule(tmp_path, ""))


def test_a_name_that_is_none_is_told() -> None:
    with pytest.raises(AssertionError, match=r"red must be HEADER\.hpp:TYPE"):
        check_policy("red")


def with_a_false_one(usual: Callable[..., Any], counts: ThresholdCounts) -> Any:
    counts.fp[:] += 1
    return usual(counts)


def changed(change: Callable[[Slotted], Any]) -> Callable[..., Any]:
    return lambda usual, *asked: map(change, usual(*asked))


def looking_at_the_end(usual: Callable[..., Any], *asked: Any) -> Any:
    *_, slots, draw = asked
    draw.random(slots)
    return usual(*asked)


SCHEDULES: list[tuple[Callable[..., Any], str]] = [
    (to_itself, "Broken breaks a rule: a schedule sends .* from a node to itself"),
    (
        lambda usual, *asked: usual(*asked).astype(np.int64) + 2**32,
        r"matchings must be -1 or in \[0, 4\), not \[4294967297\]",
    ),
    (lambda usual, *asked: usual(*asked) / 3, "matchings must be whole numbers, not float64"),
    (lambda usual, *asked: usual(*asked)[:, :1], r"matchings must have shape \(slots, 2, 4\), not \(3, 1, 4\)"),
    (lambda usual, *asked: usual(*asked).tolist(), "matchings must give an array, not a list"),
    (lambda usual, *asked: usual(*asked)[:0], r"Broken breaks a rule: a schedule has shape \(0, 2, 4\)"),
    (drawn, "the same seed must give the same schedule"),
    (lambda usual, *asked: np.full_like(usual(*asked), -1), "a schedule must have a circuit"),
    (without_demand, "Broken breaks a rule: matchings must not change the demand"),
    (lambda *_: 1 // 0, "matchings must give a schedule .*Broken fails in matchings: ZeroDivisionError: "),
]
WORTHS: list[tuple[Callable[..., Any], str]] = [
    (lambda usual, counts: usual(counts) * np.nan, "worth must be finite, not nan"),
    (lambda _, counts: counts.tp, "worth must be float64 or float32, not int64"),
    (lambda *_: 1.0, r"worth must give one number per threshold, shape \(1,\), not a float"),
    (lambda _, counts: np.random.default_rng().random(len(counts.tp)), "the same counts must have the same worth"),
    (with_a_false_one, "worth must not change the fp"),
    (lambda *_: 1 // 0, "worth must answer for any counts: .*Broken fails in worth: ZeroDivisionError: "),
]
CHUNKS: list[tuple[Callable[..., Any], str]] = [
    (changed(lambda c: Slotted(c.slot[::-1].copy(), c.port)), "slots must never decrease"),
    (changed(lambda c: Slotted(c.slot, c.port + np.int32(1))), r"port must be in \[0, 4\)"),
    (changed(lambda c: Slotted(c.slot.astype(np.int32), c.port)), "slot must be int64, not int32"),
    (
        changed(lambda c: Slotted(c.slot, np.random.default_rng().permutation(c.port))),
        "the same seed must give the same packets",
    ),
    (looking_at_the_end, "a longer run of a seed must begin with the shorter one"),
    (changed(lambda _: 1 // 0), "chunks must give packets.*Broken fails in chunks: ZeroDivisionError: "),
]


@pytest.mark.parametrize(
    ("check", "base", "method", "change", "clause"),
    [
        *((check_scheduler, RoundRobin, "matchings", *row) for row in SCHEDULES),
        *((check_threshold_rule, F1, "worth", *row) for row in WORTHS),
        *((check_workload, Uniform, "chunks", *row) for row in CHUNKS),
    ],
)
def test_the_contract_catches_what_breaks_it(
    check: Callable[[Any], None], base: type, method: str, change: Callable[..., Any], clause: str
) -> None:
    with pytest.raises(AssertionError, match=clause):
        check(broken(base, **{method: change}))


class FitsAndScores:
    def fit(self, x: Any, y: Any) -> None: ...

    def score(self, x: Any) -> None: ...


def check_reader(given: Any) -> None:
    testing.check_reader(given, "slot", "slot,ttl", "ttl")


NAMES = [name for name in testing.__all__ if name.startswith("check_")]
CHECKS = [check_reader if name == "check_reader" else getattr(testing, name) for name in NAMES]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "given", [FitsAndScores, FitsAndScores(), None, 7, object, lambda: None, lambda one: one, "no"]
)
def test_any_object_fails_by_a_rule(check: Callable[[Any], None], given: Any) -> None:
    with pytest.raises(AssertionError, match=" must be ") as failure:
        check(given)
    assert "Attribute" not in str(failure.value)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(
        AssertionError, match=r"^a predictor must be a DropPredictor: FitsAndScores is none, and lacks .*fit_batches"
    ):
        testing.check_predictor(FitsAndScores)  # type: ignore[arg-type]
    with pytest.raises(
        AssertionError, match=r"^a target must be a Target: FitsAndScores is none, and lacks load, name"
    ):
        testing.check_target(FitsAndScores)  # type: ignore[arg-type]
