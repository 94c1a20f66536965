"""Fitting a drop predictor: labels, rounds, operating point and scores; its outcome in the store and in MLflow.

A model that the store has is the usual case, so what only training needs is imported where it trains.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.model_stages import TrainConfig
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.core.files import write_file
from foretail.core.plugins import source_sha256
from foretail.core.summary import Summarised
from foretail.features.catalog import group_of
from foretail.features.rows import splits
from foretail.features.rows.labelled_rows import Region, Rows, Sampling, read_rows, row_batches
from foretail.models.drop.predictor import DropPredictor, TreePredictor
from foretail.models.drop.weights import drop_factor, row_weights
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.store import tracking_uri
from foretail.models.mlflow.tracking import (
    ENSEMBLE_FILE,
    NETWORK_FILE,
    OUTCOME_FILE,
    RegisteredModel,
    nest,
    run_exists,
)
from foretail.models.scoring.metrics import SHOWN, Confusion, Score, drops_of
from foretail.models.scoring.operating_point import (
    OperatingPoint,
    ThresholdWorth,
    choose_network_threshold,
    choose_operating_point,
    constant_decision,
    require_drops,
)
from foretail.models.scoring.threshold_rules import THRESHOLD_RULE_KINDS, ThresholdRule
from foretail.pipelines.data.inputs import given_runs, split_datasets
from foretail.pipelines.runs.notes import ASKED, LABELLED_QUEUES, say_if_constant, say_if_silent, use_lineage
from foretail.pipelines.runs.progress import StageProgress
from foretail.pipelines.runs.result import Cell, Table, figure_text, json_text, plain, version_of, versions
from foretail.pipelines.runs.store import Entry, Key, Store
from foretail.pipelines.settings.compose import differing
from foretail.pipelines.settings.predictors import predictor_class, untrained
from foretail.pipelines.tracking.loading import baseline_rows, load_network, register_trained, version_description
from foretail.pipelines.tracking.runs import (
    CAVEATS,
    address,
    describe_split,
    lineage_of,
    log_dataset,
    run_note,
    tracked,
)
from foretail.sim_bridge.open_loop.scores import SENT, sent_percent_of_lqd, shown_share, worth_in_words
from foretail.sim_bridge.policies import POLICIES

if TYPE_CHECKING:
    from foretail.models.drop.network import Network
    from foretail.pipelines.data.collecting import CollectedRun
    from foretail.pipelines.training.scores import Judged, Labelled
    from foretail.pipelines.training.sending import Sending


MODEL = "model"


@dataclass(frozen=True, repr=False)
class TrainResult(Summarised):
    """A trained model."""

    #: at its operating point: an ensemble, to which `export` gives integer votes, or a network
    model: Ensemble | Network
    outcome: Mapping[str, Any]  #: every figure of the training, JSON-like
    collected: tuple[CollectedRun, ...]  #: datasets that came from the scenario
    reused: bool  #: the model was in the store
    seconds: float  #: wall time of training and scoring, now or earlier
    registered: RegisteredModel | None = None  #: its version in the registry, if the command gave it one

    @property
    def ensemble(self) -> Ensemble:
        """The model, which has to be trees."""
        if not isinstance(self.model, Ensemble):
            raise ForetailError("a network is not a sum of trees: choose a predictor of trees")
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
            "tracked": _with_version(self.outcome["tracked"], self.registered),
        }

    def verdict(self) -> list[str]:
        """F1 where Credence asks, on the test side, and what the predictions are worth there."""
        asked_scores = self.outcome["scores"]["test"].get("asked")
        region, where = (
            (asked_scores, "where Credence asks")
            if asked_scores
            else (self.outcome["scores"]["test"]["whole"], "on all")
        )
        f1, precision, recall = (figure_text(region[name]) for name in ("f1", "precision", "recall"))
        first = (
            f"On the test side, which it never saw, F1 is {f1} {where} (precision {precision}, recall {recall}), on "
            f"{LABELLED_QUEUES}."
        )
        replay = self.outcome["replay"]
        if replay is None:
            return [first, "What that is worth in a switch was not replayed: the test side is not a whole run."]
        if replay["policy"] is None:
            return [first, "What that is worth in a switch is unknown: the model cannot decide in a replay."]
        sends = replay["recovered_loss"], replay["sent_percent_of_lqd"], replay["baselines"]
        return [first, worth_in_words(*sends, policy=replay["policy"])]

    def tables(self) -> list[Table]:
        """Datasets, what the model is worth beside tuned baselines, and scores."""
        replay = self.outcome["replay"]
        return [
            *_dataset_tables(self.collected),
            *([] if replay is None else [_replay_table(replay)]),
            self.score_table(),
        ]

    def score_table(self) -> Table:
        """Scores of every side, whole and asked."""
        notes = [
            *([ASKED] if "asked" in self.outcome["scores"]["test"] else []),
            f"scores of labels are on {LABELLED_QUEUES}",
            f"closed form eta with N = {self.outcome['ports']}; drop iff the mean probability exceeds "
            f"{self.outcome['threshold_probability']:.4f}",
            *(
                [f"trained on every drop, all of the asked region and {100 * others:.3g} % of the other rows, weighted"]
                if (others := self.outcome["sampled_others"]) < 1
                else []
            ),
            *run_note(self.outcome["tracked"]),
        ]
        title = "Scores" + (" (reused model)" if self.reused else "")
        return Table(title, ("side", *SCORE_COLUMNS), tuple(score_rows(self.outcome["scores"])), tuple(notes))


SCORE_COLUMNS = ("region", "rows", "drops", *(name.replace("_", " ") for name in SHOWN))


def score_rows(scores: Mapping[str, Mapping[str, Mapping[str, Score]]]) -> Iterator[tuple[Cell, ...]]:
    """One row of a table per side and region."""
    for side in splits.SIDES:
        for region, named in scores[side].items():
            yield side, region, named["rows"], drops_of(named), *(named[name] for name in SHOWN)


def say_zeros(model: Ensemble | Network, scores: Mapping[str, Mapping[str, Mapping[str, Score]]]) -> None:
    """Say that a model never drops on its validation or test rows, or whatever it is asked, if that is so."""
    for side in ("validation", "test"):
        say_if_silent("the model", f"the {side} side", scores[side]["whole"])
    if isinstance(model, Ensemble):
        say_if_constant("the model", "the threshold", constant_decision(model))


def _replay_table(replay: Mapping[str, Any]) -> Table:
    """Worth of the model on the test runs, and of the baselines that were tuned without it."""
    rows = [
        ("the model", shown_share(replay["recovered_loss"]), replay["sent_percent_of_lqd"]),
        *baseline_rows(replay["baselines"]),
        ("always accept", 0.0, sent_percent_of_lqd(replay["accept_bytes"], replay["lqd_bytes"])),
    ]
    policy = replay["policy"]
    notes = (
        *([f"The model decides in the switch, under {POLICIES[policy].title}."] if policy is not None else []),
        "Settings of policies were chosen on the training and validation runs.",
    )
    return Table("Bytes sent of the test runs", ("who", "recovered loss", SENT), tuple(rows), notes)


def _entry(config: TrainConfig, split: splits.Split, store: Store) -> Entry:
    """The entry of the model, built again when its MLflow run is gone, so that there is one."""
    key = _key(config, split, store)
    entry = store.find(key)
    if entry is not None:
        tracked = _outcome_of(entry)["tracked"]  # None where no run was wanted
        if tracked is not None and not run_exists(tracked["run_id"], tracked["uri"]):
            store.remove(entry)
    return store.get_or_build(key, lambda folder: _train_into(folder, config, split, store))


def _outcome_of(entry: Entry) -> dict[str, Any]:
    """The figures of a stored model."""
    document: dict[str, Any] = entry.document(OUTCOME_FILE)
    return document


def _tracked(
    config: TrainConfig,
    store: Store,
    labelled: Labelled,
    judged: Judged,
    model: Ensemble | Network,
    outcome: Mapping[str, Any],
) -> dict[str, Any]:
    """Log a judged model to MLflow with its `outcome`; scores by side, region and name."""
    from foretail.pipelines.training.scores import replay_scores_of

    tracking, split, test = config.tracking, labelled.split, judged.sides["test"]
    tags: dict[str, str] = {}
    for caveat in CAVEATS:
        known = {str(item.dataset.manifest.scenario.get(caveat)).lower() for item in split.train + split.test}
        if known != {"none"}:
            tags[f"trace.{caveat}"] = ",".join(sorted(known - {"none"}))
    with tracked(tracking, store, asdict(config), _run_name(config), tags, params=differing(config)) as run:
        run.log_document(plain({"versions": versions(), **outcome}), OUTCOME_FILE)
        for dataset in describe_split(split):
            log_dataset(run, dataset)
        for region, chosen in test.regions.items():
            run.log_figures("test", region, test.lqd_drop[chosen], test.predicted[chosen], test.probability[chosen])
        run.log_model(model)
        replays = {
            name: scores
            for side, replay in (("validation", judged.validation_replay), ("test", judged.replay))
            for name, scores in replay_scores_of(f"{side}_replay", replay).items()
        }
        for name, scores in {**judged.scores, **replays}.items():
            run.log_scores(name, scores)  # after the model, so that they are its scores too
    return address(run)


def _with_version(tracked: Mapping[str, Any] | None, registered: RegisteredModel | None) -> dict[str, Any] | None:
    """Place of the run in MLflow, and its model's version, for ``result.json``."""
    if tracked is None:
        return None
    # Not where the alias pointed before: the same command after a kill gives the same result.
    version = None if registered is None else {name: getattr(registered, name) for name in ("name", "version", "alias")}
    return {**tracked, "registered": version}


