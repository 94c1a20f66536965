"""Worst cases of schedules: throughput over many matrices, searched matrices, optimal schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import e, floor, log
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment, linprog
from scipy.special import lambertw

from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge.circuits.demand import (
    JOBS,
    all_to_all,
    chessboard,
    permutation,
    random_hose,
    ring,
    skewed_ring,
    skewed_uniform,
)
from foretail.sim_bridge.circuits.schedules import (
    SCHEDULER_KINDS,
    Schedule,
    best_degree,
    consistency,
    mars,
    regularised,
    round_robin,
    vermilion,
)
from foretail.sim_bridge.circuits.throughput import multi_hop, single_hop, valiant

__all__ = [
    "DESIGNS",
    "EVALUATION_MATRICES",
    "SKEW",
    "Outcome",
    "evaluation_matrix",
    "iteration",
    "outcomes_of",
    "placed",
]

DUTY_CYCLE = 0.99
"""Share of a slot that carries data; figures without it are shown as well."""


def iteration(job: str, nodes: int, degree: int, seed: int = 1) -> DemandMatrix:
    """Return the demand of one iteration of a job in ``JOBS``, scaled to fill the uplinks."""
    phases = JOBS[job](nodes, degree, seed)
    return DemandMatrix(np.sum([phase.steps * phase.demand.demand for phase in phases], axis=0)).scaled_to(degree)


def placed(demand: DemandMatrix, seed: int) -> DemandMatrix:
    """Return the demand with its nodes renamed by a random permutation."""
    place = np.random.default_rng(seed).permutation(demand.nodes)
    return DemandMatrix(demand.demand[place][:, place])


EVALUATION_MATRICES: Mapping[str, Callable[[int, int, int], DemandMatrix]] = {
    "data_parallel": lambda nodes, degree, seed: iteration("data_parallel", nodes, degree, seed),
    "hybrid_parallel": lambda nodes, degree, seed: iteration("hybrid_parallel", nodes, degree, seed),
    "data_parallel_placed": lambda nodes, degree, seed: placed(iteration("data_parallel", nodes, degree, seed), seed),
    "hybrid_parallel_placed": lambda nodes, degree, seed: placed(
        iteration("hybrid_parallel", nodes, degree, seed), seed
    ),
    "ring": lambda nodes, degree, seed: ring(nodes, degree),
    "all_to_all": lambda nodes, degree, seed: all_to_all(nodes, degree),
    "chessboard": lambda nodes, degree, seed: chessboard(nodes, degree),
    "random_hose": random_hose,
    "permutation": permutation,
    "skewed_ring": lambda nodes, degree, seed: skewed_ring(nodes, degree, 0.5, seed),
}
"""From nodes, degree and a seed, which not all need. A skewed ring is half a permutation."""

SKEW = "skew-"
"""Followed by a number from 0 to 1: that share of a permutation, the rest all to all, as the thesis writes it."""


def evaluation_matrix(name: str, nodes: int, degree: int, seed: int = 1) -> DemandMatrix:
    """Return a matrix of ``EVALUATION_MATRICES``, or ``skew-0.3``; ForetailError on another name."""
    if name in EVALUATION_MATRICES:
        return EVALUATION_MATRICES[name](nodes, degree, seed)
    try:
        skew = float(name.removeprefix(SKEW)) if name.startswith(SKEW) else -1.0
    except ValueError:
        skew = -1.0
    if not 0 <= skew <= 1:
        raise ForetailError(
            f"there is no matrix {name}: choose from {', '.join(EVALUATION_MATRICES)}, or skew-A with A from 0 to 1"
        )
    return skewed_uniform(nodes, degree, skew, seed)


@dataclass(frozen=True)
class Outcome:
    """Throughput of a design under a routing; `k` is that of Vermilion's period, 0 for designs without one."""

    design: str
    routing: str
    k: int
    theta: float


def _vermilion(demand: DemandMatrix, degree: int, trusts: Sequence[int], seed: int) -> list[Outcome]:
    return [
        Outcome("vermilion", "single-hop", k, single_hop(demand, vermilion(demand, degree, k, seed=seed).capacity))
        for k in trusts
    ]


