"""Periodic schedules of circuits, and their schedulers by name: Vermilion and those that it is compared to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, sqrt
from types import MappingProxyType
from typing import Literal

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.core.plugins import SCHEDULER_GROUP, Kinds, PluginError, is_foreign, named, require, running
from foretail.core.summary import Summarised
from foretail.features.demand.matrix import MAX_NODES, DemandMatrix
from foretail.sim_bridge._native import perfect_matchings, round_matrix
from foretail.sim_bridge.circuits.demand import all_to_all
from foretail.sim_bridge.circuits.throughput import valiant

IntArray = npt.NDArray[np.int64]

IDLE = -1


@dataclass(frozen=True, eq=False, repr=False)
class Schedule(Summarised):
    """The node that each uplink reaches in each slot of a period, repeated for ever.

    ForetailError when a matching is none.

    Examples
    --------
    Three nodes with one uplink take turns to reach each other:

    >>> schedule = Schedule([[[1, 2, 0]], [[2, 0, 1]]])
    >>> schedule.matchings.shape
    (2, 1, 3)
    """

    #: int32[slots, uplinks, nodes], ``matchings[slot, uplink, node]`` is the node that `node` sends to, or -1 when the
    #: uplink is idle. No node receives twice in one matching, none sends to itself.
    matchings: npt.NDArray[np.int32]

    def __post_init__(self) -> None:
        matchings = np.array(self.matchings, np.int32)
        if matchings.ndim != 3 or 0 in matchings.shape:
            raise ForetailError(f"a schedule has shape {matchings.shape}: give one node per slot, uplink and node")
        nodes = matchings.shape[2]
        flat = matchings.reshape(-1, nodes)
        if flat.min() < IDLE or flat.max() >= nodes or np.any(flat == np.arange(nodes)):
            raise ForetailError(f"a schedule sends to a node outside [0, {nodes}) or from a node to itself: correct it")
        ordered = np.sort(flat, axis=1)
        twice = np.any((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != IDLE), axis=1)
        if twice.any():
            slot, uplink = divmod(int(twice.argmax()), matchings.shape[1])
            raise ForetailError(f"slot {slot} of uplink {uplink} reaches a node twice: give matchings")
        matchings.setflags(write=False)
        object.__setattr__(self, "matchings", matchings)

    @classmethod
    def of_multigraph(cls, edges: IntArray, degree: int) -> Schedule:
        """Return a schedule whose period uses every edge of a regular multigraph once.

        ForetailError when the multigraph is not regular, or its degree no multiple of `degree`.

        Parameters
        ----------
        edges : int64[n, n]
            Number of edges from each node to each; self loops become idle uplinks. All rows and columns have one sum,
            a multiple of `degree`.
        degree : uplinks of a node
        """
        try:
            partner = perfect_matchings(np.ascontiguousarray(edges, np.int64))
        except ValueError as error:
            raise ForetailError(f"the emulated graph cannot be scheduled ({error}): make it regular") from None
        if degree < 1 or len(partner) == 0 or len(partner) % degree:
            raise ForetailError(
                f"{len(partner)} matchings do not fill {degree} uplinks evenly: choose a degree that divides them"
            )
        partner[partner == np.arange(partner.shape[1])] = IDLE
        return cls(partner.reshape(-1, degree, partner.shape[1]))

    @property
    def period(self) -> int:
        """Slots of a period."""
        return int(self.matchings.shape[0])

    @property
    def degree(self) -> int:
        """Uplinks of a node."""
        return int(self.matchings.shape[1])

    @property
    def nodes(self) -> int:
        """n."""
        return int(self.matchings.shape[2])

    @cached_property
    def edges(self) -> IntArray:
        """Circuits from each node to each in a period: int64[n, n], the diagonal 0."""
        counts = np.zeros((self.nodes, self.nodes), np.int64)
        for matching in self.matchings.reshape(-1, self.nodes):
            sender = np.flatnonzero(matching != IDLE)
            counts[sender, matching[sender]] += 1  # a matching has no sender twice
        return counts

    @property
    def capacity(self) -> npt.NDArray[np.float64]:
        """Capacity of the emulated static graph in uplinks, without the duty cycle: float64[n, n] (section 7.3)."""
        return self.edges / self.period


NodeArray = npt.NDArray[np.int32]


def matching_on(allowed: npt.NDArray[np.bool_]) -> NodeArray:
    """Return a largest matching (Hopcroft and Karp): whom each node sends to, -1 for nobody: int32[n]."""
    import scipy

    return np.asarray(
        scipy.sparse.csgraph.maximum_bipartite_matching(scipy.sparse.csr_array(allowed), perm_type="column"), np.int32
    )


# Expanders: a static random regular graph, and Opera, whose rotating circuits form one at any time.
#
# Source: Addanki, thesis, section 7.5, which compares Mars with both; Opera: Mellette et al., NSDI 2020.

_TRIES = 10_000


def expander(nodes: int, degree: int, seed: int = 1) -> Schedule:
    """Return one slot for ever, in which the uplinks are disjoint random pairings of the nodes.

    They are drawn until the graph is connected and its second eigenvalue at most ``2 sqrt(degree - 1)`` (a Ramanujan
    graph). ForetailError on an odd number of nodes, a degree outside 2 to nodes - 1, or when no such graph is drawn.
    """
    if nodes < 4 or nodes % 2 or not 2 <= degree < nodes:
        raise ForetailError(
            f"{nodes} nodes with {degree} uplinks: an expander has 4 nodes or more, an even number, and 2 to "
            f"{nodes - 1} uplinks"
        )
    random = np.random.default_rng(seed)
    for _ in range(_TRIES):
        pairings: list[NodeArray] = []
        for _ in range(_TRIES):
            pairing = _pairing(nodes, random)
            if not any((pairing == other).any() for other in pairings):
                pairings.append(pairing)
                if len(pairings) == degree:
                    break
        else:
            continue
        schedule = Schedule(np.stack(pairings)[np.newaxis])
        second = np.linalg.eigvalsh(schedule.capacity)[-2]
        if second <= 2 * sqrt(degree - 1) + 1e-9 and second < degree - 1e-9:
            return schedule
    raise ForetailError(f"no expander of {nodes} nodes with {degree} uplinks was drawn: choose more nodes")


def opera(nodes: int, uplinks: int, seed: int = 1) -> Schedule:
    """Return `nodes` slots in which every node meets every other `uplinks` - 1 slots in a row.

    The n matchings of a random decomposition of the complete graph with self loops, which are idle circuits, are dealt
    to the uplinks. In slot t uplink ``t % uplinks`` goes over to its next matching and carries nothing. With 3 uplinks
    or more, the others connect all nodes in every slot; the decomposition is drawn until they do. ForetailError on
    fewer than 2 uplinks, nodes that are no multiple of them, or when none is drawn.
    """
    if uplinks < 2 or nodes % uplinks:
        raise ForetailError(f"{nodes} nodes with {uplinks} uplinks: Opera needs 2 or more, and a multiple of them")
    random = np.random.default_rng(seed)
    slot, uplink = np.arange(nodes)[:, np.newaxis], np.arange(uplinks)
    turn = (slot - uplink) // uplinks % (nodes // uplinks)
    for _ in range(_TRIES):
        dealt = _decomposition(nodes, random).reshape(uplinks, -1, nodes)
        matchings = dealt[uplink, turn]  # [slot, uplink, node]
        matchings[np.arange(nodes), np.arange(nodes) % uplinks] = IDLE
        if uplinks == 2 or all(_connects(of_slot) for of_slot in matchings):
            return Schedule(matchings)
    raise ForetailError(f"no schedule of Opera with {nodes} nodes and {uplinks} uplinks was drawn: choose more nodes")


def _pairing(nodes: int, random: np.random.Generator) -> NodeArray:
    one, other = random.permutation(nodes).reshape(2, -1)
    pairing = np.empty(nodes, np.int32)
    pairing[one], pairing[other] = other, one
    return pairing


def _decomposition(nodes: int, random: np.random.Generator) -> NodeArray:
    """Matchings that use every ordered pair once, a node with itself being idle: int32[n, n]."""
    left = np.ones((nodes, nodes), bool)
    matchings = np.empty((nodes, nodes), np.int32)
    for matching in matchings:
        row, column = random.permutation(nodes), random.permutation(nodes)
        matching[row] = column[matching_on(left[row][:, column])]
        left[np.arange(nodes), matching] = False
    matchings[matchings == np.arange(nodes)] = IDLE
    return matchings


def _connects(matchings: NodeArray) -> bool:
    import scipy

    uplink, sender = np.nonzero(matchings != IDLE)
    edges = scipy.sparse.csr_array(
        (np.ones(len(sender)), (sender, matchings[uplink, sender])), (matchings.shape[1],) * 2
    )
    return int(scipy.sparse.csgraph.connected_components(edges, connection="strong", return_labels=False)) == 1


# Mars: an oblivious periodic network that emulates a de Bruijn graph.
#
# Source: Addanki, thesis, section 7.4. Its formulas (Theorems 15 to 19) hold for Valiant routing on a worst-case
# permutation, and take the diameter as the real number ``log_d n``. A degree equal to the uplinks makes a static graph,
# which has no slots to wait for.


def mars(nodes: int, uplinks: int, degree: int, seed: int = 1) -> Schedule:
    """Return a schedule of ``degree / uplinks`` slots whose circuits form a de Bruijn graph, in random order.

    Node u reaches ``u * degree + a`` modulo n for a below `degree`; a self loop is an idle circuit. ForetailError on a
    degree below 2 or above `nodes`, or no multiple of the uplinks.
    """
    if not 2 <= degree <= nodes:
        raise ForetailError(f"degree is {degree}: give 2 to {nodes} for a de Bruijn graph of {nodes} nodes")
    if uplinks < 1 or degree % uplinks:
        raise ForetailError(f"degree is {degree}, no multiple of {uplinks} uplinks: choose one that is")
    edges = np.zeros((nodes, nodes), np.int64)
    sender = np.repeat(np.arange(nodes), degree)
    np.add.at(edges, (sender, np.arange(nodes * degree) % nodes), 1)
    matchings = Schedule.of_multigraph(edges, uplinks).matchings.reshape(degree, nodes)
    return Schedule(np.random.default_rng(seed).permutation(matchings).reshape(-1, uplinks, nodes))


def best_degree(nodes: int, uplinks: int, largest: int) -> int:
    """Return the degree up to `largest` with the best Valiant throughput on its real graph; the smallest on a tie.

    The formulas' throughput grows with the degree. Real diameters are whole, and de Bruijn graphs have self loops: of
    64 nodes, degree 8 beats 16 and 32. ForetailError when no multiple of `uplinks` is within 2 to `largest`.
    """
    even = all_to_all(nodes, uplinks)
    throughput = {d: valiant(even, mars(nodes, uplinks, d).capacity) for d in _degrees(nodes, uplinks, largest)}
    if not throughput:
        raise ForetailError(f"no multiple of {uplinks} uplinks is within 2 to {largest}: allow a larger degree")
    return max(throughput, key=throughput.__getitem__)


def _degrees(nodes: int, uplinks: int, largest: int) -> list[int]:
    if not 1 <= uplinks <= nodes:
        raise ForetailError(f"uplinks is {uplinks}: give 1 to {nodes} for {nodes} nodes")
    return [d for d in range(uplinks, min(largest, nodes) + 1, uplinks) if d >= 2]


# Oblivious round robin: every node meets every other in turn, as RotorNet, Sirius and the Etalon emulator's strobe.
#
# RotorNet and Sirius differ in what goes over it. RotorNet keeps a matching for many packets, and takes a second hop
# only where the direct circuit is busy and the relay has room (``two_hop`` in cells). Sirius changes circuits every few
# packets, and sends all of them over a random node (``valiant``).


def round_robin(nodes: int, degree: int) -> Schedule:
    """Return the n - 1 cyclic shifts, dealt to the uplinks in order.

    The period is ``(n - 1) / degree`` slots, or as many times that as make it whole; the emulated graph is complete.
    Its throughput on a permutation is ``n / (2 n - 2)`` with multi-hop routing, ``1 / (n - 1)`` with single-hop.
    ForetailError on fewer than 2 or more than 16,384 nodes, or a degree outside 1 to n - 1.
    """
    if not 2 <= nodes <= MAX_NODES:
        raise ForetailError(f"nodes is {nodes}: give 2 to {MAX_NODES}")
    if not 1 <= degree < nodes:
        raise ForetailError(f"degree is {degree}: give 1 to {nodes - 1} uplinks for {nodes} nodes")
    shift = np.tile(np.arange(1, nodes), degree // gcd(degree, nodes - 1))
    reached = (np.arange(nodes) + shift[:, np.newaxis]) % nodes
    return Schedule(reached.reshape(-1, degree, nodes).astype(np.int32))


def regularised(edges: npt.NDArray[np.int64], degree: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the multigraph with edges added until every node has `degree` in and out: int64[n, n].

    `edges` is int64[n, n]; no row or column sums to more than `degree`. The missing ends are paired at random
    (configuration model); self loops come out as idle circuits.
    """
    full = edges.copy()
    nodes = np.arange(len(edges))
    senders = np.repeat(nodes, degree - edges.sum(axis=1))
    receivers = np.repeat(nodes, degree - edges.sum(axis=0))
    np.add.at(full, (senders, np.random.default_rng(seed).permutation(receivers)), 1)
    return full


