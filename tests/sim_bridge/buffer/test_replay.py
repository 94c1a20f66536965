"""The C++ policies on bytes and nanoseconds against the slow model, packet by packet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.sim_bridge._native import Replay, feature_names, slotted
from foretail.sim_bridge.policies import ASKING, BY_TAGS, KNOW_PRIORITIES, OF_ARRIVALS
from tests.examples import draws
from tests.sim_bridge.slow_models.bytes import ByteRun, Geometry, Packet, run_bytes
from tests.sim_bridge.slow_models.lqd import Rules, Settings
from tests.strategies import SlottedArrivals, byte_arrivals, schedulers, slotted_arrivals

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
