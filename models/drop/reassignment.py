"""Training on the labels that a predictor would give itself, among those that LQD could have given.

LQD leaves the victim open, so many labellings of one trace are equally true (``sim_bridge/open_loop/push_outs.py``).
After each training the push-outs go to the packets with the highest scores, and the next training learns these labels:
Viterbi training, whose second step is exact, because the greedy choice also has the highest sum of log odds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from foretail.sim_bridge.open_loop.push_outs import PushOuts

Model = TypeVar("Model")
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Reassignment(Generic[Model]):
    """One training."""

    model: Model  #: what was trained
    lqd_drop: BoolArray  #: bool[rows], the labels that it learnt from
    moved: int  #: drops among them that the trace does not label so
    worth: float  #: what the model is worth on validation rows with the labels of the trace


def reassignments(
    push_outs: PushOuts,
    rounds: int,
    fit: Callable[[BoolArray], Model],
    score: Callable[[Model], npt.NDArray[np.float64]],
    worth: Callable[[Model], float],
) -> list[Reassignment[Model]]:
    """Train on the labels of the trace, then up to `rounds` times on reassigned ones; ends when no label moves.

    Parameters
    ----------
    push_outs : of all training rows, tail victims
    rounds : at least 0
    fit : trains on labels, bool[rows]
    score : what a model gives to every training row, float64[rows]
    worth : on validation rows, never on test rows
    """
    labels = push_outs.lqd_drop
    trained: list[Reassignment[Model]] = []
    for number in range(rounds + 1):
        model = fit(labels)
        moved = int(np.count_nonzero(labels & ~push_outs.lqd_drop))
        trained.append(Reassignment(model, labels, moved, worth(model)))
        if number == rounds:
            break
        reassigned = push_outs.assign(score(model))
        if np.array_equal(reassigned, labels):
            break
        labels = reassigned
    return trained


def best_reassignment(found: list[Reassignment[Model]]) -> Reassignment[Model]:
    """The one with the highest worth, of equals the earliest."""
    return max(found, key=lambda one: one.worth)
