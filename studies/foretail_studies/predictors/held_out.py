"""Predictors on runs that they neither trained on nor were chosen by, one run at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from foretail.configs.schema.model_stages import TrainConfig
from foretail.core.code import code_digest
from foretail.features.catalog import training_columns
from foretail.features.dataset.reader import Dataset
from foretail.models.scoring.metrics import Confusion, rank
from foretail.pipelines.comparison.statistics import interval_text, mean_interval
from foretail.pipelines.data.simulation import KeepsRuns
from foretail.pipelines.exporting.deciding import decider_if_any
from foretail.pipelines.runs.points import Point, measure_points
from foretail.pipelines.runs.result import Cell
from foretail.pipelines.runs.store import Key, Store
from foretail.pipelines.settings.predictors import window_of
from foretail.pipelines.training.outcome import TrainResult
from foretail.pipelines.training.scores import judge_run
from foretail.sim_bridge.open_loop.replay import ReplayScores, replay_scores
from foretail.sim_bridge.open_loop.scores import SENT

POINT = "held_out"
ACCEPT = "always_accept"
"""Name of the candidate that never predicts a drop."""


@dataclass(frozen=True)
class HeldOut:
    """A predictor on one run."""

    candidate: str  #: which predictor
    condition: str  #: on which run
    seed: int  #: of the run
    seen: bool  #: whether it trained on other runs of the condition
    whole: Confusion  #: counts of all rows
    asked: Confusion  #: of those where Credence asks
    average_precision: float | None  #: of the asked region; None without drops in it
    replay: ReplayScores  #: data bytes that are sent while it decides

    @staticmethod
    def together(runs: Sequence[HeldOut]) -> dict[str, Cell]:
        """Several runs together, by the titles of columns: of the asked region unless whole."""
        whole, asked = (
            Confusion(*(sum(getattr(getattr(run, region), name) for run in runs) for name in ("tp", "fp", "tn", "fn")))
            for region in ("whole", "asked")
        )
        replay = ReplayScores.together([run.replay for run in runs])
        eta = replay.eta
        return {
            "precision": asked.precision,
            "recall": asked.recall,
            "F1": asked.f1,
            "F1 per run": interval_text(mean_interval([run.asked.f1 for run in runs]), ""),
            "average precision": mean_interval([run.average_precision for run in runs]).mean,
            "whole F1": whole.f1,
            "1/eta": None if eta is None else 1 / eta,
            "R": replay.recovered_loss,
            SENT: replay.sent_percent_of_lqd,
        }


def judge_held_out(
    config: KeepsRuns,
    runs: Sequence[Dataset],
    condition: str,
    seen: bool,
    trained: Mapping[str, TrainResult],
    configs: Mapping[str, TrainConfig],
) -> list[HeldOut]:
    """Judge every predictor, and one that always accepts, on each run of a condition; figures go to the store.

    The runs are of seeds that are on no other side; `configs` is what the predictors were trained with, by name.
    """
    code = code_digest("features", "models", "sim_bridge")

    def point(dataset: Dataset, name: str) -> Point:
        def measure(so_far: Any) -> Any:
            so_far("")
            return _measured(dataset, trained.get(name), configs.get(name))

        model = trained[name].model.sha256 if name in trained else None
        columns = trained[name].outcome["columns"] if name in trained else None
        key = {"model": model, "columns": columns, "dataset": dataset.manifest.content_sha256, "code": code}
        return Point(f"{name} on {condition}, seed {dataset.manifest.seed}", Key(POINT, key), measure)

    pairs = [(dataset, name) for dataset in runs for name in (ACCEPT, *trained)]
    points = [point(dataset, name) for dataset, name in pairs]
    measured = measure_points("held-out runs", points, Store(config.store_dir), config.jobs or 1)
    return [
        HeldOut(
            name,
            condition,
            dataset.manifest.seed,
            seen,
            Confusion(**one.found["whole"]),
            Confusion(**one.found["asked"]),
            one.found["average_precision"],
            ReplayScores(**one.found["replay"]),
        )
        for (dataset, name), one in zip(pairs, measured, strict=True)
    ]


def _measured(dataset: Dataset, trained: TrainResult | None, config: TrainConfig | None) -> dict[str, Any]:
    """Figures of one predictor, or of always accepting, on one run."""
    if trained is None or config is None:
        frame = dataset.frame(["lqd_drop", "shadow_asked"])
        labels, asked = frame["lqd_drop"].to_numpy(), frame["shadow_asked"].to_numpy()
        predicted, precision = np.zeros_like(labels), None
        replay = replay_scores(dataset, predicted)
    else:
        window = window_of(config.predictor, config.window)
        columns = training_columns(config.features.names, config.features.own_queues)
        decider = decider_if_any(trained.model, Store(config.store_dir))
        judged = judge_run(trained.model, dataset, columns, decider, window)
        labels, asked, predicted = judged.rows.lqd_drop, judged.asked, judged.rows.predicted
        precision = rank(labels[asked], judged.rows.probability[asked]).average_precision
        replay = judged.replay
    return {
        "whole": asdict(Confusion.count(labels, predicted)),
        "asked": asdict(Confusion.count(labels[asked], predicted[asked])),
        "average_precision": precision,
        "replay": asdict(replay),
    }
