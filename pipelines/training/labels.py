"""The labels that a predictor learns from: those of the datasets, of another victim rule, or reassigned ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.training import Labels
from foretail.core.errors import ForetailError
from foretail.features.dataset.schema import Victim
from foretail.features.rows.splits import Side
from foretail.models.drop.reassignment import best_reassignment, reassignments
from foretail.pipelines.training.scores import side_push_outs
from foretail.sim_bridge.open_loop.push_outs import push_outs

Model = TypeVar("Model")
SideLabels = list[NDArray[np.bool_]]
"""Of every selection of a side: bool[rows]."""


def training_labels(
    config: Labels,
    side: Side,
    fit: Callable[[SideLabels], Model],
    score: Callable[[Model], NDArray[np.float64]],
    worth: Callable[[Model], float],
) -> tuple[SideLabels | None, list[dict[str, Any]]]:
    """Return the labels to train on, None for those of the datasets, and what every reassignment was worth.

    ForetailError when the runs are not whole traces, or reassignment is wanted for victims other than the tail.

    Parameters
    ----------
    side : the training rows
    fit, score, worth : callable
        As of :func:`foretail.models.drop.reassignment.reassignments`; `worth` is by the labels of the datasets.
    """
    if config.reassign:
        if config.rule not in (None, "tail"):
            raise ForetailError(f"labels.rule={config.rule} cannot be reassigned: set labels.rule=tail, or reassign=0")
        known = side_push_outs(side)
        if known is None:
            raise ForetailError(
                "labels.reassign needs whole traces with tail victims: split by run, and set "
                "scenario.rules.victim=tail and scenario.queues.count=1"
            )
        ends = np.cumsum([selection.dataset.manifest.rows for selection in side])[:-1]
        rounds = reassignments(known, config.reassign, lambda labels: fit(np.split(labels, ends)), score, worth)
        best = best_reassignment(rounds)
        return np.split(best.lqd_drop, ends), [{"moved": one.moved, "validation_f1": one.worth} for one in rounds]
    if config.rule is None or all(item.dataset.manifest.rules.victim == config.rule for item in side):
        return None, []
    if any(selection.where is not None for selection in side):
        raise ForetailError(f"labels.rule={config.rule} is found by replaying whole runs: split by run")
    return [push_outs(item.dataset, cast(Victim, config.rule)).lqd_drop for item in side], []
