"""The stages on real ns-3 packets, on the tiny scenario."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient

from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.configs.schema.policies import Policy
from foretail.core.errors import ForetailError
from foretail.features.catalog import PAPER_FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.features.rows import splits
from foretail.features.rows.labelled_rows import Rows, read_rows
from foretail.models.drop.network import Network
from foretail.models.ensemble.ensemble import Ensemble
from foretail.pipelines.comparison.figures import write_figures
from foretail.pipelines.comparison.flows import FlowsResult, evaluate_flows, evaluate_policies
from foretail.pipelines.comparison.policy_runs import flows_sha256
from foretail.pipelines.exporting.predictor import export_to_store
from foretail.pipelines.runs.notes import collecting_notes
from foretail.pipelines.runs.store import Store
from foretail.pipelines.stages.train import train
from foretail.pipelines.training.fitting import TrainResult
from foretail.sim_bridge.ns3.driver import DriverRun
from tests.composed import foretail, result_in, stage_settings

pytestmark = pytest.mark.ns3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose store the tests of this module share."""
    return tmp_path_factory.mktemp("stages")


@pytest.fixture(scope="module")
def trained(folder: Path) -> TrainResult:
    return train(train_config(folder), folder / "run")


def train_config(folder: Path, *overrides: str) -> TrainConfig:
    return stage_settings(TrainConfig, "scenario=tiny", "tracking=off", f"store_dir={folder / 'store'}", *overrides)


def test_train_scores_every_side_and_keeps_the_model(folder: Path, trained: TrainResult) -> None:
    again = train(train_config(folder), folder / "run")
    assert again.reused
    assert again.ensemble == trained.ensemble == Ensemble.load(folder / "run" / "ensemble.json")
    assert [item.name for item in trained.ensemble.features] == list(PAPER_FEATURES)
    document = trained.document()
    assert [(item["side"], item["seed"]) for item in document["datasets"]] == [
        ("train", 1),
        ("train", 2),
        ("validation", 3),
        ("test", 4),
    ]
    for side in ("train", "validation", "test"):
        whole, asked = document["scores"][side]["whole"], document["scores"][side]["asked"]
        described = [item for item in document["datasets"] if item["side"] == side]
        assert whole["rows"] == sum(item["rows"] for item in described)
        assert whole["true_positives"] + whole["false_negatives"] == sum(item["drops"] for item in described)
        assert 0 < asked["rows"] < whole["rows"]
    assert document["scores"]["validation"]["asked"]["f1"] > 0.1
    assert document["replay"]["eta"] >= 1
    names = [table.title for table in trained.tables()]
    assert names == ["Datasets", "Bytes sent of the test runs", "Scores"]
    other = train(train_config(folder, "predictor.trees=1", "predictor.depth=2"), folder / "run of another")
    assert (other.reused, len(other.ensemble.trees)) == (False, 1)
    assert all(run.reused for run in other.collected)


def rows_of_test(result: TrainResult) -> Rows:
    (dataset,) = (Dataset.open(Path(item["path"])) for item in result.outcome["datasets"] if item["side"] == "test")
    return read_rows((splits.Selection(dataset),), result.outcome["columns"])


def test_a_split_by_time_has_no_replay(folder: Path) -> None:
    overrides = ["scenario.traffic_ns=20_000_000", "split.validation_fraction=0.2", "split.test_fraction=0.7"]
    result = train(train_config(folder, "split=by_time", "split.gap_ns=100_000", *overrides), folder / "run by time")
    assert result.outcome["replay"] is None
    assert {item["seed"] for item in result.outcome["datasets"]} == {1}
    ends = [(item["start_ns"], item["end_ns"]) for item in result.outcome["datasets"]]
    assert ends[0][1] + 100_000 == ends[1][0]


def evaluated(folder: Path, *overrides: str) -> FlowsResult:
    config = stage_settings(
        EvaluateConfig,
        "scenario=tiny",
        f"model={folder / 'run'}",
        f"store_dir={folder / 'store'}",
        "seeds=[11,12]",
        *overrides,
    )
    return evaluate_flows(config)


