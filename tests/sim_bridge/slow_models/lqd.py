"""Longest Queue Drop on unit packets, its schedulers and its thresholds, for reading, not for speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foretail.sim_bridge.policy_settings import NATIVE, Units, without_unit


@dataclass(frozen=True)
class Rules:
    """The choices that LQD leaves open."""

    counting: str = "counted"
    tie: str = "lowest_port"
    victim: str = "tail"
    order: str = "longest_queue"
    oracle: str = "lqd"  # whose decisions are the labels
    oracle_alpha: float = 8.0  # if that is Occamy


@dataclass(frozen=True)
class Settings:
    """Settings of the policies that have some. `rtt` and `low_pass` are in slots, or in ns where packets have bytes.

    `bucket` and `drop_budget` are in packets, or in bytes.
    """

    alpha: tuple[float, ...] = (0.5,)  # one for each priority, or one for all
    first_rtt_alpha: float = 64.0
    rtt: int = 25
    average_shift: int = 5
    low_pass: int = 1024
    spare_bandwidth: float = 0.1
    bucket: int = 25
    spared: int = -1  # bytes after a packet up to which Occamy spares it; -1: it spares none
    spares_first_rtt: int = 1
    drop_budget: int = 2**30
    answers_needed: int = 3
    priorities: int = 1
    scheduler: str = "round_robin"
    quanta: tuple[int, ...] = ()  # of deficit round robin

    def keywords(self, units: Units) -> dict[str, Any]:
        """As native runs take them."""
        own = vars(self)
        parameters = {name: own[without_unit(name)] for name in NATIVE[units] if without_unit(name) in own}
        served = {name: own[name] for name in ("scheduler", "quanta", "average_shift")}
        return {**parameters, **served, "queues": self.priorities}

    def alpha_of(self, queue: int) -> float:
        return self.alpha[queue % self.priorities % len(self.alpha)]


def longest_port(lengths: Sequence[int], tie: str) -> int:
    longest = [port for port, length in enumerate(lengths) if length == max(lengths)]
    return longest[0] if tie == "lowest_port" else longest[-1]


def loser_of(lengths: Sequence[int], rules: Rules, priorities: int) -> int:
    """Return the queue that gives way; a length below 0 or of 0 has nothing to lose."""
    if rules.order == "lower_classes_first":
        lowest = max((queue % priorities for queue, length in enumerate(lengths) if length > 0), default=0)
        lengths = [length if queue % priorities == lowest else -1 for queue, length in enumerate(lengths)]
    return longest_port(lengths, rules.tie)


def spares_higher(rules: Rules, priorities: int, loser: int, own: int) -> bool:
    """Whether an arrival that does not count has to go, because all that could go for it is of higher classes."""
    return rules.order == "lower_classes_first" and loser % priorities < own % priorities


class Scheduler:
    """Which queue of one port sends next."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.turn = settings.priorities - 1
        self.deficit = [0] * settings.priorities

    def next(self, heads: Sequence[int | None]) -> int | None:
        """Return its priority, given the size of each queue's first packet; None is an empty queue."""
        waiting = [priority for priority, head in enumerate(heads) if head is not None]
        if not waiting:
            return None
        if self.settings.scheduler == "strict":
            return waiting[0]
        if self.settings.scheduler == "round_robin":
            self.turn = ([p for p in waiting if p > self.turn] or waiting)[0]
            return self.turn
        while True:  # deficit round robin (Shreedhar and Varghese)
            head = heads[self.turn]
            if head is not None and head <= self.deficit[self.turn]:
                self.deficit[self.turn] -= head
                return self.turn
            self.turn = (self.turn + 1) % len(heads)
            if heads[self.turn] is not None:
                self.deficit[self.turn] += self.settings.quanta[self.turn]

    def removed(self, priority: int, left: int) -> None:
        """Say that a queue has lost a packet and holds so many."""
        if left == 0:
            self.deficit[priority] = 0


class LongestQueueDrop:
    """LQD's own queues."""

    def __init__(self, ports: int, buffer: int, rules: Rules, settings: Settings) -> None:
        self.priorities = settings.priorities
        self.queues: list[list[int]] = [[] for _ in range(ports * settings.priorities)]
        self.schedulers = [Scheduler(settings) for _ in range(ports)]
        self.buffer = buffer
        self.rules = rules

    def lengths(self) -> list[int]:
        return [len(queue) for queue in self.queues]

    def arrive(self, packet: int, queue: int) -> tuple[int, int] | None:
        """Take a packet in; return (victim, its queue) when one had to go, which may be the arrival itself."""
        if sum(self.lengths()) < self.buffer:
            self.queues[queue].append(packet)
            return None
        if self.rules.counting == "counted":
            self.queues[queue].append(packet)
        loser = loser_of(self.lengths(), self.rules, self.priorities)
        if self.rules.counting == "uncounted" and spares_higher(self.rules, self.priorities, loser, queue):
            return packet, queue
        victim = self.choose(self.queues[loser], packet)
        self.remove(loser, victim)
        if self.rules.counting == "uncounted":
            self.queues[queue].append(packet)
        return victim, loser

    def remove(self, queue: int, packet: int) -> None:
        self.queues[queue].remove(packet)
        port, priority = divmod(queue, self.priorities)
        self.schedulers[port].removed(priority, len(self.queues[queue]))

    def choose(self, queue: list[int], arrival: int) -> int:
        if self.rules.victim == "head":
            return queue[0]
        if self.rules.victim == "tail":
            return queue[-1]
        others = [packet for packet in queue if packet != arrival]
        return others[-1] if others else arrival

    def serve(self, port: int) -> int | None:
        """Return the queue from which a port sends now."""
        return serve(self.schedulers[port], port, self.lengths())


def serve(scheduler: Scheduler, port: int, lengths: Sequence[int]) -> int | None:
    """Return the queue from which a port sends now, of unit packets."""
    first = port * scheduler.settings.priorities
    of_port = lengths[first : first + scheduler.settings.priorities]
    priority = scheduler.next([1 if length > 0 else None for length in of_port])
    return None if priority is None else first + priority
