"""A user's own logs of demand as sequences, checked at the door.

* NPY: numbers [steps, n, n], row = source, in bytes when the rate of an uplink is given, else in uplinks.
* CSV with a header and Parquet: one row per entry, columns by name: ``step`` from 0 or ``time_ns``; ``source`` and
  ``destination``, nodes from 0; ``bytes``, or ``demand`` in uplinks; ``run``, where a file holds several. Rows of the
  same step and pair add up, pairs without a row have no demand, and times count from the first of the run.
* TXT: what ``traffic_matrix.getTraffic`` of the Etalon emulator answers, one answer per line and step: n x n whole
  numbers of bytes, row = source, separated by spaces; bytes in the VOQs, or those that hosts announced.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from foretail.core.errors import ForetailError
from foretail.core.reading import Reading
from foretail.features.demand.matrix import (
    MAX_NODES,
    DemandSequence,
    no_demand,
    open_npy,
    read_by_kind,
    refuse_extremes,
    refuse_large,
    uplinks,
)
from foretail.features.records import column_values

FloatArray = npt.NDArray[np.float64]

MAX_ROWS = 1 << 24
"""Most rows of a file with one row per entry."""

MAX_LINE_BYTES = 1 << 24
"""Longest line of the emulator's answers: beyond 900 racks."""

LEAST_WITH_GAPS = 16
"""From so many nodes on, half have to have demand: else their numbers are identifiers of something else."""

_ENDS = ("source", "destination")
_TYPES: Mapping[str, pa.DataType] = {
    **dict.fromkeys(("step", "time_ns", *_ENDS), pa.int64()),
    **dict.fromkeys(("bytes", "demand"), pa.float64()),
    "run": pa.string(),
}


@dataclass(frozen=True)
class Steps:
    """The steps that logs are cut into, and the worth of their bytes."""

    interval_ns: int | None = None  #: time of a step, positive; needed for times and for bytes
    uplink_bps: int | None = None  #: rate of an uplink, positive; needed for bytes, and refused without them
    most: int | None = None  #: the first steps of every run that count; None: all
    racks: int | None = None  #: nodes, numbered from 0; None: as many as the largest number in the logs says


def read_demand_logs(paths: Sequence[Path], steps: Steps) -> tuple[DemandSequence, ...]:
    """Read every run of every file, in order; runs are named by their file.

    Nodes are counted over all files: one that no row of a file names has no demand in it. ForetailError when a file is
    missing, damaged, too large or of another kind, lacks what its unit needs, or holds anything but demand matrices;
    when a run is given twice; or when the files have matrices of different nodes.
    """
    runs: dict[str, FloatArray] = {}
    digests: dict[bytes, str] = {}
    fixed: dict[int, Path] = {}
    for path in paths:
        readers = {
            ".npy": partial(_from_npy, steps=steps),
            ".csv": partial(_from_rows, steps=steps),
            ".parquet": partial(_from_rows, steps=steps),
            ".txt": partial(_from_answers, steps=steps),
        }
        log = read_by_kind(path, readers, "a log of demand matrices")
        for name, demand in log.items():
            other = digests.setdefault(hashlib.sha256(demand.tobytes()).digest(), name)
            if name in runs or other != name:
                raise ForetailError(f"{name} and {other} hold the same demand: give every run once")
        runs |= log
        if path.suffix.lower() in (".npy", ".txt"):
            fixed.setdefault(next(iter(log.values())).shape[1], path)
    named = max((run.shape[1] for run in runs.values()), default=0)
    nodes = named if steps.racks is None else steps.racks
    if named > nodes:
        raise ForetailError(f"a log has the node {named - 1}, and racks={nodes} are numbered from 0: raise racks")
    for size, path in fixed.items():
        if size != nodes:
            raise ForetailError(f"{path} has {size} nodes, and another log or racks {nodes}: give the same nodes")
    if not fixed:
        if steps.racks is None:
            _require_numbers(paths, runs.values(), nodes)
        step = "" if steps.interval_ns is None else f" of interval_ns={steps.interval_ns:,}"
        most = max((run.sum(axis=2).max() for run in runs.values()), default=0)
        guesses = (
            *([f"nodes are numbered 0 to {nodes - 1} (racks={nodes})"] if steps.racks is None else []),
            f"the longest run takes {max(map(len, runs.values()), default=0):,} steps{step}",
            f"a node sends up to {most:.3g} uplinks in one",
        )
        Reading(", ".join(map(str, paths[:3])) + (", ..." if len(paths) > 3 else ""), guesses=guesses).tell()
    return tuple(_sequence(name, demand, nodes, steps) for name, demand in runs.items())


