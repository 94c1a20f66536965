"""Random workloads: bursts, on-off sources, incast, permutations and, as the plain baseline, uniform traffic.

`load` is always in packets per slot and port: 1 is what the ports can just send.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.sim_bridge.arrivals.slotted import Slotted
from foretail.sim_bridge.arrivals.workloads.workload import CHUNK_PACKETS, Workload, at_least, positive, upto


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
    load: float = 0.04
    #: size of a burst in buffers, above 0; the packets are rounded, at least 1. The paper: 1
    burst_fraction: float = 1.0
    #: all packets of a burst in the slot in which it comes: more than N a slot, beyond the paper's model
    at_once: bool = False

    def __post_init__(self) -> None:
        positive(load=self.load, burst_fraction=self.burst_fraction)

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

    exponent: float = 1.0  #: at least 0, where all ports get the same

    def __post_init__(self) -> None:
        super().__post_init__()
        check_exponent(self.exponent)

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
    load: float = 0.6
    #: mean length of an on-time in slots, at least 1 / (1 - load), where the slots of a source are independent
    mean_on_slots: float = 20.0

    def __post_init__(self) -> None:
        positive(load=self.load, mean_on_slots=self.mean_on_slots)
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

    exponent: float = 1.0  #: at least 0, where all ports get the same

    def __post_init__(self) -> None:
        super().__post_init__()
        check_exponent(self.exponent)

    def targets(self, draw: np.random.Generator, ports: int, count: int) -> NDArray[np.integer[Any]]:
        """Draw the ports of so many on-times."""
        return zipf_ports(draw, self.exponent, ports, count)


def zipf_ports(draw: np.random.Generator, exponent: float, ports: int, count: int) -> NDArray[np.int32]:
    """Draw ports, of which p has weight (p + 1) ** -`exponent`."""
    upto_port = np.cumsum(np.arange(1, ports + 1) ** -float(exponent))
    places = np.searchsorted(upto_port[:-1], upto_port[-1] * draw.random(count), side="right")
    return np.asarray(places, np.int32)


def check_exponent(exponent: float) -> None:
    """Raise ForetailError for an exponent that is negative or not finite."""
    if not (0 <= exponent < math.inf):
        raise ForetailError(f"exponent must be at least 0, not {exponent!r}")


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

    load: float = 0.1  #: mean incast packets per slot and port, above 0
    #: probability that an input that takes no part in an incast sends a packet, from 0 to 1; its port is uniform
    background_load: float = 0.4
    #: size of a burst in buffers, above 0; rounded up to the same number of packets, at least 1, from every sender. The
    #: paper's packet simulations: 0.1 to 1.
    burst_fraction: float = 0.5
    fan_in: int | None = None  #: senders of an incast, 1 to N; None: N
    poisson: bool = True  #: incasts come Poisson in time; else at equal intervals

    def __post_init__(self) -> None:
        positive(load=self.load, burst_fraction=self.burst_fraction)
        if not 0 <= self.background_load <= 1:
            raise ForetailError(f"background_load must be from 0 to 1, not {self.background_load!r}")
        if self.fan_in is not None:
            at_least(1, fan_in=self.fan_in)

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

    load: float = 0.9  #: probability that an input sends in a slot, above 0, at most 1
    change_slots: int = 1000  #: slots between two permutations, at least 1

    def __post_init__(self) -> None:
        positive(1, load=self.load)
        at_least(1, change_slots=self.change_slots)

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

    load: float = 0.9  #: mean packets per slot and port: the probability, above 0, at most 1

    def __post_init__(self) -> None:
        """Check the range."""
        positive(1, load=self.load)

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        some = max(1, CHUNK_PACKETS // ports)
        for first in range(0, slots, some):
            slot = np.repeat(np.arange(first, first + some), draw.binomial(ports, self.load, some))
            yield upto(slots, slot, draw.integers(0, ports, len(slot), dtype=np.int32))