# Vermilion: a periodic schedule for a demand matrix, with guarantees when the matrix is wrong.
#
# Source: Addanki, thesis, Algorithm 6 (l = 1) and Algorithm 7 (k, l), Algorithm 8 (randomised). Of k n circuits per
# node and period, (k - l) n follow the demand, rounded to whole circuits, l go to every node, and what is left over is
# random.

Diagonal = Literal["idle", "reuse"]

_FRACTION_BITS = 40


def vermilion(
    demand: DemandMatrix, degree: int, k: int, oblivious: int = 1, seed: int = 1, diagonal: Diagonal = "idle"
) -> Schedule:
    """Return the schedule of Algorithms 6 and 7; its period is ``k * nodes / degree`` slots.

    ForetailError on k, l or a degree out of range, or a zero matrix.

    Parameters
    ----------
    demand : or a prediction of it. Only its shape counts: it is scaled to a largest row or column sum of 1
    degree : uplinks of a node; must divide ``k * nodes``
    k, oblivious : int
        ``k >= oblivious >= 1``, the k and l of the thesis. With the trust ``k / oblivious`` below 2 the demand is not
        looked at, and the emulated graph is complete.
    seed : of the circuits that are left over
    diagonal : {'idle', 'reuse'}
        What becomes of the circuits that a node would have to itself: idle, as the theorems count, or left over.
    """
    _check(demand.nodes, degree, k, oblivious)
    if k < 2 * oblivious:
        return Schedule.of_multigraph(np.full((demand.nodes, demand.nodes), k, np.int64), degree)
    return Schedule.of_multigraph(emulated_edges(demand, k, oblivious, seed, diagonal), degree)


