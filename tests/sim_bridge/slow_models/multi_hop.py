"""Cells over several hops, slow and obvious: hops by breadth-first search, every queue a list, every slot in full."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foretail.sim_bridge.circuits.cells.cell_fabric import CellFlows
from foretail.sim_bridge.circuits.schedules.schedule import IDLE, Schedule


def hops_from(edges: npt.NDArray[np.bool_], node: int) -> dict[int, int]:
    """Hops to every node that is reached."""
    hops, frontier = {node: 0}, [node]
    while frontier:
        following = [other for one in frontier for other in np.flatnonzero(edges[one]).tolist() if other not in hops]
        for other in following:
            hops[other] = hops[frontier[0]] + 1
        frontier = list(dict.fromkeys(following))
    return hops


def reached_within(edges: npt.NDArray[np.bool_], nodes: int) -> int:
    """Pairs of nodes, itself included, with a path."""
    return sum(len(hops_from(edges, node)) for node in range(nodes))


class SlowMultiHop:
    """Runs `slots` slots; `completion` per flow, and cells `delivered`, of these `direct`, `relayed` and `lost`."""

    def __init__(
        self,
        schedule: Schedule,
        flows: CellFlows,
        graph: str,
        direct_from: int | None,
        seed: int,
        drawn_cells: int,
        transit_cells: int | None,
        slots: int,
    ) -> None:
        racks = range(schedule.nodes)
        random = np.random.default_rng(seed)
        unsent = flows.size.tolist()
        missing = flows.size.tolist()
        self.completion = [-1] * len(flows)
        self.delivered = self.direct = self.relayed = self.lost = 0
        kinds = ("transit", "drawn", "own", "direct")
        queues: dict[str, list[list[tuple[int, int]]]] = {kind: [[] for _ in racks] for kind in kinds}  # target, flow
        turns = {kind: [0 for _ in racks] for kind in kinds}

        def taken(kind: str, rack: int, allowed: set[int]) -> tuple[int, int] | None:
            """The oldest entry of the next target in turn."""
            there = {target for target, _ in queues[kind][rack]} & allowed
            if not there:
                return None
            target = min(there, key=lambda one: (one < turns[kind][rack], one))
            if kind != "direct":
                turns[kind][rack] = target + 1
            entry = next(entry for entry in queues[kind][rack] if entry[0] == target)
            queues[kind][rack].remove(entry)
            if kind in ("own", "direct"):
                unsent[entry[1]] -= 1
                if unsent[entry[1]]:
                    queues[kind][rack].append(entry)
            return entry

        for now in range(slots):
            matchings = schedule.matchings[now % schedule.period]
            edges = (Schedule(matchings[np.newaxis]) if graph == "slot" else schedule).edges > 0
            hops = [hops_from(edges, rack) for rack in racks]
            for flow in np.flatnonzero(flows.start == now).tolist():
                long = direct_from is not None and flows.size[flow] >= direct_from
                queues["direct" if long else "own"][flows.source[flow]].append((int(flows.destination[flow]), flow))
            if graph == "valiant":
                for rack in racks:
                    while queues["own"][rack] and len(queues["drawn"][rack]) < drawn_cells:
                        entry = taken("own", rack, set(racks))
                        assert entry is not None
                        others = [other for other in racks if other != rack]
                        queues["drawn"][rack].append((others[int(random.integers(len(others)))], entry[1]))
            arrived = []
            for rack in racks:
                for to in matchings[:, rack].tolist():
                    if to == IDLE:
                        continue
                    closer = {t for t in racks if t in hops[to] and hops[rack].get(t) == hops[to][t] + 1}
                    order = ["transit", "drawn"] if graph == "valiant" else ["transit", "own", "direct"]
                    for kind in order:
                        entry = taken(kind, rack, {to} if kind == "direct" else closer)
                        if entry is not None:
                            arrived.append((to, *entry, kind != "transit"))
                            break
            for rack, target, flow, first in arrived:
                if rack == flows.destination[flow]:
                    self.delivered += 1
                    self.direct += first
                    missing[flow] -= 1
                    if not missing[flow]:
                        self.completion[flow] = now
                else:
                    self.relayed += 1
                    if len(queues["transit"][rack]) == transit_cells:
                        self.lost += 1
                        source, back = int(flows.source[flow]), (int(flows.destination[flow]), flow)
                        unsent[flow] += 1
                        if back not in queues["own"][source]:
                            queues["own"][source].append(back)
                        continue
                    queues["transit"][rack].append((int(flows.destination[flow]) if rack == target else target, flow))
