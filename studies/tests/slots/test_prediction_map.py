"""``foretail run prediction_map``: cells, alphas chosen on training seeds, regimes and the verdict. Costs 30 s."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretail.core.errors import ForetailError
from foretail.pipelines import cli
from foretail.sim_bridge.arrivals.workloads import PoissonBursts
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail_studies.slots.prediction_map import (
    LEFT,
    PREDICTORS,
    Bounds,
    Cell,
    InSlots,
    Learning,
    Recorded,
    Sent,
    Traffic,
    TwoSizes,
    cells_of,
    chosen,
    closed,
    draw,
    regimes,
    summary_of,
    traffic_of,
    verdict,
)
from tests.composed import experiment_settings
from tests.traces import write_bursts

pytestmark = pytest.mark.slow

CELLS = [
    "incast",
    "incast fan_in=3",
    "bursts",
    "bursts load=0.04",
    "bursts exponent=1",
    "bursts least_bytes=64",
]


def ran(folder: Path, name: str, *overrides: str) -> dict[str, Any]:
    """The result of the small size."""
    arguments = ["run", "prediction_map", "size=small", "tracking=off", "jobs=1", f"store_dir={folder / 'store'}"]
    assert cli.main([*arguments, f"hydra.run.dir={folder / name}", *overrides]) == 0
    document: dict[str, Any] = json.loads((folder / name / "result.json").read_text(encoding="utf-8"))
    return document


def nobody(traffic: Traffic, learning: Learning) -> Sent:
    """A predictor with which nothing is sent."""
    return lambda seed: 0


def test_cells_policies_and_predictors_stand_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = ran(tmp_path, "run")
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
    assert len(document["verdict"]) == 4
    assert all((tmp_path / "run" / name).is_file() for name in document["files"])
    assert document["slots"]["bursts load=0.04"] == 20 * 80 / (0.04 * 8)

    monkeypatch.setitem(PREDICTORS, "nobody", nobody)
    more = pd.DataFrame(ran(tmp_path, "more")["rows"])
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
    sentences = verdict(said.reset_index(), rows, bounds)
    assert "One alpha for all cells (alpha 8) leaves" in sentences[0]
    assert "in 1 of 2 cells (most in first: 2 [2, 2] %)" in sentences[0]
    assert "in 1 (most in second" in sentences[1]
    assert "closes 48 to 48 %, in the median 48 %, of what that leaves" in sentences[2]
    one_seed = regimes(summary_of(rows[rows["seed"] == 11], ["told"]), Bounds(0.0, 0.0, 0.0, 100.0))
    assert set(one_seed["regime"]) == {""}
    first, second = draw(said.reset_index()).axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["first"]
    assert len(second.containers) == len(LEFT)


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


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["test_seeds=[1,3]"], "judge on other seeds"),
        (["+bases.recorded={workload: uniform, ports: 4, buffer_per_port: 4}"], "bases.recorded has the name"),
        (["axes.bursts.least_bytes=[1024]"], "least_bytes is 1024"),
        (['+recorded.web=["scenario=nowhere"]'], "recorded.web"),
        (['+recorded.web=["source=slotted"]'], "recorded.web has source=slotted: record a scenario"),
        (["+bases.new={workload: uniform, ports: 4}"], "bases.new has no buffer_per_port"),
        (["+axes.nobody={load: [0.1]}"], "axes has nobody"),
        (["axes.incast={fan_in: [99]}"], "fan_in must be at most"),
        (["+axes.incast.fans=[1]"], "fans"),
    ],
)
def test_settings_that_make_no_sense_are_refused(overrides: list[str], words: str) -> None:
    with pytest.raises(ForetailError, match=words):
        experiment_settings("prediction_map", "size=small", *overrides)


def test_two_sizes_have_the_mean_of_one() -> None:
    traffic = TwoSizes(PoissonBursts(load=0.4), 8, 80, 5000, least_bytes=64)
    records = np.concatenate(traffic.records(1))
    assert set(np.unique(records["size_bytes"])) == {64, 1500}
    assert records["size_bytes"].mean() == pytest.approx(1024, rel=0.02)
    assert (records == np.concatenate(traffic.records(1))).all()
    run = traffic.run(1)
    assert sum(map(len, run.switches)) == len(records)
    assert run.sent("cs") <= run.lqd <= records["size_bytes"].sum()
    assert traffic.sent_with_perfect_predictions(1) >= run.lqd


def test_recorded_arrivals_are_those_of_the_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = write_bursts(tmp_path / "bursts", 1)
    traffic = traffic_of(Cell("recorded", "tiny"), experiment_settings("prediction_map", "+recorded.tiny=[]"))
    assert isinstance(traffic, Recorded)
    monkeypatch.setattr(Recorded, "dataset", lambda self, seed: dataset)
    assert traffic.run(1).lqd == KnownRun.of(dataset).lqd <= traffic.sent_with_perfect_predictions(1)


@pytest.mark.ns3
def test_a_cell_of_recorded_arrivals(tmp_path: Path) -> None:
    rows = pd.DataFrame(ran(tmp_path, "run", '+recorded.tiny=["scenario=tiny"]')["rows"])
    recorded = rows[rows["cell"] == "recorded tiny"]
    assert set(recorded["policy"]) == {"dt", "abm", "best", "harmonic", "cs", "told", "predictor"}
    assert (recorded["sent_by_lqd"] > 0).all()
    told = recorded[recorded["policy"] == "told"]
    assert (told["sent"] >= told["sent_by_lqd"]).all()
