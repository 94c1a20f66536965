"""Demand per interval from the flows and the rows of ns-3 runs, and splits by run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.features.demand.matrix import (
    DemandMatrix,
    DemandSequence,
    Racks,
    carried_demand,
    offered_demand,
    split_sequences,
)
from foretail.features.records import FLOW_DTYPE, NEVER_STARTED, FlowClass, Records
from foretail.sim_bridge.circuits.schedules import vermilion
from tests.refusals import refusing
from tests.traces import make_arrivals, write_trace

RACKS = Racks(leaves=3, servers_per_leaf=2, uplink_bps=8_000_000_000)  # 1 byte per ns
TOPOLOGY = {"topology": {"leaves": 2, "servers_per_leaf": 2, "spine_link_bps": 8_000_000_000}}


def make_flows(*rows: tuple[int, int, int, int, int]) -> Records:
    """Start, ideal completion time, bytes, source, destination."""
    flows = np.zeros(len(rows), FLOW_DTYPE)
    for name, column in zip(
        ("start_ns", "ideal_fct_ns", "size_bytes", "source", "destination"), np.transpose(rows), strict=True
    ):
        flows[name] = column
    flows["fct_ns"] = -1
    return flows


def test_flows_are_spread_over_their_ideal_time() -> None:
    flows = make_flows((50, 200, 400, 0, 5), (0, 10, 70, 2, 3), (100, 100, 30, 4, 1), (100, 50, 60, 5, 0))
    found = offered_demand(flows, RACKS, interval_ns=100, steps=2, run="a")
    expected = np.zeros((2, 3, 3))
    expected[0, 0, 2], expected[1, 0, 2] = 1.0, 2.0  # 400 bytes over 200 ns from 50 on; the last 50 ns are cut off
    expected[1, 2, 0] = 0.9  # two flows of the same racks; the one inside rack 1 is not there
    assert np.allclose(found.demand, expected)
    assert (found.interval_ns, found.run, found.nodes, len(found)) == (100, "a", 3, 2)


def test_no_byte_between_racks_is_lost() -> None:
    random = np.random.default_rng(1)
    count = 500
    start, ideal = random.integers(0, 5000, count), random.integers(1, 3000, count)
    size, source, destination = (
        random.integers(1, 9000, count),
        random.integers(0, 6, count),
        random.integers(0, 6, count),
    )
    flows = make_flows(*zip(*(a.tolist() for a in (start, ideal, size, source, destination)), strict=True))
    found = offered_demand(flows, RACKS, interval_ns=70, steps=8000 // 70 + 1, run="a").demand.sum(axis=0) * 70
    expected = np.zeros((3, 3))
    np.add.at(expected, (source // 2, destination // 2), size)
    np.fill_diagonal(expected, 0)
    assert np.allclose(found, expected)


def test_steps_begin_with_the_first_flow_and_end_with_the_last() -> None:
    flows = make_flows((5_000, 100, 100, 0, 5), (5_399, 300, 300, 0, 5))
    found = offered_demand(flows, RACKS, 100, None, "a")
    assert found.demand[:, 0, 2].tolist() == [1, 0, 0]
    assert np.allclose(offered_demand(flows, RACKS, 100, 6, "a").demand[:, 0, 2], [1, 0, 0, 0.01, 1, 1])
    with pytest.raises(ForetailError, match="399 ns of traffic, no step of 400 ns"):
        offered_demand(flows, RACKS, 400, None, "a")
    with pytest.raises(ForetailError, match="run a has no traffic"):
        offered_demand(flows[:0], RACKS, 100, None, "a")
    with pytest.raises(ForetailError, match="more than 134217728 numbers"):
        offered_demand(flows, RACKS, 100, 10**8, "a")


def trace(path: Path, flows: Records) -> Dataset:
    """Arrivals at two leaves, servers on ports 0 and 1, spines above; switch 1 of RUN has 10 ports."""
    arrivals = make_arrivals(4000, seed=3)
    arrivals.records["flow"] = np.arange(4000) % len(flows)
    dataset = write_trace(path, arrivals, scenario=TOPOLOGY)
    (path / "run").mkdir()
    (path / "run" / "flows.bin").write_bytes(flows.tobytes())
    return dataset


@pytest.mark.parametrize(("first_ns", "last_ns", "steps"), [(0, 0, 20), (700, 5_699, None)])
def test_rows_count_where_they_enter_an_uplink(first_ns: int, last_ns: int, steps: int | None, tmp_path: Path) -> None:
    flows = make_flows((first_ns, 1, 1, 0, 2), (last_ns, 1, 1, 3, 1))
    dataset = trace(tmp_path / "run_1", flows)
    records = make_arrivals(4000, seed=3).records
    found = carried_demand(dataset, interval_ns=1000, steps=steps)
    expected = np.zeros((steps or 4, 2, 2))
    for index, record in enumerate(records):
        step = (int(record["time_ns"]) - first_ns) // 1000
        if record["flow_class"] != FlowClass.CONTROL and record["port"] >= 2 and 0 <= step < len(expected):
            expected[step, index % 2, 1 - index % 2] += record["size_bytes"] / 1000
    assert expected.sum() > 0
    assert np.allclose(found.demand, expected)
    assert found.run == "run_1, seed 1"


def test_a_split_never_parts_a_run() -> None:
    sequences = [DemandSequence(np.zeros((1, 2, 2)), 1, f"run {i % 10}") for i in range(20)]
    split = split_sequences(sequences, 0.2, 0.3, seed=4)
    sides = [{s.run for s in side} for side in (split.train, split.validation, split.test)]
    assert [len(side) for side in sides] == [5, 2, 3]
    assert len(set.union(*sides)) == 10
    assert len(split.train) + len(split.validation) + len(split.test) == 20
    again = split_sequences(sequences[::-1], 0.2, 0.3, seed=4)
    assert {s.run for s in again.test} == sides[2]
    assert any({s.run for s in split_sequences(sequences, 0.2, 0.3, seed=i).test} != sides[2] for i in range(5))
    with pytest.raises(ForetailError, match="2 runs with different traffic cannot fill"):
        split_sequences(sequences[:2], 0.2, 0.3, seed=1)
    for validation, test in ((0.0, 0.5), (0.5, 0.5), (0.5, float("nan"))):
        with pytest.raises(ForetailError, match="split fractions"):
            split_sequences(sequences, validation, test, seed=1)


def test_messages_that_never_started_are_no_demand(tmp_path: Path) -> None:
    flows = make_flows((700, 1, 1, 0, 2), (5_699, 1, 1, 3, 1))
    with_others = np.concatenate([flows, make_flows((NEVER_STARTED, 1, 1, 0, 2))])
    np.testing.assert_array_equal(
        offered_demand(with_others, RACKS, 1000, None, "a").demand, offered_demand(flows, RACKS, 1000, None, "a").demand
    )
    assert len(carried_demand(trace(tmp_path / "a", with_others), 1000, None).demand) == 4


def test_the_hose_model_is_checked_by_rows_and_columns() -> None:
    DemandMatrix(np.array([[0, 2.0], [2.0, 0]])).require_hose(2)
    with pytest.raises(ForetailError, match="row 0 of the demand matrix sums to 3, more than the 2 uplinks"):
        DemandMatrix(np.array([[0, 3.0], [2.0, 0]])).require_hose(2)
    with pytest.raises(ForetailError, match="column 2 of the demand matrix sums to 4"):
        DemandMatrix(np.array([[0, 0, 2.0], [0, 0, 2.0], [0, 0, 0]])).require_hose(2)


def test_scaling_fills_the_largest_sum() -> None:
    scaled = DemandMatrix(np.array([[0, 1, 2], [0, 0, 3], [1, 0, 0]])).scaled_to(4)
    assert scaled.largest_sum == pytest.approx(4)
    assert scaled.demand[0, 2] == pytest.approx(2 * 4 / 5)
    with pytest.raises(ForetailError, match="the demand matrix is zero"):
        DemandMatrix(np.zeros((3, 3))).scaled_to(1)


def test_the_matrix_cannot_be_changed() -> None:
    given = np.array([[0, 1.0], [1.0, 0]])
    matrix = DemandMatrix(given)
    given[0, 1] = 5
    assert matrix.demand[0, 1] == 1
    with pytest.raises(ValueError, match="read-only"):
        matrix.demand[0, 1] = 2


def test_columns_first_is_no_other_matrix() -> None:
    demand = np.asfortranarray(np.array([[0, 1.0, 2.0], [3.0, 0, 1.0], [0.5, 2.0, 0]]))
    assert DemandMatrix(demand).demand.flags.c_contiguous
    assert vermilion(DemandMatrix(demand), 1, 3).nodes == 3


def flows_that_the_run_lacks(folder: Path) -> None:
    short = trace(folder / "a", make_flows((0, 1, 1, 0, 2), (0, 1, 1, 3, 1)))
    (folder / "a" / "run" / "flows.bin").write_bytes(make_flows((0, 1, 1, 0, 2)).tobytes())
    carried_demand(short, 1000, 10)


def offered(flows: np.ndarray, interval_ns: int = 100, steps: int = 2) -> DemandSequence:
    return offered_demand(flows, RACKS, interval_ns, steps, "a")


TWO = np.zeros((1, 2, 2))
test_what_cannot_be_is_refused = refusing(
    (flows_that_the_run_lacks, "flows that run/flows.bin lacks"),
    (lambda folder: carried_demand(write_trace(folder / "b", make_arrivals(10)), 1000, 10), "not a leaf-spine run"),
    (lambda: offered(make_flows((0, 10, 10, 0, 6))), "servers outside"),
    (lambda: offered(make_flows((0, 10, 10, -1, 5))), "servers outside"),
    (lambda: offered(make_flows((0, 0, 10, 0, 5))), "without bytes"),
    (lambda: offered(make_flows((0, 10, 0, 0, 5))), "without bytes"),
    (lambda: offered(make_flows((-2, 10, 10, 0, 5))), "without bytes"),
    (lambda: offered(make_flows((NEVER_STARTED, 10, 10, 0, 5))), "no traffic"),
    (lambda: offered(np.zeros(3, np.dtype([("a", "<i8")]))), "flows.bin"),
    (lambda: offered(make_flows((0, 10, 10, 0, 5)), interval_ns=0), "give positive numbers"),
    (lambda: offered(make_flows((0, 10, 10, 0, 5)), steps=0), "give positive numbers"),
    (lambda: Racks(1, 1, 1), "is not a network"),
    (lambda: DemandSequence(np.zeros((2, 2)), 1, "a"), "shape"),
    (lambda: DemandSequence(np.zeros((0, 2, 2)), 1, "a"), "shape"),
    (lambda: DemandSequence(np.zeros((1, 2, 3)), 1, "a"), "step 0 of run a"),
    (lambda: DemandSequence(TWO, 0, "a"), "interval_ns"),
    (lambda: DemandSequence(TWO, 1, ""), "no run"),
    (lambda: DemandSequence(np.stack([np.zeros((2, 2)), np.eye(2)]), 1, "a"), "step 1 of run a.*diagonal"),
    (lambda: DemandSequence(TWO * np.nan, 1, "a"), "finite"),
    (lambda: DemandSequence(TWO - 1, 1, "a"), "negative"),
    (lambda: DemandMatrix(np.array([[0, 1]])), r"shape \(1, 2\)"),
    (lambda: DemandMatrix(np.array([[0]])), r"shape \(1, 1\)"),
    (lambda: DemandMatrix(np.array([0, 1])), r"shape \(2,\)"),
    (lambda: DemandMatrix(np.array([[0, np.nan], [1, 0]])), "from node 0 to node 1, nan, is not a finite number"),
    (lambda: DemandMatrix(np.array([[0, np.inf], [1, 0]])), "is not a finite number"),
    (lambda: DemandMatrix(np.array([[0, 1], [-2, 0]])), "from node 1 to node 0, -2, is negative"),
    (lambda: DemandMatrix(np.array([[0, 1], [2, 0.5]])), "from node 1 to node 1, 0.5, is on the diagonal"),
)
