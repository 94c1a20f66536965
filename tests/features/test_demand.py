"""Demand: sequences from flows and rows of runs, files of matrices, logs; splits by run, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.features.demand import logs as demand_logs
from foretail.features.demand.logs import Steps, read_demand_logs
from foretail.features.demand.matrix import (
    DemandMatrix,
    DemandSequence,
    Racks,
    carried_demand,
    offered_demand,
    read_demand,
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
    at_the_end = (200, 9, 9, 0, 4)
    flows = make_flows((50, 200, 400, 0, 5), (0, 10, 70, 2, 3), (100, 100, 30, 4, 1), (100, 50, 60, 5, 0), at_the_end)
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
    (lambda: DemandMatrix(np.array([[0]])), r"shape \(1, 1\)"),
    (lambda: DemandMatrix(np.array([0, 1])), r"shape \(2,\)"),
)


MATRIX = np.array([[0, 1.5, 0], [0.1, 0, 1e-3], [2, 1 / 3, 0]])


def save_csv(path: Path, values: NDArray[np.float64]) -> None:
    np.savetxt(path, values, delimiter=",", fmt="%.17g")


def save_parquet(path: Path, values: NDArray[np.float64]) -> None:
    pd.DataFrame(values, columns=[f"rack{i}" for i in range(values.shape[1])]).to_parquet(path)


SAVE: dict[str, Callable[[Path, NDArray[np.float64]], None]] = {
    "csv": save_csv,
    "npy": lambda path, values: np.save(path, values),
    "parquet": save_parquet,
}


@pytest.mark.parametrize("kind", SAVE)
def test_every_format_gives_the_matrix_exactly(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"demand.{kind}"
    SAVE[kind](path, MATRIX)
    assert np.array_equal(read_demand(path).demand, MATRIX)


def test_integers_spaces_blank_lines_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf0, 2\r\n\r\n3 ,0\r\n\r\n")
    np.save(tmp_path / "a.npy", np.array([[0, 2], [3, 0]], np.uint8))
    for path in tmp_path.iterdir():
        assert np.array_equal(read_demand(path).demand, [[0, 2], [3, 0]])


@pytest.mark.parametrize(
    "more", [{}, {"index": False}, {"header": False}, {"sep": ";"}, {"sep": ";", "header": False, "index": False}]
)
@pytest.mark.parametrize("nodes", [2, 6])
def test_what_pandas_writes_is_read(more: dict[str, Any], nodes: int, tmp_path: Path) -> None:
    values = np.random.default_rng(nodes).random((nodes, nodes)) * (1 - np.eye(nodes))
    pd.DataFrame(values).to_csv(tmp_path / "demand.csv", **more)
    assert np.array_equal(read_demand(tmp_path / "demand.csv").demand, values)


def test_rows_and_columns_may_have_names(tmp_path: Path) -> None:
    racks = ["rack a", "rack b"]
    pd.DataFrame([[0, 1.5], [2, 0]], index=racks, columns=racks).to_csv(tmp_path / "demand.csv")
    assert np.array_equal(read_demand(tmp_path / "demand.csv").demand, [[0, 1.5], [2.0, 0]])


WRONG = {
    "not square": (np.zeros((2, 3)), "has shape (2, 3)"),
    "negative": (np.array([[0, -1.0], [1, 0]]), "from node 0 to node 1, -1, is negative"),
    "NaN": (np.array([[0, 1.0], [np.nan, 0]]), "from node 1 to node 0, nan, is not a finite number"),
    "infinite": (np.array([[0, 1.0], [np.inf, 0]]), "is not a finite number"),
    "diagonal": (np.array([[0, 1.0], [1, 0.5]]), "from node 1 to node 1, 0.5, is on the diagonal"),
    "zero": (np.zeros((2, 2)), "is zero"),
    "huge": (np.array([[0, 1e200], [1, 0]]), "1 entries of up to 1e+200, as from a counter that wrapped"),
    "a counter that wrapped": (np.array([[0, 2.0**64 - 4096], [1, 0]]), "up to 1.84467e+19, as from a counter"),
    "tiny": (np.array([[0, 5e-324], [0, 0]]), "capacities of one uplink"),
}


def complaint_about(path: Path) -> str:
    with pytest.raises(ForetailError) as refusal:
        read_demand(path)
    assert str(path) in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize("kind", SAVE)
@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_demand_is_refused(case: str, kind: str, tmp_path: Path) -> None:
    values, complaint = WRONG[case]
    SAVE[kind](tmp_path / f"demand.{kind}", values)
    assert complaint in complaint_about(tmp_path / f"demand.{kind}")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "has shape (0,)"),
        (b"a,b\n0,1\n", "row 0, column 0 of"),
        (b"0,1\n,0\n", "row 1, column 0 of"),
        (b"0;1,5\n1,5;0\n", "'0;1', which is not a number"),
        (b",a,b\na,0,1\nc,1,0\n", "is that of 'c', and the columns are 'a', 'b': give rows and columns the same nodes"),
        (b',"a\nb",c\nd,0,1\nc,1,0\n', r"is that of 'd', and the columns are 'a\nb', 'c': give"),
        (b",a,b\na,0,1\nb,1,0\nc,1,1\n", "is that of 'c', and the columns are 'a', 'b'"),
        (b",a,b\na,0\n", "has 2 numbers and the first 3"),
        (b"0,1_0\n1,0\n", "'1_0', which is not a number"),
        (b"0,1\n1\n", "row 1 of"),
        (b"0,1\n1,\xff\n", "cannot be read"),
        (b"0,1\x00\n1,0\n", "not a number"),
        (b"," * 20_000 + b"1\n", "more than 16384"),
    ],
)
def test_a_csv_of_something_else_is_refused(text: bytes, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "demand.csv").write_bytes(text)
    assert complaint in complaint_about(tmp_path / "demand.csv")


def test_an_npy_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "demand.npy"
    np.save(path, np.array([[0, {}], [1, 0]], dtype=object), allow_pickle=True)
    assert "not an NPY file of numbers" in complaint_about(path)
    for values in (np.eye(2, dtype=complex), np.array([["0", "1"], ["1", "0"]]), np.eye(2, dtype=bool)):
        np.save(path, values)
        assert "elements of type" in complaint_about(path)
    np.save(path, np.zeros(3))
    assert "has shape (3,)" in complaint_about(path)
    np.save(path, MATRIX)
    whole = path.read_bytes()
    beyond = whole.replace(b"(%d, " % len(MATRIX), b"(%d" % 10**30 + b", ")[: len(whole)]
    open_bracket = whole.replace(b"}", b"(", 1)
    for damaged in (b"", whole[:20], whole[:-1], b"0,1\n1,0\n", beyond, open_bracket):
        path.write_bytes(damaged)
        complaint_about(path)
    np.savez(tmp_path / "demand.npz", MATRIX)
    (tmp_path / "demand.npz").rename(path)
    assert "an archive of arrays" in complaint_about(path)


def test_a_header_that_claims_more_than_there_is_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "demand.npy"
    np.lib.format.write_array_header_1_0(
        handle := path.open("wb"), {"descr": "|u1", "fortran_order": False, "shape": (100_000, 100_000)}
    )
    handle.truncate(handle.tell() + 10**10)  # sparse
    handle.close()
    assert "more than 16384" in complaint_about(path)


def test_a_parquet_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "demand.parquet"
    pd.DataFrame({"a": ["0", "1"], "b": [1, 0]}).to_parquet(path)
    assert "column a of" in complaint_about(path)
    pd.DataFrame({"a": pd.array([0, None], "Int64"), "b": [1, 0]}).to_parquet(path)
    assert "from node 1 to node 0, nan, is not a finite number" in complaint_about(path)
    pd.DataFrame(index=range(3)).to_parquet(path)
    complaint_about(path)
    path.write_bytes(b"PAR1")
    assert "cannot be read" in complaint_about(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    for kind in SAVE:
        (tmp_path / f"folder.{kind}").mkdir()
        for name in ("nowhere", "folder"):
            assert "there is no file" in complaint_about(tmp_path / f"{name}.{kind}")
    (tmp_path / "demand.txt").write_text("0 1\n1 0\n")
    assert "neither .csv, .npy nor .parquet" in complaint_about(tmp_path / "demand.txt")


BYTES = Steps(interval_ns=1000, uplink_bps=8_000_000_000)  # an uplink carries 1000 bytes in a step
SEQUENCE = np.array([[[0, 10, 0], [0, 0, 5], [300, 0, 0]], [[0, 0, 0], [7, 0, 0], [0, 9, 0]], np.zeros((3, 3))])


def rows_of(sequence: NDArray[np.float64], unit: str = "bytes") -> pd.DataFrame:
    step, source, destination = np.nonzero(sequence)
    value = sequence[step, source, destination]
    return pd.DataFrame({"step": step, "source": source, "destination": destination, unit: value})


def save_answers(path: Path, sequence: NDArray[np.float64]) -> None:
    path.write_text("".join(" ".join(str(int(x)) for x in matrix.ravel()) + "\n" for matrix in sequence))


SAVE_LOG: dict[str, Callable[[Path, NDArray[np.float64]], None]] = {
    "npy": lambda path, sequence: np.save(path, sequence),
    "txt": save_answers,
    "csv": lambda path, sequence: rows_of(sequence).to_csv(path, index=False),
    "parquet": lambda path, sequence: rows_of(sequence).to_parquet(path),
}


@pytest.mark.parametrize("kind", SAVE_LOG)
def test_every_format_gives_the_sequence(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"log.{kind}"
    SAVE_LOG[kind](path, SEQUENCE)
    (found,) = read_demand_logs([path], BYTES)
    expected = SEQUENCE / 1000
    if kind in ("csv", "parquet"):  # rows do not tell that the log went on
        expected = expected[:2]
    assert np.allclose(found.demand, expected)
    assert (found.run, found.interval_ns) == (str(path), 1000)
    (first,) = read_demand_logs([path], Steps(1000, 8_000_000_000, most=1))
    assert np.array_equal(first.demand, found.demand[:1])


def test_demand_in_uplinks_needs_no_rate(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", SEQUENCE / 300)
    rows_of(SEQUENCE / 300, "demand").to_parquet(tmp_path / "b.parquet")
    rows_of(SEQUENCE / 300, "demand").to_csv(tmp_path / "c.csv", index=False)
    for name in ("a.npy", "b.parquet", "c.csv"):
        (found,) = read_demand_logs([tmp_path / name], Steps())
        assert np.array_equal(found.demand[:2], SEQUENCE[:2] / 300)
        assert found.interval_ns == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["x", "y", "10", "9"]),
            st.integers(10**15, 10**15 + 400),
            st.integers(0, 3),
            st.integers(1, 3),
            st.integers(0, 900),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_rows_add_up_by_run_step_and_pair(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int, int, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("log") / "log.csv"
    lines = [f"{time},{source},{(source + turn) % 4},{size},{run}" for run, time, source, turn, size in rows]
    path.write_text("\n".join(["time_ns,source,destination,bytes,run", *lines]) + "\n")
    expected: dict[str, dict[tuple[int, int, int], int]] = {}
    for run, time, source, turn, size in rows:
        first = min(other[1] for other in rows if other[0] == run)
        entries = expected.setdefault(f"{path}, run {run}", {})
        at = (time - first) // 100, source, (source + turn) % 4
        entries[at] = entries.get(at, 0) + size
    told_apart = {frozenset((at, size) for at, size in entries.items() if size) for entries in expected.values()}
    assume(len(told_apart) == len(expected))  # a run that is given twice is refused
    log = [path], Steps(interval_ns=100, uplink_bps=80_000_000)  # a byte is an uplink
    spans = [np.ptp([other[1] for other in rows if other[0] == run]) for run in {row[0] for row in rows}]
    if 0 < max(spans) < 100:
        with pytest.raises(ForetailError, match=r"the longest run of .* takes \d+ ns, and a step 100 ns: "):
            read_demand_logs(*log)
        return
    nodes = {node for _, _, source, turn, size in rows if size for node in (source, (source + turn) % 4)}
    if nodes == set(range(1, max(nodes, default=0) + 1)) and len(nodes) > 1:
        with pytest.raises(ForetailError, match=r"are numbered from 1 to \d, and count from 0: subtract 1"):
            read_demand_logs(*log)
        return
    found = read_demand_logs(*log)
    assert [sequence.run for sequence in found] == list(expected)
    for sequence in found:
        entries = expected[sequence.run]
        assert len(sequence) == max(step for step, _, _ in entries) + 1
        assert sequence.demand.sum() == pytest.approx(sum(entries.values()))
        for at, size in entries.items():
            assert sequence.demand[at] == pytest.approx(size)


def test_nodes_are_counted_over_all_files(tmp_path: Path) -> None:
    rows_of(SEQUENCE[:, :2, :2], "demand").to_csv(tmp_path / "a.csv", index=False)
    np.save(tmp_path / "b.npy", SEQUENCE)
    small, large = read_demand_logs([tmp_path / "a.csv", tmp_path / "b.npy"], Steps())
    assert (small.nodes, large.nodes) == (3, 3)
    assert np.array_equal(small.demand[0], np.pad(SEQUENCE[0, :2, :2], ((0, 1), (0, 1))))
    np.save(tmp_path / "c.npy", SEQUENCE[:, :2, :2])
    with pytest.raises(ForetailError, match=r"c\.npy has 2 nodes, and another log or racks 3"):
        read_demand_logs([tmp_path / "c.npy", tmp_path / "b.npy"], Steps())


def test_racks_settle_what_the_numbers_of_nodes_mean(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("step,source,destination,demand\n0,1,2,0.5\n1,2,3,0.5\n")
    assert "subtract 1, or give racks=4" in complaint_about_log(path, Steps())
    for racks in (4, 9):
        (sequence,) = read_demand_logs([path], Steps(racks=racks))
        assert (sequence.nodes, sequence.demand.sum()) == (racks, 1)
    with pytest.raises(ForetailError, match="has the node 3, and racks=3 are numbered from 0: raise racks"):
        read_demand_logs([path], Steps(racks=3))
    path.write_text("step,source,destination,demand\n0,0,202,0.5\n")
    assert "or give racks=203" in complaint_about_log(path, Steps())
    np.save(tmp_path / "a.npy", SEQUENCE)
    with pytest.raises(ForetailError, match="has 3 nodes, and another log or racks 4: give the same nodes"):
        read_demand_logs([tmp_path / "a.npy"], Steps(racks=4))


def test_a_run_given_twice_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", SEQUENCE)
    (tmp_path / "b.npy").symlink_to(tmp_path / "a.npy")
    np.save(tmp_path / "c.npy", SEQUENCE)
    for other in "abc":
        with pytest.raises(ForetailError, match=rf"{other}\.npy and .*a\.npy hold the same demand"):
            read_demand_logs([tmp_path / "a.npy", tmp_path / f"{other}.npy"], Steps())


def complaint_about_log(path: Path, steps: Steps = BYTES) -> str:
    with pytest.raises(ForetailError) as refusal:
        read_demand_logs([path], steps)
    assert str(path) in str(refusal.value)
    return str(refusal.value)


HEADER = "step,source,destination,bytes\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "cannot be read"),
        (HEADER, "has no rows"),
        ("step,source,bytes\n0,0,1\n", "name one of them destination"),
        ("step,time_ns,source,destination,bytes\n0,0,0,1,1\n", "name one of them step or time_ns"),
        ("step,step,source,destination,bytes\n0,0,0,1,1\n", "name one of them step or time_ns"),
        ("step,source,destination,bytes,demand\n0,0,1,1,1\n", "name one of them bytes or demand"),
        ('step,source,destination,"by\ntes"\n0,0,1,1\n', "destination, by tes: name one of them bytes"),
        (HEADER + "0,0,1,1\n0,1,0,-2\n", "row 1 of .* has bytes = -2.0"),
        (HEADER + "-1,0,1,1\n", "has step = -1"),
        (HEADER + "0,0,16384,1\n", "destination = 16384: give finite numbers from 0 to 16383"),
        (HEADER + "0,0,1,1\n0,1,0,nan\n", "row 1 of .* has no bytes|bytes = nan"),
        (HEADER + "0,0,1,inf\n", "bytes = inf"),
        (HEADER + "0,,1,1\n", "row 0 of .* has no source"),
        (HEADER + "0,0.5,1,1\n", "cannot be read"),
        (HEADER + "0,0,1\n", "cannot be read"),
        (HEADER + "0,1,1,1\n", "is on the diagonal"),
        (HEADER + "0,0,1,1e200\n", "1 entries of up to 1e[+]200, as from"),
        (HEADER + "1000000000000,0,1,1\n", "more than 134217728 numbers"),
        (HEADER + "9,16383,1,1\n", "more than 134217728 numbers"),
        (HEADER.replace("bytes", "demand") + "0,0,1,1\n", "leave uplink_bps out"),
    ],
)
def test_rows_of_something_else_are_refused(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    assert re.search(complaint, complaint_about_log(path))


@pytest.mark.parametrize("kind", SAVE_LOG)
def test_a_counter_that_wrapped_is_refused(kind: str, tmp_path: Path) -> None:
    wrapped = SEQUENCE.copy()
    wrapped[1, 0, 1] = wrapped[1, 2, 0] = 2.0**64 - 2.0**32  # a 32-bit counter that went on from 0
    SAVE_LOG[kind](tmp_path / f"log.{kind}", wrapped)
    assert "2 entries of up to 1.84467e+19, as from a counter that wrapped" in complaint_about_log(
        tmp_path / f"log.{kind}"
    )


def test_units_that_are_not_told_are_refused(tmp_path: Path) -> None:
    for kind in ("txt", "csv", "parquet"):
        SAVE_LOG[kind](tmp_path / f"log.{kind}", SEQUENCE)
        assert "give interval_ns=... and uplink_bps=" in complaint_about_log(tmp_path / f"log.{kind}", Steps(1000))
    timed = rows_of(SEQUENCE).rename(columns={"step": "time_ns"})
    timed.to_parquet(tmp_path / "log.parquet")
    assert "has times: give interval_ns" in complaint_about_log(tmp_path / "log.parquet", Steps())


def test_damaged_and_missing_files_are_refused(tmp_path: Path) -> None:
    for kind in ("npy", "parquet"):
        path = tmp_path / f"log.{kind}"
        SAVE_LOG[kind](path, SEQUENCE)
        whole = path.read_bytes()
        for damaged in (b"", whole[:20], whole[:-1]):
            path.write_bytes(damaged)
            complaint_about_log(path)
    (tmp_path / "folder.csv").mkdir()
    for name in ("nowhere.csv", "folder.csv"):
        assert "there is no file" in complaint_about_log(tmp_path / name)
    assert "neither .npy, .csv, .parquet nor .txt" in complaint_about_log(tmp_path / "log.json")
    rows_of(SEQUENCE).astype({"source": str}).to_parquet(tmp_path / "text.parquet")
    assert "column source of" in complaint_about_log(tmp_path / "text.parquet")
    rows_of(SEQUENCE).assign(run=0.5).to_parquet(tmp_path / "run.parquet")
    assert "column run of" in complaint_about_log(tmp_path / "run.parquet")
    rows_of(SEQUENCE).assign(run=pd.array([1, None, 1, 1, 1], "Int64")).to_parquet(tmp_path / "none.parquet")
    assert "row 1 of" in complaint_about_log(tmp_path / "none.parquet")


def test_long_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand_logs, "MAX_ROWS", 4)
    for kind in ("csv", "parquet"):
        SAVE_LOG[kind](tmp_path / f"log.{kind}", SEQUENCE)
        assert "more than 4 rows" in complaint_about_log(tmp_path / f"log.{kind}")
    monkeypatch.setattr(demand_logs, "MAX_LINE_BYTES", 8)
    save_answers(tmp_path / "log.txt", SEQUENCE)
    assert "does not hold n x n" in complaint_about_log(tmp_path / "log.txt")


def logged(folder: Path, name: str, content: bytes | NDArray[np.float64]) -> object:
    if isinstance(content, bytes):
        (folder / name).write_bytes(content)
    else:
        np.save(folder / name, content)
    return read_demand_logs([folder / name], BYTES if name.endswith(".txt") else Steps())


NO_DEMANDS: tuple[tuple[str, bytes | NDArray[np.float64], str], ...] = (
    (
        "log.csv",
        b"step,source,destination,demand\n0,17,101,1\n0,101,202,1\n",
        "has 3 nodes with demand, and numbers up to 202",
    ),
    ("log.npy", SEQUENCE[0], "has shape"),
    ("log.npy", SEQUENCE[:, :2], "has shape"),
    ("log.npy", np.zeros((1, 1, 1)), "shape"),
    ("log.txt", b"", "has no steps"),
    ("log.txt", b"\n\n", "has no steps"),
    ("log.txt", b"0 1 2\n", "line 0 .* does not hold n x n whole numbers"),
    ("log.txt", b"0 1 2 0\n0 1 -2 0\n", "line 1 .* does not hold n x n whole numbers"),
    ("log.txt", b"0 1 2 0\n" + b" ".join(b"0" for _ in range(9)), "line 1 .* has 9 numbers and the first 4"),
    ("log.txt", b"1 1 2 0\n", "is on the diagonal"),
    ("log.txt", b"\x00" * 116, "a packet log goes through foretail collect"),
    ("log.txt", b"0 1 " + b"9" * 30 + b" 0\n", "does not hold n x n whole numbers"),
)
test_what_is_no_log_is_refused = refusing(
    *(
        (lambda folder, name=name, content=content: logged(folder, name, content), words)
        for name, content, words in NO_DEMANDS
    )
)
