"""What a drop predictor says of every row of a split, and what that is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretail.features import splits
from foretail.features.catalog import training_columns
from foretail.features.history import Window
from foretail.features.labelled_rows import ALONE, row_batches
from foretail.models.ensemble import Ensemble, FeatureInput
from foretail.models.metrics import Score, scores
from foretail.pipelines.inputs import feature_inputs, in_window
from foretail.sim_bridge.replay import ReplayScores, replay_scores

if TYPE_CHECKING:  # it needs packages of its own
    from foretail.models.network import Network


@dataclass(frozen=True)
class Labelled:
    """A split as a predictor sees it.

    Attributes
    ----------
    split : its sides
    inputs, columns : the predictor's inputs, and the columns of the datasets that they come from
    ports : the most of any switch, N of the closed form
    window : other arrivals that the predictor sees
    """

    split: splits.Split
    inputs: tuple[FeatureInput, ...]
    columns: tuple[str, ...]
    ports: int
    window: Window

    @classmethod
    def of(cls, split: splits.Split, names: Sequence[str], own_queues: bool, window: Window = ALONE) -> Labelled:
        """Return the split for features of these names."""
        columns = training_columns(names, own_queues)
        datasets = [selection.dataset for side in splits.SIDES for selection in getattr(split, side)]
        ports = max(switch.ports for dataset in datasets for switch in dataset.manifest.switches)
        inputs = in_window(feature_inputs(names, datasets), window)
        return cls(split, inputs, tuple(columns), ports, window)


@dataclass(frozen=True, eq=False)
class JudgedSide:
    """A model on every row of a side.

    Attributes
    ----------
    lqd_drop, predicted : bool[rows]
    asked : bool[rows], or None where nobody knows where Credence asks
    probability : float64[rows]
    """

    lqd_drop: NDArray[np.bool_]
    asked: NDArray[np.bool_] | None
    predicted: NDArray[np.bool_]
    probability: NDArray[np.float64]

    def scores(self, ports: int) -> dict[str, dict[str, Score]]:
        """By region."""
        return scores(self.lqd_drop, self.predicted, ports=ports, score=self.probability, asked=self.asked)


@dataclass(frozen=True)
class Judged:
    """A model on a split.

    Attributes
    ----------
    sides : by name
    scores : by side and region
    replay : scores of the test runs, replayed; None when a side is no whole run
    """

    sides: Mapping[str, JudgedSide]
    scores: Mapping[str, Mapping[str, Mapping[str, Score]]]
    replay: dict[str, Any] | None


def judge(model: Ensemble | Network, labelled: Labelled) -> Judged:
    """Score a model on every side, and replay the test runs with it; no features stay in memory."""
    sides = {side: judge_side(model, getattr(labelled.split, side), labelled) for side in splits.SIDES}
    return Judged(
        sides,
        {name: side.scores(labelled.ports) for name, side in sides.items()},
        _replayed(labelled.split.test, sides["test"].predicted),
    )


def judge_side(model: Ensemble | Network, side: splits.Side, labelled: Labelled) -> JudgedSide:
    """Return what a model says of every row of a side."""
    found = [
        JudgedSide(rows.lqd_drop, rows.asked, model.exceeds(rows.x), model.probability(rows.x))
        for rows in row_batches(side, labelled.columns, window=labelled.window)
    ]
    return JudgedSide(
        np.concatenate([part.lqd_drop for part in found]),
        None if found[0].asked is None else np.concatenate([part.asked for part in found if part.asked is not None]),
        np.concatenate([part.predicted for part in found]),
        np.concatenate([part.probability for part in found]),
    )


def replay_scores_of(name: str, judged: Judged) -> dict[str, Mapping[str, Mapping[str, Score]]]:
    """What MLflow keeps of a replay, under a name; empty without one."""
    if judged.replay is None:
        return {}
    return {name: {"whole": {key: judged.replay[key] for key in ("eta", "recovered_loss")}}}


def _replayed(test: splits.Side, predicted: NDArray[np.bool_]) -> dict[str, Any] | None:
    """Replay scores of the test runs together.

    None when a side is a stretch of a run, which has no run of its own, or nothing that can be replayed.
    """
    if any(selection.where is not None or not selection.dataset.is_trace for selection in test):
        return None
    runs: list[ReplayScores] = []
    first = 0
    for selection in test:
        rows = selection.dataset.manifest.rows
        runs.append(replay_scores(selection.dataset, predicted[first : first + rows]))
        first += rows
    total = ReplayScores.together(runs)
    inverse = None if total.eta is None else 1 / total.eta
    return asdict(total) | {"eta": total.eta, "inverse_eta": inverse, "recovered_loss": total.recovered_loss}