def emulated_edges(
    demand: DemandMatrix, k: int, oblivious: int = 1, seed: int = 1, diagonal: Diagonal = "idle"
) -> IntArray:
    """Return the k n-regular multigraph that the schedule decomposes: int64[n, n], self loops are idle circuits."""
    nodes = demand.nodes
    share = (k - oblivious) * nodes
    edges = rounded(demand.scaled_to(1.0).demand * share, share) + oblivious
    if diagonal == "reuse":
        np.fill_diagonal(edges, 0)
    return regularised(edges, k * nodes, seed)


def rounded(matrix: npt.NDArray[np.float64], most: int) -> IntArray:
    """Return whole numbers such that every entry, row sum and column sum is that of `matrix` rounded up or down.

    A sum that floats have rounded above `most`, the largest that is meant, counts as `most`.

    Parameters
    ----------
    matrix : float64[n, n]
        At least 0, sums below 2**22. Fractions are taken to 40 bits, so a sum within ``n * 2**-40`` above a whole
        number counts as that number.
    """
    fixed = np.floor(matrix * 2.0**_FRACTION_BITS).astype(np.int64)
    for lines in (fixed, fixed.T):  # rows, then columns, each a view
        excess = np.maximum(lines.sum(axis=1) - (most << _FRACTION_BITS), 0)
        lines[np.arange(len(lines)), lines.argmax(axis=1)] -= excess
    return np.asarray(round_matrix(fixed, _FRACTION_BITS), np.int64)


