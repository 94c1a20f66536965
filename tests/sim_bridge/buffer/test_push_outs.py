"""What LQD's push-outs could have taken, against every run of LQD that there is, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Rules, SwitchGeometry, Victim
from foretail.features.records import REPLAY_DTYPE, FlowClass, Outcome
from foretail.sim_bridge import _native
from foretail.sim_bridge.open_loop.push_outs import PushOuts, push_outs, relabelled, replayed_push_outs
from tests.examples import draws
from tests.sim_bridge.slow_models.bytes import Geometry, Packet, run_bytes
from tests.sim_bridge.slow_models.lqd import Rules as SlowRules
from tests.strategies import byte_arrivals
from tests.traces import RUN, make_arrivals, write_trace

TAIL = SlowRules("counted", "lowest_port", "tail")


def named(rules: SlowRules, victim: str) -> Rules:
    """As a manifest has them."""
    return Rules(*cast(Any, (rules.counting, rules.tie, victim)))


def trace(folder: Path, geometry: Geometry, packets: Sequence[Packet], rules: SlowRules = TAIL) -> Dataset:
    """The packets as a dataset whose labels are those of the slow model."""
    arrivals = make_arrivals(len(packets))
    records = arrivals.records
    for name, field in (("time_ns", "time_ns"), ("port", "port"), ("size_bytes", "size")):
        records[name] = [getattr(packet, field) for packet in packets]
    records["fate_time_ns"] = records["time_ns"]
    records["switch"] = 0
    records["flow_class"] = [FlowClass.INCAST if packet.data else FlowClass.CONTROL for packet in packets]
    records["outcome"] = Outcome.ACCEPTED
    labels = np.array(run_bytes("lqd", geometry, packets, rules=rules).lqd_drop, np.uint8)
    records["lqd_drop"] = labels & (records["flow_class"] != FlowClass.CONTROL)
    return write_trace(
        folder / "trace",
        arrivals,
        switches=(SwitchGeometry(geometry.ports, geometry.buffer, geometry.rates_bps),),
        scenario={"topology": {"wire_overhead_bytes": geometry.overhead}},
        rules=named(rules, rules.victim),
    )


def found(geometry: Geometry, packets: Sequence[Packet], rules: SlowRules = TAIL, victim: Victim = "tail") -> PushOuts:
    """The push-outs of LQD on the packets."""
    records = np.zeros(len(packets), REPLAY_DTYPE)
    for name, field in (("time_ns", "time_ns"), ("port", "port"), ("size_bytes", "size"), ("flow_class", "data")):
        records[name] = [getattr(packet, field) for packet in packets]
    run = replace(
        RUN,
        switches=(SwitchGeometry(geometry.ports, geometry.buffer, geometry.rates_bps),),
        scenario={"topology": {"wire_overhead_bytes": geometry.overhead}},
        rules=named(rules, "tail"),
    )
    half = len(records) // 2
    return replayed_push_outs(run, (records[:half], records[half:]), victim)


Contents = tuple[tuple[tuple[Packet, ...], int | None], ...]
"""Of every port its queue, and when the packet being sent will have left."""


def labellings(
    geometry: Geometry, packets: Sequence[Packet], rules: SlowRules, any_victim: bool
) -> set[frozenset[int]]:
    """Rows dropped by every run of LQD, or by those that keep the order of sizes and kinds of its tail victims."""
    empty: Contents = (((), None),) * geometry.ports
    runs: set[tuple[Contents, frozenset[int]]] = {(empty, frozenset())}
    for packet in packets:
        runs = {run for before, gone in runs for run in admitted(geometry, before, gone, packet, rules, any_victim)}
    return {gone for _, gone in runs}


def admitted(
    geometry: Geometry,
    contents: Contents,
    gone: frozenset[int],
    packet: Packet,
    rules: SlowRules,
    any_victim: bool,
) -> Iterator[tuple[Contents, frozenset[int]]]:
    contents = tuple(sent(geometry, port, queue, done, packet.time_ns) for port, (queue, done) in enumerate(contents))
    if packet.size > geometry.buffer:
        yield contents, gone | {packet.row} if packet.data else gone
        return
    counted = rules.counting == "counted"
    if counted:
        contents = changed(contents, packet.port, (*contents[packet.port][0], packet))
    todo = [(contents, gone)]
    while todo:
        contents, gone = todo.pop()
        lengths = [sum(p.size for p in queue) for queue, _ in contents]
        if sum(lengths) + (0 if counted else packet.size) <= geometry.buffer:
            queue, done = contents[packet.port]
            queue = queue if counted else (*queue, packet)
            if done is None:
                done = packet.time_ns + duration(geometry, packet.port, queue[0])
            yield (*contents[: packet.port], (queue, done), *contents[packet.port + 1 :]), gone
            continue
        able = {port: [p for p in queue[done is not None :] if p.data] for port, (queue, done) in enumerate(contents)}
        ports = [port for port, victims in able.items() if victims]
        if not ports:
            if counted:
                contents = changed(contents, packet.port, contents[packet.port][0][:-1])
            yield contents, gone | {packet.row} if packet.data else gone
            continue
        sign = -1 if rules.tie == "lowest_port" else 1
        longest = max(ports, key=lambda port: (lengths[port], sign * port))
        queue = contents[longest][0]
        as_recorded = [(p.size, p.data) for p in queue if p != able[longest][-1]]
        for victim in able[longest]:
            rest = tuple(p for p in queue if p != victim)
            if not any_victim and [(p.size, p.data) for p in rest] != as_recorded:
                continue
            after = changed(contents, longest, rest), gone | {victim.row}
            if victim == packet:
                yield after
            else:
                todo.append(after)


def sent(geometry: Geometry, port: int, queue: tuple[Packet, ...], done: int | None, now: int) -> Any:
    while done is not None and done <= now:
        queue = queue[1:]
        done = done + duration(geometry, port, queue[0]) if queue else None
    return queue, done


def changed(contents: Contents, port: int, queue: tuple[Packet, ...]) -> Contents:
    return (*contents[:port], (queue, contents[port][1]), *contents[port + 1 :])


def duration(geometry: Geometry, port: int, packet: Packet) -> int:
    return -(-8 * (packet.size + geometry.overhead) * 10**9 // geometry.rates_bps[port])


@st.composite
def few_packets(draw: st.DrawFn, sizes: tuple[int, ...], control: bool) -> tuple[Geometry, list[Packet]]:
    """At most 11 packets on two ports that send one byte in 8 or 16 ns, into a buffer for a few of them."""
    geometry = Geometry(draw(st.integers(1, 2 + 3 * min(sizes))), (10**9, draw(st.sampled_from((10**9, 5 * 10**8)))))
    packets: list[Packet] = []
    now = 0
    for row in range(draw(st.integers(1, 11))):
        is_data = not control or draw(st.integers(0, 4)) > 0
        size = draw(st.sampled_from(sizes))
        packets.append(Packet(row, now, draw(st.sampled_from((0, 0, 0, 1))), size, is_data))
        now += draw(st.sampled_from((0, 0, 0, 1, 8, 16, 24)))
    return geometry, packets


ANY_ORDER = st.builds(
    SlowRules,
    st.sampled_from(("counted", "uncounted")),
    st.sampled_from(("lowest_port", "highest_port")),
    st.just("tail"),
)


def check_best(labels: NDArray[np.bool_], possible: set[frozenset[int]], score: NDArray[np.int64]) -> None:
    """`labels` are possible, and none other has more score above any threshold, or in all."""
    chosen = frozenset(np.flatnonzero(labels).tolist())
    assert chosen in possible
    for threshold in np.unique(score):
        above = set(np.flatnonzero(score >= threshold).tolist())
        assert len(above & chosen) == max(len(above & gone) for gone in possible)
    assert sum(score[list(chosen)]) == max(sum(score[list(gone)]) for gone in possible)


def on_rows(packets: Sequence[Packet], gone: set[frozenset[int]]) -> set[frozenset[int]]:
    """Packets renumbered as labelled rows."""
    row = {packet.row: k for k, packet in enumerate(p for p in packets if p.data)}
    return {frozenset(row[number] for number in one) for one in gone}


@settings(max_examples=draws(120))
@given(data=st.data(), case=few_packets((1, 2), control=True), rules=ANY_ORDER)
def test_stretches_hold_every_run_of_the_same_sizes(data: st.DataObject, case: Any, rules: SlowRules) -> None:
    geometry, packets = case
    outs = found(geometry, packets, rules)
    n = len(outs.lqd_drop)
    score = np.array(data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)), np.int64)
    check_best(outs.assign(score), on_rows(packets, labellings(geometry, packets, rules, any_victim=False)), score)


@settings(max_examples=draws(120))
@given(data=st.data(), case=few_packets((1,), control=False), rules=ANY_ORDER)
def test_queues_hold_every_run_of_unit_packets(data: st.DataObject, case: Any, rules: SlowRules) -> None:
    geometry, packets = case
    outs = found(geometry, packets, rules)
    n = len(outs.lqd_drop)
    score = np.array(data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)), np.int64)
    possible = on_rows(packets, labellings(geometry, packets, rules, any_victim=True))
    for freedom in ("queue", "stretch"):  # with one size they are the same
        check_best(outs.assign(score, freedom), possible, score)
    others: tuple[Victim, ...] = ("head", "random", "tail_kept")
    for victim in others:
        labels = found(geometry, packets, rules, victim).lqd_drop
        np.testing.assert_array_equal(outs.assign(labels, "queue"), labels, victim)


@settings(max_examples=draws(40))
@given(case=byte_arrivals(), rules=ANY_ORDER, seed=st.integers(0, 99))
def test_in_bytes_the_order_of_freedoms_holds(case: tuple[Geometry, list[Packet]], rules: SlowRules, seed: int) -> None:
    geometry, packets = case
    outs = found(geometry, packets, rules)
    score = np.random.default_rng(seed).random(len(outs.lqd_drop))
    in_stretch, in_queue = outs.assign(score), outs.assign(score, "queue")
    assert in_stretch.sum() == in_queue.sum() == outs.lqd_drop.sum()
    assert score[outs.lqd_drop].sum() <= score[in_stretch].sum() + 1e-9 <= score[in_queue].sum() + 2e-9
    for freedom in ("stretch", "queue"):
        np.testing.assert_array_equal(outs.assign(outs.lqd_drop, freedom), outs.lqd_drop)
        np.testing.assert_array_equal(outs.assign(np.zeros(len(score)), freedom), outs.lqd_drop, "ties are the run's")


@settings(max_examples=draws(100))
@given(seed=st.integers(0, 10**6), places=st.integers(1, 60), share=st.floats(0.05, 1))
def test_the_greedy_choice_is_the_best_matching(seed: int, places: int, share: float) -> None:
    draw = np.random.default_rng(seed)
    count = max(1, int(share * places))
    given_to = np.sort(draw.choice(places, count, replace=False))  # so that there is one
    first = np.maximum.accumulate(np.minimum(given_to, np.sort(draw.integers(0, places, count))))
    last = np.maximum.accumulate(np.minimum(places - 1, given_to + draw.integers(0, 8, count)))
    score = draw.integers(0, 6, places).astype(np.float64)
    chosen = _native.best_assignment(first, last, score) != 0
    place = np.arange(places)
    allowed = (place >= first[:, None]) & (place <= last[:, None])
    rows, columns = linear_sum_assignment(np.where(allowed, score, -1e6), maximize=True)
    assert chosen.sum() == count
    assert score[chosen].sum() == score[columns].sum()
    assert all(a < b for a, b in pairwise(rows))
    wanted = np.flatnonzero(chosen)
    assert ((wanted >= first) & (wanted <= last)).all(), "victims in order go to push-outs in order"


def test_rows_under_another_rule_are_those_of_a_replay(tmp_path: Path) -> None:
    """Two full packets in the queue and a third: the tail victim is the arrival, the head victim the one waiting."""
    geometry = Geometry(300, (10**9, 10**9))
    packets = [Packet(row, row, 0, 100) for row in range(4)]
    dataset = trace(tmp_path, geometry, packets)
    assert push_outs(dataset).lqd_drop.tolist() == [False, False, False, True]
    under = relabelled(dataset, "head")
    assert under.lqd_drop.tolist() == [False, True, False, False]
    assert under.features.shape[0] == 4
    assert relabelled(dataset, "tail").asked.tolist() == [False, True, True, False], "safe, two asked, over threshold"
    both = PushOuts.together([push_outs(dataset), push_outs(dataset)])
    np.testing.assert_array_equal(both.assign([0, 9, 0, 0, 0, 0, 9, 0]), [0, 1, 0, 0, 0, 0, 1, 0])
    np.testing.assert_array_equal(both.assign([9, 0, 0, 0, 0, 0, 0, 1]), [0, 0, 0, 1, 0, 0, 0, 1], "0 is being sent")


def test_what_cannot_be_assigned_is_refused(tmp_path: Path) -> None:
    geometry, packets = Geometry(300, (10**9, 10**9)), [Packet(row, row, 0, 100) for row in range(4)]
    outs = found(geometry, packets)
    for score in (np.zeros(3), np.array([0, np.nan, 0, 0])):
        with pytest.raises(ForetailError, match="the scores must be 4 finite numbers, one for every labelled row"):
            outs.assign(score)
    with pytest.raises(ForetailError, match="is known for tail victims: use victim tail"):
        found(geometry, packets, victim="head").assign(np.zeros(4))
    dataset = trace(tmp_path, geometry, packets, SlowRules("counted", "lowest_port", "head"))
    wrong = Dataset(dataset.path, replace(dataset.manifest, rules=Rules("counted", "lowest_port", "tail")))
    with pytest.raises(ForetailError, match="does not reproduce its labels: collect the trace again"):
        push_outs(wrong)


@pytest.mark.parametrize(
    ("first", "last", "score", "message"),
    [
        ([0], [0, 1], [1.0, 1.0], "the bounds of the push-outs differ in number"),
        ([0, 0], [0, 0], [1.0, 1.0], "push-outs without a packet to take"),
        ([1, 0], [1, 1], [1.0, 1.0], "first place of a push-out"),
        ([0, 1], [2, 1], [1.0, 1.0, 1.0], "last place of a push-out"),
        ([0], [2], [1.0, 1.0], "last place of a push-out"),
        ([0], [1], [1.0, float("nan")], "place 1 has no score"),
    ],
)
def test_the_native_door_refuses(first: list[int], last: list[int], score: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _native.best_assignment(np.array(first, np.int64), np.array(last, np.int64), np.array(score))
