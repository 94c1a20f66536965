"""``foretail distill``: turn a trained network into trees of a given size, and tell what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from foretail.configs.schema.model_stages import DistillConfig
from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.features.dataset.schema import traffic_sha256_of
from foretail.features.rows import splits
from foretail.features.rows.labelled_rows import Region, read_rows
from foretail.models.drop.distillation import Budget
from foretail.models.drop.distillation import distill as imitate
from foretail.models.drop.network import Network
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.tracking import ENSEMBLE_FILE, NETWORK_FILE, RegisteredModel
from foretail.models.scoring.metrics import Confusion
from foretail.models.scoring.threshold_rules import THRESHOLD_RULE_KINDS
from foretail.pipelines.data.collecting import CollectedRun, dataset_table
from foretail.pipelines.data.inputs import refuse_window
from foretail.pipelines.exporting.network import decider_if_any
from foretail.pipelines.runs.notes import ASKED
from foretail.pipelines.runs.result import Cell, Table, figure_text, plain, versions
from foretail.pipelines.runs.store import Store
from foretail.pipelines.tracking.loading import identify, load_predictor
from foretail.pipelines.tracking.runs import run_note
from foretail.pipelines.training.fitting import (
    SCORE_COLUMNS,
    describe,
    find_split,
    model_key,
    nest_in_study,
    read_outcome,
    register,
    replay_table,
    say_zeros,
    score_rows,
    track_model,
    tracked_entry,
    with_version,
    write_outcome,
)
from foretail.pipelines.training.scores import Judged, JudgedSide, Labelled, judge, replay_scores_of

LOST = ("precision", "recall", "f1", "average_precision")
LOST_IN_REPLAY = ("recovered_loss", "sent_percent_of_lqd")
AGREEMENT = ("rows", "teacher_drops", "student_drops", "accuracy", "f1")


@dataclass(frozen=True, repr=False)
class DistillResult(Summarised):
    """A student and its teacher."""

    ensemble: Ensemble  #: the student; `export` gives it integer votes
    outcome: Mapping[str, Any]  #: every figure of both, JSON-like
    collected: tuple[CollectedRun, ...]  #: datasets that came from the scenario
    reused: bool  #: the student was in the store
    seconds: float  #: wall time of distilling and scoring, now or earlier
    registered: RegisteredModel | None = None  #: its version in the registry, if the command gave it one

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        return {
            "collected": [asdict(run) for run in self.collected],
            "ensemble_sha256": self.ensemble.sha256,
            "reused": self.reused,
            "distill_seconds": self.seconds,
            **self.outcome,
            "tracked": with_version(self.outcome["tracked"], self.registered),
        }

    def verdict(self) -> list[str]:
        """How alike student and teacher decide on the test side, and what the student gives up there."""
        regions, student = self.outcome["agreement"]["test"], self.outcome["student"]
        region = "asked" if "asked" in regions else "whole"
        which = "the packets about which Credence asks" if region == "asked" else "all packets"
        same = regions[region]["accuracy"]
        first = (
            f"On the test side {student['trees']} trees with {student['leaves']} leaves decide as their teacher on "
            f"{'-' if same is None else f'{100 * same:.4g} %'} of {which}."
        )
        f1 = {who: figure_text(self.outcome[who]["scores"]["test"][region]["f1"]) for who in ("student", "teacher")}
        return [first, f"Their F1 there is {f1['student']}, the teacher's {f1['teacher']}."]

    def tables(self) -> list[Table]:
        """Datasets, scores of both on the test side, agreement, and what both are worth in replay."""
        both = {who: self.outcome[who] for who in ("teacher", "student")}
        rows: list[tuple[Cell, ...]] = [
            (who, *cells[1:]) for who in both for cells in score_rows(both[who]["scores"]) if cells[0] == "test"
        ]
        student = self.outcome["student"]
        size = f"{student['trees']} trees, {student['leaves']} leaves, trained on the teacher's {student['answers']}"
        scores = Table(
            "Test scores" + (" (reused student)" if self.reused else ""),
            ("model", *SCORE_COLUMNS),
            tuple(rows),
            (ASKED, f"student: {size}", f"given up against the teacher: {_losses(self.outcome['loss'])}"),
        )
        agreement = Table(
            "Student against teacher",
            ("side", "region", "rows", "teacher drops", "student drops", "same decision", "F1 of drops"),
            tuple(
                (side, region, *(named[name] for name in AGREEMENT))
                for side, regions in self.outcome["agreement"].items()
                for region, named in regions.items()
            ),
            tuple(run_note(self.outcome["tracked"])),
        )
        replays = {who: both[who]["replay"] for who in both}
        known = [replay_table(replays)] if all(replays.values()) else []
        return [*([dataset_table(self.collected)] if self.collected else []), scores, *known, agreement]


def load_teacher(config: DistillConfig, store: Store) -> Network:
    """The network of a train run's folder, of a file, or of an address in MLflow."""
    if config.model.startswith(("models:/", "runs:/")):
        loaded = load_predictor(config.model, config.tracking, store)
        if isinstance(loaded, Ensemble):
            raise ForetailError(f"{config.model} holds trees, and only a network is distilled: export it as it is")
        return loaded
    path = Path(config.model)
    if path.is_dir():
        path = path / NETWORK_FILE
    if not path.is_file():
        raise ForetailError(f"there is no network {path}: give the folder of a run of foretail train predictor=mlp")
    return Network.load(path)


