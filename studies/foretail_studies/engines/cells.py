"""Flows of cells over a schedule of circuits: completion times and link utilisation, slot by slot.

In every slot each circuit that is up carries at most one cell. A rack has one virtual output queue per destination, in
which flows take turns, one cell each; buffers are unlimited, nothing is lost, and racks, not servers, send: a flow
that is alone fills all uplinks of its rack. A cell that is sent in a slot is there at its end.

* **direct**: cells wait for a circuit to their destination, as under Vermilion.
* **two_hop**: a circuit first carries cells that its rack relays to the destination of the circuit, then own cells for
  that destination, and with none of these an own cell for another rack, in turn, to be relayed from the next slot on.
  This is RotorNet's RotorLB (SIGCOMM'17) with an offer and its acceptance in no time: a rack accepts a cell while fewer
  than `relay_cells` wait there for its destination, own and relayed, where RotorLB exchanges the queue lengths once per
  slot and splits fairly what the next circuit to that destination has left. Relayed cells are sent first come first
  served, whatever their flow.
* **valiant**: in every slot a rack draws for as many of its own cells as it has uplinks, destinations and flows in
  turn, an intermediate rack, uniform over all others; the destination itself means no detour. They wait for a circuit
  to it first come first served, behind cells that are relayed. Sirius (SIGCOMM'20) also limits an intermediate's queue.

Racks act one after another, in the next slot from the next rack on, which matters only where they compete for a relay.
Source of the setting: Addanki, thesis, section 8.3.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csgraph, csr_array

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge.circuits.schedules import IDLE, Schedule
from foretail_studies import _native

IntArray = npt.NDArray[np.int64]
RackArray = npt.NDArray[np.int32]
Routing = Literal["direct", "two_hop", "valiant"]

LATEST = 1 << 62


@dataclass(frozen=True, eq=False)
class CellFlows:
    """Flows in order of their start."""

    start: IntArray  #: int64[flows], slot in which all cells of the flow are there, never decreasing
    source: RackArray  #: int32[flows], rack, at least 0
    destination: RackArray  #: int32[flows], another rack
    size: IntArray  #: int64[flows], cells, 1 to 2**31

    def __post_init__(self) -> None:
        for name, kind in (("start", np.int64), ("source", np.int32), ("destination", np.int32), ("size", np.int64)):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), kind))

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class CellCounts:
    """Counts of circuits and cells in some slots."""

    slots: int  #: how many
    circuits: int  #: circuits that were up in them, each for one cell
    admitted: int  #: cells of flows that started
    direct: int  #: cells delivered over one hop
    first_hop: int  #: cells sent to a rack that relays them
    last_hop: int  #: cells that were relayed and delivered

    @property
    def delivered(self) -> int:
        """Cells that reached their destination."""
        return self.direct + self.last_hop

    @property
    def utilisation(self) -> float:
        """Share of the circuits that delivered a cell to its destination, 0 to 1; 0 without circuits."""
        return self.delivered / self.circuits if self.circuits else 0.0

    @property
    def raw_utilisation(self) -> float:
        """Share of the circuits that carried any cell, 0 to 1; 0 without circuits."""
        return (self.delivered + self.first_hop) / self.circuits if self.circuits else 0.0

    def since(self, earlier: CellCounts) -> CellCounts:
        """Return what happened after `earlier`."""
        pairs = zip(astuple(self), astuple(earlier), strict=True)
        return CellCounts(*(now - before for now, before in pairs))


class CellFabric:
    """A run of flows over a schedule, which is repeated for ever; the native code refuses what is out of range.

    Parameters
    ----------
    schedule : at most 4,096 racks
    flows : CellFlows
    routing : {'direct', 'two_hop', 'valiant'}
    relay_cells : bound of a relay's queue under `two_hop`, see above; None for no bound
    seed : of the intermediate racks under `valiant`, 0 to 2**32 - 1: cells draw from one ``std::mt19937``
    """

    def __init__(
        self, schedule: Schedule, flows: CellFlows, routing: Routing, relay_cells: int | None = None, seed: int = 1
    ) -> None:
        up = (schedule.matchings != IDLE).sum(axis=(1, 2), dtype=np.int64)
        self._circuits = np.concatenate([[0], np.cumsum(up)])
        self._run = _native.CellFabric(
            np.ascontiguousarray(schedule.matchings),
            flows.start,
            flows.source,
            flows.destination,
            flows.size,
            routing=routing,
            relay_cells=LATEST if relay_cells is None else relay_cells,
            seed=seed,
        )

    def advance(self, until: int) -> CellCounts:
        """Run the slots before `until` that have not run yet, and return what happened since slot 0."""
        self._run.advance(until)
        periods, slot = divmod(until, len(self._circuits) - 1)
        circuits = periods * int(self._circuits[-1]) + int(self._circuits[slot])
        return CellCounts(until, circuits, *self._run.counts())

    def completion(self) -> IntArray:
        """Return the slot at whose end the last cell of each flow was delivered, -1 where it is not: int64[flows]."""
        return np.asarray(self._run.completion(), np.int64)


@dataclass(frozen=True)
class SlotTime:
    """A slot: a day, in which every circuit carries one cell, and the night in which circuits are changed."""

    uplink_bps: int  #: rate of a circuit that is up
    day_ns: int  #: how long circuits are up
    night_ns: int  #: how long their reconfiguration takes

    @property
    def slot_ns(self) -> int:
        """Duration of a slot."""
        return self.day_ns + self.night_ns

    @property
    def duty_cycle(self) -> float:
        """Share of a slot in which circuits are up."""
        return self.day_ns / self.slot_ns

    @property
    def cell_bytes(self) -> float:
        """Capacity of a circuit in a day, in bytes."""
        return self.uplink_bps * self.day_ns / 8e9


def mean_size(size_bytes: Sequence[int], cumulative: Sequence[float]) -> float:
    """Return the mean of a distribution that is linear between its points, in bytes."""
    points = pairwise(zip(size_bytes, cumulative, strict=True))
    return sum((upper - lower) * (low + high) / 2 for (low, lower), (high, upper) in points)


def poisson_flows(
    demand: DemandMatrix,
    load: float,
    slots: int,
    time: SlotTime,
    size_bytes: Sequence[int],
    cumulative: Sequence[float],
    seed: int,
) -> tuple[CellFlows, npt.NDArray[np.int64]]:
    """Return the flows that start before slot `slots`, and their sizes in bytes: int64[flows].

    ForetailError when nothing arrives on average.

    Parameters
    ----------
    demand : in uplinks; flows of a pair bring on average `load` times this
    load : float
        Of the uplinks' rate, night included: what arrives in a slot is ``load / duty_cycle`` of what a day carries, and
        a little more, because a flow ends with a cell that is not full.
    size_bytes, cumulative : sequences
        Distribution of sizes: points with probability ``cumulative[i]`` of at most ``size_bytes[i]``, from 0 to 1,
        linear between. A drawn size is rounded, and at least 1 byte.
    """
    random = np.random.default_rng(seed)
    bytes_per_slot = load * demand.demand * (time.uplink_bps * time.slot_ns / 8e9)
    rate = bytes_per_slot.ravel() / mean_size(size_bytes, cumulative)
    if not rate.sum() > 0:
        raise ForetailError("no flow arrives: give a load and a demand above 0")
    count = int(random.poisson(rate.sum() * slots))
    start = np.sort(random.integers(0, slots, count))
    pair = random.choice(len(rate), count, p=rate / rate.sum())
    size = np.maximum(1, np.rint(np.interp(random.random(count), cumulative, size_bytes))).astype(np.int64)
    cells = np.ceil(size / time.cell_bytes).astype(np.int64)
    source, destination = np.divmod(pair.astype(np.int32), np.int32(demand.nodes))
    return CellFlows(start, source, destination, cells), size


Graph = Literal["period", "valiant", "slot"]

MAX_HOP_RACKS = 256


class MultiHopFabric:
    """A run of flows over a schedule, which is repeated for ever; as ``CellFabric``.

    ForetailError on more than 256 racks.

    Parameters
    ----------
    schedule, flows :
        Every slot of a schedule whose matchings stay is there as often as they do.
    graph : {'period', 'valiant', 'slot'}
    direct_from : int or None
        With ``slot``, cells of a flow that takes direct circuits only; None for no such flow.
    seed : of the random racks under ``valiant``
    drawn_cells : int
        Under ``valiant`` a rack draws for its own cells while fewer than this wait for their first hop, at least 1.
    transit_cells : int or None
        Cells from others that a rack holds, at least 1: it loses one that is too many, and its source has it again from
        the next slot on, as after a trimmed packet. None for no bound.

    Attributes
    ----------
    lost : cells so far that a rack had no room for
    """

    def __init__(
        self,
        schedule: Schedule,
        flows: CellFlows,
        graph: Graph,
        direct_from: int | None = None,
        seed: int = 1,
        drawn_cells: int = 8,
        transit_cells: int | None = None,
    ) -> None:
        racks = schedule.nodes
        if racks > MAX_HOP_RACKS:
            raise ForetailError(f"the schedule has {racks} racks: several hops are simulated for up to {MAX_HOP_RACKS}")
        self._drawn_cells = drawn_cells
        self._detour = graph == "valiant"
        self._random = np.random.default_rng(seed)
        self._uplinks, self._racks = schedule.degree, racks
        self._circuits = _circuits_of(schedule, of_slot=graph == "slot")
        self._up = np.cumsum([0, *(schedule.matchings != IDLE).sum(axis=(1, 2))])
        self._start, self._source = flows.start.tolist(), flows.source.tolist()
        self._destination: list[int] = flows.destination.tolist()
        self._unsent: list[int] = flows.size.tolist()
        self._undelivered = flows.size.tolist()
        self._direct_only = (flows.size >= direct_from).tolist() if direct_from is not None else [False] * len(flows)
        self._completion = [-1] * len(flows)
        # at every rack by target: cells from others or with a target drawn, flows of its own, flows of direct circuits
        self._queues = [[_Queues(racks) for _ in range(racks)] for _ in range(3)]
        self._held, self._transit_cells = [0] * racks, transit_cells
        self.lost = 0
        self._drawn, self._waiting = [_Queues(racks) for _ in range(racks)], [0] * racks
        self._started = self._now = self._admitted = self._direct = self._relayed = self._last = 0

    def advance(self, until: int) -> CellCounts:
        """Run the slots before `until` that have not run yet, and return what happened since slot 0."""
        while self._now < until:
            waiting = self._admitted - self._direct - self._last
            if not waiting:  # nothing happens before the next flow
                more = self._started < len(self._start)
                self._now = max(self._now, min(until, self._start[self._started]) if more else until)
                if self._now == until:
                    break
            self._admit()
            self._slot()
            self._now += 1
        periods, slot = divmod(until, len(self._up) - 1)
        circuits = periods * int(self._up[-1]) + int(self._up[slot])
        return CellCounts(until, circuits, self._admitted, self._direct, self._relayed, self._last)

    def completion(self) -> IntArray:
        """Return the slot at whose end the last cell of each flow was delivered, -1 where it is not: int64[flows]."""
        return np.array(self._completion, np.int64)

    def _admit(self) -> None:
        while self._started < len(self._start) and self._start[self._started] <= self._now:
            flow = self._started
            self._queues[2 if self._direct_only[flow] else 1][self._source[flow]].put(self._destination[flow], flow)
            self._admitted += self._unsent[flow]
            self._started += 1

    def _slot(self) -> None:
        transit, own, direct_only = self._queues
        if self._detour:
            self._draw_targets()
        arrived: list[tuple[int, int, int, bool]] = []  # rack, target, flow, whether it is the first hop of its path
        circuits = self._circuits[self._now % len(self._circuits)]
        for rack in range(self._racks):
            through, mine, waits, drawn = transit[rack], own[rack], direct_only[rack], self._drawn[rack]
            if not through.mask | mine.mask | waits.mask | drawn.mask:
                continue
            for to, closer in circuits[rack]:
                first = not through.mask & closer
                if not first:
                    target = through.next_target(closer)
                    flow = through.take(target)
                    self._held[rack] -= 1
                elif drawn.mask & closer:
                    target = drawn.next_target(closer)
                    flow = drawn.take(target)
                    self._waiting[rack] -= 1
                elif not self._detour and mine.mask & closer:
                    target = mine.next_target(closer)
                    flow = self._own_cell(mine, target)
                elif waits.mask >> to & 1:
                    target, flow = to, self._own_cell(waits, to)
                else:
                    continue
                arrived.append((to, target, flow, first))
        for rack, target, flow, first in arrived:  # a cell goes on in the next slot at the earliest
            destination = self._destination[flow]
            if rack == destination:
                self._deliver(flow, direct=first)
                continue
            self._relayed += 1
            if self._held[rack] == self._transit_cells:
                self._send_again(flow)
            else:
                self._held[rack] += 1
                transit[rack].put(destination if rack == target else target, flow)

    def _draw_targets(self) -> None:
        """Draw random racks for own cells, destinations in turn, while fewer than the bound wait."""
        for rack, mine in enumerate(self._queues[1]):
            while mine.mask and self._waiting[rack] < self._drawn_cells:
                flow = self._own_cell(mine, mine.next_target(mine.mask))
                target = int(self._random.integers(self._racks - 1))
                self._drawn[rack].put(target + (target >= rack), flow)
                self._waiting[rack] += 1

    def _own_cell(self, queues: _Queues, target: int) -> int:
        """A cell of the flow whose turn it is."""
        flow = queues.take(target)
        self._unsent[flow] -= 1
        if self._unsent[flow]:
            queues.put(target, flow)
        return flow

    def _send_again(self, flow: int) -> None:
        self.lost += 1
        self._unsent[flow] += 1
        if self._unsent[flow] == 1:  # otherwise it waits for its turn already
            self._queues[1][self._source[flow]].put(self._destination[flow], flow)

    def _deliver(self, flow: int, *, direct: bool) -> None:
        self._direct += direct
        self._last += not direct
        self._undelivered[flow] -= 1
        if not self._undelivered[flow]:
            self._completion[flow] = self._now


class _Queues:
    """Queues at a rack by target; `mask` has a bit for each that is not empty."""

    def __init__(self, racks: int) -> None:
        self.mask = self._turn = 0
        self._by_target: list[deque[int]] = [deque() for _ in range(racks)]

    def put(self, target: int, flow: int) -> None:
        self._by_target[target].append(flow)
        self.mask |= 1 << target

    def take(self, target: int) -> int:
        queue = self._by_target[target]
        flow = queue.popleft()
        if not queue:
            self.mask ^= 1 << target
        return flow

    def next_target(self, allowed: int) -> int:
        """The first target in turn that is allowed and has a queue, of which there is one."""
        both = self.mask & allowed
        later = both >> self._turn
        lowest = later & -later if later else both & -both
        target = lowest.bit_length() - 1 + (self._turn if later else 0)
        self._turn = target + 1
        return target


def _circuits_of(schedule: Schedule, *, of_slot: bool) -> list[list[list[tuple[int, int]]]]:
    """By slot and rack: where each circuit leads, and a bit for every target that is one hop closer there."""
    whole = _hops(schedule.edges > 0)
    by_matchings: dict[bytes, list[list[tuple[int, int]]]] = {}
    slots = []
    for matchings in schedule.matchings:
        key = matchings.tobytes()
        if key not in by_matchings:
            hops = _hops(Schedule(matchings[np.newaxis]).edges > 0) if of_slot else whole
            by_matchings[key] = [
                [(to, _mask(hops[to] + 1 == hops[rack])) for to in matchings[:, rack].tolist() if to != IDLE]
                for rack in range(schedule.nodes)
            ]
        slots.append(by_matchings[key])
    return slots


def _hops(edges: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Hops between racks, NaN where there is no path: float64[n, n]."""
    hops = csgraph.shortest_path(csr_array(edges), unweighted=True)
    return np.where(np.isinf(hops), np.nan, hops)


