"""The most that any online policy without push-out sends of Markov arrivals, by value iteration on small switches.

The policy sees all queues and the state of the chain that makes the arrivals. No switch sees so much, so no predictor
of a drop-tail switch sends more in the long run. LQD and thresholds are evaluated in the same way, without chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from foretail.core.errors import ForetailError
from foretail.sim_bridge.arrivals.files import Slotted

LARGEST = 20_000_000
"""Pairs of a state of the chain and lengths of the queues that are held at most."""
TOLERANCE = 1e-7
"""Packets per slot between the bounds of a rate."""
SETTLED = 1e-9
"""Change of a distribution, in one slot, at which it is taken for that of the long run."""
ITERATIONS = 100_000
STEP = 0.9
"""Part of the way that an iteration goes, so that arrivals with a period converge as well."""

Queues = tuple[int, ...]
"""The length of each queue, in packets."""


@dataclass(frozen=True, eq=False)
class MarkovArrivals:
    """Arrivals of unit packets: in a slot the inputs have their turns, at which a chain goes on and says what is sent.

    Whoever decides about a packet knows the state at that turn, and no later one.
    """

    #: of the inputs in the order of their turns: float64[states, states], probability of the next state, rows sum to 1;
    #: None where the chain stays
    transitions: Sequence[NDArray[np.float64] | None]
    #: float64[inputs, states, ports], probability that an input sends to a port; at most 1 over all ports
    sends: NDArray[np.float64]

    @property
    def states(self) -> int:
        """Number of states of the chain."""
        return int(self.sends.shape[1])

    @property
    def ports(self) -> int:
        """Number of ports of the switch."""
        return int(self.sends.shape[2])

    def drawn(self, slots: int, seed: int) -> Slotted:
        """Draw the packets of so many slots, from state 0 on."""
        draw = np.random.default_rng(seed)
        rows = [None if one is None else np.cumsum(one, axis=1) for one in self.transitions]
        states = np.zeros((slots, len(rows)), np.int64)
        state = 0
        for slot, places in enumerate(draw.random((slots, len(rows)))):
            for turn, row in enumerate(rows):
                if row is not None:
                    state = min(int(np.searchsorted(row[state], places[turn], "right")), len(row) - 1)
                states[slot, turn] = state
        upto_port = np.cumsum(self.sends, axis=2)[np.arange(len(rows)), states]
        port = (draw.random(states.shape)[..., None] >= upto_port).sum(axis=2)
        sent = port < self.ports
        return Slotted(np.ascontiguousarray(np.nonzero(sent)[0]), port[sent].astype(np.int32))


def bursts(
    ports: int,
    senders: int,
    length_slots: Mapping[int, float],
    gap_slots: float,
    background: float = 0.0,
    *,
    ahead: bool,
) -> MarkovArrivals:
    """Return bursts of `senders` packets a slot to one random port, one burst at a time, over uniform background.

    Parameters
    ----------
    ports : also the number of inputs; those that take no part in a burst send background
    senders : 1 to `ports`, the first inputs
    length_slots : probability of each length of a burst, in slots, from 1 on
    gap_slots : mean of the geometric time between two bursts, at least 1
    background : probability that an input sends background in a slot, from 0 to 1
    ahead : the state says how long a burst still lasts, else how long it has lasted
    """
    longest = max(length_slots)
    chance = np.array([length_slots.get(length, 0.0) for length in range(1, longest + 1)])
    chance = chance / chance.sum()
    states = 1 + ports * longest
    transition = np.zeros((states, states))
    sends = np.full((ports, states, ports), background / ports)
    transition[0, 0] = 1 - 1 / gap_slots
    for port in range(ports):
        own = 1 + port * longest + np.arange(longest)
        sends[:senders, own] = np.eye(ports)[port]
        if ahead:  # state k has k + 1 slots to go
            transition[0, own] = chance / gap_slots / ports
            transition[own, [0, *own[:-1]]] = 1
        else:  # state k is slot k + 1 of the burst
            ends = chance / np.maximum(np.cumsum(chance[::-1])[::-1], 1e-300)
            ends[-1] = 1
            transition[0, own[0]] = 1 / gap_slots / ports
            transition[own, 0] = ends
            transition[own[:-1], own[1:]] = 1 - ends[:-1]
    return MarkovArrivals([transition, *[None] * (ports - 1)], sends)


def on_off(ports: int, load: float, mean_on_slots: float, *, ahead: bool) -> MarkovArrivals:
    """Return as many sources as ports, each on or off for geometric times; it draws a port whenever it goes on.

    As the workload ``on_off``, but for that a source never goes on in the slot after which it went off.

    Parameters
    ----------
    ports : of the switch
    load : share of the time that a source is on, above 0 and below 1
    mean_on_slots : at least 1, and at least load / (1 - load)
    ahead : all packets of a slot are known at its first, else each when it comes
    """
    ends = 1 / mean_on_slots
    starts = ends * load / (1 - load)
    single = np.zeros((ports + 1, ports + 1))  # off, and on to each port
    single[0] = [1 - starts, *[starts / ports] * ports]
    single[1:, 0] = ends
    single[1:, 1:] = (1 - ends) * np.eye(ports)
    alone = [_of_one(single, source, ports) for source in range(ports)]
    turns: list[NDArray[np.float64] | None] = [*alone]
    if ahead:
        turns = [np.linalg.multi_dot(alone), *[None] * (ports - 1)]
    states = np.array(list(product(range(ports + 1), repeat=ports)))
    return MarkovArrivals(turns, np.eye(ports + 1)[states.T][:, :, 1:])


def _of_one(single: NDArray[np.float64], source: int, sources: int) -> NDArray[np.float64]:
    """The chain of all sources when only one of them goes on."""
    stays = np.eye(len(single))
    chain: NDArray[np.floating[Any]] = np.ones((1, 1))
    for other in range(sources):
        chain = np.kron(chain, single if other == source else stays)
    return np.asarray(chain, np.float64)


@dataclass(frozen=True)
class Switch:
    """A shared buffer with unit packets: all lengths that its queues can have, by number, the empty ones first."""

    ports: int
    buffer: int  #: in packets

    @cached_property
    def queues(self) -> list[Queues]:
        """All lengths, sorted by what they sum to."""
        every = [one for one in product(range(self.buffer + 1), repeat=self.ports) if sum(one) <= self.buffer]
        return sorted(every, key=lambda one: (sum(one), one))

    @cached_property
    def number(self) -> dict[Queues, int]:
        """The place of each of them."""
        return {one: place for place, one in enumerate(self.queues)}

    @cached_property
    def sent(self) -> NDArray[np.float64]:
        """Packets that leave at the end of a slot: one of every queue that is not empty."""
        return np.asarray(np.count_nonzero(np.array(self.queues), axis=1), np.float64)

    @cached_property
    def departed(self) -> NDArray[np.int64]:
        """The lengths thereafter."""
        return np.array([self.number[tuple(max(0, length - 1) for length in one)] for one in self.queues])

    def after(self, arrival: Callable[[Queues, int], Queues]) -> NDArray[np.int64]:
        """The lengths after a packet came to a port, int64[ports, lengths], for what a policy does with it."""
        return np.array([[self.number[arrival(one, port)] for one in self.queues] for port in range(self.ports)])

    def drop_tail(self, accepts: Callable[[Queues, int], bool]) -> NDArray[np.int64]:
        """The same for a policy that says whether it accepts a packet where there is room."""
        return self.after(lambda one, port: grown(one, port) if sum(one) < self.buffer and accepts(one, port) else one)

    def lqd(self) -> NDArray[np.int64]:
        """The same for LQD, where the first of the longest queues loses its tail; the arrival counts."""

        def pushed_out(one: Queues, port: int) -> Queues:
            more = grown(one, port)
            if sum(more) <= self.buffer:
                return more
            return grown(more, more.index(max(more)), -1)

        return self.after(pushed_out)

    def dynamic_thresholds(self, alpha: float) -> NDArray[np.int64]:
        """The same for Dynamic Thresholds."""
        return self.drop_tail(lambda one, port: one[port] < alpha * (self.buffer - sum(one)))

    @cached_property
    def complete_sharing(self) -> NDArray[np.int64]:
        """The same for Complete Sharing, which always accepts."""
        return self.drop_tail(lambda one, port: True)


def grown(queues: Queues, port: int, by: int = 1) -> Queues:
    """Return the lengths with another one at a port."""
    return (*queues[:port], queues[port] + by, *queues[port + 1 :])


class Rate(NamedTuple):
    """Packets that are sent in the long run."""

    sent_per_slot: float  #: packets per slot
    #: float64[states, lengths], how many packets more are sent in all if a slot begins like this, beside state 0 and
    #: empty queues
    values: NDArray[np.float64]


def rate_of(
    arrivals: MarkovArrivals, switch: Switch, policy: NDArray[np.int64] | None = None, tolerance: float = TOLERANCE
) -> Rate:
    """Return what a policy sends in the long run; None is the best without push-out.

    Relative value iteration: the smallest and the largest change of a value in one iteration bound the rate
    (Odoni 1969). ForetailError where the switch has too many states.

    Parameters
    ----------
    policy : lengths after each arrival, as a :class:`Switch` has them
    tolerance : distance of the bounds at which to end, in packets per slot
    """
    if arrivals.states * len(switch.queues) > LARGEST:
        raise ForetailError(
            f"{switch.ports} ports with {switch.buffer} packets of buffer have too many states under "
            f"{arrivals.states} states of arrivals: choose a smaller switch"
        )
    values = np.zeros((arrivals.states, len(switch.queues)))
    low, high = 0.0, math.inf
    for _ in range(ITERATIONS):
        more = one_slot_more(values, arrivals, switch, policy)
        change = more - values
        low, high = float(change.min()), float(change.max())
        values = values + STEP * change
        values -= values[0, 0]
        if high - low <= tolerance:
            return Rate((low + high) / 2, values)
    raise ForetailError(f"the rate is known to {high - low:g} only after {ITERATIONS} iterations: raise the tolerance")


def one_slot_more(
    values: NDArray[np.float64], arrivals: MarkovArrivals, switch: Switch, policy: NDArray[np.int64] | None
) -> NDArray[np.float64]:
    """Return what is sent from each state on in one slot more, if `values` is sent thereafter, [states, lengths]."""
    return _turns(values, arrivals, switch, policy)[0]


def _turns(
    values: NDArray[np.float64], arrivals: MarkovArrivals, switch: Switch, policy: NDArray[np.int64] | None
) -> list[NDArray[np.float64]]:
    """Return the value of each turn, before its input sends and the chain goes on, and last that after all turns."""
    choices = switch.complete_sharing if policy is None else policy
    after = [switch.sent + values[:, switch.departed]]
    for sends, transition in zip(arrivals.sends[::-1], arrivals.transitions[::-1], strict=True):
        value = (1 - sends.sum(axis=1))[:, None] * after[-1]
        for port in range(switch.ports):
            takes = np.flatnonzero(sends[:, port])
            refused = after[-1][takes]
            chosen = refused[:, choices[port]]
            if policy is None:
                chosen = np.maximum(chosen, refused)
            value[takes] += sends[takes, port, None] * chosen
        after.append(value if transition is None else transition @ value)
    return after[::-1]


def best_alpha(
    arrivals: MarkovArrivals, switch: Switch, alphas: Sequence[float], tolerance: float = TOLERANCE
) -> tuple[float, float]:
    """Return the alpha with which Dynamic Thresholds send most, the smallest of them, and what they send per slot."""
    rates: dict[bytes, float] = {}  # by what is accepted: on a small switch many alphas are the same
    best, most = 0.0, -1.0
    for alpha in sorted(alphas):
        policy = switch.dynamic_thresholds(alpha)
        if policy.tobytes() not in rates:
            rates[policy.tobytes()] = rate_of(arrivals, switch, policy, tolerance).sent_per_slot
        if rates[policy.tobytes()] > most + tolerance:
            best, most = alpha, rates[policy.tobytes()]
    return best, most


def improved(
    arrivals: MarkovArrivals, switch: Switch, policy: NDArray[np.int64], tolerance: float = TOLERANCE
) -> tuple[NDArray[np.int64], float]:
    """Return a drop-tail policy that sees the queues alone, and what it sends per slot: at least as much as `policy`.

    Each step accepts where that pays on average over what the policy does not see. All changes of a step are tried
    together, then half of them, down to the one that promises most. The end is a local optimum.
    """
    rate = rate_of(arrivals, switch, policy, tolerance)
    while True:
        gain = _gain_of_acceptance(arrivals, switch, policy, rate.values)
        accepts = policy == switch.complete_sharing
        promises = np.where(accepts, -gain, gain).ravel()
        order = np.argsort(-promises)
        count = int(np.count_nonzero(promises > tolerance))
        while count:
            changed = accepts.ravel().copy()
            changed[order[:count]] ^= True
            other = np.where(changed.reshape(policy.shape), switch.complete_sharing, np.arange(policy.shape[1]))
            other_rate = rate_of(arrivals, switch, other, tolerance)
            if other_rate.sent_per_slot > rate.sent_per_slot + 2 * tolerance:
                policy, rate = other, other_rate
                break
            count //= 2
        if not count:
            return policy, rate.sent_per_slot


def _gain_of_acceptance(
    arrivals: MarkovArrivals, switch: Switch, policy: NDArray[np.int64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Packets per slot that acceptance wins over refusal, [ports, lengths], where a policy runs."""
    lengths = len(switch.queues)
    ones, origin = np.ones(lengths), np.arange(lengths)
    moves = [csr_array((ones, (origin, choices)), shape=(lengths, lengths)) for choices in policy]
    departs = csr_array((ones, (origin, switch.departed)), shape=(lengths, lengths))
    share = np.zeros((arrivals.states, lengths))
    share[0, 0] = 1
    after = _turns(values, arrivals, switch, policy)[1:]
    while True:
        gain = np.zeros((switch.ports, lengths))
        now = share
        for sends, transition, later in zip(arrivals.sends, arrivals.transitions, after, strict=True):
            now = now if transition is None else transition.T @ now
            moved = (1 - sends.sum(axis=1))[:, None] * now
            for port, choices in enumerate(switch.complete_sharing):
                coming = sends[:, port, None] * now
                gain[port] += (coming * (later[:, choices] - later)).sum(axis=0)
                moved += coming @ moves[port]
            now = moved
        now = now @ departs
        if np.abs(now - share).sum() < SETTLED:
            return gain
        share = share + STEP * (now - share)


MOST_STATES = 400_000
"""Lengths of the queues, with one of them marked, that are held at most."""


class Decisions(NamedTuple):
    """Outcome of a slot of a burst, for all lengths of queues with one of them marked."""

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
        if len(every) > MOST_STATES:
            raise ForetailError(f"{self.ports} ports with {self.buffer} packets have too many states: choose fewer")
        return every

    @cached_property
    def departed(self) -> NDArray[np.int64]:
        """Lengths of the queues after a packet left every queue that is not empty."""
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
        """Return the decisions of Dynamic Thresholds, which are those of Complete Sharing with an infinite alpha."""
        lengths = []
        for own, others in self._split:
            free = self.buffer - sum(others) - own
            for _ in range(self.ports):
                takes = free > 0 and own < alpha * free
                own, free = own + takes, free - takes
            lengths.append((own, others))
        return self._decisions(lengths)

    def lqd(self) -> Decisions:
        """Return the decisions of LQD; of queues that are equally long the one with the burst loses."""
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
        """Return the outcome of a slot after whose arrivals the queues have these lengths."""
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
