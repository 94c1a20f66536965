"""The C++ policies on bytes and nanoseconds against the slow model, packet by packet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
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
from foretail.features.dataset.schema import Rules as ManifestRules
from foretail.features.dataset.schema import SwitchGeometry
from foretail.features.records import REPLAY_DTYPE, FlowClass, Outcome
from foretail.sim_bridge import _native
from foretail.sim_bridge._native import Replay, feature_names, slotted
from foretail.sim_bridge.open_loop.push_outs import PushOuts, push_outs, replayed_push_outs
from foretail.sim_bridge.policies import ASKING, BY_TAGS, KNOW_PRIORITIES, OF_ARRIVALS
from tests.examples import draws
from tests.sim_bridge.slow_models.bytes import ByteRun, Geometry, Packet, run_bytes
from tests.sim_bridge.slow_models.lqd import Rules, Settings
from tests.sim_bridge.slow_models.lqd import Rules as SlowRules
from tests.strategies import SlottedArrivals, byte_arrivals, schedulers, slotted_arrivals
from tests.traces import RUN, make_arrivals, write_trace

COLUMNS = feature_names()
Case = tuple[Geometry, list[Packet]]
ANY_RULES = [
    Rules(*chosen)
    for chosen in product(
        ("counted", "uncounted"),
        ("lowest_port", "highest_port"),
        ("tail", "tail_kept", "head", "spare_first_rtt", "most_left"),
    )
]


ANY_RULES += [replace(rules, order="any_queue") for rules in ANY_RULES if rules.victim in BY_TAGS]


ANY_RULES += [Rules(oracle="occamy", oracle_alpha=alpha) for alpha in (0.25, 1.0, 8.0)]


def begin(
    policy: str,
    geometries: Sequence[Geometry],
    rules: Rules = Rules(),  # noqa: B008 (frozen)
    chosen: Settings = Settings(rtt=2**12, average_shift=12),  # noqa: B008 (frozen)
    cell_bytes: int = 64,
    seed: int = 0,
    features: Sequence[str] = COLUMNS,
) -> Replay:
    return Replay(
        policy,
        [(geometry.buffer, list(geometry.rates_bps)) for geometry in geometries],
        wire_overhead_bytes=geometries[0].overhead,
        cell_bytes=cell_bytes,
        features=list(features),
        seed=seed,
        **vars(rules),
        **chosen.keywords("bytes"),
    )


def feed(
    replay: Replay, packets: Sequence[Packet], predictions: Sequence[int] | None = None, switch: Sequence[int] = ()
) -> dict[str, Any]:
    return replay.feed(
        np.array([p.time_ns for p in packets], np.int64),
        np.array(switch or [0] * len(packets), np.int16),
        np.array([p.port for p in packets], np.int16),
        np.array([p.size for p in packets], np.int32),
        np.array([p.data for p in packets], np.uint8),
        np.array([p.first_rtt for p in packets], np.uint8),
        None if predictions is None else np.array(predictions, np.uint8),
        np.array([p.priority for p in packets], np.uint8),
        np.array([p.message_left for p in packets], np.uint8),
    )


def totals(slow: Sequence[ByteRun]) -> dict[str, int]:
    names = ("transmitted_bytes", "transmitted_packets", "threshold_deficits")
    return {name: sum(getattr(run, name) for run in slow) for name in names}


def assert_same(native: dict[str, Any], slow: ByteRun) -> None:
    for column in ("outcome", "lqd_drop", "asked", "exposed"):
        np.testing.assert_array_equal(native[column], getattr(slow, column), column)
    for i, expected in enumerate(slow.features):
        assert native["features"][i].tolist() == expected, f"features of packet {i}"


def byte_settings(alpha: tuple[float, ...]) -> st.SearchStrategy[Settings]:
    return st.builds(
        Settings,
        st.just(alpha),
        first_rtt_alpha=st.sampled_from((0.5, 64.0)),
        rtt=st.sampled_from((1, 32, 1000, 4096, 50_000)),
        average_shift=st.integers(0, 16),
        low_pass=st.sampled_from((1, 2, 100, 4096, 500_000)),
        spare_bandwidth=st.sampled_from((0.0, 0.1, 2.0)),
        bucket=st.sampled_from((0, 300, 2000, 40_000)),
        spared=st.sampled_from((-1, 0, 300, 4000)),
        spares_first_rtt=st.integers(0, 1),
        drop_budget=st.sampled_from((0, 100, 2000, 40_000)),
        answers_needed=st.integers(1, 3),
    )


@pytest.mark.nightly
@settings(max_examples=draws(400))
@given(data=st.data(), rules=st.sampled_from(ANY_RULES))
@pytest.mark.parametrize("policy", OF_ARRIVALS)
def test_a_policy_is_the_slow_model(policy: str, data: st.DataObject, rules: Rules) -> None:
    """Under every scheduler and rule, with an alpha for each queue or one for all; thresholds and labels included."""
    queues = data.draw(st.sampled_from((1, 3))) if policy in KNOW_PRIORITIES else 1
    geometry, packets = data.draw(byte_arrivals(priorities=queues))
    alpha = data.draw(st.lists(st.sampled_from((0.25, 0.5, 2.0)), min_size=queues, max_size=queues))
    chosen = data.draw(byte_settings(tuple(alpha if data.draw(st.booleans()) else alpha[:1])))
    if queues > 1:
        scheduler, quanta = data.draw(schedulers(queues, (64, 500, 1500, 4000)))
        chosen = replace(chosen, priorities=queues, scheduler=scheduler, quanta=quanta)
        rules = replace(rules, order="lower_classes_first") if data.draw(st.booleans()) else rules
    cell_bytes = 2 ** data.draw(st.integers(0, 8))
    wanted = st.none() | st.lists(st.integers(0, 1), min_size=len(packets), max_size=len(packets))
    predictions = data.draw(wanted) if policy in ASKING else None
    slow = run_bytes(policy, geometry, packets, predictions, rules, chosen, cell_bytes)
    replay = begin(policy, [geometry], rules, chosen, cell_bytes)
    native = feed(replay, packets, predictions)
    assert_same(native, slow)
    assert replay.finish() == totals([slow])
    if policy == "lqd" and rules.oracle == "lqd" and queues > 1:
        assert slow.threshold_deficits == 0 or (rules.counting, rules.victim) != ("counted", "tail")
        np.testing.assert_array_equal(native["lqd_drop"], native["outcome"] != 0)


@given(data=st.data(), case=byte_arrivals())
@pytest.mark.parametrize(
    "policy", ["cs", "abm", "reverie", "occamy", "lqd", "credence", "guarded", "learned", "credence_artifact"]
)
def test_chunks_are_one_feed_but_for_fates_that_come_later(policy: str, data: st.DataObject, case: Case) -> None:
    """A feature that is wanted alone, or with some others, is what it is among all."""
    geometry, packets = case
    wanted = data.draw(st.just(COLUMNS) | st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(packets)), max_size=4)))
    bounds = [0, *cuts, len(packets)]
    predictions = data.draw(st.lists(st.integers(0, 1), min_size=len(packets), max_size=len(packets)))
    slow = run_bytes(
        policy, geometry, packets, predictions, settings=Settings(rtt=2**12, average_shift=12), cell_bytes=64
    )
    replay = begin(policy, [geometry], features=wanted)
    for first, last in pairwise(bounds):
        part = feed(replay, packets[first:last], predictions[first:last])
        rows = range(first, last)
        known = ByteRun(
            outcome=[0 if slow.removed_at.get(i, i) >= last else slow.outcome[i] for i in rows],
            lqd_drop=[int(i in slow.lqd_dropped_at and slow.lqd_dropped_at[i] < last) for i in rows],
            asked=slow.asked[first:last],
            exposed=slow.exposed[first:last],
            features=[
                [value * (name in wanted) for name, value in zip(COLUMNS, slow.features[i], strict=True)] for i in rows
            ],
        )
        assert_same(part, known)
        assert part["features"].shape == (last - first, len(COLUMNS))
    assert replay.finish() == totals([slow])


@given(cases=st.lists(byte_arrivals(max_packets=25), min_size=2, max_size=3))
def test_switches_of_one_replay_know_nothing_of_each_other(cases: list[Case]) -> None:
    geometries = [replace(geometry, overhead=2) for geometry, _ in cases]
    merged = sorted(
        ((packet.time_ns, switch, packet) for switch, (_, packets) in enumerate(cases) for packet in packets),
        key=lambda entry: entry[:2],
    )
    switch_of = [switch for _, switch, _ in merged]
    replay = begin("lqd", geometries)
    native = feed(replay, [packet for *_, packet in merged], switch=switch_of)
    runs = []
    for switch, (geometry, (_, packets)) in enumerate(zip(geometries, cases, strict=True)):
        mine = np.array(switch_of, np.int64) == switch
        runs.append(run_bytes("lqd", geometry, packets, settings=Settings(rtt=2**12, average_shift=12), cell_bytes=64))
        assert_same({name: column[mine] for name, column in native.items()}, runs[-1])
    assert replay.finish() == totals(runs)


@given(case=byte_arrivals(), seed=st.integers(0, 2**64 - 1))
def test_random_victims_of_a_replay_come_from_the_seed_and_the_labels_follow_them(case: Case, seed: int) -> None:
    geometry, packets = case
    runs = [feed(begin("lqd", [geometry], Rules(victim="random"), seed=seed), packets) for _ in range(2)]
    np.testing.assert_array_equal(runs[0]["outcome"], runs[1]["outcome"])
    np.testing.assert_array_equal(runs[0]["lqd_drop"], runs[0]["outcome"] != 0)


SLOT_NS = 1024


@given(data=st.data(), case=slotted_arrivals(), counting=st.sampled_from(("counted", "uncounted")))
@pytest.mark.parametrize("policy", [name for name in OF_ARRIVALS if name != "occamy"])
def test_unit_packets_on_equal_links_are_the_slotted_model(
    policy: str, data: st.DataObject, case: SlottedArrivals, counting: str
) -> None:
    """One byte per slot and link. The models part only where the one waiting packet of a queue would be the victim:
    slotted LQD may push it out until the slot ends, a link has begun to send it. With tail victims that takes a buffer
    full of queues of length 1, so a buffer of more packets than ports excludes it. Occamy is left out: it takes the
    head, which in slots is that packet.
    """
    case = case._replace(buffer=max(case.buffer, case.ports + 1))
    n = len(case.slot)
    predictions = np.array(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)), np.uint8)
    in_slots = slotted(
        policy,
        case.ports,
        case.buffer,
        np.array(case.slot, np.int64),
        np.array(case.port, np.int32),
        predictions,
        counting=counting,
        rtt_slots=4,
        low_pass_slots=1,
        average_shift=2,
        drop_budget_packets=3,
        features=True,
        cell_bytes=1024,
    )
    replay = Replay(
        policy,
        [(case.buffer, [8 * 10**9 // SLOT_NS] * case.ports)],
        wire_overhead_bytes=0,
        counting=counting,
        tie="lowest_port",
        victim="tail",
        cell_bytes=1,
        features=COLUMNS,
        average_shift=12,
        rtt_ns=4 * SLOT_NS,
        low_pass_ns=1,
        drop_budget_bytes=3,
        artifact_cut_bytes=1,
    )
    packets = [
        Packet(i, slot * SLOT_NS, port, 1) for i, (slot, port) in enumerate(zip(case.slot, case.port, strict=True))
    ]
    in_time = feed(replay, packets, predictions.tolist())
    for column in ("outcome", "lqd_drop", "asked", "exposed", "features"):
        np.testing.assert_array_equal(in_time[column], in_slots[column], column)
    assert replay.finish()["transmitted_packets"] == in_slots["transmitted"]


TAIL = SlowRules("counted", "lowest_port", "tail")


def named(rules: SlowRules, victim: str) -> ManifestRules:
    """Values as a manifest has them."""
    return ManifestRules(*cast(Any, (rules.counting, rules.tie, victim)))


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


def found(geometry: Geometry, packets: Sequence[Packet], rules: SlowRules = TAIL) -> PushOuts:
    """The push-outs of LQD on the packets."""
    records = np.zeros(len(packets), REPLAY_DTYPE)
    for name, field in (("time_ns", "time_ns"), ("port", "port"), ("size_bytes", "size"), ("flow_class", "data")):
        records[name] = [getattr(packet, field) for packet in packets]
    run = replace(
        RUN,
        switches=(SwitchGeometry(geometry.ports, geometry.buffer, geometry.rates_bps),),
        scenario={"topology": {"wire_overhead_bytes": geometry.overhead}},
        rules=named(rules, rules.victim),
    )
    half = len(records) // 2
    return replayed_push_outs(run, (records[:half], records[half:]))


Contents = tuple[tuple[tuple[Packet, ...], int | None], ...]
"""Queue of every port, and the time when the packet being sent will have left."""


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
def test_stretches_hold_every_run_of_unit_packets(data: st.DataObject, case: Any, rules: SlowRules) -> None:
    geometry, packets = case
    outs = found(geometry, packets, rules)
    n = len(outs.lqd_drop)
    score = np.array(data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)), np.int64)
    possible = on_rows(packets, labellings(geometry, packets, rules, any_victim=True))
    check_best(outs.assign(score), possible, score)


@settings(max_examples=draws(40))
@given(case=byte_arrivals(), rules=ANY_ORDER, seed=st.integers(0, 99))
def test_in_bytes_the_best_labels_are_no_worse_than_those_of_the_run(
    case: tuple[Geometry, list[Packet]], rules: SlowRules, seed: int
) -> None:
    geometry, packets = case
    outs = found(geometry, packets, rules)
    score = np.random.default_rng(seed).random(len(outs.lqd_drop))
    chosen = outs.assign(score)
    assert chosen.sum() == outs.lqd_drop.sum()
    assert score[outs.lqd_drop].sum() <= score[chosen].sum() + 1e-9
    np.testing.assert_array_equal(outs.assign(outs.lqd_drop), outs.lqd_drop)
    np.testing.assert_array_equal(outs.assign(np.zeros(len(score))), outs.lqd_drop, "ties are the run's")


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


def test_traces_are_joined(tmp_path: Path) -> None:
    """Two full packets in the queue and a third: the tail victim is the arrival."""
    geometry = Geometry(300, (10**9, 10**9))
    packets = [Packet(row, row, 0, 100) for row in range(4)]
    dataset = trace(tmp_path, geometry, packets)
    assert push_outs(dataset).lqd_drop.tolist() == [False, False, False, True]
    both = PushOuts.together([push_outs(dataset), push_outs(dataset)])
    np.testing.assert_array_equal(both.assign([0, 9, 0, 0, 0, 0, 9, 0]), [0, 1, 0, 0, 0, 0, 1, 0])
    np.testing.assert_array_equal(both.assign([9, 0, 0, 0, 0, 0, 0, 1]), [0, 0, 0, 1, 0, 0, 0, 1], "0 is being sent")


def test_what_cannot_be_assigned_is_refused(tmp_path: Path) -> None:
    geometry, packets = Geometry(300, (10**9, 10**9)), [Packet(row, row, 0, 100) for row in range(4)]
    outs = found(geometry, packets)
    for score in (np.zeros(3), np.array([0, np.nan, 0, 0])):
        with pytest.raises(ForetailError, match="the scores must be 4 finite numbers, one for every labelled row"):
            outs.assign(score)
    with pytest.raises(ForetailError, match="is known for tail victims of LQD"):
        found(geometry, packets, SlowRules("counted", "lowest_port", "head"))
    dataset = trace(tmp_path, geometry, packets, SlowRules("counted", "lowest_port", "head"))
    wrong = Dataset(dataset.path, replace(dataset.manifest, rules=ManifestRules("counted", "lowest_port", "tail")))
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


def test_abm_counts_no_empty_queue_even_when_the_buffer_is_full() -> None:
    """Counted at 3072 ns, with no free byte and so a threshold of 0; 500 B have left when the last three arrive."""
    geometry = Geometry(1000, (10**9, 10**9))
    fill = [Packet(0, 0, 0, 500, first_rtt=True), Packet(1, 0, 0, 500, first_rtt=True), Packet(2, 3072, 1, 100)]
    packets = [*fill, *(Packet(3 + k, 4000, 1, 100) for k in range(3))]
    chosen = Settings(rtt=2**10, average_shift=10)
    native = feed(begin("abm", [geometry], chosen=chosen), packets)
    assert native["outcome"].tolist() == [0, 0, 3, 0, 0, 1]
    assert_same(native, run_bytes("abm", geometry, packets, settings=chosen, cell_bytes=64))


def test_a_link_does_not_give_back_the_packet_it_sends_but_a_slot_does() -> None:
    """The difference between the models: full buffer, queues of length 1, an arrival to the later port."""
    zero = np.zeros(2, np.int64)
    ports = np.array([0, 1], np.int32)
    assert slotted("lqd", 2, 1, zero, ports)["outcome"].tolist() == [4, 0]
    replay = begin("lqd", [Geometry(1, (10**9, 10**9))])
    assert feed(replay, [Packet(0, 0, 0, 1), Packet(1, 0, 1, 1)])["outcome"].tolist() == [0, 3]
