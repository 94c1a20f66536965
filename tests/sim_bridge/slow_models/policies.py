"""What drop-tail policies keep and decide, on any packets, written from the papers for reading, not for speed."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from operator import add

from tests.sim_bridge.slow_models.features import Averages
from tests.sim_bridge.slow_models.lqd import Settings, longest_port


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
