"""Experiments on cells: files, figures that follow from the fabric, pairs of seeds, points shared by both figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretail.pipelines import cli
from foretail.pipelines.comparison.statistics import mean_interval
from foretail.sim_bridge.circuits.demand import permutation
from foretail_studies.circuits.schedules import CellDesign, fabric_of, scheduled
from foretail_studies.engines.cells import CellFlows, SlotTime

pytestmark = pytest.mark.slow

COMPLETION, UTILISATION = "vermilion_fig8_5", "vermilion_fig8_6"
SIZES = ([0, 20_000, 2_000_000], [0, 0.9, 1])
SHORT = {
    "racks": 8,
    "loads": [0.6, 0.05],
    "flow_sizes.size_bytes": SIZES[0],
    "flow_sizes.cumulative": SIZES[1],
    "warm_up_slots": 200,
    "slots": 1000,
    "drain_slots": 100,
}


def arguments(experiment: str, folder: Path, name: str, *overrides: str) -> list[str]:
    where = [f"store_dir={folder / 'store'}", f"hydra.run.dir={folder / name}"]
    short = [f"{name}={value}".replace(" ", "") for name, value in SHORT.items()]
    return ["run", experiment, "size=small", "degree=4", "tracking=off", *where, *short, *overrides]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both experiments, short, on one store."""
    folder = tmp_path_factory.mktemp("fabric")
    for experiment in (COMPLETION, UTILISATION):
        assert cli.main(arguments(experiment, folder, experiment)) == 0
    return folder


def document_of(folder: Path, experiment: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / experiment / "result.json").read_text(encoding="utf-8"))
    return document


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.parametrize("experiment", [COMPLETION, UTILISATION])
def test_an_experiment_leaves_curves_points_and_a_figure(experiment: str, folder: Path) -> None:
    document = document_of(folder, experiment)
    assert document["files"] == [f"{experiment}.{kind}" for kind in ("csv", "parquet", "pdf", "png", "svg")]
    assert sorted(path.name for path in (folder / experiment).iterdir()) == sorted(
        [*document["files"], "result.json", "digest.json"]
    )
    assert document["duty_cycle"] == 0.9
    assert document["routing"]["rotornet"] == "two_hop"
    samples = pd.read_parquet(folder / experiment / f"{experiment}.parquet")
    assert len(samples) == len(document["rows"]) == 6 * 2 * 2
    assert set(samples["load"]) == {0.05, 0.6}


def test_all_designs_carry_the_same_flows_and_only_some_in_time(folder: Path) -> None:
    samples = pd.read_parquet(folder / COMPLETION / f"{COMPLETION}.parquet")
    assert samples.groupby(["load", "seed"])[["short_flows", "long_flows"]].nunique().max().max() == 1
    p99 = samples[samples["load"] == 0.05].pivot(index="seed", columns="design", values="short_p99_us")
    assert (p99["rotornet_slow"] > p99["rotornet"]).all()
    assert (p99["vermilion"] < p99["round_robin"]).all()


def test_ratios_are_paired_by_seed(folder: Path) -> None:
    samples = pd.read_parquet(folder / COMPLETION / f"{COMPLETION}.parquet")
    curves = pd.read_csv(folder / COMPLETION / f"{COMPLETION}.csv")
    assert (curves["over"] == "vermilion").all()
    for _, row in curves.iterrows():
        of_load = samples[samples["load"] == row["load"]].set_index(["design", "seed"])[row["metric"]]
        values, first = of_load[row["design"]], of_load["vermilion"]
        assert row["mean"] == pytest.approx(values.mean())
        assert (row["least"], row["largest"]) == (values.min(), values.max())
        assert row["ratio"] == pytest.approx(float(np.sqrt((first / values).prod())))
        interval = mean_interval(np.log(first / values).tolist())
        assert interval.low is not None
        assert row["ratio_low"] == pytest.approx(np.exp(interval.low))
    unfinished = curves[(curves["design"] == "round_robin") & (curves["metric"] == "long_p99_us")]["unfinished"]
    assert (
        unfinished.tolist()
        == samples[samples["design"] == "round_robin"].groupby("load")["long_unfinished"].sum().tolist()
    )
    assert unfinished.max() > 0


def test_a_matching_stays_for_its_slots() -> None:
    once = scheduled(CellDesign(schedule="round_robin", routing="two_hop"), permutation(5, 2, 1), 2, 1)
    held = scheduled(CellDesign(schedule="round_robin", routing="two_hop", hold_slots=3), permutation(5, 2, 1), 2, 1)
    assert held.period == 3 * once.period
    assert np.array_equal(held.matchings[::3], once.matchings)
    assert np.array_equal(held.matchings[2::3], once.matchings)


BAD = {
    "racks=4": "degree is 4: give 1 to 3 uplinks for 4 nodes",
    "racks=9": "k n = 3 x 9 matchings do not fill 4 uplinks evenly: choose k = 4",
    "designs.vlb.routing=hot_potato": "designs.vlb.routing = hot_potato is unknown",
    "flow_sizes.cumulative=[0,0.9,0.5]": "flow_sizes.cumulative is not monotone",
}


@pytest.mark.parametrize("override", BAD)
def test_bad_settings_get_one_sentence(override: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(arguments(COMPLETION, tmp_path, "run", override))
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("foretail")]
    assert code == cli.EXIT_BAD_INPUT
    assert len(lines) == 1
    assert BAD[override] in lines[0]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("schedule", "routing"), [("mars", "detour"), ("expander", "shortest_paths"), ("opera", "current_paths")]
)
def test_designs_of_several_hops_deliver_every_cell(schedule: str, routing: str) -> None:
    """Mars has no circuit for most pairs: only a routing over several hops delivers all; Opera's long flows wait."""
    demand, time = permutation(8, 4, 1), SlotTime(25_000_000_000, 4_500, 500)
    sizes = np.array([1, 3, 1200])  # the last one is longer than 15 MB
    design = CellDesign(schedule, routing)
    made = scheduled(design, demand, 4, 1)
    far = int(np.argmin(made.edges[2, 3:])) + 3  # without a circuit, but in Opera
    flows = CellFlows(np.zeros(3, np.int64), np.array([0, 1, 2]), np.array([3, 6, far]), sizes)
    fabric = fabric_of(design, made, flows, time, 1)
    counts = fabric.advance(4_000)
    assert counts.delivered == sizes.sum()
    hops = 1 + counts.first_hop / counts.delivered
    assert hops < 1.1 if schedule == "opera" else hops > 1.2
