"""Guarded Credence: the slow model, what it is without guards and without a budget, and what its guards promise."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import draws
from tests.sim_bridge.buffer.test_replay import begin, byte_settings, feed
from tests.sim_bridge.buffer.test_slotted import any_rules, assert_same, bits_for, run_native
from tests.sim_bridge.slow_models.bytes import Geometry, Packet
from tests.sim_bridge.slow_models.lqd import Rules, Settings
from tests.sim_bridge.slow_models.slotted import PREDICTED, run_slotted
from tests.strategies import SlottedArrivals, byte_arrivals, slotted_arrivals

PLENTY = 2**30
OFF: dict[str, Any] = {"spares_first_rtt": 0, "drop_budget": PLENTY, "answers_needed": 1}

guards = st.builds(
    Settings,
    rtt=st.sampled_from((1, 2, 5, 25)),
    spares_first_rtt=st.integers(0, 1),
    drop_budget=st.sampled_from((0, 1, 3, 20)),
    answers_needed=st.integers(1, 8),
)


@settings(max_examples=draws(300))
@given(data=st.data(), case=slotted_arrivals(), rules=any_rules, chosen=guards)
def test_it_is_the_slow_model(data: st.DataObject, case: SlottedArrivals, rules: Rules, chosen: Settings) -> None:
    predictions, first = data.draw(st.none() | bits_for(case)), data.draw(st.none() | bits_for(case))
    slow = run_slotted("guarded", *case, predictions, first, rules=rules, settings=chosen)
    assert_same(run_native("guarded", case, predictions, first, rules=rules, chosen=chosen), slow)


@given(data=st.data(), case=slotted_arrivals(), rules=any_rules)
def test_without_guards_it_is_credence(data: st.DataObject, case: SlottedArrivals, rules: Rules) -> None:
    predictions, first = data.draw(bits_for(case)), data.draw(bits_for(case))
    told: dict[str, Any] = {"predictions": predictions, "first_rtt": first, "rules": rules, "chosen": Settings(**OFF)}
    assert_equal(run_native("guarded", case, **told), run_native("credence", case, **told))


@given(data=st.data(), case=byte_arrivals(priorities=2))
def test_without_guards_it_is_credence_in_bytes(data: st.DataObject, case: tuple[Geometry, list[Packet]]) -> None:
    geometry, packets = case
    chosen = replace(data.draw(byte_settings((0.5,))), priorities=2, **OFF)
    predictions = data.draw(st.lists(st.integers(0, 1), min_size=len(packets), max_size=len(packets)))
    replays = [begin(policy, [geometry], chosen=chosen) for policy in ("guarded", "credence")]
    assert_equal(*(feed(replay, packets, predictions) for replay in replays))
    assert replays[0].finish() == replays[1].finish()


@given(data=st.data(), case=slotted_arrivals(), chosen=guards)
def test_without_a_budget_it_is_credence_that_always_accepts(
    data: st.DataObject, case: SlottedArrivals, chosen: Settings
) -> None:
    chosen = replace(chosen, drop_budget=0, spares_first_rtt=0)
    guarded = run_native("guarded", case, data.draw(bits_for(case)), chosen=chosen)
    assert_equal(guarded, run_native("credence", case))


@given(data=st.data(), case=byte_arrivals())
def test_whatever_the_answers_predictions_drop_no_more_than_their_budget(
    data: st.DataObject, case: tuple[Geometry, list[Packet]]
) -> None:
    """An interval begins with a drop, at least `rtt` after the one before, and has one budget. So from the first drop
    of a queue on there are at most 1 + (time / rtt) of them; any `rtt` ns lie in two, at most.
    """
    geometry, packets = case
    chosen = data.draw(byte_settings((0.5,)))
    answers = data.draw(st.just([1] * len(packets)) | st.lists(st.integers(0, 1), min_size=60, max_size=60))
    outcome = feed(begin("guarded", [geometry], chosen=chosen), packets, answers[: len(packets)])["outcome"]
    gone = [packet for packet, fate in zip(packets, outcome, strict=True) if fate == PREDICTED]
    assert not chosen.spares_first_rtt or not any(packet.first_rtt for packet in gone)
    for port in range(geometry.ports):
        mine = [packet for packet in gone if packet.port == port]
        for first in mine:
            since = [packet for packet in mine if packet.time_ns >= first.time_ns]
            near = sum(packet.size for packet in since if packet.time_ns < first.time_ns + chosen.rtt)
            assert near <= 2 * chosen.drop_budget
        if mine:
            intervals = 1 + (mine[-1].time_ns - mine[0].time_ns) // chosen.rtt
            assert sum(packet.size for packet in mine) <= intervals * chosen.drop_budget


@given(case=slotted_arrivals(), needed=st.integers(2, 8), data=st.data())
def test_no_packet_goes_by_an_answer_alone(case: SlottedArrivals, needed: int, data: st.DataObject) -> None:
    """Those whose queue was never told to drop `needed` times in a row are accepted."""
    answers = data.draw(bits_for(case))
    chosen = Settings(drop_budget=PLENTY, answers_needed=needed)
    native = run_native("guarded", case, answers, chosen=chosen)
    for port in range(case.ports):
        of_port = np.flatnonzero((np.array(case.port) == port) & (native["asked"] == 1))
        told = [int(answers[i]) for i in of_port]
        dropped = native["outcome"][of_port] == PREDICTED
        breaks = [-1, *(k for k, answer in enumerate(told) if not answer), len(told)]
        expected = sum(max(0, b - a - needed) for a, b in pairwise(breaks))
        assert dropped.sum() == expected


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], name)
