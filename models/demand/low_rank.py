"""A demand predictor of few patterns: linear dynamics of the matrices' principal components."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretail.models.demand.predictor import DemandPredictor, FloatArray, examples, finite_array, windows
from foretail.models.demand.regression import ridge
from foretail.models.drop.predictor import parameter


@dataclass(eq=False)
class LowRank(DemandPredictor):
    """Whole matrices are sums of a few patterns, whose weights follow a linear recurrence.

    Source: Schmid, *Dynamic mode decomposition of numerical and experimental data*, J. Fluid Mech. 656 (2010), with
    the last steps instead of the last one.

    Attributes
    ----------
    patterns_ : float64[rank, n * n], orthonormal
    weight_ : float64[window * rank + 1, rank], of the last weights, oldest step first, and the intercept
    """

    rank: int = parameter(8, low=1, high=4096)  #: patterns; fewer where the training runs do not have as many
    window: int = parameter(4, low=1, high=1024)  #: last steps that count
    #: on the squared weights of the recurrence, relative to the mean square of the patterns' weights
    penalty: float = parameter(1e-4, low=1e-12, high=1e6)

    def _fit(self, runs: list[FloatArray]) -> None:
        flat = [run.reshape(len(run), -1) for run in runs]
        together = np.concatenate(flat)
        _, sizes, patterns = np.linalg.svd(together, full_matrices=False)
        present = int(np.count_nonzero(sizes > sizes[0] * 1e-12))
        self.patterns_ = np.ascontiguousarray(patterns[: max(1, min(self.rank, present))])
        weights = [run @ self.patterns_.T for run in flat]
        past, following = examples(weights, self.window)
        scale = np.sqrt((following**2).mean()) or 1.0
        self.weight_ = ridge(past.reshape(len(past), -1) / scale, following / scale, self.penalty)
        self.weight_[-1] *= scale

    def _predict(self, history: FloatArray) -> FloatArray:
        last = history[-self.window :].reshape(-1, history.shape[1] ** 2) @ self.patterns_.T
        predicted = windows(last, self.window)[-1].ravel() @ self.weight_[:-1] + self.weight_[-1]
        return np.asarray(predicted @ self.patterns_).reshape(history.shape[1:])

    def learned(self) -> dict[str, Any]:
        """Return the patterns and the recurrence."""
        return {"patterns": self.patterns_.tolist(), "weight": self.weight_.tolist()}

    def restore(self, learned: Mapping[str, Any]) -> None:
        rank = len(learned["patterns"])
        if not 1 <= rank <= self.rank:
            raise ValueError(f"{rank} patterns where rank is {self.rank}")
        self.patterns_ = finite_array(learned["patterns"], (rank, self.nodes_**2))
        self.weight_ = finite_array(learned["weight"], (self.window * rank + 1, rank))