def distill_into(folder: Path, config: DistillConfig, teacher: Network, split: splits.Split, store: Store) -> None:
    """Fit the student on the teacher's answers, judge both, and write model and outcome to `folder`."""
    refuse_window(teacher.features, config.model)
    labelled = Labelled.of(split, [item.name for item in teacher.features], config.own_queues)
    if labelled.inputs != teacher.features:
        raise ForetailError(
            f"the network {config.model} reads features of another arithmetic than the datasets hold: "
            f"distill on datasets of the cell_bytes and average_shift that it was trained on"
        )
    settings = config.student
    validation = read_rows(split.validation, labelled.columns, region=cast(Region, config.operating_point.region))
    train = read_rows(split.train, labelled.columns).x
    best, *others = imitate(
        teacher.probability,
        teacher.threshold,
        teacher.features,
        train,
        validation.x,
        Budget(settings.trees, settings.depth, settings.leaves),
        rule=THRESHOLD_RULE_KINDS.make(config.operating_point.maximise, config.operating_point.settings),
        seed=settings.seed,
    )
    best = replace(best, ensemble=best.ensemble.with_visits([train]))
    models: dict[str, Ensemble | Network] = {"teacher": teacher, "student": best.ensemble}
    judged = {who: judge(model, labelled, decider_if_any(model, store)) for who, model in models.items()}
    outcome: dict[str, Any] = {
        **describe(labelled),
        "teacher": {
            "network_sha256": teacher.sha256,
            "threshold_probability": teacher.threshold,
            "scores": judged["teacher"].scores,
            "replay": judged["teacher"].replay,
        },
        "student": {
            "answers": best.answers,
            "trees": len(best.ensemble.trees),
            "leaves": sum(len(tree.leaves) for tree in best.ensemble.trees),
            "threshold": str(best.ensemble.threshold),
            "threshold_probability": best.probability_threshold,
            "scores": judged["student"].scores,
            "replay": judged["student"].replay,
        },
        "validation_f1_against_teacher": {student.answers: student.validation.f1 for student in (best, *others)},
        "agreement": {
            side: _agreement(judged["teacher"].sides[side], judged["student"].sides[side]) for side in splits.SIDES
        },
        "loss": _loss(judged["teacher"], judged["student"]),
        "tracked": None,
    }
    if config.tracking.enabled:
        more = {
            "teacher_test": judged["teacher"].scores["test"],
            "agreement_test": outcome["agreement"]["test"],
            "loss_test": outcome["loss"],
        }
        more |= replay_scores_of("teacher_test_replay", judged["teacher"].replay)
        outcome["tracked"] = track_model(
            config, store, labelled, judged["student"], best.ensemble, outcome, more_scores=more
        )
    best.ensemble.save(folder / ENSEMBLE_FILE)
    write_outcome(folder, outcome)