def single_hop_guarantee(k: int, oblivious: int = 1) -> float:
    """Return the least single-hop throughput on the matrix that was scheduled for, without duty cycle (Theorem 22)."""
    return 0.0 if k < 2 * oblivious else (k - oblivious) / k


def consistency(trust: float) -> float:
    """Return the least throughput when the prediction is right, ``trust`` = k / oblivious (Theorem 24)."""
    return max(0.5, (trust - 1) / trust)


def robustness(trust: float) -> float:
    """Return the least throughput whatever the prediction (Theorem 25)."""
    return 0.5 if trust < 2 else 1 / (2 * trust)


def randomised_consistency(probability: Sequence[float]) -> float:
    """Return the expected consistency when k is drawn, ``probability[r - 1]`` for k = r (Theorem 26)."""
    return sum(p * consistency(r) for r, p in enumerate(probability, 1))


def randomised_robustness(probability: Sequence[float]) -> float:
    """Return the expected robustness when k is drawn, ``probability[r - 1]`` for k = r (Theorem 27)."""
    return sum(p / (2 * r) for r, p in enumerate(probability, 1))


def next_period_factor(nodes: int, degree: int, k: int) -> int:
    """Return the smallest k at or above `k` for which `degree` divides ``k * nodes``."""
    return next(factor for factor in range(k, k + degree) if factor * nodes % degree == 0)


