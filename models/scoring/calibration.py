"""Calibrated probabilities: a monotone map from what a predictor says to the share of drops among such arrivals.

Isotonic regression on validation rows (Zadrozny and Elkan, KDD 2002). The map never falls, so a threshold decides the
same arrivals before and after it: the exported trees stay as they are, and the map goes beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.models.scoring.metrics import Score, brier_score, expected_calibration_error, rank

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Calibration(Summarised):
    """A map from [0, 1] to [0, 1], linear between points and constant outside them."""

    probability: FloatArray  #: float64[points], what the predictor says, increasing
    calibrated: FloatArray  #: float64[points], what that means, never falling

    @classmethod
    def fit(cls, probability: npt.ArrayLike, lqd_drop: npt.ArrayLike) -> Calibration:
        """Return the map that fits validation rows best in squares, among all that never fall.

        `probability` is float64[rows], in [0, 1], `lqd_drop` bool[rows], the label. ForetailError without rows.
        """
        from sklearn.isotonic import IsotonicRegression

        values, labels = np.asarray(probability, np.float64), np.asarray(lqd_drop)
        if values.shape != labels.shape or not len(values):
            raise ForetailError(
                f"{len(labels)} labels meet probabilities of shape {values.shape}: pass one per label, and at least one"
            )
        distinct = rank(labels, values)
        drops, others = np.diff(distinct.tp, prepend=0), np.diff(distinct.fp, prepend=0)
        fitted = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(
            distinct.score, drops / (drops + others), sample_weight=drops + others
        )
        return cls(fitted.X_thresholds_.astype(np.float64), fitted.y_thresholds_.astype(np.float64))

    def __call__(self, probability: npt.ArrayLike) -> FloatArray:
        """Return the calibrated probabilities: float64[rows] in [0, 1]."""
        return np.interp(np.asarray(probability, np.float64), self.probability, self.calibrated)

    def points(self) -> list[tuple[float, float]]:
        """Return the points, JSON-like."""
        return list(zip(self.probability.tolist(), self.calibrated.tolist(), strict=True))


def calibration_scores(
    calibration: Calibration, lqd_drop: npt.NDArray[np.bool_], probability: FloatArray
) -> dict[str, Score]:
    """Return the calibration errors of rows other than those of the fit, before and after, by name."""
    scores: dict[str, Score] = {}
    for when, values in (("raw", probability), ("calibrated", calibration(probability))):
        scores[f"{when}_brier_score"] = brier_score(lqd_drop, values)
        scores[f"{when}_expected_calibration_error"] = expected_calibration_error(lqd_drop, values)
    return scores
