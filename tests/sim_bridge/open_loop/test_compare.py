"""Many policies in one pass against the slow model: totals, prediction error, labels that come late, any batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.features.dataset.schema import Rules
from foretail.sim_bridge._native import late_qd, slotted
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.open_loop.slotted import (
    Comparison,
    Labelled,
    Predicted,
    accept,
    compare,
    flipped,
    in_file,
    labelled,
    perfect,
)
from foretail.sim_bridge.policies import ASKING, KNOW_PRIORITIES, OF_ARRIVALS
from foretail.sim_bridge.policy_settings import SlotParameters
from tests.sim_bridge.slow_models.lqd import Rules as SlowRules
from tests.sim_bridge.slow_models.slotted import reduced, run_slotted
from tests.strategies import SlottedArrivals, slotted_arrivals

LATER = 1000
"""A slot that is later than any queue of these tests."""


def batches(case: SlottedArrivals, cuts: list[int] | None = None, **columns: list[int]) -> Iterator[Slotted]:
    """The case cut before the packets `cuts`."""
    for first, last in itertools.pairwise([0, *(cuts or []), len(case.slot)]):
        yield Slotted(
            np.array(case.slot[first:last], np.int64),
            np.array(case.port[first:last], np.int32),
            **{name: np.array(values[first:last], np.uint8) for name, values in columns.items()},
        )


def cuts_of(data: st.DataObject, case: SlottedArrivals) -> list[int]:
    return sorted(data.draw(st.lists(st.integers(0, len(case.slot)), max_size=4)))


def bits(data: st.DataObject, case: SlottedArrivals, highest: int = 1) -> list[int]:
    n = len(case.slot)
    return data.draw(st.lists(st.integers(0, highest), min_size=n, max_size=n))


def facts(found: Comparison) -> dict[str, Any]:
    known = dict(vars(found))
    for region in ("whole", "asked"):
        agreement = known.pop(region)
        known |= {f"{region}.{name}": np.array(value).tolist() for name, value in vars(agreement).items()}
    return known


@given(
    data=st.data(),
    case=slotted_arrivals(max_ports=6, max_buffer=30),
    counting=st.sampled_from(("counted", "uncounted")),
)
def test_every_figure_is_that_of_the_slow_model(data: st.DataObject, case: SlottedArrivals, counting: str) -> None:
    told = bits(data, case)
    rules = SlowRules(counting, "lowest_port", data.draw(st.sampled_from(("tail", "head"))))
    found = compare(
        batches(case, cuts_of(data, case), prediction=told),
        case.ports,
        case.buffer,
        list(OF_ARRIVALS),
        in_file,
        rules=Rules(rules.counting, rules.tie, rules.victim),  # type: ignore[arg-type]
        threads=1,
    )
    for policy in OF_ARRIVALS:
        slow = run_slotted(policy, *case, predictions=told if policy in ASKING else None, rules=rules)
        assert found.transmitted[policy] == slow.transmitted, policy
    lqd = run_slotted("lqd", *case, rules=rules)
    follow = run_slotted(
        "followlqd", case.ports, case.buffer, *reduced(case.slot, case.port, told), rules=rules
    ).transmitted
    everything = run_slotted("followlqd", *case, rules=rules).transmitted
    assert (found.arrivals, found.lqd, found.followlqd, found.accept) == (
        len(case.slot),
        lqd.transmitted,
        follow,
        everything,
    )
    assert found.eta == (lqd.transmitted / follow if follow else None)
    lost = lqd.transmitted - everything
    assert found.sent == found.transmitted["credence"]
    assert found.recovered_loss == ((found.sent - everything) / lost if lost else None)
    assert found.sent_percent_of_lqd == (100 * found.sent / lqd.transmitted if lqd.transmitted else None)
    asks = run_slotted("credence", *case, predictions=lqd.lqd_drop, rules=rules).asked
    for agreement, rows in ((found.whole, range(len(told))), (found.asked, np.flatnonzero(asks))):
        pairs = [(told[i], lqd.lqd_drop[i]) for i in rows]
        counted = (agreement.tp, agreement.fp, agreement.tn, agreement.fn)
        assert counted == tuple(pairs.count(pair) for pair in ((1, 1), (1, 0), (0, 0), (0, 1)))
        assert agreement.score is None


@given(data=st.data(), case=slotted_arrivals(), probability=st.sampled_from((0.0, 0.3, 1.0)))
def test_batches_make_no_difference(data: st.DataObject, case: SlottedArrivals, probability: float) -> None:
    optional = {"first_rtt": bits(data, case), "priority": bits(data, case)}
    parameters = SlotParameters(alpha=[0.5, 0.25], first_rtt_alpha=2.0)

    def run(cuts: list[int], threads: int) -> dict[str, Any]:
        return facts(
            compare(
                batches(case, cuts, **optional),
                case.ports,
                case.buffer,
                list(OF_ARRIVALS),
                flipped(probability, 5),
                parameters=parameters,
                optimum=True,
                threads=threads,
            )
        )

    whole = run([], 1)
    assert run(cuts_of(data, case), 3) == whole
    assert whole["optimum"] >= max(whole["transmitted"].values())
    if probability == 0:
        assert whole["transmitted"]["credence"] == whole["lqd"]
    slot, port = np.array(case.slot, np.int64), np.array(case.port, np.int32)
    assert whole["optimum"] == late_qd(case.ports, case.buffer, slot, port)["transmitted"]
    for policy in set(OF_ARRIVALS) & set(KNOW_PRIORITIES) - set(ASKING):
        alone = slotted(
            policy,
            case.ports,
            case.buffer,
            slot,
            port,
            first_rtt=np.array(optional["first_rtt"], np.uint8),
            priority=np.array(optional["priority"], np.uint8),
            alpha=[0.5, 0.25],
            queues=2,
            first_rtt_alpha=2.0,
        )
        assert whole["transmitted"][policy] == alone["transmitted"]


@given(data=st.data(), case=slotted_arrivals(), victim=st.sampled_from(("tail", "tail_kept", "head", "random")))
def test_labels_are_final_when_a_batch_comes_out(data: st.DataObject, case: SlottedArrivals, victim: Any) -> None:
    rules = Rules("counted", "highest_port", victim)
    given_batches = list(batches(case, cuts_of(data, case)))
    out = list(
        labelled(
            iter(given_batches),
            case.ports,
            case.buffer,
            rules,
            features=True,
            seed=9,
            average_shift=13,
        )
    )
    assert [batch.arrivals for batch in out] == given_batches
    alone = slotted(
        "lqd",
        case.ports,
        case.buffer,
        np.array(case.slot, np.int64),
        np.array(case.port, np.int32),
        tie="highest_port",
        victim=victim,
        seed=9,
        average_shift=3,
        features=True,
    )
    assert np.concatenate([batch.lqd_drop for batch in out]).tolist() == alone["lqd_drop"].tolist()
    assert np.concatenate([batch.features for batch in out if batch.features is not None]).tolist() == (
        alone["features"].tolist()
    )


def test_a_batch_comes_out_as_soon_as_lqd_has_sent_or_dropped_its_packets() -> None:
    """Four packets wait in one queue; the arrivals of a later batch push two of them out."""
    taken = []

    def source() -> Iterator[Slotted]:
        for slot, ports in ((0, [0, 0, 0, 0]), (0, [1, 1]), (LATER, [0]), (2 * LATER, [0])):
            taken.append(slot)
            yield Slotted(np.full(len(ports), slot, np.int64), np.array(ports, np.int32))

    stream = labelled(source(), 2, 4)
    assert next(stream).lqd_drop.tolist() == [0, 0, 1, 1]
    assert taken == [0, 0, LATER]
    assert next(stream).lqd_drop.tolist() == [0, 0]
    assert taken == [0, 0, LATER]
    assert [batch.lqd_drop.tolist() for batch in stream] == [[0], [0]]


@given(case=slotted_arrivals())
def test_perfect_predictions_make_credence_lqd_and_lose_nothing(case: SlottedArrivals) -> None:
    found = compare(batches(case), case.ports, case.buffer, ["credence"], perfect)
    assert found.transmitted == {"credence": found.lqd, "lqd": found.lqd}
    assert list(found.transmitted) == ["credence", "lqd"]
    assert (found.eta, found.whole.fp, found.whole.fn) == ((1.0 if found.lqd else None), 0, 0)
    assert found.recovered_loss in (None, 1.0)
    credence = found.ratio_to_lqd("credence")
    assert credence == (1.0 if found.lqd else None)
    assert found.sent_percent_of_lqd == (100.0 if found.lqd else None)
    always = compare(batches(case), case.ports, case.buffer, ["followlqd"], accept)
    assert always.followlqd == always.accept == always.transmitted["followlqd"]
    assert always.sent == compare(batches(case), case.ports, case.buffer, ["credence"], accept).sent


def test_scores_of_a_model_are_counted_by_value() -> None:
    case = SlottedArrivals(2, 2, [0] * 6 + [1] * 6, [0, 0, 0, 1, 1, 0] * 2)

    def predict(batch: Labelled) -> Predicted:
        assert batch.features is not None
        score = batch.features[:, 0] / 4
        return Predicted((score > 0.3).astype(np.uint8), score)

    once = compare(batches(case), 2, 2, [], predict, features=True)
    assert facts(compare(batches(case, [1, 5, 9]), 2, 2, [], predict, features=True)) == facts(once)
    (batch,) = labelled(batches(case), 2, 2, features=True)
    assert batch.features is not None
    assert once.whole.score is not None
    for score, drops, rows in zip(once.whole.score, once.whole.drops, once.whole.rows, strict=True):  # type: ignore[arg-type]
        mine = batch.features[:, 0] / 4 == score
        assert (drops, rows) == (batch.lqd_drop[mine].sum(), mine.sum())


def test_what_cannot_be_compared_is_refused_by_name() -> None:
    case = SlottedArrivals(2, 2, [0, 0], [0, 1])
    with pytest.raises(ForetailError, match="carry no predictions"):
        compare(batches(case), 2, 2, ["lqd"], in_file)
    with pytest.raises(ValueError, match="red"):
        compare(batches(case), 2, 2, ["red"])
    with pytest.raises(ValueError, match="row 1 has port 1"):
        compare(batches(case), 1, 2, ["lqd"])
