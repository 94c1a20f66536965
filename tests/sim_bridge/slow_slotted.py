"""The buffer policies on unit packets in slots, written from the papers for reading, not for speed.

Credence (NSDI'24) sections 2 and 3: in a slot the arrivals come in order, then every non-empty port sends one packet.
A port has one queue for each priority, number ``port * priorities + priority``; `Scheduler` says which sends next.
Queues are lists of packet numbers, the longest is sought by looking at all of them. Nothing here knows the C++ library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from operator import add

ACCEPTED, OVER_THRESHOLD, PREDICTED, BUFFER_FULL, PUSHED_OUT = range(5)
NEVER = 2**24 - 1


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
    spares_first_rtt: int = 1
    drop_budget: int = 2**30
    answers_needed: int = 3
    priorities: int = 1
    scheduler: str = "round_robin"
    quanta: tuple[int, ...] = ()  # of deficit round robin

    def alpha_of(self, queue: int) -> float:
        return self.alpha[queue % self.priorities % len(self.alpha)]


@dataclass
class SlottedRun:
    """What became of the packets, one entry each in order of arrival."""

    outcome: list[int] = field(default_factory=list)
    lqd_drop: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    exposed: list[int] = field(default_factory=list)
    features: list[list[int]] = field(default_factory=list)
    removed_at: dict[int, int] = field(default_factory=dict)  # packet -> the arrival that pushed it out
    lqd_dropped_at: dict[int, int] = field(default_factory=dict)
    transmitted: int = 0
    threshold_deficits: int = 0


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


class Thresholds:
    """The counters of FollowLQD and Credence: LQD's queue lengths without its packets (Credence section 3.2)."""

    def __init__(self, ports: int, buffer: int, rules: Rules, settings: Settings) -> None:
        self.t = [0] * (ports * settings.priorities)
        self.priorities = settings.priorities
        self.schedulers = [Scheduler(settings) for _ in range(ports)]
        self.gamma = 0
        self.buffer = buffer
        self.rules = rules

    def arrive(self, queue: int) -> None:
        if self.gamma < self.buffer:
            self.gamma += 1
            self.t[queue] += 1
            return
        seen = list(self.t)
        if self.rules.counting == "counted":
            seen[queue] += 1
        loser = loser_of(seen, self.rules, self.priorities)
        if self.rules.counting == "uncounted" and spares_higher(self.rules, self.priorities, loser, queue):
            return
        if self.rules.counting == "counted":
            self.t[queue] += 1
        self.lower(loser)  # uncounted: before the arrival, so that a queue of one packet is empty for a moment
        if self.rules.counting == "uncounted":
            self.t[queue] += 1

    def lower(self, queue: int) -> None:
        self.t[queue] -= 1
        port, priority = divmod(queue, self.priorities)
        self.schedulers[port].removed(priority, self.t[queue])

    def depart(self) -> None:
        for port, scheduler in enumerate(self.schedulers):
            queue = serve(scheduler, port, self.t)
            if queue is not None:
                self.lower(queue)
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


class LowPassAverage:
    """Reverie's average of a queue (thesis equation 5.11), which forgets 1/`ticks` of its past in every tick."""

    def __init__(self, ticks: int) -> None:
        self.kept = 1 - 1 / ticks
        self.value = 0.0
        self.since = 0

    def held(self, now: int, length: int) -> None:
        """Say that the queue had `length` from the last call until now."""
        if now > self.since:  # adding and subtracting the length would round
            self.value = length + (self.value - length) * self.kept ** (now - self.since)
            self.since = now


class FadingSum:
    """What has come in about 2**shift ticks: it fades as an average of zero does, and grows at once."""

    def __init__(self, shift: int) -> None:
        self.average = ShiftAverage(shift)

    def add(self, now: int, size: int, cell_bytes: int) -> None:
        self.average.held(now, 0)
        self.average.fixed += size * 256 // cell_bytes

    def value(self) -> int:
        return self.average.value()