def _require_numbers(paths: Sequence[Path], runs: Iterable[FloatArray], nodes: int) -> None:
    """Raise ForetailError where the numbers of nodes in rows cannot be meant as 0, 1, 2, ..."""
    used = np.zeros(nodes, bool)
    for demand in runs:
        used[: demand.shape[1]] |= demand.any(axis=(0, 1)) | demand.any(axis=(0, 2))
    named = ", ".join(map(str, paths[:3]))
    if nodes > 2 and not used[0] and used[1:].all():
        raise ForetailError(
            f"nodes of {named} are numbered from 1 to {nodes - 1}, and count from 0: subtract 1, or give racks={nodes} "
            "where node 0 has no demand"
        )
    if nodes >= LEAST_WITH_GAPS and 2 * used.sum() < nodes:
        raise ForetailError(
            f"{named} has {int(used.sum())} nodes with demand, and numbers up to {nodes - 1}: number them 0, 1, 2, "
            f"..., or give racks={nodes} where the others have none"
        )


def _sequence(name: str, demand: FloatArray, nodes: int, steps: Steps) -> DemandSequence:
    missing = nodes - demand.shape[1]
    refuse_large(name, len(demand), nodes)
    sequence = DemandSequence(np.pad(demand, ((0, 0), (0, missing), (0, missing))), steps.interval_ns or 1, name)
    refuse_extremes(name, sequence.demand)
    return sequence


def _from_npy(path: Path, steps: Steps) -> dict[str, FloatArray]:
    stored = open_npy(path)
    if stored.ndim != 3 or stored.shape[1] != stored.shape[2]:
        raise ForetailError(f"{path} has shape {stored.shape}: give one n x n matrix for each step")
    refuse_large(str(path), min(len(stored), steps.most or len(stored)), stored.shape[1])
    demand = np.array(stored[: steps.most], np.float64)
    return {str(path): demand if steps.uplink_bps is None else _from_bytes(path, demand, steps)}


def _from_answers(path: Path, steps: Steps) -> dict[str, FloatArray]:
    rows: list[FloatArray] = []
    with path.open("rb") as source:
        while (line := source.readline(MAX_LINE_BYTES)) and len(rows) != steps.most:
            words = line.split()
            if not words:
                continue
            nodes = round(len(words) ** 0.5)
            if (
                nodes**2 != len(words)
                or len(line) == MAX_LINE_BYTES
                or not all(word.isdigit() and len(word) <= 20 for word in words)
            ):
                raise ForetailError(
                    f"line {len(rows)} of {path} (counted from 0) does not hold n x n whole numbers of bytes: give the "
                    "answers of traffic_matrix.getTraffic; a packet log goes through foretail collect source=etalon"
                )
            if rows and len(words) != len(rows[0]):
                raise ForetailError(
                    f"line {len(rows)} of {path} (counted from 0) has {len(words)} numbers and the first "
                    f"{len(rows[0])}: give the answers of one network"
                )
            refuse_large(str(path), len(rows) + 1, nodes)
            rows.append(np.array(words, np.float64))
    if not rows:
        raise ForetailError(f"{path} has no steps: give a log with demand")
    demand = np.stack(rows).reshape(len(rows), nodes, nodes)
    return {str(path): _from_bytes(path, demand, steps)}


def _from_bytes(path: Path, size_bytes: FloatArray, steps: Steps) -> FloatArray:
    if steps.interval_ns is None or steps.uplink_bps is None:
        raise ForetailError(f"{path} is in bytes: give interval_ns=... and uplink_bps=..., which an uplink carries")
    refuse_extremes(str(path), size_bytes)
    return uplinks(size_bytes, steps.uplink_bps, steps.interval_ns)


def _from_rows(path: Path, steps: Steps) -> dict[str, FloatArray]:
    """Runs of a file with one row per entry, in the order in which they first appear."""
    table, when, what = _TABLES[path.suffix.lower()](path)
    if when == "time_ns" and steps.interval_ns is None:
        raise ForetailError(f"{path} has times: give interval_ns=..., the time of a step")
    if what == "demand" and steps.uplink_bps is not None:
        raise ForetailError(f"{path} has demand in uplinks: leave uplink_bps out")
    if not table.num_rows:
        raise ForetailError(f"{path} has no rows: give a log with demand")
    time, source, destination = (_column(path, table, name).astype(np.int64) for name in (when, *_ENDS))
    value = _column(path, table, what)
    names, run = [str(path)], np.zeros(table.num_rows, np.int64)
    if "run" in table.column_names:
        column = table["run"].cast(pa.string()).combine_chunks()
        _refuse_missing(path, "run", column)
        encoded = column.dictionary_encode()
        names = [f"{path}, run {name}" for name in encoded.dictionary.to_pylist()]
        run = encoded.indices.to_numpy().astype(np.int64)
    nodes = int(max(source.max(), destination.max())) + 1
    order = np.argsort(run, kind="stable")
    of_runs = np.split(order, np.cumsum(np.bincount(run))[:-1])
    longest_ns = max(int(np.ptp(time[rows])) for rows in of_runs)
    if when == "time_ns" and steps.interval_ns is not None and 0 < longest_ns < steps.interval_ns:
        raise ForetailError(
            f"the longest run of {path} takes {longest_ns:,} ns, and a step {steps.interval_ns:,} ns: time_ns is in "
            "nanoseconds, so multiply times in microseconds by 1,000, or lower interval_ns"
        )
    columns = {}
    for name, rows in zip(names, of_runs, strict=True):
        step = time[rows]
        if when == "time_ns" and steps.interval_ns is not None:
            step = (step - step.min()) // steps.interval_ns
        if steps.most is not None:
            rows, step = rows[step < steps.most], step[step < steps.most]
        count = int(step.max(initial=0)) + 1
        demand = no_demand(name, count, nodes)
        np.add.at(demand, (step, source[rows], destination[rows]), value[rows])
        columns[name] = demand if what == "demand" else _from_bytes(path, demand, steps)
    return columns