@pytest.mark.nightly
def test_evaluate_pairs_policies_by_seed(folder: Path, trained: TrainResult) -> None:
    result = evaluated(folder)
    assert result.policies == ["lqd", "credence", "credence_accept", "followlqd", "dt", "abm", "cs"]
    assert len(result.runs) == 14
    for seed in (11, 12):
        assert len({run.flows_sha256 for run in result.runs if run.seed == seed}) == 1
    assert len({run.flows_sha256 for run in result.runs}) == 2
    for run in result.runs:
        flows = DriverRun.open(run.path).flows()
        assert run.flows["all"].flows == len(flows)
        assert (run.counters["asked"] > 0) == run.policy.startswith("credence")
        assert (run.counters["data_drops.pushed_out"] > 0) == (run.policy == "lqd")
    difference = result.differences("slowdown.incast.p95", "lqd")["dt"]
    by_hand = [
        result.by_seed("dt", "slowdown.incast.p95")[seed] - result.by_seed("lqd", "slowdown.incast.p95")[seed]  # type: ignore[operator]
        for seed in (11, 12)
    ]
    assert difference.mean == pytest.approx(np.mean(by_hand))
    again = evaluated(folder)
    assert all(run.reused for run in again.runs)
    assert [run.metrics() for run in again.runs] == [run.metrics() for run in result.runs]


def test_figures_come_with_their_numbers(folder: Path, trained: TrainResult, tmp_path: Path) -> None:
    result = evaluated(folder, "policy=[lqd,dt]", "baselines=[lqd]")
    files = write_figures(result, tmp_path)
    assert {path.suffix for path in files} == {".pdf", ".svg", ".png", ".parquet"}
    queries = pd.read_parquet(files.pop())
    assert queries.groupby(["policy", "seed"]).size().to_dict() == {
        (run.policy, run.seed): run.queries.count for run in result.runs if run.queries is not None
    }
    assert set(queries["kind"]) == {"query"}
    assert len(files) == 4 * len({path.stem for path in files})
    frame = pd.read_parquet(tmp_path / "figures" / "slowdown_p95.parquet")
    assert frame.set_index(["policy", "seed"])["incast"].to_dict() == {
        (run.policy, run.seed): run.metrics()["slowdown.incast.p95"] for run in result.runs
    }
    assert write_figures(result, tmp_path)[:-1] == files  # replaces the folder of an earlier run
    assert [path.name for path in tmp_path.iterdir()] == ["figures"]


def test_policies_with_different_traffic_are_not_compared(
    folder: Path, trained: TrainResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(100))
    monkeypatch.setattr(
        "foretail.pipelines.comparison.policy_runs.flows_sha256",
        lambda flows, settings: flows_sha256(flows, settings) + str(next(calls)),
    )
    with pytest.raises(ForetailError, match="different flows on seed 11"):
        evaluated(folder, "policy=[lqd,dt]", "baselines=[lqd]")


def test_a_tau_that_the_proof_does_not_cover_is_refused(folder: Path, trained: TrainResult) -> None:
    exported = export_to_store(trained.ensemble, Store(folder / "store"))
    narrow = dataclasses.replace(
        exported,
        certificate=dataclasses.replace(exported.certificate, order=False, taus=[exported.certificate.default_tau]),
    )
    config = train_config(folder)
    policies = {"credence": Policy(name="credence", predictor="library", tau=-1)}
    with pytest.raises(ForetailError, match="does not cover tau -1"):
        evaluate_policies(config, config.scenario, policies, [11], narrow)


def test_what_a_predictor_was_asked_is_counted_and_a_silent_one_is_named(folder: Path, trained: TrainResult) -> None:
    exported = export_to_store(trained.ensemble, Store(folder / "store"))
    beyond = sum(int(tree.require_votes().max()) for tree in Ensemble.load(exported.folder / "ensemble.json").trees)
    policies = {
        "credence": Policy(name="credence", predictor="library"),
        "silent": Policy(name="credence", predictor="library", tau=beyond),
        "credence_accept": Policy(name="credence"),
    }
    config = train_config(folder)
    with collecting_notes() as notes:
        result = evaluate_policies(config, config.scenario, policies, [11], exported)
    assert f"tau = {beyond} of the model lies outside of all its scores, so it never drops" in notes.sentences[0]
    assert any(sentence.startswith("silent asked its predictor") for sentence in notes.sentences)
    assert not any(sentence.startswith("credence") for sentence in notes.sentences)
    runs = {run.policy: run for run in result.runs}
    credence, silent = runs["credence"], runs["silent"]
    assert credence.asked == credence.counters["asked"]
    assert credence.predicted_drops == credence.counters["data_drops.predicted"] > 0
    assert silent.asked is not None
    assert silent.predicted_drops == 0 < silent.asked
    table = result.tables()[0]
    columns = [table.columns.index(name) for name in ("asked", "predicted drops")]
    shown = {row[0]: [row[column] for column in columns] for row in table.rows}
    assert shown["credence"] == [credence.asked, credence.predicted_drops]
    assert shown["credence_accept"] == [None, None]
    assert result.document()["runs"][0]["asked"] == credence.asked