def _optimum(demand: DemandMatrix, degree: int, trusts: Sequence[int], seed: int) -> list[Outcome]:
    """The best schedules of Vermilion's period, with its one circuit for every pair and without."""
    return [
        Outcome(
            design,
            "single-hop",
            k,
            float(single_hop_optimum(demand, degree, k * demand.nodes // degree, oblivious, seed).theta),
        )
        for k in trusts
        for design, oblivious in (("robust optimum", 1), ("optimum", 0))
    ]


def _oblivious(demand: DemandMatrix, degree: int, trusts: Sequence[int], seed: int) -> list[Outcome]:
    capacity = round_robin(demand.nodes, degree).capacity
    return [
        Outcome("oblivious", routing, 0, theta)
        for routing, theta in (
            ("multi-hop", multi_hop(demand, capacity).theta),
            ("single-hop", single_hop(demand, capacity)),
            ("valiant", valiant(demand, capacity)),
        )
    ]


def _mars(demand: DemandMatrix, degree: int, trusts: Sequence[int], seed: int) -> list[Outcome]:
    """With the best degree up to half the nodes: of all of them it is the oblivious design."""
    of_graph = best_degree(demand.nodes, degree, max(degree, demand.nodes // 2))
    capacity = mars(demand.nodes, degree, of_graph, seed).capacity
    return [Outcome("mars", "valiant", 0, valiant(demand, capacity))]


DESIGNS: Mapping[str, Callable[[DemandMatrix, int, Sequence[int], int], list[Outcome]]] = {
    "vermilion": _vermilion,
    "optimum": _optimum,
    "oblivious": _oblivious,
    "mars": _mars,
}
"""Outcomes of a design on a matrix, from the degree, the values of k, and a seed."""


def outcomes_of(design: str, demand: DemandMatrix, degree: int, trusts: Sequence[int], seed: int) -> list[Outcome]:
    """Return the outcomes of one of ``DESIGNS``, or the single-hop throughput of a scheduler of a package."""
    if design in DESIGNS:
        return DESIGNS[design](demand, degree, trusts, seed)
    made = SCHEDULER_KINDS.make(design, {}).schedule(demand, degree, seed)
    return [Outcome(design, "single-hop", 0, single_hop(demand, made.capacity))]


FloatArray = npt.NDArray[np.float64]
Noise = Literal["additive", "multiplicative"]

_LARGEST_ENTRY = 10.0


def noisy(demand: DemandMatrix, deviation: float, kind: Noise, seed: int) -> DemandMatrix:
    """Return a wrong prediction of a matrix, scaled to a largest entry of about 10.

    Parameters
    ----------
    demand : not zero
    deviation : float
        Standard deviation of independent normal noise, at least 0: ``max(0, m + N)`` off the diagonal, or
        ``m * max(0, 1 + N)``.
    kind : {'additive', 'multiplicative'}
    seed : same seed, same noise, up to its deviation
    """
    scaled = demand.demand / demand.demand.max() * _LARGEST_ENTRY
    noise = np.random.default_rng(seed).normal(0, 1, scaled.shape) * deviation
    wrong = np.maximum(0, scaled + noise) if kind == "additive" else scaled * np.maximum(0, 1 + noise)
    np.fill_diagonal(wrong, 0)
    return DemandMatrix(wrong)


def best_distribution(largest_trust: int, robustness_floor: float) -> FloatArray:
    """Return the distribution of k, l = 1, of highest expected consistency for a floor under the expected robustness.

    k is drawn from 1 to `largest_trust`; the floor is at most 1/2, what k = 1 guarantees. A linear program over
    Theorems 26 and 27; at most two values of k have a positive probability. ForetailError when no distribution reaches
    the floor. Returns float64[largest_trust]: probability of k = 1, 2, ...
    """
    trust = np.arange(1, largest_trust + 1)
    solved = linprog(
        [-consistency(float(r)) for r in trust],
        A_ub=[-1 / (2 * trust)],
        b_ub=[-robustness_floor],
        A_eq=[np.ones(largest_trust)],
        b_eq=[1.0],
        method="highs",
    )
    if solved.status != 0:
        raise ForetailError(f"HiGHS found no distribution ({solved.message}): report this as a bug")
    probabilities: FloatArray = np.clip(solved.x, 0, 1)
    probabilities /= probabilities.sum()
    return probabilities


@dataclass(frozen=True, eq=False, repr=False)
class WorstPrediction(Summarised):
    """The permutation matrix with the least throughput that a search has found, and that throughput."""

    prediction: DemandMatrix
    theta: float


def elsewhere(demand: DemandMatrix) -> DemandMatrix:
    """Return the permutation matrix on the pairs that together have the least demand."""
    return _predicted(_least_demand(demand))


def worst_prediction(
    demand: DemandMatrix, throughput: Callable[[DemandMatrix], float], tries: int, seed: int = 1
) -> WorstPrediction:
    """Search the permutation matrices for the prediction with the least throughput.

    `demand` is the true one; `throughput` is that of the schedule for a prediction, on `demand`. The search starts from
    ``elsewhere`` and tries, by turns, to exchange the receivers of two senders in the worst one so far, and to join the
    nodes in random pairs, whose circuits lead nowhere else. There are 4 nodes or more.
    """
    random = np.random.default_rng(seed)
    receiver = _least_demand(demand)
    least = throughput(_predicted(receiver))
    for turn in range(tries):
        tried = _exchanged(receiver, random) if turn % 2 else _paired(demand.nodes, random)
        theta = throughput(_predicted(tried))
        if theta < least:
            receiver, least = tried, theta
    return WorstPrediction(_predicted(receiver), least)


def _least_demand(demand: DemandMatrix) -> npt.NDArray[np.int64]:
    cost = demand.demand.copy()
    np.fill_diagonal(cost, 1 + cost.sum())  # never
    return np.asarray(linear_sum_assignment(cost)[1], np.int64)


def _exchanged(receiver: npt.NDArray[np.int64], random: np.random.Generator) -> npt.NDArray[np.int64]:
    while True:
        first, second = random.choice(len(receiver), 2, replace=False)
        if receiver[first] != second and receiver[second] != first:  # else a node would send to itself
            changed = receiver.copy()
            changed[[first, second]] = receiver[[second, first]]
            return changed


def _paired(nodes: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Random pairs; with an odd number of nodes the last three make a ring."""
    order = random.permutation(nodes)
    receiver = np.empty(nodes, np.int64)
    paired = nodes - 3 * (nodes % 2)
    receiver[order[0:paired:2]], receiver[order[1:paired:2]] = order[1:paired:2], order[0:paired:2]
    receiver[order[paired:]] = np.roll(order[paired:], 1)
    return receiver


def _predicted(receiver: npt.NDArray[np.int64]) -> DemandMatrix:
    return DemandMatrix(np.eye(len(receiver))[receiver])


@dataclass(frozen=True)
class PeriodicNetwork:
    """Racks joined by rotating circuits."""

    nodes: int  #: racks, at least 2
    uplinks: int  #: of a rack, at least 1
    uplink_bps: int  #: of one, positive
    slot_ns: int  #: with its reconfiguration, positive
    whole_hops: bool = False  #: whether the diameter is rounded up, as that of a real graph is

    def diameter(self, degree: int) -> float:
        """Hops of a shortest path, at most."""
        hops = log(self.nodes) / log(degree)
        return float(np.ceil(hops - 1e-9)) if self.whole_hops else hops

    def throughput(self, degree: int, buffer_bytes: float = np.inf) -> float:
        """Return the throughput, in proportion less where a rack has less buffer than it needs (Theorems 16, 17)."""
        needed = self.buffer_bytes(degree)
        return min(1.0, buffer_bytes / needed if needed else 1.0) / (2 * self.diameter(degree))

    def delay_ns(self, degree: int) -> float:
        """Return the longest delay: a period for every hop (Theorem 15); 0 for a static graph."""
        if degree == self.uplinks:
            return 0.0
        return 2 * self.diameter(degree) * degree * self.slot_ns / self.uplinks

    def buffer_bytes(self, degree: int) -> float:
        """Return the buffer that a rack needs: a slot's data of each circuit of a period (16); 0 for a static graph."""
        return 0.0 if degree == self.uplinks else degree * self._slot_bytes

    @property
    def least_delay_ns(self) -> float:
        """The least delay that any degree but a static graph's has, the degree a real number (Theorem 18)."""
        return 2 * e * log(self.nodes) * self.slot_ns / self.uplinks

    def degree_for_delay(self, delay_ns: float) -> int:
        """Return the largest degree within a delay (18), with real diameters; ForetailError where there is none."""
        if delay_ns < self.least_delay_ns:
            raise ForetailError(
                f"a delay of {delay_ns:g} ns is less than any degree has: give {self.least_delay_ns:g} or more, or "
                "take a static graph"
            )
        k = -2 * log(self.nodes) * self.slot_ns / (self.uplinks * delay_ns)
        return min(self.nodes, floor(float(np.exp(-lambertw(k, -1).real)) + 1e-9))

    def degree_for_buffer(self, buffer_bytes: float) -> int:
        """Return the largest degree within a buffer of a rack (19)."""
        return min(self.nodes, floor(buffer_bytes / self._slot_bytes + 1e-9))

    @property
    def _slot_bytes(self) -> float:
        return self.uplink_bps * self.slot_ns / 8e9


@dataclass(frozen=True, eq=False)
class SingleHopOptimum:
    """The best single-hop schedule of a period."""

    #: its throughput on the matrix it was made for, exact for the matrix' doubles, without the duty cycle; 0 when a
    #: node has more partners than circuits in a period
    theta: Fraction
    #: int64[n, n], circuits per period, completed to a regular multigraph; self loops are idle circuits
    edges: npt.NDArray[np.int64]
    schedule: Schedule


def single_hop_optimum(
    demand: DemandMatrix, degree: int, period: int, oblivious: int = 0, seed: int = 1
) -> SingleHopOptimum:
    """Return the schedule of `period` slots with the largest single-hop throughput.

    Parameters
    ----------
    demand : not zero
    degree : uplinks of a node
    period : slots
    oblivious : int
        Least number of circuits between every two nodes: the l of Vermilion's guarantee against wrong predictions.
    seed : of the circuits that are left over
    """
    lines = _Lines(demand, degree * period, oblivious)
    scale = lines.largest_scale()
    edges = regularised(lines.circuits(scale), degree * period, seed)
    return SingleHopOptimum(lines.unit * scale / period, edges, Schedule.of_multigraph(edges, degree))


class _Lines:
    """The demand as whole numbers, so that every comparison is exact, and the limit of its rows and columns."""

    def __init__(self, demand: DemandMatrix, limit: int, oblivious: int) -> None:
        self.nodes, self.limit, self.oblivious = demand.nodes, limit, oblivious
        self.row, self.column = np.nonzero(demand.demand)
        ratios = [value.as_integer_ratio() for value in demand.demand[self.row, self.column].tolist()]
        common = max(denominator for _, denominator in ratios)  # all are powers of two
        self.weight = np.array([numerator * (common // denominator) for numerator, denominator in ratios], object)
        self.unit = Fraction(common)

    def largest_scale(self) -> Fraction:
        """Return the largest ``e / weight`` with which all circuits fit, 0 if none does: random pivots, as quickselect.

        `low` fits and `high` does not; the breakpoints strictly between are what is left.
        """
        random = np.random.default_rng(1)  # changes the time, not the result
        low, high = Fraction(0), Fraction(self.limit + 1, max(self._sums(self.weight)))
        while True:
            below = self._floor(low)
            left = -self._floor(-high) - 1 - below
            pairs = np.flatnonzero(left)
            if not len(pairs):
                return low
            pair = random.choice(pairs, p=left[pairs] / left.sum())
            pivot = Fraction(int(below[pair] + random.integers(1, left[pair] + 1)), self.weight[pair])
            circuits = self.circuits(pivot)
            if max(circuits.sum(axis=0).max(), circuits.sum(axis=1).max()) <= self.limit:
                low = pivot
            else:
                high = pivot

    def circuits(self, scale: Fraction) -> npt.NDArray[np.int64]:
        """Return ``ceil(scale * weight)``, no pair less than its oblivious circuits: int64[n, n]."""
        counts = self.oblivious * (1 - np.eye(self.nodes, dtype=np.int64))
        counts[self.row, self.column] = np.maximum(-self._floor(-scale), self.oblivious)
        return counts

    def _floor(self, scale: Fraction) -> npt.NDArray[np.int64]:
        return (scale.numerator * self.weight // scale.denominator).astype(np.int64)

    def _sums(self, values: npt.NDArray[np.object_]) -> list[int]:
        sums = np.zeros((2, self.nodes), object)
        np.add.at(sums[0], self.row, values)
        np.add.at(sums[1], self.column, values)
        return [int(value) for value in sums.ravel()]
