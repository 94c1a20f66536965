"""Cells over several hops of a schedule: Mars, Opera, expanders and Sirius, slot by slot.

As in :mod:`~foretail.sim_bridge.circuits.cells.cell_fabric`, a circuit carries at most one cell a slot, and flows to
one destination take turns. Buffers may have a bound. A cell goes by any circuit that leads it one hop closer to its
target, along shortest paths of a graph:

* **period**: of all circuits of a period (expander), the target being the destination.
* **valiant**: of the same graph (Mars, Sirius), the target being a random other rack first, as under ``valiant`` there.
  A cell that meets its destination on the way to that rack stays there.
* **slot**: of the circuits that are up in this slot, as Opera's short flows; a flow of `direct_from` cells or more
  waits for a circuit to its destination, and goes after the others.

At a rack cells from others go first, targets take turns. Opera sends a short flow's packets over all their hops in
one slot, which is long. Here a hop takes a slot, so a matching has to stay for several of them.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csgraph, csr_array

from foretail.core.errors import ForetailError
from foretail.sim_bridge.circuits.cells.cell_fabric import CellCounts, CellFlows, IntArray
from foretail.sim_bridge.circuits.schedules.schedule import IDLE, Schedule

Graph = Literal["period", "valiant", "slot"]

MAX_RACKS = 256


class MultiHopFabric:
    """A run of flows over a schedule, which is repeated for ever; as ``CellFabric``.

    ForetailError on more than 256 racks, or a flow from or to a rack that the schedule lacks.

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
        if racks > MAX_RACKS:
            raise ForetailError(f"the schedule has {racks} racks: several hops are simulated for up to {MAX_RACKS}")
        if len(flows) and max(flows.source.max(), flows.destination.max()) >= racks:
            raise ForetailError(f"a flow is from or to a rack outside [0, {racks}): correct the flows")
        if drawn_cells < 1 or (transit_cells is not None and transit_cells < 1):
            raise ForetailError(f"drawn_cells is {drawn_cells}, transit_cells {transit_cells}: give at least 1")
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
