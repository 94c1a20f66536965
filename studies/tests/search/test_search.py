"""``foretail run predictor_search`` on made-up datasets."""

from __future__ import annotations

import json
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import pytest

from foretail.configs.schema.model_stages import TrainConfig
from foretail.core.errors import ForetailError
from foretail.export.p4.target import P4
from foretail.export.target import export
from foretail.features.catalog import FEATURES, selection_cost
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Rules
from foretail.features.rows.labelled_rows import read_rows
from foretail.features.rows.splits import Selection
from foretail.models.scoring.metrics import Confusion
from foretail.pipelines.experiment.declaration import Run
from foretail.pipelines.runs.result import plain
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_settings
from foretail.pipelines.settings.validation import validate
from foretail.pipelines.stages.train import train
from foretail.sim_bridge.open_loop.replay import replay_scores
from foretail_studies.search.predictors import Finished, search
from foretail_studies.search.trials import Dimension, SearchSettings
from tests.composed import experiment_settings
from tests.traces import make_arrivals, write_trace

pytestmark = pytest.mark.slow

THRESHOLD = [feature.name for feature in FEATURES].index("threshold")
SPACE = {
    "predictor": Dimension(choices=["random_forest", "boosted_trees"]),
    "trees": Dimension(override="predictor.trees", integers=[1, 3]),
    "depth": Dimension(override="predictor.depth", integers=[1, 3]),
    "rows": Dimension(override="predictor.min_leaf_rows", integers=[1, 100], log=True),
    "rate": Dimension(override="predictor.learning_rate", floats=[0.1, 1.0], log=True),
    "drop_weight": Dimension(choices=[1, "balanced"]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("search")


@pytest.fixture(scope="module")
def candidate(folder: Path) -> list[str]:
    """Overrides of runs in which those packets are dropped that meet a long queue."""
    paths = []
    for seed in (1, 2, 3, 4):
        arrivals = make_arrivals(1500, seed)
        data = arrivals.records["flow_class"] != 0
        arrivals.records["lqd_drop"] = data & (arrivals.records["features"][:, THRESHOLD] > 0.85 * 2**24)
        written = write_trace(
            folder / "runs" / f"{seed}",
            arrivals,
            seed=seed,
            scenario={"topology": {"wire_overhead_bytes": 2}},
            rules=Rules("counted", "lowest_port", "head"),
        )
        paths.append(str(written.path))
    return [f"datasets=[{','.join(paths)}]", "features.names=[threshold,thresholds_sum]"]


def settings(folder: Path, shared: list[str], trials: int, *overrides: str, **more: Any) -> SearchSettings:
    small = experiment_settings("predictor_search", "size=small", f"store_dir={folder / 'store'}", *overrides)
    values: dict[str, Any] = {
        "candidate": shared,
        "space": SPACE,
        "objectives": ["f1", "leaves"],
        "budget": {"comparisons": 6},
        "population": 3,
        "batch": 2,
        "trials": trials,
    }
    config: SearchSettings = replace(small, **(values | more))
    validate(config)
    return config


def searched(config: SearchSettings, folder: Path) -> Finished:
    return search(config, Run(folder, Store(config.store_dir), None))


def run(folder: Path, shared: list[str], trials: int, *overrides: str, **more: Any) -> Finished:
    return searched(settings(folder, shared, trials, "tracking=off", *overrides, **more), folder / "out")


def drawn(result: Finished) -> list[Any]:
    return [(trial.number, dict(trial.values), trial.figures, trial.failed) for trial in result.trials]


@pytest.fixture(scope="module")
def found(folder: Path, candidate: list[str]) -> Finished:
    return run(folder, candidate, 7)


@pytest.mark.nightly
@pytest.mark.full
def test_scores_are_of_validation_runs_and_costs_of_the_exported_model(
    found: Finished, folder: Path, candidate: list[str]
) -> None:
    trial = max(found.trials, key=lambda one: len(one.values))
    assert trial.figures is not None
    config = compose_settings(TrainConfig, [*found.space.overrides(trial.values), "tracking=off"], "here")
    model = train(replace(config, store_dir=str(folder / "other")), folder / "trained").ensemble
    assert model.sha256 == trial.figures["model_sha256"]
    (path,) = [path for path in map(Path, config.datasets) if Dataset.open(path).manifest.seed == 3]
    rows = read_rows((Selection(Dataset.open(path)),), ["threshold", "thresholds_sum"])
    assert rows.asked is not None
    predicted = model.exceeds(rows.x)
    assert trial.figures["f1"] == Confusion.count(rows.lqd_drop[rows.asked], predicted[rows.asked]).f1
    asked, whole = (replay_scores(Dataset.open(path), told) for told in (predicted & rows.asked, predicted))
    assert trial.figures["recovered_loss"] == asked.recovered_loss
    assert trial.figures["sent_percent_of_lqd"] == whole.sent_percent_of_lqd
    exported = export(model, P4(), folder / "p4").report["chosen"]
    assert trial.figures["table_entries"] == exported["rows"]
    assert trial.figures["tcam_bits"] == exported["tcam_bits"]
    assert trial.figures["comparisons"] <= config.predictor["trees"] * config.predictor["depth"]
    assert trial.figures["feature_bits"] == selection_cost(["threshold", "thresholds_sum"], 10).register_bits


def test_trials_draw_only_what_their_predictor_has(found: Finished) -> None:
    names = {"random_forest": "predictor.min_leaf_rows", "boosted_trees": "predictor.learning_rate"}
    assert {trial.values["predictor"] for trial in found.trials} == set(names)
    for trial in found.trials:
        settings = {override.partition("=")[0] for override in found.space.drawn(trial.values)}
        assert settings & set(names.values()) == {names[trial.values["predictor"]]}


def test_the_front_and_the_chosen_trial_are_those_of_a_plain_search(found: Finished, folder: Path) -> None:
    figures = {trial.number: (-trial.figures["f1"], trial.figures["leaves"]) for trial in found.trials if trial.figures}
    front = {
        number
        for number, (score, cost) in figures.items()
        if not any(other != (score, cost) and other[0] <= score and other[1] <= cost for other in figures.values())
    }
    assert found.front == front
    within = [trial for trial in found.trials if trial.figures is not None and trial.figures["comparisons"] <= 6]
    assert found.tested is not None
    assert figures[found.tested.trial] == min(figures[trial.number] for trial in within)
    chosen = found.trials[found.tested.trial].figures
    assert chosen is not None
    assert found.tested.trained.model.sha256 == chosen["model_sha256"]
    assert {run.seed for run in found.tested.held_out} == {4}
    frame = found.shown().frames["front.parquet"]
    assert set(frame["trial"]) == front
    shown = found.shown()
    assert set(shown.frames) == {"front.parquet", "trials.csv", "trials.parquet"}
    assert list(shown.figures) == ["front"]
    json.dumps(plain(shown.details), allow_nan=False)
    assert shlex.join(found.tested.overrides) in found.tables()[-1].notes[-1]


def test_no_trial_reads_the_test_runs(found: Finished, folder: Path, candidate: list[str]) -> None:
    runs = [Dataset.open(Path(path)) for path in compose_settings(TrainConfig, candidate, "here").datasets]
    (sha256,) = [run.manifest.content_sha256 for run in runs if run.manifest.seed == 4]
    sides = [
        json.loads(key.read_text())["depends_on"]["sides"] for key in (folder / "store" / "model").glob("*/key.json")
    ]
    saw_test = [one for one in sides if any(run[0] == sha256 for side in one.values() for run in side)]
    assert len(saw_test) == 1  # the chosen one, trained once more
    assert len(sides) > 2


@pytest.mark.nightly
@pytest.mark.full
def test_the_same_command_goes_on_and_jobs_change_nothing(found: Finished, folder: Path, candidate: list[str]) -> None:
    file = f"file={folder / 'parts.db'}"
    for trials, jobs in ((3, 2), (7, 1)):
        assert drawn(run(folder, candidate, trials, file, f"jobs={jobs}")) == drawn(found)[:trials]
    assert drawn(run(folder, candidate, 2, file)) == drawn(found)  # fewer than there are


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.slow
def test_tpe_goes_on_as_if_it_had_never_stopped(folder: Path, candidate: list[str]) -> None:
    space = {name: SPACE[name] for name in ("trees", "depth")}
    file = f"file={folder / 'tpe.db'}"
    run(folder, candidate, 11, file, sampler="tpe", space=space)  # the first ten are random
    parts = run(folder, candidate, 13, file, sampler="tpe", space=space)
    assert drawn(parts) == drawn(run(folder, candidate, 13, sampler="tpe", space=space))


KILLED = """
import sys
from pathlib import Path
from studies.tests.search.test_search import searched, settings
searched(settings(Path(sys.argv[1]), sys.argv[2:], 1000), Path(sys.argv[1]) / "out")
"""


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.slow
def test_a_killed_search_leaves_whole_trials_only(folder: Path, candidate: list[str]) -> None:
    here = folder / "killed"
    file = here / "search.db"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(here), *candidate], cwd=Path(__file__).parents[3])
    try:
        while count(file) < 3:
            assert process.poll() is None
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = count(file)
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT DISTINCT state FROM trials").fetchall() == [("COMPLETE",)]
    result = searched(settings(here, candidate, kept + 1), here / "out")
    assert drawn(result) == drawn(run(folder, candidate, kept + 1, f"file={folder / 'fresh.db'}"))

    client = mlflow.MlflowClient(f"sqlite:///{here / 'mlflow.db'}")
    (experiment,) = [one for one in client.search_experiments() if one.name == "foretail"]
    runs = client.search_runs([experiment.experiment_id])
    nested = [one for one in runs if "trial" in one.data.tags]
    assert sorted(int(one.data.tags["trial"]) for one in nested) == list(range(kept + 1))
    assert {one.data.tags["mlflow.parentRunId"] for one in nested} == {(result.tracked or {})["run_id"]}
    for one in nested:
        trial = result.trials[int(one.data.tags["trial"])]
        assert trial.figures is not None
        assert one.info.status == "FINISHED"
        assert one.data.metrics["validation/f1"] == trial.figures["f1"]
        assert one.inputs is not None
        sides = {tag.value for used in one.inputs.dataset_inputs for tag in used.tags}
        assert sides == {"train", "validation"}
    outer = client.get_run(str((result.tracked or {})["run_id"]))
    assert outer.info.status == "FINISHED"
    assert outer.inputs is not None
    assert len(outer.inputs.dataset_inputs) == 4


