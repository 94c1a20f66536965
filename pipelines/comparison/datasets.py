"""Policies and predictions on recorded datasets, by replaying their arrivals in bytes and nanoseconds, open loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.packet_stages import ReplayConfig
from foretail.configs.schema.policies import BUFFER_POLICIES
from foretail.features.catalog import training_columns
from foretail.features.dataset.reader import Dataset
from foretail.models.scoring.metrics import scores
from foretail.pipelines.comparison.predictions import (
    ASKED,
    AskedModel,
    PredictionScores,
    asked_document,
    asked_model,
    check_inputs,
    described,
    policies_table,
    say_zeros,
    shown_questions,
    source_of,
)
from foretail.pipelines.data.inputs import open_datasets
from foretail.pipelines.exporting.network import NetworkInC
from foretail.pipelines.runs.progress import StageProgress
from foretail.pipelines.runs.result import Cell, Table
from foretail.sim_bridge.open_loop.replay import ReplayComparison, ReplayScores, Sent, compare_replays
from foretail.sim_bridge.open_loop.scores import Questions

COLUMNS = {
    "transmitted": "packets sent",
    "dropped": "dropped",
    **ASKED,
    "transmitted_bytes": "bytes sent",
    "dropped_bytes": "dropped bytes",
    "throughput_ratio_to_lqd": "bytes, ratio to LQD",
}


@dataclass(frozen=True)
class DatasetsResult:
    """Policies and predictions on datasets, all of them together."""

    datasets: tuple[Mapping[str, Any], ...]  #: path, content hash, seed, rows and drops of each
    offered: Sent  #: data that arrived
    transmitted: Mapping[str, Sent]  #: data that every policy sent
    worth: PredictionScores  #: what the predictions are worth
    questions: Mapping[str, Questions]  #: of the policies that may ask

    def document(self) -> dict[str, Any]:
        return {
            "datasets": self.datasets,
            "arrivals": self.offered.packets,
            "arrived_bytes": self.offered.bytes,
            "policies": self._policies(),
            "predictions": self.worth.document(),
        }

    def verdict(self) -> list[str]:
        """Who sends most beside LQD, and what the predictions are worth."""
        return self.worth.verdict({policy: sent.bytes for policy, sent in self.transmitted.items()})

    def tables(self) -> list[Table]:
        """Policies, and the scores of the predictions."""
        note = f"{self.offered.packets:,} data packets, {self.offered.bytes:,} bytes, of {len(self.datasets)} datasets"
        return [policies_table(self._policies(), COLUMNS, note), self.worth.table()]

    def _policies(self) -> dict[str, dict[str, Cell]]:
        lqd = self.transmitted["lqd"].bytes
        return {
            policy: {
                "transmitted": sent.packets,
                "dropped": self.offered.packets - sent.packets,
                "transmitted_bytes": sent.bytes,
                "dropped_bytes": self.offered.bytes - sent.bytes,
                "throughput_ratio_to_lqd": sent.bytes / lqd if lqd else None,
                **asked_document(self.questions.get(policy)),
            }
            for policy, sent in self.transmitted.items()
        }


@dataclass(frozen=True, eq=False)
class _Rows:
    """Labelled rows with their predictions: bool[rows] each, and the model's float64[rows] score, if there is one."""

    lqd_drop: NDArray[np.bool_]
    asked: NDArray[np.bool_]
    predicted: NDArray[np.bool_]
    score: NDArray[np.float64] | None


def replay_datasets(config: ReplayConfig) -> DatasetsResult:
    """Replay ``config.datasets`` under ``config.policies``."""
    datasets = open_datasets(config.datasets)
    for dataset in datasets:
        dataset.require_trace()
    source = source_of(config)
    model = asked_model(config) if source == "model" else None
    if model is not None:
        for dataset in datasets:
            check_inputs(
                model, dataset.manifest.cell_bytes, dataset.manifest.average_shift, f"the dataset {dataset.path} gives"
            )
    flips = np.random.default_rng(config.prediction_seed)
    rows: list[_Rows] = []
    compared: list[ReplayComparison] = []
    with StageProgress() as progress:
        for dataset in datasets:
            rows.append(_rows(config, source, dataset, model, flips))
            compared.append(
                compare_replays(
                    dataset,
                    config.policies or BUFFER_POLICIES,
                    rows[-1].predicted,
                    parameters=config.parameters.in_network(),
                    threads=config.jobs,
                    report=partial(progress.update, dataset.path.name),
                )
            )
    total = ReplayScores.together([found.scores for found in compared])
    transmitted = {
        policy: Sent.together([found.transmitted[policy] for found in compared]) for policy in compared[0].transmitted
    }
    questions = {
        policy: sum((found.questions[policy] for found in compared), Questions()) for policy in compared[0].questions
    }
    result = DatasetsResult(
        datasets=tuple(_described(dataset) for dataset in datasets),
        offered=Sent.together([found.offered for found in compared]),
        transmitted=transmitted,
        questions=shown_questions(questions, transmitted),
        worth=PredictionScores(
            described(config, source, model),
            "bytes",
            total.lqd_bytes,
            total.followlqd_bytes,
            total.accept_bytes,
            total.credence_bytes,
            total.eta,
            total.recovered_loss,
            total.sent_percent_of_lqd,
            scores(
                np.concatenate([part.lqd_drop for part in rows]),
                np.concatenate([part.predicted for part in rows]),
                ports=max(switch.ports for dataset in datasets for switch in dataset.manifest.switches),
                score=None
                if model is None
                else np.concatenate([part.score for part in rows if part.score is not None]),
                asked=np.concatenate([part.asked for part in rows]),
            ),
        ),
    )
    if isinstance(model, NetworkInC):
        model.say_difference()
    say_zeros(source, result.worth.scores, result.questions)
    return result


def _rows(
    config: ReplayConfig, source: str, dataset: Dataset, model: AskedModel | None, flips: np.random.Generator
) -> _Rows:
    columns: tuple[str, ...] = ()
    if model is not None:
        columns = training_columns([item.name for item in model.features], config.own_queues)
    labels, asked, predicted, score = [], [], [], []
    for batch in dataset.rows([*columns, "lqd_drop", "shadow_asked"]):
        values = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}
        labels.append(values["lqd_drop"])
        asked.append(values["shadow_asked"])
        if model is not None:
            x = np.stack([values[name] for name in columns], axis=1)
            predicted.append(model.exceeds(x))
            score.append(model.probability(x))
        elif source == "flipped":
            predicted.append(values["lqd_drop"] ^ (flips.random(batch.num_rows) < config.flip_probability))
        else:
            predicted.append(values["lqd_drop"] & (source == "perfect"))
    return _Rows(
        lqd_drop=_joined(labels),
        asked=_joined(asked),
        predicted=_joined(predicted),
        score=np.concatenate([*score, np.empty(0)]) if model is not None else None,
    )


def _joined(parts: list[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    return np.concatenate([*parts, np.empty(0, np.bool_)])


def _described(dataset: Dataset) -> dict[str, Any]:
    manifest = dataset.manifest
    return {
        "path": dataset.path,
        "content_sha256": manifest.content_sha256,
        "scenario": manifest.scenario.get("name"),
        "seed": manifest.seed,
        "rows": manifest.rows,
        "drops": manifest.drops,
    }