def register(config: TrainConfig, result: TrainResult) -> RegisteredModel | None:
    """Give a tracked model its version and move ``tracking.alias`` to it."""
    model, outcome = result.model, result.outcome
    kind = "ensemble" if isinstance(model, Ensemble) else "network"
    description = version_description(_run_name(config), outcome["datasets"], outcome["scores"])
    tags = {f"{kind}_sha256": model.sha256, "features": ",".join(item.name for item in model.features)}
    return register_trained(config.tracking, outcome["tracked"], description, tags)


def _run_name(config: TrainConfig) -> str:
    """Name of a run, in a few words on what it trains: ``random forest 4x4 paper seed 1``."""
    settings = config.predictor
    size = [f"{settings['trees']}x{settings['depth']}"] if {"trees", "depth"} <= settings.keys() else []
    seed = [f"seed {settings['seed']}"] if "seed" in settings else []
    return " ".join([settings["name"].replace("_", " "), *size, group_of(config.features.names), *seed])


def _dataset_tables(collected: tuple[CollectedRun, ...]) -> list[Table]:
    if not collected:
        return []
    from foretail.pipelines.data.collecting import dataset_table

    return [dataset_table(collected)]


class Fitted(NamedTuple):
    """A trained predictor, what it exports at its operating point, and that point."""

    predictor: DropPredictor
    model: Ensemble | Network
    point: OperatingPoint
    others: float = 1.0  #: share of the rows that it learned from, of those that are neither drops nor asked