def _mask(allowed: npt.NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(allowed, bitorder="little").tobytes(), "little")


STEP_SLOTS = 5_000
"""Slots between two reports."""


@dataclass(frozen=True)
class CountedSlots:
    """Slots of a run: what happens and starts from `begin` to before `end` counts, and the run ends before `last`."""

    begin: int
    end: int
    last: int


@dataclass(frozen=True)
class CompletionTimes:
    """Completion times of the flows of a class that started in the window."""

    flows: int  #: all that count
    unfinished: int  #: of these; the times cover them with their age at the end of the run
    #: slots from the first to that of the last cell; None without flows, a lower bound when some are unfinished
    mean: float | None
    p50: float | None  #: percentile by NumPy's linear interpolation, otherwise as the mean
    p99: float | None  #: the same


@dataclass(frozen=True)
class CellTrial:
    """Result of a run."""

    carried: CellCounts  #: cells in the window
    backlog: int  #: cells that wait at the end of the run
    classes: Mapping[str, CompletionTimes]  #: completion times by class


def cell_trial(
    fabric: CellFabric | MultiHopFabric,
    flows: CellFlows,
    classes: Mapping[str, npt.NDArray[np.bool_]],
    window: CountedSlots,
    report: Callable[[int], None] = lambda slot: None,
) -> CellTrial:
    """Run a fabric, at slot 0, with its flows to the end of the window's run.

    Parameters
    ----------
    flows : those of `fabric`
    classes : mapping of bool[flows], which flows a class holds
    window : with at least one slot from `begin` to `end`
    report : called every few thousand slots with the next one; may raise
    """

    def advanced(begin: int, end: int) -> CellCounts:
        for slot in range(begin, end, STEP_SLOTS):
            report(slot)
            fabric.advance(slot)
        return fabric.advance(end)

    warm = advanced(0, window.begin)
    carried = advanced(window.begin, window.end).since(warm)
    total = advanced(window.end, window.last)
    done = fabric.completion()
    slots = np.where(done >= 0, done + 1, window.last) - flows.start
    counts = (flows.start >= window.begin) & (flows.start < window.end)
    return CellTrial(
        carried,
        total.admitted - total.delivered,
        {name: _times(slots[counts & chosen], done[counts & chosen]) for name, chosen in classes.items()},
    )


def _times(slots: npt.NDArray[np.int64], done: npt.NDArray[np.int64]) -> CompletionTimes:
    if not len(slots):
        return CompletionTimes(0, 0, None, None, None)
    p50, p99 = (float(value) for value in np.percentile(slots, (50, 99)))
    return CompletionTimes(len(slots), int(np.count_nonzero(done < 0)), float(slots.mean()), p50, p99)
