"""Experiments in ns-3: small, resumed, with points that fail, and what their verdicts say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretail.core.errors import ForetailError
from foretail.pipelines.experiment.catalog import experiments, run_experiment
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run
from foretail.pipelines.experiment.sweep import CLOSE, IN_SHAPE, NOT, REPRODUCED, UNKNOWN, WEAKER, WORSE
from foretail.pipelines.runs.points import points_failed
from foretail.pipelines.runs.store import Store
from foretail_studies.engines.bootstrap import FLOW_METRICS, Resampled
from foretail_studies.flows.experiment import (
    CLAIMS,
    FLOWS,
    LEAST,
    MEASURES,
    Claim,
    FlowFindings,
    FlowSettings,
    find,
    judge,
    tolerance_table,
)
from tests.composed import experiment_settings

pytestmark = pytest.mark.slow

EXPERIMENTS = [name for name in experiments() if name in CLAIMS]
TINY = (
    "size=small",
    "policies=[lqd, dt]",
    "models.ours=['features=virtual']",
    "~models.paper",
    "flip_probabilities=[0, 0.1]",
    "seeds=[101]",
    "tracking=off",
)


def settings_of(name: str, *overrides: str) -> FlowSettings:
    settings = experiment_settings(name, *overrides)
    assert isinstance(settings, FlowSettings)
    return settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flow_sweep")


@pytest.fixture(scope="module")
def found(folder: Path) -> FlowFindings:
    given = settings_of("credence_fig10", *TINY, f"store_dir={folder / 'store'}")
    return find(given, Run(folder / "run", Store(given.store_dir), None))


def test_there_is_an_experiment_for_every_figure() -> None:
    assert set(EXPERIMENTS) == CLAIMS.keys()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["policies=[lqd, newest]"], "newest"),
        (
            ["shared=['scenario=tiny', 'scenario.transport.name=quic']"],
            "quic is unknown: choose from",
        ),
        (["+conditions.few=['scenario.topology.servers_per_leaf=2']"], "few = .*fan_in = 4 is more than"),
        (["train=['scenario.background.load=0.4']"], "conditions.40 is what paper trains on"),
        (["model=nothing"], "there is no model nothing"),
    ],
)
def test_what_cannot_be_simulated_is_said_before_anything_runs(
    overrides: list[str], sentence: str, tmp_path: Path
) -> None:
    where = ["tracking=off", f"store_dir={tmp_path / 'store'}"]
    given = settings_of("credence_fig6", "size=small", *overrides, *where)
    with pytest.raises(ForetailError, match=sentence):
        run_experiment(FLOWS, given, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_points_figures_and_files(found: FlowFindings, folder: Path) -> None:
    assert found.failed == {}
    assert len(found.points) == 6
    assert found.points["key"].nunique() == 6
    (resampled,) = found.conditions.values()
    asking = [f"{policy}, ours{flips}" for policy in ("credence", "guarded") for flips in ("", ", 0.1 inverted")]
    assert list(resampled.policies) == ["lqd", "dt", *asking]
    for row in found.points.to_dict("records"):
        name = row["policy"] + (", 0.1 inverted" if row["flip_probability"] else "")
        for group in ("short", "incast", "long"):
            for percentile in ("p50", "p95", "p99"):
                of_run, of_sweep = (
                    row[f"slowdown.{group}.{percentile}"],
                    resampled.figure(name, f"{percentile}.{group}"),
                )
                assert of_sweep.mean == pytest.approx(of_run)
        assert resampled.figure(name, "timed_out_percent.all").mean == pytest.approx(row["timed_out_percent"])
    result = run_experiment(
        FunctionExperiment(FlowSettings, lambda *_: found.shown()), found.experiment, folder / "run"
    )
    kinds = (".parquet", ".csv", ".pdf", ".png", ".svg", "_distributions.csv")
    assert {path.name for path in result.files} == {f"credence_fig10{kind}" for kind in kinds}
    lines = pd.read_csv(folder / "run" / "credence_fig10.csv")
    dt = lines[(lines["policy"] == "dt") & (lines["metric"] == "p95.incast")].iloc[0]
    assert dt["low"] <= dt["mean"] <= dt["high"]
    lqd = lines[lines["policy"] == "lqd"]
    assert (lqd["minus_lqd_mean"].dropna() == 0).all()
    assert len(lqd) == len(FLOW_METRICS) + 5
    json.dumps(result.document(), default=str)


def test_models_train_on_other_seeds(found: FlowFindings) -> None:
    (trained,) = found.models.values()
    assert trained is not None
    assert {run.seed for run in trained.collected} == {1, 2, 3, 4}
    assert trained.outcome["tracked"] is None


def test_a_model_that_the_scenario_refuses_fails_alone(found: FlowFindings, folder: Path, tmp_path: Path) -> None:
    (trained,) = found.models.values()
    assert trained is not None
    trained.ensemble.save(tmp_path / "ensemble.json")
    given = settings_of(
        "credence_fig10",
        *TINY,
        "shared=['scenario=tiny', 'scenario.features.cell_bytes=128']",
        "flip_probabilities=[0]",
        f"model={tmp_path / 'ensemble.json'}",
        f"store_dir={folder / 'store'}",
    )
    refused = find(given, Run(tmp_path, Store(given.store_dir), None))
    assert refused.failed.keys() == {f"base: {policy}, given, seed 101" for policy in ("credence", "guarded")}
    assert "2 of 4 points failed" in str(points_failed(refused.failed, refused.shown().points))
    assert list(refused.conditions["base"].policies) == ["lqd", "dt"]


def resampled(**policies: Mapping[str, tuple[float, float]] | tuple[float, float]) -> Resampled:
    """Figures whose draws spread evenly by so much around them: by metric, or the same for all measures."""
    found: dict[str, Any] = {}
    for name, figures in policies.items():
        of_metric = figures if isinstance(figures, Mapping) else {metric: figures for _, metric in MEASURES}
        columns = []
        for _, metric in MEASURES:
            middle, spread = of_metric.get(metric, (10.0, 0.0))
            columns.append(np.r_[middle, np.linspace(middle - spread, middle + spread, 100)])
        found[name.replace("__", ", ").replace("_point_", "0.")] = np.column_stack(columns)
    return Resampled(found, tuple(metric for _, metric in MEASURES), (101, 102))


@pytest.mark.parametrize(
    ("says", "ours", "spread", "verdict"),
    [
        (-95.0, 0.5, 0.1, REPRODUCED),
        (-50.0, 8.0, 7.9, NOT),  # as wide an interval holds anything
        (-50.0, 6.0, 2.0, REPRODUCED),
        (-70.0, 6.0, 2.0, IN_SHAPE),
        (-95.0, 6.0, 2.0, WEAKER),
        (-50.0, 12.0, 0.1, NOT),
        (50.0, 15.2, 0.1, REPRODUCED),
        (CLOSE, 10.2, 0.1, REPRODUCED),
        (CLOSE, 10.2, 0.9, IN_SHAPE),
        (CLOSE, 12.0, 0.1, NOT),
        (WORSE, 12.0, 0.1, REPRODUCED),
        (WORSE, 12.0, 3.0, IN_SHAPE),
        (WORSE, 10.0, 0.1, NOT),
    ],
)
def test_verdicts_on_the_papers_claims(says: float | str, ours: float, spread: float, verdict: str) -> None:
    claim = Claim("", "p95.incast", "credence, {model}", "dt", says)
    conditions = {"40": resampled(dt=(10.0, 0.0), credence__x=(ours, spread))}
    found, said = judge(claim, conditions, "x")
    assert said == verdict
    assert found is not None
    assert found.mean == pytest.approx(10 * ours - 100)
    assert judge(claim, conditions, "y") == (None, UNKNOWN)


def test_claims_of_one_condition_of_the_mean_and_of_the_least() -> None:
    conditions = {
        "20": resampled(abm=(10.0, 0.0), credence__x=(8.0, 0.1)),
        "80": resampled(abm=(10.0, 0.0), credence__x=(4.0, 0.1)),
    }
    for at, percent in (("mean", -40.0), ("80", -60.0), (LEAST, -60.0), ("20", -20.0)):
        found, verdict = judge(Claim("", "p95.long", "credence, {model}", "abm", percent, at), conditions, "x")
        assert found is not None
        assert found.mean == pytest.approx(percent)
        assert verdict == REPRODUCED
    assert judge(Claim("", "p95.long", "credence, {model}", "abm", -1.0, "60"), conditions, "x") == (None, UNKNOWN)


def test_the_error_that_is_tolerated() -> None:
    found = resampled(lqd=(10.0, 0.0), a=(10.1, 0.1), b=(10.3, 0.4), c=(12.0, 0.1), d=(10.0, 0.1))
    shares = {0.0: "a", 0.01: "b", 0.1: "c", 0.5: "d"}  # close again at 0.5, which does not count
    notes = tolerance_table(found, {"credence, x": shares}).notes
    assert notes[1] == "Credence, x: incast p95 within 5 % of LQD up to 0.01, its whole interval up to 0"
    assert "up to none" in tolerance_table(found, {"credence, x": {0.1: "c"}}).notes[0]
    never = resampled(lqd=(0.0, 0.0), a=(1.0, 0.1))
    assert tolerance_table(never, {"credence, x": {0.1: "a"}}).notes[0] == (
        "Credence, x: short p95 of LQD is 0, of which nothing is a percentage"
    )
