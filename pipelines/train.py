"""``foretail train``: fit a drop predictor, choose its operating point, score it, track it."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import hydra
import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig

from foretail.configs.schema import DistillConfig, SelectConfig, Tracking, TrainConfig, register
from foretail.configs.schema import Split as SplitConfig
from foretail.features import splits
from foretail.features.dataset import Dataset
from foretail.features.errors import ForetailError
from foretail.features.labelled_rows import Region, Rows, Sampling, read_rows, row_batches
from foretail.features.manifest import traffic_sha256
from foretail.features.staging import write_file
from foretail.models.ensemble import Ensemble
from foretail.models.metrics import Score
from foretail.models.operating_point import (
    OperatingPoint,
    Worth,
    choose_network_threshold,
    choose_operating_point,
    require_drops,
)
from foretail.models.predictor import DropPredictor, TreePredictor
from foretail.models.tracking import NETWORK_TAG, TEACHER_TAG, TrackedRun, nest, run_exists, track
from foretail.models.weights import drop_factor, row_weights
from foretail.pipelines import cli, stage
from foretail.pipelines.collect import CollectedRun, collect_runs, dataset_table
from foretail.pipelines.export import ENSEMBLE_FILE, NETWORK_FILE, tracking_uri
from foretail.pipelines.inputs import open_datasets
from foretail.pipelines.judgement import Judged, Labelled, calibrate, judge, judge_side, replay_scores_of
from foretail.pipelines.predictors import packages, untrained, window_of
from foretail.pipelines.progress import StageProgress
from foretail.pipelines.recovered_loss import Round, require_runs, train_in_rounds, worth_of
from foretail.pipelines.result import Cell, Table, plain
from foretail.pipelines.simulation import Ns3
from foretail.pipelines.store import Entry, Key, Store, code_digest
from foretail.pipelines.training_labels import SideLabels, training_labels
from foretail.pipelines.validation import roles

if TYPE_CHECKING:  # it needs packages of its own
    from foretail.models.network import Network

register()

MODEL = "model"
OUTCOME_FILE = "outcome.json"
CAVEATS = ("open_loop", "drops_visible")
"""What the scenario of an imported trace says beside its settings."""
SHOWN = ("precision", "recall", "f1", "average_precision", "accuracy", "closed_form_eta")


class Fitted(NamedTuple):
    """A trained predictor, what it exports at its operating point, and that point."""

    predictor: DropPredictor
    model: Ensemble | Network
    point: OperatingPoint


@dataclass(frozen=True)
class TrainResult:
    """A trained model.

    Attributes
    ----------
    model : at its operating point: an ensemble, to which `export` gives integer votes, or a network
    outcome : every figure of the training, JSON-like
    collected : datasets that came from the scenario
    reused : the model was in the store
    seconds : wall time of training and scoring, now or earlier
    """

    model: Ensemble | Network
    outcome: Mapping[str, Any]
    collected: tuple[CollectedRun, ...]
    reused: bool
    seconds: float

    @property
    def ensemble(self) -> Ensemble:
        """The model, which has to be trees."""
        if not isinstance(self.model, Ensemble):
            raise ForetailError("a network is no sum of trees: turn it into one with foretail distill")
        return self.model

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        kind = "ensemble" if isinstance(self.model, Ensemble) else "network"
        return {
            "collected": [asdict(run) for run in self.collected],
            f"{kind}_sha256": self.model.sha256,
            "reused": self.reused,
            "train_seconds": self.seconds,
            **self.outcome,
        }

    def tables(self) -> list[Table]:
        """Datasets and scores."""
        return [*([dataset_table(self.collected)] if self.collected else []), self.score_table()]

    def score_table(self) -> Table:
        """Scores of every side, whole and asked."""
        notes = [
            f"closed form eta with N = {self.outcome['ports']}; drop iff the mean probability exceeds "
            f"{self.outcome['threshold_probability']:.4f}",
            *_calibration_note(self.outcome["calibration"]["test"]),
            *replay_and_run(self.outcome["replay"], self.outcome["tracked"]),
        ]
        title = "Scores" + (" (reused model)" if self.reused else "")
        return Table(title, ("side", *SCORE_COLUMNS), tuple(score_rows(self.outcome["scores"])), tuple(notes))


SCORE_COLUMNS = ("region", "rows", "drops", *(name.replace("_", " ") for name in SHOWN))


def score_rows(scores: Mapping[str, Mapping[str, Mapping[str, Score]]]) -> Iterator[tuple[Cell, ...]]:
    """One row of a table per side and region."""
    for side in splits.SIDES:
        for region, named in scores[side].items():
            drops = int(named["true_positives"] or 0) + int(named["false_negatives"] or 0)
            yield side, region, named["rows"], drops, *(named[name] for name in SHOWN)


def replay_and_run(replay: Mapping[str, Any] | None, tracked: Mapping[str, Any] | None) -> Iterator[str]:
    """Notes on what the replay gave, and where MLflow has the run."""
    if replay is not None:
        worth = f"1/eta {_shown(replay['inverse_eta'])}, recovered loss {_shown(replay['recovered_loss'])}"
        yield f"test runs replayed in bytes: {worth}"
    if tracked is not None:
        yield f"MLflow run {tracked['run_id']} in {tracked['uri']}"


def train(config: TrainConfig, run_dir: Path) -> TrainResult:
    """Train on the configured datasets; ``ensemble.json`` or ``model.onnx`` goes to the run folder as well."""
    store = Store(config.store_dir)
    result = train_model(config, store, Ns3(config.ns3_prefix))
    run_dir.mkdir(parents=True, exist_ok=True)
    result.model.save(run_dir / (ENSEMBLE_FILE if isinstance(result.model, Ensemble) else NETWORK_FILE))
    return result


def train_model(config: TrainConfig, store: Store, ns3: Ns3) -> TrainResult:
    """The model of `config`, from the store or trained now; missing datasets of the scenario are simulated first."""
    collected, split = find_split(config, store, ns3)
    return train_on(config, split, store, collected)


def train_on(
    config: TrainConfig, split: splits.Split, store: Store, collected: tuple[CollectedRun, ...] = ()
) -> TrainResult:
    """The model of `config` on a split, whatever `config` says of runs; from the store or trained now."""
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


def find_split(
    config: TrainConfig | SelectConfig | DistillConfig, store: Store, ns3: Ns3
) -> tuple[tuple[CollectedRun, ...], splits.Split]:
    """The split of the datasets or the scenario of `config`, and what of the latter came from the store."""
    if config.datasets:
        datasets = open_datasets(config.datasets)
        return (), split_datasets(config.split, datasets)
    ((_, policy),) = config.policy.items()
    seeds = [seed for _, seeds in roles(config.split) for seed in seeds]
    collected = collect_runs(config.scenario, policy, seeds, store, ns3, config.jobs)
    return collected, split_datasets(config.split, [Dataset.open(run.path) for run in collected])


def tracked_entry(store: Store, key: Key, build: Callable[[Path], None]) -> Entry:
    """The entry of a model, built again when its MLflow run is gone, so that there is one."""
    found = store.find(key)
    if found is not None and not _is_tracked(read_outcome(found)):
        store.remove(found)
    return store.get_or_build(key, build)


def nest_in_study(tracking: Tracking, outcome: Mapping[str, Any]) -> None:
    """Show the run of a model that was in the store inside the parent of this one, if there is one."""
    tracked = outcome["tracked"]
    if tracking.parent_run_id is not None and tracked is not None:
        nest(tracked["run_id"], tracking.parent_run_id, tracked["uri"])


def load_network(path: Path) -> Network:
    """The network in a file; loads what runs it only now."""
    from foretail.models.network import Network

    return Network.load(path)


def split_datasets(config: SplitConfig, datasets: Sequence[Dataset]) -> splits.Split:
    """Split datasets as configured."""
    if config.name == "by_run":
        return splits.split_by_seed(datasets, config.train, config.validation, config.test)
    if config.name == "drawn":
        return splits.split_by_run(datasets, config.validation_fraction, config.test_fraction, config.seed)
    return splits.split_by_time(datasets, config.validation_fraction, config.test_fraction, config.gap_ns)


def _train_into(folder: Path, config: TrainConfig, split: splits.Split, store: Store) -> None:
    window = window_of(config.predictor, config.window)
    labelled = Labelled.of(split, config.features.names, config.features.own_queues, window)
    region = cast(Region, config.operating_point.region)
    validation = read_rows(split.validation, labelled.columns, region=region, window=window)
    require_drops(validation.lqd_drop)
    worth = None
    if config.operating_point.maximise == "recovered_loss":
        require_runs(split.validation, "operating_point.maximise=recovered_loss")
        worth = worth_of(split.validation, region)

    def fit(labels: SideLabels | None, importance: list[NDArray[np.float64]] | None) -> Fitted:
        sampling = Sampling(config.sampling.others, config.sampling.seed)
        read = partial(row_batches, split.train, sampling=sampling, importance=importance, labels=labels)
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
        return Fitted(predictor, *_at_operating_point(predictor, labelled, validation, worth))

    labels, reassigned = training_labels(
        config.labels,
        split.train,
        lambda labels: fit(labels, None),
        lambda fitted: judge_side(fitted.model, split.train, labelled).probability,
        lambda fitted: fitted.point.confusion.f1 or 0.0,
    )
    rounds = _rounds(config, labelled, partial(fit, labels))
    predictor, model, point = max(rounds, key=lambda one: one.sent_bytes).model
    judged = judge(model, labelled)
    model.save(folder / (ENSEMBLE_FILE if isinstance(model, Ensemble) else NETWORK_FILE))
    outcome: dict[str, Any] = {
        **describe(labelled),
        "parameters": predictor.parameters(),
        "threshold": str(point.threshold),
        "threshold_probability": point.probability,
        "reassignments": reassigned,
        "rounds": [{"sent_bytes": one.sent_bytes, "costly_rows": one.costly_rows} for one in rounds],
        "scores": judged.scores,
        "replay": judged.replay,
        "calibration": calibrate(model, validation, judged.sides["test"]),
        "tracked": None,
    }
    if config.tracking.enabled:
        calibration = {"test_calibration": outcome["calibration"]["test"]}
        outcome["tracked"] = track_model(config, store, labelled, judged, model, outcome, more_scores=calibration)
    write_outcome(folder, outcome)


def _rounds(
    config: TrainConfig, labelled: Labelled, fit: Callable[[list[NDArray[np.float64]] | None], Fitted]
) -> list[Round[Fitted]]:
    """All trainings of the objective."""
    objective, split = config.objective, labelled.split
    if objective.name == "labels":
        return [Round(fit(None), 0, 0)]
    for side in (split.train, split.validation):
        require_runs(side, "objective.name=recovered_loss")

    def predict(fitted: Fitted, side: splits.Side) -> list[NDArray[np.bool_]]:
        return [judge_side(fitted.model, (selection,), labelled).predicted for selection in side]

    return train_in_rounds(fit, predict, split.train, split.validation, objective.rounds, objective.window_ns)


def _calibration_note(test: Mapping[str, Mapping[str, Score]]) -> Iterator[str]:
    errors = (
        f"{region} {found['raw_expected_calibration_error']:.2g}, calibrated "
        f"{found['calibrated_expected_calibration_error']:.2g}"
        for region, found in test.items()
    )
    yield f"expected calibration error of the probabilities on the test side: {'; '.join(errors)}"


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
    predictor: DropPredictor, labelled: Labelled, validation: Rows, worth: Worth | None
) -> tuple[Ensemble | Network, OperatingPoint]:
    if isinstance(predictor, TreePredictor):
        ensemble = predictor.to_ensemble(labelled.inputs)
        point = choose_operating_point(ensemble, validation.x, validation.lqd_drop, worth=worth)
        return ensemble.with_threshold(point.threshold), point
    from foretail.models.network import NetworkPredictor  # needs packages of its own

    if not isinstance(predictor, NetworkPredictor):
        raise TypeError(f"a {type(predictor).__name__} is neither trees nor a network")
    network = predictor.to_network(labelled.inputs)
    point = choose_network_threshold(network.probability(validation.x), validation.lqd_drop, worth=worth)
    return network.with_threshold(point.probability), point


def track_model(
    config: TrainConfig | DistillConfig,
    store: Store,
    labelled: Labelled,
    judged: Judged,
    model: Ensemble | Network,
    outcome: Mapping[str, Any],
    more_scores: Mapping[str, Mapping[str, Mapping[str, Score]]] | None = None,
) -> dict[str, Any]:
    """Log a judged model to MLflow with its `outcome`; an ensemble is registered.

    Scores are logged by name and region; `more_scores` beside those of the sides.
    """
    tracking, split, test = config.tracking, labelled.split, judged.sides["test"]
    tags = {} if tracking.sweep_id is None else {"sweep_id": tracking.sweep_id}
    for caveat in CAVEATS:
        known = {str(item.dataset.manifest.scenario.get(caveat)).lower() for item in split.train + split.test}
        if known != {"none"}:
            tags[f"trace.{caveat}"] = ",".join(sorted(known - {"none"}))
    with track(
        tracking.experiment,
        asdict(config),
        uri=tracking_uri(tracking, store),
        run_name=tracking.run_name,
        tags=tags,
        parent_run_id=tracking.parent_run_id,
    ) as run:
        run.log_document(plain({"versions": stage.versions(), **outcome}), OUTCOME_FILE)
        for dataset in describe_split(split):
            log_dataset(run, dataset)
        for name, found in {**judged.scores, **replay_scores_of("test_replay", judged), **(more_scores or {})}.items():
            run.log_scores(name, found)
        for region, chosen in (("whole", slice(None)), ("asked", test.asked)):
            if chosen is None:
                continue
            run.log_figures(
                "test",
                region,
                test.lqd_drop[chosen],
                test.predicted[chosen],
                test.probability[chosen],
            )
        registered = None
        if isinstance(model, Ensemble):
            if "teacher" in outcome:
                run.set_tags({TEACHER_TAG: outcome["teacher"]["network_sha256"]})
            registered = run.log_model(model, tracking.registered_model, tracking.alias)
        else:
            run.set_tags({NETWORK_TAG: model.sha256})
            with tempfile.TemporaryDirectory() as folder:
                model.save(Path(folder) / NETWORK_FILE)
                run.log_file(Path(folder) / NETWORK_FILE)
    return {
        "run_id": run.run_id,
        "experiment_id": run.experiment_id,
        "uri": run.uri,
        "registered": None if registered is None else asdict(registered),
    }


def log_dataset(run: TrackedRun, described: Mapping[str, Any]) -> None:
    """Record a dataset, described by :func:`describe_dataset`, as an input of a run."""
    stretch = "" if described["start_ns"] is None and described["end_ns"] is None else " {start_ns}-{end_ns} ns"
    run.log_dataset(
        "{scenario}-{seed}".format_map(described) + stretch.format_map(described),
        described["content_sha256"],
        described["traffic_sha256"],
        described["path"],
        described["rows"],
        described["drops"],
        described["side"],
    )


def describe_split(split: splits.Split) -> list[dict[str, Any]]:
    """What was used of every dataset of a split, and what for."""
    return [describe_dataset(selection, side) for side in splits.SIDES for selection in getattr(split, side)]


def describe_dataset(selection: splits.Selection, side: str) -> dict[str, Any]:
    """What was used of a dataset, and what for."""
    manifest = selection.dataset.manifest
    return {
        "side": side,
        "path": str(selection.dataset.path),
        "content_sha256": manifest.content_sha256,
        "traffic_sha256": traffic_sha256(manifest),
        "scenario": manifest.scenario.get("name"),
        "seed": manifest.seed,
        "policy": manifest.policy.get("name"),
        "rules": asdict(manifest.rules),
        "load": manifest.scenario.get("background", {}).get("load"),
        "switches": sorted({(switch.ports, switch.buffer_bytes) for switch in manifest.switches}),
        "caveats": {name: manifest.scenario[name] for name in CAVEATS if name in manifest.scenario},
        "start_ns": selection.start_ns,
        "end_ns": selection.end_ns,
        "rows": selection.count(),
        "drops": selection.drops(),
    }


def describe(labelled: Labelled) -> dict[str, Any]:
    """Inputs and datasets, for ``result.json``."""
    return {
        "features": [asdict(item) for item in labelled.inputs],
        "columns": list(labelled.columns),
        "ports": labelled.ports,
        "datasets": describe_split(labelled.split),
    }


def _key(config: TrainConfig, split: splits.Split, store: Store) -> Key:
    window = window_of(config.predictor, config.window)
    predictor = untrained(config.predictor, config.trainer, window)
    parameters = predictor.parameters()
    if not predictor.threads_change_the_model:
        parameters.pop("jobs", None)
    depends_on = {
        "features": asdict(config.features),
        "sampling": asdict(config.sampling),
        "window": asdict(window),
        "labels": asdict(config.labels),
        "objective": asdict(config.objective),
        "drop_weight": config.drop_weight,
        "predictor": {"name": config.predictor.name, **parameters},
        "packages": {name: stage.versions()[name] for name in packages(config.predictor.name)},
    }
    return model_key(MODEL, config, split, store, depends_on)


def model_key(
    kind: str, config: TrainConfig | DistillConfig, split: splits.Split, store: Store, depends_on: Mapping[str, Any]
) -> Key:
    """The key of a model that also depends on the rows, the operating point, tracking and the code."""
    tracking = config.tracking
    return Key(
        kind,
        {
            "sides": {
                side: [
                    [selection.dataset.manifest.content_sha256, selection.start_ns, selection.end_ns]
                    for selection in getattr(split, side)
                ]
                for side in splits.SIDES
            },
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
            **depends_on,
        },
    )


def write_outcome(folder: Path, outcome: Mapping[str, Any]) -> None:
    """Write the figures of a model beside it, for :func:`read_outcome`."""
    write_file(folder / OUTCOME_FILE, json.dumps(plain(outcome), indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def read_outcome(entry: Entry) -> dict[str, Any]:
    """The figures of a stored model."""
    document: dict[str, Any] = entry.document(OUTCOME_FILE)
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
