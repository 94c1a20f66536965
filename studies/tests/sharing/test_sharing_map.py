"""``foretail run sharing_map``: the race and its verdicts on invented costs, and one run in ns-3.

Costs the build of the driver, unless it is built, and 15 s of simulations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.pipelines import cli
from foretail.pipelines.comparison.statistics import PairedDifference
from foretail_studies import families as family_costs
from foretail_studies.engines.bootstrap import mean_over_groups
from foretail_studies.families import CS, DEFAULT, LQD, Condition, Costs, Family, Rule, SharingCase, SharingPlan
from foretail_studies.sharing.map import (
    LQD_PAYS,
    NO_MATTER,
    THRESHOLD,
    MapSettings,
    Race,
    frozen_settings,
    race,
    rows_of,
    verdicts_of,
)
from foretail_studies.sharing.prediction import COSTS, NOTHING, OPEN, PAYS, moves, verdict
from foretail_studies.sharing.prediction import EQUAL as EQUAL_TRANSPORTS
from tests.composed import experiment_settings, result_in, run_of

pytestmark = pytest.mark.slow
DT = [Rule("dt", setting) for setting in (DEFAULT, "alpha=2", "alpha=8")]
RULES = [LQD, CS, *DT]
TRAINED, HELD = Condition("trained", "one"), Condition("held", "one")
Cost = Callable[[Condition, Rule, int], float]


def invented_plan(wheres: Sequence[Condition] = (TRAINED, HELD), **changes: Any) -> tuple[MapSettings, SharingPlan]:
    """Two families of one condition, and five rules; nothing that simulates."""
    settings = MapSettings(
        experiment="sharing_map",
        shared=[],
        families={where.family: Family(held_out=where == HELD, conditions={where.condition: []}) for where in wheres},
        policies={"lqd": {}, "cs": {}, "dt": {"alpha": [2.0, 8.0]}},
        seeds=[1, 2, 3],
        **changes,
    )
    nothing: Any = None
    of_wheres = dict.fromkeys(wheres, nothing)
    plan = SharingPlan(of_wheres, of_wheres, dict.fromkeys(RULES, nothing), None, [])
    return settings, plan


def run_race(
    monkeypatch: pytest.MonkeyPatch, planned: tuple[MapSettings, SharingPlan], cost: Cost
) -> tuple[Race, list[SharingCase]]:
    """A race whose measurements are invented; and all cases in the order of their measurement."""
    asked: list[SharingCase] = []

    def measure(title: str, kind: str, cases: Sequence[SharingCase], *_: object, **__: object) -> Any:
        asked.extend(cases)
        found = [one_run(cost(case.where, case.rule, case.seed), f"{case.where} {case.seed}") for case in cases]
        return SimpleNamespace(cases=cases, measurements=found, reused=0)

    monkeypatch.setattr(family_costs, "measure_cases", measure)
    return race(*planned), asked


def one_run(cost: float, flows: str = "") -> dict[str, Any]:
    kinds = dict.fromkeys(("p99_query", "p99_short", "p99_long", "query_timeouts"), 1.0)
    rest = {"timeouts_percent": 0.0, "goodput_bps": 1e9, "asked": 0, "predicted_drops": 0}
    return {"cost": cost, "flows_sha256": flows, **kinds, **rest}


def fixed(costs: Mapping[str, float], spread: float = 0.0) -> Cost:
    """Costs by rule, the same in all conditions, with a spread over seeds that rules do not share."""

    def cost(where: Condition, rule: Rule, seed: int) -> float:
        draw = np.random.default_rng([seed, sum(map(ord, str(rule)))])
        return costs[str(rule)] * math.exp(spread * draw.standard_normal())

    return cost


EQUAL = {"lqd": 3.0, "cs": 3.0, "dt": 3.0, "dt alpha=2": 3.0, "dt alpha=8": 3.0}


def test_a_setting_far_above_its_policys_best_gets_no_further_seed_and_a_default_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = invented_plan()
    _, asked = run_race(monkeypatch, plan, fixed(EQUAL | {"dt": 9.0, "dt alpha=2": 6.1, "dt alpha=8": 3.0}))
    seeds = {rule: sorted(case.seed for case in asked if case.rule == rule and case.where == HELD) for rule in RULES}
    assert seeds == {LQD: [1, 2, 3], CS: [1, 2, 3], DT[0]: [1, 2, 3], DT[1]: [1], DT[2]: [1, 2, 3]}


def test_settings_are_frozen_on_training_families_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def cost(where: Condition, rule: Rule, seed: int) -> float:
        return 1.0 if rule == (DT[1] if where == TRAINED else DT[2]) else 1.5

    finished, _ = run_race(monkeypatch, invented_plan(), cost)
    assert finished.frozen == {"lqd": LQD, "cs": CS, "dt": DT[1]}
    assert finished.hindsight(HELD, "dt") == DT[2]
    assert finished.contenders[HELD] == [LQD, CS, *DT]
    assert finished.contenders[TRAINED] == [LQD, CS, DT[0], DT[1]]


def test_a_setting_that_was_given_up_in_one_condition_may_still_be_the_best_over_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wheres = [*(Condition("trained", name) for name in "abcd"), HELD]

    def cost(where: Condition, rule: Rule, seed: int) -> float:
        return {DT[1]: 9.0 if where.condition == "a" else 1.0, DT[2]: 3.0}.get(rule, 4.0)

    finished, asked = run_race(monkeypatch, invented_plan(wheres), cost)
    seeds = [case.seed for case in asked if case.rule == DT[1] and case.condition == "a"]
    assert finished.frozen["dt"] == DT[1]
    assert seeds == [1, 2, 3]
    assert asked[-1].seed == 3
    assert [case.condition for case in asked[-2:]] == ["a", "a"]  # the last two, when it was frozen


def test_seeds_are_added_until_all_is_decided_or_there_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    clear, _ = run_race(monkeypatch, invented_plan(), fixed(EQUAL | {"lqd": 2.0, "cs": 4.0}, spread=0.001))
    assert sorted(clear.costs.runs[HELD][LQD]) == [1, 2, 3]
    noisy, _ = run_race(monkeypatch, invented_plan(most_seeds=7), fixed(EQUAL, spread=0.3))
    assert sorted(noisy.costs.runs[HELD][LQD]) == [1, 2, 3, 4, 5, 6, 7]
    some, _ = run_race(monkeypatch, invented_plan(most_seeds=1000), fixed(EQUAL, spread=0.1))
    assert 3 < len(sorted(some.costs.runs[HELD][LQD])) < 200
    for rule in some.contenders[HELD]:
        for other in {LQD, CS} - {rule}:
            found = some.costs.difference(HELD, rule, other)
            assert found.low is not None
            assert found.high is not None
            assert (found.high - found.low) / 2 <= math.log(1.05) or found.low > 0 or found.high < 0


@pytest.mark.parametrize(
    ("costs", "verdict"),
    [
        (EQUAL, NO_MATTER),
        (EQUAL | {"cs": 3.1}, NO_MATTER),
        (EQUAL | {"cs": 4.0}, THRESHOLD),
        ({"lqd": 2.0, "cs": 4.0, "dt": 6.0, "dt alpha=2": 4.0, "dt alpha=8": 5.0}, LQD_PAYS),
        ({"lqd": 4.0, "cs": 3.0, "dt": 6.0, "dt alpha=2": 2.0, "dt alpha=8": 5.0}, THRESHOLD),
    ],
)
def test_a_family_gets_the_verdict_of_its_costs(
    monkeypatch: pytest.MonkeyPatch, costs: dict[str, float], verdict: str
) -> None:
    finished, _ = run_race(monkeypatch, invented_plan(), fixed(costs, spread=0.001))
    found = verdicts_of(finished)
    assert [(one.family, one.held_out, one.verdict) for one in found] == [
        ("trained", False, verdict),
        ("held", True, verdict),
    ]
    assert all(one.sentence.startswith(verdict) for one in found)


@given(st.lists(st.floats(1, 20), min_size=30, max_size=30))
def test_the_regret_of_a_seed_is_against_the_rule_that_is_best_on_the_others(drawn: list[float]) -> None:
    table = dict(zip([(w, r, s) for w in (TRAINED, HELD) for r in RULES for s in (1, 2, 3)], drawn, strict=True))
    planned = invented_plan(most_seeds=3, give_up_ratio=100.0)
    costs = Costs()
    for (where, rule, seed), cost in table.items():
        costs.add(SharingCase(where.family, where.condition, rule.policy, rule.setting, seed), one_run(cost))
    finished = Race(*planned, costs, frozen_settings(*planned, costs), dict.fromkeys((TRAINED, HELD), RULES))
    for where in (TRAINED, HELD):
        rows = [row for row in rows_of(finished).to_dict("records") if row["family"] == where.family]
        slow = {rule: np.prod([table[where, rule, seed] for seed in (1, 2, 3)]) ** (1 / 3) for rule in RULES}
        for row in rows:
            assert row["cost"] == pytest.approx(slow[Rule(row["policy"], row["setting"])])
            ratios = []
            for seed in (1, 2, 3):
                others = [one for one in (1, 2, 3) if one != seed]
                best = min(RULES, key=lambda rule: sum(math.log(table[where, rule, one]) for one in others))
                ratios.append(table[where, Rule(row["policy"], row["setting"]), seed] / table[where, best, seed])
            assert row["regret"] == pytest.approx(np.prod(ratios) ** (1 / 3) - 1, abs=1e-9)
            assert row["noise_floor"] >= -1e-12


def test_rules_that_were_offered_other_flows_are_no_comparison() -> None:
    costs = Costs()
    costs.add(SharingCase("held", "one", "lqd", DEFAULT, 1), one_run(1.0, "a"))
    with pytest.raises(ForetailError, match="were offered different flows in held one on seed 1"):
        costs.add(SharingCase("held", "one", "cs", DEFAULT, 1), one_run(1.0, "b"))


@pytest.mark.parametrize("size", ["medium", "full"])
def test_families_are_held_out_as_they_were_drawn(size: str) -> None:
    families = experiment_settings("sharing_map", f"size={size}").families
    first = np.random.default_rng(17).permutation(12)[:6].tolist()
    drawn = sorted([*first, *(12 + np.random.default_rng(18).permutation(6)[:3]).tolist()])
    assert [position for position, one in enumerate(families.values()) if one.held_out] == drawn
    assert all(len(one.conditions) == 3 for one in families.values())


def test_a_bootstrap_over_groups_gives_groups_the_same_weight() -> None:
    found = mean_over_groups([np.zeros(100), np.ones(1)])
    assert (found.mean, found.low, found.high, found.pairs) == (0.5, 0.0, 1.0, 2)
    groups = [np.full(3, value) for value in np.random.default_rng(3).standard_normal(200)]
    spread = mean_over_groups(groups)
    error = float(np.std([group[0] for group in groups]) / math.sqrt(200))
    assert spread.low is not None
    assert spread.high is not None
    assert (spread.high - spread.low) / (2 * 1.96 * error) == pytest.approx(1, abs=0.05)


@pytest.mark.nightly
def test_loss_recovery_tunes_under_tcp_and_judges_under_rdma(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["run", "loss_recovery", "size=small", "most_seeds=2", "tracking=off", "hydra.run.dir=map"]
    assert cli.main(command) == 0
    found = result_in("map")
    judged = {row["family"] for row in found["rows"] if row["held_out"]}
    assert {"irn", "irn_without_limit", "roce_timely", "newreno_linux"} <= judged
    assert {row["family"] for row in found["rows"]} - judged == {"dctcp", "newreno"}
    assert all(row["cost"] >= 1 for row in found["rows"])


MODEL, THRESHOLD_ALONE = Rule("credence", "p=0.3"), Rule("dt", "alpha=8")
SHOWN = ("dctcp", "irn", "roce_timely_pfc")


@pytest.mark.nightly
def test_a_forest_stands_beside_the_best_threshold_under_each_transport_that_loses(tmp_path: Path) -> None:
    every = experiment_settings("loss_recovery_prediction", "size=small").families
    without = [f"~families.{name}" for name in every if name not in SHOWN]
    given = ("size=small", "tracking=off", f"store_dir={tmp_path / 'store'}", "jobs=1", *without)
    result = run_of("loss_recovery_prediction", tmp_path, *given)
    rows, document = result.shown.rows, result.document()
    assert list(rows["family"].unique()) == list(SHOWN)
    assert set(rows["condition"]) == {"load_80", "star_of_16"}
    assert document["drops"]["dctcp"] > 0
    assert document["drops"]["irn"] == document["drops"]["roce_timely_pfc"] == 0
    learned = rows[rows["family"] == "dctcp"]
    for row in learned.to_dict("records"):
        assert row["against threshold"] == pytest.approx(math.log(row["model J"] / row["threshold J"]))
        assert row["against no model"] == pytest.approx(math.log(row["model J"] / row["no model J"]))
        assert row["against threshold, low"] <= row["against threshold"] <= row["against threshold, high"]
        assert row["model"] == "credence dctcp, p=0.3"
        assert row["threshold"].startswith("dt")
    assert (learned["asked"] >= learned["predicted_drops"]).all()
    assert learned["predicted_drops"].sum() > 0
    assert set(rows[rows["family"] != "dctcp"]["verdict"]) == {NOTHING}
    assert NOTHING not in set(learned["verdict"])
    again = run_of("loss_recovery_prediction", tmp_path / "again", *given)
    assert again.shown.rows.equals(rows)
    # Of each transport four settings in two networks, and the model of the one that loses.
    simulations = 2 * (3 * 4 + 1)
    assert f"To choose: {simulations} simulations, {simulations} of them in the store" in again.shown.notes[-1]


@given(mean=st.floats(-0.5, 0.5), half=st.floats(0, 0.5))
def test_a_verdict_is_that_of_its_interval(mean: float, half: float) -> None:
    low, high = math.expm1(mean - half), math.expm1(mean + half)
    found = verdict(PairedDifference(mean, mean - half, mean + half, 5))
    close = low >= 1 / 1.05 - 1 and high <= 0.05
    if abs(low - (1 / 1.05 - 1)) > 1e-9 and abs(high - 0.05) > 1e-9:
        assert (found == EQUAL_TRANSPORTS) == close
    if found != EQUAL_TRANSPORTS:
        assert found == (PAYS if high < 0 else COSTS if low > 0 else OPEN)


def test_one_seed_decides_nothing() -> None:
    assert verdict(PairedDifference(-1.0, None, None, 1)) == OPEN


def invented(changes: Mapping[str, float]) -> tuple[Costs, dict[str, dict[str, Rule]], list[Condition]]:
    """Costs of a model and of a threshold, by how much log J of the model is above; and seeds that differ a little."""
    costs, wheres = Costs(), [Condition(name, "star") for name in changes]
    for place, where in enumerate(wheres):
        for seed in range(1, 6):
            noise = 0.01 * ((seed * (place + 1)) % 5 - 2)
            for rule, log in ((THRESHOLD_ALONE, 1.0), (MODEL, 1.0 + changes[where.family] + noise)):
                case = SharingCase(where.family, where.condition, rule.policy, rule.setting, seed)
                found: dict[str, Any] = {"cost": math.exp(log), "flows_sha256": "same"}
                costs.add(case, found)
    return costs, {name: {"model": MODEL, "threshold": THRESHOLD_ALONE} for name in changes}, wheres


def test_the_worth_moves_where_one_transport_differs_from_the_others() -> None:
    seeds = list(range(1, 6))
    alike, apart = {"a": 0.1, "b": 0.1, "c": 0.1}, {"a": 0.1, "b": 0.1, "c": -0.9}
    costs, chosen, wheres = invented(alike)
    assert moves(costs, chosen, wheres, seeds, "star").endswith("does not surely move with the transport.")
    costs, chosen, wheres = invented(apart)
    assert "moves with the transport, for it differs under" in (said := moves(costs, chosen, wheres, seeds, "star"))
    assert "c (-63." in said
    del chosen["a"]["model"], chosen["b"]["model"]
    assert moves(costs, chosen, wheres, seeds, "star").endswith("does not surely move with the transport.")