def _from_csv(path: Path) -> tuple[pa.Table, str, str]:
    with path.open(encoding="utf-8-sig", newline="") as source:
        if not (names := next(csv.reader(source), [])):
            raise ForetailError(f"{path} cannot be read, since it is empty: give a log with demand")
    columns, when, what = _chosen(path, names)
    reader = pa.csv.open_csv(
        path,
        pa.csv.ReadOptions(use_threads=False),  # so that errors name rows
        convert_options=pa.csv.ConvertOptions(column_types=_TYPES, include_columns=columns),
    )
    batches, rows = [], 0
    for batch in reader:
        rows += batch.num_rows
        _refuse_long(path, rows)
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema), when, what


def _from_parquet(path: Path) -> tuple[pa.Table, str, str]:
    with pq.ParquetFile(path) as file:
        columns, when, what = _chosen(path, file.schema_arrow.names)
        _refuse_long(path, file.metadata.num_rows)
        for name in columns:
            kind = file.schema_arrow.field(name).type
            is_whole = pa.types.is_integer(kind)
            is_other = {"bytes": pa.types.is_floating, "demand": pa.types.is_floating, "run": pa.types.is_string}
            if not is_whole and not is_other.get(name, pa.types.is_integer)(kind):
                raise ForetailError(f"column {name} of {path} has the type {kind}: store {_TYPES[name]}")
        return file.read(columns), when, what


_TABLES: Mapping[str, Callable[[Path], tuple[pa.Table, str, str]]] = {".csv": _from_csv, ".parquet": _from_parquet}


def _chosen(path: Path, names: Sequence[str]) -> tuple[list[str], str, str]:
    """The columns that are read, and those among them that tell the time and the demand."""

    def one_of(*choice: str) -> str:
        present = [name for name in names if name in choice]
        if len(present) != 1:
            blank = [name for name in names if name.strip() in choice and name not in choice]
            if blank:
                raise ForetailError(f"{path} has the column {blank[0]!r} with a blank: call it {blank[0].strip()}")
            has = " ".join(", ".join(names).split())[:100]
            raise ForetailError(f"{path} has the columns {has}: name one of them {' or '.join(choice)}")
        return present[0]

    when, source, destination, what = one_of("step", "time_ns"), *map(one_of, _ENDS), one_of("bytes", "demand")
    columns = [when, source, destination, what] + ([one_of("run")] if "run" in names else [])
    Reading(str(path), tuple(f"the column {name}" for name in names if name not in columns)).tell()
    return columns, when, what


def _column(path: Path, table: pa.Table, name: str) -> npt.NDArray[Any]:
    """Numbers that are all there and in range."""
    column = table[name].combine_chunks()
    _refuse_missing(path, name, column)
    values = column_values(column.cast(_TYPES[name]))
    most = MAX_NODES - 1 if name in _ENDS else np.inf
    wrong = ~((values >= 0) & (values <= most) & np.isfinite(values))
    if wrong.any():
        row = int(wrong.argmax())
        upwards = f" to {most}" if name in _ENDS else " on"
        raise ForetailError(
            f"row {row} of {path} (counted from 0) has {name} = {values[row]}: give finite numbers from 0{upwards}"
        )
    return values


def _refuse_missing(path: Path, name: str, column: pa.Array) -> None:
    if column.null_count:
        row = column.is_null().to_numpy(zero_copy_only=False).argmax()
        raise ForetailError(f"row {row} of {path} (counted from 0) has no {name}: fill it in")


def _refuse_long(path: Path, rows: int) -> None:
    """Before a table of that length is held in memory."""
    if rows > MAX_ROWS:
        raise ForetailError(f"{path} has more than {MAX_ROWS} rows: cut it into several logs")
