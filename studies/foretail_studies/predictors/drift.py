"""How far the distribution of a feature has moved between two sets of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError


def kolmogorov_smirnov(expected: NDArray[np.int32], actual: NDArray[np.int32]) -> float:
    """The largest distance of the two empirical distribution functions, in [0, 1].

    They are of one feature: int32[rows] and int32[others], at least one each, else ForetailError.
    """
    _require_rows(expected, actual)
    values = np.union1d(expected, actual)
    below = [np.searchsorted(np.sort(rows), values, side="right") / len(rows) for rows in (expected, actual)]
    return float(np.abs(below[0] - below[1]).max())


def population_stability_index(expected: NDArray[np.int32], actual: NDArray[np.int32], bins: int = 10) -> float:
    """Sum over bins of (a - e) ln(a / e), shares e and a of the two sets: at least 0, by custom large above 0.25.

    Bins end at quantiles of `expected`; half a row is added to each, so that none is empty. Errors as
    :func:`kolmogorov_smirnov`.
    """
    _require_rows(expected, actual)
    edges = np.unique(np.quantile(expected, np.arange(1, bins) / bins, method="inverted_cdf"))
    shares = []
    for values in (expected, actual):
        counts = np.bincount(np.searchsorted(edges, values, side="left"), minlength=len(edges) + 1) + 0.5
        shares.append(counts / counts.sum())
    return float(np.sum((shares[1] - shares[0]) * np.log(shares[1] / shares[0])))


def _require_rows(expected: NDArray[np.int32], actual: NDArray[np.int32]) -> None:
    if not len(expected) or not len(actual):
        raise ForetailError(
            f"{len(expected)} rows cannot be compared with {len(actual)}: collect longer runs, or more of them"
        )
