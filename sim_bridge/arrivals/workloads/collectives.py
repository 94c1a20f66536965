"""Collective communication as the uplinks of a leaf switch see it, with Ethereal's even assignment of flows to paths.

Addanki's thesis, chapter 3. The switch is a leaf; its ports are the uplinks, one to each spine; its servers, the
sources, send one packet a slot each. A step of a collective gives every source the same number of equal flows; its
interface serves them round robin, packet by packet. What stays inside the rack uses no uplink and is left out.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretail.sim_bridge.arrivals.slotted import Slotted
from foretail.sim_bridge.arrivals.workloads.workload import CHUNK_PACKETS, Workload, at_least, one_of


class Subflows(NamedTuple):
    """Parts of flows, each on one path."""

    flow: NDArray[np.int64]  #: int64[m], of which flow, from 0, the subflow is a part
    uplink: NDArray[np.int32]  #: int32[m], its uplink
    parts: NDArray[np.int64]  #: int64[m], the subflow is one of so many equal parts of its flow; 1: the whole flow


def even_assignment(flows: int, uplinks: int) -> Subflows:
    """Spread equal flows of one source to one leaf over the uplinks, so that each uplink gets the same load.

    Every uplink gets floor(flows / uplinks) whole flows. Each of the r that remain is split into uplinks / g equal
    parts, g = gcd(r, uplinks), and every uplink gets r / g of the parts: r (uplinks - g) / g more subflows than flows,
    the fewest when all remaining flows are split alike (theorem 4). ForetailError when an argument is below 1.
    """
    at_least(1, flows=flows, uplinks=uplinks)
    remaining = flows % uplinks
    whole = flows - remaining
    parts = uplinks // math.gcd(remaining, uplinks)  # 1 when nothing remains: gcd(0, s) = s
    flow = np.concatenate((np.arange(whole), np.repeat(np.arange(whole, flows), parts)))
    uplink = np.arange(len(flow), dtype=np.int32) % np.int32(uplinks)
    return Subflows(flow, uplink, np.where(flow < whole, 1, parts))


@dataclass(frozen=True)
class Collective(Workload):
    """Steps of a collective, one after the other."""

    #: packets of a flow, at least 1. The thesis: 16 KB and 1 MB, 11 and 667 packets of 1500 bytes. A flow split into
    #: parts that do not divide it is padded: every part is rounded up.
    flow_packets: int = 11
    #: servers of the rack, at least 1; None: N, as many as uplinks. More are more than N packets a slot, beyond the
    #: paper's model of the buffer: an oversubscribed leaf.
    sources: int | None = None
    #: ethereal: every source assigns its flows evenly. ecmp: every flow, unsplit, takes a random uplink
    balance: str = "ethereal"
    #: random: every source serves its flows in an order of its own, drawn anew for every step. same: all sources serve
    #: them in the same order, as libraries launch them, and meet at the same uplink.
    order: str = "random"
    #: every source starts a step late by a random number of slots, uniform from 0 to this, at least 0
    start_spread_slots: int = 0
    gap_slots: int = 0  #: slots without arrivals between the end of a step and the next, at least 0

    def __post_init__(self) -> None:
        at_least(1, flow_packets=self.flow_packets)
        at_least(0, start_spread_slots=self.start_spread_slots, gap_slots=self.gap_slots)
        one_of(("ethereal", "ecmp"), balance=self.balance)
        one_of(("random", "same"), order=self.order)
        if self.sources is not None:
            at_least(1, sources=self.sources)

    @abstractmethod
    def flows(self, sources: int) -> list[int]:
        """Return the number of flows from each source to every destination leaf."""

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        """Yield the packets of some slots at a time, within a slot in the order of the sources."""
        sources = ports if self.sources is None else self.sources
        some = max(1, CHUNK_PACKETS // sources)
        spread = self.start_spread_slots
        first = 0
        while first < slots:
            whole, split, part_packets = self.subflows(ports, sources, draw)
            # Round robin: rounds with all subflows until the parts are sent, then rounds with the whole flows only.
            uplinks = np.concatenate((whole, split), axis=1)
            if self.order == "random":
                place = draw.permuted(np.tile(np.arange(uplinks.shape[1]), (sources, 1)), axis=1)
                uplinks = np.take_along_axis(uplinks, place, axis=1)
                whole = uplinks[place < whole.shape[1]].reshape(sources, -1)
            rounds = part_packets if split.size else self.flow_packets
            mixed = rounds * uplinks.shape[1]
            length = mixed + (self.flow_packets - rounds) * whole.shape[1]
            # what the sources send in turn, one row a slot; the last row: nothing
            table = np.concatenate((uplinks.T, whole.T, np.full((1, sources), -1, np.int32)))
            delay = draw.integers(0, spread + 1, sources)
            end = min(length + spread, slots - first)
            for start in range(0, end, some):
                stop = min(start + some, end)
                at = np.arange(start - spread, stop)
                row = np.where(at < mixed, at % uplinks.shape[1], uplinks.shape[1])
                if whole.shape[1]:
                    row = np.where(at < mixed, row, uplinks.shape[1] + (at - mixed) % whole.shape[1])
                row[(at < 0) | (at >= length)] = -1
                rows = row[np.arange(stop - start)[:, None] + (spread - delay)]
                port = table[rows, np.arange(sources)].ravel()
                slot = np.repeat(np.arange(first + start, first + stop), sources)
                sent = port >= 0
                yield Slotted(slot, port) if sent.all() else Slotted(slot[sent], port[sent])
            first += length + spread + self.gap_slots

    def subflows(
        self, ports: int, sources: int, draw: np.random.Generator
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
        """Return the uplinks of whole flows and of parts, [sources, number], and the packets of the largest part."""
        flows = self.flows(sources)
        if self.balance == "ecmp":
            whole = draw.integers(0, ports, (sources, sum(flows)), dtype=np.int32)
            return whole, whole[:, :0], 0
        assigned = even_assignment(flows[0], ports)
        is_whole = assigned.parts == 1
        part_packets = -(-self.flow_packets // int(assigned.parts.max()))

        def of_all(uplink: NDArray[np.int32]) -> NDArray[np.int32]:
            return np.tile(uplink, (sources, len(flows)))

        return of_all(assigned.uplink[is_whole]), of_all(assigned.uplink[~is_whole]), part_packets


@dataclass(frozen=True)
class AllToAll(Collective):
    """Every server sends one flow to every server of every other rack, all racks being alike."""

    leaves: int = 16  #: racks, this one included, at least 2. The thesis: 8 and 16

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(2, leaves=self.leaves)

    def flows(self, sources: int) -> list[int]:
        """Return one flow per server of every other leaf."""
        return [sources] * (self.leaves - 1)


@dataclass(frozen=True)
class Ring(Collective):
    """Every server sends to one neighbour in another rack, over a few channels."""

    #: flows to the neighbour, at least 1. The thesis: 4, of which each is split where there are 16 uplinks
    channels: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, channels=self.channels)

    def flows(self, sources: int) -> list[int]:
        """Return the channels, all to one leaf."""
        return [self.channels]
