"""Datasets of slotted arrivals hold what the slotted model says, packet for packet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import settings as examples
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Outcome, read_records
from foretail.sim_bridge._native import Replay, late_qd, slotted
from foretail.sim_bridge.arrivals.files import PACKET_BYTES, Slotted
from foretail.sim_bridge.arrivals.workloads import Incast, Workload, workload_of
from foretail.sim_bridge.native.driver import collect_dataset
from foretail.sim_bridge.native.network import NativeNetwork
from foretail.sim_bridge.open_loop import dataset as open_loop_dataset
from foretail.sim_bridge.open_loop.dataset import arrivals_in_bytes, slotted_run, write_open_loop_dataset
from foretail.sim_bridge.open_loop.replay import (
    compare_replays,
    replay_over,
    replay_scores,
)
from foretail.sim_bridge.open_loop.scores import SentScores
from foretail.sim_bridge.open_loop.slotted import compare, flipped, labelled
from foretail.sim_bridge.policy_settings import IN_INTERVALS, NetworkParameters
from tests.examples import draws
from tests.refusals import refusing
from tests.sim_bridge.arrivals.test_workloads import any_workload
from tests.sim_bridge.buffer.test_native_doors import REPLAY
from tests.sim_bridge.native.drawn_settings import drawn_pauses
from tests.sim_bridge.packets.paused_runs import mixed
from tests.sim_bridge.slow_models.offline_optimum import offline_optimum
from tests.strategies import SlottedArrivals, slotted_arrivals

NAMES = [item.name for item in FEATURES]


@given(
    workload=any_workload,
    ports=st.integers(1, 12),
    buffer_per_port=st.integers(1, 20),
    slots=st.integers(50, 400),
    seed=st.integers(1, 2**31 - 1),
    window=st.integers(1, 400),
    cell_bytes=st.sampled_from([2**shift for shift in range(17)]),
    average_shift=st.integers(0, 24),
)
@settings(max_examples=draws(60), deadline=None)
def test_a_dataset_is_the_slotted_model(
    workload: Workload,
    ports: int,
    buffer_per_port: int,
    slots: int,
    seed: int,
    window: int,
    cell_bytes: int,
    average_shift: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    buffer = ports * buffer_per_port
    try:
        batches = list(workload.batches(ports, buffer, slots, seed, batch_packets=100))
    except ForetailError:  # a workload that such a switch does not suit
        assume(False)
    assume(batches)
    folder = tmp_path_factory.mktemp("slotted") / "dataset"
    run = slotted_run(workload, ports, buffer_per_port, slots, seed, cell_bytes=cell_bytes, average_shift=average_shift)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_loop_dataset, "WINDOW_ARRIVALS", window)
        write_open_loop_dataset(folder, run, arrivals_in_bytes(batches))
    dataset = Dataset.open(folder)
    rows = dataset.frame()
    in_slots = list(labelled(batches, ports, buffer, features=True, cell_bytes=cell_bytes, average_shift=average_shift))
    drop = np.concatenate([batch.lqd_drop for batch in in_slots])
    np.testing.assert_array_equal(rows["lqd_drop"], drop)
    np.testing.assert_array_equal(rows[NAMES], np.concatenate([batch.features for batch in in_slots]))
    np.testing.assert_array_equal(rows["port"], np.concatenate([batch.port for batch in batches]))
    predicted = np.random.default_rng(seed).random(len(drop)) < 0.1
    found = replay_scores(dataset, predicted != drop)
    expected = compare(batches, ports, buffer, (), flipped(0.1, seed), threads=1)
    counts = (expected.lqd, expected.followlqd, expected.accept, expected.sent)
    assert found == SentScores(*(PACKET_BYTES * packets for packets in counts))
    asked = expected.asked
    assert np.count_nonzero(rows["shadow_asked"]) == asked.tp + asked.fp + asked.tn + asked.fn


def test_arrivals_without_a_data_packet_are_no_dataset(tmp_path: Path) -> None:
    run = slotted_run(Incast(), 4, 10, 100, 1, cell_bytes=256)
    (records,) = arrivals_in_bytes([Slotted(np.arange(9), np.zeros(9, np.int32))])
    records["flow_class"] = FlowClass.CONTROL
    with pytest.raises(ForetailError, match=r"^incast has no data packet, so nothing to label: give other arrivals$"):
        write_open_loop_dataset(tmp_path / "dataset", run, [records])
    assert list(tmp_path.iterdir()) == []


test_wrong_parameters_are_refused = refusing(
    (lambda: workload_of("in_cast", {}), "workload in_cast is unknown: choose from poisson_bursts, "),
    (lambda: workload_of("incast", {"fan": 5}), "incast.fan is unknown: incast takes load, background_load, "),
    (lambda: workload_of("complete_sharing_lower_bound", {"load": 1}), "load is unknown: .* takes nothing"),
    (lambda: workload_of("incast", {"fan_in": "five"}), "incast.fan_in = five is out of range: it must be a whole"),
    (lambda: workload_of("incast", {"fan_in": 2.5}), "incast.fan_in = 2.5 is out of range"),
    (lambda: workload_of("incast", {"poisson": 1}), "incast.poisson = 1 is out of range: it must be true or false"),
    (lambda: workload_of("incast", {"load": True}), "incast.load = True is out of range"),
)


def collected(document: dict[str, Any], path: Path) -> Dataset:
    """The dataset of a run."""
    collect_dataset(document, path, scenario=document)
    return Dataset.open(path)


def recorded(document: dict[str, Any], folder: Path) -> Any:
    """The records of the same run."""
    folder.mkdir()
    network = NativeNetwork(document, folder)
    network.advance()
    network.finish()
    return read_records(folder / "arrivals.bin", ARRIVAL_DTYPE)


def parameters_of(document: dict[str, Any]) -> NetworkParameters:
    """The parameters of the run's policy."""
    names = NetworkParameters.__dataclass_fields__
    return NetworkParameters(**{name: value for name, value in document["policy"].items() if name in names})


