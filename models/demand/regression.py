"""Demand predictors that learn: entries from their own past, by ridge regression or trees, or a few patterns."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from foretail.core.settings import setting
from foretail.models.demand.predictor import DemandPredictor, FloatArray, examples, finite_array, windows
from foretail.models.ensemble.ensemble import FLOAT32_BITS, MAX_TREES, Ensemble, FeatureInput
from foretail.models.ensemble.frontends import regressor_from_xgboost

_INPUT_BITS = FLOAT32_BITS
_MOST_FRACTION_BITS = 48


@dataclass(eq=False)
class LinearEntries(DemandPredictor):
    """Each entry is a linear function of its own last values: ridge regression.

    Attributes
    ----------
    weight_ : float64[n * n, window + 1]
        Of the last values of each pair, oldest first, and then the intercept; equal rows when shared.
    """

    window: int = setting(8, at_least=1, at_most=1024)  #: last values that count
    #: on the squared weights, relative to the mean square of the training demand
    penalty: float = setting(1e-4, at_least=1e-12, at_most=1e6)
    #: one function for all pairs, which holds wherever a job is placed, or one for each pair
    shared: bool = setting(False)

    def _fit(self, runs: list[FloatArray]) -> None:
        nodes = runs[0].shape[1]
        past, following = examples([run.reshape(len(run), -1) for run in runs], self.window)
        scale = np.sqrt((following**2).mean()) or 1.0
        if self.shared:
            pairs = ~np.eye(nodes, dtype=bool).ravel()
            rows = past[:, :, pairs].transpose(0, 2, 1).reshape(-1, self.window)
            weight = ridge(rows / scale, following[:, pairs].reshape(-1, 1) / scale, self.penalty)
            weight[-1] *= scale
            self.weight_ = np.broadcast_to(weight.T, (nodes**2, self.window + 1))
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
        predicted: FloatArray = np.einsum("wp,pw->p", last, self.weight_[:, :-1]) + self.weight_[:, -1]
        return predicted.reshape(history.shape[1:])

    def learned(self) -> dict[str, Any]:
        """Return the weights, one row when shared."""
        return {"weight": (self.weight_[:1] if self.shared else self.weight_).tolist()}

    def restore(self, learned: Mapping[str, Any]) -> None:
        pairs = self.nodes_**2
        weight = finite_array(learned["weight"], (1 if self.shared else pairs, self.window + 1))
        self.weight_ = np.broadcast_to(weight, (pairs, self.window + 1))


@dataclass(eq=False)
class BoostedEntries(DemandPredictor):
    """Gradient-boosted trees, the same for all pairs, in steps of XGBoost.

    Inputs are the last values of the pair and of the opposite pair, and what its source sends and its destination
    receives in the last step: integers, in units of ``2**-fraction_bits_`` uplinks, at most 2**24 - 1. Every value of
    the history is rounded to such a unit before anything else, so a trained predictor is an ensemble of integer inputs
    that predicts without XGBoost and reaches C exactly.

    Attributes
    ----------
    fraction_bits_ : in [0, 48]: the largest input of the training is below 2**23 units
    ensemble_ : the demand of a pair, in uplinks
    """

    window: int = setting(8, at_least=1, at_most=1024)  #: last values that count
    trees: int = setting(100, at_least=1, at_most=MAX_TREES)
    depth: int = setting(4, at_least=1, at_most=32)
    learning_rate: float = setting(0.3, at_least=1e-6, at_most=1)
    seed: int = setting(1, at_least=0, at_most=2**31 - 1)  #: same seed and runs, same trees

    def _fit(self, runs: list[FloatArray]) -> None:
        import xgboost

        pairs = ~np.eye(runs[0].shape[1], dtype=bool)
        past, following = examples(runs, self.window)
        busiest = max(float(max(run.sum(axis=1).max(), run.sum(axis=2).max())) for run in runs)
        self.fraction_bits_ = min(max(_INPUT_BITS - 1 - math.frexp(busiest)[1], 0), _MOST_FRACTION_BITS)
        table = self.inputs(past)[:, pairs]
        unit = math.ldexp(1.0, math.frexp(following.max())[1])  # a power of two, so that the leaves scale exactly
        settings = {
            "max_depth": self.depth,
            "eta": self.learning_rate,
            "seed": self.seed,
            "tree_method": "hist",
            "nthread": 1,  # more would add in an order of their own
        }
        rows = xgboost.DMatrix(
            table.reshape(-1, table.shape[-1]).astype(np.float32), following[:, pairs].ravel() / unit
        )
        booster = xgboost.train(settings, rows, self.trees)
        regressor = regressor_from_xgboost(booster, _features(self.window))
        trees = tuple(replace(tree, value=tree.value * unit) for tree in regressor.trees)
        self.ensemble_ = replace(regressor, trees=trees, base=regressor.base * unit)

    def _predict(self, history: FloatArray) -> FloatArray:
        pairs = ~np.eye(history.shape[1], dtype=bool)
        columns = self.inputs(windows(history[-self.window :], self.window)[-1:])[0, pairs]
        predicted = np.zeros(history.shape[1:])
        predicted[pairs] = self.ensemble_.float_sum(columns)
        return predicted

    def learned(self) -> dict[str, Any]:
        """Return the unit of the inputs and the ensemble."""
        return {"fraction_bits": self.fraction_bits_, "ensemble": json.loads(self.ensemble_.to_json())}

    def restore(self, learned: Mapping[str, Any]) -> None:
        bits = learned["fraction_bits"]
        if type(bits) is not int or not 0 <= bits <= _MOST_FRACTION_BITS:
            raise ValueError(f"fraction_bits {bits!r}")
        ensemble = Ensemble.from_json(json.dumps(learned["ensemble"]), "its ensemble")
        if (ensemble.output, ensemble.features, ensemble.vote_bits) != ("value", _features(self.window), None):
            raise ValueError("an ensemble of other inputs or another output")
        self.fraction_bits_, self.ensemble_ = bits, ensemble

    def inputs(self, past: FloatArray) -> npt.NDArray[np.int64]:
        """Return the inputs of every pair: int64[steps, n, n, 2 window + 2] of float64[steps, window, n, n]."""
        top = (1 << _INPUT_BITS) - 1
        unit = math.ldexp(1.0, -self.fraction_bits_)
        known = np.rint(np.minimum(past, top * unit) / unit).astype(np.int64)
        last = known[:, -1]
        sent = np.broadcast_to(last.sum(axis=2)[:, :, np.newaxis], last.shape)
        received = np.broadcast_to(last.sum(axis=1)[:, np.newaxis, :], last.shape)
        own, opposite = np.moveaxis(known, 1, -1), np.moveaxis(known, 1, -1).swapaxes(1, 2)
        sums = np.minimum(np.stack([sent, received], axis=-1), top)
        return np.concatenate([own, opposite, sums], axis=-1)


def _features(window: int) -> tuple[FeatureInput, ...]:
    names = [f"{pair}_{lag}" for pair in ("own", "opposite") for lag in range(window, 0, -1)]
    return tuple(FeatureInput(name, "", _INPUT_BITS) for name in (*names, "sent", "received"))


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

    rank: int = setting(8, at_least=1, at_most=4096)  #: patterns; fewer where the training runs do not have as many
    window: int = setting(4, at_least=1, at_most=1024)  #: last steps that count
    #: on the squared weights of the recurrence, relative to the mean square of the patterns' weights
    penalty: float = setting(1e-4, at_least=1e-12, at_most=1e6)

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


def ridge(inputs: FloatArray, outputs: FloatArray, penalty: float) -> FloatArray:
    """Return the weights of a penalised least squares fit, the intercept free.

    `inputs` are float64[rows, columns], `outputs` float64[rows, targets]; `penalty` is above 0, per row. Returns
    float64[columns + 1, targets]: the last row is the intercept.
    """
    centre, level = inputs.mean(axis=0), outputs.mean(axis=0)
    spread = inputs - centre
    square = spread.T @ spread / len(inputs) + penalty * np.eye(inputs.shape[1])
    weight = np.linalg.solve(square, spread.T @ (outputs - level) / len(inputs))
    return np.concatenate([weight, (level - centre @ weight)[np.newaxis]])
