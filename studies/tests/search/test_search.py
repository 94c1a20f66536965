"""``foretail run predictor_search`` on made-up datasets."""

from __future__ import annotations

import importlib
import json
import math
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import numpy as np
import optuna
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import IntDistribution
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from foretail.configs.schema.model_stages import TrainConfig
from foretail.core.errors import ForetailError
from foretail.export.p4.target import P4
from foretail.export.target import export
from foretail.features.catalog import FEATURES, selection_cost
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Rules
from foretail.features.rows.labelled_rows import read_rows
from foretail.features.rows.splits import Selection
from foretail.models.drop.sharing_rule import SharingRule
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.scoring.metrics import Confusion
from foretail.pipelines.experiment.catalog import ExperimentResult, declared, listed
from foretail.pipelines.experiment.declaration import Run
from foretail.pipelines.runs.result import plain
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_settings
from foretail.pipelines.settings.validation import validate
from foretail.pipelines.stages.train import train
from foretail.sim_bridge.open_loop.replay import replay_scores
from foretail_studies import families
from foretail_studies.families import SharingCase, SharingPlan
from foretail_studies.search import trials
from foretail_studies.search.predictors import Finished, search
from foretail_studies.search.trials import Dimension, PlaySettings, SearchSettings, Trial, TrialSettings, open_trials
from tests.composed import experiment_settings, run_of
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


