"""Choosing the probability threshold, on validation data only.

The threshold lies on the ensemble's exact sum, strictly between two consecutive attainable sums, so that no rounding,
neither the framework's nor ours, decides a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.models.ensemble.cells import Cells, distinct_rows, distinct_sums
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.scoring.metrics import RAISE_CONGESTION, Confusion, rank
from foretail.models.scoring.threshold_rules import F1, ThresholdCounts, ThresholdRule

MAX_CELLS = 1 << 20
"""Attainable sums are enumerated over cells up to here (about a second), beyond over the validation rows."""

TRIED_THRESHOLDS = 64
"""Each costs a replay of the validation runs where the worth is what is sent."""

_THRESHOLD_BITS = 20

ThresholdWorth = Callable[[Sequence[Fraction]], Sequence[float]]
"""Given increasing thresholds, what the predictor is worth with each of them."""


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold and what it scored on the rows it was chosen on."""

    threshold: Fraction  #: on the exact sum, for ``Ensemble.with_threshold``: drop iff the sum exceeds it
    probability: float  #: the same threshold as a drop probability, rounded
    confusion: Confusion  #: on the validation rows of the region
    #: between which sums the threshold lies: those of every input, or those of the validation rows
    attainable: Literal["cells", "rows"]


def choose_operating_point(
    ensemble: Ensemble,
    x: npt.ArrayLike,
    lqd_drop: npt.ArrayLike,
    region: npt.ArrayLike | None = None,
    worth: ThresholdWorth | ThresholdRule | None = None,
) -> OperatingPoint:
    """Return the best threshold on validation rows, by default that with the highest F1; of equals the lowest.

    The lowest because it misses the fewest drops, and a false negative weighs up to N - 1 times a false positive.
    Among the thresholds that part the validation rows alike, the middle of the widest gap between consecutive
    attainable sums is taken (the lowest of several). ForetailError when the region contains no drop, so that F1 is 0 at
    every threshold.

    Parameters
    ----------
    x : integer array [rows, features], validation rows, never test rows
    lqd_drop : bool array [rows], their labels
    region : bool array [rows], rows that count, such as the asked region; all without it
    worth : ThresholdWorth or ThresholdRule, optional
        What to maximise instead of F1. A rule judges every threshold, a callable up to 64 of them, among which is
        never to drop.
    """
    labels = np.asarray(lqd_drop)
    keys = ensemble.exact_key(x)
    if region is not None:
        keys, labels = keys[np.asarray(region)], labels[np.asarray(region)]
    require_drops(labels)
    first, level = distinct_rows(keys)
    sums = _integers(keys[first])
    cells = Cells.of(ensemble)
    over_cells = cells.count <= MAX_CELLS
    attainable = _integers(distinct_sums(ensemble, cells)[0]) if over_cells else sums
    unit = 1 << ensemble.scale_bits

    def threshold_below(place: int) -> Fraction:
        """Return a threshold that drops from this sum of the rows on."""
        if place < len(sums):
            high = int(sums[place])
            low = int(sums[place - 1]) if place else max((int(s) for s in attainable if s < high), default=high - unit)
        else:
            low = int(sums[-1])
            high = max(int(attainable[-1]), low) + unit
        return _middle_of_widest_gap(low, high, attainable.tolist()) / unit

    chosen, confusion = _best(labels, level, worth, threshold_below)
    threshold = threshold_below(chosen)
    return OperatingPoint(
        threshold,
        threshold_probability(ensemble.with_threshold(threshold)),
        confusion,
        "cells" if over_cells else "rows",
    )


def choose_network_threshold(
    probability: npt.NDArray[np.float64],
    lqd_drop: npt.ArrayLike,
    worth: ThresholdWorth | ThresholdRule | None = None,
) -> OperatingPoint:
    """Return the best threshold on a network's probabilities; of equals the lowest.

    It is the middle between two consecutive probabilities of the rows.

    Parameters
    ----------
    probability : float64[rows], of the validation rows
    lqd_drop, worth : as for :func:`choose_operating_point`, which also says what is raised
    """
    labels = np.asarray(lqd_drop)
    require_drops(labels)
    distinct, level = np.unique(probability, return_inverse=True)
    bounds = [0.0, *distinct.tolist(), 1.0]

    def threshold_below(place: int) -> Fraction:
        return Fraction((bounds[place] + bounds[place + 1]) / 2)

    chosen, confusion = _best(labels, level, worth, threshold_below)
    threshold = threshold_below(chosen)
    return OperatingPoint(threshold, float(threshold), confusion, "rows")


