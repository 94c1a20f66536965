"""Experiments on generated arrivals: through the command line, small, with MLflow, stopped and repeated."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest

from foretail.pipelines import cli
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail_studies.slots.policies import cases_of, competitive_verdict, flips_verdict
from foretail_studies.slots.prediction_map import (
    PREDICTORS,
    Bounds,
    Cell,
    InSlots,
    Learning,
    Recorded,
    Sent,
    Traffic,
    cells_of,
    chosen,
    closed,
    regimes,
    summary_of,
    traffic_of,
    verdict,
)
from tests.composed import experiment_settings, result_in
from tests.traces import write_bursts

pytestmark = pytest.mark.slow
TINY = {
    "credence_fig14": ["slots=20000", "flip_probabilities=[0,0.5]", "seeds=[1,2]"],
    "competitive_ratio": ["slots=2000", "ports=[4]"],
}
OF_MAP = {"prediction_map": ["tracking=off", "jobs=1"]}
POINTS = {"credence_fig14": 4, "competitive_ratio": 12}


def ran(experiment: str, folder: Path, name: str, *overrides: str) -> dict[str, Any]:
    """The result of an experiment, run small in ``folder/name``."""
    arguments = ["run", experiment, "size=small", f"store_dir={folder / 'store'}", *(TINY | OF_MAP)[experiment]]
    assert cli.main([*arguments, f"hydra.run.dir={folder / name}", *overrides]) == 0
    return result_in(folder / name)


def figures(document: dict[str, Any]) -> list[Any]:
    """The rows of all tables; the notes say what was reused."""
    assert document["tables"]
    return [table["rows"] for table in document["tables"]]


@pytest.mark.nightly
@pytest.mark.parametrize("experiment", TINY)
def test_an_experiment_leaves_points_figures_tables_and_nested_runs(experiment: str, tmp_path: Path) -> None:
    document = ran(experiment, tmp_path, "run", f"tracking.uri=sqlite:///{tmp_path / 'mlflow.db'}")
    assert document["experiment"] == experiment
    kinds = ("parquet", "pdf", "png", "svg") if experiment == "credence_fig14" else ("parquet",)
    assert document["files"] == [f"{experiment}.{kind}" for kind in kinds]
    assert all((tmp_path / "run" / name).stat().st_size > 1000 for name in document["files"])
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted(
        [*document["files"], "result.json", "digest.json"]
    )
    points = pd.read_parquet(tmp_path / "run" / f"{experiment}.parquet")
    assert len(points) == len(document["rows"]) == POINTS[experiment]
    assert {"workload", "ports", "buffer", "slots", "seed", "flip_probability", "eta", "closed_form_eta"} <= set(points)
    assert "lqd_over_credence" in points
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


def test_experiments_in_slots_conclude_from_their_points() -> None:
    points = pd.DataFrame(
        {
            "flip_probability": [0.0, 1.0],
            "transmitted_credence": [8, 4],
            "transmitted_dt": [7, 7],
            "lqd_over_credence": [1.25, 2.5],
            "lqd_over_dt": [1.5, 1.5],
        }
    )
    sentences = " ".join(flips_verdict(points))
    assert "1.25 when 0 % are inverted and 2.5 when 100 % are inverted" in sentences
    ratios = pd.DataFrame({"opt_over_lqd": [1.1, 1.5], "opt_over_credence": [3.0, 2.0]})
    ratios = ratios.assign(transmitted_lqd=1, transmitted_credence=1)
    assert competitive_verdict(ratios) == [
        "The largest ratio of the optimum to a policy is least for LQD: 1.5.",
    ]


CELLS = [
    "incast",
    "incast fan_in=3",
    "bursts",
    "bursts load=0.04",
    "bursts exponent=1",
    "bursts least_bytes=64",
]


def nobody(traffic: Traffic, learning: Learning) -> Sent:
    """A predictor with which nothing is sent."""
    return lambda seed: 0


def test_cells_policies_and_predictors_stand_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = ran("prediction_map", tmp_path, "run")
    rows = pd.DataFrame(document["rows"])
    names = [
        "cell",
        "axis",
        "value",
        "base",
        "seed",
        "policy",
        "setting",
        "sent",
        "sent_by_lqd",
        "sent_by_accept",
        "left",
    ]
    assert set(names) <= set(rows)
    assert list(dict.fromkeys(rows["cell"])) == CELLS
    assert set(rows["seed"]) == {11, 12}
    assert rows["left"].to_numpy() == pytest.approx(1 - rows["sent"] / rows["sent_by_lqd"])
    every = rows["policy"] + rows["chosen"]
    assert set(every) == {
        "dtfixed",
        "dttuned",
        "abmfixed",
        "abmtuned",
        "besttuned",
        "harmonic",
        "cs",
        "told",
        "predictor",
    }
    assert (every.groupby(every).size() == 2 * len(CELLS)).all()
    assert (rows[rows["policy"] == "cs"]["sent"] == rows[rows["policy"] == "cs"]["sent_by_accept"]).all()
    # Credence that is told what LQD drops sends no less than LQD (Lemma 1, eta is 1), and no more than one buffer more
    told = rows[rows["policy"] == "told"]
    assert (told["sent"] >= told["sent_by_lqd"]).all()
    assert rows[every == "dtfixed"]["setting"].nunique() == 1
    assert len(document["verdict"]) == 1
    assert all((tmp_path / "run" / name).is_file() for name in document["files"])

    monkeypatch.setitem(PREDICTORS, "nobody", nobody)
    more = pd.DataFrame(ran("prediction_map", tmp_path, "more")["rows"])
    assert (more[more["policy"] == "nobody"]["left"] == 1).all()
    pd.testing.assert_frame_equal(
        more[more["policy"] != "nobody"].reset_index(drop=True), rows.reset_index(drop=True), check_like=True
    )


PREDICTED = {
    "first": {("told", None): 100, ("predictor", None): 97},
    "second": {("told", None): 100, ("predictor", None): 95},
}


def candidate_rows() -> pd.DataFrame:
    """Two cells; on training seeds alpha 1 is best in the first and 8 in the second, by more."""
    sent = {
        "first": {("dt", 1.0): 98, ("dt", 8.0): 96, ("abm", 1.0): 99, ("abm", 8.0): 90, ("harmonic", None): 50},
        "second": {("dt", 1.0): 60, ("dt", 8.0): 90, ("abm", 1.0): 60, ("abm", 8.0): 50, ("harmonic", None): 95},
    }
    rows = []
    for cell, counts in sent.items():
        for role, seed in (("train", 1), ("test", 11), ("test", 12)):
            for (policy, alpha), count in (counts | {("cs", None): 70, **PREDICTED[cell]}).items():
                if policy in ("told", "predictor") and role == "train":
                    continue
                count -= seed - 11 if role == "test" and policy != "told" else 0
                rows.append(
                    {"base": cell, "axis": "", "value": None, "cell": cell, "role": role, "seed": seed}
                    | {"policy": policy, "alpha": alpha}
                    | {"sent": count, "sent_by_lqd": 100, "sent_by_accept": 70, "left": 1 - count / 100}
                )
    return pd.DataFrame(rows)


def test_alphas_are_chosen_on_training_seeds() -> None:
    rows = chosen(candidate_rows())
    settings = rows[rows["seed"] == 11].set_index(["cell", "policy", "chosen"])["setting"]
    assert {settings[cell, "dt", "fixed"] for cell in ("first", "second")} == {"alpha 8"}
    assert [settings[cell, "dt", "tuned"] for cell in ("first", "second")] == ["alpha 1", "alpha 8"]
    assert [settings[cell, "abm", "fixed"] for cell in ("first", "second")] == ["alpha 1", "alpha 1"]
    assert settings["first", "best", "tuned"] == "ABM, alpha 1"
    assert settings["second", "best", "tuned"] == "Harmonic"
    assert settings["second", "harmonic", ""] == ""


def test_regimes_are_said_of_whole_intervals_only() -> None:
    rows = chosen(candidate_rows())
    summary = summary_of(rows, ["told"])
    bounds = Bounds(least_transfer=1.0, least_left=3.6, least_won=4.9, most_lost=0.1)
    said = regimes(summary, bounds).set_index("cell")
    assert summary.set_index("cell").loc["first", "transfer"] == pytest.approx(2)
    assert said.loc["first", "regime"] == "alpha"  # seeds differ in what is left by 1, so 2.5 [-3.9, 8.9] is no gap
    assert said.loc["second", "regime"] == "gap, pays"  # of 10.5 the predictor wins 5
    assert closed(said.iloc[1]).mean == pytest.approx(100 * 5 / 10.5)
    assert said.loc["first", "won"] == pytest.approx(-1)
    assert not said["nothing"].any()
    assert verdict(said.reset_index(), bounds) == [
        "The cell's own alpha leaves at least 3.6 % of LQD's packets in 1 of 2 cells; a predictor that was learned for "
        "the cell wins at least 4.9 % over it in 1."
    ]
    one_seed = regimes(summary_of(rows[rows["seed"] == 11], ["told"]), Bounds(0.0, 0.0, 0.0, 100.0))
    assert set(one_seed["regime"]) == {""}


def test_sparse_cells_have_more_slots() -> None:
    settings = experiment_settings("prediction_map")
    cells = list(cells_of(settings))
    assert len({cell.name for cell in cells}) == len(cells)
    assert Cell("bursts", "load", 0.4) not in cells  # the base cell
    assert Cell("incast", "burst_fraction", 0.5) not in cells  # a default of the workload
    for cell in cells:
        traffic = traffic_of(cell, settings)
        assert isinstance(traffic, Recorded) == (cell.base == "recorded")
        assert not isinstance(traffic, InSlots) or traffic.slots >= settings.slots
    sparse = traffic_of(Cell("bursts", "load", 0.04), settings)
    assert isinstance(sparse, InSlots)
    assert sparse.slots == 200 * 1000 / (0.04 * 20)
    arrivals = np.concatenate([batch.slot for batch in sparse.batches(1)])
    assert len(arrivals) / 1000 == pytest.approx(200, rel=0.2)


def test_recorded_arrivals_are_those_of_the_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = write_bursts(tmp_path / "bursts", 1)
    traffic = traffic_of(Cell("recorded", "tiny"), experiment_settings("prediction_map", "+recorded.tiny=[]"))
    assert isinstance(traffic, Recorded)
    monkeypatch.setattr(Recorded, "dataset", lambda self, seed: dataset)
    assert traffic.run(1).lqd == KnownRun.of(dataset).lqd <= traffic.sent_with_perfect_predictions(1)


@pytest.mark.ns3
def test_a_cell_of_recorded_arrivals(tmp_path: Path) -> None:
    rows = pd.DataFrame(ran("prediction_map", tmp_path, "run", '+recorded.tiny=["scenario=tiny"]')["rows"])
    recorded = rows[rows["cell"] == "recorded tiny"]
    assert set(recorded["policy"]) == {"dt", "abm", "best", "harmonic", "cs", "told", "predictor"}
    assert (recorded["sent_by_lqd"] > 0).all()
    told = recorded[recorded["policy"] == "told"]
    assert (told["sent"] >= told["sent_by_lqd"]).all()