KILLED = """
import sys
from pathlib import Path
from studies.tests.search.test_search import searched, settings
searched(settings(Path(sys.argv[1]), sys.argv[2:], 1000), Path(sys.argv[1]) / "out")
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_a_killed_search_leaves_whole_trials_only(folder: Path, candidate: list[str]) -> None:
    here = folder / "killed"
    file = here / "search.journal"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(here), *candidate], cwd=Path(__file__).parents[3])
    try:
        while len(trials_in(file)) < 3:
            assert process.poll() is None
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = len(trials_in(file))
    assert {line["state"] for line in trials_in(file)} == {TrialState.COMPLETE}
    result = searched(settings(here, candidate, kept + 1), here / "out")
    assert drawn(result) == drawn(run(folder, candidate, kept + 1, f"file={folder / 'fresh.journal'}"))

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


def trials_in(file: Path) -> list[dict[str, Any]]:
    """Whole lines of trials in a journal that another process may write."""
    lines = file.read_text().splitlines(keepends=True) if file.is_file() else []
    return [json.loads(line) for line in lines if '"op_code":4,' in line and line.endswith("\n")]


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
    with pytest.raises(ForetailError, match=message):
        run(folder, candidate, **({"trials": 1} | more))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[SharingCase]:
    """Simulations cost more the further a rule is from 10, 200, 150, 160, and a little more with load and seed."""
    cases: list[SharingCase] = []

    def measure(title: str, kind: str, given: Sequence[SharingCase], *_: object, **__: object) -> Any:
        cases.extend(given)
        found = []
        for case in given:
            if case.policy != "learned":
                found.append({"cost": 20.0, "flows_sha256": f"{case.where} {case.seed}"})
                continue
            more = (case.condition == "load_80") + case.seed / 1000
            found.append(
                {"cost": 1.0 + far_from_best(case.setting) + more, "flows_sha256": f"{case.where} {case.seed}"}
            )
        return SimpleNamespace(cases=given, measurements=found, reused=0)

    monkeypatch.setattr(families, "measure_cases", measure)
    monkeypatch.setattr(trials, "export_to_store", lambda *_: SimpleNamespace(library=Path("unused")))
    return cases


def searched_of_rule_search(folder: Path, trials: int, *overrides: str, name: str = "sharing_rule") -> ExperimentResult:
    given = ["size=small", f"trials={trials}", f"store_dir={folder / 'store'}", "tracking=off", *overrides]
    return run_of(name, folder / "out", *given)


def trials_of(result: ExperimentResult) -> list[dict[str, Any]]:
    """The trials, each with its values, score and losses."""
    return [{str(name): value for name, value in row.items()} for row in result.shown.rows.to_dict("records")]


@pytest.mark.nightly
def test_trials_share_a_seed_and_the_best_run_everywhere(asked: list[SharingCase], tmp_path: Path) -> None:
    found = searched_of_rule_search(tmp_path, 6)
    first = {"message_left": 17, "fill": 255, "pressure": 136, "first_rtt_more": 0}
    assert trials_of(found)[0]["rule"].startswith("17 255 136 136")
    assert first.items() <= experiment_settings("sharing_rule", "size=small").first_numbers[0].items()
    finalists, learned = found.shown.details["finalists"], found.shown.learned
    assert learned is not None
    assert {case.seed for case in asked if case.policy.startswith("dt")} == {101, 102}
    rules = [one for one in finalists if one["trial"] is not None]
    best = min(trials_of(found), key=lambda trial: float(trial["score"]))
    assert rules[0]["trial"] == best["trial"]
    assert rules[0]["against"]["mean"] < rules[1]["against"]["mean"]
    assert [one["against"]["mean"] for one in finalists if one["rule"] == "lqd_last"] == [0]
    everywhere = {(case.family, case.condition, case.seed) for case in asked if case.setting == rules[0]["rule"]}
    assert everywhere == {("websearch", load, seed) for load in ("load_40", "load_80") for seed in (101, 102)}
    rule = SharingRule(*map(int, rules[0]["rule"].split()))
    assert Ensemble.load(tmp_path / "out" / "ensemble.json") == rule.ensemble(cell_bytes=256) == learned.ensemble
    assert len(pd.read_csv(tmp_path / "out" / "trials.csv")) == 6
    budget = found.shown.details["budget"]
    assert (budget["simulations"], budget["branches"]) == (len(set(asked)), 0)


@pytest.mark.nightly
def test_a_trial_stops_where_it_is_clearly_worse(asked: list[SharingCase], tmp_path: Path) -> None:
    trials = trials_of(searched_of_rule_search(tmp_path, 12, "stop_percent=10"))
    best = trials[0]["losses"]
    for trial in trials:
        number, losses = trial["trial"], trial["losses"]
        if number >= 2 and number % 2 == 0:  # a batch of two knows the trials before it
            best = min((one["losses"] for one in trials[:number] if one["conditions"] == 2), key=sum)
        worse = losses[0] - best[0]
        assert (len(losses) == 1) == (number >= 2 and worse > math.log(1.1))
        whole = losses if len(losses) == 2 else [losses[0], best[1] + worse / 2 - worse / 2 + worse]
        assert trial["score"] == pytest.approx(100 * math.expm1(np.mean(whole)))
        far = far_from_best(trial["rule"])
        assert losses[0] == pytest.approx(math.log((1.101 + far) / 20))
    assert {trial["conditions"] for trial in trials} == {1, 2}
    spent = [0.0, *(trial["simulated_s"] for trial in trials)]
    assert np.diff(spent) == pytest.approx([0.002 * trial["conditions"] for trial in trials])


def far_from_best(rule: str) -> int:
    """How far the first four numbers of a rule are from those that cost least."""
    return sum(abs(one - best) for one, best in zip(map(int, rule.split()[:4]), (10, 200, 150, 160), strict=True))


def test_conditions_with_other_cells_are_refused(asked: list[SharingCase], tmp_path: Path) -> None:
    load = "families.websearch.conditions.load_80"
    with pytest.raises(ForetailError, match=r"^families has cells of \[128, 256\] bytes"):
        searched_of_rule_search(tmp_path, 2, f"{load}=['scenario.features.cell_bytes=128']")
    assert asked == []


def search_of_trials(file: Path, trials: int) -> list[Trial]:
    settings = TrialSettings(trials=trials, batch=2, name="mine", file=str(file))
    space = {"x": IntDistribution(0, 9)}
    with open_trials(settings, "test", Store(file.parent), {}, space, {"y": "maximize"}, TPESampler) as kept:
        while drawn := kept.batch(trials):
            kept.keep([Trial(one.number, one.values, {"y": one.values["x"]}, None) for one in drawn])
        return kept.finished()


def damaged(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-20:-10] = b"\xa5" * 10
    file.write_bytes(content)


def left_running(file: Path) -> None:
    storage = JournalStorage(JournalFileBackend(str(file)))
    optuna.load_study(study_name="mine", storage=storage).ask({"x": IntDistribution(0, 9)})


def foreign(file: Path) -> None:
    file.write_text("no journal, " * 500)


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (left_running, r"trial 2 of mine in .* was begun by another program, which did not end it: give another name"),
        *((spoil, r"cannot hold trials \(.*\): give another file") for spoil in (damaged, foreign, a_folder)),
    ],
)
def test_a_file_that_another_program_spoiled(tmp_path: Path, spoil: object, sentence: str) -> None:
    file = tmp_path / "search.journal"
    first = search_of_trials(file, 2)
    assert search_of_trials(file, 2) == first
    spoil(file)  # type: ignore[operator]
    with pytest.raises(ForetailError, match=sentence):
        search_of_trials(file, 4)


def test_a_line_that_was_cut_short_is_drawn_again(tmp_path: Path) -> None:
    file = tmp_path / "search.journal"
    both = search_of_trials(file, 2)
    content = file.read_bytes()
    file.write_bytes(content[:-40])
    (tmp_path / "search.journal.lock").symlink_to(file)  # as of a process that was killed while it wrote
    assert search_of_trials(file, 2) == both
    assert len(search_of_trials(file, 4)) == 4


playing = pytest.importorskip("foretail_studies.search.ppo", reason="the extra rl is not installed")
SMALL = ("size=small", "tracking=off", "jobs=1")


def rounds_in(folder: Path) -> list[Path]:
    """The rounds of a store."""
    return sorted(path for path in (folder / "store" / "ppo_round").iterdir() if not path.name.startswith("."))


@pytest.mark.slow
def test_training_goes_on_where_it_was(tmp_path: Path) -> None:
    store = f"store_dir={tmp_path / 'store'}"
    first = run_of("rule_by_ppo", tmp_path, *SMALL, store, "rounds=1").shown.rows
    (played,) = rounds_in(tmp_path)
    weights = (played / "content" / "weights.pt").read_bytes()
    result = run_of("rule_by_ppo", tmp_path, *SMALL, store)
    rows = result.shown.rows
    assert len(rounds_in(tmp_path)) == 2
    assert (played / "content" / "weights.pt").read_bytes() == weights
    assert rows.iloc[0].equals(first.iloc[0])
    assert rows["decisions"].tolist() == [4096, 8192]
    assert rows["simulated_s"].is_monotonic_increasing
    assert rows["simulated_s"].iloc[0] > 0
    assert result.document()["best"] in ("ppo_1", "ppo_2")
    tree = Ensemble.load(tmp_path / "ensemble.json")
    assert sum(one.leaves.sum() for one in tree.trees) <= 32
    assert {item.name for item in tree.features} <= set(experiment_settings("rule_by_ppo", *SMALL).observed)


@pytest.mark.slow
def test_the_rewards_of_an_episode_add_up_to_its_cost() -> None:
    settings = experiment_settings("rule_by_ppo", *SMALL, "networks=1")
    plan = SharingPlan.of(settings, settings.shared, settings.training(), {"lqd": {}})
    networks = playing.Networks(playing.Episodes(list(plan.scenarios.values()), settings), seed=5)
    rows, earned, ended = networks.reset(), 0.0, np.zeros(1, np.bool_)
    while not ended.any():
        assert rows.dtype == np.float32
        assert ((rows >= 0) & (rows <= 1)).all()
        networks.step_async(np.zeros(1, np.int64))
        rows, rewards, ended, _ = networks.step_wait()
        earned += float(rewards[0])
    (cost,) = networks.costs
    assert 1 - cost == pytest.approx(earned, abs=1e-4)
    assert 0 < networks.simulated_ns <= settings.episode_ns


@given(st.integers(1, 254), st.integers(0, 2**32 - 1))
def test_the_tree_answers_as_a_network_that_is_a_threshold(cut: int, seed: int) -> None:
    settings = PlaySettings(observed=["message_left", "pressure"], decisions=1024, leaves=2)
    rows = np.random.default_rng(seed).integers(0, 256, (500, 2)).astype(np.int32)
    drops = rows[:, 1] > cut
    tree = playing.distilled(rows, drops, settings)
    assert tree.get_n_leaves() == 2
    assert (tree.predict(rows) == drops).all()


def test_an_experiment_without_its_package_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(module: str) -> None:
        raise ModuleNotFoundError(f"No module named {module}", name="stable_baselines3")

    listed("rule_by_ppo")  # reads the files of all experiments
    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ForetailError, match="rule_by_ppo needs stable_baselines3, which is not installed"):
        declared("rule_by_ppo")
