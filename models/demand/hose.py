"""Projection of any non-negative matrix into the hose model, by scaling rows and columns.

Source: Sinkhorn and Knopp, *Concerning nonnegative matrices and doubly stochastic matrices*, Pacific J. Math. 21
(1967). Scaling multiplies, so what is 0 stays 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix

_SWEEPS = 100


def into_hose(matrix: npt.NDArray[np.float64], degree: int, *, fill: bool = False, absent: float = 0.0) -> DemandMatrix:
    """Return the matrix scaled so that no row and no column sums to more than `degree`.

    ForetailError on a matrix or numbers out of range.

    Parameters
    ----------
    matrix : float64[n, n], as :class:`DemandMatrix` asks, in uplinks
    degree : uplinks of a node, at least 1
    fill : bool
        Also raise rows and columns towards `degree`, as far as 100 sweeps of Sinkhorn scaling get; otherwise no entry
        is raised, and a matrix in the hose model stays as it is.
    absent : what a pair without demand gets before the scaling, at least 0, in uplinks; 0 keeps it absent
    """
    if degree < 1 or not 0 <= absent < np.inf:
        raise ForetailError(
            f"degree is {degree} and absent is {absent}: give at least 1 uplink and a finite absent >= 0"
        )
    checked = DemandMatrix(matrix)
    demand = np.where(checked.demand > 0, checked.demand, absent * (1 - np.eye(checked.nodes)))
    for _ in range(_SWEEPS if fill else 0):
        for axis in (1, 0):
            sums = demand.sum(axis=axis, keepdims=True)
            demand = degree * (demand / np.where(sums > 0, sums, 1.0))
    for axis in (1, 0):  # lowering columns raises no row again
        demand = demand / np.maximum(1.0, demand.sum(axis=axis, keepdims=True) / degree)
    return DemandMatrix(np.ascontiguousarray(demand))
