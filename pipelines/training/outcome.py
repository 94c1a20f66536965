"""Outcome of a training in the store: the model, its figures, and its run in MLflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretail.configs.schema.model_stages import DistillConfig, TrainConfig
from foretail.configs.schema.tracking import Tracking
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.core.files import write_file
from foretail.core.summary import Summarised
from foretail.features.catalog import group_of
from foretail.features.rows import splits
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.store import tracking_uri
from foretail.models.mlflow.tracking import OUTCOME_FILE, TEACHER_TAG, RegisteredModel, nest, run_exists
from foretail.models.scoring.metrics import Score, drops_of
from foretail.models.scoring.operating_point import constant_decision
from foretail.models.scoring.threshold_rules import THRESHOLD_RULE_KINDS
from foretail.pipelines.data.collecting import CollectedRun, dataset_table
from foretail.pipelines.data.inputs import sees_window
from foretail.pipelines.runs.notes import ASKED, LABELLED_QUEUES, say_if_constant, say_if_silent
from foretail.pipelines.runs.result import Cell, Table, figure_text, json_text, plain, versions
from foretail.pipelines.runs.store import Entry, Key, Store
from foretail.pipelines.settings.compose import differing
from foretail.pipelines.tracking.loading import baseline_rows, register_trained, version_description
from foretail.pipelines.tracking.runs import CAVEATS, address, describe_split, log_dataset, run_note, tracked
from foretail.pipelines.training.scores import Judged, Labelled, replay_scores_of
from foretail.sim_bridge.open_loop.scores import SENT, sent_percent_of_lqd, shown_share, worth_in_words
from foretail.sim_bridge.policies import POLICIES

if TYPE_CHECKING:
    from foretail.models.drop.network import Network

MODEL = "model"


SHOWN = ("precision", "recall", "f1", "average_precision", "accuracy", "closed_form_eta")


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
            raise ForetailError("a network is not a sum of trees: turn it into one with foretail distill")
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
            "tracked": with_version(self.outcome["tracked"], self.registered),
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
            *([dataset_table(self.collected)] if self.collected else []),
            *([] if replay is None else [replay_table({"the model": replay})]),
            self.score_table(),
        ]

    def score_table(self) -> Table:
        """Scores of every side, whole and asked."""
        notes = [
            *([ASKED] if "asked" in self.outcome["scores"]["test"] else []),
            f"scores of labels are on {LABELLED_QUEUES}",
            f"closed form eta with N = {self.outcome['ports']}; drop iff the mean probability exceeds "
            f"{self.outcome['threshold_probability']:.4f}",
            *_sampling_note(self.outcome["sampled_others"]),
            *_calibration_note(self.outcome["calibration"]["test"]),
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


def say_zeros(whose: str, model: Ensemble | Network, scores: Mapping[str, Mapping[str, Mapping[str, Score]]]) -> None:
    """Say that a model never drops on its validation or test rows, or whatever it is asked, if that is so."""
    for side in ("validation", "test"):
        say_if_silent(whose, f"the {side} side", scores[side]["whole"])
    if isinstance(model, Ensemble):
        say_if_constant(whose, "the threshold", constant_decision(model))


def replay_table(replays: Mapping[str, Mapping[str, Any]]) -> Table:
    """Worth of models on the test runs, by their names, and of the baselines that were tuned without them."""
    first = next(iter(replays.values()))
    accept = sent_percent_of_lqd(first["accept_bytes"], first["lqd_bytes"])
    rows = [
        *(
            (name, shown_share(replay["recovered_loss"]), replay["sent_percent_of_lqd"])
            for name, replay in replays.items()
        ),
        *baseline_rows(first["baselines"]),
        ("always accept", 0.0, accept),
    ]
    deciding = dict.fromkeys(POLICIES[one["policy"]].title for one in replays.values() if one["policy"] is not None)
    notes = (
        *([f"The model decides in the switch, under {' or '.join(deciding)}."] if deciding else []),
        "Settings of policies were chosen on the training and validation runs.",
    )
    return Table("Bytes sent of the test runs", ("who", "recovered loss", SENT), tuple(rows), notes)


def tracked_entry(store: Store, key: Key, build: Callable[[Path], None]) -> Entry:
    """The entry of a model, built again when its MLflow run is gone, so that there is one."""
    entry = store.find(key)
    if entry is not None and not _is_tracked(read_outcome(entry)):
        store.remove(entry)
    return store.get_or_build(key, build)


def nest_in_study(tracking: Tracking, outcome: Mapping[str, Any]) -> None:
    """Show the run of a model that was in the store inside the parent of this one, if there is one."""
    tracked = outcome["tracked"]
    if tracking.parent_run_id is not None and tracked is not None:
        nest(tracked["run_id"], tracking.parent_run_id, tracked["uri"])


def _sampling_note(others: float) -> Iterator[str]:
    if others < 1:
        yield f"trained on every drop, all of the asked region and {100 * others:.3g} % of the other rows, weighted"


def _calibration_note(test: Mapping[str, Mapping[str, Score]]) -> Iterator[str]:
    for region, figures in test.items():
        yield (
            f"test, {region}: expected calibration error {figures['raw_expected_calibration_error']:.2g}, calibrated "
            f"{figures['calibrated_expected_calibration_error']:.2g}"
        )


def track_model(
    config: TrainConfig | DistillConfig,
    store: Store,
    labelled: Labelled,
    judged: Judged,
    model: Ensemble | Network,
    outcome: Mapping[str, Any],
    more_scores: Mapping[str, Mapping[str, Mapping[str, Score]]] | None = None,
) -> dict[str, Any]:
    """Log a judged model to MLflow with its `outcome`.

    Scores are logged by name and region; `more_scores` beside those of the sides.
    """
    tracking, split, test = config.tracking, labelled.split, judged.sides["test"]
    tags: dict[str, str] = {}
    for caveat in CAVEATS:
        known = {str(item.dataset.manifest.scenario.get(caveat)).lower() for item in split.train + split.test}
        if known != {"none"}:
            tags[f"trace.{caveat}"] = ",".join(sorted(known - {"none"}))
    with tracked(tracking, store, asdict(config), run_name(config), tags, params=differing(config)) as run:
        run.log_document(plain({"versions": versions(), **outcome}), OUTCOME_FILE)
        for dataset in describe_split(split):
            log_dataset(run, dataset)
        for region, chosen in test.regions.items():
            run.log_figures("test", region, test.lqd_drop[chosen], test.predicted[chosen], test.probability[chosen])
        if "teacher" in outcome:
            run.set_tags({TEACHER_TAG: outcome["teacher"]["network_sha256"]})
        run.log_model(model)
        replays = {
            name: scores
            for side, replay in (("validation", judged.validation_replay), ("test", judged.replay))
            for name, scores in replay_scores_of(f"{side}_replay", replay).items()
        }
        for name, scores in {**judged.scores, **replays, **(more_scores or {})}.items():
            run.log_scores(name, scores)  # after the model, so that they are its scores too
    return address(run)


def with_version(tracked: Mapping[str, Any] | None, registered: RegisteredModel | None) -> dict[str, Any] | None:
    """Place of the run in MLflow, and its model's version, for ``result.json``."""
    if tracked is None:
        return None
    # Not where the alias pointed before: the same command after a kill gives the same result.
    version = None if registered is None else {name: getattr(registered, name) for name in ("name", "version", "alias")}
    return {**tracked, "registered": version}


