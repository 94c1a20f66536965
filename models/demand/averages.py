"""Demand predictors that repeat or average the past."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretail.core.settings import setting
from foretail.models.demand.predictor import DemandPredictor, FloatArray


@dataclass(eq=False)
class LastValue(DemandPredictor):
    """The next matrix is the last one.

    Examples
    --------
    >>> from foretail.features.demand.matrix import DemandSequence
    >>> history = np.array([[[0, 1], [1, 0]], [[0, 0.5], [0.5, 0]]])
    >>> float(LastValue().fit([DemandSequence(history, 1000, "a")]).predict(history, degree=1).demand[0, 1])
    0.5
    """

    def _fit(self, runs: list[FloatArray]) -> None: ...

    def _predict(self, history: FloatArray) -> FloatArray:
        last: FloatArray = history[-1]
        return last


@dataclass(eq=False)
class MovingAverage(DemandPredictor):
    """The next matrix is the mean of the last ones."""

    window: int = setting(8, at_least=1, at_most=10**6)  #: how many matrices

    def _fit(self, runs: list[FloatArray]) -> None: ...

    def _predict(self, history: FloatArray) -> FloatArray:
        mean: FloatArray = history[-self.window :].mean(axis=0)
        return mean


@dataclass(eq=False)
class Seasonal(DemandPredictor):
    """The next matrix is that of one period ago, or the last one in a shorter history.

    Attributes
    ----------
    period_ : the period in steps, given or learned

    Examples
    --------
    >>> Seasonal(period=6).period
    6
    """

    #: in steps; None: the shortest with a squared error on the training runs within a quarter of the least, for with
    #: noise its multiples are as good
    period: int | None = setting(None, at_least=1, at_most=10**6)
    longest: int = setting(64, at_least=1, at_most=10**6)  #: the longest period that is tried for None

    def _fit(self, runs: list[FloatArray]) -> None:
        longest = min(self.longest, max(map(len, runs)) // 2)
        errors = [_mean_square(runs, period) for period in range(1, max(longest, 1) + 1)]
        shortest = 1 + next(index for index, error in enumerate(errors) if error <= 1.25 * min(errors))
        self.period_ = shortest if self.period is None else self.period

    def _predict(self, history: FloatArray) -> FloatArray:
        earlier: FloatArray = history[-self.period_ if len(history) >= self.period_ else -1]
        return earlier

    def learned(self) -> dict[str, Any]:
        """Return the period."""
        return {"period": self.period_}

    def restore(self, learned: Mapping[str, Any]) -> None:
        if type(learned["period"]) is not int or not 1 <= learned["period"] <= 10**6:
            raise ValueError(f"a period of {learned['period']!r}")
        self.period_ = learned["period"]


def _mean_square(runs: list[FloatArray], period: int) -> float:
    """Mean squared difference of all steps that are a period apart."""
    differences = [((run[period:] - run[:-period]) ** 2).mean(axis=(1, 2)) for run in runs if len(run) > period]
    return float(np.concatenate(differences).mean())
