"""Vermilion: a periodic schedule for a demand matrix, with guarantees when the matrix is wrong.

Source: Addanki, thesis, Algorithm 6 (l = 1) and Algorithm 7 (k, l), Algorithm 8 (randomised). Of k n circuits per node
and period, (k - l) n follow the demand, rounded to whole circuits, l go to every node, and what is left over is random.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge._native import round_matrix
from foretail.sim_bridge.circuits.schedules.regularise import regularised
from foretail.sim_bridge.circuits.schedules.schedule import Schedule

IntArray = npt.NDArray[np.int64]
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
