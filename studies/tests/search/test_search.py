"""Sharing rules that are drawn or played, their journal of trials, and trees that answer as a network."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from foretail.core.errors import ForetailError
from foretail.models.drop.sharing_rule import SharingRule
from foretail.models.ensemble.ensemble import Ensemble
from foretail.pipelines.experiment.catalog import ExperimentResult, declared, listed
from foretail.pipelines.runs.store import Store
from foretail_studies import families
from foretail_studies.families import SharingCase, SharingPlan
from foretail_studies.search import trials
from foretail_studies.search.trials import PlaySettings, Trial, TrialSettings, open_trials
from tests.composed import experiment_settings, run_of

pytestmark = pytest.mark.slow


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
    with open_trials(settings, Store(file.parent), {}, space, "y", []) as kept:
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
