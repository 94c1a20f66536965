"""Comparison of trees with the estimator that they were read from, rules outside of its trees included."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.core.plugins import FAILURES
from foretail.models.ensemble.cells import Cells
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.rounding import framework_sum, rounding_bound

_COMPARED = 100
"""Points of cells; each is compared once more for every input, with a zero there."""

MOST_ROWS = 1000
"""Most rows of data that are compared, or a few more."""


def tried_rows(bits: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return 4,000 random rows of inputs of so many bits, and rows of their ends: int64[rows, inputs]."""
    random, largest = np.random.default_rng(0), (1 << np.asarray(bits, np.int64)) - 1
    drawn = 2000, len(largest)
    uniform = random.integers(0, largest, drawn, endpoint=True)
    small = random.integers(0, largest >> random.integers(0, np.asarray(bits), drawn), endpoint=True)
    ends = np.where(random.random((64, len(largest))) < 0.5, largest, 0)
    return np.concatenate([np.zeros_like(largest[None]), largest[None], ends, uniform, small])


def with_zeros(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return int64[rows, inputs] `rows`, then each of them once more for every input, with a zero there."""
    zeros = np.repeat(rows[:, None], rows.shape[1], axis=1)
    zeros[:, np.arange(rows.shape[1]), np.arange(rows.shape[1])] = 0
    return np.concatenate([rows, zeros.reshape(-1, rows.shape[1])])


def require_agreement(
    ensemble: Ensemble,
    what: str,
    predict: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.bool_]],
    given: npt.ArrayLike | None = None,
) -> None:
    """Raise ForetailError where the trees decide otherwise than `predict`, beyond what the framework rounds.

    They are compared on 4,000 random rows, at zeros, at the largest inputs, on both sides of thresholds, and on given
    rows.

    Parameters
    ----------
    what : the estimator, for errors
    predict : its own decisions on int64[rows, inputs], bool[rows]; whatever it raises becomes a ForetailError
    given : integer array [rows, inputs], optional; rows of data, some of which are compared, clipped to the inputs
    """
    largest = np.array([[(1 << item.bits) - 1 for item in ensemble.features]])
    points = Cells.of(ensemble).sample(_COMPARED, np.random.default_rng(0))
    tried = tried_rows([item.bits for item in ensemble.features])
    rows = np.concatenate([with_zeros(np.concatenate([np.zeros_like(largest), largest, points])), tried])
    if given is not None:
        data = np.asarray(given)
        rows = np.concatenate([rows, np.clip(data[:: max(1, len(data) // MOST_ROWS)], 0, largest)])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that rows without a frame do not have
            drops = predict(rows)
    except MemoryError:
        raise
    except FAILURES as error:  # an estimator of a file raises whatever its parts raise
        raise ForetailError(f"the {what} cannot predict ({type(error).__name__}): save or train it again") from None
    far = np.abs(framework_sum(ensemble, rows) - float(ensemble.threshold)) > 2 * rounding_bound(ensemble)
    wrong = np.flatnonzero((ensemble.exceeds(rows) != drops) & far)
    if len(wrong):
        point = dict(zip((item.name for item in ensemble.features), rows[wrong[0]].tolist(), strict=True))
        own, trees = ("drops", "accept") if drops[wrong[0]] else ("accepts", "drop")
        raise ForetailError(
            f"the {what} {own} at {point} where its trees {trees}, so a rule outside of its trees decides, such as a "
            "missing value, a threshold or a calibration: train it without that rule"
        )
