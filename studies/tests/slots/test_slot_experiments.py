"""Experiments on generated arrivals: through the command line, small, with MLflow, stopped and repeated."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest

from foretail.core.errors import ForetailError
from foretail.pipelines import cli
from foretail_studies.slots.policies import cases_of
from tests.composed import experiment_settings

pytestmark = pytest.mark.slow

TINY = {
    "credence_fig14": ["slots=20000", "flip_probabilities=[0,0.5]", "seeds=[1,2]"],
    "credence_smoothness": [
        "slots=2000",
        "flip_probabilities=[0,0.5]",
        "workloads=[poisson_bursts,followlqd_lower_bound]",
    ],
    "competitive_ratio": ["slots=2000", "ports=[4]"],
}
POINTS = {"credence_fig14": 4, "credence_smoothness": 4, "competitive_ratio": 12}


def ran(experiment: str, folder: Path, name: str, *overrides: str) -> dict[str, Any]:
    """The result of an experiment, run small in ``folder/name``."""
    arguments = ["run", experiment, "size=small", f"store_dir={folder / 'store'}", *TINY[experiment]]
    assert cli.main([*arguments, f"hydra.run.dir={folder / name}", *overrides]) == 0
    document: dict[str, Any] = json.loads((folder / name / "result.json").read_text(encoding="utf-8"))
    return document


def figures(document: dict[str, Any]) -> list[Any]:
    """The rows of all tables; the notes say what was reused."""
    assert document["tables"]
    return [table["rows"] for table in document["tables"]]


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.parametrize("experiment", TINY)
def test_an_experiment_leaves_points_figures_tables_and_nested_runs(experiment: str, tmp_path: Path) -> None:
    document = ran(experiment, tmp_path, "run", f"tracking.uri=sqlite:///{tmp_path / 'mlflow.db'}")
    assert document["experiment"] == experiment
    assert document["files"] == [f"{experiment}.{kind}" for kind in ("parquet", "pdf", "png", "svg")]
    assert all((tmp_path / "run" / name).stat().st_size > 1000 for name in document["files"])
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted(
        [*document["files"], "result.json", "digest.json"]
    )
    points = pd.read_parquet(tmp_path / "run" / f"{experiment}.parquet")
    assert len(points) == len(document["rows"]) == POINTS[experiment]
    assert {"workload", "ports", "buffer", "slots", "seed", "flip_probability", "eta", "closed_form_eta"} <= set(points)
    assert {"lqd_over_credence", "lqd_over_credence_times_eta", "lemma_1_violated", "theorem_2_violated"} <= set(points)
    if experiment == "competitive_ratio":
        policies = experiment_settings(experiment, "size=small").policies
        assert {f"opt_over_{policy}" for policy in policies} <= set(points)
        assert (points.filter(like="opt_over_") >= 1).all(axis=None)
    assert not points["reused"].any()

    client = mlflow.MlflowClient(document["tracked"]["uri"])
    parent = client.get_run(document["tracked"]["run_id"])
    assert parent.info.status == "FINISHED"
    assert {item.path for item in client.list_artifacts(parent.info.run_id)} >= set(document["files"])
    nested = client.search_runs(
        [parent.info.experiment_id], f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'", max_results=1000
    )
    assert len(nested) == POINTS[experiment]
    for run in nested:
        assert run.info.status == "FINISHED"
        assert run.data.tags["reused"] == "false"
        row = points[points["key"] == run.data.params["key"]].iloc[0]
        assert run.data.params["workload"] == row["workload"]
        assert run.data.metrics["eta"] == row["eta"]


def test_what_the_papers_prove_shows(tmp_path: Path) -> None:
    points = pd.DataFrame(ran("competitive_ratio", tmp_path, "run", "tracking=off")["rows"]).set_index("workload")
    assert (points["eta"] == 1).all()
    assert (points["lqd_over_credence"] <= 1).all()  # Lemma 1 where eta is 1
    assert (points["opt_over_lqd"] <= 1.707).all()
    for policy, workload, least in (
        ("cs", "complete_sharing_lower_bound", 3.5),
        ("followlqd", "followlqd_lower_bound", 2.0),
    ):
        worst = points[f"opt_over_{policy}"]
        assert worst.idxmax() == workload
        assert worst.max() > least
    assert (points["opt_over_harmonic"] <= math.log(4) + 2).all()


@pytest.mark.parametrize("size", ["small", "full"])
def test_points_of_proofs_come_once_where_nothing_is_random(size: str) -> None:
    sweep = experiment_settings("competitive_ratio", f"size={size}")
    points = list(cases_of(sweep))
    assert len(set(points)) == len(points)
    seeds = {name: {point.seed for point in points if point.workload == name} for name in sweep.workloads}
    assert seeds["lqd_lower_bound"] == {1}
    assert seeds["poisson_bursts"] == set(sweep.seeds)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["workloads=[nobody]"], "workloads = nobody is unknown"),
        (["seeds=[]"], "seeds is empty"),
        (["seeds=[1,1]"], "seeds holds 1 twice"),
        (["flip_probabilities=[1.5]"], "at most 1"),
        (["policies=[dt]"], "lacks credence"),
        (["parameters.alpha=[0.5,1]"], "several queues, but generated arrivals have one"),
    ],
)
def test_settings_that_make_no_sense_are_refused(overrides: list[str], words: str) -> None:
    with pytest.raises(ForetailError, match=words):
        experiment_settings("credence_fig14", "size=small", *overrides)
