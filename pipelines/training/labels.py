"""The labels that a predictor learns from: those of the datasets, or of another victim rule."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.training import Labels
from foretail.core.errors import ForetailError
from foretail.features.dataset.schema import Victim
from foretail.features.rows.splits import Side
from foretail.sim_bridge.open_loop.push_outs import push_outs

SideLabels = list[NDArray[np.bool_]]
"""Labels of every selection of a side: bool[rows]."""


def training_labels(config: Labels, side: Side) -> SideLabels | None:
    """Return the labels to train on, None for those of the datasets; ForetailError when the runs are not whole."""
    if config.rule is None or all(item.dataset.manifest.rules.victim == config.rule for item in side):
        return None
    if any(selection.where is not None for selection in side):
        raise ForetailError(f"labels.rule={config.rule} is found by replaying whole runs: split by run")
    return [push_outs(item.dataset, cast(Victim, config.rule)).lqd_drop for item in side]
