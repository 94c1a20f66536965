"""Consistency against robustness: what trust in a prediction wins when it is right and costs when it is wrong.

Source: Addanki, thesis, chapter 9. The noise of its figures 9.5 to 9.8 is specified by its standard deviation only;
here the matrix is scaled to a largest entry of 10 before noise is added, and negative demand becomes 0.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge.circuits.schedules.vermilion import consistency

FloatArray = npt.NDArray[np.float64]
Noise = Literal["additive", "multiplicative"]

_LARGEST_ENTRY = 10.0


def noisy(demand: DemandMatrix, deviation: float, kind: Noise, seed: int) -> DemandMatrix:
    """Return a wrong prediction of a matrix, scaled to a largest entry of about 10.

    ForetailError on a zero matrix, a negative deviation or an unknown kind.

    Parameters
    ----------
    demand : not zero
    deviation : float
        Standard deviation of independent normal noise, at least 0: ``max(0, m + N)`` off the diagonal, or
        ``m * max(0, 1 + N)``.
    kind : {'additive', 'multiplicative'}
    seed : same seed, same noise, up to its deviation
    """
    if deviation < 0 or kind not in ("additive", "multiplicative"):
        raise ForetailError(
            f"noise is {kind!r} with deviation {deviation}: choose additive or multiplicative and at least 0"
        )
    if demand.largest_sum == 0:
        raise ForetailError("the demand matrix is zero: there is nothing to predict")
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
    if largest_trust < 1 or not 0 <= robustness_floor <= 0.5:
        raise ForetailError(
            f"trust up to {largest_trust} with robustness of at least {robustness_floor}: choose at least 1, and a "
            f"floor between 0 and 0.5"
        )
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
