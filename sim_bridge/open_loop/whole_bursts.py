"""The most that an online policy without push-out sends of bursts at line rate from all inputs, by value iteration.

In a burst all N inputs send to one port, a packet each in a slot. So a decision is how many of N packets are accepted,
and ports are alike: what counts are the sorted lengths of the queues, which of them has the burst, and for how long
still. That makes switches with a dozen ports small enough; :mod:`foretail.sim_bridge.open_loop.online_optimum` takes
any arrivals, of two or three ports.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from foretail.core.errors import ForetailError
from foretail.sim_bridge.open_loop.online_optimum import ITERATIONS, STEP, TOLERANCE, Queues

LARGEST = 400_000
"""Lengths of the queues, with one of them marked, that are held at most."""


class Decisions(NamedTuple):
    """What a slot of a burst leads to, for all lengths of queues with one of them marked."""

    sent: NDArray[np.float64]  #: float64[marked], packets that leave at its end
    after: NDArray[np.int64]  #: int64[marked], the lengths thereafter


@dataclass(frozen=True)
class WholeBursts:
    """Bursts of all inputs to a random port, one at a time; after one, the next may begin in every slot."""

    ports: int  #: of the switch, and inputs
    buffer: int  #: of the switch, in packets
    slots: int  #: of a burst, in which it brings `ports` packets each
    load: float  #: share of slots with a burst, above 0 and below 1

    @property
    def starts(self) -> float:
        """Probability that a burst begins in a slot in which none goes on."""
        return 1 / (1 + self.slots / self.load - self.slots)

    @cached_property
    def queues(self) -> list[Queues]:
        """Lengths of the queues, the longest first."""
        return list(_partitions(self.buffer, self.ports))

    @cached_property
    def marked(self) -> list[tuple[int, int]]:
        """Place in `queues`, and length of the queue that has the burst."""
        every = [(place, own) for place, one in enumerate(self.queues) for own in sorted(set(one))]
        if len(every) > LARGEST:
            raise ForetailError(f"{self.ports} ports with {self.buffer} packets have too many states: choose fewer")
        return every

    @cached_property
    def departed(self) -> NDArray[np.int64]:
        """Of lengths, those after a packet left every queue that is not empty."""
        return np.array([self._number[_served(one)] for one in self.queues])

    @cached_property
    def sent(self) -> NDArray[np.float64]:
        """Packets that leave then."""
        return np.array([sum(length > 0 for length in one) for one in self.queues], np.float64)

    @cached_property
    def begins(self) -> csr_array:
        """Probability of each marked queue when a burst begins."""
        weights = [self.queues[place].count(own) / self.ports for place, own in self.marked]
        rows, columns = [place for place, _ in self.marked], range(len(self.marked))
        return csr_array((weights, (rows, columns)), shape=(len(self.queues), len(self.marked)))

    @cached_property
    def accepting(self) -> list[Decisions]:
        """The decision to accept so many packets of a slot, or as many as fit: 0 to all."""
        return [
            self._decisions(
                [(own + min(count, self.buffer - sum(others) - own), others) for own, others in self._split]
            )
            for count in range(self.ports + 1)
        ]

    def dynamic_thresholds(self, alpha: float) -> Decisions:
        """What Dynamic Thresholds decide; with an infinite alpha, that is Complete Sharing."""
        lengths = []
        for own, others in self._split:
            free = self.buffer - sum(others) - own
            for _ in range(self.ports):
                takes = free > 0 and own < alpha * free
                own, free = own + takes, free - takes
            lengths.append((own, others))
        return self._decisions(lengths)

    def lqd(self) -> Decisions:
        """What LQD decides; of queues that are equally long the one with the burst loses."""
        lengths = []
        for own, others in self._split:
            for _ in range(self.ports):
                own += 1
                if own + sum(others) > self.buffer:
                    longest = max(others)
                    if own >= longest:
                        own -= 1
                    else:
                        place = others.index(longest)
                        others = (*others[:place], longest - 1, *others[place + 1 :])
            lengths.append((own, others))
        return self._decisions(lengths)

    def sent_per_slot(self, policy: Decisions | None = None, tolerance: float = TOLERANCE) -> float:
        """Return what a policy sends per slot in the long run, in packets; None is the best without push-out."""
        choices = self.accepting if policy is None else [policy]
        origin = np.array([place for place, _ in self.marked])
        idle = np.zeros(len(self.queues))  # at the begin of a slot in which no burst goes on
        going = [np.zeros(len(self.marked)) for _ in range(self.slots - 1)]  # with 1, 2, ... slots to go
        low, high = 0.0, np.inf
        for _ in range(ITERATIONS):
            after = [idle[origin], *going]
            slots = [np.max([one.sent + then[one.after] for one in choices], axis=0) for then in after]
            nothing = self.sent + idle[self.departed]
            changes = [self.starts * (self.begins @ slots[-1]) + (1 - self.starts) * nothing - idle]
            changes += [more - less for more, less in zip(slots, going, strict=False)]
            low, high = min(float(one.min()) for one in changes), max(float(one.max()) for one in changes)
            if high - low <= tolerance:
                return (low + high) / 2
            idle, *going = (one + STEP * (more - low) for one, more in zip([idle, *going], changes, strict=True))
        raise ForetailError(f"the rate is known to {high - low:g} only: raise the tolerance")

    @cached_property
    def _number(self) -> dict[Queues, int]:
        return {one: place for place, one in enumerate(self.queues)}

    @cached_property
    def _mark(self) -> dict[tuple[int, int], int]:
        return {one: place for place, one in enumerate(self.marked)}

    @cached_property
    def _split(self) -> list[tuple[int, Queues]]:
        """The length of the marked queue, and those of the others."""
        split = []
        for place, own in self.marked:
            one = self.queues[place]
            at = one.index(own)
            split.append((own, (*one[:at], *one[at + 1 :])))
        return split

    def _decisions(self, lengths: list[tuple[int, Queues]]) -> Decisions:
        """What lengths after the arrivals lead to."""
        sent, after = np.zeros(len(lengths)), np.zeros(len(lengths), np.int64)
        for place, (own, others) in enumerate(lengths):
            full = tuple(sorted((own, *others), reverse=True))
            sent[place] = sum(length > 0 for length in full)
            after[place] = self._mark[self._number[_served(full)], max(0, own - 1)]
        return Decisions(sent, after)


def _served(queues: Queues) -> Queues:
    return tuple(max(0, length - 1) for length in queues)


def _partitions(left: int, places: int, most: int | None = None) -> Iterator[Queues]:
    """All decreasing lengths of so many queues that sum to at most `left`."""
    if not places:
        yield ()
        return
    for first in range(min(left, left if most is None else most) + 1):
        for others in _partitions(left - first, places - 1, first):
            yield (first, *others)
