"""The demand matrix: what racks want to send to each other, in units of one uplink's capacity.

Source: Vermilion (Addanki, thesis, section 8.2): n nodes with `degree` uplinks each; in the hose model no row and no
column sums to more than `degree`.
"""

from __future__ import annotations

import csv
import math
import tokenize
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from foretail.core.errors import ForetailError, first_line
from foretail.core.impostors import refuse_impostor
from foretail.core.reading import Reading
from foretail.core.summary import Summarised
from foretail.features.dataset.reader import Dataset
from foretail.features.records import FLOW_DTYPE, NEVER_STARTED, Records, read_records
from foretail.features.rows.splits import drawn_sides, time_range

MAX_NODES = 1 << 14
_SLACK = 1e-9
"""Relative; sums of scaled rows miss their limit by so little."""


@dataclass(frozen=True, eq=False, repr=False)
class DemandMatrix(Summarised):
    """A checked demand matrix.

    ForetailError on another shape, fewer than 2 or more than 16,384 nodes, NaN, infinity, negative or diagonal demand.

    Examples
    --------
    >>> DemandMatrix([[0.0, 0.5, 0.25], [0.25, 0.0, 0.5], [0.5, 0.25, 0.0]]).largest_sum
    0.75
    """

    #: float64[n, n], ``demand[i, j]`` from node i to node j, finite, at least 0, in capacities of one uplink; the
    #: diagonal is 0
    demand: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        demand = np.array(self.demand, np.float64, order="C")
        if demand.ndim != 2:
            raise _shape_error(demand.shape)
        _refuse_wrong(demand[np.newaxis], lambda _: "")
        demand.setflags(write=False)
        object.__setattr__(self, "demand", demand)

    @property
    def nodes(self) -> int:
        """n."""
        return len(self.demand)

    @property
    def largest_sum(self) -> float:
        """Largest row or column sum, in uplinks."""
        return float(max(self.demand.sum(axis=0).max(), self.demand.sum(axis=1).max()))

    def require_hose(self, degree: int) -> None:
        """Raise ForetailError unless no row or column sums to more than `degree` uplinks."""
        for axis, name in ((1, "row"), (0, "column")):
            sums = self.demand.sum(axis=axis)
            if sums.max() > degree * (1 + _SLACK):
                raise ForetailError(
                    f"{name} {int(sums.argmax())} of the demand matrix sums to {sums.max():g}, more than the {degree} "
                    f"uplinks of a node: divide it by the rate of an uplink, or scale it into the hose model"
                )

    def scaled_to(self, largest_sum: float) -> DemandMatrix:
        """Return the matrix scaled to this largest row or column sum; ForetailError when it is zero."""
        if self.largest_sum == 0:
            raise ForetailError("the demand matrix is zero: there is nothing to schedule for")
        return DemandMatrix(self.demand / self.largest_sum * largest_sum)


def _shape_error(shape: tuple[int, ...]) -> ForetailError:
    return ForetailError(
        f"the demand matrix has shape {shape}: give one row and one column for each of 2 to {MAX_NODES} nodes"
    )


def _refuse_wrong(demand: npt.NDArray[np.float64], place: Callable[[int], str]) -> None:
    """Raise ForetailError on the first wrong entry of matrices, float64[steps, n, n]; `place` names a step."""
    if demand.shape[1] != demand.shape[2] or not 2 <= demand.shape[1] <= MAX_NODES:
        raise ForetailError(f"{place(0)}{_shape_error(demand.shape[1:])}")
    diagonal = np.eye(demand.shape[1], dtype=bool)
    for what, wrong in (
        ("is not a finite number", ~np.isfinite(demand)),
        ("is negative", demand < 0),
        ("is on the diagonal, a node's demand to itself", (demand != 0) & diagonal),
    ):
        if wrong.any():
            step, row, column = np.unravel_index(np.argmax(wrong), wrong.shape)
            raise ForetailError(
                f"{place(int(step))}the demand from node {row} to node {column}, {demand[step, row, column]:g}, "
                f"{what}: correct the matrix"
            )


