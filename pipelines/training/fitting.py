"""Fitting a drop predictor: labels, rounds, operating point and scores."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.model_stages import DistillConfig, SelectConfig, TrainConfig
from foretail.configs.schema.training import Labels
from foretail.core.errors import ForetailError
from foretail.core.plugins import source_sha256
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Victim
from foretail.features.rows import splits
from foretail.features.rows.labelled_rows import ArrivalWindow, Region, Rows, Sampling, read_rows, row_batches
from foretail.features.rows.splits import Side
from foretail.models.drop.predictor import DropPredictor, TreePredictor
from foretail.models.drop.weights import drop_factor, row_weights
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.tracking import ENSEMBLE_FILE, NETWORK_FILE
from foretail.models.scoring.metrics import Confusion
from foretail.models.scoring.operating_point import (
    OperatingPoint,
    ThresholdWorth,
    choose_network_threshold,
    choose_operating_point,
    require_drops,
)
from foretail.models.scoring.threshold_rules import THRESHOLD_RULE_KINDS, ThresholdRule
from foretail.pipelines.data.collecting import CollectedRun, collect_runs
from foretail.pipelines.data.inputs import open_datasets, split_datasets
from foretail.pipelines.exporting.deciding import decider_if_any
from foretail.pipelines.runs.notes import use_lineage
from foretail.pipelines.runs.progress import StageProgress
from foretail.pipelines.runs.result import version_of
from foretail.pipelines.runs.store import Key, Store
from foretail.pipelines.settings.predictors import predictor_class, untrained, window_of
from foretail.pipelines.tracking.loading import load_network
from foretail.pipelines.tracking.runs import lineage_of
from foretail.pipelines.training.outcome import (
    MODEL,
    TrainResult,
    describe,
    model_key,
    nest_in_study,
    read_outcome,
    track_model,
    tracked_entry,
    write_outcome,
)
from foretail.pipelines.training.scores import Labelled, calibrate, judge
from foretail.pipelines.training.sending import Sending, SendingRound, sent_with, train_for_sending
from foretail.sim_bridge.open_loop.push_outs import push_outs

if TYPE_CHECKING:
    from foretail.models.drop.network import Network

SideLabels = list[NDArray[np.bool_]]
"""Labels of every selection of a side: bool[rows]."""


def training_labels(config: Labels, side: Side) -> SideLabels | None:
    """Return the labels to train on, None for those of the datasets; ForetailError when the runs are not whole."""
    if config.rule is None or all(item.dataset.manifest.rules.victim == config.rule for item in side):
        return None
    if any(selection.where is not None for selection in side):
        raise ForetailError(f"labels.rule={config.rule} is found by replaying whole runs: split by run")
    return [push_outs(item.dataset, cast(Victim, config.rule)).lqd_drop for item in side]


class Fitted(NamedTuple):
    """A trained predictor, what it exports at its operating point, and that point."""

    predictor: DropPredictor
    model: Ensemble | Network
    point: OperatingPoint
    others: float = 1.0  #: share of the rows that it learned from, of those that are neither drops nor asked


def train_model(config: TrainConfig) -> TrainResult:
    """The model of `config`, from the store or trained now; missing datasets of the scenario are simulated first."""
    collected, split = find_split(config)
    return train_on(config, split, collected)


def train_on(config: TrainConfig, split: splits.Split, collected: tuple[CollectedRun, ...] = ()) -> TrainResult:
    """The model of `config` on a split, whatever `config` says of runs; from the store or trained now."""
    store = Store(config.store_dir)
    use_lineage(lineage_of(split))
    entry = tracked_entry(store, _key(config, split, store), lambda folder: _train_into(folder, config, split, store))
    nest_in_study(config.tracking, read_outcome(entry))
    network = entry.path / NETWORK_FILE
    return TrainResult(
        model=load_network(network) if network.is_file() else Ensemble.load(entry.path / ENSEMBLE_FILE),
        outcome=read_outcome(entry),
        collected=collected,
        reused=entry.reused,
        seconds=entry.seconds,
    )


def find_split(config: TrainConfig | SelectConfig | DistillConfig) -> tuple[tuple[CollectedRun, ...], splits.Split]:
    """The split of the datasets or the scenario of `config`, and what of the latter came from the store."""
    if config.datasets:
        datasets = open_datasets(config.datasets)
        return (), split_datasets(config.split, datasets)
    ((_, policy),) = config.policy.items()
    collected = collect_runs(config, config.scenario, policy, config.split.all_seeds)
    return collected, split_datasets(config.split, [Dataset.open(run.path) for run in collected])


def _train_into(folder: Path, config: TrainConfig, split: splits.Split, store: Store) -> None:
    window = window_of(config.predictor, config.window)
    labelled = Labelled.of(split, config.features.names, config.features.own_queues, window)
    region = cast(Region, config.operating_point.region)
    validation = read_rows(split.validation, labelled.columns, region=region, window=window)
    require_drops(validation.lqd_drop)

    def fit(labels: SideLabels | None) -> Fitted:
        sampling = _sampling(config, split.train, labels)
        read = partial(row_batches, split.train, sampling=sampling, labels=labels)
        if not config.allow_constant_features:
            _refuse_constants(read(labelled.columns), config.features.names)
        factor = drop_factor(config.drop_weight, labelled.ports, read(()))
        predictor = untrained(config.predictor, config.trainer, window)

        def batches() -> Iterator[Rows]:
            for rows in read(labelled.columns, window=window):
                yield replace(rows, weight=row_weights(rows, factor))

        with StageProgress() as progress:
            predictor.report = partial(progress.update, "train")
            predictor.fit_batches(batches, sum(selection.count() for selection in split.train))
        return Fitted(predictor, *_at_operating_point(predictor, labelled, validation, config, store), sampling.others)

    sending: Sending | None = None
    if config.objective.name == "sent":
        sending = _sent(config, labelled, window)
        predictor, model, point, others = _fitted(sending.best, validation)
    else:
        predictor, model, point, others = fit(training_labels(config.labels, split.train))
    if isinstance(model, Ensemble):
        model = model.with_visits(rows.x for rows in row_batches(split.train, labelled.columns, window=window))
    judged = judge(model, labelled, decider_if_any(model, store))
    model.save(folder / (ENSEMBLE_FILE if isinstance(model, Ensemble) else NETWORK_FILE))
    outcome: dict[str, Any] = {
        **describe(labelled),
        "parameters": predictor.parameters(),
        "sampled_others": others,
        "threshold": str(point.threshold),
        "threshold_probability": point.probability,
        "sending": None if sending is None else sending.document(),
        "scores": judged.scores,
        "replay": judged.replay,
        "validation_replay": judged.validation_replay,
        "calibration": calibrate(model, validation, judged.sides["test"]),
        "tracked": None,
    }
    if config.tracking.enabled:
        calibration = {"test_calibration": outcome["calibration"]["test"]}
        outcome["tracked"] = track_model(config, store, labelled, judged, model, outcome, more_scores=calibration)
    write_outcome(folder, outcome)


def _sampling(config: TrainConfig, side: splits.Side, labels: SideLabels | None) -> Sampling:
    """The sampling of the settings; without one, as much as fits into memory for a predictor that holds its rows."""
    given, most = Sampling(config.sampling.others, config.sampling.seed), config.trainer.rows_in_memory
    if not _is_cut(config, side):
        return given
    return Sampling.within(most, row_batches(side, (), labels=labels), given.seed)


def _is_cut(config: TrainConfig, side: splits.Side) -> bool:
    """True if the rows are too many for the predictor, and the settings do not say how to sample them."""
    holds_rows = predictor_class(config.predictor).holds_rows and config.objective.name != "sent"
    too_many = sum(selection.count() for selection in side) > config.trainer.rows_in_memory
    return holds_rows and too_many and config.sampling.others == 1


def _sent(config: TrainConfig, labelled: Labelled, window: ArrivalWindow) -> Sending:
    """The rounds of an objective that lets the predictor decide while runs go on."""
    if window.arrivals > 1:
        raise ForetailError("objective.name=sent asks about one arrival at a time, as a switch: leave window out")
    with StageProgress() as progress:
        return train_for_sending(
            config.objective,
            lambda: untrained(config.predictor, config.trainer, window),
            labelled.split.train,
            labelled.split.validation,
            labelled.inputs,
            seed=int(config.predictor.get("seed", 1)),
            jobs=os.cpu_count() or 1,  # threads change no result
            report=partial(progress.update, "train"),
        )


def _fitted(best: SendingRound, validation: Rows) -> Fitted:
    """A round's model, with its counts on the labels of the validation rows."""
    confusion = Confusion.count(validation.lqd_drop, best.model.exceeds(validation.x))
    point = OperatingPoint(best.model.threshold, best.probability, confusion, "rows")
    return Fitted(best.predictor, best.model, point)


