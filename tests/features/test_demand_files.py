"""Files of demand matrices: what is read back, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import read_demand

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
