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
    announced: bool = False
    due: int = -1


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


class SlowRacks:
    """Moves packets, given as (virtual time, source host, destination host, bytes), until all are gone."""

    def __init__(self, document: dict[str, Any], packets: list[tuple[int, int, int, int]]) -> None:
        self.racks = document["racks"]
        self.rack = sorted({*document["flows"]["source"], *document["flows"]["destination"]})
        self.packets = [Crossing(i, source, to, size) for i, (_, source, to, size) in enumerate(packets)]
        self.queue: dict[tuple[str, int], list[Crossing]] = {}  # in front of a link
        self.voq: dict[tuple[int, int], list[Crossing]] = {}
        self.free: dict[tuple[str, int], int] = {}  # when a link has sent what it sends
        self.arriving: list[tuple[int, int, str, Crossing]] = []
        self.turn = dict.fromkeys(range(len(self.rack)), 0)
        self.dropped: set[int] = set()
        self.order = 0
        sends = [(time, packet) for (time, *_), packet in zip(packets, self.packets, strict=True)]
        now = 0
        while sends or self.arriving or any(self.queue.values()) or any(self.voq.values()):
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
            soon = [time for time, *_ in self.arriving] + [time for time in self.free.values() if time > now]
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
        voqs = [self.voq.setdefault((source, to), []) for to in range(len(self.rack))]

        def free() -> int:
            return int(buffer["bytes"]) - sum(one.size for voq in voqs for one in voq)

        length = sum(one.size for one in voqs[destination])
        if buffer["policy"] == "lqd":
            voqs[destination].append(packet)
            while free() < 0:
                longest = max(voqs, key=lambda voq: sum(one.size for one in voq))  # the first of the longest
                self.dropped.add(longest.pop().number)
        elif free() < packet.size or (buffer["policy"] == "dt" and length >= buffer["alpha"] * free()):
            self.dropped.add(packet.number)
        else:
            voqs[destination].append(packet)

    def take(self) -> None:
        """Every link that is free takes what it may."""
        for source in range(len(self.rack)):
            for destination in range(len(self.rack)):
                if self.until(source, destination) != 0 or not self.voq.get((source, destination)):
                    continue
                packet = self.voq[source, destination][0]
                rest = self.racks["day_ns"] - self.now % (self.racks["day_ns"] + self.racks["night_ns"])
                if self.is_free(CIRCUIT, source) and self.duration(CIRCUIT, packet) <= rest:
                    packet.by_circuit = True
                    self.send(CIRCUIT, source, self.voq[source, destination].pop(0))
            for step in range(len(self.rack)):
                destination = (self.turn[source] + step) % len(self.rack)
                wait = self.until(source, destination)
                is_open = wait is None or wait > self.racks["night_ns"]
                if self.is_free(UP, source) and is_open and self.voq.get((source, destination)):
                    self.turn[source] = destination + 1
                    self.send(UP, source, self.voq[source, destination].pop(0))
                    break
        for (kind, index), waiting in self.queue.items():
            if waiting and self.is_free(kind, index):
                self.send(kind, index, waiting.pop(0))

    def is_free(self, kind: str, index: int) -> bool:
        return self.free.get((kind, index), 0) <= self.now

    def duration(self, kind: str, packet: Crossing) -> int:
        rates = {HOST: "host_bps", DOWN: "host_bps", UP: "packet_bps", OUT: "packet_bps", CIRCUIT: "circuit_bps"}
        return -(-packet.size * 8 * 10**9 // int(self.racks[rates[kind]]))

    def send(self, kind: str, index: int, packet: Crossing) -> None:
        delays = {UP: self.racks["packet_delay_ns"], OUT: self.racks["packet_delay_ns"]}
        delay = self.racks["circuit_delay_ns"] if kind == CIRCUIT else delays.get(kind, 0)
        self.free[kind, index] = self.now + self.duration(kind, packet)
        self.arriving.append((self.free[kind, index] + delay, self.order, kind, packet))
        self.order += 1

    def arrive(self, kind: str, packet: Crossing) -> None:
        source, destination = self.rack_of(packet.source), self.rack_of(packet.destination)
        waiting = self.voq.setdefault((source, destination), [])
        if kind == HOST:
            packet.entered = self.now
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
            wait, resize = self.until(destination, source), self.racks["resize"]
            packet.announced = wait is not None and wait <= (resize["ahead_ns"] if resize else 0)
            self.queue.setdefault((DOWN, packet.destination), []).append(packet)