def register(
    config: TrainConfig | DistillConfig,
    outcome: Mapping[str, Any],
    scores: Mapping[str, Mapping[str, Mapping[str, Score]]],
    model: Ensemble | Network,
) -> RegisteredModel | None:
    """Give a tracked model its version and move ``tracking.alias`` to it; None for one that no switch can ask."""
    if sees_window(model.features):
        return None
    kind = "ensemble" if isinstance(model, Ensemble) else "network"
    description = version_description(run_name(config), outcome["datasets"], scores)
    tags = {f"{kind}_sha256": model.sha256, "features": ",".join(item.name for item in model.features)}
    return register_trained(config.tracking, outcome["tracked"], description, tags)


def run_name(config: TrainConfig | DistillConfig) -> str:
    """Name of a run, in a few words on what it trains: ``random forest 4x4 paper seed 1``."""
    if isinstance(config, DistillConfig):
        student = config.student
        return f"student {student.trees}x{student.depth} seed {student.seed}"
    settings = config.predictor
    size = [f"{settings['trees']}x{settings['depth']}"] if {"trees", "depth"} <= settings.keys() else []
    seed = [f"seed {settings['seed']}"] if "seed" in settings else []
    return " ".join([settings["name"].replace("_", " "), *size, group_of(config.features.names), *seed])


def describe(labelled: Labelled) -> dict[str, Any]:
    """Inputs and datasets, for ``result.json``."""
    return {
        "features": [asdict(item) for item in labelled.inputs],
        "columns": list(labelled.columns),
        "ports": labelled.ports,
        "datasets": describe_split(labelled.split),
    }


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
            **depends_on,
        },
    )


def write_outcome(folder: Path, outcome: Mapping[str, Any]) -> None:
    """Write the figures of a model beside it, for :func:`read_outcome`."""
    write_file(folder / OUTCOME_FILE, json_text(outcome))


def read_outcome(entry: Entry) -> dict[str, Any]:
    """The figures of a stored model."""
    document: dict[str, Any] = entry.document(OUTCOME_FILE)
    return document


def _is_tracked(outcome: Mapping[str, Any]) -> bool:
    """True if the MLflow run of a stored model still exists, or none was wanted."""
    tracked = outcome["tracked"]
    return tracked is None or run_exists(tracked["run_id"], tracked["uri"])
