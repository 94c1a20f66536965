"""The cell fabric, slow and obvious: every queue a list, every slot played in full."""

from __future__ import annotations

from collections import deque

import numpy as np

from foretail.sim_bridge.circuits.cells.cell_fabric import CellFlows, Routing
from foretail.sim_bridge.circuits.schedules.schedule import IDLE, Schedule


class SlowCells:
    """Runs `slots` slots; `completion` per flow, and cells `admitted`, `direct`, `first_hop`, `last_hop`."""

    def __init__(
        self, schedule: Schedule, flows: CellFlows, routing: Routing, relay_cells: int | None, seed: int, slots: int
    ) -> None:
        racks = range(schedule.nodes)
        self.source: list[int] = flows.source.tolist()
        self.destination: list[int] = flows.destination.tolist()
        self.unsent: list[int] = flows.size.tolist()
        self.undelivered = flows.size.tolist()
        self.completion = [-1] * len(flows)
        self.admitted = self.direct = self.first_hop = self.last_hop = 0
        self.own: list[list[deque[int]]] = [[deque() for _ in racks] for _ in racks]  # flows, the next one first
        self.relay: list[list[deque[int]]] = [[deque() for _ in racks] for _ in racks]  # a flow's number per cell
        self.spray: list[list[deque[int]]] = [[deque() for _ in racks] for _ in racks]
        self.turn = [0 for _ in racks]
        self.bound = float("inf") if relay_cells is None else relay_cells
        random = np.random.MT19937()
        random._legacy_seeding(seed)  # as std::mt19937
        for self.now in range(slots):
            for flow in np.flatnonzero(flows.start == self.now).tolist():
                self.own[self.source[flow]][self.destination[flow]].append(flow)
                self.admitted += int(flows.size[flow])
            if routing == "valiant":
                for rack in racks:
                    for _ in range(schedule.degree):
                        wanted = self.in_turn(rack)
                        if wanted:
                            via = [other for other in racks if other != rack]
                            drawn = via[int(random.random_raw()) * len(via) // 2**32]
                            self.turn[rack] = wanted[0] + 1
                            self.spray[rack][drawn].append(self.take(rack, wanted[0]))
            self.accepted: list[tuple[int, int]] = []
            for rack in [*racks[self.now % len(racks) :], *racks[: self.now % len(racks)]]:
                for to in schedule.matchings[self.now % schedule.period, :, rack].tolist():
                    if to != IDLE:
                        self.send(rack, to, routing)
            for rack, flow in self.accepted:
                self.relay[rack][self.destination[flow]].append(flow)

    def send(self, rack: int, to: int, routing: Routing) -> None:
        if self.relay[rack][to]:
            self.last_hop += 1
            self.deliver(self.relay[rack][to].popleft())
        elif routing == "valiant":
            if self.spray[rack][to]:
                self.send_own(self.spray[rack][to].popleft(), to)
        elif self.own[rack][to]:
            self.send_own(self.take(rack, to), to)
        elif routing == "two_hop":
            for other in self.in_turn(rack):
                if self.waiting(to, other) < self.bound:
                    self.turn[rack] = other + 1
                    self.send_own(self.take(rack, other), to)
                    return

    def send_own(self, flow: int, to: int) -> None:
        if self.destination[flow] == to:
            self.direct += 1
            self.deliver(flow)
        else:
            self.first_hop += 1
            self.accepted.append((to, flow))

    def deliver(self, flow: int) -> None:
        self.undelivered[flow] -= 1
        if self.undelivered[flow] == 0:
            self.completion[flow] = self.now

    def take(self, rack: int, to: int) -> int:
        flow = self.own[rack][to].popleft()
        self.unsent[flow] -= 1
        if self.unsent[flow]:
            self.own[rack][to].append(flow)
        return flow

    def waiting(self, rack: int, to: int) -> int:
        own = sum(self.unsent[flow] for flow in self.own[rack][to])
        accepted = sum(1 for relay, flow in self.accepted if relay == rack and self.destination[flow] == to)
        return own + len(self.relay[rack][to]) + accepted

    def in_turn(self, rack: int) -> list[int]:
        """Destinations that `rack` has unsent cells for, from its turn on."""
        all_racks = range(len(self.own))
        start = self.turn[rack] % len(all_racks)
        return [to for to in [*all_racks[start:], *all_racks[:start]] if self.own[rack][to]]
