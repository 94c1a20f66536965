"""Arrivals for the slotted simulator, made as they are needed: random, of proofs, of collectives."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.core.plugins import WORKLOAD_GROUP, Kinds, is_foreign, require, running
from foretail.core.settings import positive_share, require_settings, require_within, setting, share_setting
from foretail.sim_bridge.arrivals.files import Slotted

BATCH_PACKETS = 2**18
"""Packets of a batch unless the caller says otherwise: 3 MB, so that a batch stays in the cache."""
CHUNK_PACKETS = 2**16
"""Packets that a generator makes at a time, about. No parameter: the packets of a seed depend on it."""


@dataclass(frozen=True)
class Workload(ABC):
    """A way to make arrivals; its fields are its parameters.

    Nothing but the seed and the fields decides the packets: two calls of `batches` with the same arguments yield the
    same packets, and the size of the batches only says where they are cut. What is held in memory does not grow with
    the number of slots.
    """

    def __post_init__(self) -> None:
        """Check the ranges; subclasses may check more."""
        require_settings(self)

    def batches(
        self, ports: int, buffer: int, slots: int, seed: int, *, batch_packets: int = BATCH_PACKETS
    ) -> Iterator[Slotted]:
        """Yield the arrivals of slots 0 to `slots` - 1 in order.

        ForetailError at the call, not at the first batch, when an argument is out of range or does not suit the
        workload.

        Parameters
        ----------
        ports : N, the number of output ports of the switch, at least 1
        buffer : B in packets, at least 1
        slots : how many slots, at least 1; the last ones may be without arrivals
        seed : at least 0; workloads without chance ignore it
        batch_packets : every batch but the last has this many packets, and the last has at least one
        """
        require_within("seed", seed, {"kind": int, "at_least": 0})
        sizes = {"ports": ports, "buffer": buffer, "slots": slots, "batch_packets": batch_packets}
        for name, value in sizes.items():
            require_within(name, value, {"kind": int, "at_least": 1})
        with running(self, "check"):
            self.check(ports, buffer)
        return rebatched(self._checked_chunks(ports, buffer, slots, np.random.default_rng(seed)), batch_packets)

    def _checked_chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        """The chunks; those of a plug-in have their order and their ranges checked."""
        if not is_foreign(type(self)):
            yield from self.chunks(ports, buffer, slots, draw)
            return
        last = 0
        with running(self, "chunks"):
            for chunk in self.chunks(ports, buffer, slots, draw):
                sizes = f"{len(chunk.slot)} and {len(chunk.port)}"
                require(self, len(chunk.slot) == len(chunk.port), "slot and port must be equally long", sizes)
                for name, values, kind, end in (
                    ("slot", chunk.slot, np.int64, slots),
                    ("port", chunk.port, np.int32, ports),
                ):
                    require(self, values.dtype == kind, f"{name} must be {kind.__name__}", str(values.dtype))
                    outside = values[(values < 0) | (values >= end)]
                    require(self, not len(outside), f"{name} must be in [0, {end})", str(outside[:1]))
                back = np.flatnonzero(np.diff(chunk.slot, prepend=last) < 0)
                require(self, not len(back), "slots must never decrease", f"{chunk.slot[back[:1]]} after a later one")
                last = int(chunk.slot[-1]) if len(chunk) else last
                yield chunk

    def check(self, ports: int, buffer: int) -> None:  # noqa: B027  (most workloads suit every switch)
        """Raise ForetailError where this workload does not suit such a switch."""

    @abstractmethod
    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        """Yield the packets in chunks of any size, some of them perhaps empty; `batches` cuts them."""


def rebatched(chunks: Iterator[Slotted], batch_packets: int) -> Iterator[Slotted]:
    """Yield the packets of `chunks` in batches of `batch_packets`, the last with what is left."""
    waiting: list[Slotted] = []
    count = 0
    for chunk in chunks:
        at = 0
        while len(chunk) - at >= batch_packets - count:
            upto = at + batch_packets - count
            yield Slotted.joined([*waiting, chunk[at:upto]])
            waiting, count, at = [], 0, upto
        if at < len(chunk):
            waiting.append(chunk[at:])
            count += len(chunk) - at
    if waiting:
        yield Slotted.joined(waiting)


def upto(slots: int, slot: NDArray[np.int64], port: NDArray[np.int32]) -> Slotted:
    """Return the packets of the first `slots` slots; `slot` never decreases."""
    count = int(np.searchsorted(slot, slots))
    return Slotted(slot[:count], port[:count])


def periodic(
    first: int, period: int, slot: NDArray[np.int64], port: NDArray[np.int32], slots: int
) -> Iterator[Slotted]:
    """Repeat a pattern for ever from slot `first` on, one repetition every `period` slots, until `slots`.

    `slot` counts from the start of the repetition and stays below `period`.
    """
    repetitions = max(1, CHUNK_PACKETS // len(slot))
    while first < slots:
        starts = first + period * np.arange(repetitions, dtype=np.int64)
        yield upto(slots, (starts[:, None] + slot).ravel(), np.tile(port, repetitions))
        first += period * repetitions


# Random workloads: bursts, on-off sources, incast, permutations and, as the plain baseline, uniform traffic.
#
# `load` is always in packets per slot and port: 1 is what the ports can just send.


@dataclass(frozen=True)
class PoissonBursts(Workload):
    """Bursts of packets to random ports, Poisson in time: the workload of Figure 14 of Credence (NSDI'24).

    Every burst is for one port, drawn uniformly. Its packets come at once, that is N a slot, the most that the model
    allows; bursts that overlap wait for one another: all packets pass one queue, first come first served, of which N
    leave in every slot. A burst that comes in slot s thus starts in slot s, or, while older ones are not yet through,
    in the slot of their last packet when that has room left, else in the next. Above load 1 the wait grows without end.
    """

    #: mean packets per slot and port, above 0. The paper gives none; with the default and 20 ports LQD / Credence goes
    #: from 1 to 2.9 as in its figure, and Credence beats Dynamic Thresholds up to 0.7 false predictions. At high load
    #: every burst finds the buffer full, and the policies come close to each other.
    load: float = setting(0.04, above=0)
    #: size of a burst in buffers; the packets are rounded, at least 1. The paper: 1
    burst_fraction: float = setting(1.0, above=0)
    #: all packets of a burst in the slot in which it comes: more than N a slot, beyond the paper's model
    at_once: bool = False

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        """Yield the packets of some bursts at a time."""
        size = max(1, round(self.burst_fraction * buffer))
        bursts = max(1, CHUNK_PACKETS // size)
        time = 0.0
        free = 0  # the first free place of the queue, of whose places N belong to each slot
        while True:
            times = time + np.cumsum(draw.exponential(size / (self.load * ports), bursts))
            time = times[-1]
            slot = np.minimum(times, slots).astype(np.int64)
            target = np.repeat(self.targets(draw, ports, bursts), size)
            if self.at_once:
                places = np.repeat(slot, size)
            else:
                # Lindley: start[k] = max(ports * slot[k], start[k - 1] + size), with `free` before the first
                earlier = size * np.arange(bursts)
                start = np.maximum(np.maximum.accumulate(ports * slot - earlier), free) + earlier
                free = int(start[-1]) + size
                places = (start[:, None] + np.arange(size)).ravel() // ports
            yield upto(slots, places, target)
            if places[-1] >= slots:
                return

    def targets(self, draw: np.random.Generator, ports: int, count: int) -> NDArray[np.int32]:
        """Draw the ports of so many bursts."""
        return draw.integers(0, ports, count, dtype=np.int32)


@dataclass(frozen=True)
class ZipfBursts(PoissonBursts):
    """Bursts as of :class:`PoissonBursts`, whose ports follow a Zipf law: port p has weight (p + 1) ** -exponent."""

    exponent: float = setting(1.0, at_least=0)  #: at 0 all ports get the same

    def targets(self, draw: np.random.Generator, ports: int, count: int) -> NDArray[np.int32]:
        """Draw the ports of so many bursts."""
        return zipf_ports(draw, self.exponent, ports, count)


@dataclass(frozen=True)
class OnOff(Workload):
    """N independent sources that are on and off for geometric times and send one packet a slot while they are on.

    A source draws its port anew, uniformly, whenever it goes on. It starts as it is in the long run: on with
    probability `load`. Within a slot the packets come in the order of the sources.
    """

    #: mean packets per slot and port, above 0 and below 1: the fraction of the time that a source is on
    load: float = setting(0.6, above=0)
    #: mean length of an on-time in slots, at least 1 / (1 - load), where the slots of a source are independent
    mean_on_slots: float = setting(20.0, above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.load >= 1:
            raise ForetailError(f"load must be below 1 for on-off sources, not {self.load!r}")
        if self.mean_on_slots < 1 / (1 - self.load) * (1 - 1e-9):
            raise ForetailError(
                f"mean_on_slots must be at least 1 / (1 - load) = {1 / (1 - self.load):g}, not {self.mean_on_slots!r}"
            )

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        """Yield the packets of some slots at a time.

        One chain with two states, told by its events: in every slot a source is set on (probability 1 / mean off), set
        off (1 / mean on) or left as it is; to set a source that is on to on changes nothing. The events are drawn for
        all sources together, source after source, and so are few where on-times are long.
        """
        set_off = 1 / self.mean_on_slots
        set_on = set_off * self.load / (1 - self.load)
        some = max(1, 2 * CHUNK_PACKETS // ports)
        sends_to = np.where(draw.random(ports) < self.load, self.targets(draw, ports, ports), -1).astype(np.int32)
        for first in range(0, slots, some):
            where = event_places(draw, min(1.0, set_on + set_off), ports * some)
            goes_on = draw.random(len(where)) < set_on / (set_on + set_off)
            port = np.where(goes_on, self.targets(draw, ports, len(where)), -1).astype(np.int32)
            # The state that each source brings along is an event too, before its first of this chunk.
            brought = np.searchsorted(where, some * np.arange(ports))
            where = np.insert(where, brought, some * np.arange(ports))
            port = np.insert(port, brought, sends_to)
            # An on after an on keeps the port of the first of them, but no source continues the one before it.
            is_first = np.concatenate(([True], (port[1:] < 0) | (port[:-1] < 0)))
            is_first[brought + np.arange(ports)] = True
            port = port[np.maximum.accumulate(np.where(is_first, np.arange(len(port)), 0))]
            cells = np.repeat(port, np.diff(where, append=ports * some)).reshape(ports, some)
            sends_to = cells[:, -1].copy()
            by_slot = np.ascontiguousarray(cells.T).ravel()
            sent = np.flatnonzero(by_slot >= 0)
            yield upto(slots, first + sent // ports, by_slot[sent])

    def targets(self, draw: np.random.Generator, ports: int, count: int) -> NDArray[np.integer[Any]]:
        """Draw the ports of so many on-times."""
        return draw.integers(0, ports, count)


@dataclass(frozen=True)
class ZipfOnOff(OnOff):
    """Sources as of :class:`OnOff`, whose ports follow a Zipf law: port p has weight (p + 1) ** -exponent."""

    exponent: float = setting(1.0, at_least=0)  #: at 0 all ports get the same

    def targets(self, draw: np.random.Generator, ports: int, count: int) -> NDArray[np.integer[Any]]:
        """Draw the ports of so many on-times."""
        return zipf_ports(draw, self.exponent, ports, count)


def zipf_ports(draw: np.random.Generator, exponent: float, ports: int, count: int) -> NDArray[np.int32]:
    """Draw ports, of which p has weight (p + 1) ** -`exponent`."""
    upto_port = np.cumsum(np.arange(1, ports + 1) ** -float(exponent))
    places = np.searchsorted(upto_port[:-1], upto_port[-1] * draw.random(count), side="right")
    return np.asarray(places, np.int32)


def event_places(draw: np.random.Generator, probability: float, cells: int) -> NDArray[np.int64]:
    """Return in which of `cells` cells something happens, in order, each with `probability` independently."""
    last = -1
    parts = []
    while last < cells:
        gaps = draw.geometric(probability, int(1.1 * probability * cells) + 16)
        parts.append(last + np.cumsum(gaps))
        last = int(parts[-1][-1])
    places = np.concatenate(parts)
    return places[: np.searchsorted(places, cells)]


@dataclass(frozen=True)
class Incast(Workload):
    """Synchronised fan-in to one port over uniform background traffic.

    In an incast `fan_in` of the N inputs send one packet a slot each to one port, drawn uniformly, until the burst is
    complete; the other inputs send background. Incasts that overlap wait for one another, first come first served.
    Within a slot the packets of the incast come together, at a random place among the background.
    """

    load: float = setting(0.1, above=0)  #: mean incast packets per slot and port
    #: probability that an input that takes no part in an incast sends a packet; its port is uniform
    background_load: float = share_setting(0.4)
    #: size of a burst in buffers; rounded up to the same number of packets, at least 1, from every sender. The
    #: paper's packet simulations: 0.1 to 1.
    burst_fraction: float = setting(0.5, above=0)
    fan_in: int | None = setting(None, at_least=1)  #: senders of an incast, 1 to N; None: N
    poisson: bool = True  #: incasts come Poisson in time; else at equal intervals

    def check(self, ports: int, buffer: int) -> None:
        """Refuse more senders than inputs."""
        if self.fan_in is not None and self.fan_in > ports:
            raise ForetailError(f"fan_in must be at most the number of ports, {ports}, not {self.fan_in}")

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        fan_in = ports if self.fan_in is None else self.fan_in
        length = -(-max(1, round(self.burst_fraction * buffer)) // fan_in)  # slots of an incast
        interval = length * fan_in / (self.load * ports)
        some = max(1, CHUNK_PACKETS // ports)
        incasts = incast_slots(draw, interval, length, ports, self.poisson)
        start, target = next(incasts)
        for first in range(0, slots, some):
            targets = np.full(some, -1, np.int32)  # of the incast of each slot
            while start < first + some:
                targets[max(start - first, 0) : start + length - first] = target
                if start + length > first + some:
                    break
                start, target = next(incasts)
            active = targets >= 0
            background = draw.binomial(np.where(active, ports - fan_in, ports), self.background_load)
            before = draw.integers(0, background + 1)  # background packets that come before the incast's
            total = background + fan_in * active
            slot = np.repeat(np.arange(some), total)
            place = np.arange(len(slot)) - np.repeat(np.cumsum(total) - total, total) - before[slot]
            port = draw.integers(0, ports, len(slot), dtype=np.int32)
            port = np.where(active[slot] & (place >= 0) & (place < fan_in), targets[slot], port)
            yield upto(slots, first + slot, port)


def incast_slots(
    draw: np.random.Generator, interval: float, length: int, ports: int, poisson: bool
) -> Iterator[tuple[int, int]]:
    """Yield first slot and port of every incast; they never overlap."""
    draw = draw.spawn(1)[0]  # so that the background, which is drawn in between, does not depend on when we are asked
    time = 0.0
    free = 0
    while True:
        time += draw.exponential(interval) if poisson else interval
        free = max(int(time), free)
        yield free, int(draw.integers(ports))
        free += length


@dataclass(frozen=True)
class Permutation(Workload):
    """Every input sends to an output of its own; now and then a new random permutation says to which.

    No port ever gets two packets in a slot, so no queue ever holds more than one: a policy that drops here is wrong.
    Within a slot the packets come in the order of the inputs.
    """

    load: float = positive_share(0.9)  #: probability that an input sends in a slot
    change_slots: int = setting(1000, at_least=1)  #: slots between two permutations

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        some = max(1, CHUNK_PACKETS // ports)
        permutation = draw.permutation(ports)
        for first in range(0, slots, some):
            number = np.arange(first, first + some) // self.change_slots - max(first - 1, 0) // self.change_slots
            drawn = draw.permuted(np.tile(np.arange(ports), (int(number[-1]), 1)), axis=1)
            permutations = np.concatenate((permutation[None, :], drawn)).astype(np.int32)
            permutation = permutations[-1]
            sent = np.flatnonzero(draw.random(ports * some, np.float32) < self.load)
            slot = sent // ports
            yield upto(slots, first + slot, permutations[number[slot], sent - slot * ports])


@dataclass(frozen=True)
class Uniform(Workload):
    """Every input sends in a slot with a fixed probability, to a uniformly random port, independently of all else."""

    load: float = positive_share(0.9)  #: mean packets per slot and port: the probability

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        some = max(1, CHUNK_PACKETS // ports)
        for first in range(0, slots, some):
            slot = np.repeat(np.arange(first, first + some), draw.binomial(ports, self.load, some))
            yield upto(slots, slot, draw.integers(0, ports, len(slot), dtype=np.int32))


# Collective communication as the uplinks of a leaf switch see it, with Ethereal's even assignment of flows to paths.
#
# Addanki's thesis, chapter 3. The switch is a leaf; its ports are the uplinks, one to each spine; its servers, the
# sources, send one packet a slot each. A step of a collective gives every source the same number of equal flows; its
# interface serves them round robin, packet by packet. What stays inside the rack uses no uplink and is left out.


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
    for name, value in {"flows": flows, "uplinks": uplinks}.items():
        require_within(name, value, {"kind": int, "at_least": 1})
    remaining = flows % uplinks
    whole = flows - remaining
    parts = uplinks // math.gcd(remaining, uplinks)  # 1 when nothing remains: gcd(0, s) = s
    flow = np.concatenate((np.arange(whole), np.repeat(np.arange(whole, flows), parts)))
    uplink = np.arange(len(flow), dtype=np.int32) % np.int32(uplinks)
    return Subflows(flow, uplink, np.where(flow < whole, 1, parts))


@dataclass(frozen=True)
class Collective(Workload):
    """Steps of a collective, one after the other."""

    #: packets of a flow. The thesis: 16 KB and 1 MB, 11 and 667 packets of 1500 bytes. A flow split into
    #: parts that do not divide it is padded: every part is rounded up.
    flow_packets: int = setting(11, at_least=1)
    #: servers of the rack; None: N, as many as uplinks. More are more than N packets a slot, beyond the
    #: paper's model of the buffer: an oversubscribed leaf.
    sources: int | None = setting(None, at_least=1)
    #: ethereal: every source assigns its flows evenly. ecmp: every flow, unsplit, takes a random uplink
    balance: str = setting("ethereal", one_of=("ethereal", "ecmp"))
    #: random: every source serves its flows in an order of its own, drawn anew for every step. same: all sources serve
    #: them in the same order, as libraries launch them, and meet at the same uplink.
    order: str = setting("random", one_of=("random", "same"))
    #: every source starts a step late by a random number of slots, uniform from 0 to this
    start_spread_slots: int = setting(0, at_least=0)
    gap_slots: int = setting(0, at_least=0)  #: slots without arrivals between the end of a step and the next

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

    leaves: int = setting(16, at_least=2)  #: racks, this one included. The thesis: 8 and 16

    def flows(self, sources: int) -> list[int]:
        """Return one flow per server of every other leaf."""
        return [sources] * (self.leaves - 1)


@dataclass(frozen=True)
class Ring(Collective):
    """Every server sends to one neighbour in another rack, over a few channels."""

    #: flows to the neighbour. The thesis: 4, of which each is split where there are 16 uplinks
    channels: int = setting(4, at_least=1)

    def flows(self, sources: int) -> list[int]:
        """Return the channels, all to one leaf."""
        return [self.channels]


# The arrivals by which proofs show how much a policy can lose against the offline optimum OPT.
#
# No chance in them: the seed is ignored. All but `DtLowerBound(at_once=True)` keep to the model's N packets a slot; a
# burst of the proof is then spread over consecutive slots, N a slot, and `fill` adds what leaves while it lasts.
# The ratios are those of the repeated part; the first filling and the last draining cost a constant.


def fill_slots(ports: int, length: int) -> int:
    """Return in how many slots N packets a slot bring an empty queue to `length` (after the arrivals of the last)."""
    return 1 if length <= ports else -(-(length - 1) // (ports - 1))


def fill(ports: int, length: int) -> NDArray[np.int64]:
    """Return the slots of the packets that do so, just as many as fit: one leaves in every slot but the last."""
    slots = fill_slots(ports, length)
    return np.arange(length + slots - 1, dtype=np.int64) // ports


def all_to(port: int, count: int) -> NDArray[np.int32]:
    """Return `count` times `port`."""
    return np.full(count, port, np.int32)


@dataclass(frozen=True)
class LowerBound(Workload):
    """A sequence of a proof; it needs two ports and at least one packet of buffer per port."""

    def check(self, ports: int, buffer: int) -> None:
        """Refuse switches that are too small."""
        require_within("ports", ports, {"at_least": 2})
        if buffer < ports:
            raise ForetailError(f"buffer must have at least one packet per port, {ports}, for this sequence: {buffer}")


@dataclass(frozen=True)
class CompleteSharingLowerBound(LowerBound):
    """Complete Sharing sends 1 packet where OPT sends N.

    Port 0 is filled to B. Then every slot has one packet for port 0, which takes the one place that is free, and one
    for every other port, for which none is left. OPT keeps port 0 short and sends all N in every slot.

    N is all that can be shown in this model, although the literature's bound is N + 1: up to the last drop before it
    runs empty, Complete Sharing sends at least 1 packet in every slot in which OPT sends at most N; at that drop its
    buffer holds B packets, OPT's at most B, and whatever comes later it accepts.
    """

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        """Yield the filling, then one slot again and again."""
        yield from filled_then_all(ports, buffer, slots, others=ports - 1)


def filled_then_all(ports: int, buffer: int, slots: int, others: int) -> Iterator[Slotted]:
    """Fill port 0, then send in every slot one packet to it and then one to each of `others` other ports."""
    filling = fill(ports, buffer)
    yield upto(slots, filling, all_to(0, len(filling)))
    each = np.arange(others + 1, dtype=np.int32)
    yield from periodic(fill_slots(ports, buffer), 1, np.zeros(len(each), np.int64), each, slots)


@dataclass(frozen=True)
class FalseNegative(LowerBound):
    """A few wrong predictions that cost who blindly trusts them a packet each in every slot, for ever.

    Section 2 of Credence (NSDI'24). Port 0 is filled to B; then every slot has one packet for port 0 and one for each
    of k other ports. LQD pushes exactly k packets out of port 0, in the first of these slots, and loses nothing after
    that. The predictions, which come with the packets, say "accept" for every one: they are wrong for those k and right
    for all others. Complete Sharing, which is what trusting them comes to, sends 1 packet a slot where LQD and OPT send
    k + 1; Credence and FollowLQD notice that their queue is above its threshold and lose a constant.
    """

    count: int = setting(1, at_least=1)  #: k, 1 to N - 1. The paper's text has 1

    def check(self, ports: int, buffer: int) -> None:
        """Refuse switches that are too small."""
        super().check(ports, buffer)
        if self.count >= ports:
            raise ForetailError(f"count must be below the number of ports, {ports}, not {self.count}")

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        """Yield the filling, then one slot again and again, with predictions."""
        for chunk in filled_then_all(ports, buffer, slots, others=self.count):
            yield Slotted(chunk.slot, chunk.port, np.zeros(len(chunk), np.uint8))


@dataclass(frozen=True)
class FollowLqdLowerBound(LowerBound):
    """FollowLQD sends 2 packets where LQD and OPT send N + 1: Observation 1 of Credence (NSDI'24).

    Port 0 is filled to B. Then periods of two slots: one packet to every port, port 0 first, and N packets to port 0.
    In the first slot LQD makes room by pushing out of port 0, FollowLQD cannot; in the second LQD's port 0 is back at
    B, which lets FollowLQD accept a single packet. Both end the period as they began it, FollowLQD having sent 2
    packets from port 0, LQD these and one from every other port. More is not possible: in two slots port 0 sends at
    most 2, and the others get one packet each.
    """

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        """Yield the filling, then the period again and again."""
        filling = fill(ports, buffer)
        yield upto(slots, filling, all_to(0, len(filling)))
        port = np.concatenate((np.arange(ports, dtype=np.int32), all_to(0, ports)))
        yield from periodic(fill_slots(ports, buffer), 2, np.repeat(np.arange(2), ports), port, slots)


@dataclass(frozen=True)
class LqdLowerBound(LowerBound):
    """LQD shares the buffer equally where OPT would not: the ratio approaches sqrt(2) for many ports.

    The bound is that of Hahne, Kesselman and Mansour (SPAA 2001); the sequence is ours. k = N/2 ports are hot: they get
    one packet a slot, after a first filling of the whole buffer, so under LQD they stay as long as anybody. The other
    M = N - k ports take turns: one of them gets M packets a slot for R slots, then the next, so each gets M R packets
    every M R slots, just what it can send. OPT keeps the hot ports at one packet and gives the buffer to the others,
    whose lengths at the end of a turn are (M - 1) R + 1, (M - 2) R + 1, ..., 1, and all N ports send in every slot. R
    is the largest for which that fits in B, at least 1; for B below N + M (M - 1) / 2 the ratio is smaller.

    LQD cuts the growing queue off at about the length L R of the hot ones. For many ports k L + L^2 / 2 = M^2 / 2, as
    both buffers are full, so LQD sends k + L = sqrt(k^2 + M^2) packets a slot, and k = M gives 2 M / (sqrt(2) M). It
    comes near slowly: with B = 200 N, OPT / LQD is 1.20 for N = 4, 1.26 for 8, 1.33 for 16, 1.37 for 64.
    """

    def check(self, ports: int, buffer: int) -> None:
        """Refuse switches that are too small."""
        require_within("ports", ports, {"at_least": 4})
        super().check(ports, buffer)

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        """Yield the filling, then the turns of all cold ports again and again."""
        hot = ports // 2
        cold = ports - hot
        turn = max(1, (buffer - ports) // (cold * (cold - 1) // 2))
        filling = -(-buffer // cold) + 1
        slot = np.repeat(np.arange(filling), ports)
        yield upto(slots, slot, (np.arange(len(slot)) % hot).astype(np.int32))
        # a slot of the repeated part: one packet to every hot port, then M to the cold port whose turn it is
        port = np.empty((cold * turn, ports), np.int32)
        port[:, :hot] = np.arange(hot)
        port[:, hot:] = np.repeat(np.arange(hot, ports), turn)[:, None]
        yield from periodic(filling, len(port), np.repeat(np.arange(len(port)), ports), port.ravel(), slots)


@dataclass(frozen=True)
class DtLowerBound(LowerBound):
    """Dynamic Thresholds keep buffer free that nobody will need.

    Within the model: port 0 is filled to B by N packets a slot, sends all of it, is filled again. DT stops at
    alpha / (1 + alpha) B, and both send a packet in every slot of the filling: with s such slots, the ratio is
    (B + s - 1) / (alpha / (1 + alpha) B + s - 1), near (1 + alpha) / alpha for many ports.

    With `at_once`: periods of P slots. In the first slot of each, k = sqrt(N) hot ports get B / k packets each, then
    the M = N - k others get P = (B - k) / M packets each; in the other slots every hot port gets one. OPT keeps one
    packet per hot port and all of the others': N in every slot. DT's hot queues leave B / (1 + k alpha) free, so it
    sends at most about k P + B / (1 + k alpha): the ratio is near N / (k + M / (1 + k alpha)) and grows as sqrt(N).
    The bound in the literature is Omega(sqrt(N / log N)).
    """

    at_once: bool = False  #: bursts come in one slot, more than N packets, beyond the paper's model

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        """Yield the period again and again."""
        if not self.at_once:
            filling = fill(ports, buffer)
            period = fill_slots(ports, buffer) + buffer - 1
            yield from periodic(0, period, filling, all_to(0, len(filling)), slots)
            return
        hot = max(1, math.isqrt(ports))
        cold = ports - hot
        period = max(1, (buffer - hot) // cold)
        first = np.concatenate(
            (np.tile(np.arange(hot), -(-buffer // hot)), np.tile(np.arange(hot, ports), period))
        )  # each round robin
        slot = np.concatenate((np.zeros(len(first), np.int64), np.repeat(np.arange(1, period), hot)))
        port = np.concatenate((first, np.tile(np.arange(hot), period - 1))).astype(np.int32)
        yield from periodic(0, period, slot, port, slots)


__all__ = [
    "WORKLOADS",
    "WORKLOAD_KINDS",
    "AllToAll",
    "CompleteSharingLowerBound",
    "DtLowerBound",
    "FalseNegative",
    "FollowLqdLowerBound",
    "Incast",
    "LqdLowerBound",
    "OnOff",
    "Permutation",
    "PoissonBursts",
    "Ring",
    "Uniform",
    "Workload",
    "ZipfBursts",
    "ZipfOnOff",
    "workload_of",
]

WORKLOADS: MappingProxyType[str, type[Workload]] = MappingProxyType(
    {
        "poisson_bursts": PoissonBursts,
        "on_off": OnOff,
        "incast": Incast,
        "permutation": Permutation,
        "uniform": Uniform,
        "zipf_bursts": ZipfBursts,
        "zipf_on_off": ZipfOnOff,
        "lqd_lower_bound": LqdLowerBound,
        "dt_lower_bound": DtLowerBound,
        "followlqd_lower_bound": FollowLqdLowerBound,
        "complete_sharing_lower_bound": CompleteSharingLowerBound,
        "false_negative": FalseNegative,
        "all_to_all": AllToAll,
        "ring": Ring,
    }
)
"""The workloads by name; the parameters of each are the fields of its class."""

WORKLOAD_KINDS = Kinds(WORKLOAD_GROUP, Workload, "workload", WORKLOADS)  # type: ignore[type-abstract] # a base, not made
"""Foretail's own, and what installed packages offer."""


def workload_of(name: str, parameters: Mapping[str, Any] | None) -> Workload:
    """Make the workload of a name; parameters that are not given keep their defaults.

    ForetailError on an unknown name or parameter, and on a value of another type or out of range.
    """
    return WORKLOAD_KINDS.make(name, parameters)
