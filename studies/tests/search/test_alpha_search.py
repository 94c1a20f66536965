"""``foretail run slow_setting``: what trees learn from, with invented costs; and in ns-3, on a map."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretail.core.errors import ForetailError
from foretail.features.catalog import COUNTERS
from foretail.features.records import COUNTER_DTYPE
from foretail.models.drop.thresholds.alpha_tree import alpha_exponents
from foretail.models.ensemble.ensemble import Ensemble
from foretail.pipelines import cli
from foretail.pipelines.comparison.counted import drawn
from foretail.pipelines.experiment.running import ExperimentResult
from foretail.pipelines.families import costs
from foretail.pipelines.families.conditions import SharingCase
from foretail_studies.search import alphas
from tests.composed import experiment_settings, run_of

pytestmark = pytest.mark.slow

NAMES = [counter.name for counter in COUNTERS]
BOTH_FAMILIES = (
    "families.loss_based.held_out=false",
    "+families.loss_based.conditions.load_30=['scenario.background.load=0.3']",
)


def test_rows_are_drawn_by_the_bytes_that_came() -> None:
    records = np.zeros(3, COUNTER_DTYPE)
    records["arrived_bytes"] = [1, 0, 999]
    records["counters"][:, 0] = [10, 20, 30]
    found = drawn(records, 2000, seed=1)
    assert found == drawn(records, 2000, seed=1) != drawn(records, 2000, seed=2)
    first = [row[0] for row in found]
    assert 0 < first.count(10) < 20
    assert first.count(20) == 0
    assert drawn(records[:0], 5, 1) == []


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[SharingCase]:
    """Load 0.8 and shallow buffers want alpha 8, other conditions 0.5, and each shows in the share of marked bytes."""
    cases: list[SharingCase] = []

    def measure(title: str, kind: str, given: Sequence[SharingCase], *_: object, **__: object) -> Any:
        cases.extend(given)
        found = []
        for case in given:
            large = case.condition in ("load_80", "bytes_1280")
            wanted = "alpha=8" if large else "alpha=0.5"
            row = [200 if large and name == "queue_marked" else 7 for name in NAMES]
            cost = 1.5 if case.setting == "default" else 1.0 + (case.setting != wanted)
            found.append(
                {
                    "cost": cost + case.seed / 1000,
                    "flows_sha256": f"{case.where} {case.seed}",
                    "counters": [row] * 4,
                    "drops": 1,
                }
            )
        return SimpleNamespace(cases=given, measurements=found, reused=0)

    monkeypatch.setattr(costs, "measure_cases", measure)
    monkeypatch.setattr(alphas, "export_to_store", lambda *_: SimpleNamespace(library=Path("unused")))
    return cases


def searched(folder: Path, *overrides: str) -> ExperimentResult:
    given = ["size=small", f"store_dir={folder / 'store'}", "tracking=off", *overrides]
    return run_of("slow_setting", folder / "out", *given)


@pytest.mark.nightly
def test_a_tree_tells_conditions_apart_by_their_counters(asked: list[SharingCase], tmp_path: Path) -> None:
    found = searched(tmp_path, *BOTH_FAMILIES, "depths=[0,1]")
    details, learned_model = found.shown.details, found.shown.learned
    assert learned_model is not None
    assert [(row["depth"], row["leaves"]) for row in details["depths"]] == [(0, 1), (1, 2)]
    assert details["depths"][0]["lost_percent"] > details["depths"][1]["lost_percent"] == pytest.approx(0)
    assert details["depth"] == 1
    rows = np.full((2, len(NAMES)), 7)
    rows[1, NAMES.index("queue_marked")] = 200
    assert alpha_exponents(learned_model.ensemble, rows).tolist() == [-1, 3]
    assert Ensemble.load(tmp_path / "out" / "ensemble.json") == learned_model.ensemble
    learned = [case for case in asked if case.seed == 101]
    assert {case.policy for case in learned} == {"dt"}
    assert {case.setting for case in learned} == {"alpha=0.5", "alpha=8"}
    assert len(learned) == 2 * 4
    looped = [case for case in asked if case.seed == 102]
    assert len([case for case in looped if case.policy == "dt_predicted"]) == 4
    assert details["less_best"]["mean"] == pytest.approx(np.log(1.602 / 1.102))
    assert len(pd.read_csv(tmp_path / "out" / "fixed.csv")) == 8
    assert found.shown.rows["best_alpha"].tolist() == [0.5, 8, 8, 0.5]


def test_held_out_families_are_not_simulated(asked: list[SharingCase], tmp_path: Path) -> None:
    searched(tmp_path)
    assert {case.family for case in asked} == {"websearch"}


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("exponents=[3,1]", "exponents = [3, 1] are not in order: sort them"),
        ("exponents=[-8,1]", "exponents"),
        ("exponents=[]", "exponents is empty"),
        ("test_seeds=[101]", "test_seeds holds 101, which is learned from"),
        ("interval_ns=9999", "interval_ns = 9999"),
        ("size=tiny", "size"),
    ],
)
def test_what_cannot_be_learned_is_refused_in_one_sentence(override: str, sentence: str) -> None:
    with pytest.raises(ForetailError) as error:
        experiment_settings("slow_setting", "size=small", override)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.ns3
def test_a_tree_is_learned_in_ns3_put_on_the_map_and_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "slow_setting", "size=small", "hydra.run.dir=search"]) == 0
    result = json.loads((tmp_path / "search" / "result.json").read_text())
    assert [row["condition"] for row in result["rows"]] == ["load_40", "load_80"]
    assert cli.main(["run", "slow_setting", "size=small", "hydra.run.dir=again"]) == 0
    again = json.loads((tmp_path / "again" / "result.json").read_text())
    assert again["rows"] == result["rows"]
    assert again["ensemble_sha256"] == result["ensemble_sha256"]
    notes = [note for table in again["tables"] for note in table["notes"]]
    assert "8 simulations, 8 of them in the store" in notes

    model = "model=models:/foretail-alpha@candidate"
    on_map = ["run", "sharing_map", "size=small", "asking=[dt_predicted]", model]
    assert cli.main([*on_map, "hydra.run.dir=map"]) == 0
    mapped = json.loads((tmp_path / "map" / "result.json").read_text())
    rows = pd.DataFrame(mapped["rows"])
    assert len(rows[rows["policy"] == "dt_predicted"]) == 3
    assert mapped["used_models"][0]["trained_on"] == ["websearch load_40-101", "websearch load_80-101"]

    assert cli.main(["export", model, "target=sonic", "name=slow", "hydra.run.dir=export"]) == 0
    assert {path.name for path in (tmp_path / "export" / "sonic").iterdir()} >= {"slow.json", "slow_rules.json"}
    assert cli.main(["export", model, "target=p4", "sonic.pool=a", "hydra.run.dir=refused"]) == 2
