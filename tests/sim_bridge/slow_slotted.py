"""The buffer policies on unit packets in slots, written from the papers for reading, not for speed.

Credence (NSDI'24) sections 2 and 3: in a slot the arrivals come in order, then every non-empty queue sends one packet.
Queues are lists of packet numbers, the longest is sought by looking at all of them. Nothing here knows the C++ library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

ACCEPTED, OVER_THRESHOLD, PREDICTED, BUFFER_FULL, PUSHED_OUT = range(5)
NEVER = 2**24 - 1


@dataclass(frozen=True)
class Rules:
    """The choices that LQD leaves open."""

    counting: str = "counted"
    tie: str = "lowest_port"
    victim: str = "tail"


@dataclass(frozen=True)
class Settings:
    """Settings of the policies that have some."""

    alpha: float = 0.5
    first_rtt_alpha: float = 64.0
    rtt_slots: int = 25
    average_shift: int = 5


@dataclass
class SlottedRun:
    """What became of the packets, one entry each in order of arrival."""

    outcome: list[int] = field(default_factory=list)
    lqd_drop: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    exposed: list[int] = field(default_factory=list)
    features: list[list[int]] = field(default_factory=list)
    transmitted: int = 0
    threshold_deficits: int = 0


def longest_port(lengths: Sequence[int], tie: str) -> int:
    longest = [port for port, length in enumerate(lengths) if length == max(lengths)]
    return longest[0] if tie == "lowest_port" else longest[-1]


class LongestQueueDrop:
    """LQD's own queues."""

    def __init__(self, ports: int, buffer: int, rules: Rules) -> None:
        self.queues: list[list[int]] = [[] for _ in range(ports)]
        self.buffer = buffer
        self.rules = rules

    def lengths(self) -> list[int]:
        return [len(queue) for queue in self.queues]

    def arrive(self, packet: int, port: int) -> tuple[int, int] | None:
        """Take a packet in; return (victim, its port) when one had to go, which may be the arrival itself."""
        if sum(self.lengths()) < self.buffer:
            self.queues[port].append(packet)
            return None
        if self.rules.counting == "counted":
            self.queues[port].append(packet)
            loser = longest_port(self.lengths(), self.rules.tie)
            victim = self.choose(self.queues[loser], packet)
            self.queues[loser].remove(victim)
        else:
            loser = longest_port(self.lengths(), self.rules.tie)
            victim = self.choose(self.queues[loser], packet)
            self.queues[loser].remove(victim)
            self.queues[port].append(packet)
        return victim, loser

    def choose(self, queue: list[int], arrival: int) -> int:
        if self.rules.victim == "head":
            return queue[0]
        if self.rules.victim == "tail":
            return queue[-1]
        others = [packet for packet in queue if packet != arrival]
        return others[-1] if others else arrival

    def depart(self, port: int) -> None:
        self.queues[port].pop(0)


class Thresholds:
    """The counters of FollowLQD and Credence: LQD's queue lengths without its packets (Credence section 3.2)."""

    def __init__(self, ports: int, buffer: int, rules: Rules) -> None:
        self.t = [0] * ports
        self.gamma = 0
        self.buffer = buffer
        self.rules = rules

    def arrive(self, port: int) -> None:
        if self.gamma == self.buffer:
            seen = list(self.t)
            if self.rules.counting == "counted":
                seen[port] += 1
            loser = longest_port(seen, self.rules.tie)
            self.t[port] += 1
            self.t[loser] -= 1
        else:
            self.gamma += 1
            self.t[port] += 1

    def depart(self) -> None:
        for port in range(len(self.t)):
            if self.t[port] > 0:
                self.t[port] -= 1
                self.gamma -= 1


class ShiftAverage:
    """Average over 2**shift ticks in fixed point with 8 fractional bits (design section 4)."""

    def __init__(self, shift: int) -> None:
        self.shift = shift
        self.fixed = 0
        self.since = 0

    def held(self, now: int, value: int) -> None:
        """Say that the signal had `value` from the last call until now."""
        elapsed = now - self.since
        if elapsed == 0:
            return
        h = 0
        while 2 ** (h + 1) <= min(elapsed, 2**self.shift):
            h += 1
        self.fixed += (value * 256 - self.fixed) // 2 ** (self.shift - h)  # floors, as an arithmetic shift does
        self.since = now

    def value(self) -> int:
        return self.fixed // 256


