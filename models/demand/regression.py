"""Demand predictors that learn each entry from its own past: ridge regression and gradient-boosted trees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from foretail.features.errors import ForetailError
from foretail.models.demand.predictor import DemandPredictor, FloatArray, examples, windows
from foretail.models.predictor import Parameter

__all__ = ["BoostedEntries", "LinearEntries", "ridge"]


class LinearEntries(DemandPredictor):
    """Each entry is a linear function of its own last values: ridge regression.

    Parameters
    ----------
    window : int
        Last values that count.
    penalty : float
        On the squared weights, relative to the mean square of the training demand.
    shared : bool
        One function for all pairs, which holds wherever a job is placed, or one for each pair.

    Attributes
    ----------
    weight_ : float64[n * n, window + 1]
        Of the last values of each pair, oldest first, and then the intercept; equal rows when shared.
    """

    parameter_constraints: ClassVar[Mapping[str, Parameter]] = {
        "window": Parameter(int, low=1, high=1024),
        "penalty": Parameter(float, low=1e-12, high=1e6),
        "shared": Parameter(bool),
    }

    def __init__(self, window: int = 8, penalty: float = 1e-4, shared: bool = False) -> None:
        self.window = window
        self.penalty = penalty
        self.shared = shared

    def _fit(self, runs: list[FloatArray]) -> None:
        nodes = runs[0].shape[1]
        past, following = examples([run.reshape(len(run), -1) for run in runs], self.window)
        scale = np.sqrt((following**2).mean()) or 1.0
        if self.shared:
            pairs = ~np.eye(nodes, dtype=bool).ravel()
            rows = past[:, :, pairs].transpose(0, 2, 1).reshape(-1, self.window)
            weight = ridge(rows / scale, following[:, pairs].reshape(-1, 1) / scale, self.penalty)
            self.weight_ = np.repeat(weight.T, nodes**2, axis=0)
        else:
            self.weight_ = np.stack(
                [
                    ridge(past[:, :, pair] / scale, following[:, pair : pair + 1] / scale, self.penalty)[:, 0]
                    for pair in range(nodes**2)
                ]
            )
        self.weight_[:, -1] *= scale

    def _predict(self, history: FloatArray) -> FloatArray:
        last = windows(history[-self.window :], self.window)[-1].reshape(self.window, -1)
        found: FloatArray = np.einsum("wp,pw->p", last, self.weight_[:, :-1]) + self.weight_[:, -1]
        return found.reshape(history.shape[1:])


class BoostedEntries(DemandPredictor):
    """Gradient-boosted trees, the same for all pairs, in steps of XGBoost.

    Inputs are the last values of the pair and of the opposite pair, and what its source sends and its destination
    receives in the last step.

    Parameters
    ----------
    window : int
        Last values that count.
    trees, depth : int
    learning_rate : float
    seed : int
        Same seed and runs, same trees.

    Attributes
    ----------
    booster_ : xgboost.Booster
    unit_ : float
        The largest demand to learn, 1 for the trees.
    """

    parameter_constraints: ClassVar[Mapping[str, Parameter]] = {
        "window": Parameter(int, low=1, high=1024),
        "trees": Parameter(int, low=1, high=100_000),
        "depth": Parameter(int, low=1, high=32),
        "learning_rate": Parameter(float, low=1e-6, high=1),
        "seed": Parameter(int, low=0, high=2**31 - 1),
    }

    def __init__(
        self, window: int = 8, trees: int = 100, depth: int = 4, learning_rate: float = 0.3, seed: int = 1
    ) -> None:
        self.window = window
        self.trees = trees
        self.depth = depth
        self.learning_rate = learning_rate
        self.seed = seed

    def _fit(self, runs: list[FloatArray]) -> None:
        try:
            import xgboost
        except ImportError:
            raise ForetailError(
                "boosted demand predictors need the package xgboost: install it with pip install 'foretail[xgboost]'"
            ) from None
        pairs = ~np.eye(runs[0].shape[1], dtype=bool)
        past, following = examples(runs, self.window)
        table = self._columns(past)[:, pairs]
        self.unit_ = following.max() or 1.0
        settings = {
            "max_depth": self.depth,
            "eta": self.learning_rate,
            "seed": self.seed,
            "tree_method": "hist",
            "nthread": 1,  # more would add in an order of their own
        }
        rows = xgboost.DMatrix(
            table.reshape(-1, table.shape[-1]) / self.unit_, following[:, pairs].ravel() / self.unit_
        )
        self.booster_ = xgboost.train(settings, rows, self.trees)

    def _predict(self, history: FloatArray) -> FloatArray:
        pairs = ~np.eye(history.shape[1], dtype=bool)
        columns = self._columns(windows(history[-self.window :], self.window)[-1:])[0, pairs] / self.unit_
        found = np.zeros(history.shape[1:])
        found[pairs] = self.booster_.inplace_predict(columns).astype(np.float64) * self.unit_
        return found

    def _columns(self, past: FloatArray) -> FloatArray:
        """Inputs of every pair: float64[steps, n, n, 2 window + 2] of float64[steps, window, n, n]."""
        last = past[:, -1]
        sent = np.broadcast_to(last.sum(axis=2)[:, :, np.newaxis], last.shape)
        received = np.broadcast_to(last.sum(axis=1)[:, np.newaxis, :], last.shape)
        own, opposite = np.moveaxis(past, 1, -1), np.moveaxis(past, 1, -1).swapaxes(1, 2)
        return np.concatenate([own, opposite, sent[..., np.newaxis], received[..., np.newaxis]], axis=-1)


def ridge(inputs: FloatArray, outputs: FloatArray, penalty: float) -> FloatArray:
    """Return the weights of a penalised least squares fit, the intercept free.

    Parameters
    ----------
    inputs : float64[rows, columns]
    outputs : float64[rows, targets]
    penalty : float
        Above 0, per row.

    Returns
    -------
    float64[columns + 1, targets]
        The last row is the intercept.
    """
    centre, level = inputs.mean(axis=0), outputs.mean(axis=0)
    spread = inputs - centre
    square = spread.T @ spread / len(inputs) + penalty * np.eye(inputs.shape[1])
    weight = np.linalg.solve(square, spread.T @ (outputs - level) / len(inputs))
    return np.concatenate([weight, (level - centre @ weight)[np.newaxis]])
