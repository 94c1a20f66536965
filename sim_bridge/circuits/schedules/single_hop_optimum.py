"""The schedule of a given period whose single-hop throughput is best: what Vermilion's rounding is compared with.

With single-hop routing a throughput theta needs ``ceil(theta * period * m)`` circuits for a pair with demand m, and
circuits fit into the period iff no row and no column sums to more than ``degree * period`` (a bipartite multigraph of
that degree is a union of as many matchings). So theta is feasible up to a largest breakpoint ``e / (period * m)``. The
robust variant gives every pair at least l circuits, so Theorem 25 of Vermilion (thesis, chapter 9) holds for it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge.circuits.schedules.regularise import regularised
from foretail.sim_bridge.circuits.schedules.schedule import Schedule

_MOST_MATCHINGS = 1 << 22


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

    ForetailError on a zero matrix, a degree or period out of range, or more oblivious circuits than the period has.

    Parameters
    ----------
    demand : not zero
    degree : uplinks of a node
    period : slots; ``degree * period`` below 2**22
    oblivious : int
        Least number of circuits between every two nodes: the l of Vermilion's guarantee against wrong predictions.
    seed : of the circuits that are left over
    """
    if not 1 <= degree <= demand.nodes:
        raise ForetailError(f"degree is {degree}: give 1 to {demand.nodes} uplinks for {demand.nodes} nodes")
    if not 1 <= period * degree < _MOST_MATCHINGS:
        raise ForetailError(f"period is {period} on {degree} uplinks: choose 1 to {(_MOST_MATCHINGS - 1) // degree}")
    most = period * degree // (demand.nodes - 1)
    if not 0 <= oblivious <= most:
        raise ForetailError(f"l is {oblivious}: choose 0 to {most} circuits for every pair in {period} slots")
    if not demand.demand.any():
        raise ForetailError("the demand matrix is zero: there is nothing to schedule for")
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