def require_drops(labels: npt.NDArray[np.bool_]) -> None:
    """Raise ForetailError when the labels of the validation rows, bool[rows], hold no drop."""
    if not labels.any():
        raise ForetailError(
            f"the {len(labels)} validation rows of the region hold no drop to choose by: {RAISE_CONGESTION}"
        )


def _best(
    labels: npt.NDArray[np.bool_],
    level: npt.NDArray[np.int64],
    worth: ThresholdWorth | ThresholdRule | None,
    threshold_below: Callable[[int], Fraction],
) -> tuple[int, Confusion]:
    """Return the least level that is best predicted to drop, one more than any if none is, and what it counts."""
    ranking = rank(labels, level)  # all levels, from the highest down
    tp, fp = (np.append(counts[::-1], 0) for counts in (ranking.tp, ranking.fp))
    rule = F1() if worth is None else worth
    if isinstance(rule, ThresholdRule):
        chosen = int(np.argmax(rule.values(ThresholdCounts.of(tp, fp))))
    else:
        chosen = _highest(tp + fp, lambda places: rule([threshold_below(place) for place in places]))
    positives, negatives = int(tp[0]), int(fp[0])
    at_threshold = int(tp[chosen]), int(fp[chosen])
    return chosen, Confusion(*at_threshold, negatives - at_threshold[1], positives - at_threshold[0])


def _highest(claimed: npt.NDArray[np.int64], worth: Callable[[list[int]], Sequence[float]]) -> int:
    """Return the best of levels at even steps of the logarithm of what they claim, then of those around it."""
    last = len(claimed) - 1
    values: dict[int, float] = {}

    def value(candidates: set[int]) -> None:
        ordered = sorted(candidates - values.keys())
        values.update(zip(ordered, worth(ordered), strict=True))

    steps = np.geomspace(1, max(int(claimed[0]), 2), TRIED_THRESHOLDS // 2)
    first = {last, *(int(np.argmin(np.abs(claimed - step))) for step in steps)}
    value(first)
    best = max(values, key=lambda c: (values[c], -c))
    below, above = max((c for c in first if c < best), default=0), min((c for c in first if c > best), default=last)
    value(set(np.linspace(below, above, TRIED_THRESHOLDS // 2).astype(int).tolist()))
    return max(values, key=lambda c: (values[c], -c))


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


def threshold_probability(ensemble: Ensemble) -> float:
    """Return the threshold of an ensemble as a drop probability, rounded."""
    total = float(ensemble.threshold)
    return total / len(ensemble.trees) if ensemble.output == "mean_probability" else float(1 / (1 + np.exp(-total)))


def at_probability(ensemble: Ensemble, probability: float) -> Ensemble:
    """Return an ensemble with the threshold at this drop probability, from 0 to 1."""
    from scipy.special import logit

    total = probability * len(ensemble.trees) if ensemble.output == "mean_probability" else float(logit(probability))
    return ensemble.with_threshold(Fraction(round(total * (1 << _THRESHOLD_BITS)), 1 << _THRESHOLD_BITS))


def constant_decision(ensemble: Ensemble, tau: int | None = None) -> bool | None:
    """Return True if an ensemble drops whatever its leaves add up to, False if it never does, else None.

    By its threshold, or with `tau` by its integer votes.
    """
    if tau is None:
        values = [[Fraction(value) for value in tree.value[tree.leaves].tolist()] for tree in ensemble.trees]
        base, limit = Fraction(ensemble.base), ensemble.threshold
    else:
        values = [[Fraction(vote) for vote in tree.require_votes()[tree.leaves].tolist()] for tree in ensemble.trees]
        base, limit = Fraction(0), Fraction(tau)
    least, most = (base + sum(chosen(of_tree) for of_tree in values) for chosen in (min, max))
    return True if least > limit else False if most <= limit else None
