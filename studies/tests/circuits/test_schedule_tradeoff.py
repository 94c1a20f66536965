"""Consistency against robustness: what is proven holds, the optimised distributions, files, and violations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretail.features.demand.matrix import read_demand
from foretail.pipelines import cli
from foretail_studies.circuits import prediction
from foretail_studies.engines.circuits import evaluation_matrix

pytestmark = pytest.mark.slow

SHORT = ["k=4", "degree=2", "nodes=4", "matrices=[ring,skew-0.5]", "tries=6"]


def arguments(folder: Path, name: str, *overrides: str) -> list[str]:
    where = [f"store_dir={folder / 'store'}", f"hydra.run.dir={folder / name}"]
    return ["run", "vermilion_fig9_1", "size=small", "tracking=off", *where, *SHORT, *overrides]


def ran(folder: Path, name: str, *overrides: str) -> dict[str, Any]:
    assert cli.main(arguments(folder, name, *overrides)) == 0
    document: dict[str, Any] = json.loads((folder / name / "result.json").read_text(encoding="utf-8"))
    return document


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tradeoff")
    ran(folder, "run")
    return folder


@pytest.fixture(scope="module")
def samples(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "run" / "vermilion_fig9_1.parquet")


def test_it_leaves_tables_and_a_figure(folder: Path) -> None:
    document = json.loads((folder / "run" / "result.json").read_text(encoding="utf-8"))
    kinds = (".csv", ".parquet", ".pdf", ".png", ".svg", "_optimised.csv")
    assert document["files"] == sorted(f"vermilion_fig9_1{kind}" for kind in kinds)
    wanted = {*document["files"], "result.json", "digest.json"}
    assert {path.name for path in (folder / "run").iterdir()} == wanted
    assert (document["duty_cycle_included"], document["violations"]) == (False, [])
    assert [(row["routing"], row["gamma"]) for row in document["curves"]] == [
        (routing, gamma) for routing in ("multi-hop", "single-hop") for gamma in range(1, 5)
    ]


def test_no_throughput_is_below_what_is_proven(samples: pd.DataFrame) -> None:
    assert (samples["theta"] >= samples["bound"] - 1e-6).all()
    right = samples[(samples["prediction"] == "right") & (samples["routing"] == "multi-hop")].set_index("gamma")
    assert right["bound"][3].tolist() == pytest.approx([2 / 3, 2 / 3])
    assert (samples[samples["prediction"] == "right"]["error_of_shape"] == 0).all()
    wrong = samples[(samples["prediction"] == "elsewhere") & (samples["matrix"] == "ring")]
    assert np.allclose(wrong["error_of_shape"], 1)


def test_an_optimised_distribution_is_an_expectation_of_the_points(folder: Path) -> None:
    curves = pd.read_csv(folder / "run" / "vermilion_fig9_1.csv").query("routing == 'multi-hop'").set_index("gamma")
    best = pd.read_csv(folder / "run" / "vermilion_fig9_1_optimised.csv").set_index("floor")
    assert (best["robustness"] >= best.index - 1e-9).all()
    assert best["distribution"][0.5] == "1: 1"
    assert best["least_right"][0.5] == pytest.approx(curves["least_right"][1])
    mixed = dict(part.split(": ") for part in best["distribution"][0.2].split(", "))
    assert set(mixed) == {"1", "4"}
    share = (0.2 - 1 / 8) / (1 / 2 - 1 / 8)
    assert float(mixed["1"]) == pytest.approx(share, rel=0.05)
    expected = share * curves["least_wrong"][1] + (1 - share) * curves["least_wrong"][4]
    assert best["least_wrong"][0.2] == pytest.approx(expected)


def test_a_violated_bound_is_reported_with_its_matrices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prediction, "consistency", lambda trust: 2.0 if trust == 3 else 0.0)
    document = ran(tmp_path, "run", "matrices=[ring]")
    assert [(row["matrix"], row["gamma"], row["prediction"]) for row in document["violations"]] == [
        ("ring", 3, "right")
    ]
    assert "1 throughputs are below Theorems 22, 24 and 25: violation_*.parquet" in capsys.readouterr().out
    for kind in ("demand", "prediction"):
        kept = read_demand(tmp_path / "run" / f"violation_0_{kind}.parquet")
        assert np.array_equal(kept.demand, evaluation_matrix("ring", 4, 2, 1).demand)


BAD = {
    "matrices=[torus]": "there is no matrix torus: choose from data_parallel",
    "nodes=3": "nodes = 3 is out of range",
    "nodes=5": "k n = 1 x 5 matchings do not fill 2 uplinks evenly",
    "degree=5": "degree is 5: give 1 to 4 uplinks for 4 nodes",
    "floors=[0.6]": "floors = 0.6 is out of range",
}


@pytest.mark.nightly
@pytest.mark.parametrize("override", BAD)
def test_bad_settings_get_one_sentence(override: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(arguments(tmp_path, "run", override))
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("foretail")]
    assert code == cli.EXIT_BAD_INPUT
    assert len(lines) == 1
    assert BAD[override] in lines[0]
    assert not (tmp_path / "run").exists()