class Averages:
    """Averages of every queue and of their sum; to be told of every change beforehand."""

    def __init__(self, ports: int, shift: int, cell_bytes: int = 1) -> None:
        self.queue = [ShiftAverage(shift) for _ in range(ports)]
        self.sum = ShiftAverage(shift)
        self.cell_bytes = cell_bytes

    def before_change(self, port: int, now: int, lengths: Sequence[int]) -> None:
        self.queue[port].held(now, lengths[port] // self.cell_bytes)
        self.sum.held(now, sum(lengths) // self.cell_bytes)


def is_safe(longest: int, size: int, ports: int, buffer: int) -> bool:
    """Credence's safeguard, in the form that stays exact when ports do not divide the buffer."""
    return ports * (longest + size) <= buffer


def is_safe_in_the_paper(longest: int, size: int, ports: int, buffer: int) -> bool:
    """The safeguard as printed: longest < B / N."""
    return longest * ports < buffer


class AbmThreshold:
    """ABM with one priority (thesis equation 4.9): alpha / n * (B - Q), n counted once per interval, at least 1."""

    def __init__(self, settings: Settings, interval: int) -> None:
        self.settings = settings
        self.interval = interval
        self.counted_in = -1
        self.n = 1

    def threshold(self, alpha: float, free: int) -> float:
        return alpha * free / self.n

    def count(self, now: int, lengths: Sequence[int], free: int) -> None:
        if now // self.interval == self.counted_in:
            return
        self.counted_in = now // self.interval
        enough = 0.9 * self.threshold(self.settings.alpha, free)
        self.n = max(1, len([length for length in lengths if length > 0 and length >= enough]))


def run_slotted(
    policy: str,
    ports: int,
    buffer: int,
    slots: Sequence[int],
    port_of: Sequence[int],
    predictions: Sequence[int] | None = None,
    first_rtt: Sequence[int] | None = None,
    rules: Rules = Rules(),
    settings: Settings = Settings(),
    safe: Callable[[int, int, int, int], bool] = is_safe,
) -> SlottedRun:
    """Run `policy` and, beside it on the same arrivals, LQD for labels and thresholds."""
    run = SlottedRun()
    queues: list[list[int]] = [[] for _ in range(ports)]  # of the drop-tail policies
    own_lqd = LongestQueueDrop(ports, buffer, rules)  # of policy lqd
    if policy == "lqd":
        queues = own_lqd.queues
    virtual = LongestQueueDrop(ports, buffer, rules)
    thresholds = Thresholds(ports, buffer, rules)
    averages = Averages(ports, settings.average_shift)
    virtual_averages = Averages(ports, settings.average_shift)
    last_push_out: list[int | None] = [None] * ports
    abm = AbmThreshold(settings, settings.rtt_slots)

    def lengths() -> list[int]:
        return [len(queue) for queue in queues]

    def decide(packet: int, now: int) -> int:
        port = port_of[packet]
        full = sum(lengths()) == buffer
        free = buffer - sum(lengths())
        if policy == "cs":
            return BUFFER_FULL if full else ACCEPTED
        if policy == "dt":
            within = len(queues[port]) < settings.alpha * free
        elif policy == "abm":
            abm.count(now, lengths(), free)
            alpha = settings.first_rtt_alpha if first_rtt is not None and first_rtt[packet] else settings.alpha
            within = len(queues[port]) < abm.threshold(alpha, free)
        else:
            if policy == "credence" and safe(max(lengths()), 1, ports, buffer):
                return ACCEPTED
            within = len(queues[port]) < thresholds.t[port]
        if full:
            return BUFFER_FULL
        if not within:
            return OVER_THRESHOLD
        if policy == "credence":
            run.asked[packet] = 1
            return PREDICTED if predictions is not None and predictions[packet] else ACCEPTED
        return ACCEPTED

    packet = 0
    slot = 0
    while packet < len(slots) or sum(lengths()) > 0 or sum(virtual.lengths()) > 0:
        while packet < len(slots) and slots[packet] == slot:
            port = port_of[packet]
            run.asked.append(0)
            run.lqd_drop.append(0)
            before = virtual.lengths()
            virtual_averages.before_change(port, slot, before)
            dropped = virtual.arrive(packet, port)
            thresholds.arrive(port)
            if dropped is not None:
                victim, loser = dropped
                virtual_averages.before_change(loser, slot, before)
                run.lqd_drop[victim] = 1
                last_push_out[loser] = slot
            assert thresholds.t == virtual.lengths()
            assert thresholds.gamma == sum(virtual.lengths())

            averages.before_change(port, slot, lengths())
            run.exposed.append(0 if is_safe(max(lengths()), 1, ports, buffer) else 1)
            refused_by_lqd = dropped is not None and dropped[0] == packet
            if not refused_by_lqd and len(queues[port]) + 1 > thresholds.t[port]:
                run.threshold_deficits += 1
            pushed = last_push_out[port]
            run.features.append(
                [
                    len(queues[port]),
                    averages.queue[port].value(),
                    sum(lengths()),
                    averages.sum.value(),
                    thresholds.t[port],
                    virtual_averages.queue[port].value(),
                    thresholds.gamma,
                    virtual_averages.sum.value(),
                    max(thresholds.t),
                    len([t for t in thresholds.t if ports * t > buffer]),
                    NEVER if pushed is None else min(slot - pushed, NEVER),
                ]
            )

            if policy == "lqd":
                before = lengths()
                out = own_lqd.arrive(packet, port)
                run.outcome.append(ACCEPTED)
                if out is not None:
                    victim, loser = out
                    averages.before_change(loser, slot, before)
                    run.outcome[victim] = BUFFER_FULL if victim == packet else PUSHED_OUT
            else:
                run.outcome.append(decide(packet, slot))
                if run.outcome[packet] == ACCEPTED:
                    queues[port].append(packet)
            assert sum(lengths()) <= buffer
            packet += 1

        for port in range(ports):  # the departure phase; its effects are seen from the next slot on
            if queues[port]:
                averages.before_change(port, slot + 1, lengths())
                queues[port].pop(0)
                run.transmitted += 1
            if virtual.queues[port]:
                virtual_averages.before_change(port, slot + 1, virtual.lengths())
                virtual.depart(port)
        thresholds.depart()
        slot += 1
    return run


def reduced(slots: Sequence[int], ports: Sequence[int], drop: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the sequence without the packets that are predicted to drop."""
    kept = [i for i in range(len(slots)) if not drop[i]]
    return [slots[i] for i in kept], [ports[i] for i in kept]


def parse(text: str) -> tuple[list[int], list[int]]:
    """Read slots as the papers print them: ``[222][112][]`` is three slots with the ports of their arrivals."""
    slots: list[int] = []
    ports: list[int] = []
    for slot, arrivals in enumerate(text.strip("[]").split("][")):
        for port in arrivals:
            slots.append(slot)
            ports.append(int(port))
    return slots, ports
