"""Choosing the probability threshold, on validation data only.

The threshold lies on the ensemble's exact sum, strictly between two consecutive attainable sums, so that no rounding,
neither the framework's nor ours, decides a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from foretail.features.errors import ForetailError
from foretail.models.cells import Cells, distinct_rows, distinct_sums
from foretail.models.ensemble import Ensemble
from foretail.models.metrics import Confusion, Ranking, rank
from foretail.models.predictor import RAISE_CONGESTION

__all__ = ["OperatingPoint", "choose_network_threshold", "choose_operating_point"]

MAX_CELLS = 1 << 20
"""Attainable sums are enumerated over cells up to here (about a second), beyond over the validation rows."""


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold and what it scored on the rows it was chosen on.

    Attributes
    ----------
    threshold : Fraction
        On the exact sum, for ``Ensemble.with_threshold``: drop iff the sum exceeds it.
    probability : float
        The same threshold as a drop probability, rounded.
    confusion : Confusion
        On the validation rows of the region.
    attainable : {'cells', 'rows'}
        Between which sums the threshold lies: those of every input, or those of the validation rows.
    """

    threshold: Fraction
    probability: float
    confusion: Confusion
    attainable: Literal["cells", "rows"]


def choose_operating_point(
    ensemble: Ensemble,
    x: npt.ArrayLike,
    lqd_drop: npt.ArrayLike,
    region: npt.ArrayLike | None = None,
) -> OperatingPoint:
    """Return the threshold with the highest F1 on validation rows; on ties the lowest.

    The lowest because it misses the fewest drops, and a false negative weighs up to N - 1 times a false positive.
    Among the thresholds that part the validation rows alike, the middle of the widest gap between consecutive
    attainable sums is taken (the lowest of several).

    Parameters
    ----------
    x : integer array [rows, features]
        Validation rows, never test rows.
    lqd_drop : bool array [rows]
        Their labels.
    region : bool array [rows], optional
        Rows that count, such as the asked region; all without it.

    Raises
    ------
    ForetailError
        When the region holds no drop, so that F1 is 0 at every threshold.
    """
    labels = np.asarray(lqd_drop)
    keys = ensemble.exact_key(x)
    if region is not None:
        keys, labels = keys[np.asarray(region)], labels[np.asarray(region)]
    _require_drops(labels)
    first, place = distinct_rows(keys)
    sums = _integers(keys[first])
    ranking = rank(labels, place)
    best = _highest_f1(ranking)
    chosen = int(ranking.score[best])

    high = int(sums[chosen])
    cells = Cells.of(ensemble)
    over_cells = cells.count <= MAX_CELLS
    attainable = _integers(distinct_sums(ensemble, cells)[0]) if over_cells else sums
    if chosen > 0:
        low = int(sums[chosen - 1])
    else:
        low = max((int(s) for s in attainable if s < high), default=high - (1 << ensemble.scale_bits))
    threshold = _middle_of_widest_gap(low, high, attainable.tolist()) / (1 << ensemble.scale_bits)

    return OperatingPoint(
        threshold,
        _probability(ensemble, threshold),
        _confusion(ranking, best, len(labels)),
        "cells" if over_cells else "rows",
    )


def choose_network_threshold(
    probability: npt.NDArray[np.float64], lqd_drop: npt.ArrayLike, region: npt.ArrayLike | None = None
) -> OperatingPoint:
    """Return the threshold on a network's probabilities with the highest F1 on validation rows; on ties the lowest.

    It is the middle between two consecutive probabilities of the rows.

    Parameters
    ----------
    probability : float64[rows]
        Of the validation rows.
    lqd_drop, region : bool array [rows]
        As for :func:`choose_operating_point`, which also says what is raised.
    """
    labels = np.asarray(lqd_drop)
    if region is not None:
        probability, labels = probability[np.asarray(region)], labels[np.asarray(region)]
    _require_drops(labels)
    ranking = rank(labels, probability)
    best = _highest_f1(ranking)
    high = float(ranking.score[best])
    low = float(ranking.score[best + 1]) if best + 1 < len(ranking.score) else 0.0
    threshold = (low + high) / 2
    return OperatingPoint(Fraction(threshold), threshold, _confusion(ranking, best, len(labels)), "rows")


def _require_drops(labels: npt.NDArray[np.bool_]) -> None:
    if not labels.any():
        raise ForetailError(
            f"the {len(labels)} validation rows of the region hold no drop to choose a threshold by: {RAISE_CONGESTION}"
        )


def _highest_f1(ranking: Ranking) -> int:
    f1 = 2 * ranking.tp / (ranking.tp + ranking.fp + ranking.tp[-1])
    return len(f1) - 1 - int(np.argmax(f1[::-1]))


def _confusion(ranking: Ranking, best: int, rows: int) -> Confusion:
    tp, fp = int(ranking.tp[best]), int(ranking.fp[best])
    positives = int(ranking.tp[-1])
    return Confusion(tp, fp, rows - positives - fp, positives - tp)


def _integers(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
    """Join limbs to Python ints: object[rows]."""
    total = keys[:, 0].astype(object)
    for limb in range(1, keys.shape[1]):
        total = total * (1 << 48) + keys[:, limb]
    return total


def _middle_of_widest_gap(low: int, high: int, attainable: Iterable[int]) -> Fraction:
    between = [low, *(s for s in attainable if low < s < high), high]
    width, start = max(((b - a, -a) for a, b in pairwise(between)))
    return Fraction(-2 * start + width, 2)


def _probability(ensemble: Ensemble, threshold: Fraction) -> float:
    total = float(threshold)
    return total / len(ensemble.trees) if ensemble.output == "mean_probability" else float(1 / (1 + np.exp(-total)))
