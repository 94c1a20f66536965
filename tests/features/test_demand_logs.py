"""Logs of demand: every format gives the same sequence, units, runs, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.demand import logs as demand_logs
from foretail.features.demand.logs import Steps, read_demand_logs
from tests.refusals import refusing

BYTES = Steps(interval_ns=1000, uplink_bps=8_000_000_000)  # an uplink carries 1000 bytes in a step
SEQUENCE = np.array([[[0, 10, 0], [0, 0, 5], [300, 0, 0]], [[0, 0, 0], [7, 0, 0], [0, 9, 0]], np.zeros((3, 3))])


def rows_of(sequence: NDArray[np.float64], unit: str = "bytes") -> pd.DataFrame:
    step, source, destination = np.nonzero(sequence)
    value = sequence[step, source, destination]
    return pd.DataFrame({"step": step, "source": source, "destination": destination, unit: value})


def save_answers(path: Path, sequence: NDArray[np.float64]) -> None:
    path.write_text("".join(" ".join(str(int(x)) for x in matrix.ravel()) + "\n" for matrix in sequence))


SAVE: dict[str, Callable[[Path, NDArray[np.float64]], None]] = {
    "npy": lambda path, sequence: np.save(path, sequence),
    "txt": save_answers,
    "csv": lambda path, sequence: rows_of(sequence).to_csv(path, index=False),
    "parquet": lambda path, sequence: rows_of(sequence).to_parquet(path),
}


@pytest.mark.parametrize("kind", SAVE)
def test_every_format_gives_the_sequence(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"log.{kind}"
    SAVE[kind](path, SEQUENCE)
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
    assert "subtract 1, or give racks=4" in complaint_about(path, Steps())
    for racks in (4, 9):
        (sequence,) = read_demand_logs([path], Steps(racks=racks))
        assert (sequence.nodes, sequence.demand.sum()) == (racks, 1)
    with pytest.raises(ForetailError, match="has the node 3, and racks=3 are numbered from 0: raise racks"):
        read_demand_logs([path], Steps(racks=3))
    path.write_text("step,source,destination,demand\n0,0,202,0.5\n")
    assert "or give racks=203" in complaint_about(path, Steps())
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


def complaint_about(path: Path, steps: Steps = BYTES) -> str:
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
    with pytest.raises(ForetailError, match=complaint):
        read_demand_logs([path], BYTES)
    complaint_about(path)


@pytest.mark.parametrize("kind", SAVE)
def test_a_counter_that_wrapped_is_refused(kind: str, tmp_path: Path) -> None:
    wrapped = SEQUENCE.copy()
    wrapped[1, 0, 1] = wrapped[1, 2, 0] = 2.0**64 - 2.0**32  # a 32-bit counter that went on from 0
    SAVE[kind](tmp_path / f"log.{kind}", wrapped)
    assert "2 entries of up to 1.84467e+19, as from a counter that wrapped" in complaint_about(tmp_path / f"log.{kind}")


def test_units_that_are_not_told_are_refused(tmp_path: Path) -> None:
    for kind in ("txt", "csv", "parquet"):
        SAVE[kind](tmp_path / f"log.{kind}", SEQUENCE)
        assert "give interval_ns=... and uplink_bps=" in complaint_about(tmp_path / f"log.{kind}", Steps(1000))
    timed = rows_of(SEQUENCE).rename(columns={"step": "time_ns"})
    timed.to_parquet(tmp_path / "log.parquet")
    assert "has times: give interval_ns" in complaint_about(tmp_path / "log.parquet", Steps())


def test_damaged_and_missing_files_are_refused(tmp_path: Path) -> None:
    for kind in ("npy", "parquet"):
        path = tmp_path / f"log.{kind}"
        SAVE[kind](path, SEQUENCE)
        whole = path.read_bytes()
        for damaged in (b"", whole[:20], whole[:-1]):
            path.write_bytes(damaged)
            complaint_about(path)
    (tmp_path / "folder.csv").mkdir()
    for name in ("nowhere.csv", "folder.csv"):
        assert "there is no file" in complaint_about(tmp_path / name)
    assert "neither .npy, .csv, .parquet nor .txt" in complaint_about(tmp_path / "log.json")
    rows_of(SEQUENCE).astype({"source": str}).to_parquet(tmp_path / "text.parquet")
    assert "column source of" in complaint_about(tmp_path / "text.parquet")
    rows_of(SEQUENCE).assign(run=0.5).to_parquet(tmp_path / "run.parquet")
    assert "column run of" in complaint_about(tmp_path / "run.parquet")
    rows_of(SEQUENCE).assign(run=pd.array([1, None, 1, 1, 1], "Int64")).to_parquet(tmp_path / "none.parquet")
    assert "row 1 of" in complaint_about(tmp_path / "none.parquet")


def test_long_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand_logs, "MAX_ROWS", 4)
    for kind in ("csv", "parquet"):
        SAVE[kind](tmp_path / f"log.{kind}", SEQUENCE)
        assert "more than 4 rows" in complaint_about(tmp_path / f"log.{kind}")
    monkeypatch.setattr(demand_logs, "MAX_LINE_BYTES", 8)
    save_answers(tmp_path / "log.txt", SEQUENCE)
    assert "does not hold n x n" in complaint_about(tmp_path / "log.txt")


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
    ("log.npy", np.full((1, 2, 2), np.nan), "finite"),
    ("log.npy", np.array([[[0.0, -1.0], [0.0, 0.0]]]), "negative"),
    ("log.npy", np.eye(2)[np.newaxis], "diagonal"),
    ("log.npy", np.zeros((0, 2, 2)), "shape"),
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
test_what_cannot_be_is_refused = refusing(
    *(
        (lambda folder, name=name, content=content: logged(folder, name, content), words)
        for name, content, words in NO_DEMANDS
    )
)