# Files of demand matrices: CSV, NPY and Parquet, checked at the door.
#
# Row i holds the demand from node i, column j that to node j, in capacities of one uplink. CSV has commas or
# semicolons, and may have the header and the index that pandas writes. In Parquet every column is a node, in order,
# whatever its name.

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
    values = np.array(rows, np.float64)
    height, width = values.shape if values.ndim == 2 else (0, 0)
    header = height == width + 1 and np.array_equal(values[0], range(width))  # that counts the nodes from 0
    if header or (width == height + 1 and np.array_equal(values[:, 0], range(height))):
        line = "row" if header else "column"
        Reading(str(path), (f"a first {line} of the numbers 0, 1, 2, ...",), (f"that {line} counts nodes",)).tell()
        return values[1:] if header else values[:, 1:]
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
        columns, names = file.read().columns, file.schema_arrow.names
    if names != [str(node) for node in range(len(names))]:
        Reading(str(path), guesses=(f"its columns {', '.join(names)[:60]} are nodes 0, 1, 2, ... in order",)).tell()
    values = [column.to_numpy().astype(np.float64) for column in columns]  # NaN where one is missing
    return np.stack(values, axis=1) if values else np.empty((0, 0))


def _refuse_large(path: Path, *shape: int) -> None:
    """Before anything of that size is held in memory."""
    if max(shape, default=0) > MAX_NODES or math.prod(shape) > MAX_NODES**2:
        raise ForetailError(
            f"{path} holds more than {MAX_NODES} rows or columns: give a matrix of at most that many nodes"
        )


# Demand over time: one matrix per interval, of one run; read from ns-3 runs and packet logs, and split by run.
#
# Units are those of ``demand_matrix``: 1 is what one uplink carries in an interval. Server s of an ns-3 run is below
# leaf ``s // servers_per_leaf``; traffic inside a rack needs no uplink and is left out.

MAX_ENTRIES = 1 << 27
"""Most entries of all matrices of a run: 1 GiB."""


@dataclass(frozen=True, eq=False, repr=False)
class DemandSequence(Summarised):
    """The demand matrices of one run, in order of time.

    ForetailError on another shape, an interval that is not positive, no name, or the first matrix that is none.

    Examples
    --------
    >>> sequence = DemandSequence([[[0.0, 1.0], [1.0, 0.0]], [[0.0, 0.5], [0.5, 0.0]]], interval_ns=100_000, run="a")
    >>> len(sequence), sequence.nodes
    (2, 2)
    """

    #: float64[steps, n, n], at least one step; every matrix as :class:`DemandMatrix` asks. Zero matrices are idle
    #: intervals.
    demand: FloatArray
    interval_ns: int  #: from one step to the next, positive
    run: str  #: what was run; sequences of the same run saw the same traffic and never part in a split

    def __post_init__(self) -> None:
        demand = np.array(self.demand, np.float64, order="C")
        if demand.ndim != 3 or len(demand) == 0:
            raise ForetailError(f"a demand sequence has shape {demand.shape}: give one n x n matrix for each interval")
        if self.interval_ns <= 0:
            raise ForetailError(f"interval_ns of a demand sequence is {self.interval_ns}: give a positive time in ns")
        if not self.run:
            raise ForetailError("a demand sequence has no run: name the run that it comes from")
        _refuse_wrong(demand, lambda step: f"step {step} of run {self.run}: ")
        demand.setflags(write=False)
        object.__setattr__(self, "demand", demand)

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.demand)

    @property
    def nodes(self) -> int:
        """n."""
        return int(self.demand.shape[1])


@dataclass(frozen=True)
class Racks:
    """The leaves of an ns-3 run: their number (at least 2), servers below each, rate of an uplink in bit/s."""

    leaves: int
    servers_per_leaf: int
    uplink_bps: int

    def __post_init__(self) -> None:
        if self.leaves < 2 or self.servers_per_leaf < 1 or self.uplink_bps < 1:
            raise ForetailError(f"{self} is not a network: give 2 or more leaves, with servers and uplinks")

    @classmethod
    def of_trace(cls, dataset: Dataset) -> Racks:
        """Return the racks of a collected run; ForetailError when its scenario has no leaf-spine topology."""
        topology: Any = dataset.manifest.scenario.get("topology")
        try:
            return cls(*(int(topology[name]) for name in ("leaves", "servers_per_leaf", "spine_link_bps")))
        except (KeyError, TypeError, ValueError):
            raise ForetailError(f"{dataset.path} is not a leaf-spine run: collect a trace with ns-3") from None