def _refuse_constants(batches: Iterable[Rows], names: Sequence[str]) -> None:
    """Read until every feature has shown two values."""
    first: NDArray[np.int32] | None = None
    constant, count = np.ones(len(names), np.bool_), 0
    for rows in batches:
        if len(rows):
            first = rows.x[0] if first is None else first
            constant &= (rows.x == first).all(axis=0)
            count += len(rows)
            if not constant.any():
                return
    if first is not None:
        place = int(np.argmax(constant))
        raise ForetailError(
            f"feature {names[place]} is {first[place]} in all {count} training rows, which teaches nothing: "
            f"take it out of features.names, train on more traffic, or set allow_constant_features=true"
        )


def _at_operating_point(
    predictor: DropPredictor, labelled: Labelled, validation: Rows, config: TrainConfig, store: Store
) -> tuple[Ensemble | Network, OperatingPoint]:
    settings = config.operating_point

    def worth(model: Ensemble | Network) -> ThresholdWorth | ThresholdRule:
        if settings.maximise == "recovered_loss":
            return sent_with(model, labelled.split.validation, store, "operating_point.maximise=recovered_loss")
        return THRESHOLD_RULE_KINDS.make(settings.maximise, settings.settings)

    if isinstance(predictor, TreePredictor):
        ensemble = predictor.to_ensemble(labelled.inputs)
        predictor.check_ensemble(ensemble, validation.x)
        point = choose_operating_point(ensemble, validation.x, validation.lqd_drop, worth=worth(ensemble))
        return ensemble.with_threshold(point.threshold), point
    from foretail.models.drop.network import NetworkPredictor  # needs packages of its own

    assert isinstance(predictor, NetworkPredictor)  # the settings were checked
    network = predictor.to_network(labelled.inputs)
    point = choose_network_threshold(network.probability(validation.x), validation.lqd_drop, worth=worth(network))
    return network.with_threshold(point.probability), point


def _key(config: TrainConfig, split: splits.Split, store: Store) -> Key:
    window = window_of(config.predictor, config.window)
    predictor = untrained(config.predictor, config.trainer, window)
    parameters = predictor.parameters()
    if not predictor.threads_change_the_model:
        parameters.pop("jobs", None)
    parameters.pop("rows_in_memory", None)  # where the bins lie changes no tree
    cut = {"rows": config.trainer.rows_in_memory} if _is_cut(config, split.train) else {}
    depends_on = {
        "features": asdict(config.features),
        "sampling": asdict(config.sampling) | cut,
        "window": asdict(window),
        "labels": asdict(config.labels),
        "objective": asdict(config.objective),
        "drop_weight": config.drop_weight,
        "predictor": {"name": config.predictor["name"], **parameters},
        "packages": {name: version_of(name) for name in predictor_class(config.predictor).packages},
    }
    if (source := source_sha256(type(predictor))) is not None:
        depends_on["plugin"] = source
    return model_key(MODEL, config, split, store, depends_on)