def _loss(teacher: Judged, student: Judged) -> dict[str, dict[str, float | None]]:
    """Scores of the teacher less those of the student on the test side: by region, and of the replay."""
    lost = {
        region: {name: _less(named[name], student.scores["test"][region][name]) for name in LOST}
        for region, named in teacher.scores["test"].items()
    }
    if teacher.replay is not None and student.replay is not None:
        lost["replay"] = {name: _less(teacher.replay[name], student.replay[name]) for name in LOST_IN_REPLAY}
    return lost


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _losses(loss: Mapping[str, Mapping[str, float | None]]) -> str:
    return "; ".join(
        f"{place} " + ", ".join(f"{name.replace('_', ' ')} {figure_text(value)}" for name, value in named.items())
        for place, named in loss.items()
    )


def _agreement(teacher: JudgedSide, student: JudgedSide) -> dict[str, dict[str, Any]]:
    """How alike two models decide on a side, by region: rows, drops of each, accuracy and F1 of the student's."""
    scores = {}
    for region, chosen in teacher.regions.items():
        confusion = Confusion.count(teacher.predicted[chosen], student.predicted[chosen])
        drops = (confusion.tp + confusion.fn, confusion.tp + confusion.fp)
        scores[region] = dict(zip(AGREEMENT, (confusion.rows, *drops, confusion.accuracy, confusion.f1), strict=True))
    return scores


STUDENT = "student"


def distill(config: DistillConfig, run_dir: Path) -> DistillResult:
    """Distil ``config.model``; ``ensemble.json`` goes to the run folder as well."""
    store = Store(config.store_dir)
    teacher = load_teacher(config, store)
    _refuse_other_traffic(config, teacher, store)
    collected, split = find_split(config)
    depends_on = {
        "teacher": [teacher.sha256, versions()["onnxruntime"]],
        "student": asdict(config.student),
        "own_queues": config.own_queues,
    }
    entry = tracked_entry(
        store,
        model_key(STUDENT, config, split, store, depends_on),
        lambda folder: distill_into(folder, config, teacher, split, store),
    )
    nest_in_study(config.tracking, read_outcome(entry))
    ensemble = Ensemble.load(entry.path / ENSEMBLE_FILE)
    run_dir.mkdir(parents=True, exist_ok=True)
    ensemble.save(run_dir / ENSEMBLE_FILE)
    outcome = read_outcome(entry)
    say_zeros("the teacher", teacher, outcome["teacher"]["scores"])
    say_zeros("the student", ensemble, outcome["student"]["scores"])
    registered = register(config, outcome, outcome["student"]["scores"], ensemble)
    return DistillResult(ensemble, outcome, collected, entry.reused, entry.seconds, registered)


def _refuse_other_traffic(config: DistillConfig, teacher: Network, store: Store) -> None:
    """Raise ForetailError, before anything is simulated, when a tracked teacher has seen no run of the scenario."""
    if config.datasets:
        return
    origin = identify(teacher, config.model, config.tracking, store)
    scenario = plain(asdict(config.scenario))
    if origin.lineage is None or any(
        origin.lineage.given(traffic_sha256_of(scenario, seed)) for seed in config.split.all_seeds
    ):
        return
    places = dict.fromkeys(used.location for used in origin.lineage.datasets)
    raise ForetailError(
        f"{config.model} was trained on {', '.join(origin.trained_on or ())}, and no run of scenario "
        f"{config.scenario.name} is among its datasets: give those, with the split of its training, as in "
        f"'datasets=[{','.join(places)}]'"
    )
