"""A network is trained, tracked and distilled into an ensemble that exports, on the tiny scenario."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from mlflow import MlflowClient

from foretail.configs.schema.model_stages import DistillConfig, TrainConfig
from foretail.configs.schema.packet_stages import DemoConfig
from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.features.rows import splits
from foretail.features.rows.labelled_rows import Rows, read_rows
from foretail.models.drop.network import Network
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.mlflow.registry import lineage
from foretail.pipelines.data.inputs import split_datasets
from foretail.pipelines.exporting.deciding import decider_of
from foretail.pipelines.runs.result import figure_text
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.distill import distill
from foretail.pipelines.stages.train import train
from foretail.pipelines.tracking.loading import load_model
from foretail.pipelines.training.distilling import DistillResult
from foretail.pipelines.training.outcome import TrainResult
from foretail.sim_bridge.open_loop.replay import replay_scores
from tests.composed import composed

pytestmark = pytest.mark.ns3

MLP = ("predictor=mlp", "predictor.width=16", "predictor.steps=300")


def shared(folder: Path) -> list[str]:
    return ["scenario=tiny", f"store_dir={folder / 'store'}", f"tracking.uri=sqlite:///{folder / 'mlflow.db'}"]


def train_config(folder: Path, *overrides: str) -> TrainConfig:
    return typed(composed("train", *shared(folder), *MLP, *overrides), TrainConfig)


def distill_config(folder: Path, *overrides: str) -> DistillConfig:
    own = ["student.trees=3", "student.depth=4", f"model={folder / 'teacher'}"]
    return typed(composed("distill", *shared(folder), *own, *overrides), DistillConfig)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("distill")


@pytest.fixture(scope="module")
def trained(folder: Path) -> TrainResult:
    return train(train_config(folder), folder / "teacher")


@pytest.fixture(scope="module")
def distilled(folder: Path, trained: TrainResult) -> DistillResult:
    return distill(distill_config(folder), folder / "student")


def side(trained: TrainResult, name: str) -> tuple[splits.Side, Rows]:
    datasets = [Dataset.open(Path(item["path"])) for item in trained.outcome["datasets"]]
    split = split_datasets(typed(composed("train", "scenario=tiny"), TrainConfig).split, datasets)
    chosen: splits.Side = getattr(split, name)
    return chosen, read_rows(chosen, trained.outcome["columns"])


def test_a_network_is_trained_scored_and_tracked(folder: Path, trained: TrainResult) -> None:
    network = Network.load(folder / "teacher" / "model.onnx")
    assert sorted(path.name for path in (folder / "teacher").iterdir()) == ["model.onnx"]
    document = trained.document()
    assert document["network_sha256"] == network.sha256
    assert "ensemble_sha256" not in document
    assert document["threshold_probability"] == network.threshold
    assert document["scores"]["validation"]["asked"]["f1"] > 0.1
    _, test = side(trained, "test")
    whole = document["scores"]["test"]["whole"]
    assert whole["true_positives"] == int((network.exceeds(test.x) & test.lqd_drop).sum())
    with pytest.raises(ForetailError, match="foretail distill"):
        _ = trained.ensemble
    client = MlflowClient(document["tracked"]["uri"])
    run = client.get_run(document["tracked"]["run_id"])
    assert run.data.metrics["test/whole/f1"] == pytest.approx(whole["f1"])
    assert run.data.params["predictor.name"] == "mlp"
    assert document["tracked"]["registered"]["alias"] == "candidate"
    assert "model.onnx" in {item.path for item in client.list_artifacts(run.info.run_id)}
    again = train(train_config(folder), folder / "teacher")
    assert again.reused
    assert isinstance(again.model, Network)
    assert again.model.content == network.content


def test_the_student_stands_beside_its_teacher(trained: TrainResult, distilled: DistillResult) -> None:
    outcome = distilled.outcome
    assert outcome["teacher"]["scores"] == trained.outcome["scores"]
    assert outcome["teacher"]["replay"] == trained.outcome["replay"]
    selection, test = side(trained, "test")
    learned = distilled.ensemble.exceeds(test.x)
    assert isinstance(trained.model, Network)
    taught = trained.model.exceeds(test.x)
    agreement = outcome["agreement"]["test"]["whole"]
    assert agreement["accuracy"] == np.mean(learned == taught)
    assert (agreement["teacher_drops"], agreement["student_drops"]) == (taught.sum(), learned.sum())
    assert agreement["f1"] > 0.5
    assert outcome["student"]["scores"]["test"]["whole"]["true_positives"] == (learned & test.lqd_drop).sum()
    for region in ("whole", "asked"):
        teacher, student = (outcome[who]["scores"]["test"][region]["f1"] for who in ("teacher", "student"))
        assert outcome["loss"][region]["f1"] == teacher - student
    for name in ("recovered_loss", "sent_percent_of_lqd"):
        lost = outcome["teacher"]["replay"][name] - outcome["student"]["replay"][name]
        assert outcome["loss"]["replay"][name] == lost
        assert f"{name.replace('_', ' ')} {figure_text(lost)}" in " ".join(distilled.tables()[1].notes)
    replayed = replay_scores(selection[0].dataset, learned, decider_of(distilled.ensemble))
    assert outcome["student"]["replay"]["followlqd_bytes"] == replayed.followlqd_bytes
    assert outcome["student"]["replay"]["eta"] == replayed.eta
    assert outcome["student"]["replay"]["sent_percent_of_lqd"] == replayed.sent_percent_of_lqd
    f1 = outcome["validation_f1_against_teacher"]
    assert set(f1) == {"decisions", "probabilities"}
    assert f1[outcome["student"]["answers"]] == max(f1.values()) == outcome["agreement"]["validation"]["asked"]["f1"]
    assert [table.title for table in distilled.tables()] == [
        "Datasets",
        "Test scores",
        "Bytes sent of the test runs",
        "Student against teacher",
    ]
    assert [row[0] for row in distilled.tables()[1].rows] == ["teacher", "teacher", "student", "student"]
    first, second = distilled.verdict()
    assert f"decide as their teacher on {100 * outcome['agreement']['test']['asked']['accuracy']:.4g} %" in first
    assert f"F1 there is {outcome['student']['scores']['test']['asked']['f1']:.4g}" in second


def test_the_student_is_kept_and_tracked_once(folder: Path, trained: TrainResult, distilled: DistillResult) -> None:
    assert Ensemble.load(folder / "student" / "ensemble.json") == distilled.ensemble
    assert len(distilled.ensemble.trees) == 3
    again = distill(distill_config(folder), folder / "again")
    assert again.reused
    assert again.ensemble == distilled.ensemble
    other = distill(distill_config(folder, "student.leaves=9", "tracking.enabled=false"), folder / "other")
    assert not other.reused
    assert sum(len(tree.leaves) for tree in other.ensemble.trees) <= 9
    tracked = distilled.outcome["tracked"]
    run = MlflowClient(tracked["uri"]).get_run(tracked["run_id"])
    for name, value in (
        ("test/whole/f1", distilled.outcome["student"]["scores"]["test"]["whole"]["f1"]),
        ("teacher_test/whole/f1", distilled.outcome["teacher"]["scores"]["test"]["whole"]["f1"]),
        ("teacher_test_replay/whole/eta", distilled.outcome["teacher"]["replay"]["eta"]),
        ("agreement_test/whole/accuracy", distilled.outcome["agreement"]["test"]["whole"]["accuracy"]),
    ):
        assert run.data.metrics[name] == pytest.approx(value), name
    assert isinstance(trained.model, Network)
    assert run.data.tags["teacher_sha256"] == trained.model.sha256
    given = lineage(distilled.ensemble.sha256, tracked["uri"])  # of the student, and of its teacher
    assert given.runs == (tracked["run_id"],)
    assert {dataset.context for dataset in given.datasets} == set(splits.SIDES)
    config = distill_config(folder)
    registered = load_model("models:/foretail-drop@candidate", config.tracking, Store(config.store_dir))
    assert registered == distilled.ensemble


@pytest.mark.parametrize(("package", "module"), [("torch", "neural"), ("onnx", "network")])
def test_a_missing_package_is_named_at_the_door(package: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("neural", module):
        monkeypatch.delitem(sys.modules, f"foretail.models.drop.{name}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ForetailError, match=r"pip install 'foretail\[nn\]'"):
        typed(composed("train", "predictor=mlp"), TrainConfig)


def test_what_cannot_be_distilled_is_refused(
    folder: Path, trained: TrainResult, distilled: DistillResult, tmp_path: Path
) -> None:
    assert isinstance(trained.model, Network)
    with pytest.raises(ForetailError, match=r"there is no network .*model\.onnx"):
        distill(distill_config(folder, f"model={folder / 'student'}"), tmp_path / "run")
    other = json.dumps([vars(FeatureInput(item.name, "cell_bytes=512", 24)) for item in trained.model.features])

    model = onnx.load_from_string(trained.model.content)
    next(entry for entry in model.metadata_props if entry.key == "foretail.features").value = other
    (tmp_path / "other.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ForetailError, match="another arithmetic"):
        distill(distill_config(folder, f"model={tmp_path / 'other.onnx'}"), tmp_path / "run")
    with pytest.raises(ForetailError, match=r"student\.leaves is 3, fewer than two"):
        distill(distill_config(folder, "student.leaves=3"), tmp_path / "run")
    with pytest.raises(
        ForetailError, match=r"no run of scenario on_off_elephants is among its datasets: .*'datasets=\["
    ):
        distill(distill_config(folder, "scenario=on_off_elephants"), tmp_path / "run")
    with pytest.raises(ForetailError, match="recovered_loss means nothing to distill"):
        distill_config(folder, "operating_point.maximise=recovered_loss")
    with pytest.raises(ForetailError, match="predictor=random_forest"):
        typed(composed("demo", "predictor=mlp"), DemoConfig)
    assert not (tmp_path / "run").exists()
