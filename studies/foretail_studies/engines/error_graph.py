"""Cost of a wrong prediction to Credence against LQD, decided for small switches on the graph of all their states.

LQD's victims are tails. So the packets of a queue that LQD will send lie before those that it will push out, and
the state of a port is three counts: LQD's packets, those of them that LQD will push out, and the policy's packets. An
adversary picks every arrival, whether LQD will keep it, and what is predicted. A walk from the empty switch back to it
is a finite sequence with its final drain. The walks decide whether LQD sends at most `c` packets per wrong prediction
more than the policy: that holds for all of them exactly if no cycle has a larger ratio. Potentials of the states prove
it edge by edge. docs/reports/theory.md has the theorem.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from foretail.core.errors import ForetailError

Integers = NDArray[np.int64]
LARGEST = 8_000_000
"""States that are explored at most."""
CHUNK = 100_000
"""States that are followed at a time."""
PARTS = 4
"""Numbers per port: LQD's packets, those that it will push out, the policy's packets, drop answers in a row."""
NEVER = 0
"""`answers_needed` of a policy that takes no answer."""
UNREACHED = -(10**9)
DEPARTURE = -1


@dataclass(frozen=True)
class Policy:
    """Credence, with its guards and the rules that may differ."""

    ports: int  #: N
    buffer: int  #: B, in packets
    answers_needed: int = 1  #: drop answers in a row that drop a packet; `NEVER`: FollowLQD, all predicted to pass
    safeguard: str = "share"  #: ``share``: N (longest + 1) <= B; ``paper``: N longest < B; ``none``
    any_load: bool = False  #: any number of arrivals in a slot instead of at most N
    counting: str = "counted"  #: whether LQD counts the arrival in its queue, or ``uncounted``
    tie: str = "lowest_port"  #: which of the longest queues LQD takes, or ``highest_port``

    def __post_init__(self) -> None:
        """Raise ForetailError where a rule is unknown or the switch is not small."""
        known = {"safeguard": ("share", "paper", "none"), "counting": ("counted", "uncounted")}
        for name, values in (known | {"tie": ("lowest_port", "highest_port")}).items():
            if getattr(self, name) not in values:
                raise ForetailError(f"{name} = {getattr(self, name)} is unknown: choose from {', '.join(values)}")
        if not NEVER <= self.answers_needed <= 8:
            raise ForetailError(
                f"answers_needed = {self.answers_needed} must be from {NEVER} to 8: choose such a number"
            )
        if self.ports < 2 or self.buffer < self.ports:
            raise ForetailError(
                f"a graph of errors needs 2 ports and a packet of buffer for each, not {self.ports} ports and "
                f"{self.buffer} packets: choose more"
            )
        if (self.ports + 1) * self.base ** (self.ports * PARTS) >= 2**63:
            raise ForetailError(
                f"states of {self.ports} ports with {self.buffer} packets do not fit 64 bits: choose fewer"
            )

    @property
    def base(self) -> int:
        """More than any number of a state."""
        return max(self.buffer, self.answers_needed) + 1

    def numbers(self, states: Integers) -> tuple[Integers, Integers]:
        """Return the arrivals so far in the slot, int64[n], and the ports, int64[n, N, PARTS], of encoded states."""
        places = self.base ** np.arange(self.ports * PARTS, dtype=np.int64)
        digits = states[:, None] // places % self.base
        return states // self.base ** (self.ports * PARTS), digits.reshape(len(states), self.ports, PARTS)

    def states(self, arrived: Integers, ports: Integers) -> Integers:
        """Encode what :meth:`numbers` returns."""
        places = self.base ** np.arange(self.ports * PARTS, dtype=np.int64)
        return np.asarray(ports.reshape(len(ports), len(places)) @ places + arrived * self.base ** len(places))

    def departed(self, ports: Integers) -> tuple[NDArray[np.bool_], Integers, Integers]:
        """Return which states may end the slot, the ports after it, and how much more LQD sends than the policy."""
        lqd, doomed, own = ports[:, :, 0], ports[:, :, 1], ports[:, :, 2]
        after = ports.copy()
        after[:, :, 0] -= lqd > 0
        after[:, :, 2] -= own > 0
        return ~((lqd > 0) & (lqd == doomed)).any(axis=1), after, (lqd > 0).sum(axis=1) - (own > 0).sum(axis=1)

    def arrived(
        self, ports: Integers, port: int, dropped: bool, predicted: bool
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_], Integers]:
        """Return in which states such a packet may arrive, where the policy asks about it, and the ports thereafter.

        `dropped`: LQD pushes it out, now or later; `predicted`: the predictor says so.
        """
        after, row = ports.copy(), np.arange(len(ports))
        lqd, doomed, own = after[:, :, 0], after[:, :, 1], after[:, :, 2]  # views
        full = lqd.sum(axis=1) == self.buffer
        seen = lqd.copy()
        seen[:, port] += self.counting == "counted"
        loser = seen.argmax(axis=1) if self.tie == "lowest_port" else self.ports - 1 - seen[:, ::-1].argmax(axis=1)
        if self.counting == "counted":
            possible = dropped | (doomed[:, port] == 0)
            lqd[:, port] += 1
            doomed[:, port] += dropped
        else:
            possible = dropped | (doomed[:, port] - (full & (loser == port)) == 0)
        possible &= ~full | (doomed[row, loser] > 0)
        lqd[row, loser] -= full
        doomed[row, loser] -= full
        if self.counting == "uncounted":
            lqd[:, port] += 1
            doomed[:, port] += dropped
        longest = own.max(axis=1)
        safe = np.zeros(len(ports), bool)
        if self.safeguard != "none" and self.answers_needed != NEVER:
            shared = longest + 1 if self.safeguard == "share" else longest
            safe = self.ports * shared < self.buffer + (self.safeguard == "share")
        is_consulted = ~safe & (own.sum(axis=1) < self.buffer) & (own[:, port] < lqd[:, port])
        row_of_drops = np.minimum(after[:, port, 3] + 1, self.answers_needed) if predicted else 0 * longest
        if self.answers_needed > 1:
            after[:, port, 3] = np.where(is_consulted, row_of_drops, after[:, port, 3])
        drops = predicted and (row_of_drops >= self.answers_needed) & (self.answers_needed != NEVER)
        own[:, port] += safe | (is_consulted & np.logical_not(drops))
        return possible, is_consulted, after


@dataclass(frozen=True, eq=False)
class Graph:
    """All states from which the empty switch, state 0, is reached and that are reached from it; edges by source."""

    policy: Policy
    codes: Integers  #: int64[states], see ``Policy.numbers``
    source: NDArray[np.int32]  #: int32[edges], rising
    target: NDArray[np.int32]  #: int32[edges]
    lead: NDArray[np.int8]  #: int8[edges], packets that LQD sends more than the policy
    port: NDArray[np.int8]  #: int8[edges], of an arrival; `DEPARTURE` ends the slot
    dropped: NDArray[np.int8]  #: int8[edges], 1 where LQD drops the arrival
    predicted: NDArray[np.int8]  #: int8[edges], 1 where it is predicted to be dropped

    @cached_property
    def wrong(self) -> NDArray[np.int64]:
        """int64[edges], 1 where the prediction is wrong."""
        return np.asarray(self.dropped != self.predicted, np.int64)

    def proves(self, potential: Integers, weight: Integers) -> bool:
        """Return True if every edge lowers the potential by its weight or more: then no cycle has a positive weight."""
        return bool((potential[self.source] >= weight + potential[self.target]).all())

    def walk(self, cycle: list[int], times: int) -> tuple[str, str]:
        """Return slots and predictions, as a search writes them, of edges to the cycle, it, so many times, and back."""
        there = self._path(self.source, self.target, 0, int(self.source[cycle[0]]))
        back = self._path(self.target, self.source, 0, int(self.source[cycle[0]]))[::-1]
        edges = np.array([*there, *cycle * times, *back], np.int64)
        slots = "".join("][" if port == DEPARTURE else str(port) for port in self.port[edges])
        arrivals = edges[self.port[edges] != DEPARTURE]
        return f"[{slots.rstrip('][')}]", "".join(map(str, self.predicted[arrivals]))

    def _path(self, source: NDArray[np.int32], target: NDArray[np.int32], first: int, last: int) -> list[int]:
        """Return the edges of a shortest path."""
        size = len(self.codes)
        _, before = breadth_first_order(_links(source, target, size), first)
        wanted, edges = last, []
        while wanted != first:
            edges.append(int(((source == before[wanted]) & (target == wanted)).argmax()))
            wanted = int(before[wanted])
        return edges[::-1]


@dataclass(frozen=True, eq=False)
class Bound:
    """The least c with which LQD never sends more than c packets per wrong prediction more than the policy."""

    cost: Fraction | None  #: c; None where no c holds
    cycle: list[int]  #: edges of a cycle that has this ratio, or without c, one without a wrong prediction that gains
    potential: Integers | None  #: int64[states], in units of 1 / denominator of c: what c cannot pay, at most


def explore(policy: Policy) -> Graph:
    """Return the graph of a policy. ForetailError if it has too many states."""
    states, fresh, parts = np.zeros(1, np.int64), np.zeros(1, np.int64), []
    while len(fresh):
        new = [_edges(policy, fresh[first : first + CHUNK]) for first in range(0, len(fresh), CHUNK)]
        parts += new
        fresh = np.unique(np.concatenate([targets for _, targets, _ in new]))
        fresh = fresh[states[np.minimum(np.searchsorted(states, fresh), len(states) - 1)] != fresh]
        states = np.sort(np.concatenate([states, fresh]), kind="stable")
        if len(states) > LARGEST:
            raise ForetailError(
                f"{policy.ports} ports with {policy.buffer} packets have more than {LARGEST:,} states: choose fewer"
            )
    source = np.searchsorted(states, np.concatenate([sources for sources, _, _ in parts]))
    target = np.searchsorted(states, np.concatenate([targets for _, targets, _ in parts]))
    labels = connected_components(_links(source, target, len(states)), connection="strong")[1]
    stays = labels == labels[0]
    edges = np.flatnonzero(stays[source] & stays[target])
    edges = edges[np.argsort(source[edges], kind="stable")]
    place = np.cumsum(stays) - 1
    facts = np.concatenate([facts for _, _, facts in parts])[edges]
    start, end = (place[one[edges]].astype(np.int32) for one in (source, target))
    return Graph(policy, states[stays], start, end, *np.ascontiguousarray(facts.T))


def _edges(policy: Policy, states: Integers) -> tuple[Integers, Integers, NDArray[np.int8]]:
    """Return sources, targets and int8[edges, 4]: lead, port, dropped, predicted."""
    arrived, ports = policy.numbers(states)
    possible, after, lead = policy.departed(ports)
    facts = np.zeros((len(states), 4), np.int8)
    facts[:, 0], facts[:, 1] = lead, DEPARTURE
    edges = [(states[possible], policy.states(0 * arrived, after)[possible], facts[possible])]
    may = np.full(len(states), True) if policy.any_load else arrived < policy.ports
    for port, dropped, predicted in product(range(policy.ports), (False, True), (False, True)):
        if policy.answers_needed == NEVER and predicted:
            continue
        possible, is_consulted, after = policy.arrived(ports, port, dropped, predicted)
        if policy.answers_needed != NEVER and dropped != predicted:
            possible &= is_consulted  # elsewhere a wrong prediction changes nothing
        possible &= may
        targets = policy.states(arrived + (not policy.any_load), after)[possible]
        fact = np.array([0, port, dropped, predicted], np.int8)
        edges.append((states[possible], targets, np.broadcast_to(fact, (len(targets), 4))))
    sources, targets, facts = (np.concatenate(part) for part in zip(*edges, strict=True))
    return sources, targets, facts


def longest_walks(graph: Graph, weight: Integers) -> tuple[Integers, list[list[int]]]:
    """Return of every state the largest weight of a walk to the empty switch, int64[states], and no cycles.

    `weight` is int64[edges]. Where a cycle has a positive weight there is none, and such cycles are returned. This is
    Bellman and Ford's relaxation: the edges that last raised a state make a forest until there is such a cycle.
    """
    size = len(graph.codes)
    first = np.searchsorted(graph.source, np.arange(size))
    count = np.diff(np.append(first, len(graph.source)))
    potential, edge = np.full(size, UNREACHED, np.int64), np.full(size, -1, np.int64)
    potential[0] = 0
    for step in range(1, size * len(graph.source)):
        values = weight + potential[graph.target]
        best = np.maximum.reduceat(values, first)
        rises = best > potential
        if not rises.any():
            return potential, []
        raising = np.flatnonzero((values == np.repeat(best, count)) & np.repeat(rises, count))
        edge[graph.source[raising]] = raising
        potential = np.maximum(potential, best)
        if step % 8 == 0 and (cycles := _cycles(graph, edge)):
            return potential, cycles
    raise AssertionError("relaxation ends or finds a cycle")


def _cycles(graph: Graph, edge: Integers) -> list[list[int]]:
    """Return the cycles of the edges that were chosen for the states; -1 is none."""
    chosen = edge[edge >= 0]
    links = _links(graph.source[chosen], graph.target[chosen], len(edge))
    labels = connected_components(links, connection="strong")[1]
    inside = chosen[labels[graph.source[chosen]] == labels[graph.target[chosen]]]
    cycles = []
    for start in inside[np.unique(labels[graph.source[inside]], return_index=True)[1]]:
        cycle = [int(start)]
        while graph.target[cycle[-1]] != graph.source[start]:
            cycle.append(int(edge[graph.target[cycle[-1]]]))
        cycles.append(cycle)
    return cycles


def least_cost(graph: Graph) -> Bound:
    """Return the largest ratio of a cycle: try the ratio of a cycle that is known until no cycle exceeds it."""
    lead, cost, best = graph.lead.astype(np.int64), Fraction(0), list[int]()
    while True:
        potential, cycles = longest_walks(graph, cost.denominator * lead - cost.numerator * graph.wrong)
        if not cycles:
            return Bound(cost, best, potential)
        for cycle in cycles:
            gained, wrong = int(lead[cycle].sum()), int(graph.wrong[cycle].sum())
            if not wrong:
                return Bound(None, cycle, None)
            if Fraction(gained, wrong) > cost:
                cost, best = Fraction(gained, wrong), cycle


def theorem_weights(graph: Graph) -> Integers:
    """int64[edges]: LQD's lead less 1 per wrong prediction to drop and B - 1 per wrong prediction to pass."""
    prices = np.where(graph.dropped == 1, graph.policy.buffer - 1, 1)
    return np.asarray(graph.lead - prices * graph.wrong, np.int64)


def _links(source: NDArray[np.integer], target: NDArray[np.integer], size: int) -> csr_array:
    return csr_array((np.ones(len(source), np.int8), (source, target)), shape=(size, size))
