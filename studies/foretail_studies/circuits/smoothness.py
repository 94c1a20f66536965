"""Smoothness of what a wrong prediction costs: throughput against the error of the predicted shape, fitted.

The thesis leaves open how smoothly throughput falls with the error (section 9.8.2). Three answers: the hyperbola
``at_zero / (1 + loss * error)``, a straight line, and the best function that never rises (isotonic regression), whose
steepest twentieth of the errors holds 5 % of its fall when it is a straight line and all of it when it jumps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import least_squares
from sklearn.isotonic import IsotonicRegression

from foretail.pipelines.runs.result import Table

FloatArray = npt.NDArray[np.float64]

FITTED = ("at_zero", "loss", "r2", "line_at_zero", "line_slope", "line_r2", "monotone_r2", "steepest_twentieth")
_GRID = 20


def smoothness(samples: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Fit ``theta`` over ``error_of_shape`` in every group; one row each, without those whose throughput is constant.

    `samples`: one row per sample, with the columns `by`, ``error_of_shape`` in [0, 1] and ``theta``. Returns columns
    `by`, ``largest_error``, and ``FITTED``; R^2 is the share of the variance over the samples.
    """
    rows = []
    for _, part in samples.groupby(list(by), sort=False):
        error, theta = part["error_of_shape"].to_numpy(float), part["theta"].to_numpy(float)
        if np.ptp(theta) > 1e-6 and len(np.unique(error)) > 2:
            first = part.iloc[0]
            rows.append({name: first[name] for name in by} | {"largest_error": float(error.max())} | _fit(error, theta))
    return pd.DataFrame(rows, columns=[*by, "largest_error", *FITTED])


def smoothness_table(fits: pd.DataFrame, by: Sequence[str], routing: str) -> Table:
    """Every fit, with what it says in a note."""
    columns = {
        **{name: name for name in by},
        "largest_error": "largest error",
        "at_zero": "at 0",
        "loss": "loss",
        "r2": "R^2",
        "line_slope": "line: slope",
        "line_r2": "R^2",
        "monotone_r2": "monotone: R^2",
        "steepest_twentieth": "steepest 5 %",
    }
    return Table.of_frame(
        f"Smoothness: {routing} throughput, without the duty cycle, by the error of shape",
        fits,
        columns,
        "Fitted to all samples: at 0 / (1 + loss x error), a line, and a function that never rises; of its fall, the "
        "share in the steepest 5 % of the errors: 0.05 if straight, 1 if it jumps.",
    )


def _fit(error: FloatArray, theta: FloatArray) -> dict[str, float]:
    variance = float(((theta - theta.mean()) ** 2).sum())

    def r2(fitted: FloatArray) -> float:
        return 1 - float(((theta - fitted) ** 2).sum()) / variance

    at_zero, loss = least_squares(
        lambda x: x[0] / (1 + x[1] * error) - theta, (theta.max(), 0.0), bounds=([0, -0.5], np.inf)
    ).x
    slope, intercept = np.polyfit(error, theta, 1)
    monotone = IsotonicRegression(increasing=False, out_of_bounds="clip").fit(error, theta)
    grid = monotone.predict(np.linspace(error.min(), error.max(), _GRID + 1))
    fall = float(grid[0] - grid[-1])
    fitted = (
        float(at_zero),
        float(loss),
        r2(at_zero / (1 + loss * error)),
        float(intercept),
        float(slope),
        r2(intercept + slope * error),
        r2(monotone.predict(error)),
        float(-np.diff(grid).min()) / fall if fall > 0 else 0.0,
    )
    return dict(zip(FITTED, fitted, strict=True))