def count(file: Path) -> int:
    """Trials in a file that another process writes."""
    if not file.is_file():
        return 0
    with closing(sqlite3.connect(file)) as database:
        try:
            return int(database.execute("SELECT count(*) FROM trials WHERE state != 'RUNNING'").fetchone()[0])
        except sqlite3.OperationalError:  # no table yet
            return 0


def test_failed_trials_are_named(folder: Path, candidate: list[str]) -> None:
    space = {"predictor": Dimension(choices=["random_forest", "logistic_regression"])}
    result = run(folder, candidate, 4, space=space)
    failed = [trial for trial in result.trials if trial.failed is not None]
    assert failed
    assert all(trial.values["predictor"] == "logistic_regression" for trial in failed)
    assert all("foretail distill" in str(trial.failed) for trial in failed)
    (table,) = [table for table in result.tables() if table.title == "Failed trials"]
    assert [row[0] for row in table.rows] == [trial.number for trial in failed]
    with pytest.raises(ForetailError, match="all 1 trials failed, the first because a network is not a sum of trees"):
        run(folder, [*candidate, "predictor=logistic_regression"], 1, space={"drop_weight": SPACE["drop_weight"]})


@pytest.mark.nightly
def test_a_budget_that_nothing_fits_chooses_nothing(folder: Path, candidate: list[str]) -> None:
    result = run(folder, candidate, 2, budget={"leaves": 0}, space={"drop_weight": SPACE["drop_weight"]})
    assert result.tested is None
    assert result.tables()[-1].notes == ("No trial is within the budget: raise it.",)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"space": {}}, "space is empty: name at least one setting to draw"),
        ({"space": {"x": Dimension(override="predictor.tree", integers=[1, 2])}}, "draws predictor.tree, which"),
        ({"space": {"split.train": Dimension(choices=[1])}}, "draws split.train, and trials may differ in"),
        ({"space": {"features": Dimension(choices=["paper", "none"])}}, "features=none is unknown"),
        ({"space": {"drop_weight": Dimension()}}, "drop_weight has no values"),
        ({"space": {"drop_weight": Dimension(floats=[2, 1])}}, r"floats = \[2, 1\] is not a range"),
        ({"space": {"drop_weight": Dimension(floats=[0, 1], log=True)}}, "log needs a range above 0"),
        ({"space": {"drop_weight": Dimension(integers=[1, 4], step=2)}}, "step = 2 is for integers"),
        ({"space": {"drop_weight": Dimension(choices=[1, 1])}}, "holds 1 twice"),
        ({"objectives": ["accuracy", "leaves"]}, "objectives = accuracy is unknown"),
        ({"objectives": ["f1"]}, "objectives contains no cost"),
        ({"objectives": ["leaves"]}, "objectives contains no score"),
        ({"budget": {"f1": 1}}, "budget.f1 is not a cost"),
        ({"trials": 0}, "trials = 0 is out of range"),
        ({"p4_profile": "none"}, "there is no P4 profile 'none'"),
        ({"candidate": ["predictor.tree=3"]}, "candidate = predictor.tree=3"),
        ({"candidate": ["split=by_time"]}, "candidate splits by_time"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(
    folder: Path, candidate: list[str], more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ForetailError, match=message) as refused:
        run(folder, candidate, **({"trials": 1} | more))
    assert "\n" not in str(refused.value)


@pytest.mark.nightly
@pytest.mark.full
def test_another_search_of_the_same_name_and_files_of_others_are_refused(folder: Path, candidate: list[str]) -> None:
    named = (f"file={folder / 'named.db'}", "name=mine")
    run(folder, candidate, 1, *named, space={"trees": SPACE["trees"]})
    with pytest.raises(
        ForetailError, match=r"named\.db holds another search called mine, with other space: give another"
    ):
        run(folder, candidate, 1, *named, space={"drop_weight": SPACE["drop_weight"]})
    other = folder / "other.db"
    other.write_text("not a database, " * 100)
    with pytest.raises(ForetailError, match=r"other\.db cannot hold trials"):
        run(folder, candidate, 1, f"file={other}")