def train_model(config: TrainConfig) -> TrainResult:
    """The model of `config`, from the store or trained now; missing datasets of the scenario are simulated first."""
    collected, datasets = given_runs(config, config.split.all_seeds)
    split = split_datasets(config.split, datasets)
    store = Store(config.store_dir)
    use_lineage(lineage_of(split))
    entry = _entry(config, split, store)
    outcome = _outcome_of(entry)
    tracked, parent = outcome["tracked"], config.tracking.parent_run_id
    if parent is not None and tracked is not None:
        nest(tracked["run_id"], parent, tracked["uri"])  # one that was in the store too
    network = entry.path / NETWORK_FILE
    return TrainResult(
        model=load_network(network) if network.is_file() else Ensemble.load(entry.path / ENSEMBLE_FILE),
        outcome=outcome,
        collected=collected,
        reused=entry.reused,
        seconds=entry.seconds,
    )


def _fitted_to_labels(config: TrainConfig, labelled: Labelled, validation: Rows, store: Store) -> Fitted:
    """A predictor that learned labels of the training side, at its operating point on validation rows."""
    train = labelled.split.train
    sampling = Sampling(config.sampling.others, config.sampling.seed)
    if _is_cut(config, train):  # as much as fits into memory for a predictor that holds its rows
        counted = row_batches(train, ())
        sampling = Sampling.within(config.trainer.rows_in_memory, counted, sampling.seed)
    read = partial(row_batches, train, sampling=sampling)
    if not config.allow_constant_features:
        _refuse_constants(read(labelled.columns), config.features.names)
    factor = drop_factor(config.drop_weight, labelled.ports, read(()))
    predictor = untrained(config.predictor, config.trainer)

    def batches() -> Iterator[Rows]:
        for rows in read(labelled.columns):
            yield replace(rows, weight=row_weights(rows, factor))

    with StageProgress() as progress:
        predictor.report = partial(progress.update, "train")
        predictor.fit_batches(batches, sum(selection.count() for selection in train))
    return Fitted(predictor, *_at_operating_point(predictor, labelled, validation, config, store), sampling.others)


