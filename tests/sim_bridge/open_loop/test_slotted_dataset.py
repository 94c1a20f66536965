"""Datasets of slotted arrivals hold what the slotted model says, packet for packet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import SwitchGeometry
from foretail.features.records import FlowClass
from foretail.sim_bridge.arrivals.files import PACKET_BYTES, Slotted
from foretail.sim_bridge.arrivals.workloads import Incast, Uniform, Workload, workload_of
from foretail.sim_bridge.open_loop import dataset as open_loop_dataset
from foretail.sim_bridge.open_loop.dataset import PORT_RATE_BPS, arrivals_in_bytes, slotted_run, write_open_loop_dataset
from foretail.sim_bridge.open_loop.replay import MESSAGE_LEFT, ReplayScores, feed, replay_of, replay_scores
from foretail.sim_bridge.open_loop.slotted import compare, flipped, labelled
from tests.examples import draws
from tests.sim_bridge.arrivals.test_workloads import any_workload
from tests.strategies import SlottedArrivals, slotted_arrivals

NAMES = [item.name for item in FEATURES]


def both_ways(case: SlottedArrivals) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the slotted model and a replay in bytes say, of all packets at once."""
    arrivals = Slotted(np.array(case.slot, np.int64), np.array(case.port, np.int32))
    (in_slots,) = labelled([arrivals], case.ports, case.buffer, features=True, cell_bytes=1024)
    geometry = SwitchGeometry(case.ports, case.buffer * PACKET_BYTES, (PORT_RATE_BPS,) * case.ports)
    run = replace(slotted_run(Uniform(), 1, 1, 1, 1, cell_bytes=PACKET_BYTES), switches=(geometry,))
    (records,) = arrivals_in_bytes([arrivals])
    records["features"][:, MESSAGE_LEFT] = 255  # as labelled_records has it of every trace from outside
    return vars(in_slots), feed(replay_of("lqd", run, features=True), records)


@given(case=slotted_arrivals())
@settings(max_examples=draws(300))
def test_a_replay_in_bytes_is_the_slotted_model(case: SlottedArrivals) -> None:
    assume(case.slot)
    case = case._replace(buffer=max(case.buffer, case.ports))
    in_slots, in_bytes = both_ways(case)
    np.testing.assert_array_equal(in_bytes["lqd_drop"], in_slots["lqd_drop"])
    np.testing.assert_array_equal(in_bytes["features"], in_slots["features"])


def test_a_buffer_without_a_packet_per_port_would_not_be() -> None:
    in_slots, in_bytes = both_ways(SlottedArrivals(ports=2, buffer=1, slot=[0, 0], port=[0, 1]))
    assert in_slots["lqd_drop"].tolist() == [1, 0]  # the tie goes to port 0, whose packet leaves at the slot's end
    assert in_bytes["lqd_drop"].tolist() == [0, 1]  # which in bytes is on the wire already


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
    assert found == ReplayScores(*(PACKET_BYTES * packets for packets in counts))
    asked = expected.asked
    assert np.count_nonzero(rows["shadow_asked"]) == asked.tp + asked.fp + asked.tn + asked.fn


def test_arrivals_without_a_data_packet_are_no_dataset(tmp_path: Path) -> None:
    run = slotted_run(Incast(), 4, 10, 100, 1, cell_bytes=256)
    (records,) = arrivals_in_bytes([Slotted(np.arange(9), np.zeros(9, np.int32))])
    records["flow_class"] = FlowClass.CONTROL
    with pytest.raises(ForetailError, match=r"^incast has no data packet, so nothing to label: give other arrivals$"):
        write_open_loop_dataset(tmp_path / "dataset", run, [records])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "parameters", "complaint"),
    [
        ("in_cast", {}, "workload in_cast is unknown: choose from poisson_bursts, "),
        ("incast", {"fan": 5}, "incast has no parameter fan: it takes load, background_load, "),
        ("complete_sharing_lower_bound", {"load": 1}, "has no parameter load: it takes none"),
        ("incast", {"fan_in": "five"}, "fan_in of incast must not be 'five': input should be a valid integer"),
        ("incast", {"fan_in": 2.5}, "fan_in of incast must not be 2.5"),
        ("incast", {"fan_in": 0}, "fan_in must be a whole number of at least 1, not 0"),
        ("incast", {"poisson": 1}, "poisson of incast must not be 1: input should be a valid boolean"),
        ("incast", {"load": True}, "load of incast must not be True"),
        ("incast", {"load": float("nan")}, "load must be above 0, not nan"),
        ("incast", {"background_load": 1.5}, "background_load must be from 0 to 1"),
    ],
)
def test_wrong_parameters_are_refused(name: str, parameters: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ForetailError, match=complaint):
        workload_of(name, parameters)
