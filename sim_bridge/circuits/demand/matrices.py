"""Demand matrices of the papers' evaluations, scaled so that the largest row or column sum fills `degree` uplinks.

Source: Addanki, thesis, sections 8.6 and 9.5. Where chapter 8 mixes a permutation with uniform demand and chapter 9
with a ring, both are here, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from foretail.features.demand.matrix import DemandMatrix


def ring(nodes: int, degree: int) -> DemandMatrix:
    """Return all demand from each node to the next."""
    return DemandMatrix(np.roll(np.eye(nodes), 1, axis=1)).scaled_to(degree)


def all_to_all(nodes: int, degree: int) -> DemandMatrix:
    """Return equal demand between all pairs."""
    return DemandMatrix(1 - np.eye(nodes)).scaled_to(degree)


def chessboard(nodes: int, degree: int) -> DemandMatrix:
    """Return demand that alternates between 1.5 and 0.5 along rows and columns, before scaling."""
    row, column = np.indices((nodes, nodes))
    return DemandMatrix(np.where((row + column) % 2 == 1, 1.5, 0.5) * (row != column)).scaled_to(degree)


def permutation(nodes: int, degree: int, seed: int = 1) -> DemandMatrix:
    """Return all demand from each node to one other, drawn without fixed points."""
    return DemandMatrix(_derangement(nodes, seed)).scaled_to(degree)


def random_hose(nodes: int, degree: int, seed: int = 1) -> DemandMatrix:
    """Return independent uniform entries, balanced until all rows and columns fill the uplinks to one in 10^9."""
    demand = np.random.default_rng(seed).random((nodes, nodes)) * (1 - np.eye(nodes))
    while abs(demand.sum(axis=0) - 1).max() > 1e-9 or abs(demand.sum(axis=1) - 1).max() > 1e-9:
        demand /= demand.sum(axis=1, keepdims=True)
        demand /= demand.sum(axis=0, keepdims=True)
        if nodes == 2:
            break
    return DemandMatrix(demand).scaled_to(degree)


def skewed_uniform(nodes: int, degree: int, skew: float, seed: int = 1) -> DemandMatrix:
    """Return `skew` of a permutation and the rest all to all (chapter 8), ``0 <= skew <= 1``."""
    return _mixed(all_to_all(nodes, degree), permutation(nodes, degree, seed), skew, degree)


def skewed_ring(nodes: int, degree: int, skew: float, seed: int = 1) -> DemandMatrix:
    """Return `skew` of a permutation and the rest a ring (chapter 9), ``0 <= skew <= 1``."""
    return _mixed(ring(nodes, degree), permutation(nodes, degree, seed), skew, degree)


MATRICES: Mapping[str, Callable[[int, int], DemandMatrix]] = {
    "ring": ring,
    "all_to_all": all_to_all,
    "chessboard": chessboard,
    "permutation": permutation,
    "random_hose": random_hose,
}
"""Those that need nothing but nodes and degree."""


def _mixed(base: DemandMatrix, other: DemandMatrix, skew: float, degree: int) -> DemandMatrix:
    return DemandMatrix((1 - skew) * base.demand + skew * other.demand).scaled_to(degree)


def _derangement(nodes: int, seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    random = np.random.default_rng(seed)
    while True:
        drawn = random.permutation(nodes)
        if not np.any(drawn == np.arange(nodes)):
            return np.eye(nodes)[drawn]
