"""Racks around a packet switch and a circuit switch once more, slow and obvious.

At each instant at which anything happens: circuits change, then links take packets, then packets arrive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

HOST, UP, OUT, CIRCUIT, DOWN = "host", "up", "out", "circuit", "down"


@dataclass
class Crossing:
    """A packet on its way: rack and host are numbers among the racks and hosts that there are."""

    number: int
    source: int
    destination: int
    size: int
    entered: int = -1
    left: int = -1
    by_circuit: bool = False
    waiting: int = -1
    due: int = -1
    until: int | None = None  # the next circuit of its VOQ, when it came there
    threshold: int = -1  # bytes in its virtual VOQ, itself perhaps among them


def until_circuit(racks: dict[str, Any], source: int, destination: int, now: int) -> int | None:
    """Time to the next circuit, slot by slot; None when there never is one."""
    matchings: list[list[int]] = racks["matchings"]
    day_ns: int = racks["day_ns"]
    slot_ns: int = day_ns + racks["night_ns"]
    for slot in range(now // slot_ns, now // slot_ns + 2 * len(matchings)):
        start = slot * slot_ns
        if matchings[slot % len(matchings)][source] == destination and now < start + day_ns:
            return max(0, start - now)
    return None


class SlowVoqs:
    """The VOQs of all racks, and what their links do with them: the real ones, or those of a virtual LQD."""

    def __init__(self, racks: int) -> None:
        self.waiting: dict[tuple[int, int], list[Crossing]] = {
            (source, destination): [] for source in range(racks) for destination in range(racks)
        }
        self.turn = dict.fromkeys(range(racks), 0)
        self.free: dict[tuple[str, int], int] = {}  # when a link has sent what it sends

    def of(self, source: int) -> list[list[Crossing]]:
        return [waiting for (rack, _), waiting in self.waiting.items() if rack == source]

    def push_out(self, source: int, destination: int, packet: Crossing, buffer: int) -> list[Crossing]:
        """Take it in by LQD; return what had to go."""
        voqs, gone = self.of(source), []
        voqs[destination].append(packet)
        while sum(map(length_of, voqs)) > buffer:
            gone.append(max(voqs, key=length_of).pop())  # of the first of the longest
        return gone


def length_of(voq: list[Crossing]) -> int:
    return sum(packet.size for packet in voq)


class SlowRacks:
    """Moves packets, given as (virtual time, source host, destination host, bytes), until all are gone."""

    def __init__(self, document: dict[str, Any], packets: list[tuple[int, int, int, int]]) -> None:
        self.racks = document["racks"]
        self.rack = sorted({*document["flows"]["source"], *document["flows"]["destination"]})
        self.packets = [Crossing(i, source, to, size) for i, (_, source, to, size) in enumerate(packets)]
        self.queue: dict[tuple[str, int], list[Crossing]] = {}  # in front of a link
        self.real, self.virtual = SlowVoqs(len(self.rack)), SlowVoqs(len(self.rack))
        self.arriving: list[tuple[int, int, str, Crossing]] = []
        self.dropped: set[int] = set()
        self.labels: set[int] = set()  # what the virtual LQD drops
        self.order = 0
        sends = [(time, packet) for (time, *_), packet in zip(packets, self.packets, strict=True)]
        now = 0
        while sends or self.arriving or any(self.queue.values()) or any(self.real.waiting.values()):
            self.now = now
            self.take()
            while self.arriving and min(self.arriving, key=lambda one: one[:2])[0] == now:
                first = min(self.arriving, key=lambda one: one[:2])
                self.arriving.remove(first)
                self.arrive(first[2], first[3])
                self.take()
            while sends and sends[0][0] == now:
                _, packet = sends.pop(0)
                self.queue.setdefault((HOST, packet.source), []).append(packet)
                self.take()
            soon = [time for time, *_ in self.arriving] + [
                time for voqs in (self.real, self.virtual) for time in voqs.free.values() if time > now
            ]
            slot_ns = self.racks["day_ns"] + self.racks["night_ns"]
            slot = now - now % slot_ns
            soon += [time for time in (slot + self.racks["day_ns"], slot + slot_ns) if time > now]
            soon += [time for time, _ in sends[:1]]
            now = min(soon)

    def rack_of(self, host: int) -> int:
        return host // int(self.racks["hosts_per_rack"])

    def until(self, source: int, destination: int) -> int | None:
        return until_circuit(self.racks, self.rack[source], self.rack[destination], self.now)

    def capacity(self, source: int, destination: int) -> int:
        resize, wait = self.racks["resize"], self.until(source, destination)
        if resize is not None and wait is not None and wait <= resize["ahead_ns"]:
            return int(resize["packets"])
        return int(self.racks["voq_packets"])

    def share(self, source: int, destination: int, packet: Crossing) -> None:
        """One buffer for all VOQs of a rack; a packet that is pushed out is dropped, too."""
        buffer = self.racks["buffer"]
        size, policy = int(buffer["bytes"]), buffer["policy"]
        lost = self.virtual.push_out(source, destination, packet, size)
        self.labels |= {one.number for one in lost}
        packet.threshold = length_of(self.virtual.waiting[source, destination])
        if policy == "lqd":
            self.dropped |= {one.number for one in self.real.push_out(source, destination, packet, size)}
            assert self.real.waiting == self.virtual.waiting
            return
        lengths = list(map(length_of, self.real.of(source)))
        length, free = lengths[destination], size - sum(lengths)
        below = length + packet.size <= packet.threshold
        is_safe = len(lengths) * (max(lengths) + packet.size) <= size
        wanted = {
            "cs": True,
            "dt": length < buffer["alpha"] * free,
            "followlqd": below,
            "credence": is_safe or below,  # the predictor always accepts
        }
        if packet.size <= free and wanted[policy]:
            self.real.waiting[source, destination].append(packet)
        else:
            self.dropped.add(packet.number)

    def take(self) -> None:
        """Every link that is free takes what it may."""
        for voqs in (self.real, self.virtual):
            for source in range(len(self.rack)):
                self.take_from(voqs, source)
        for (kind, index), waiting in self.queue.items():
            if waiting and self.is_free(self.real, kind, index):
                self.send(self.real, kind, index, waiting.pop(0))

    def take_from(self, voqs: SlowVoqs, source: int) -> None:
        for destination in range(len(self.rack)):
            waiting = voqs.waiting[source, destination]
            if self.until(source, destination) != 0 or not waiting:
                continue
            rest = self.racks["day_ns"] - self.now % (self.racks["day_ns"] + self.racks["night_ns"])
            if self.is_free(voqs, CIRCUIT, source) and self.duration(CIRCUIT, waiting[0]) <= rest:
                self.send(voqs, CIRCUIT, source, waiting.pop(0))
        for step in range(len(self.rack)):
            destination = (voqs.turn[source] + step) % len(self.rack)
            wait = self.until(source, destination)
            is_open = wait is None or wait > self.racks["night_ns"]
            if self.is_free(voqs, UP, source) and is_open and voqs.waiting[source, destination]:
                voqs.turn[source] = destination + 1
                self.send(voqs, UP, source, voqs.waiting[source, destination].pop(0))
                return

    def is_free(self, voqs: SlowVoqs, kind: str, index: int) -> bool:
        return voqs.free.get((kind, index), 0) <= self.now

    def duration(self, kind: str, packet: Crossing) -> int:
        rates = {HOST: "host_bps", DOWN: "host_bps", UP: "packet_bps", OUT: "packet_bps", CIRCUIT: "circuit_bps"}
        return -(-packet.size * 8 * 10**9 // int(self.racks[rates[kind]]))

    def send(self, voqs: SlowVoqs, kind: str, index: int, packet: Crossing) -> None:
        voqs.free[kind, index] = self.now + self.duration(kind, packet)
        if voqs is self.virtual:
            return  # to nowhere
        if kind == CIRCUIT:
            packet.by_circuit = True
        delays = {UP: self.racks["packet_delay_ns"], OUT: self.racks["packet_delay_ns"]}
        delay = self.racks["circuit_delay_ns"] if kind == CIRCUIT else delays.get(kind, 0)
        self.arriving.append((voqs.free[kind, index] + delay, self.order, kind, packet))
        self.order += 1

    def arrive(self, kind: str, packet: Crossing) -> None:
        source, destination = self.rack_of(packet.source), self.rack_of(packet.destination)
        waiting = self.real.waiting[source, destination]
        if kind == HOST:
            packet.entered, packet.until = self.now, self.until(source, destination)
            if self.racks["buffer"] is not None:
                self.share(source, destination, packet)
            elif len(waiting) >= self.capacity(source, destination):
                self.dropped.add(packet.number)
            else:
                waiting.append(packet)
        elif kind == UP:
            self.queue.setdefault((OUT, destination), []).append(packet)
        elif kind == DOWN:
            packet.due = self.now
        else:
            packet.left, packet.waiting = self.now, len(waiting)
            self.queue.setdefault((DOWN, packet.destination), []).append(packet)