@examples(max_examples=draws(16), deadline=None)
@given(number=st.integers(0, 2**32 - 1), chunk=st.integers(50, 5000))
def test_a_replay_decides_as_the_run(number: int, chunk: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    document = drawn_pauses(number) | {"trace": True}
    document["policy"]["flip_probability"] = 0.0  # a replay inverts other predictions
    assume(document["policy"]["name"] not in IN_INTERVALS)  # a replay does not know the round trip of the network
    folder = tmp_path_factory.mktemp("run")
    records = recorded(document, folder / "run")
    dataset = collected(document, folder / "dataset")
    policy = document["policy"]["name"]
    replay = replay_over(policy, dataset, parameters=parameters_of(document))
    outcomes = [replay.feed(arrivals)["outcome"] for arrivals in dataset.arrivals(chunk)]
    outcomes.append(np.zeros(0, np.uint8))  # there may be no arrival
    decided = np.where(records["outcome"] == Outcome.PUSHED_OUT, Outcome.ACCEPTED, records["outcome"])
    found = np.concatenate(outcomes)
    assert np.array_equal(np.where(found == Outcome.PUSHED_OUT, Outcome.ACCEPTED, found), decided)
    if policy == "lqd":
        lossy = records["flow_class"] != FlowClass.CONTROL
        assert np.array_equal(records["lqd_drop"][lossy] != 0, records["outcome"][lossy] != Outcome.ACCEPTED)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A run under LQD whose answers may not be lost."""
    return collected(mixed("lqd", trace=True), tmp_path_factory.mktemp("collected") / "dataset")


def test_a_dataset_says_which_queues_may_not_lose_and_who_was_paused(dataset: Dataset) -> None:
    lossless = dataset.manifest.lossless
    assert lossless is not None
    assert lossless.queues == (1, 2)
    assert dataset.manifest.kind == "lossless_trace"
    pauses = dataset.pauses()
    assert len(pauses) > 10
    assert (np.diff(pauses["time_ns"]) >= 0).all()
    for where in np.unique(pauses[["switch", "port", "priority"]]):
        own = pauses[pauses[["switch", "port", "priority"]] == where]["paused"]
        assert np.array_equal(own, np.arange(1, len(own) + 1) % 2), "a queue stops and goes on in turn"
    frame = dataset.frame(["flow_class", "lqd_drop", "ingress", "port"])
    assert not frame["lqd_drop"][frame["flow_class"] == "incast"].any()
    assert frame["lqd_drop"].any()
    assert (frame["ingress"] != frame["port"]).mean() > 0.9


def test_other_policies_are_compared_on_it_and_lose_no_lossless_packet(dataset: Dataset) -> None:
    drops = np.concatenate([batch.column(0).to_numpy(zero_copy_only=False) for batch in dataset.rows(["lqd_drop"])])
    compared = compare_replays(dataset, ["dt", "cs", "reverie", "sonic"], drops)
    sent = compared.transmitted
    assert set(sent) == {"dt", "cs", "reverie", "sonic", "lqd"}
    assert sent["lqd"] == compared.arrivals - drops.sum()
    lossless = int((dataset.frame(["flow_class"])["flow_class"] == "incast").sum())
    assert all(lossless <= packets <= compared.arrivals for packets in sent.values())
    assert compared.followlqd <= compared.lqd


PAUSES = ([0], 1.0, 0, 0, "longer_queues", [100])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (([1], 1.0, 0, 0, "longer_queues", [100]), "lossless queue is 1, outside 0 to 0"),
        (([0], 0.0, 0, 0, "longer_queues", [100]), "alpha of pauses must be a number above 0"),
        (([0], 1.0, 0, 0, "shorter_queues", [100]), "unknown makes_room 'shorter_queues'"),
        (([0], 1.0, 0, 0, "longer_queues", []), "headroom is for other switches"),
        (([0], 1.0, 0, 0, "longer_queues", [10_000]), "headroom of a switch"),
    ],
)
def test_a_replay_refuses_pauses_of_other_switches(given: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Replay("lqd", [(10_000, [10**9] * 2)], wire_overhead_bytes=0, pauses=given)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("time_ns", -1, "time"),
        ("switch_index", 1, "unknown switch"),
        ("port", 2, "port 2"),
        ("priority", 1, "unknown queue"),
    ],
)
def test_a_replay_refuses_a_pause_that_is_none(column: str, value: int, words: str) -> None:
    dtypes = {"time_ns": "i8", "switch_index": "i2", "port": "i2", "priority": "u1", "paused": "u1"}
    columns = {name: np.zeros(1, dtype) for name, dtype in dtypes.items()}
    columns[column][0] = value
    replay = Replay("lqd", [(10_000, [10**9] * 2)], wire_overhead_bytes=0, pauses=PAUSES)
    with pytest.raises(ValueError, match=words):
        replay.expect_pauses(**columns)
    with pytest.raises(ValueError, match="differ in length"):
        replay.expect_pauses(**(columns | {"paused": np.zeros(2, "u1")}))


RACKS: dict[str, Any] = REPLAY | {"switches": [(4000, [10**9] * 2)] * 2, "wire_overhead_bytes": 0}
SLOT = [[2, 0, 1]]
LINKS = (9, 1, 10**9, 10**9)


def between(*voqs: Any, **changes: Any) -> Replay:
    """A replay of racks that are joined by circuits."""
    return Replay(**RACKS | changes | {"voqs": voqs})


test_links_of_racks_that_cannot_be_are_refused_in_one_sentence = refusing(
    (lambda: between([0, 2], [], *LINKS), "number of slots is 0, outside 1 to"),
    (lambda: between([0, 2], [[2, 0, 1], [1]], *LINKS), "the slots of a schedule have different racks"),
    (lambda: between([0, 2], [[3, 0, 1]], *LINKS), "rack of a slot is 3, outside -1 to 2"),
    (lambda: between([0, 3], SLOT, *LINKS), "number of a rack is 3, outside 0 to 2"),
    (lambda: between([2, 0], SLOT, *LINKS), "the numbers of racks must rise"),
    (lambda: between([0, 2], SLOT, 0, 1, 10**9, 10**9), "day_ns is 0, outside 1 to"),
    (lambda: between([0, 2], SLOT, 9, -1, 10**9, 10**9), "night_ns is -1, outside 0 to"),
    (lambda: between([0, 2], SLOT, 9, 1, 0, 10**9), "packet_bps is 0, outside 1000 to"),
    (lambda: between([0, 2], SLOT, 9, 1, 10**9, 2**70), "circuit_bps is not a number of 64 bits"),
    (lambda: between([0], SLOT, *LINKS), "every rack has one switch"),
    (lambda: between([0, 1, 2], SLOT, *LINKS), "every rack has one switch"),
    (
        lambda: between([0, 2], SLOT, *LINKS, switches=[(4000, [10**9])] * 2),
        "the switch of a rack has a port for every rack",
    ),
    (lambda: between([0, 2], SLOT, *LINKS, queues=2), "a VOQ is one queue: give queues=1"),
)


@pytest.mark.parametrize(("day_ns", "sent"), [(9_000, 0), (12_000, 1)])
def test_a_packet_that_no_day_has_time_for_stays_in_its_voq(day_ns: int, sent: int) -> None:
    """It takes 12 us, there is one slot, and its packet path is closed for ever."""
    replay = between([0, 1], [[1, 0]], day_ns, 0, 10**9, 10**9)
    column = {"time_ns": np.int64, "switch_index": np.int16, "port": np.int16, "size_bytes": np.int32}
    values = (0, 0, 1, 1500)
    arrival = {name: np.array([value], kind) for (name, kind), value in zip(column.items(), values, strict=True)}
    replay.feed(**arrival, data=np.ones(1, np.uint8), first_rtt=np.zeros(1, np.uint8))
    assert replay.finish()["transmitted_packets"] == sent


def runs_empty(length: int, now: int, future: Sequence[int]) -> int:
    """Return in which slot a queue of `length` packets runs empty that accepts all packets of slots `future`."""
    slot = now
    while True:
        length += future.count(slot)
        length -= min(length, 1)
        if length == 0:
            return slot
        slot += 1
        future = [arrival for arrival in future if arrival >= slot]


def slow_late_qd(ports: int, buffer: int, slots: Sequence[int], port_of: Sequence[int]) -> tuple[int, list[int]]:
    """Return the packets transmitted and who was dropped; victims are tails."""
    queues: list[list[int]] = [[] for _ in range(ports)]
    drop = [0] * len(slots)
    now = 0
    for packet, (slot, port) in enumerate(zip(slots, port_of, strict=True)):
        for _ in range(slot - now):
            for queue in queues:
                del queue[:1]
        now = slot
        queues[port].append(packet)
        if sum(map(len, queues)) > buffer:
            later = range(packet + 1, len(slots))
            ends = [
                runs_empty(len(queue), now, [slots[k] for k in later if port_of[k] == number]) if queue else -1
                for number, queue in enumerate(queues)
            ]
            drop[queues[ends.index(max(ends))].pop()] = 1
    return len(slots) - sum(drop), drop


def replayed(ports: int, buffer: int, slot: Sequence[int], accepted_ports: Sequence[int]) -> int:
    """Transmit what somebody accepted, refusing to overflow; return how many packets that were."""
    outcome = slotted("cs", ports, buffer, np.asarray(slot, np.int64), np.asarray(accepted_ports, np.int32))
    assert not np.any(outcome["outcome"])
    return int(outcome["transmitted"])


def native(case: SlottedArrivals) -> tuple[int, list[int]]:
    late = late_qd(case.ports, case.buffer, np.asarray(case.slot, np.int64), np.asarray(case.port, np.int32))
    return late["transmitted"], late["drop"].tolist()


@st.composite
def small_arrivals(draw: st.DrawFn) -> SlottedArrivals:
    """At most 4 ports, a buffer of 6, 12 slots with arrivals and some gaps, often more than N packets a slot."""
    ports, buffer = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    slot: list[int] = []
    port: list[int] = []
    now = 0
    for arrivals in draw(st.lists(st.lists(st.integers(0, ports - 1), max_size=2 * ports + 2), max_size=12)):
        slot += [now] * len(arrivals)
        port += arrivals
        now += draw(st.sampled_from((1, 1, 1, 1, 2, 5)))
    return SlottedArrivals(ports, buffer, slot, port)


@settings(max_examples=draws(200))
@given(case=small_arrivals())
def test_late_qd_is_optimal(case: SlottedArrivals) -> None:
    optimum = offline_optimum(*case).transmitted
    slow, _ = slow_late_qd(*case)
    fast, drop = native(case)
    assert slow == fast == optimum
    kept = [k for k, dropped in enumerate(drop) if not dropped]
    assert replayed(case.ports, case.buffer, [case.slot[k] for k in kept], [case.port[k] for k in kept]) == optimum


@settings(max_examples=draws(50))
@given(case=slotted_arrivals(max_ports=5, max_buffer=12))
def test_native_late_qd_is_the_slow_one(case: SlottedArrivals) -> None:
    slow, _ = slow_late_qd(*case)
    fast, drop = native(case)
    assert fast == slow == len(drop) - sum(drop)


@settings(max_examples=draws(50))
@given(case=small_arrivals())
def test_the_optimum_can_be_carried_out(case: SlottedArrivals) -> None:
    optimum = offline_optimum(*case)
    assert optimum.slot.tolist() == sorted(set(case.slot))
    assert optimum.accepted.shape == (len(optimum.slot), case.ports)
    step, port = np.nonzero(optimum.accepted)
    times = optimum.accepted[step, port]
    offered = [
        [sum((s, p) == (slot, other) for s, p in zip(case.slot, case.port, strict=True)) for other in range(case.ports)]
        for slot in optimum.slot.tolist()
    ]
    assert np.all(optimum.accepted <= np.reshape(offered, optimum.accepted.shape))
    sent = replayed(
        case.ports, case.buffer, np.repeat(optimum.slot[step], times).tolist(), np.repeat(port, times).tolist()
    )
    assert sent == optimum.transmitted
