"""``foretail run sharing_rule``.

With invented costs: some seconds. In ns-3, and its rule on a map: half a minute.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretail.core.errors import ForetailError
from foretail.models.drop.sharing_rule import SharingRule
from foretail.models.ensemble.ensemble import Ensemble
from foretail.pipelines import cli
from foretail.pipelines.experiment.running import ExperimentResult
from foretail.pipelines.families import costs
from foretail.pipelines.families.conditions import SharingCase
from foretail_studies.search import trials
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

    monkeypatch.setattr(costs, "measure_cases", measure)
    monkeypatch.setattr(trials, "export_to_store", lambda *_: SimpleNamespace(library=Path("unused")))
    return cases


def searched(folder: Path, trials: int, *overrides: str, name: str = "sharing_rule") -> ExperimentResult:
    given = ["size=small", f"trials={trials}", f"store_dir={folder / 'store'}", "tracking=off", *overrides]
    return run_of(name, folder / "out", *given)


def trials_of(result: ExperimentResult) -> list[dict[str, Any]]:
    """The trials, each with its values, score and losses."""
    return [{str(name): value for name, value in row.items()} for row in result.shown.rows.to_dict("records")]


@pytest.mark.nightly
def test_trials_share_a_seed_and_the_best_run_everywhere(asked: list[SharingCase], tmp_path: Path) -> None:
    found = searched(tmp_path, 6)
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
@pytest.mark.full
def test_a_search_goes_on_as_if_it_had_not_stopped(asked: list[SharingCase], tmp_path: Path) -> None:
    searched(tmp_path / "parts", 3)
    in_parts, at_once = searched(tmp_path / "parts", 13), searched(tmp_path / "whole", 13)
    assert trials_of(in_parts) == trials_of(at_once)
    assert in_parts.shown.details["budget"] == at_once.shown.details["budget"]
    assert at_once.shown.rows["rule"].nunique() > 7


@pytest.mark.nightly
@pytest.mark.full
def test_a_trial_stops_where_it_is_clearly_worse(asked: list[SharingCase], tmp_path: Path) -> None:
    trials = trials_of(searched(tmp_path, 12, "stop_percent=10"))
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


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("ranges.fill=[200,256]", "ranges.fill = [200, 256]: give two values in order, from 0"),
        ("ranges.pressure=[9,8]", "ranges.pressure = [9, 8]: give two values in order"),
        ("+ranges.queue=[1,2]", "ranges.queue is unknown: choose from message_left"),
        ("first_numbers=[{fill: 200}]", "first_numbers[0] needs"),
        ("seeds=[]", "seeds is empty"),
        ("size=tiny", "size"),
    ],
)
def test_what_no_rule_has_is_refused_in_one_sentence(override: str, sentence: str) -> None:
    with pytest.raises(ForetailError) as error:
        experiment_settings("sharing_rule", "size=small", override)
    assert sentence in str(error.value)


def test_conditions_with_other_cells_are_refused(asked: list[SharingCase], tmp_path: Path) -> None:
    load = "families.websearch.conditions.load_80"
    with pytest.raises(ForetailError, match=r"^families has cells of \[128, 256\] bytes"):
        searched(tmp_path, 2, f"{load}=['scenario.features.cell_bytes=128']")
    assert asked == []


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.ns3
def test_a_rule_is_found_in_ns3_and_put_on_the_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "sharing_rule", "size=small", "hydra.run.dir=search"]) == 0
    result = json.loads((tmp_path / "search" / "result.json").read_text())
    assert len(result["rows"]) == 4
    assert result["finalists"][0]["against"]["mean"] <= result["finalists"][1]["against"]["mean"]
    model = "model=models:/foretail-drop@candidate"
    on_map = ["run", "sharing_map", "size=small", "asking=[learned]", model]
    assert cli.main([*on_map, "hydra.run.dir=map"]) == 0
    rows = pd.DataFrame(json.loads((tmp_path / "map" / "result.json").read_text())["rows"])
    learned = rows[rows["policy"] == "learned"]
    assert len(learned) == 3
    assert (learned["asked"] > learned["predicted_drops"]).all()
    assert (learned["predicted_drops"] > 0).any()
    gate = ["promote", "experiment=closed_loop_gate", "size=small", "seeds=[201,202]", model, "p4=true"]
    code = cli.main([*gate, "hydra.run.dir=gate"])
    judged = json.loads((tmp_path / "gate" / "result.json").read_text())
    check = judged["gate"]["checks"][0]
    pairs = {who: [math.log(run["costs"][who]) for run in judged["held_out"]] for who in ("learned the model", "cs")}
    less_cs = np.subtract(pairs["learned the model"], pairs["cs"])
    assert check["name"] == "cost"
    assert check["difference"]["mean"] == pytest.approx(less_cs.mean())
    assert check["passed"] == (check["difference"]["high"] < 0) == (judged["promoted"] is not None)
    assert [one["passed"] for one in judged["gate"]["checks"][1:]] == [True, True]
    assert (code == 0) == check["passed"]
    assert "Cost J under held-out conditions" in (tmp_path / "gate" / "model_card.md").read_text()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("asking=best", "asking = best is unknown: choose from"),
        ("baselines=[dt]", "baselines lacks cs"),
        ("baselines=[cs,learned]", "which asks a model"),
        ("f1_margin=0.1", "f1_margin"),
        ("seeds=[201]", "one run gives no interval"),
    ],
)
def test_a_gate_that_cannot_be_gets_one_sentence(
    override: str, sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["promote", "experiment=closed_loop_gate", "size=small", "model=model.json", override]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