def no_demand(run: str, steps: int, nodes: int) -> FloatArray:
    """Return zeros, float64[steps, n, n]; ForetailError when they are more than ``MAX_ENTRIES``."""
    refuse_large(run, steps, nodes)
    return np.zeros((steps, nodes, nodes))


def refuse_large(run: str, steps: int, nodes: int) -> None:
    """Raise ForetailError before a sequence that is too large is held in memory."""
    if nodes > MAX_NODES or steps * nodes**2 > MAX_ENTRIES:
        raise ForetailError(
            f"{run} has {steps} steps of {nodes} nodes, more than {MAX_ENTRIES} numbers: cut it, or give steps=..."
        )


def uplinks(size_bytes: FloatArray, uplink_bps: int, interval_ns: int) -> FloatArray:
    """Return bytes per interval as a number of uplinks."""
    return size_bytes * (8e9 / (uplink_bps * interval_ns))


def offered_demand(flows: Records, racks: Racks, interval_ns: int, steps: int | None, run: str) -> DemandSequence:
    """Return what the flows of a run want to send: the bytes of each, spread evenly over its ideal completion time.

    It does not depend on the buffer policy, except for messages that wait for others. A step may exceed the uplinks of
    a rack. ForetailError on records of another type, a flow of another network, without bytes or ideal time, or
    numbers out of range.

    Parameters
    ----------
    flows : array of FLOW_DTYPE, with bytes and ideal completion times above 0
    interval_ns : positive. The first step begins when the first flow starts
    steps : positive; what lies after the last step is left out. None: as many whole intervals as flows start in
    """
    if flows.dtype != FLOW_DTYPE:
        raise ForetailError(f"the flows of run {run} are of type {flows.dtype}: pass the records of flows.bin")
    flows = flows[flows["start_ns"] != NEVER_STARTED]
    if np.any((flows["size_bytes"] <= 0) | (flows["ideal_fct_ns"] <= 0) | (flows["start_ns"] < 0)):
        raise ForetailError(f"run {run} has a flow without bytes, ideal completion time or start: simulate it again")
    source, destination = _leaves_of(flows, racks, run)
    first_ns, steps = _span(flows["start_ns"], interval_ns, steps, run)
    start = (flows["start_ns"] - first_ns) / interval_ns
    end = start + flows["ideal_fct_ns"] / interval_ns
    per_interval = flows["size_bytes"] / (end - start)
    demand = no_demand(run, steps, racks.leaves)
    active = np.flatnonzero((source != destination) & (start < steps))
    step = np.floor(start).astype(np.int64)
    while len(active):  # once per interval of the longest flow
        at = step[active]
        inside = np.minimum(end[active], at + 1) - np.maximum(start[active], at)
        np.add.at(demand, (at, source[active], destination[active]), per_interval[active] * inside)
        step[active] += 1
        active = active[(end[active] > step[active]) & (step[active] < steps)]
    return DemandSequence(uplinks(demand, racks.uplink_bps, interval_ns), interval_ns, run)