class Averages:
    """Averages of every queue and of their sum, and fast ones; to be told of every change beforehand."""

    def __init__(self, queues: int, settings: Settings, cell_bytes: int = 1) -> None:
        self.queue = [ShiftAverage(settings.average_shift) for _ in range(queues)]
        self.sum = ShiftAverage(settings.average_shift)
        fast = max(settings.average_shift - 2, 0)  # a quarter of the interval
        self.fast_queue = [ShiftAverage(fast) for _ in range(queues)]
        self.fast_sum = ShiftAverage(fast)
        self.low_pass = [LowPassAverage(settings.low_pass) for _ in range(queues)]
        self.cell_bytes = cell_bytes

    def before_change(self, queue: int, now: int, lengths: Sequence[int]) -> None:
        for average in (self.queue[queue], self.fast_queue[queue]):
            average.held(now, lengths[queue] // self.cell_bytes)
        for average in (self.sum, self.fast_sum):
            average.held(now, sum(lengths) // self.cell_bytes)
        self.low_pass[queue].held(now, lengths[queue])


def gradient(fast: ShiftAverage, slow: ShiftAverage) -> int:
    return min(max((fast.fixed - slow.fixed) // 256 + 2**15, 0), 2**16 - 1)


class VirtualFeatures:
    """What the virtual LQD tells a predictor, from its lengths; `tick` is the unit of times."""

    def __init__(self, queues: int, buffer: int, settings: Settings, cell_bytes: int = 1, tick: int = 1) -> None:
        self.queues = queues
        self.buffer = buffer
        self.cell_bytes = cell_bytes
        self.tick = tick
        self.averages = Averages(queues, settings, cell_bytes)
        self.pushed_out: list[int | None] = [None] * queues
        self.rate = [FadingSum(settings.average_shift) for _ in range(queues)]
        self.rate_of_all = FadingSum(settings.average_shift)

    def arrive(self, now: int, queue: int, size: int) -> None:
        self.rate[queue].add(now, size, self.cell_bytes)
        self.rate_of_all.add(now, size, self.cell_bytes)

    def since(self, times: Sequence[int | None], now: int) -> int:
        past = [time for time in times if time is not None]
        return min((now - max(past)) // self.tick, NEVER) if past else NEVER

    def read(self, now: int, queue: int, lengths: Sequence[int]) -> list[int]:
        averages, cell = self.averages, self.cell_bytes
        return [
            lengths[queue] // cell,
            averages.queue[queue].value(),
            sum(lengths) // cell,
            averages.sum.value(),
            max(lengths) // cell,
            len([length for length in lengths if self.queues * length > self.buffer]),
            self.since([self.pushed_out[queue]], now),
            (max(lengths) - lengths[queue]) // cell,
            sorted(lengths, reverse=True).index(lengths[queue]),
            gradient(averages.fast_queue[queue], averages.queue[queue]),
            gradient(averages.fast_sum, averages.sum),
            self.rate[queue].value(),
            self.rate_of_all.value(),
            self.since(self.pushed_out, now),
        ]


def is_safe(longest: int, size: int, ports: int, buffer: int) -> bool:
    """Credence's safeguard, in the form that stays exact when ports (queues) do not divide the buffer."""
    return ports * (longest + size) <= buffer


def is_safe_in_the_paper(longest: int, size: int, ports: int, buffer: int) -> bool:
    """The safeguard as printed: longest < B / N."""
    return longest * ports < buffer


class CongestedQueues:
    """ABM's and Reverie's n of each priority (thesis section 4.2), counted once per interval, at least 1."""

    def __init__(self, policy: str, settings: Settings) -> None:
        self.by_drain_rate = policy == "abm"
        self.settings = settings
        self.counted_in = -1
        self.n = [1] * settings.priorities

    def threshold(self, alpha: float, queue: int, lengths: Sequence[int], free: int) -> float:
        """ABM's (equation 4.9) or Reverie's (5.12), which knows no drain rates."""
        priorities = self.settings.priorities
        port, priority = divmod(queue, priorities)
        of_port = range(port * priorities, (port + 1) * priorities)
        active = [q % priorities for q in of_port if lengths[q] > 0 or q == queue]
        if not self.by_drain_rate:
            return alpha * free / self.n[priority]
        if self.settings.scheduler == "strict":
            return alpha * free / self.n[priority] if active[0] == priority else 0.0
        weight = self.settings.quanta or [1] * priorities
        return alpha * free / (self.n[priority] * (sum(weight[p] for p in active) / weight[priority]))

    def count(self, now: int, lengths: Sequence[int], free: int) -> None:
        """Count anew if `now` is in another interval than the last call."""
        if now // self.settings.rtt == self.counted_in:
            return
        self.counted_in = now // self.settings.rtt
        counted = [0] * self.settings.priorities
        for queue, length in enumerate(lengths):
            priority = queue % self.settings.priorities
            enough = 0.9 * self.threshold(self.settings.alpha_of(queue), queue, lengths, free)
            counted[priority] += length > 0 and length >= enough
        self.n = [max(1, congested) for congested in counted]


def is_harmonic(lengths: Sequence[int], buffer: int) -> bool:
    """Harmonic's condition: the k longest of n queues hold at most H_k / H_n of the buffer, for every k."""
    whole = sum(Fraction(1, k) for k in range(1, len(lengths) + 1))
    part, held = Fraction(0), 0
    for k, length in enumerate(sorted(lengths, reverse=True), start=1):
        part += Fraction(1, k)
        held += length
        if held * whole > buffer * part:
            return False
    return True


class DropTail:
    """The policies that look at the real queues only, and whether they let a packet in that fits."""

    def __init__(self, policy: str, queues: int, buffer: int, settings: Settings) -> None:
        self.policy = policy
        self.queues = queues
        self.buffer = buffer
        self.settings = settings
        self.congested = CongestedQueues(policy, settings)

    def within(
        self, now: int, queue: int, size: int, first_rtt: bool, lengths: Sequence[int], averages: Averages
    ) -> bool:
        alpha = self.settings.alpha_of(queue)
        free = self.buffer - sum(lengths)
        if self.policy == "cp":
            return self.queues * (lengths[queue] + size) <= self.buffer
        if self.policy in ("dt", "occamy"):
            return lengths[queue] < alpha * free
        if self.policy == "harmonic":
            return is_harmonic([length + size * (q == queue) for q, length in enumerate(lengths)], self.buffer)
        if self.policy == "abm":
            self.congested.count(now, lengths, free)
            alpha = self.settings.first_rtt_alpha if first_rtt else alpha
            return lengths[queue] < self.congested.threshold(alpha, queue, lengths, free)
        if self.policy == "reverie":
            self.congested.count(now, lengths, free)
            return averages.low_pass[queue].value <= self.congested.threshold(alpha, queue, lengths, free)
        assert self.policy == "cs"
        return True


class Expulsion:
    """Occamy's engine (EuroSys'25): a token bucket, and the queue whose turn was last. `rates`: bytes per tick."""

    def __init__(self, buffer: int, rates: Sequence[float], settings: Settings) -> None:
        self.buffer = buffer
        self.settings = settings
        self.rate = reduce(add, rates) * (1 + settings.spare_bandwidth)  # sum() of Python 3.12 rounds differently
        self.tokens = float(settings.bucket)
        self.last: int | None = None
        self.filled_at = 0
        self.departed = 0

    def fill(self, now: int) -> None:
        gained = self.rate * (now - self.filled_at) - self.departed
        self.tokens = min(float(self.settings.bucket), self.tokens + gained)
        self.filled_at, self.departed = now, 0

    def turn(self, lengths: Sequence[int], removable: Sequence[bool]) -> int | None:
        """The queue that loses its first removable packet now, if any."""
        if self.tokens < 0:
            return None
        first = 0 if self.last is None else self.last + 1
        for step in range(len(lengths)):
            queue = (first + step) % len(lengths)
            alpha = self.settings.alpha_of(queue)
            if removable[queue] and lengths[queue] > alpha * (self.buffer - sum(lengths)):
                self.last = queue
                return queue
        return None


class Guards:
    """What Guarded Credence remembers: every answer, and when predictions dropped how much of which queue."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.answers: dict[int, list[int]] = {}
        self.begins: dict[int, int] = {}
        self.drops: dict[int, list[tuple[int, int]]] = {}

    def spare(self, first_rtt: bool) -> bool:
        return first_rtt and self.settings.spares_first_rtt == 1

    def allow(self, now: int, queue: int, size: int, predicted: int) -> bool:
        """Whether a packet goes that is predicted so; to be told of every answer."""
        answers = self.answers.setdefault(queue, [])
        answers.append(predicted)
        needed = self.settings.answers_needed
        if answers[-needed:] != [1] * needed:
            return False
        drops = self.drops.setdefault(queue, [])
        begins = self.begins.get(queue, now)
        begins = now if now - begins >= self.settings.rtt else begins
        if sum(gone for time, gone in drops if time >= begins) + size > self.settings.drop_budget:
            return False
        self.begins[queue] = begins
        drops.append((now, size))
        return True


class ArtifactThresholds:
    """What the public code of Credence keeps for LQD's lengths: cut by a fixed unit, drained by real departures."""

    def __init__(self, ports: int, buffer: int, unit: int) -> None:
        self.t = [0] * ports
        self.gamma = 0
        self.buffer = buffer
        self.unit = unit

    def arrive(self, port: int, size: int) -> None:
        while self.gamma + size > self.buffer and max(self.t) > 0:
            loser = longest_port(self.t, "lowest_port")
            cut = min(self.t[loser], self.unit)
            self.t[loser] -= cut
            self.gamma -= cut
        self.t[port] += size
        self.gamma = min(self.gamma + size, self.buffer)

    def depart(self, port: int, size: int, now_empty: bool) -> None:
        cut = self.t[port] if now_empty else min(self.t[port], size)
        self.t[port] -= cut
        self.gamma -= cut


def run_slotted(
    policy: str,
    ports: int,
    buffer: int,
    slots: Sequence[int],
    port_of: Sequence[int],
    predictions: Sequence[int] | None = None,
    first_rtt: Sequence[int] | None = None,
    priority: Sequence[int] | None = None,
    *,
    rules: Rules = Rules(),
    settings: Settings = Settings(),
    safe: Callable[[int, int, int, int], bool] = is_safe,
) -> SlottedRun:
    """Run `policy` and, beside it on the same arrivals, LQD for labels and thresholds."""
    run = SlottedRun()
    priorities = settings.priorities
    queues: list[list[int]] = [[] for _ in range(ports * priorities)]  # of the drop-tail policies
    schedulers = [Scheduler(settings) for _ in range(ports)]
    own_lqd = LongestQueueDrop(ports, buffer, rules, settings)  # of policy lqd
    if policy == "lqd":
        queues, schedulers = own_lqd.queues, own_lqd.schedulers
    virtual = LongestQueueDrop(ports, buffer, rules, settings)
    thresholds = Thresholds(ports, buffer, rules, settings)
    artifact = ArtifactThresholds(ports, buffer, unit=1)
    averages = Averages(len(queues), settings)
    seen = VirtualFeatures(len(queues), buffer, settings)
    drop_tail = DropTail(policy, len(queues), buffer, settings)
    expulsion = Expulsion(buffer, [1.0] * ports, settings)
    guards = Guards(settings)

    def lengths() -> list[int]:
        return [len(queue) for queue in queues]

    def ask(packet: int) -> int:
        run.asked[packet] = 1
        return PREDICTED if predictions is not None and predictions[packet] else ACCEPTED

    def decide(packet: int, now: int, queue: int) -> int:
        length, occupied = len(queues[queue]), sum(lengths())
        if policy == "credence_artifact":
            answer = ACCEPTED
            if ports * max(lengths()) > buffer:
                answer = OVER_THRESHOLD if length + 1 > artifact.t[queue] else ask(packet)
            return BUFFER_FULL if answer == ACCEPTED and not occupied + 1 < buffer else answer
        if policy == "learned":
            answer = ask(packet)
            return BUFFER_FULL if answer == ACCEPTED and occupied + 1 > buffer else answer
        is_first = first_rtt is not None and first_rtt[packet] == 1
        if policy in ("credence", "guarded") and safe(max(lengths()), 1, len(queues), buffer):
            return ACCEPTED
        if policy in ("followlqd", "credence", "guarded"):
            within = length + 1 <= thresholds.t[queue]
        else:
            within = drop_tail.within(now, queue, 1, is_first, lengths(), averages)
        if occupied + 1 > buffer:
            return BUFFER_FULL
        if not within:
            return OVER_THRESHOLD
        if policy == "guarded" and not guards.spare(is_first):
            return PREDICTED if guards.allow(now, queue, 1, int(ask(packet) == PREDICTED)) else ACCEPTED
        return ask(packet) if policy == "credence" else ACCEPTED

    def take(queue: int) -> int:
        first = queues[queue].pop(0)
        schedulers[queue // priorities].removed(queue % priorities, len(queues[queue]))
        return first

    def expel() -> None:
        while (queue := expulsion.turn(lengths(), [len(packets) > 0 for packets in queues])) is not None:
            averages.before_change(queue, slot, lengths())
            victim = take(queue)
            expulsion.tokens -= 1
            run.outcome[victim] = PUSHED_OUT
            run.removed_at[victim] = packet

    packet = 0
    slot = 0
    while packet < len(slots) or sum(lengths()) > 0 or sum(virtual.lengths()) > 0:
        while packet < len(slots) and slots[packet] == slot:
            port = port_of[packet]
            queue = port * priorities + (0 if priority is None else priority[packet])
            run.asked.append(0)
            run.lqd_drop.append(0)
            before = virtual.lengths()
            seen.arrive(slot, queue, 1)
            seen.averages.before_change(queue, slot, before)
            dropped = virtual.arrive(packet, queue)
            thresholds.arrive(queue)
            artifact.arrive(port, 1)
            if dropped is not None:
                victim, loser = dropped
                seen.averages.before_change(loser, slot, before)
                run.lqd_drop[victim] = 1
                run.lqd_dropped_at[victim] = packet
                seen.pushed_out[loser] = slot
            assert thresholds.t == virtual.lengths()
            assert thresholds.gamma == sum(virtual.lengths())

            if policy == "occamy":
                expulsion.fill(slot)
                expel()
            averages.before_change(queue, slot, lengths())
            run.exposed.append(0 if is_safe(max(lengths()), 1, len(queues), buffer) else 1)
            refused_by_lqd = dropped is not None and dropped[0] == packet
            if not refused_by_lqd and len(queues[queue]) + 1 > thresholds.t[queue]:
                run.threshold_deficits += 1
            run.features.append(
                [
                    len(queues[queue]),
                    averages.queue[queue].value(),
                    sum(lengths()),
                    averages.sum.value(),
                    pressure(len(queues[queue]), buffer - sum(lengths())),
                    255 * sum(lengths()) // buffer,
                    max(thresholds.t[queue] - len(queues[queue]), 0),
                    *seen.read(slot, queue, thresholds.t),
                    0 if first_rtt is None else first_rtt[packet],
                    255,
                ]
            )

            if policy == "lqd":
                before = lengths()
                out = own_lqd.arrive(packet, queue)
                run.outcome.append(ACCEPTED)
                if out is not None:
                    victim, loser = out
                    averages.before_change(loser, slot, before)
                    run.outcome[victim] = BUFFER_FULL if victim == packet else PUSHED_OUT
                    run.removed_at[victim] = packet
            else:
                run.outcome.append(decide(packet, slot, queue))
                if run.outcome[packet] == ACCEPTED:
                    queues[queue].append(packet)
                    if policy == "occamy":
                        expel()
            assert sum(lengths()) <= buffer
            packet += 1

        for port in range(ports):  # the departure phase; its effects are seen from the next slot on
            sending = serve(schedulers[port], port, lengths())
            if sending is not None:
                averages.before_change(sending, slot + 1, lengths())
                take(sending)
                artifact.depart(port, 1, not queues[sending])
                expulsion.departed += 1
                run.transmitted += 1
            sending = virtual.serve(port)
            if sending is not None:
                seen.averages.before_change(sending, slot + 1, virtual.lengths())
                virtual.remove(sending, virtual.queues[sending][0])
        thresholds.depart()
        slot += 1
    return run


def pressure(length: int, free: int) -> int:
    """How many eighths of octaves a queue is above the free buffer, from 128 on."""
    if length == 0 or free == 0:
        return 0 if length == 0 else 255
    return min(max(128 + eighths_of_octaves(length) - eighths_of_octaves(free), 0), 255)


def eighths_of_octaves(value: int) -> int:
    octave = 0
    while 2 ** (octave + 1) <= value:
        octave += 1
    return 8 * octave + int(8 * (Fraction(value, 2**octave) - 1))


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