@pytest.mark.nightly
@pytest.mark.slow
def test_the_demo_tells_the_story_in_one_screen_and_reuses_it(tmp_path: Path) -> None:
    def demo(*overrides: str) -> tuple[dict[str, Any], list[str]]:
        done = foretail(tmp_path, "demo", "size=small", *overrides)
        assert done.returncode == 0, done.stderr
        document = result_in(tmp_path / "outputs" / "demo")
        return document, (done.stderr + done.stdout).rstrip().splitlines()

    (first, printed), (second, _) = demo(), demo("referee=ns3")
    assert len(printed) <= 45
    assert printed[-1] == f"page: {tmp_path / 'outputs' / 'demo' / 'report.html'}"
    page = (tmp_path / "outputs" / "demo" / "report.html").read_text(encoding="utf-8")
    assert "Bursts in slots" in page
    assert "control DropPredictor" in page
    trees, forest, of_tcp = "trees for packets sent", "Credence with a forest", "forest under TCP"
    for document in (first, second):
        by_policy = {row["who"]: row for row in document["slots"]}
        assert set(by_policy) > {trees, forest, "LQD", "always accept", "Harmonic"}
        assert by_policy["LQD"]["sent_percent_of_lqd"] == pytest.approx(100)
        assert all(row["runs"] == 2 for row in by_policy.values())
        for name in (trees, forest, of_tcp):
            exported = Ensemble.load(Path(document["export"][name]["folder"]) / "ensemble.json")
            assert document["export"][name]["certificate"]["ir_sha256"] == exported.sha256
        saved = Ensemble.load(tmp_path / "outputs" / "demo" / "ensemble.json")
        assert {document["export"][trees]["certificate"]["model_sha256"], document["export"]["p4"]["model_sha256"]} == {
            saved.sha256
        }
        assert document["train"][trees]["tracked"]["registered"]["name"] == "foretail-drop"
        assert document["tcp"]["seeds"] == [101, 102]
        assert document["tuned_threshold"] in document["tcp"]["means"]["cost"]
        assert {bool(run["asked"]) for run in document["tcp"]["runs"] if run["policy"] == "credence"} == {True}
    assert not first["train"][trees]["reused"]
    assert second["train"][trees]["reused"]
    assert all(run["reused"] for run in second["tcp"]["runs"])
    assert second["tcp"]["means"] == first["tcp"]["means"]
    assert second["slots"] == first["slots"]
    assert first["in_ns3"] is None
    (same,) = (run for run in second["tcp"]["runs"] if (run["policy"], run["seed"]) == ("lqd", 101))
    assert second["in_ns3"]["flows_sha256"] == same["flows_sha256"]


MLP = ("predictor=mlp", "predictor.width=16", "predictor.steps=300")


def network_config(folder: Path) -> TrainConfig:
    own = [f"store_dir={folder / 'store'}", f"tracking.uri=sqlite:///{folder / 'mlflow.db'}"]
    return stage_settings(TrainConfig, "scenario=tiny", *own, *MLP)


@pytest.fixture(scope="module")
def network_run(folder: Path) -> TrainResult:
    return train(network_config(folder), folder / "network")


def test_a_network_is_trained_scored_and_tracked(folder: Path, network_run: TrainResult) -> None:
    network = Network.load(folder / "network" / "model.onnx")
    assert sorted(path.name for path in (folder / "network").iterdir()) == ["model.onnx"]
    document = network_run.document()
    assert document["network_sha256"] == network.sha256
    assert "ensemble_sha256" not in document
    assert document["threshold_probability"] == network.threshold
    assert document["scores"]["validation"]["asked"]["f1"] > 0.1
    test = rows_of_test(network_run)
    whole = document["scores"]["test"]["whole"]
    assert whole["true_positives"] == int((network.exceeds(test.x) & test.lqd_drop).sum())
    with pytest.raises(ForetailError, match="choose a predictor of trees"):
        _ = network_run.ensemble
    client = MlflowClient(document["tracked"]["uri"])
    run = client.get_run(document["tracked"]["run_id"])
    assert run.data.metrics["test/whole/f1"] == pytest.approx(whole["f1"])
    assert run.data.params["predictor.name"] == "mlp"
    assert document["tracked"]["registered"]["alias"] == "candidate"
    assert "model.onnx" in {item.path for item in client.list_artifacts(run.info.run_id)}
    again = train(network_config(folder), folder / "network")
    assert again.reused
    assert isinstance(again.model, Network)
    assert again.model.content == network.content


def test_a_missing_package_is_named_at_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "foretail.models.drop.neural", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ForetailError, match=r"pip install '\.\[nn\]'"):
        stage_settings(TrainConfig, "predictor=mlp")