def _train_into(folder: Path, config: TrainConfig, split: splits.Split, store: Store) -> None:
    from foretail.pipelines.exporting.network import decider_if_any
    from foretail.pipelines.training.scores import Labelled, judge

    labelled = Labelled.of(split, config.features.names, config.features.own_queues)
    region = cast(Region, config.operating_point.region)
    validation = read_rows(split.validation, labelled.columns, region=region)
    require_drops(validation.lqd_drop)

    sending: Sending | None = None
    if config.objective.name == "sent":
        sending = _sent(config, labelled)
        best = sending.best
        confusion = Confusion.count(validation.lqd_drop, best.model.exceeds(validation.x))
        point = OperatingPoint(best.model.threshold, best.probability, confusion, "rows")
        predictor, model, point, others = Fitted(best.predictor, best.model, point)
    else:
        predictor, model, point, others = _fitted_to_labels(config, labelled, validation, store)
    if isinstance(model, Ensemble):
        model = model.with_visits(rows.x for rows in row_batches(split.train, labelled.columns))
    judged = judge(model, labelled, decider_if_any(model, store))
    model.save(folder / (ENSEMBLE_FILE if isinstance(model, Ensemble) else NETWORK_FILE))
    outcome: dict[str, Any] = {
        "features": [asdict(item) for item in labelled.inputs],
        "columns": list(labelled.columns),
        "ports": labelled.ports,
        "datasets": describe_split(labelled.split),
        "parameters": predictor.parameters(),
        "sampled_others": others,
        "threshold": str(point.threshold),
        "threshold_probability": point.probability,
        "sending": None if sending is None else sending.document(),
        "scores": judged.scores,
        "replay": judged.replay,
        "validation_replay": judged.validation_replay,
        "tracked": None,
    }
    if config.tracking.enabled:
        outcome["tracked"] = _tracked(config, store, labelled, judged, model, outcome)
    write_file(folder / OUTCOME_FILE, json_text(outcome))


def _is_cut(config: TrainConfig, side: splits.Side) -> bool:
    """True if the rows are too many for the predictor, and the settings do not say how to sample them."""
    holds_rows = predictor_class(config.predictor).holds_rows and config.objective.name != "sent"
    too_many = sum(selection.count() for selection in side) > config.trainer.rows_in_memory
    return holds_rows and too_many and config.sampling.others == 1


def _sent(config: TrainConfig, labelled: Labelled) -> Sending:
    """The rounds of an objective that lets the predictor decide while runs go on."""
    from foretail.pipelines.training.sending import train_for_sending

    with StageProgress() as progress:
        return train_for_sending(
            config.objective,
            lambda: untrained(config.predictor, config.trainer),
            labelled.split.train,
            labelled.split.validation,
            labelled.inputs,
            seed=int(config.predictor.get("seed", 1)),
            jobs=os.cpu_count() or 1,  # threads change no result
            report=partial(progress.update, "train"),
        )


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
            from foretail.pipelines.training.sending import sent_with

            return sent_with(model, labelled.split.validation, store)
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
    """The key of a model: the rows, everything that decides what it learns, tracking and the code."""
    tracking, predictor = config.tracking, untrained(config.predictor, config.trainer)
    parameters = predictor.parameters()
    if not predictor.threads_change_the_model:
        parameters.pop("jobs", None)
    parameters.pop("rows_in_memory", None)  # where the bins lie changes no tree
    cut = {"rows": config.trainer.rows_in_memory} if _is_cut(config, split.train) else {}
    source = source_sha256(type(predictor))
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
            "operating_point": asdict(config.operating_point),
            **THRESHOLD_RULE_KINDS.sources({config.operating_point.maximise} - {"recovered_loss"}),
            "tracking": {
                "uri": tracking_uri(tracking.uri, store.folder.parent),
                "experiment": tracking.experiment,
            }
            if tracking.enabled
            else None,
            "code": code_digest(
                "models.drop", "models.ensemble", "models.scoring", "features.rows", "sim_bridge.open_loop"
            ),
            "versions": {name: versions()[name] for name in ("numpy", "scikit-learn", "treelite")},
            "features": asdict(config.features),
            "sampling": asdict(config.sampling) | cut,
            "objective": asdict(config.objective),
            "drop_weight": config.drop_weight,
            "predictor": {"name": config.predictor["name"], **parameters},
            "packages": {name: version_of(name) for name in predictor_class(config.predictor).packages},
            **({} if source is None else {"plugin": source}),
        },
    )
