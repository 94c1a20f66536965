"""Demand over time: one matrix per interval, of one run; read from ns-3 runs and packet logs, and split by run.

Units are those of ``demand_matrix``: 1 is what one uplink carries in an interval. Server s of an ns-3 run is below leaf
``s // servers_per_leaf``; traffic inside a rack needs no uplink and is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.features.dataset.reader import Dataset
from foretail.features.demand.matrix import MAX_NODES, DemandMatrix
from foretail.features.records import FLOW_DTYPE, NEVER_STARTED, Records, read_records
from foretail.features.rows.splits import drawn_sides, time_range

FloatArray = npt.NDArray[np.float64]

MAX_ENTRIES = 1 << 27
"""Of all matrices of a run: 1 GiB."""


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
        for step, matrix in enumerate(demand):
            try:
                DemandMatrix(matrix)
            except ForetailError as error:
                raise ForetailError(f"step {step} of run {self.run}: {error}") from None
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
    """Whether a dataset is an imported packet log of Etalon."""
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
