"""The demand predictor interface: what a model must do to be trained on runs and to forecast the next matrix.

A new predictor subclasses :class:`DemandPredictor`, declares its parameters, and passes
``foretail.testing.check_demand_predictor``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.core.plugins import require_numbers, running
from foretail.features.demand.matrix import DemandMatrix, DemandSequence
from foretail.models.drop.predictor import Parameterised


def into_hose(matrix: npt.NDArray[np.float64], degree: int) -> DemandMatrix:
    """Return the matrix scaled so that no row and no column sums to more than `degree`; no entry is raised.

    ForetailError on a matrix or a degree out of range.

    Parameters
    ----------
    matrix : float64[n, n], as :class:`DemandMatrix` asks, in uplinks
    degree : uplinks of a node, at least 1
    """
    if degree < 1:
        raise ForetailError(f"degree is {degree}: give at least 1 uplink")
    demand = DemandMatrix(matrix).demand
    for axis in (1, 0):  # lowering columns raises no row again
        demand = demand / np.maximum(1.0, demand.sum(axis=axis, keepdims=True) / degree)
    return DemandMatrix(np.ascontiguousarray(demand))


FloatArray = npt.NDArray[np.float64]


class DemandPredictor(Parameterised, ABC):
    """Predicts, from the demand matrices of the past intervals, that of the next.

    Parameters are fields and only stored; :meth:`fit` checks them and learns, and what it learns ends in an
    underscore. A prediction depends on the history it is given and on nothing else, earlier predictions included.
    Subclasses implement `_fit` and `_predict`, which receive checked input, and, if they learn, `learned` and
    `restore`, through which ``predictor_file`` writes and reads them. What a subclass from another package returns is
    checked too, and whatever it raises becomes one sentence that names it.
    """

    def fit(self, sequences: Sequence[DemandSequence]) -> Self:
        """Learn from whole runs.

        `sequences`: at least one, all with the same nodes and interval. ForetailError on a parameter outside its
        constraint, no sequences, sequences that differ in nodes or interval, or too short ones.
        """
        self.check_parameters()
        if len({(sequence.nodes, sequence.interval_ns) for sequence in sequences}) != 1:
            raise ForetailError(
                f"the {len(sequences)} training sequences do not have one number of nodes and one interval: give at "
                f"least one, all alike"
            )
        if max(map(len, sequences)) < 2:
            step = f" of interval_ns={sequences[0].interval_ns:,}" if sequences[0].interval_ns > 1 else ""
            remedy = "give longer runs" + (", times in nanoseconds, or a lower interval_ns" if step else "")
            raise ForetailError(f"no training sequence has a second step{step} to predict: {remedy}")
        with running(self, "fit"):  # a sequence is read-only, so nothing can change it
            self._fit([sequence.demand for sequence in sequences])
        self.nodes_ = sequences[0].nodes
        return self

    def predict(self, history: FloatArray, degree: int) -> DemandMatrix:
        """Return the next matrix, in the hose model.

        ForetailError before `fit`, or on another history or a degree below 1.

        Parameters
        ----------
        history : float64[steps, n, n]
            At least one matrix, oldest first, of the nodes of the training; more than a predictor looks at are fine,
            and so are fewer.
        degree : uplinks of a node
        """
        return into_hose(self.unprojected(history), degree)

    def unprojected(self, history: FloatArray) -> FloatArray:
        """Return the next matrix before its projection into the hose model: float64[n, n] >= 0, diagonal 0.

        `history` is as for :meth:`predict`. ForetailError as :meth:`predict`.
        """
        self.require_fit()
        past = DemandSequence(history, 1, "history")
        if past.nodes != self.nodes_:
            raise ForetailError(f"the history has {past.nodes} nodes, the training had {self.nodes_}: give those")
        with running(self, "predict"):
            predicted = self._predict(past.demand)
        predicted = require_numbers(self, "predict", predicted, (self.nodes_, self.nodes_))
        return np.maximum(predicted, 0.0) * (1 - np.eye(self.nodes_))

    def require_fit(self) -> None:
        """Raise ForetailError before `fit`."""
        if not hasattr(self, "nodes_"):
            raise ForetailError(f"the {type(self).__name__} is not trained: call fit first")

    @abstractmethod
    def _fit(self, runs: list[FloatArray]) -> None: ...

    @abstractmethod
    def _predict(self, history: FloatArray) -> FloatArray: ...

    def learned(self) -> dict[str, Any]:
        """Return what `fit` learned, besides the number of nodes, as JSON values."""
        return {}

    def restore(self, learned: Mapping[str, Any]) -> None:
        """Take what :meth:`learned` returned, after `nodes_`; ValueError, KeyError or TypeError on anything else."""


def finite_array(values: Any, shape: tuple[int, ...]) -> FloatArray:
    """Return nested lists of finite numbers as float64 of this shape; ValueError on anything else."""
    array = np.array(values)
    if array.shape != shape or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        raise ValueError(f"numbers of shape {array.shape} where {shape} finite ones are due")
    return np.ascontiguousarray(array, np.float64)


def windows(run: FloatArray, length: int) -> FloatArray:
    """Return what was known before every step but the first, and after the last.

    `run` is float64[steps, ...], `length` at least 1. Before the first step its value is repeated. Returns
    float64[steps, length, ...]: entry t holds the last `length` steps up to and with t, oldest first.
    """
    known = np.concatenate([np.repeat(run[:1], length - 1, axis=0), run])
    return np.stack([known[lag : lag + len(run)] for lag in range(length)], axis=1)


def examples(runs: Sequence[FloatArray], length: int) -> tuple[FloatArray, FloatArray]:
    """Return windows of training runs and what followed each.

    Windows that reach back before the first step of a run are left out, but for one in runs that are too short.

    Returns float64[rows, length, ...] and float64[rows, ...].
    """
    first = [max(0, min(length - 1, len(run) - 2)) for run in runs]
    past = [windows(run, length)[start:-1] for start, run in zip(first, runs, strict=True)]
    return np.concatenate(past), np.concatenate([run[start + 1 :] for start, run in zip(first, runs, strict=True)])
