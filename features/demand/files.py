"""Files of demand matrices: CSV, NPY and Parquet, checked at the door.

Row i holds the demand from node i, column j that to node j, in capacities of one uplink. CSV has commas or semicolons,
and may have the header and the index that pandas writes. In Parquet every column is a node, in order, whatever its
name.
"""

from __future__ import annotations

import csv
import math
import tokenize
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from foretail.core.errors import ForetailError, first_line
from foretail.core.impostors import refuse_impostor
from foretail.features.demand.matrix import MAX_NODES, DemandMatrix

FloatArray = npt.NDArray[np.float64]
Read = TypeVar("Read")

_SMALLEST, _LARGEST = 1e-100, 2.0**63
"""Sums and quotients of entries in between stay finite, and no counter of bytes comes further."""


def read_demand(path: Path) -> DemandMatrix:
    """Read a demand matrix.

    `path`: ends in ``.csv``, ``.npy`` or ``.parquet``. ForetailError when the file is missing, damaged or of another
    kind, or holds anything but a demand matrix that is not zero.
    """
    values = read_by_kind(path, {".csv": _from_csv, ".npy": _from_npy, ".parquet": _from_parquet}, "a demand matrix")
    try:
        demand = DemandMatrix(values)
    except ForetailError as error:
        raise ForetailError(f"in {path}, {error}") from None
    if not demand.demand.any():
        raise ForetailError(f"the demand matrix in {path} is zero: there is nothing to schedule for")
    refuse_extremes(str(path), demand.demand)
    return demand


def refuse_extremes(source: str, demand: FloatArray) -> None:
    """Refuse demand in bytes or uplinks that nobody counted, or whose quotients are not finite; zeros are fine."""
    wrapped = demand[demand >= _LARGEST]
    if len(wrapped):
        raise ForetailError(
            f"{source} has {len(wrapped)} entries of up to {wrapped.max():g}, as from a counter that wrapped: take "
            "differences modulo 2**32 or 2**64, and leave out steps in which the counter was reset"
        )
    if ((demand > 0) & (demand < _SMALLEST)).any():
        raise ForetailError(
            f"{source} has demand down to {demand[demand > 0].min():g}: give it in capacities of one uplink"
        )


def read_by_kind(path: Path, readers: Mapping[str, Callable[[Path], Read]], what: str) -> Read:
    """Read a file with the reader of its suffix, in lower case with the point.

    ForetailError when the suffix has no reader, the file is missing, or it cannot be read as what its suffix says.
    """
    kind = path.suffix.lower()
    if kind not in readers:
        *others, last = readers
        raise ForetailError(f"{path} is neither {', '.join(others)} nor {last}: write {what} as one of them")
    if not path.is_file():
        raise ForetailError(f"there is no file {path}: give the path of {what}")
    try:
        refuse_impostor(path)
        return readers[kind](path)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, pa.ArrowException) as error:
        raise ForetailError(f"{path} cannot be read ({first_line(error)}): write it again") from None


def open_npy(path: Path) -> np.memmap[Any, np.dtype[Any]]:
    """Return the array of an NPY file, which is not in memory yet; ForetailError when it has no real numbers."""
    try:
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OverflowError, SyntaxError, tokenize.TokenError) as error:  # as its header's parser likes
        reason = (str(error).splitlines() or ["its header"])[0].rstrip(".")
        raise ForetailError(f"{path} is not an NPY file of numbers ({reason}): write it with numpy.save") from None
    if not isinstance(stored, np.memmap):
        stored.close()
        raise ForetailError(f"{path} is an archive of arrays: write one with numpy.save")
    if stored.dtype.kind not in "iuf" or stored.dtype.itemsize > 8:
        raise ForetailError(f"{path} holds elements of type {stored.dtype}: write integers or floats of up to 64 bits")
    return stored


def _from_csv(path: Path) -> FloatArray:
    rows: list[list[float]] = []
    names: list[str] | None = None  # of the nodes, where pandas wrote its index too
    with path.open(encoding="utf-8-sig", newline="") as source:
        first = next((line for line in source if line.strip(" \t\r\n,;")), "")
        delimiter = ";" if ";" in first and "," not in first else ","
        for place, fields in enumerate(csv.reader(chain([first], source), delimiter=delimiter)):
            if not any(field.strip() for field in fields):
                continue
            _refuse_large(path, len(rows) + 1, len(fields))
            if place == 0 and not fields[0].strip():
                names = [field.strip() for field in fields[1:]]
                continue
            width = len(rows[0]) + (names is not None) if rows else len(fields) if names is None else len(names) + 1
            if len(fields) != width:
                raise ForetailError(
                    f"row {len(rows)} of {path} (counted from 0) has {len(fields)} numbers and the first "
                    f"{width}: write one number per node"
                )
            if names is not None and (len(rows) >= len(names) or fields[0].strip() != names[len(rows)]):
                raise ForetailError(
                    f"row {len(rows)} of {path} (counted from 0) is that of {fields[0].strip()!r}, and the columns are "
                    f"{', '.join(map(repr, names[:8]))}: give rows and columns the same nodes in the same order"
                )
            cells = fields if names is None else fields[1:]
            rows.append([_number(path, len(rows), column, text) for column, text in enumerate(cells)])
    return _without_counts(np.array(rows, np.float64))


def _without_counts(values: FloatArray) -> FloatArray:
    """A matrix without a first row, or a first column, beyond a square that counts the nodes from 0."""
    rows, columns = values.shape if values.ndim == 2 else (0, 0)
    if rows == columns + 1 and np.array_equal(values[0], range(columns)):
        return values[1:]
    if columns == rows + 1 and np.array_equal(values[:, 0], range(rows)):
        return values[:, 1:]
    return values


def _number(path: Path, row: int, column: int, text: str) -> float:
    try:
        return float("-" if "_" in text else text)
    except ValueError:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise ForetailError(
            f"row {row}, column {column} of {path} (counted from 0) holds {shown!r}, which is not a number: write "
            "numbers with decimal points, and commas or semicolons between them, and no header without an index"
        ) from None


def _from_npy(path: Path) -> FloatArray:
    stored = open_npy(path)
    _refuse_large(path, *stored.shape)
    return np.array(stored, np.float64)


def _from_parquet(path: Path) -> FloatArray:
    with pq.ParquetFile(path) as file:
        _refuse_large(path, file.metadata.num_rows, len(file.schema_arrow.names))
        for field in file.schema_arrow:
            if not (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)):
                raise ForetailError(f"column {field.name} of {path} has the type {field.type}: store numbers")
        columns = file.read().columns
    values = [column.to_numpy().astype(np.float64) for column in columns]  # NaN where one is missing
    return np.stack(values, axis=1) if values else np.empty((0, 0))


def _refuse_large(path: Path, *shape: int) -> None:
    """Before anything of that size is held in memory."""
    if max(shape, default=0) > MAX_NODES or math.prod(shape) > MAX_NODES**2:
        raise ForetailError(
            f"{path} holds more than {MAX_NODES} rows or columns: give a matrix of at most that many nodes"
        )