def _check(nodes: int, degree: int, k: int, oblivious: int) -> None:
    if not 1 <= degree <= nodes:
        raise ForetailError(f"degree is {degree}: give 1 to {nodes} uplinks for {nodes} nodes")
    if not 1 <= oblivious <= k:
        raise ForetailError(f"k is {k} and l is {oblivious}: choose 1 <= l <= k")
    if k * nodes >= 1 << 22:
        raise ForetailError(f"k = {k} on {nodes} nodes makes a period of {k * nodes} matchings: choose k n below 2^22")
    if k * nodes % degree:
        raise ForetailError(
            f"k n = {k} x {nodes} matchings do not fill {degree} uplinks evenly: choose "
            f"k = {next_period_factor(nodes, degree, k)}"
        )


# Schedulers of circuits: what makes a periodic schedule from a demand matrix, by name.
#
# A new one subclasses :class:`Scheduler`, its fields are its settings, and it passes
# ``foretail.testing.check_scheduler``.


class Scheduler(ABC):
    """Makes a periodic schedule for a demand matrix, in whole circuits.

    Subclasses are frozen dataclasses whose fields all have defaults. They implement `matchings`; what that of another
    package returns is checked, and whatever it raises becomes one sentence that names it.
    """

    def schedule(self, demand: DemandMatrix, degree: int, seed: int = 1) -> Schedule:
        """Return the schedule for a demand, or for a prediction of it.

        The seed is of what is drawn; schedulers without chance ignore it. ForetailError on a demand or a degree that
        does not suit, and on matchings that are none.
        """
        with running(self, "matchings", demand=demand.demand):
            matchings = self.matchings(demand, degree, seed)
        if not is_foreign(type(self)):
            return Schedule(matchings)
        require(
            self, isinstance(matchings, np.ndarray), "matchings must give an array", f"a {type(matchings).__name__}"
        )
        wanted = ("slots", degree, demand.nodes)
        require(
            self,
            matchings.ndim == 3 and matchings.shape[1:] == wanted[1:],
            f"matchings must have shape ({wanted[0]}, {wanted[1]}, {wanted[2]})",
            str(matchings.shape),
        )
        require(self, matchings.dtype.kind in "iu", "matchings must be whole numbers", str(matchings.dtype))
        outside = matchings[(matchings < -1) | (matchings >= demand.nodes)]
        require(self, not len(outside), f"matchings must be -1 or in [0, {demand.nodes})", str(outside[:1]))
        try:
            return Schedule(matchings)
        except ForetailError as error:
            raise PluginError(f"{named(self)} breaks a rule: {error}") from None

    @abstractmethod
    def matchings(self, demand: DemandMatrix, degree: int, seed: int) -> npt.NDArray[np.int32]:
        """Return ``[slot, uplink, node]``: the node that `node` sends to, -1 when the uplink is idle.

        No node sends to itself, and none receives twice in one matching.
        """