def carried_demand(dataset: Dataset, interval_ns: int, steps: int | None) -> DemandSequence:
    """Return the data packets that reached the uplinks of their own leaf, as a collected trace recorded them.

    Repeated packets count again. Memory does not depend on the number of rows. ForetailError when the dataset is no
    such trace, or on numbers out of range.

    Parameters
    ----------
    dataset : collected by ns-3, with ``run/flows.bin`` beside its rows
    interval_ns : positive. The first step begins when the first flow starts
    steps : positive; what lies after the last step is left out. None: as many whole intervals as flows start in
    """
    import pyarrow.compute as pc

    dataset.require_trace()
    racks = Racks.of_trace(dataset)
    run = f"{dataset.path.name}, seed {dataset.manifest.seed}"
    flows = read_records(dataset.path / "run" / "flows.bin", FLOW_DTYPE)
    source, destination = _leaves_of(flows, racks, run)
    first_ns, steps = _span(flows["start_ns"][flows["start_ns"] != NEVER_STARTED], interval_ns, steps, run)
    demand = no_demand(run, steps, racks.leaves)
    to_a_spine = (
        (pc.field("switch") < racks.leaves)
        & (pc.field("port") >= racks.servers_per_leaf)
        & (pc.field("time_ns") >= first_ns)
        & (pc.field("time_ns") < first_ns + steps * interval_ns)
    )
    for batch in dataset.rows(["time_ns", "size_bytes", "flow"], to_a_spine):
        time_ns, size_bytes, flow = (column.to_numpy() for column in batch.columns)
        if len(flow) and (flow.min() < 0 or flow.max() >= len(source)):
            raise ForetailError(f"{dataset.path} has packets of flows that run/flows.bin lacks: collect it again")
        np.add.at(demand, ((time_ns - first_ns) // interval_ns, source[flow], destination[flow]), size_bytes)
    return DemandSequence(uplinks(demand, racks.uplink_bps, interval_ns), interval_ns, run)


def logged_demand(dataset: Dataset, uplink_bps: int, interval_ns: int, steps: int | None) -> DemandSequence:
    """Return the data packets that reached the racks' queues, as an imported packet log of Etalon recorded them.

    ForetailError when the dataset is no such import, or on numbers out of range.

    Parameters
    ----------
    dataset : of ``foretail collect source=etalon``: a switch per source rack, whose ports are the other racks in order
    uplink_bps : rate of an uplink, positive; the emulator's racks have a circuit and a packet link of different rates
    interval_ns : positive. The first step begins when the first packet arrives
    steps : positive; what lies after the last step is left out. None: as many whole intervals as packets arrive in
    """
    import pyarrow.compute as pc

    if not is_etalon(dataset):
        raise ForetailError(f"{dataset.path} is not a packet log of Etalon: import one with collect source=etalon")
    run = f"{dataset.path.name}, seed {dataset.manifest.seed}"
    racks, times_ns = len(dataset.manifest.switches), np.array(time_range(dataset))
    first_ns, steps = _span(times_ns, interval_ns, steps, run)
    demand = no_demand(run, steps, racks)
    end = pc.field("time_ns") < first_ns + steps * interval_ns
    for batch in dataset.rows(["time_ns", "size_bytes", "switch", "port"], end):
        time_ns, size_bytes, switch, port = (column.to_numpy().astype(np.int64) for column in batch.columns)
        np.add.at(demand, ((time_ns - first_ns) // interval_ns, switch, port + (port >= switch)), size_bytes)
    return DemandSequence(uplinks(demand, uplink_bps, interval_ns), interval_ns, run)


def is_etalon(dataset: Dataset) -> bool:
    """Return whether a dataset is an imported packet log of Etalon."""
    return dataset.manifest.scenario.get("source") == "etalon"


@dataclass(frozen=True)
class SequenceSplit:
    """Three sides without a run in common, none of them empty."""

    train: tuple[DemandSequence, ...]
    validation: tuple[DemandSequence, ...]
    test: tuple[DemandSequence, ...]


def split_sequences(sequences: Sequence[DemandSequence], validation: float, test: float, seed: int) -> SequenceSplit:
    """Draw whole runs for validation and test, as :func:`foretail.features.rows.splits.drawn_sides`; the rest train."""
    drawn = drawn_sides({sequence.run for sequence in sequences}, validation, test, seed)
    return SequenceSplit(**{side: tuple(s for s in sequences if s.run in runs) for side, runs in drawn.items()})


def _span(times_ns: npt.NDArray[np.int64], interval_ns: int, steps: int | None, run: str) -> tuple[int, int]:
    """First time of a run, and its steps: as many as wanted, or those between the first and the last time."""
    if interval_ns < 1 or (steps is not None and steps < 1):
        raise ForetailError(f"{steps} intervals of {interval_ns} ns hold no demand: give positive numbers")
    if not len(times_ns):
        raise ForetailError(f"run {run} has no traffic: raise the load of its scenario")
    first, last = int(times_ns.min()), int(times_ns.max())
    steps = (last - first) // interval_ns if steps is None else steps
    if not steps:
        raise ForetailError(
            f"run {run} has {last - first} ns of traffic, no step of {interval_ns} ns: give a shorter one"
        )
    return first, steps


def _leaves_of(flows: Records, racks: Racks, run: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Leaf of the source and of the destination of every flow."""
    servers = np.stack([flows["source"], flows["destination"]]).astype(np.int64)
    if servers.size and (servers.min() < 0 or servers.max() >= racks.leaves * racks.servers_per_leaf):
        raise ForetailError(f"run {run} has flows between servers outside {racks}: give the topology of the run")
    source, destination = servers // racks.servers_per_leaf
    return source, destination
