"""What a predictor sees of a switch, its virtual LQD and its traffic, written for reading, not for speed."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tests.sim_bridge.slow_models.lqd import Settings

NEVER = 2**24 - 1


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
        return min(self.average.value(), NEVER)


class WindowedPeak:
    """The largest value since the window before the present one began; windows of 2**shift ticks begin at tick 0."""

    def __init__(self, shift: int) -> None:
        self.shift = shift
        self.seen: list[tuple[int, int]] = []

    def add(self, now: int, value: int) -> None:
        self.seen.append((now * 2**-self.shift if self.shift < 0 else now // 2**self.shift, value))

    def value(self) -> int:
        last, _ = self.seen[-1]
        return max(value for window, value in self.seen if window >= last - 1)


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
            self.since(self.pushed_out, now),
        ]


class TrafficFeatures:
    """What has arrived, whatever became of it."""

    def __init__(self, queues: int, settings: Settings, cell_bytes: int = 1) -> None:
        self.cell_bytes = cell_bytes
        self.rate = [FadingSum(settings.average_shift) for _ in range(queues)]
        self.rate_of_all = FadingSum(settings.average_shift)
        self.slow_rate_of_all = FadingSum(settings.average_shift + 7)  # an interval 128 times as long
        self.peak = WindowedPeak(settings.average_shift + 7)

    def arrive(self, now: int, queue: int, size: int) -> None:
        for rate in (self.rate[queue], self.rate_of_all, self.slow_rate_of_all):
            rate.add(now, size, self.cell_bytes)
        self.peak.add(now, self.rate[queue].value())

    def read(self, queue: int) -> list[int]:
        rates = (self.rate[queue], self.rate_of_all, self.slow_rate_of_all)
        return [*(rate.value() for rate in rates), self.peak.value()]


def exact_features(queue: int, lengths: Sequence[int], buffer: int, cell_bytes: int = 1) -> list[int]:
    """Return what the queues as they are tell an arrival at one of them, without averages."""
    return [
        pressure(lengths[queue], buffer - sum(lengths)),
        255 * sum(lengths) // buffer,
        255 * lengths[queue] // buffer,
        len([length for length in lengths if length > 0]),
        (max(lengths) - lengths[queue]) // cell_bytes,
    ]


class TrackedQueues:
    """What an ingress knows that is told of every eighth packet that leaves a queue."""

    def __init__(self, queues: int, buffer: int, cell_bytes: int = 1) -> None:
        self.buffer = buffer
        self.unreported: list[list[int]] = [[] for _ in range(queues)]
        self.longest = 0
        self.cell_bytes = cell_bytes

    def departed(self, queue: int, size: int) -> None:
        self.unreported[queue].append(size)
        if len(self.unreported[queue]) == 8:
            self.unreported[queue] = []

    def read(self, queue: int, size: int, lengths: Sequence[int]) -> list[int]:
        """Return the features of an arrival, which is counted from then on."""
        tracked = [length + sum(left) for length, left in zip(lengths, self.unreported, strict=True)]
        sums = [tracked[queue], sum(tracked), max(tracked[self.longest] - tracked[queue], 0)]
        if tracked[queue] + size > tracked[self.longest]:
            self.longest = queue
        free = max(self.buffer - sum(tracked), 0)
        return [*(length // self.cell_bytes for length in sums), pressure(tracked[queue], free)]


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
