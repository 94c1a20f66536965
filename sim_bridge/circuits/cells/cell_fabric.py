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

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.sim_bridge import _native
from foretail.sim_bridge.circuits.schedules.schedule import IDLE, Schedule

IntArray = npt.NDArray[np.int64]
RackArray = npt.NDArray[np.int32]
Routing = Literal["direct", "two_hop", "valiant"]

MAX_RACKS = 1 << 12
LATEST = 1 << 62
MAX_CELLS = 1 << 31


@dataclass(frozen=True, eq=False)
class CellFlows:
    """Flows in order of their start.

    ForetailError when a flow is out of range or stays in its rack, or the columns differ in length.
    """

    start: IntArray  #: int64[flows], slot in which all cells of the flow are there, 0 to 2**62, never decreasing
    source: RackArray  #: int32[flows], rack, at least 0
    destination: RackArray  #: int32[flows], another rack
    size: IntArray  #: int64[flows], cells, 1 to 2**31

    def __post_init__(self) -> None:
        for name, kind in (("start", np.int64), ("source", np.int32), ("destination", np.int32), ("size", np.int64)):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), kind))
        if {(len(self.start),)} != {column.shape for column in (self.start, self.source, self.destination, self.size)}:
            raise ForetailError("the columns of the flows differ in length: give one value per flow")
        for what, wrong in (
            ("starts before the one before it, or outside 0 to 2^62", np.diff(self.start, prepend=0) < 0),
            ("starts before the one before it, or outside 0 to 2^62", self.start > LATEST),
            ("has no cell, or more than 2^31", (self.size < 1) | (self.size > MAX_CELLS)),
            ("is from or to no rack", (self.source < 0) | (self.destination < 0)),
            ("stays in its rack, which no circuit serves", self.source == self.destination),
        ):
            if wrong.any():
                raise ForetailError(f"flow {int(wrong.argmax())} {what}: correct the flows")

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class CellCounts:
    """What happened in some slots."""

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
        return CellCounts(
            self.slots - earlier.slots,
            self.circuits - earlier.circuits,
            self.admitted - earlier.admitted,
            self.direct - earlier.direct,
            self.first_hop - earlier.first_hop,
            self.last_hop - earlier.last_hop,
        )


class CellFabric:
    """A run of flows over a schedule, which is repeated for ever.

    ForetailError on too many racks, a flow from or to a rack that the schedule lacks, or a negative bound.

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
        if schedule.nodes > MAX_RACKS:
            raise ForetailError(f"the schedule has {schedule.nodes} racks: cells are simulated for up to {MAX_RACKS}")
        if len(flows) and max(flows.source.max(), flows.destination.max()) >= schedule.nodes:
            raise ForetailError(f"a flow is from or to a rack outside [0, {schedule.nodes}): correct the flows")
        if relay_cells is not None and not 0 <= relay_cells <= LATEST:
            raise ForetailError(f"relay_cells is {relay_cells}: give 0 to 2^62, or None for no bound")
        if not 0 <= seed < 1 << 32:
            raise ForetailError(f"seed is {seed}: give 0 to 2^32 - 1")
        up = (schedule.matchings != IDLE).sum(axis=(1, 2), dtype=np.int64)
        self._circuits = np.concatenate([[0], np.cumsum(up)])
        self._now = 0
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
        if until < self._now:
            raise ForetailError(f"slot {until} is over, the fabric is at slot {self._now}: choose a later one")
        self._run.advance(until)
        self._now = until
        periods, slot = divmod(until, len(self._circuits) - 1)
        circuits = periods * int(self._circuits[-1]) + int(self._circuits[slot])
        return CellCounts(until, circuits, *self._run.counts())

    def completion(self) -> IntArray:
        """Return the slot at whose end the last cell of each flow was delivered, -1 where it is not: int64[flows]."""
        return np.asarray(self._run.completion(), np.int64)
