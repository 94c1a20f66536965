"""The contract of schedulers: Foretail's own keep it, and broken ones are told which rule they break."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail import testing
from foretail.configs.schema import training
from foretail.configs.schema.network import circuits
from foretail.features.demand.matrix import DemandMatrix
from foretail.models.scoring.threshold_rules import F1, THRESHOLD_RULES, ThresholdCounts, ThresholdRule
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.arrivals.workloads import WORKLOADS, Uniform, Workload
from foretail.sim_bridge.circuits.schedules import SCHEDULERS, RoundRobin, Scheduler
from foretail.sim_bridge.policies import OF_ARRIVALS
from foretail.testing import check_policy, check_scheduler, check_threshold_rule, check_workload


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_keep_the_contract(name: str) -> None:
    check_scheduler(SCHEDULERS[name])


def test_settings_know_our_own_names() -> None:
    assert tuple(SCHEDULERS) == circuits.SCHEDULERS


@dataclass(frozen=True)
class _OfItsOwn(RoundRobin):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        return found

    def matchings(self, demand: DemandMatrix, degree: int, seed: int) -> Any:
        return self.changed(super().matchings(demand, degree, seed).copy(), demand)


class _ToItself(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        found[0, 0, 0] = 0
        return found


class _Far(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        return found.astype(np.int64) + 2**32


class _NaN(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        return np.where(found == 1, np.nan, found)


class _Narrow(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        return found[:, :1]


class _List(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        return found.tolist()


class _Empty(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        return found[:0]


class _ForgetsItsSeed(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        return np.random.default_rng().permutation(np.repeat(found, 50, axis=0))


class _Idle(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        return np.full_like(found, -1)


class _Writes(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        demand.demand.setflags(write=True)
        demand.demand[0] = 0
        return found


class _Crashes(_OfItsOwn):
    def changed(self, found: np.ndarray, demand: DemandMatrix) -> Any:
        raise ZeroDivisionError("no demand")


@pytest.mark.parametrize(
    ("broken", "clause"),
    [
        (_ToItself, "_ToItself breaks a rule: a schedule sends .* from a node to itself"),
        (_Far, r"matchings must be -1 or in \[0, 4\), not \[4294967297\]"),
        (_NaN, "matchings must be whole numbers, not float64"),
        (_Narrow, r"matchings must have shape \(slots, 2, 4\), not \(3, 1, 4\)"),
        (_List, "matchings must give an array, not a list"),
        (_Empty, r"_Empty breaks a rule: a schedule has shape \(0, 2, 4\)"),
        (_ForgetsItsSeed, "the same seed must give the same schedule"),
        (_Idle, "a schedule must have a circuit"),
        (_Writes, "_Writes breaks a rule: matchings must not change the demand"),
        (_Crashes, "matchings must give a schedule .*_Crashes fails in matchings: ZeroDivisionError: no demand"),
    ],
)
def test_the_contract_catches_schedulers_that_break_it(broken: type[Scheduler], clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        check_scheduler(broken)


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


@pytest.mark.parametrize("policy", OF_ARRIVALS)
def test_policies_keep_the_contract(policy: str) -> None:
    check_policy(policy)


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


@pytest.mark.parametrize("name", THRESHOLD_RULES)
def test_threshold_rules_keep_the_contract(name: str) -> None:
    check_threshold_rule(THRESHOLD_RULES[name])


def test_settings_know_our_own_names_of_threshold_rule() -> None:
    assert {*THRESHOLD_RULES, "recovered_loss"} == {*training.THRESHOLDS}


@dataclass(frozen=True)
class _NaN_of_threshold_rule(F1):
    def worth(self, counts: ThresholdCounts) -> Any:
        with np.errstate(invalid="ignore"):
            return counts.tp / (counts.tp + counts.fp)


class _Whole(F1):
    def worth(self, counts: ThresholdCounts) -> Any:
        return counts.tp


class _Scalar(F1):
    def worth(self, counts: ThresholdCounts) -> Any:
        return 1.0


class _Draws(F1):
    def worth(self, counts: ThresholdCounts) -> Any:
        return np.random.default_rng().random(len(counts.tp))


class _Writes_of_threshold_rule(F1):
    def worth(self, counts: ThresholdCounts) -> Any:
        counts.fp[:] += 1
        return super().worth(counts)


class _Crashes_of_threshold_rule(F1):
    def worth(self, counts: ThresholdCounts) -> Any:
        raise ZeroDivisionError("no drop")


@pytest.mark.parametrize(
    ("broken", "clause"),
    [
        (_NaN_of_threshold_rule, "worth must be finite, not nan"),
        (_Whole, "worth must be float64 or float32, not int64"),
        (_Scalar, r"worth must give one number per threshold, shape \(1,\), not a float"),
        (_Draws, "the same counts must have the same worth"),
        (_Writes_of_threshold_rule, "worth must not change the fp"),
        (
            _Crashes_of_threshold_rule,
            "worth must answer for any counts: .*_Crashes_of_threshold_rule fails in worth: ZeroDivisionError: no drop",
        ),
    ],
)
def test_the_contract_catches_rules_that_break_it(broken: type[ThresholdRule], clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        check_threshold_rule(broken)


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_keep_the_contract(name: str) -> None:
    check_workload(WORKLOADS[name])


@dataclass(frozen=True)
class _OfItsOwn_of_workload(Uniform):
    def changed(self, chunk: Slotted) -> Slotted:
        return chunk

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        for chunk in super().chunks(ports, buffer, slots, draw):
            yield self.changed(chunk)


class _Backwards(_OfItsOwn_of_workload):
    def changed(self, chunk: Slotted) -> Slotted:
        return Slotted(chunk.slot[::-1].copy(), chunk.port)


class _FarPorts(_OfItsOwn_of_workload):
    def changed(self, chunk: Slotted) -> Slotted:
        return Slotted(chunk.slot, chunk.port + np.int32(1))


class _WideSlots(_OfItsOwn_of_workload):
    def changed(self, chunk: Slotted) -> Slotted:
        return Slotted(chunk.slot.astype(np.int32), chunk.port)


class _ForgetsItsSeed_of_workload(_OfItsOwn_of_workload):
    def changed(self, chunk: Slotted) -> Slotted:
        return Slotted(chunk.slot, np.random.default_rng().permutation(chunk.port))


class _LooksAtTheEnd(_OfItsOwn_of_workload):
    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        draw.random(slots)
        yield from super().chunks(ports, buffer, slots, draw)


class _Crashes_of_workload(_OfItsOwn_of_workload):
    def changed(self, chunk: Slotted) -> Slotted:
        raise ZeroDivisionError("no load")


@pytest.mark.parametrize(
    ("broken", "clause"),
    [
        (_Backwards, "slots must never decrease"),
        (_FarPorts, r"port must be in \[0, 4\)"),
        (_WideSlots, "slot must be int64, not int32"),
        (_ForgetsItsSeed_of_workload, "the same seed must give the same packets"),
        (_LooksAtTheEnd, "a longer run of a seed must begin with the shorter one"),
        (
            _Crashes_of_workload,
            "chunks must give packets.*_Crashes_of_workload fails in chunks: ZeroDivisionError: no load",
        ),
    ],
)
def test_the_contract_catches_workloads_that_break_it(broken: type[Workload], clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        check_workload(broken)


class FitsAndScores:
    def fit(self, x: Any, y: Any) -> None: ...

    def score(self, x: Any) -> None: ...


CHECKS = [getattr(testing, name) for name in testing.__all__]


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
