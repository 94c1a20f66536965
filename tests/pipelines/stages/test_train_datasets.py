"""``foretail train`` on made-up datasets: predictors, weights of drops, windows of arrivals, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.model_stages import DistillConfig, TrainConfig
from foretail.configs.schema.tracking import Tracking
from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES, SHADOW_COLUMNS
from foretail.features.dataset.schema import Rules
from foretail.models.drop.network import Network
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.store import imported
from foretail.models.mlflow.tracking import run_exists
from foretail.pipelines import cli
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.distill import distill
from foretail.pipelines.stages.train import train
from foretail.pipelines.tracking.loading import load_model
from foretail.pipelines.training.outcome import TrainResult
from tests.composed import composed
from tests.traces import Arrivals, make_arrivals, write_trace

pytestmark = pytest.mark.slow

QUEUE = [feature.name for feature in FEATURES].index("threshold")
SEEDS = (1, 2, 3, 4)
SHORT = ["features.names=[threshold,queue]", "tracking=off"]


def learnable(seed: int) -> Arrivals:
    """Arrivals of which those are dropped that meet a long queue."""
    arrivals = make_arrivals(1500, seed)
    data = arrivals.records["flow_class"] != 0
    arrivals.records["lqd_drop"] = data & (arrivals.records["features"][:, QUEUE] > 0.85 * 2**24)
    return arrivals


RUN: dict[str, Any] = {
    "scenario": {"topology": {"wire_overhead_bytes": 2}},
    "rules": Rules("counted", "lowest_port", "head"),  # of other labels than these, the push-outs are known
}


def written(path: Path, arrivals: Arrivals, seed: int) -> str:
    return str(write_trace(path / f"{seed}", arrivals, seed=seed, **RUN).path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("train")


@pytest.fixture(scope="module")
def datasets(folder: Path) -> list[str]:
    return [written(folder / "runs", learnable(seed), seed) for seed in SEEDS]


def trained(folder: Path, datasets: list[str], *overrides: str) -> TrainResult:
    settings = [f"store_dir={folder / 'store'}", f"datasets=[{','.join(datasets)}]", *SHORT, *overrides]
    return train(typed(composed("train", *settings), TrainConfig), folder / "out")


def test_a_model_says_how_often_training_rows_reached_its_leaves(folder: Path, datasets: list[str]) -> None:
    for predictor in ("random_forest", "boosted_trees"):  # the first counts the rows of its bootstraps, the second none
        result = trained(folder, datasets, f"predictor={predictor}", "predictor.trees=2", "sampling.others=0.5")
        rows = sum(item["rows"] for item in result.document()["datasets"] if item["side"] == "train")
        visits = [tree.visits for tree in result.ensemble.trees]
        assert [0 if counts is None else counts.sum() for counts in visits] == [rows, rows]


def test_no_line_in_a_pipe_is_longer_than_80_columns(
    folder: Path, datasets: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    runs = [str(Path(path).relative_to(folder)) for path in datasets]
    assert cli.main(["train", f"datasets=[{','.join(runs)}]", SHORT[0], "hydra.run.dir=lines"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert any(line.startswith("test, whole: expected calibration error 0.0") for line in lines)
    assert "result: lines/result.json" in [line.replace(f"{folder}/", "") for line in lines]
    assert any(line.startswith("MLflow run ") and line.endswith(" in outputs/mlflow.db") for line in lines)


def test_drops_that_weigh_more_are_predicted_more(folder: Path, datasets: list[str]) -> None:
    light, heavy = (
        trained(folder, datasets, "features.names=[queue]", f"drop_weight={weight}") for weight in ("1", "20")
    )
    assert isinstance(light.model, Ensemble)
    assert isinstance(heavy.model, Ensemble)
    x = np.arange(0, 2**24, 2**16)[:, None]
    assert heavy.model.probability(x).mean() > 3 * light.model.probability(x).mean()
    assert not heavy.reused


def test_boosted_trees_are_the_same_with_their_bins_in_files(folder: Path, datasets: list[str]) -> None:
    boosted = ["predictor=boosted_trees", "predictor.trees=3"]
    in_memory = trained(folder, datasets, *boosted)
    assert trained(folder, datasets, *boosted, "trainer.rows_in_memory=10").reused
    again = trained(folder, datasets, *boosted, "trainer.rows_in_memory=10", f"store_dir={folder / 'other'}")
    assert not again.reused
    assert again.ensemble == in_memory.ensemble
    assert again.outcome["sampled_others"] == 1


def test_more_rows_than_fit_into_memory_are_sampled_for_a_forest(folder: Path, datasets: list[str]) -> None:
    forest = ["predictor=random_forest", "predictor.trees=2"]
    whole = trained(folder, datasets, *forest)
    rows = int(str(whole.ensemble.origin["rows"]))
    cut = trained(folder, datasets, *forest, f"trainer.rows_in_memory={rows - 100}")
    share = cut.outcome["sampled_others"]
    assert whole.outcome["sampled_others"] == 1
    assert 0 < share < 1
    assert int(str(cut.ensemble.origin["rows"])) < rows
    assert cut.ensemble.origin["drops"] == whole.ensemble.origin["drops"]
    note = f"trained on every drop, all of the asked region and {100 * share:.3g} % of the other rows, weighted"
    assert note in cut.score_table().notes
    assert not any("of the other rows" in note for note in whole.score_table().notes)
    chosen = trained(folder, datasets, *forest, f"sampling.others={share!r}")
    assert not chosen.reused
    assert chosen.ensemble == cut.ensemble
    with pytest.raises(ForetailError, match=r"raise trainer\.rows_in_memory"):
        trained(folder, datasets, *forest, "trainer.rows_in_memory=10")


def test_threads_make_another_model_where_they_change_sums(folder: Path, datasets: list[str]) -> None:
    forest, boosted = ([f"predictor={name}", "drop_weight=3"] for name in ("random_forest", "boosted_trees"))
    for predictor, reused in ((forest, True), (boosted, False)):
        assert not trained(folder, datasets, *predictor).reused
        assert trained(folder, datasets, *predictor, "trainer.jobs=2").reused == reused


def test_a_window_is_a_study_that_nothing_else_takes(folder: Path, datasets: list[str]) -> None:
    result = trained(folder, datasets, "predictor=boosted_trees", "window={behind: 1, ahead: 2}")
    names = [item["name"] for item in result.outcome["features"]]
    assert names[:5] == ["threshold_1_back", "queue_1_back", "same_port_1_back", "apart_1_back", "size_1_back"]
    assert names[5:7] == ["threshold", "queue"]
    assert len(names) == 4 * 5
    with pytest.raises(ForetailError, match="sees a window of arrivals"):
        load_model(str(folder / "out"), Tracking(enabled=False), Store(str(folder / "store")))


def test_a_sequence_network_sees_fifteen_arrivals_before(folder: Path, datasets: list[str]) -> None:
    fast = ["predictor=sequence", "predictor.rounds=3", "predictor.round_steps=20", "predictor.learning_rate=0.03"]
    result = trained(folder, datasets, *fast, "predictor.width=8", "predictor.batch_rows=64")
    assert isinstance(result.model, Network)
    assert len(result.model.features) == 16 * 5
    assert result.outcome["scores"]["test"]["whole"]["average_precision"] > 0.3
    student = [f"store_dir={folder / 'store'}", f"datasets=[{','.join(datasets)}]", f"model={folder / 'out'}"]
    with pytest.raises(ForetailError, match="sees a window of arrivals"):
        distill(typed(composed("distill", *student, "tracking=off"), DistillConfig), folder / "student")
    with pytest.raises(ForetailError, match=r"= 17 is not a power of two"):
        trained(folder, datasets, *fast, "window.ahead=1")


def test_a_feature_that_never_changes_is_named(folder: Path) -> None:
    def constant(seed: int) -> Arrivals:
        arrivals = learnable(seed)
        arrivals.shadow[:, SHADOW_COLUMNS.index("shadow_queue")] = 7
        return arrivals

    runs = [written(folder / "constant", constant(seed), seed) for seed in SEEDS]
    with pytest.raises(ForetailError, match=r"feature queue is 7 in all \d+ training rows, .* allow_constant_features"):
        trained(folder, runs)
    assert trained(folder, runs, "allow_constant_features=true").outcome["scores"]["test"]["whole"]["f1"] > 0.9


@pytest.mark.parametrize(
    ("poor", "drop", "says"),
    [
        (1, 0, r"rows of the train side of the split hold no drop: give it more runs"),
        (3, 0, r"rows of the validation side of the split hold no drop"),
        (4, 0, r"rows of the test side of the split hold no drop"),
        (4, 1, r"all \d+ rows of the test side of the split are drops"),
    ],
)
def test_a_side_of_one_class_is_named(tmp_path: Path, poor: int, drop: int, says: str) -> None:
    runs = []
    for seed in (1, 3, 4):
        arrivals = learnable(seed)
        if seed == poor:
            arrivals.records["lqd_drop"] = drop * (arrivals.records["flow_class"] != 0)
        runs.append(written(tmp_path, arrivals, seed))
    with pytest.raises(ForetailError, match=says):
        trained(tmp_path, runs, "split.train=[1]")


@pytest.mark.nightly
def test_a_reused_model_is_told_without_what_takes_long_to_import(folder: Path, datasets: list[str]) -> None:
    arguments = ["train", f"datasets=[{','.join(datasets)}]", SHORT[0], f"store_dir={folder / 'tracked' / 'store'}"]
    program = (
        "import sys; from foretail.pipelines.cli import main; assert main(sys.argv[1:]) == 0; "
        "print('loaded:', sorted({'mlflow', 'pandas', 'sklearn', 'scipy', 'matplotlib'} & sys.modules.keys()))"
    )

    def run() -> str:
        command = [sys.executable, "-c", program, *arguments, "predictor.trees=1"]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout

    assert "is version 1 now\n" in run()
    again = run()
    assert "reused model" in again
    assert "is version 1 now, as before\n" in again
    assert again.endswith("loaded: []\n")
    uri = f"sqlite:///{folder / 'tracked' / 'mlflow.db'}"
    (run_id,) = re.findall(r"MLflow run (\w+) in", again)
    imported().MlflowClient(uri).delete_run(run_id)
    assert not run_exists(run_id, uri)
    assert "is version 2 now; before: version 1\n" in run()
