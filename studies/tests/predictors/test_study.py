from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from foretail.core.errors import ForetailError
from foretail.features.rows.labelled_rows import read_rows
from foretail.features.rows.splits import Selection
from foretail.models.scoring.metrics import Confusion
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown
from foretail.pipelines.experiment.running import run_experiment
from foretail.pipelines.exporting.deciding import decider_of
from foretail.pipelines.settings.validation import validate
from foretail.sim_bridge.open_loop.replay import ReplayScores, replay_scores
from foretail_studies.predictors.held_out import ACCEPT, SPLITS
from foretail_studies.predictors.studying import Studied, StudySettings, studied
from tests.composed import experiment_settings

pytestmark = pytest.mark.slow

SMALL = ("predictor_study", "size=small")
CANDIDATES = {
    "paper": ["features=paper", "features.own_queues=true"],
    "ours": ["features=virtual", "operating_point.maximise=recovered_loss"],
    "again": ["features=virtual", "labels.rule=head"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def found(folder: Path) -> Studied:
    settings = experiment_settings(*SMALL, f"store_dir={folder / 'store'}")
    settings.candidates, settings.budget, settings.forest_sizes = CANDIDATES, ["paper", "ours"], [1, 2]
    settings.closed_loop.candidates, settings.shift.candidate, settings.label_candidate = (
        ["paper", "ours"],
        "ours",
        "ours",
    )
    validate(settings)
    kept: list[Studied] = []

    def show(settings: StudySettings, run: Run) -> Shown:
        kept.append(studied(settings, run))
        return kept[0].shown()

    run_experiment(FunctionExperiment(StudySettings, show), settings, folder / "run")
    return kept[0]


@pytest.mark.nightly
@pytest.mark.full
def test_every_candidate_is_judged_on_runs_that_it_never_saw(found: Studied) -> None:
    assert {(run.candidate, run.condition, run.seen) for run in found.held_out} == {
        (candidate, condition, seen)
        for candidate in (ACCEPT, "paper", "ours", "again")
        for condition, seen in (("base", True), ("load40", False))
    }
    for run in found.held_out:
        dataset = found.conditions[run.condition].runs[run.seed]
        assert run.seed not in (*found.settings.split.train, *found.settings.split.validation)
        if run.candidate == ACCEPT:
            assert (run.asked.tp, run.asked.fp, run.replay.recovered_loss) == (0, 0, 0)
            continue
        trained = found.trained[run.candidate]
        used = {item["content_sha256"] for item in trained.outcome["datasets"] if item["side"] != "test"}
        assert dataset.manifest.content_sha256 not in used
        rows = read_rows((Selection(dataset),), trained.outcome["columns"])
        predicted = trained.model.exceeds(rows.x)
        assert rows.asked is not None
        assert run.asked == Confusion.count(rows.lqd_drop[rows.asked], predicted[rows.asked])
        assert run.whole == Confusion.count(rows.lqd_drop, predicted)
        assert run.replay == replay_scores(dataset, predicted, decider_of(trained.ensemble))


def test_the_threshold_by_recovered_loss_is_no_worse_than_accepting_where_it_was_chosen(found: Studied) -> None:
    ours = found.trained["ours"]
    (validation,) = [item for item in ours.outcome["datasets"] if item["side"] == "validation"]
    dataset = next(run for run in found.conditions["base"].runs.values() if str(run.path) == validation["path"])
    rows = read_rows((Selection(dataset),), ours.outcome["columns"])
    never = ours.ensemble.with_threshold(Fraction(10**6))
    predicted = ours.model.exceeds(rows.x)
    sent, accepted = (replay_scores(dataset, predicted, decider_of(one)).sent_bytes for one in (ours.ensemble, never))
    assert sent is not None
    assert accepted is not None
    assert sent >= accepted


def test_closed_loop_shift_and_leakage_are_shown(found: Studied, folder: Path) -> None:
    tables = {table.title: table for table in found.tables()}
    flows = tables["Closed loop, condition base"]
    assert [row[0] for row in flows.rows] == [
        "lqd",
        "credence_accept",
        "followlqd",
        "dt",
        "credence, paper",
        "credence, ours",
    ]
    shift = tables["Shift: F1 of the asked region"]
    assert shift.columns == ("trained on", "base", "load40")
    diagonal = next(run for run in found.held_out if (run.candidate, run.condition) == ("ours", "base")).asked.f1
    assert shift.rows[0][1] == pytest.approx(diagonal)
    assert [(row["split"], row["trees"]) for row in found.leakage] == [(s, t) for s in SPLITS for t in (1, 2)]
    files = {path.name for path in (folder / "run").iterdir()}
    assert files >= {f"predictor_study_{name}.{kind}" for name in ("shift", "leakage") for kind in ("png", "csv")}
    assert set(found.shown().figures) == {"shift", "leakage"}
    json.dumps(found.details(), default=str)


def test_a_study_says_who_recovers_most_and_what_the_gate_said(found: Studied) -> None:
    first, second = found.verdict()
    recovered = {
        name: ReplayScores.together(
            [run.replay for run in found.held_out if run.candidate == name and run.seen]
        ).recovered_loss
        for name in found.trained
    }
    best = max(recovered, key=lambda name: recovered[name] or 0)
    share = f"{100 * (recovered[best] or 0):.3g} %"
    words = f"{best} recovers the largest share of what always accepting loses, {share}"
    none = f"no predictor recovers what always accepting loses; {best} comes closest, {share}"
    assert first.startswith(f"On held-out runs {words if (recovered[best] or 0) > 0 else none}")
    assert second.startswith("The gate ")


def test_the_study_is_a_run_with_its_trainings_and_its_gate_inside(found: Studied, folder: Path) -> None:
    assert found.promotion is not None
    gate = found.promotion.gate
    assert gate is not None
    uri = gate.tracked["uri"]
    client = MlflowClient(uri)
    runs = client.search_runs([gate.tracked["experiment_id"]])
    (parent,) = (run for run in runs if "mlflow.parentRunId" not in run.data.tags)
    assert {run.data.tags["mlflow.parentRunId"] for run in runs if run is not parent} == {parent.info.run_id}
    inside = {run.info.run_id for run in runs if run is not parent}
    assert {one.outcome["tracked"]["run_id"] for one in found.trained.values()} | {gate.tracked["run_id"]} <= inside
    assert {item.path for item in client.list_artifacts(parent.info.run_id)} >= {
        "predictor_study.json",
        "predictor_study_shift.png",
    }
    assert found.promotion.chosen in ("paper", "ours")
    assert (folder / "run" / "champion" / "model_card.md").is_file()


@pytest.mark.nightly
def test_settings_that_do_not_fit_together_are_refused_at_the_door() -> None:
    for override, message in (
        ("train_on=[nowhere]", "train_on names nowhere"),
        ("closed_loop.candidates=[nobody]", "closed_loop.candidates names nobody"),
        ("closed_loop.conditions=[nowhere]", "closed_loop.conditions names nowhere"),
        ("closed_loop.seeds=[1]", "seed 1"),
        ("closed_loop.policies=[dt]", "lqd"),
        ("shift.conditions=[nowhere]", "shift.conditions names nowhere"),
        ("shift.candidate=nobody", "shift.candidate names nobody"),
        ("split.name=by_time", "split"),
        ("budget=[nobody]", "budget names nobody"),
        ("tracking=off", "tracking is off"),
    ):
        with pytest.raises(ForetailError, match=message):
            experiment_settings(*SMALL, override)
