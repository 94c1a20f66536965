"""What a drop predictor says of every row of a split, and what that is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.catalog import training_columns
from foretail.features.dataset.reader import Dataset
from foretail.features.rows import splits
from foretail.features.rows.history import ArrivalWindow
from foretail.features.rows.labelled_rows import ALONE, Rows, row_batches, stacked
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.scorers import served_by
from foretail.models.scoring.calibration import Calibration, calibration_scores
from foretail.models.scoring.metrics import RAISE_CONGESTION, Score, scores
from foretail.pipelines.data.inputs import feature_inputs, in_window
from foretail.sim_bridge.open_loop.baselines import judged as baselines_on
from foretail.sim_bridge.open_loop.baselines import tuned
from foretail.sim_bridge.open_loop.push_outs import PushOuts, push_outs
from foretail.sim_bridge.open_loop.replay import ReplayScores, bytes_without, queues_of, replay_scores, served_scores

if TYPE_CHECKING:  # it needs packages of its own
    from foretail.models.drop.network import Network


@dataclass(frozen=True)
class Labelled:
    """A split as a predictor sees it."""

    split: splits.Split  #: its sides
    inputs: tuple[FeatureInput, ...]  #: the predictor's inputs
    columns: tuple[str, ...]  #: the columns of the datasets that they come from
    ports: int  #: the most of any switch, N of the closed form
    window: ArrivalWindow  #: other arrivals that the predictor sees

    @classmethod
    def of(cls, split: splits.Split, names: Sequence[str], own_queues: bool, window: ArrivalWindow = ALONE) -> Labelled:
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
        inputs = in_window(feature_inputs(names, datasets), window)
        return cls(split, inputs, tuple(columns), ports, window)


@dataclass(frozen=True, eq=False)
class JudgedSide:
    """A model on every row of a side."""

    lqd_drop: NDArray[np.bool_]  #: bool[rows]
    asked: NDArray[np.bool_] | None  #: bool[rows], or None where nobody knows where Credence asks
    predicted: NDArray[np.bool_]  #: bool[rows]
    probability: NDArray[np.float64]  #: float64[rows]

    @property
    def regions(self) -> dict[str, Any]:
        """What chooses the rows of each region: all of them, and those where Credence asks, where that is known."""
        return {"whole": slice(None)} | ({} if self.asked is None else {"asked": self.asked})

    def scores(self, ports: int, push_outs: PushOuts | None = None) -> dict[str, dict[str, Score]]:
        """By region; with the push-outs of the rows also those of the best assignment."""
        return scores(
            self.lqd_drop,
            self.predicted,
            ports=ports,
            score=self.probability,
            asked=self.asked,
            best_assignment=None if push_outs is None else push_outs.assign(self.probability),
        )


@dataclass(frozen=True)
class Judged:
    """A model on a split."""

    sides: Mapping[str, JudgedSide]  #: by name
    scores: Mapping[str, Mapping[str, Mapping[str, Score]]]  #: by side and region
    replay: dict[str, Any] | None  #: scores of the test runs, replayed; None when a side is not a whole run


def judge(model: Ensemble | Network, labelled: Labelled) -> Judged:
    """Score a model on every side, and replay the test runs with it; no features stay in memory."""
    sides = {
        side: judge_side(model, getattr(labelled.split, side), labelled.columns, labelled.window)
        for side in splits.SIDES
    }
    best = {"test": side_push_outs(labelled.split.test)}
    return Judged(
        sides,
        {name: side.scores(labelled.ports, best.get(name)) for name, side in sides.items()},
        _replayed(labelled.split, model, sides["test"].predicted),
    )


def side_push_outs(side: splits.Side) -> PushOuts | None:
    """LQD's push-outs on the runs of a side; None where they are not known: stretches of runs, rows that are no trace,
    labels of another victim rule than tail, several queues per port or lossless ones."""
    runs = [item.dataset.manifest for item in side]
    if not _are_whole_traces(side) or not all(
        run.rules.takes_tails and queues_of(run).count == 1 and run.lossless is None for run in runs
    ):
        return None
    return PushOuts.together([push_outs(selection.dataset) for selection in side])


def judge_side(
    model: Ensemble | Network, side: splits.Side, columns: Sequence[str], window: ArrivalWindow = ALONE
) -> JudgedSide:
    """Return what a model says of every row of a side, from these columns of the datasets."""
    batches = (
        (rows.lqd_drop, rows.asked, model.exceeds(rows.x), model.probability(rows.x))
        for rows in row_batches(side, columns, window=window)
    )
    return JudgedSide(*stacked(batches, sum(selection.count() for selection in side)))


@dataclass(frozen=True, eq=False)
class JudgedRun:
    """A model on a whole run."""

    rows: JudgedSide  #: what it says of every row
    asked: NDArray[np.bool_]  #: bool[rows], where Credence asks
    replay: ReplayScores  #: data bytes of the replays with its predictions
    #: the same, but FollowLQD is spared only the drops that are predicted where Credence asks
    asked_replay: ReplayScores


def judge_run(
    model: Ensemble | Network, dataset: Dataset, columns: Sequence[str], window: ArrivalWindow = ALONE
) -> JudgedRun:
    """Score a model on a run that was held out from it, as a switch would ask it; `dataset` is a trace."""
    rows = judge_side(model, (splits.Selection(dataset),), columns, window)
    if rows.asked is None:
        raise TypeError("a trace knows where Credence asks")
    if (served := served_by(model)) is not None:
        own = served_scores(dataset, served)
        return JudgedRun(rows, rows.asked, own, own)
    replay = replay_scores(dataset, rows.predicted)
    heeded = (rows.predicted & rows.asked).astype(np.int8)
    return JudgedRun(rows, rows.asked, replay, replace(replay, followlqd_bytes=bytes_without(dataset, heeded, [1])[0]))


def calibrate(model: Ensemble | Network, validation: Rows, test: JudgedSide) -> dict[str, Any]:
    """A calibration of the model's probabilities on validation rows, and what it does on the test side, by region."""
    calibration = Calibration.fit(model.probability(validation.x), validation.lqd_drop)
    return {
        "points": calibration.points(),
        "test": {
            region: calibration_scores(calibration, test.lqd_drop[chosen], test.probability[chosen])
            for region, chosen in test.regions.items()
        },
    }


