"""The benchmark at its small size: 30 simulations, five seconds of CPU time, and the native network."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from foretail.core.errors import ForetailError
from foretail.pipelines.cli import main
from foretail.pipelines.families.conditions import DEFAULT, Condition, Rule, SharingCase
from foretail.pipelines.families.costs import Costs
from foretail_studies.benchmark import track
from foretail_studies.benchmark.track import (
    FrozenRun,
    Score,
    frozen_runs,
    guard_percent,
    reference_runs,
    require_frozen,
)
from tests.composed import experiment_settings, run_of

REFERENCE, RULE, OTHER = (Rule(name, DEFAULT) for name in ("lqd_last", "mine", "other"))
WHERE = Condition("family", "condition")


def costs_of(runs: dict[tuple[Condition, Rule], list[float]]) -> Costs:
    """What was measured if rules cost so much, seed by seed."""
    costs = Costs()
    for (where, rule), found in runs.items():
        for seed, cost in enumerate(found):
            case = SharingCase(where.family, where.condition, rule.policy, rule.setting, seed)
            costs.add(case, {"cost": cost, "flows_sha256": f"{where} {seed}"})
    return costs


@pytest.mark.slow
def test_a_policy_has_a_score_beside_the_tuned_threshold(tmp_path: Path) -> None:
    given = ("size=small", "tracking=off", "model=dt_alpha_4", f"store_dir={tmp_path / 'store'}")
    result = run_of("benchmark", tmp_path, *given)
    document = result.document()
    assert document["version"] == "benchmark-1-small"
    assert (document["judged"], document["tuned_threshold"]) == ("dt_alpha_4", "dt_alpha_16")
    rows = result.shown.rows
    assert set(rows["rule"]) == {"dt_alpha_4", "dt_alpha_16", "lqd_last"}
    held_out = rows[rows["held_out"]].set_index("rule")["cost"]
    assert document["score"] == pytest.approx(100 * (held_out["dt_alpha_4"] / held_out["lqd_last"] - 1))
    assert document["low"] < document["score"] < document["high"]
    assert document["scores"]["lqd_last"]["score"] == 0
    assert document["reference_runs"] == frozen_runs("small")
    assert "dt_alpha_4 costs" in result.verdict()[0]
    assert "the tuned threshold dt_alpha_16" in result.verdict()[0]


@pytest.mark.slow
def test_a_policy_in_python_costs_what_the_same_rule_costs_in_trees(tmp_path: Path) -> None:
    """Dynamic Thresholds with alpha 2 that spare last packets: decided live, and compiled; the second run is reused."""
    file = tmp_path / "rule.py"
    file.write_text(
        "FEATURES = ('pressure', 'message_left')\n"
        "def decide(rows):\n    return (rows[:, 0] > 136) & (rows[:, 1] > 17)\n"
    )
    rule = "{message_left: 17, fill: 255, pressure: 136, first_rtt_more: 0, last_pressure: 255, far: 254, far_less: 0}"
    given = ("size=small", "tracking=off", f"+sharing_rules.mine={rule}", f"store_dir={tmp_path / 'store'}")
    for time in ("first", "second"):
        result = run_of("benchmark", tmp_path / time, *given, f"model={file}:decide")
        costs = result.shown.rows.pivot_table(index=["family", "condition"], columns="rule", values="cost")
        assert (costs["rule.py:decide"] == costs["learned mine"]).all()
        document = result.document()
        assert (document["judged"], document["score"]) == (
            "rule.py:decide",
            document["scores"]["learned mine"]["score"],
        )
        assert any("Python" in note for note in result.shown.notes)
    assert result.shown.notes[3].startswith("24 simulations, 24 of them in the store")
    with pytest.raises(ForetailError, match=r"rule\.py:decide decides in Python, which only the native network asks"):
        run_of("benchmark", tmp_path / "ns3", *given, f"model={file}:decide", "network=ns3")


def test_another_seed_or_simulator_is_not_this_version(monkeypatch: pytest.MonkeyPatch) -> None:
    right = FrozenRun("small", "family", True, "condition", 0, "family condition 0", 2.0)
    costs = costs_of({(WHERE, REFERENCE): [2.0]})
    measured = list(reference_runs(costs, REFERENCE, "small", {"family"}))
    assert measured == [right]
    for wrong, message in (
        (replace(right, seed=1), "(with seed 1 is not measured|with seed 0 is not part of it)"),
        (replace(right, held_out=False), "judges or trains where it did the other"),
        (replace(right, flows_sha256="others"), "has other traffic"),
        (replace(right, cost=2.5), "comes to 2.0 and not 2.5 under the reference"),
    ):
        monkeypatch.setattr(track, "frozen_runs", lambda size, version, wrong=wrong: [wrong])
        with pytest.raises(ForetailError, match=f"{message}, so this is not benchmark-1: leave its"):
            require_frozen(measured, "small")
    monkeypatch.setattr(track, "frozen_runs", lambda size, version: [right])
    require_frozen(measured, "small")
    with pytest.raises(ForetailError, match="with seed 7 is not part of it"):
        require_frozen([*measured, replace(right, seed=7)], "small")


@pytest.mark.parametrize("size", ["small", "full"])
def test_every_run_of_the_reference_is_frozen(size: str) -> None:
    settings = experiment_settings("benchmark", f"size={size}", "tracking=off")
    wanted = {
        (family, condition, seed)
        for family, one in settings.families.items()
        for condition in one.conditions
        for seed in settings.seeds
    }
    assert {(run.family, run.condition, run.seed) for run in frozen_runs(size)} == wanted


def test_a_family_counts_once_however_many_conditions_it_has() -> None:
    wheres = [Condition("one", "a"), Condition("one", "b"), Condition("two", "a")]
    changes = dict(zip(wheres, (0.1, 0.3, -0.4), strict=True))
    costs = costs_of(
        {(where, REFERENCE): [1.5, 2.0] for where in wheres}
        | {(where, RULE): [1.5 * math.exp(change), 2.0 * math.exp(change)] for where, change in changes.items()}
    )
    score = Score.of(costs, wheres, RULE, REFERENCE)
    assert score.over_seeds.mean == pytest.approx(-0.1)
    assert score.over_seeds.low == pytest.approx(-0.1)  # both seeds say the same
    assert score.over_families.mean == pytest.approx(-0.1)
    assert (score.over_families.low, score.over_families.high) == pytest.approx(
        stats.t.interval(0.95, 1, loc=-0.1, scale=stats.sem([0.2, -0.4]))
    )
    assert score.failed == [wheres[1]]  # e^0.3 is 35 % more


@given(st.lists(st.floats(0.5, 2.0), min_size=3, max_size=12, unique=True), st.integers(1, 30))
def test_the_guard_is_the_lower_end_of_a_one_sided_interval(ratios: list[float], conditions: int) -> None:
    costs = costs_of({(WHERE, REFERENCE): [1.0] * len(ratios), (WHERE, RULE): ratios})
    guard = guard_percent(costs, WHERE, RULE, REFERENCE, conditions)
    logs = np.log(ratios)
    low = logs.mean() + stats.t.ppf(0.05 / conditions, len(logs) - 1) * stats.sem(logs)
    assert guard == pytest.approx(100 * math.expm1(low), abs=1e-6)


def test_the_best_rule_is_chosen_on_the_other_seeds() -> None:
    """On seed 2 the rule that is best on seeds 0 and 1 is the worse one: that is its regret, and no more."""
    costs = costs_of({(WHERE, RULE): [1.0, 1.0, 5.0], (WHERE, OTHER): [2.0, 2.0, 2.0]})
    chosen = {0: OTHER, 1: OTHER, 2: RULE}  # by the geometric mean of the other two
    logs = {rule: costs.logs(WHERE, rule) for rule in (RULE, OTHER)}
    regret = costs.regret(WHERE, RULE, [RULE, OTHER])
    assert regret.mean == pytest.approx(np.mean([logs[RULE][seed] - logs[best][seed] for seed, best in chosen.items()]))
    least = min(np.mean(list(of_rule.values())) for of_rule in logs.values())
    floor = np.mean([logs[best][seed] for seed, best in chosen.items()]) - least
    assert costs.noise_floor(WHERE, [RULE, OTHER]) == pytest.approx(floor)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model=nobody", "nobody"),
        ("+sharing_rules.mine={fill: 300}", "sharing_rules.mine is not a sharing rule"),
        ("reference=nobody", "nobody"),
        ("families.loss_based.held_out=false", "families needs one with held_out=false and one with held_out=true"),
    ],
)
def test_bad_input_is_one_sentence(
    override: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["benchmark", "size=small", "tracking=off", override]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
