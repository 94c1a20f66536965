"""Scores of drop predictions against LQD's decisions (Credence, NSDI'24, Definition 1 and section 5).

Positive means drop. A score whose denominator is zero is None, in JSON null; nothing here divides by zero or prints a
zero as something else. Scores are given for the whole trace and for the asked region, the arrivals at which Credence
consults the predictor: most arrivals lie outside, and no prediction there has an effect.

Tests compare with scikit-learn. Its functions are not called, because each checks and counts all rows again: on
millions of rows that takes tens to hundreds of times as long, and the last digits of average precision differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised

RAISE_CONGESTION = (
    "raise incast.queries_per_second_per_server, incast.burst_fraction, background.load or traffic_ns of the scenario"
)
"""Advice that makes a trace hold drops, wherever there are too few of them."""

Score = int | float | None
SHOWN = ("precision", "recall", "f1", "average_precision", "accuracy", "closed_form_eta")
"""Scores in tables for people."""
BoolArray = npt.NDArray[np.bool_]

CHUNK_ROWS = 1 << 20
"""Rows that are sorted at a time: trees have few distinct scores, so that little is left of each chunk."""


@dataclass(frozen=True, repr=False)
class Confusion(Summarised):
    """Counts of predictions: `tp` predicted drop and LQD drops, `fp` predicted drop and LQD transmits, `tn`, `fn`.

    Examples
    --------
    >>> import numpy as np
    >>> Confusion.count(np.array([True, True, False, False]), np.array([True, False, True, False]))
    Confusion(tp=1, fp=1, tn=1, fn=1, precision=0.5, recall=0.5, f1=0.5)
    """

    tp: int
    fp: int
    tn: int
    fn: int

    also = ("precision", "recall", "f1")

    @classmethod
    def count(cls, lqd_drop: npt.ArrayLike, predicted_drop: npt.ArrayLike) -> Confusion:
        """Count two bool arrays of equal shape [rows]; raise ForetailError on another type or shape."""
        truth = _bools("lqd_drop", lqd_drop)
        predicted = _bools("predicted_drop", predicted_drop, truth)
        tp = int(np.count_nonzero(truth & predicted))
        positives, claimed = int(np.count_nonzero(truth)), int(np.count_nonzero(predicted))
        return cls(tp, claimed - tp, len(truth) - positives - claimed + tp, positives - tp)

    @property
    def rows(self) -> int:
        """Number of predictions."""
        return self.tp + self.fp + self.tn + self.fn

    @property
    def accuracy(self) -> float | None:
        """(TP + TN) / rows."""
        return _ratio(self.tp + self.tn, self.rows)

    @property
    def precision(self) -> float | None:
        """TP / (TP + FP), None when nothing is predicted to drop."""
        return _ratio(self.tp, self.tp + self.fp)

    @property
    def recall(self) -> float | None:
        """TP / (TP + FN), None when LQD drops nothing."""
        return _ratio(self.tp, self.tp + self.fn)

    @property
    def f1(self) -> float | None:
        """2 TP / (2 TP + FP + FN), None when neither LQD nor the predictor drops anything."""
        return _ratio(2 * self.tp, 2 * self.tp + self.fp + self.fn)

    @property
    def false_positive_rate(self) -> float | None:
        """FP / (FP + TN), None when LQD drops everything."""
        return _ratio(self.fp, self.fp + self.tn)

    def closed_form_eta(self, ports: int) -> float | None:
        """Return the paper's closed form of the prediction error eta, (TN + FP) / (TN - min((N - 1) FN, TN)).

        An estimate, not the upper bound that Theorem 2 claims (there are counterexamples); the artifact prints its
        inverse, with N = 20, as "1/eta". Replay gives eta itself. None when the denominator is 0. `ports`: N, ports
        that share the buffer, at least 1.
        """
        if ports < 1:
            raise ForetailError(
                f"the switch has {ports} ports: give the number of ports that share its buffer, at least 1"
            )
        return _ratio(self.tn + self.fp, self.tn - min((ports - 1) * self.fn, self.tn))

    def scores(self, ports: int) -> dict[str, Score]:
        """Return the counts and every score of them by name; `ports` as in :meth:`closed_form_eta`."""
        return {
            "rows": self.rows,
            "true_positives": self.tp,
            "false_positives": self.fp,
            "true_negatives": self.tn,
            "false_negatives": self.fn,
            "accuracy": self.accuracy,
            "precision": self.precision,
            "recall": self.recall,
            "f1": self.f1,
            "false_positive_rate": self.false_positive_rate,
            "closed_form_eta": self.closed_form_eta(ports),
        }


@dataclass(frozen=True, eq=False, repr=False)
class Ranking(Summarised):
    """Counts at every distinct score, from the highest down: predicting "drop" for scores of at least `score[i]`."""

    score: npt.NDArray[np.int64] | npt.NDArray[np.float64]  #: array [distinct], distinct scores, strictly decreasing
    tp: npt.NDArray[np.int64]  #: int64[distinct], drops with at least this score
    fp: npt.NDArray[np.int64]  #: int64[distinct], other rows with at least this score

    @property
    def average_precision(self) -> float | None:
        """Sum over distinct scores of (recall step) * precision; None when LQD drops nothing."""
        if not self.tp.size or not self.tp[-1]:
            return None
        steps = np.diff(self.tp, prepend=0)
        return float(np.sum(steps * (self.tp / (self.tp + self.fp))) / self.tp[-1])


def rank(lqd_drop: npt.ArrayLike, score: npt.ArrayLike) -> Ranking:
    """Return the counts at every distinct score; ForetailError on another type, shape, or a score that is not finite.

    `lqd_drop` is bool[rows], `score` int64 or float64[rows]: higher means more likely to drop.
    """
    truth = _bools("lqd_drop", lqd_drop)
    values = _alike(truth, np.asarray(score))
    if values.dtype.kind not in "iuf" or not np.all(np.isfinite(values)):
        raise ForetailError(f"the scores ({values.dtype}) must be finite numbers: check what the predictor returns")
    chunks = [slice(first, first + CHUNK_ROWS) for first in range(0, len(truth), CHUNK_ROWS)]
    if len(chunks) < 2 or 2 * len(np.unique(values[chunks[0]])) > CHUNK_ROWS:  # as a network's
        return _ranked(values, truth, ~truth)
    parts = [_ranked(values[chunk], truth[chunk], ~truth[chunk]) for chunk in chunks]
    steps = ([np.diff(getattr(part, name), prepend=0) for part in parts] for name in ("tp", "fp"))
    return _ranked(np.concatenate([part.score for part in parts]), *map(np.concatenate, steps))


def _ranked(values: npt.NDArray[Any], drops: npt.NDArray[Any], others: npt.NDArray[Any]) -> Ranking:
    order = np.argsort(values, kind="stable")[::-1]
    values = values[order]
    last = np.flatnonzero(np.append(values[1:] != values[:-1], len(values) > 0))
    return Ranking(values[last], *(np.cumsum(part[order], dtype=np.int64)[last] for part in (drops, others)))


def scores(
    lqd_drop: npt.ArrayLike,
    predicted_drop: npt.ArrayLike,
    *,
    ports: int,
    score: npt.ArrayLike | None = None,
    asked: npt.ArrayLike | None = None,
) -> dict[str, dict[str, Score]]:
    """Return every score of a prediction, for the whole trace and for the asked region.

    Returns region ('whole', 'asked') -> name -> int, float or None where undefined.

    Parameters
    ----------
    lqd_drop, predicted_drop : bool array [rows], LQD's decision and the prediction
    ports : N of the closed form
    score : int64 or float64 array [rows], what the predictions were cut from; adds `average_precision`
    asked : bool array [rows], whether Credence asks at this arrival; adds the region ``asked``
    """
    truth = _bools("lqd_drop", lqd_drop)
    predicted = _bools("predicted_drop", predicted_drop, truth)
    regions: dict[str, BoolArray | slice] = {"whole": slice(None)}
    if asked is not None:
        regions["asked"] = _bools("asked", asked, truth)
    values = None if score is None else _alike(truth, np.asarray(score))
    result: dict[str, dict[str, Score]] = {}
    for region, rows in regions.items():
        result[region] = Confusion.count(truth[rows], predicted[rows]).scores(ports)
        if values is not None:
            result[region]["average_precision"] = rank(truth[rows], values[rows]).average_precision
    return result


def _ratio(numerator: int, denominator: int) -> float | None:
    return numerator / denominator if denominator else None


def _bools(name: str, values: npt.ArrayLike, truth: BoolArray | None = None) -> BoolArray:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype != np.bool_:
        raise ForetailError(f"{name} has shape {array.shape} and type {array.dtype}: pass one bool per row")
    return array if truth is None else _alike(truth, array)


def _alike(truth: BoolArray, other: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if other.shape != truth.shape:
        raise ForetailError(f"{len(truth)} labels meet predictions of shape {other.shape}: pass one per label")
    return other


def drops_of(counts: Mapping[str, Score]) -> int:
    """How many rows are drops, from the counts of a region."""
    return int((counts["true_positives"] or 0) + (counts["false_negatives"] or 0))


def predicted_drops_of(counts: Mapping[str, Score]) -> int:
    """How many rows are predicted to drop, from the counts of a region."""
    return int((counts["true_positives"] or 0) + (counts["false_positives"] or 0))