@dataclass(frozen=True)
class Vermilion(Scheduler):
    """:func:`~foretail.sim_bridge.circuits.schedules.vermilion` with its k and l."""

    k: int = 3
    l: int = 1  # noqa: E741
    diagonal: Diagonal = "idle"

    def matchings(self, demand: DemandMatrix, degree: int, seed: int) -> npt.NDArray[np.int32]:
        return vermilion(demand, degree, self.k, self.l, seed, self.diagonal).matchings


@dataclass(frozen=True)
class RoundRobin(Scheduler):
    """Every node in turn, whatever the demand."""

    def matchings(self, demand: DemandMatrix, degree: int, seed: int) -> npt.NDArray[np.int32]:
        return round_robin(demand.nodes, degree).matchings


@dataclass(frozen=True)
class Mars(Scheduler):
    """A de Bruijn graph, whatever the demand; `graph_degree` 0 takes the best up to half the nodes."""

    graph_degree: int = 0

    def matchings(self, demand: DemandMatrix, degree: int, seed: int) -> npt.NDArray[np.int32]:
        of_graph = self.graph_degree or best_degree(demand.nodes, degree, max(degree, demand.nodes // 2))
        return mars(demand.nodes, degree, of_graph, seed).matchings


@dataclass(frozen=True)
class Expander(Scheduler):
    """A static random regular graph, whatever the demand."""

    def matchings(self, demand: DemandMatrix, degree: int, seed: int) -> npt.NDArray[np.int32]:
        return expander(demand.nodes, degree, seed).matchings


@dataclass(frozen=True)
class Opera(Scheduler):
    """Circuits that connect all nodes at any time, whatever the demand."""

    def matchings(self, demand: DemandMatrix, degree: int, seed: int) -> npt.NDArray[np.int32]:
        return opera(demand.nodes, degree, seed).matchings


SCHEDULERS: Mapping[str, type[Scheduler]] = MappingProxyType(
    {"vermilion": Vermilion, "round_robin": RoundRobin, "mars": Mars, "expander": Expander, "opera": Opera}
)
"""Foretail's own by name."""

SCHEDULER_KINDS = Kinds(SCHEDULER_GROUP, Scheduler, "scheduler", SCHEDULERS)  # type: ignore[type-abstract] # a base
"""Foretail's own, and what installed packages offer."""
