"""What a prediction is worth under each transport: its rules on invented costs, and a run in its small size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.pipelines.comparison.statistics import PairedDifference
from foretail.pipelines.families.conditions import Condition, Rule, SharingCase
from foretail.pipelines.families.costs import Costs
from foretail_studies.sharing.prediction import COSTS, EQUAL, NOTHING, OPEN, PAYS, moves, verdict
from tests.composed import experiment_settings, run_of

MODEL, THRESHOLD = Rule("credence", "p=0.3"), Rule("dt", "alpha=8")
SHOWN = ("dctcp", "irn", "roce_timely_pfc")


@pytest.mark.slow
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
    found = verdict(PairedDifference(mean, mean - half, mean + half, 5), 5.0)
    close = low >= 1 / 1.05 - 1 and high <= 0.05
    if abs(low - (1 / 1.05 - 1)) > 1e-9 and abs(high - 0.05) > 1e-9:
        assert (found == EQUAL) == close
    if found != EQUAL:
        assert found == (PAYS if high < 0 else COSTS if low > 0 else OPEN)


def test_one_seed_decides_nothing() -> None:
    assert verdict(PairedDifference(-1.0, None, None, 1), 5.0) == OPEN


def invented(changes: Mapping[str, float]) -> tuple[Costs, dict[str, dict[str, Rule]], list[Condition]]:
    """Costs of a model and of a threshold, by how much log J of the model is above; and seeds that differ a little."""
    costs, wheres = Costs(), [Condition(name, "star") for name in changes]
    for place, where in enumerate(wheres):
        for seed in range(1, 6):
            noise = 0.01 * ((seed * (place + 1)) % 5 - 2)
            for rule, log in ((THRESHOLD, 1.0), (MODEL, 1.0 + changes[where.family] + noise)):
                case = SharingCase(where.family, where.condition, rule.policy, rule.setting, seed)
                found: dict[str, Any] = {"cost": math.exp(log), "flows_sha256": "same"}
                costs.add(case, found)
    return costs, {name: {"model": MODEL, "threshold": THRESHOLD} for name in changes}, wheres


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


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "feature_names=[threshold,queue_average]",
            "feature_names has queue_average, which is not the same in all networks: leave it out",
        ),
        (
            "feature_names=[incast]",
            "feature_names has incast, which is not the same in all networks",
        ),
        ("feature_names=[threshold,threshold]", "feature_names names threshold twice"),
        ("~policies.lqd", "policies lacks lqd, which stands beside the model: add lqd"),
        ("~policies.dt", "policies lacks dt, which stands beside the model: add dt"),
        ("seeds=[301]", "seeds holds 301, on which the forest learns: judge on other seeds"),
    ],
)
def test_what_cannot_be_judged_is_refused_in_one_sentence(override: str, words: str) -> None:
    with pytest.raises(ForetailError, match=words):
        experiment_settings("loss_recovery_prediction", "size=small", override)
