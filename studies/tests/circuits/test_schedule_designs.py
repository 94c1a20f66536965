"""Experiments on designs: figures of the thesis, what is proven, files, and the price of rounding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretail.features.demand.matrix import read_demand
from foretail.pipelines import cli
from foretail.sim_bridge.circuits.schedules import vermilion
from foretail.sim_bridge.circuits.throughput import single_hop
from foretail_studies.circuits import schedules as schedule_designs
from foretail_studies.engines.circuits import evaluation_matrix, single_hop_optimum

pytestmark = pytest.mark.slow

SHORT = {
    "vermilion_fig8_7": ["nodes=[8]", "matrices=[permutation,all_to_all,skew-0.3,hybrid_parallel]"],
    "vermilion_fig8_8": ["nodes=[4,8]", "matrices=[permutation,random_hose]", "trusts=[2,4]"],
}


def arguments(experiment: str, folder: Path, name: str, *overrides: str) -> list[str]:
    where = [f"store_dir={folder / 'store'}", f"hydra.run.dir={folder / name}"]
    return ["run", experiment, "size=small", "tracking=off", *where, *SHORT[experiment], *overrides]


def ran(experiment: str, folder: Path, name: str, *overrides: str) -> dict[str, Any]:
    assert cli.main(arguments(experiment, folder, name, *overrides)) == 0
    document: dict[str, Any] = json.loads((folder / name / "result.json").read_text(encoding="utf-8"))
    return document


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both experiments, short, on one store."""
    folder = tmp_path_factory.mktemp("designs")
    for experiment in SHORT:
        ran(experiment, folder, experiment)
    return folder


def samples_of(folder: Path, experiment: str) -> pd.DataFrame:
    return pd.read_parquet(folder / experiment / f"{experiment}.parquet")


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.parametrize("experiment", SHORT)
def test_an_experiment_leaves_tables_and_a_figure(experiment: str, folder: Path) -> None:
    document = json.loads((folder / experiment / "result.json").read_text(encoding="utf-8"))
    kinds = (".csv", ".parquet", ".pdf", ".png", ".svg", "_rounding.csv")
    assert document["files"] == sorted(f"{experiment}{kind}" for kind in kinds)
    assert sorted(path.name for path in (folder / experiment).iterdir()) == sorted(
        [*document["files"], "result.json", "digest.json"]
    )
    assert (document["duty_cycle"], document["duty_cycle_included"], document["violations"]) == (0.99, False, [])
    curves = pd.read_csv(folder / experiment / f"{experiment}.csv")
    assert np.allclose(curves["mean_with_duty_cycle"], 0.99 * curves["mean"])


@pytest.mark.parametrize("experiment", SHORT)
def test_vermilion_keeps_its_guarantee_and_the_optimum_is_at_least_as_good(experiment: str, folder: Path) -> None:
    samples = samples_of(folder, experiment)
    made = samples[samples["design"] == "vermilion"]
    assert np.allclose(made["guarantee"], (made["k"] - 1) / made["k"])
    assert (made["theta"] >= made["guarantee"] * (1 - 1e-9)).all()
    gap = pd.read_csv(folder / experiment / f"{experiment}_rounding.csv")
    assert len(gap) == len(made)
    assert (gap["vermilion"] <= gap["robust_optimum"] * (1 + 1e-9)).all()
    assert (gap["robust_optimum"] <= gap["optimum"] * (1 + 1e-9)).all()


def test_known_throughputs(folder: Path) -> None:
    samples = samples_of(folder, "vermilion_fig8_7").set_index(["matrix", "design", "routing", "k"])["theta"]
    assert samples["permutation", "oblivious", "multi-hop", 0] == pytest.approx(8 / 14, abs=1e-6)
    assert samples["permutation", "oblivious", "single-hop", 0] == pytest.approx(1 / 7)
    assert samples["all_to_all", "oblivious", "multi-hop", 0] == pytest.approx(1, abs=1e-6)
    assert samples["permutation", "optimum", "single-hop", 3] == pytest.approx(1)
    assert samples["permutation", "vermilion", "single-hop", 3] == pytest.approx((2 * 8 + 1) / (3 * 8))
    skewed = evaluation_matrix("skew-0.3", 8, 4, 1)
    schedule = vermilion(skewed, 4, 6, 1, 1)
    assert samples["skew-0.3", "vermilion", "single-hop", 6] == pytest.approx(single_hop(skewed, schedule.capacity))
    robust = float(single_hop_optimum(skewed, 4, schedule.period, 1).theta)
    assert samples["skew-0.3", "robust optimum", "single-hop", 6] == pytest.approx(robust)


def test_a_violated_guarantee_is_reported_with_its_matrix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(schedule_designs, "single_hop_guarantee", lambda k: 1.0)
    short = ["matrices=[permutation]", "designs=[vermilion]"]
    document = ran("vermilion_fig8_7", tmp_path, "run", *short)
    assert [(row["matrix"], row["k"]) for row in document["violations"]] == [("permutation", 3), ("permutation", 6)]
    assert "2 throughputs are below Theorem 22: violation_*.parquet has their matrices" in capsys.readouterr().out
    kept = read_demand(tmp_path / "run" / "violation_1.parquet")
    assert np.array_equal(kept.demand, evaluation_matrix("permutation", 8, 4, 1).demand)


BAD = {
    "matrices=[torus]": "there is no matrix torus: choose from data_parallel",
    "matrices=[skew-2]": "there is no matrix skew-2",
    "trusts=[1]": "trusts = 1 is out of range",
    "nodes=[10]": "k n = 3 x 10 matchings do not fill 4 uplinks evenly: choose k = 4",
    "nodes=[4]": "degree = 4 is too much for 4 nodes: choose at most 3",
    "nodes=[128]": "multi-hop throughput of the oblivious design on 128 nodes takes minutes",
    "seeds=[1,1]": "seeds holds 1 twice",
}


@pytest.mark.nightly
@pytest.mark.parametrize("override", BAD)
def test_bad_settings_get_one_sentence(override: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(arguments("vermilion_fig8_7", tmp_path, "run", override))
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("foretail")]
    assert code == cli.EXIT_BAD_INPUT
    assert len(lines) == 1
    assert BAD[override] in lines[0]
    assert not (tmp_path / "run").exists()
