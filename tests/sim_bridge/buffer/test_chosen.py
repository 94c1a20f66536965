"""The policy ``chosen``: its rules and what it sends are those of the same choice made from outside, by windows.

Costs 3 s: replays of some hundred short sequences, and three runs of a small network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, read_records
from foretail.models import zoo
from foretail.models.drop.thresholds.adaptive_threshold import AdaptiveThreshold
from foretail.sim_bridge._native import KnownArrivals, SlottedRun
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.native.driver import run_native
from foretail.sim_bridge.ns3.driver import run_driver
from foretail.sim_bridge.open_loop.known import KnownRun
from tests.examples import draws
from tests.scenarios import settings
from tests.sim_bridge.packets.paused_runs import finished, written
from tests.strategies import SlottedArrivals, slotted_arrivals

RULES = [
    *(AdaptiveThreshold.dynamic_thresholds(alpha, (4.0, 16.0)) for alpha in (0.25, 1.0, 8.0)),
    *(zoo.rule(name).rule for name in zoo.names()[:2]),
]
SCORERS = [rule.scorer() for rule in RULES]
NUMBERS = [number for rule in RULES for number in rule.fixed()]


def chosen_rules(sent: Callable[[int], Sequence[int]], windows: int, memory: int, sampled: int) -> list[int]:
    """The rule of each window: that whose replays sent most in the last windows that were sampled before it."""
    replays = [np.array(sent(window)) for window in range(0, windows, sampled)]
    rules = []
    for window in range(windows):
        before = -(-window // sampled)  # windows that were sampled before it
        rules.append(int(np.argmax(sum(replays[max(0, before - memory) : before], np.zeros(len(RULES), np.int64)))))
    return rules


def changes(rules: Sequence[int], starts: Sequence[int], length: int) -> list[tuple[int, int]]:
    """Times and rules of the changes, of which windows without an arrival have none."""
    found = [(0, 0)]
    for window, (first, end) in enumerate(pairwise(starts)):
        if first < end and rules[window] != found[-1][1]:
            found.append((window * length, rules[window]))
    return found


def firsts(time: NDArray[np.int64], windows: int, window: int) -> list[int]:
    return [int(row) for row in np.searchsorted(time, np.arange(windows) * window)]


@examples(max_examples=draws(150), deadline=None)
@given(
    case=slotted_arrivals(max_ports=6, max_buffer=24),
    window=st.integers(3, 40),
    memory=st.integers(1, 4),
    sampled=st.integers(1, 3),
)
def test_slots_have_the_rules_that_replays_from_outside_choose(
    case: SlottedArrivals, window: int, memory: int, sampled: int
) -> None:
    slot, port = np.array(case.slot, np.int64), np.array(case.port, np.int32)
    windows = int(slot[-1]) // window + 1 if len(slot) else 1
    starts = [*firsts(slot, windows, window), len(slot)]

    def sent(number: int) -> list[int]:
        rows = slice(starts[number], starts[number + 1])
        piece = KnownRun.in_slots([Slotted(slot[rows] - number * window, port[rows])], case.ports, case.buffer)
        return [piece.sent("learned", scorer) for scorer in SCORERS]

    rules = chosen_rules(sent, windows, memory, sampled)
    parameters: dict[str, Any] = {"rules": NUMBERS, "window_slots": window, "memory": memory, "sampled": sampled}
    run = SlottedRun("chosen", case.ports, case.buffer, **parameters)
    half = len(slot) // 2
    for part in (slice(half), slice(half, None)):
        run.feed(slot[part], port[part])
    totals = run.finish()
    assert totals["turns"] == changes(rules, starts, window)
    whole = KnownRun.in_slots([Slotted(slot, port)], case.ports, case.buffer)
    scorers = [SCORERS[rule] for rule in rules]
    assert totals["transmitted"] == whole.sent_in_turns("learned", scorers, [[0, *starts[1:-1]]])
    assert totals["transmitted"] == whole.sent("chosen", **parameters)


def network(**changed: Any) -> dict[str, Any]:
    return settings(
        policy__name="chosen",
        policy__rules=NUMBERS,
        policy__window_ns=200_000,
        policy__memory=2,
        topology__buffer_bytes_per_port_per_gbps=600,
        traffic_ns=2_000_000,
        **changed,
    )


@pytest.mark.parametrize("sampled", [1, 2])
def test_a_network_has_the_rules_that_replays_of_its_trace_choose(sampled: int, tmp_path: Path) -> None:
    document = network(trace=True, policy__sampled=sampled)
    _, summary = finished(document, tmp_path)
    records = read_records(tmp_path / "arrivals.bin", ARRIVAL_DTYPE)
    length, changed = 200_000, 0
    for number, switch in enumerate(summary["switches"]):
        mine = records[records["switch"] == number]
        windows = int(mine["time_ns"][-1]) // length + 1
        starts = [*firsts(mine["time_ns"], windows, length), len(mine)]

        def known(rows: slice, start: int, mine: Any = mine, switch: Any = switch) -> KnownArrivals:
            part = mine[rows]
            return KnownArrivals.in_bytes(
                switch["buffer_bytes"],
                switch["port_rates_bps"],
                document["topology"]["wire_overhead_bytes"],
                part["time_ns"] - start,
                part["port"].astype(np.int32),
                np.ascontiguousarray(part["size_bytes"]),
                (part["flow_class"] != FlowClass.CONTROL).astype(np.uint8),
                np.ascontiguousarray(part["first_rtt"]),
                cell_bytes=256,
                average_shift=summary["average_shift"],
            )

        def sent(window: int, known: Any = known, starts: list[int] = starts) -> list[int]:
            part = known(slice(starts[window], starts[window + 1]), window * length)
            return [part.sent("learned", scorer) for scorer in SCORERS]

        rules = chosen_rules(sent, windows, 2, sampled)
        assert [tuple(turn) for turn in switch["rules"]] == changes(rules, starts, length)
        whole = known(slice(None), 0)
        scorers = [SCORERS[rule] for rule in rules]
        assert switch["data_out"]["bytes"] == whole.sent_in_turns("learned", scorers, [0, *starts[1:-1]])
        changed += len(switch["rules"]) - 1
    assert changed > 2


def test_a_snapshot_has_the_mirror_and_the_memory(tmp_path: Path) -> None:
    whole = written(network(), tmp_path / "whole", [])
    assert written(network(), tmp_path / "divided", [900_000]) == whole


def test_what_is_no_rule_is_refused() -> None:
    run = KnownRun.in_slots([Slotted(np.zeros(1, np.int64), np.zeros(1, np.int32))], 1, 1)
    for rules, complaint in (
        ([], "policy 'chosen' has no rules: give the numbers of at least one, as the zoo"),
        (NUMBERS[:-1], "an adaptive threshold has 23 numbers, and there are 114: give those of whole rules"),
        ([0.5, *NUMBERS[1:]], "number 0 of an adaptive threshold is no whole number from -2.36 to 2.36: give one"),
    ):
        with pytest.raises(ForetailError, match=complaint):
            run.sent("chosen", rules=rules)
    assert zoo.named(zoo.numbers([])) == list(zoo.names())


@pytest.mark.ns3
def test_ns3_has_the_same_rules_and_flows(tmp_path: Path) -> None:
    runs = []
    for name, simulate in (("native", run_native), ("ns3", run_driver)):
        (tmp_path / name).mkdir()
        runs.append(simulate(network(), tmp_path / name))
    native, ns3 = runs
    assert (native.flows() == ns3.flows()).all()
    assert [one["rules"] for one in native.summary["switches"]] == [one["rules"] for one in ns3.summary["switches"]]
