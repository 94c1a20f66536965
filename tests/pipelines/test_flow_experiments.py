"""Experiments in ns-3: small, resumed, with points that fail, and what their verdicts say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.core.errors import ForetailError
from foretail.pipelines import cli
from foretail.pipelines.comparison.bootstrap import FLOW_METRICS, Resampled
from foretail.pipelines.comparison.flows import check_same_flows
from foretail.pipelines.experiments.flows.experiment import FlowFindings, Plan, find, flow_experiment
from foretail.pipelines.experiments.flows.verdicts import (
    CLAIMS,
    CLOSE,
    IN_SHAPE,
    LEAST,
    MEASURES,
    NOT,
    REPRODUCED,
    UNKNOWN,
    WORSE,
    Claim,
    judge,
    tolerance_table,
)
from foretail.pipelines.runs.jobs import Report, run_points
from foretail.pipelines.settings.compose import compose_settings
from tests.composed import options

pytestmark = pytest.mark.slow

EXPERIMENTS = [name for name in options("experiment") if name in CLAIMS]
TINY = (
    "size=small",
    "flows.small.policies=[lqd, dt]",
    "flows.small.models.ours=['features=virtual']",
    "~flows.small.models.paper",
    "flows.small.flip_probabilities=[0, 0.1]",
    "flows.small.seeds=[101]",
    "tracking=off",
)
POINTS = ["base: lqd, seed 101", "base: dt, seed 101", "base: credence, ours, seed 101"]
FLIPPED = "base: credence, ours, 0.1 inverted, seed 101"
GUARDED = ["base: guarded, ours, seed 101", "base: guarded, ours, 0.1 inverted, seed 101"]


def config(*overrides: str) -> EvaluateConfig:
    return compose_settings(EvaluateConfig, overrides, "test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flow_sweep")


@pytest.fixture(scope="module")
def found(folder: Path) -> FlowFindings:
    given = config("experiment=credence_fig10", *TINY, f"store_dir={folder / 'store'}")
    return find(given, Plan.of(given))


# ---- settings -----------------------------------------------------------------------------------------------------


def test_there_is_an_experiment_for_every_figure() -> None:
    assert set(EXPERIMENTS) == CLAIMS.keys()


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_size_composes(experiment: str) -> None:
    figures = config(f"experiment={experiment}", "size=medium").flows
    for size, servers in {"medium": 32, "full": 256}.items():
        sweep = figures[size]
        assert sweep.experiment == experiment
        overrides = [*sweep.scenario, *list(sweep.conditions.values())[-1], "model=x"]
        topology = compose_settings(EvaluateConfig, overrides, "test").scenario.topology
        assert topology.leaves * topology.servers_per_leaf == servers
    trained = compose_settings(TrainConfig, [*sweep.scenario, *sweep.train, *sweep.models["paper"]], "test")
    assert trained.features.own_queues
    assert trained.scenario.background.load == 0.8
    assert trained.scenario.incast.burst_fraction == 0.75


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["flows.small.policies=[dt]"], "lacks lqd"),
        (["flows.small.policies=[lqd, credence]"], "names credence, which asks a model"),
        (["flows.small.asking=[]"], "asking is empty"),
        (["flows.small.asking=[guarded]"], "asking = guarded: give credence, and beside it any of guarded, learned"),
        (["flows.small.asking=[credence, lqd]"], "asking = credence, lqd: give credence"),
        (["flows.small.asking=[credence, credence]"], "asking names credence twice"),
        (["flows.small.seeds=[1, 101]"], "share seed 1"),
        (["flows.small.seeds=[]"], "seeds is empty"),
        (["flows.small.flip_probabilities=[2]"], "at most 1"),
        (["flows.small.experiment=credence_fig99"], "credence_fig99 is unknown"),
        (["flows.small.split.name=by_time"], "use by_run"),
        (["arrivals=x.csv", "ports=4", "buffer=9"], "flows and arrivals are both given"),
    ],
)
def test_bad_settings_are_one_sentence(overrides: list[str], sentence: str) -> None:
    with pytest.raises(ForetailError, match=sentence):
        config("experiment=credence_fig6", "size=small", *overrides)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["flows.small.policies=[lqd, newest]"], "newest"),
        (
            ["flows.small.scenario=['scenario=tiny', 'scenario.transport.name=quic']"],
            "quic is unknown: choose from",
        ),
        (["+flows.small.conditions.few=['scenario.topology.servers_per_leaf=2']"], "few = .*fan_in = 4 is more than"),
        (["flows.small.train=['scenario.background.load=0.4']"], "conditions.40 is what paper trains on"),
        (["model=nothing"], "there is no model nothing"),
    ],
)
def test_what_cannot_be_simulated_is_said_before_anything_runs(
    overrides: list[str], sentence: str, tmp_path: Path
) -> None:
    given = config("experiment=credence_fig6", "size=small", *overrides, f"store_dir={tmp_path / 'store'}")
    with pytest.raises(ForetailError, match=sentence):
        flow_experiment(given, tmp_path)
    assert list(tmp_path.iterdir()) == []


# ---- a sweep ------------------------------------------------------------------------------------------------------


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
    result = found.result(folder / "run")
    assert {path.name for path in result.files} == {
        "points.parquet",
        *(
            f"credence_fig10.{name}.{kind}"
            for name in ("figure", "distributions")
            for kind in ("svg", "png", "parquet")
        ),
    }
    lines = pd.read_parquet(folder / "run" / "credence_fig10.figure.parquet")
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


def test_a_point_that_fails_is_named_and_repeated_alone(
    found: FlowFindings, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    keys = dict(zip([*POINTS, FLIPPED, *GUARDED], found.points["key"], strict=True))
    flows = folder / "store" / "flows"
    (flows / keys[POINTS[1]] / "content" / "summary.json").write_text("{")  # written by another version, or damaged
    (flows / keys[FLIPPED] / "key.json").write_text("[]")
    arguments = ["experiment=credence_fig10", *TINY, f"store_dir={folder / 'store'}"]
    assert cli.main(["evaluate", *arguments, f"hydra.run.dir={folder / 'again'}"]) == cli.EXIT_INCOMPLETE
    captured = capfd.readouterr()
    assert len(captured.err.strip().splitlines()) == 1
    assert "2 of 6 points failed" in captured.err
    assert POINTS[1] in captured.err
    assert FLIPPED in captured.err
    document = json.loads((folder / "again" / "result.json").read_text(encoding="utf-8"))
    assert document["failed"].keys() == {POINTS[1], FLIPPED}
    assert [row["reused"] for row in document["points"]] == [True] * 4
    assert {row["policy"] for row in document["figures"]} == {"lqd", "credence, ours", "guarded, ours"}
    for key in (keys[POINTS[1]], keys[FLIPPED]):
        (flows / key).rename(folder / key)
    assert cli.main(["evaluate", *arguments, f"hydra.run.dir={folder / 'third'}"]) == 0
    document = json.loads((folder / "third" / "result.json").read_text(encoding="utf-8"))
    assert [row["reused"] for row in document["points"]] == [True, False, True, False, True, True]
    assert [row["key"] for row in document["points"]] == list(keys.values())


def test_a_model_that_the_scenario_refuses_fails_alone(found: FlowFindings, folder: Path, tmp_path: Path) -> None:
    (trained,) = found.models.values()
    assert trained is not None
    trained.ensemble.save(tmp_path / "ensemble.json")
    given = config(
        "experiment=credence_fig10",
        *TINY,
        "flows.small.scenario=['scenario=tiny', 'scenario.features.cell_bytes=128']",
        "flows.small.flip_probabilities=[0]",
        f"model={tmp_path / 'ensemble.json'}",
        f"store_dir={folder / 'store'}",
    )
    refused = find(given, Plan.of(given))
    assert refused.failed.keys() == {f"base: {policy}, given, seed 101" for policy in ("credence", "guarded")}
    assert "2 of 4 points failed" in str(refused.result(tmp_path).failure())
    assert list(refused.conditions["base"].policies) == ["lqd", "dt"]


def test_flows_that_differ_cannot_be_compared(found: FlowFindings, folder: Path) -> None:
    class Run:
        def __init__(self, policy: str, traffic: str) -> None:
            self.policy, self.seed, self.flows_sha256 = policy, 101, traffic

    check_same_flows([Run("lqd", "a"), Run("dt", "a")])  # type: ignore[list-item]
    with pytest.raises(ForetailError, match="lqd and dt were offered different flows on seed 101"):
        check_same_flows([Run("lqd", "a"), Run("dt", "b")])  # type: ignore[list-item]


def test_points_run_on_when_one_fails(capsys: pytest.CaptureFixture[str]) -> None:
    def bad(report: Report) -> int:
        raise ForetailError("it is broken")

    def good(report: Report) -> int:
        report(0.5, "half")
        return 1

    found, failed = run_points("sweep", {"a": good, "b": bad, "c": good}, 2)
    assert found == {"a": 1, "c": 1}
    assert failed == {"b": "it is broken."}
    assert run_points("sweep", {}, 2) == ({}, {})

    def defect(report: Report) -> int:
        raise KeyError("a defect of Foretail")

    with pytest.raises(KeyError):
        run_points("sweep", {"a": defect, "b": good}, 1)


# ---- verdicts -----------------------------------------------------------------------------------------------------


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
        (-95.0, 6.0, 2.0, IN_SHAPE),
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


def test_a_policy_of_a_header_runs_beside_ours() -> None:
    header = Path(__file__).parents[2] / "examples" / "policy_header" / "half_and_half.hpp"
    given = [*TINY[:1], "experiment=credence_fig6", f"flows.small.policies=[lqd,{header}:HalfAndHalf]"]
    plan = Plan.of(compose_settings(EvaluateConfig, given, "test"))
    assert list(plan.policies) == ["lqd", "HalfAndHalf", "credence"]
    assert plan.policies["HalfAndHalf"].name == f"{header}:HalfAndHalf"
