"""Birkhoff-von Neumann: a demand as matchings of different durations, which ``python -m benchmarks schedule`` times.

Circuits in up to n^2 - 2n + 2 such steps reach throughput 1 on the matrix they were made for, and 0 on a matrix that
has a pair which the prediction lacks (Addanki, thesis, Theorem 23).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np
import numpy.typing as npt
from scipy.sparse import csgraph, csr_array

from foretail.features.demand.matrix import DemandMatrix

IntArray = npt.NDArray[np.int64]
NodeArray = npt.NDArray[np.int32]

_UNITS = 1 << 52


def whole(demand: DemandMatrix) -> IntArray:
    """Return the demand in units of 2**-52 of its largest row or column sum, rounded down: int64[n, n]."""
    return (demand.scaled_to(1.0).demand * _UNITS).astype(np.int64)


def stuffed(matrix: IntArray) -> IntArray:
    """Return the matrix with entries raised until all rows and columns have the largest sum: int64[n, n].

    As Solstice in the Etalon emulator: entries that are there first, then from the fullest rows and columns on.
    """
    full = matrix.copy()
    limit = max(full.sum(axis=0).max(), full.sum(axis=1).max())
    row, column = limit - full.sum(axis=1), limit - full.sum(axis=0)

    def fill(pairs: Iterable[tuple[int, int]]) -> None:
        for i, j in pairs:
            more = min(row[i], column[j])
            full[i, j] += more
            row[i] -= more
            column[j] -= more

    fill(zip(*np.nonzero(full), strict=True))
    open_rows, open_columns = (np.flatnonzero(space) for space in (row, column))
    rows = open_rows[np.argsort(row[open_rows], kind="stable")]
    columns = open_columns[np.argsort(column[open_columns], kind="stable")]
    fill(product(rows, columns))
    return full


def birkhoff_steps(matrix: IntArray) -> Iterator[tuple[NodeArray, int]]:
    """Yield matchings and their durations, which sum to `matrix`: int32[n] and its units.

    `matrix` is int64[n, n]; all its rows and columns have one sum, as `stuffed` returns it.
    """
    left = matrix.copy()
    sender = np.arange(len(left))
    while left.any():
        partner = matching_on(left > 0)
        units = int(left[sender, partner].min())
        left[sender, partner] -= units
        yield partner, units


def matching_on(allowed: npt.NDArray[np.bool_]) -> NodeArray:
    """Return a largest matching (Hopcroft and Karp): whom each node sends to, -1 for nobody: int32[n]."""
    return np.asarray(csgraph.maximum_bipartite_matching(csr_array(allowed), perm_type="column"), np.int32)
