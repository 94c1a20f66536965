"""``foretail train``: fit a drop predictor, choose its operating point, score it, track it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from omegaconf import DictConfig

from foretail.configs.schema import Predictor, TrainConfig, register
from foretail.configs.schema import Split as SplitConfig
from foretail.features import splits
from foretail.features.catalog import training_columns
from foretail.features.dataset import Dataset
from foretail.features.errors import ForetailError
from foretail.models.ensemble import Ensemble, FeatureInput
from foretail.models.forest import RandomForest
from foretail.models.metrics import Score, scores
from foretail.models.operating_point import OperatingPoint, choose_operating_point
from foretail.models.tracking import TrackedRun, run_exists, track
from foretail.pipelines import cli, stage
from foretail.pipelines.collect import CollectedRun, collect_runs, dataset_table
from foretail.pipelines.export import ENSEMBLE_FILE, tracking_uri
from foretail.pipelines.inputs import feature_inputs
from foretail.pipelines.result import Table, write_result
from foretail.pipelines.simulation import Ns3
from foretail.pipelines.store import Entry, Key, Store, code_digest
from foretail.pipelines.validation import roles
from foretail.sim_bridge.replay import ReplayScores, replay_scores

register()

MODEL = "model"
OUTCOME_FILE = "outcome.json"
LABEL, ASKED = "lqd_drop", "shadow_asked"
SHOWN = ("precision", "recall", "f1", "average_precision", "accuracy", "closed_form_eta")


@dataclass(frozen=True)
class Rows:
    """The rows of one side of the split, as arrays.

    Attributes
    ----------
    x : int32 [rows, features]
    lqd_drop : bool [rows], the label
    asked : bool [rows], where a Credence that is told the true labels asks; None where nobody knows
    """

    x: NDArray[np.int32]
    lqd_drop: NDArray[np.bool_]
    asked: NDArray[np.bool_] | None


@dataclass(frozen=True)
class TrainResult:
    """A trained model.

    Attributes
    ----------
    ensemble : the model at its operating point; `export` gives it integer votes
    outcome : every figure of the training, JSON-like
    collected : datasets that came from the scenario
    reused : the model was in the store
    seconds : wall time of training and scoring, now or earlier
    """

    ensemble: Ensemble
    outcome: Mapping[str, Any]
    collected: tuple[CollectedRun, ...]
    reused: bool
    seconds: float

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        return {
            "collected": [asdict(run) for run in self.collected],
            "ensemble_sha256": self.ensemble.sha256,
            "reused": self.reused,
            "train_seconds": self.seconds,
            **self.outcome,
        }

    def tables(self) -> list[Table]:
        """Datasets and scores."""
        return [*([dataset_table(self.collected)] if self.collected else []), self.score_table()]

    def score_table(self) -> Table:
        """Scores of every side, whole and asked."""
        found = self.outcome["scores"]
        replay, tracked = self.outcome["replay"], self.outcome["tracked"]
        threshold = self.outcome["threshold_probability"]
        notes = [
            f"closed form eta with N = {self.outcome['ports']}; drop iff the mean probability exceeds {threshold:.4f}"
        ]
        if replay is not None:
            worth = f"1/eta {_shown(replay['inverse_eta'])}, recovered loss {_shown(replay['recovered_loss'])}"
            notes.append(f"test runs replayed in bytes: {worth}")
        if tracked is not None:
            notes.append(f"MLflow run {tracked['run_id']} in {tracked['uri']}")
        return Table(
            "Scores" + (" (reused model)" if self.reused else ""),
            ("side", "region", "rows", "drops", *(name.replace("_", " ") for name in SHOWN)),
            tuple(
                (
                    side,
                    region,
                    named["rows"],
                    named["true_positives"] + named["false_negatives"],
                    *(named[name] for name in SHOWN),
                )
                for side in splits.SIDES
                for region, named in found[side].items()
            ),
            tuple(notes),
        )


def train(config: TrainConfig, run_dir: Path) -> TrainResult:
    """Train on the configured datasets; ``ensemble.json`` goes to the run folder as well."""
    store = Store(config.store_dir)
    result = train_model(config, store, Ns3(config.ns3_prefix))
    run_dir.mkdir(parents=True, exist_ok=True)
    result.ensemble.save(run_dir / ENSEMBLE_FILE)
    return result


def train_model(config: TrainConfig, store: Store, ns3: Ns3) -> TrainResult:
    """The model of `config`, from the store or trained now; missing datasets of the scenario are simulated first."""
    collected: tuple[CollectedRun, ...] = ()
    if config.datasets:
        datasets = [Dataset.open(Path(path)) for path in config.datasets]
    else:
        ((_, policy),) = config.policy.items()
        seeds = [seed for _, seeds in roles(config.split) for seed in seeds]
        collected = collect_runs(config.scenario, policy, seeds, store, ns3, config.jobs)
        datasets = [Dataset.open(run.path) for run in collected]
    split = split_datasets(config.split, datasets)
    key = _key(config, split, store)
    found = store.find(key)
    if found is not None and not _is_tracked(_outcome(found)):
        store.remove(found)  # its MLflow run is gone: train again, so that there is one
    entry = store.get_or_build(key, lambda folder: _train_into(folder, config, split, store))
    return TrainResult(
        ensemble=Ensemble.load(entry.path / ENSEMBLE_FILE),
        outcome=_outcome(entry),
        collected=collected,
        reused=entry.reused,
        seconds=entry.seconds,
    )


def split_datasets(config: SplitConfig, datasets: Sequence[Dataset]) -> splits.Split:
    """Split datasets as configured."""
    if config.name == "by_run":
        return splits.split_by_seed(datasets, config.train, config.validation, config.test)
    return splits.split_by_time(datasets, config.validation_fraction, config.test_fraction, config.gap_ns)


def forest(predictor: Predictor) -> RandomForest:
    """The untrained predictor of the settings."""
    parameters = asdict(predictor)
    del parameters["name"]
    return RandomForest(**parameters)


def read_rows(side: splits.Side, columns: Sequence[str]) -> Rows:
    """The labelled rows of a side, in order."""
    is_trace = all(selection.dataset.is_trace for selection in side)
    labels = [LABEL, ASKED] if is_trace else [LABEL]
    frame = pd.concat([selection.frame([*columns, *labels]) for selection in side], ignore_index=True)
    return Rows(
        x=frame[list(columns)].to_numpy(np.int32),
        lqd_drop=frame[LABEL].to_numpy(np.bool_),
        asked=frame[ASKED].to_numpy(np.bool_) if is_trace else None,
    )


def _train_into(folder: Path, config: TrainConfig, split: splits.Split, store: Store) -> None:
    columns = training_columns(config.features.names, config.features.own_queues)
    datasets = [selection.dataset for side in splits.SIDES for selection in getattr(split, side)]
    inputs = feature_inputs(config.features.names, datasets)
    rows = {side: read_rows(getattr(split, side), columns) for side in splits.SIDES}
    if config.operating_point.region == "asked" and rows["validation"].asked is None:
        raise ForetailError(
            "operating_point.region=asked needs to know where Credence asks, which rows in order of their fates do not "
            "tell: set operating_point.region=whole"
        )
    predictor = forest(config.predictor).fit(rows["train"].x, rows["train"].lqd_drop)
    ensemble, point = _at_operating_point(predictor, inputs, rows["validation"], config.operating_point.region)
    ports = max(switch.ports for dataset in datasets for switch in dataset.manifest.switches)
    score = {side: ensemble.probability(rows[side].x) for side in splits.SIDES}
    predicted = {side: ensemble.exceeds(rows[side].x) for side in splits.SIDES}
    found: dict[str, dict[str, dict[str, Score]]] = {
        side: scores(rows[side].lqd_drop, predicted[side], ports=ports, score=score[side], asked=rows[side].asked)
        for side in splits.SIDES
    }
    outcome: dict[str, Any] = {
        "features": [asdict(item) for item in inputs],
        "columns": list(columns),
        "parameters": predictor.parameters(),
        "ports": ports,
        "threshold": str(point.threshold),
        "threshold_probability": point.probability,
        "scores": found,
        "replay": _replayed(split.test, predicted["test"]),
        "datasets": _described(split),
        "tracked": None,
    }
    if config.tracking.enabled:
        outcome["tracked"] = _tracked(config, store, split, rows, score, predicted, ensemble, predictor, outcome)
    ensemble.save(folder / ENSEMBLE_FILE)
    write_result(folder, outcome).rename(folder / OUTCOME_FILE)


def _at_operating_point(
    predictor: RandomForest, inputs: tuple[FeatureInput, ...], validation: Rows, region: str
) -> tuple[Ensemble, OperatingPoint]:
    ensemble = predictor.to_ensemble(inputs)
    chosen = validation.asked if region == "asked" else None
    point = choose_operating_point(ensemble, validation.x, validation.lqd_drop, chosen)
    return ensemble.with_threshold(point.threshold), point


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
    total = ReplayScores(
        lqd_bytes=sum(run.lqd_bytes for run in runs),
        followlqd_bytes=sum(run.followlqd_bytes for run in runs),
        accept_bytes=sum(run.accept_bytes for run in runs),
    )
    inverse = None if total.eta is None else 1 / total.eta
    return asdict(total) | {"eta": total.eta, "inverse_eta": inverse, "recovered_loss": total.recovered_loss}


def _tracked(
    config: TrainConfig,
    store: Store,
    split: splits.Split,
    rows: Mapping[str, Rows],
    score: Mapping[str, NDArray[np.float64]],
    predicted: Mapping[str, NDArray[np.bool_]],
    ensemble: Ensemble,
    predictor: RandomForest,
    outcome: Mapping[str, Any],
) -> dict[str, Any]:
    tracking = config.tracking
    tags = {} if tracking.sweep_id is None else {"sweep_id": tracking.sweep_id}
    for caveat in ("open_loop", "drops_visible"):  # of imported traces
        known = {str(item.dataset.manifest.scenario.get(caveat)).lower() for item in split.train + split.test}
        if known != {"none"}:
            tags[f"trace.{caveat}"] = ",".join(sorted(known - {"none"}))
    with track(
        tracking.experiment,
        asdict(config),
        uri=tracking_uri(tracking, store),
        run_name=tracking.run_name,
        tags=tags,
    ) as run:
        for dataset in outcome["datasets"]:
            _log_dataset(run, dataset)
        for side in splits.SIDES:
            run.log_scores(side, outcome["scores"][side])
        if outcome["replay"] is not None:
            run.log_scores(
                "test_replay", {"whole": {name: outcome["replay"][name] for name in ("eta", "recovered_loss")}}
            )
        for region, chosen in (("whole", slice(None)), ("asked", rows["test"].asked)):
            if chosen is None:
                continue
            run.log_figures(
                "test", region, rows["test"].lqd_drop[chosen], predicted["test"][chosen], score["test"][chosen]
            )
        run.log_ensemble(ensemble)
        registered = run.log_model(predictor.forest_, ensemble.features, tracking.registered_model, tracking.alias)
    return {
        "run_id": run.run_id,
        "experiment_id": run.experiment_id,
        "uri": run.uri,
        "registered": None if registered is None else asdict(registered),
    }


def _log_dataset(run: TrackedRun, described: Mapping[str, Any]) -> None:
    name = f"{described['scenario']}-{described['seed']}"
    run.log_dataset(
        name, described["content_sha256"], described["path"], described["rows"], described["drops"], described["side"]
    )


def _described(split: splits.Split) -> list[dict[str, Any]]:
    described = []
    for side in splits.SIDES:
        for selection in getattr(split, side):
            manifest = selection.dataset.manifest
            labels = selection.frame(["lqd_drop"])["lqd_drop"]
            described.append(
                {
                    "side": side,
                    "path": str(selection.dataset.path),
                    "content_sha256": manifest.content_sha256,
                    "scenario": manifest.scenario.get("name"),
                    "seed": manifest.seed,
                    "start_ns": selection.start_ns,
                    "end_ns": selection.end_ns,
                    "rows": len(labels),
                    "drops": int(labels.sum()),
                }
            )
    return described


def _key(config: TrainConfig, split: splits.Split, store: Store) -> Key:
    parameters = forest(config.predictor).parameters()
    del parameters["jobs"]
    tracking = config.tracking
    return Key(
        MODEL,
        {
            "sides": {
                side: [
                    [selection.dataset.manifest.content_sha256, selection.start_ns, selection.end_ns]
                    for selection in getattr(split, side)
                ]
                for side in splits.SIDES
            },
            "features": asdict(config.features),
            "predictor": {"name": config.predictor.name, **parameters},
            "operating_point": asdict(config.operating_point),
            "tracking": {
                "uri": tracking_uri(tracking, store),
                "experiment": tracking.experiment,
                "registered_model": tracking.registered_model,
                "alias": tracking.alias,
            }
            if tracking.enabled
            else None,
            "code": code_digest("features", "models", "export", "sim_bridge"),
            "versions": {name: stage.versions()[name] for name in ("numpy", "scikit-learn", "treelite")},
        },
    )


def _outcome(entry: Entry) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((entry.path / OUTCOME_FILE).read_text(encoding="utf-8"))
    return document


def _is_tracked(outcome: Mapping[str, Any]) -> bool:
    """Whether the MLflow run of a stored model still exists, or none was wanted."""
    tracked = outcome["tracked"]
    return tracked is None or run_exists(tracked["run_id"], tracked["uri"])


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


@hydra.main(version_base="1.3", config_path="pkg://foretail.configs", config_name="train")
def main(cfg: DictConfig) -> None:
    """Compose the settings and run the stage."""
    stage.run(cfg, TrainConfig, train)


if __name__ == "__main__":
    sys.exit(cli.main(["train", *sys.argv[1:]]))