def replay_scores_of(name: str, judged: Judged) -> dict[str, Mapping[str, Mapping[str, Score]]]:
    """What MLflow keeps of a replay and of the baselines beside it, under a name; empty without one."""
    if judged.replay is None:
        return {}
    kept = ("recovered_loss", "sent_percent_of_lqd")
    beside = {one["policy"]: {key: one[key] for key in kept} for one in judged.replay["baselines"]}
    return {name: {"whole": {key: judged.replay[key] for key in ("eta", *kept)}, **beside}}


def _replayed(split: splits.Split, model: Ensemble | Network, predicted: NDArray[np.bool_]) -> dict[str, Any] | None:
    """Replay scores of the test runs together, and those of baselines that were tuned on the other runs.

    None when a side is a stretch of a run, which has no run of its own, or nothing that can be replayed.
    """
    test, others = split.test, (*split.train, *split.validation)
    if not _are_whole_traces(test):
        return None
    runs: list[ReplayScores] = []
    first = 0
    served = served_by(model)
    for selection in test:
        rows = selection.dataset.manifest.rows
        if served is None:
            runs.append(replay_scores(selection.dataset, predicted[first : first + rows]))
        else:
            runs.append(served_scores(selection.dataset, served))
        first += rows
    total = ReplayScores.together(runs)
    inverse = None if total.eta is None else 1 / total.eta
    beside = tuned([item.dataset for item in others]) if _are_whole_traces(others) else ()
    return asdict(total) | {
        "eta": total.eta,
        "inverse_eta": inverse,
        "recovered_loss": total.recovered_loss,
        "sent_percent_of_lqd": total.sent_percent_of_lqd,
        "policy": None if served is None else served.policy,
        "baselines": baselines_on([item.dataset for item in test], beside, total.lqd_bytes, total.accept_bytes),
    }


def _are_whole_traces(side: splits.Side) -> bool:
    return all(selection.where is None and selection.dataset.is_trace for selection in side)
