"""``foretail run policy_iteration``, labels under a learned rule, and budgets; 20 s of CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest

from foretail.configs.schema.scenario import Scenario
from foretail.core.errors import ForetailError
from foretail.models.ensemble.ensemble import Ensemble
from foretail.pipelines import cli
from foretail.pipelines.families.conditions import Condition, SharingCase
from foretail.pipelines.runs.store import Store
from foretail_studies.costs.learning import Learning, labelled_policies
from foretail_studies.search.budget import Budget
from tests.composed import experiment_settings

pytestmark = pytest.mark.slow

SHORT = "shared=['scenario=tiny','scenario.traffic_ns=1_000_000']"
FEW = ["flips=6", "flips_per_point=6", "fewest_flips=1", "traffic_ns=1_000_000", "drop_shares=[0.2]"]


OPTIONS = [SHORT, "jobs=1", "size=small", *FEW]
"""A search of few flips, in short runs."""
ITERATION = ["run", "policy_iteration", *OPTIONS]


def result(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return document


def test_a_budget_counts_every_simulation_once() -> None:
    where = Condition("a", "b")
    cases = [SharingCase("a", "b", policy, "default", seed) for policy in ("cs", "dt") for seed in (1, 2, 1)]
    found = Budget.of_cases(cases, {where: Scenario(name="a", traffic_ns=500)})
    assert found == Budget(4, 0, 2000)
    assert found + Budget(1, 7, 3) == Budget(5, 7, 2003)
    assert Budget(5, 7, 2003).sentence().startswith("budget: 5 simulations and 7 branches, 2e-06 simulated seconds")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("left_out=[websearch load_40]", "left_out names websearch load_40, which is labelled"),
        ("left_out=[]", "left_out is empty: give at least one value"),
        ("conditions=[]", "conditions is empty: name them, so that others can be left out"),
        ("test_seeds=[113]", "test_seeds holds 113, which learns or chooses"),
        ("most_rounds=0", "most_rounds"),
        ("policies=[lqd]", "names lqd, which pushes out"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(override: str, sentence: str) -> None:
    with pytest.raises(ForetailError) as error:
        experiment_settings("policy_iteration", "size=small", override)
    assert sentence in str(error.value)


def test_a_model_that_nobody_can_ask_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "sharing_rule", "size=small", "model=x.json"]) == 2
    assert "model is a setting of another" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["policies=[learned]"], "names learned, which asks a predictor, and there is none: give"),
        (["model=x.json"], "policies names none that asks model=x.json: add one, such as learned"),
        (["policies=[learned]", "model=x.json"], "there is no model x.json"),
    ],
)
def test_who_asks_needs_a_model_and_a_model_somebody_who_asks(more: list[str], sentence: str, tmp_path: Path) -> None:
    settings = experiment_settings("drop_costs", "size=small", *more)
    with pytest.raises(ForetailError) as error:
        labelled_policies(settings, Store(str(tmp_path)))
    assert sentence in str(error.value)


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.ns3
def test_rounds_go_on_where_they_stopped_and_the_stored_rule_of_one_gives_the_labels_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main([*ITERATION, "most_rounds=1", "tracking=off", "hydra.run.dir=stopped"]) == 0
    stopped = result(tmp_path / "stopped")
    assert cli.main([*ITERATION, "hydra.run.dir=first"]) == 0
    first = result(tmp_path / "first")
    assert (stopped["points"], stopped["reused"], first["points"], first["reused"]) == (1, 0, 2, 1)
    assert stopped["rounds"] == first["rounds"][:1]
    assert [one["under"] for one in first["rounds"]] == ["cs", "learned, round 1"]
    assert first["best"] == 1 + int(np.argmin([one["cost"] for one in first["rounds"]]))
    assert [(row["condition"], row["left_out"]) for row in first["rows"]] == [("load_40", False), ("load_80", True)]
    # a round: a trace, a point of 6 flips, two limits, one rule left out; once Complete Sharing in both conditions
    assert [one["budget"]["simulations"] for one in first["rounds"]] == [2 + 2 + 1 + 2, 2 * 5 + 2]
    assert [one["budget"]["branches"] for one in first["rounds"]] == [6, 12]
    assert first["budget"] == first["rounds"][-1]["budget"]
    for one in first["rounds"]:  # all runs here have 1 ms of traffic
        spent = one["budget"]
        assert spent["traffic_ns"] == 1_000_000 * (spent["simulations"] + spent["branches"])
    best = Ensemble.load(tmp_path / "first" / "ensemble.json")
    assert best.sha256 == first["ensemble_sha256"] == first["rounds"][first["best"] - 1]["ensemble_sha256"]

    client = mlflow.MlflowClient(first["tracked"]["uri"])
    run = client.get_run(first["tracked"]["run_id"])
    inner = client.search_runs(
        [run.info.experiment_id], f"tags.`mlflow.parentRunId` = '{run.info.run_id}'", order_by=["attributes.start_time"]
    )
    assert [one.info.run_name for one in inner] == ["round 1", "round 2"]
    given_to = [len(one.inputs.dataset_inputs) for one in (*inner, run) if one.inputs is not None]
    assert given_to == [1, 1, first["best"] + 2]  # the search's: labels that it learned from, and what chose

    labels = pd.read_csv(tmp_path / "first" / "drop_costs.csv")
    more = ["policies=[learned]", "held_flips=0", "repeats=1", "conditions=[websearch load_40]"]
    settings = experiment_settings("drop_costs", *OPTIONS, *more, "model=first/round_1.json")
    learning = Learning.of(settings, Store(settings.store_dir))
    policies = labelled_policies(settings, learning.store)
    under = learning.labelled(policies)
    assert (under.points, under.reused, under.budget) == (1, 1, Budget(2, 6, 8_000_000))
    of_round_2 = labels[labels["round"] == 2].drop(columns="round").reset_index(drop=True)
    pd.testing.assert_frame_equal(under.frame, of_round_2, check_dtype=False, check_categorical=False)
