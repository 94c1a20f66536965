"""A drop predictor on every row of a split, and the packets that it sends when it decides in the switch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.catalog import training_columns
from foretail.features.dataset.reader import Dataset
from foretail.features.rows import splits
from foretail.features.rows.labelled_rows import row_batches, stacked
from foretail.models.ensemble.ensemble import FeatureInput
from foretail.models.ensemble.scorers import RowPredictor
from foretail.models.scoring.metrics import RAISE_CONGESTION, Score, scores
from foretail.pipelines.data.inputs import feature_inputs
from foretail.sim_bridge.open_loop.baselines import sent_by, tuned, worth_of
from foretail.sim_bridge.open_loop.replay import replay_scores
from foretail.sim_bridge.open_loop.scores import SENT_SCORES, Decider, SentScores


@dataclass(frozen=True)
class Labelled:
    """A split as a predictor sees it."""

    split: splits.Split  #: its sides
    inputs: tuple[FeatureInput, ...]  #: the predictor's inputs
    columns: tuple[str, ...]  #: the columns of the datasets that they come from
    ports: int  #: the most of any switch, N of the closed form

    @classmethod
    def of(cls, split: splits.Split, names: Sequence[str], own_queues: bool) -> Labelled:
        """Return the split for features of these names; raise ForetailError on a side of one class only."""
        for name in splits.SIDES:
            side: splits.Side = getattr(split, name)
            rows, drops = sum(item.count() for item in side), sum(item.drops() for item in side)
            if not drops:
                raise ForetailError(
                    f"the {rows} rows of the {name} side of the split hold no drop: give it more runs, or "
                    f"{RAISE_CONGESTION}"
                )
            if drops == rows:
                raise ForetailError(
                    f"all {rows} rows of the {name} side of the split are drops: lower background.load or "
                    "incast.burst_fraction of the scenario"
                )
        columns = training_columns(names, own_queues)
        datasets = [selection.dataset for side in splits.SIDES for selection in getattr(split, side)]
        ports = max(switch.ports for dataset in datasets for switch in dataset.manifest.switches)
        inputs = feature_inputs(names, datasets)
        return cls(split, inputs, tuple(columns), ports)


@dataclass(frozen=True, eq=False)
class JudgedSide:
    """A model on every row of a side."""

    lqd_drop: NDArray[np.bool_]  #: bool[rows]
    asked: NDArray[np.bool_] | None  #: bool[rows], or None where nobody knows where Credence asks
    predicted: NDArray[np.bool_]  #: bool[rows]
    probability: NDArray[np.float64]  #: float64[rows]

    @property
    def regions(self) -> dict[str, Any]:
        """Rows of each region: all of them, and those where Credence asks, where that is known."""
        return {"whole": slice(None)} | ({} if self.asked is None else {"asked": self.asked})

    def scores(self, ports: int) -> dict[str, dict[str, Score]]:
        """By region."""
        return scores(
            self.lqd_drop,
            self.predicted,
            ports=ports,
            score=self.probability,
            asked=self.asked,
        )


@dataclass(frozen=True)
class Judged:
    """A model on a split."""

    sides: Mapping[str, JudgedSide]  #: by name
    scores: Mapping[str, Mapping[str, Mapping[str, Score]]]  #: by side and region
    replay: dict[str, Any] | None  #: what is sent of the test runs; None when a side is not a whole run
    validation_replay: dict[str, Any] | None  #: the same of the validation runs, on which the threshold was chosen


def judge(model: RowPredictor, labelled: Labelled, decider: Decider | None) -> Judged:
    """Score a model on every side, and let it decide in the test runs; no features stay in memory."""
    sides = {side: judge_side(model, getattr(labelled.split, side), labelled.columns) for side in splits.SIDES}
    split = labelled.split
    return Judged(
        sides,
        {name: side.scores(labelled.ports) for name, side in sides.items()},
        _replayed(split.test, (*split.train, *split.validation), decider, sides["test"].predicted),
        _replayed(split.validation, split.train, decider, sides["validation"].predicted),
    )


def judge_side(model: RowPredictor, side: splits.Side, columns: Sequence[str]) -> JudgedSide:
    """Return what a model says of every row of a side, from these columns of the datasets."""
    batches = (
        (rows.lqd_drop, rows.asked, model.exceeds(rows.x), model.probability(rows.x))
        for rows in row_batches(side, columns)
    )
    return JudgedSide(*stacked(batches, sum(selection.count() for selection in side)))


@dataclass(frozen=True, eq=False)
class JudgedRun:
    """A model on a whole run."""

    rows: JudgedSide  #: what it says of every row
    asked: NDArray[np.bool_]  #: bool[rows], where a Credence asks that is told the true labels
    replay: SentScores  #: data bytes that are sent while it decides


def judge_run(
    model: RowPredictor,
    dataset: Dataset,
    columns: Sequence[str],
    decider: Decider | None,
) -> JudgedRun:
    """Score a model on a run that was held out from it, and let it decide there; `dataset` is a trace."""
    rows = judge_side(model, (splits.Selection(dataset),), columns)
    if rows.asked is None:
        raise TypeError("a trace knows where Credence asks")
    return JudgedRun(rows, rows.asked, _sent(dataset, rows.predicted, decider))


def replay_scores_of(name: str, replay: Mapping[str, Any] | None) -> dict[str, Mapping[str, Mapping[str, Score]]]:
    """Scores that MLflow keeps of a replay and of the baselines beside it, under a name; empty without one."""
    if replay is None:
        return {}
    beside = {one["policy"]: {key: one[key] for key in SENT_SCORES} for one in replay["baselines"]}
    return {name: {"whole": {key: replay[key] for key in ("eta", *SENT_SCORES)}, **beside}}


def _replayed(
    side: splits.Side, others: splits.Side, decider: Decider | None, predicted: NDArray[np.bool_]
) -> dict[str, Any] | None:
    """Bytes that are sent of the runs of a side while a model decides, and by baselines that were tuned on other runs.

    None when the side is a stretch of a run, which has no run of its own.
    """
    if not _are_whole_traces(side):
        return None
    ends = np.cumsum([selection.dataset.manifest.rows for selection in side])[:-1]
    predictions = zip(side, np.split(predicted, ends), strict=True)
    total = SentScores.together([_sent(one.dataset, drops, decider) for one, drops in predictions])
    beside = tuned([item.dataset for item in others]) if _are_whole_traces(others) else ()
    return {f"{name}_bytes": count for name, count in asdict(total).items()} | {
        "eta": total.eta,
        "inverse_eta": None if total.eta is None else 1 / total.eta,
        "recovered_loss": total.recovered_loss,
        "sent_percent_of_lqd": total.sent_percent_of_lqd,
        "policy": None if decider is None else decider.policy,
        "baselines": worth_of(beside, sent_by(beside, [item.dataset for item in side]), total.lqd, total.accept),
    }


def _sent(dataset: Dataset, predicted: NDArray[np.bool_], decider: Decider | None) -> SentScores:
    """Return what a model is worth on a run; without a decider nobody knows what it sends."""
    scores = replay_scores(dataset, predicted, decider)
    return scores if decider is not None else replace(scores, sent=None)


def _are_whole_traces(side: splits.Side) -> bool:
    return all(selection.where is None and selection.dataset.is_trace for selection in side)
