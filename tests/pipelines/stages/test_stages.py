"""The stages on real ns-3 packets, on the tiny scenario."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.packet_stages import CollectConfig, EvaluateConfig
from foretail.configs.schema.policies import Policy
from foretail.core.errors import ForetailError
from foretail.export.c.target import C
from foretail.export.target import export
from foretail.features.catalog import PAPER_FEATURES
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.pipelines.comparison.figures import write_figures
from foretail.pipelines.comparison.flows import FlowsResult, evaluate_flows, evaluate_policies
from foretail.pipelines.comparison.policy_runs import flows_sha256
from foretail.pipelines.exporting.predictor import export_to_store
from foretail.pipelines.runs.notes import collecting_notes
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.collect import collect
from foretail.pipelines.stages.train import train
from foretail.pipelines.training.outcome import TrainResult
from foretail.sim_bridge.ns3.driver import DriverRun
from tests.composed import composed
from tests.forests import paper_forest
from tests.pipelines.command.test_cli import foretail

pytestmark = pytest.mark.ns3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose store the tests of this module share."""
    return tmp_path_factory.mktemp("stages")


@pytest.fixture(scope="module")
def trained(folder: Path) -> TrainResult:
    return train(train_config(folder), folder / "run")


def train_config(folder: Path, *overrides: str) -> TrainConfig:
    return typed(
        composed("train", "scenario=tiny", "tracking=off", f"store_dir={folder / 'store'}", *overrides),
        TrainConfig,
    )


@pytest.mark.nightly
def test_collect_makes_labelled_rows_once(folder: Path) -> None:
    config = typed(composed("collect", "scenario=tiny", f"store_dir={folder / 'store'}"), CollectConfig)
    (first,) = collect(config, folder).runs
    (again,) = collect(config, folder).runs
    assert again.reused
    assert again.path == first.path
    assert first.drops > 100
    assert first.rows > 10_000
    assert first.counters["data_drops.pushed_out"] > 0
    assert first.counters["threshold_deficits"] == 0  # under LQD itself the exact virtual LQD never fires
    elsewhere = dataclasses.replace(config, store_dir=str(folder / "another store"))
    (fresh,) = collect(elsewhere, folder).runs
    assert not fresh.reused
    assert fresh.content_sha256 == first.content_sha256  # same seed twice: identical content


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


def test_another_predictor_is_another_model_on_the_same_datasets(folder: Path, trained: TrainResult) -> None:
    other = train(train_config(folder, "predictor.trees=1", "predictor.depth=2"), folder / "run of another")
    assert not other.reused
    assert all(run.reused for run in other.collected)
    assert len(other.ensemble.trees) == 1


def test_threads_do_not_make_another_model(folder: Path, trained: TrainResult) -> None:
    assert train(train_config(folder, "trainer.jobs=2"), folder / "run").reused


def test_a_split_by_time_has_no_replay(folder: Path) -> None:
    overrides = ["scenario.traffic_ns=20_000_000", "split.validation_fraction=0.2", "split.test_fraction=0.7"]
    result = train(train_config(folder, "split=by_time", "split.gap_ns=100_000", *overrides), folder / "run by time")
    assert result.outcome["replay"] is None
    assert {item["seed"] for item in result.outcome["datasets"]} == {1}
    ends = [(item["start_ns"], item["end_ns"]) for item in result.outcome["datasets"]]
    assert ends[0][1] + 100_000 == ends[1][0]


def evaluated(folder: Path, *overrides: str) -> FlowsResult:
    config = typed(
        composed(
            "evaluate",
            "scenario=tiny",
            f"model={folder / 'run'}",
            f"store_dir={folder / 'store'}",
            "seeds=[11,12]",
            *overrides,
        ),
        EvaluateConfig,
    )
    return evaluate_flows(config)


@pytest.mark.nightly
@pytest.mark.full
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
@pytest.mark.full
def test_a_predictor_of_other_features_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    model = paper_forest().ensemble
    inputs = (FeatureInput("queue", "cell_bytes=512", 24), *model.features[1:])
    exported = export(dataclasses.replace(model, features=inputs), C(), tmp_path / "c")
    done = foretail(
        tmp_path,
        "evaluate",
        "scenario=tiny",
        "policy=[credence]",
        "baselines=[]",
        f"policy.credence.library={exported.file('.so')}",
    )
    assert done.returncode == 2
    announced, refused = done.stderr.splitlines()
    assert announced.startswith("1 simulation of up to ")
    assert "cell_bytes=512" in refused
    assert [path for path in (tmp_path / "outputs").rglob("*") if path.is_file()] == []


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.slow
def test_a_sweep_of_collect_is_a_dataset_to_train_on(tmp_path: Path) -> None:
    conditions = ("scenario.transport.name=dctcp,cubic", "scenario.traffic_ns=2_000_000")
    collected = foretail(tmp_path, "collect", "--multirun", "scenario=tiny", *conditions, "seeds=[1,2,3]")
    assert collected.returncode == 0, collected.stderr
    (sweep,) = (tmp_path / "outputs" / "collect").glob("*/sweep-*")

    def trained(*split: str) -> dict[str, Any]:
        before = set((tmp_path / "outputs").rglob("train/*/*/result.json"))
        done = foretail(tmp_path, "train", f"datasets=[{sweep}]", "tracking=off", *split)
        assert done.returncode == 0, done.stderr
        (result,) = set((tmp_path / "outputs").rglob("train/*/*/result.json")) - before
        document: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return document

    for document in (trained("split.train=[1]", "split.validation=[2]", "split.test=[3]"), trained("split=drawn")):
        runs = document["datasets"]
        assert len({run["content_sha256"] for run in runs}) == len(runs) == 6
        sides = {seed: {run["side"] for run in runs if run["seed"] == seed} for seed in (1, 2, 3)}
        assert sorted(side for (side,) in sides.values()) == ["test", "train", "validation"]
        assert document["scores"]["test"]["whole"]["f1"] > 0.3


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.slow
def test_every_run_of_a_sweep_lands_in_mlflow(tmp_path: Path, folder: Path, trained: TrainResult) -> None:
    from mlflow import MlflowClient

    command = [
        *(sys.executable, "-m", "foretail.pipelines.cli", "train", "--multirun", "scenario=tiny"),
        *("predictor.trees=1,8", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"),
        *(f"store_dir={folder / 'store'}", f"tracking.uri=sqlite:///{tmp_path / 'mlflow.db'}"),
    ]
    for sweep in range(2):  # the second time everything is there already
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
        experiment = client.get_experiment_by_name("foretail")
        assert experiment is not None
        experiment_id = experiment.experiment_id
        around, *inside = sorted(client.search_runs([experiment_id]), key=lambda run: run.info.start_time)[3 * sweep :]
        assert around.info.run_name == "train sweep predictor.trees=1,8"
        runs = [run for run in inside if run.data.tags["mlflow.parentRunId"] == around.info.run_id]
        assert sorted(run.data.params["predictor.trees"] for run in runs) == ["1", "8"]
        (version,) = client.search_model_versions("name='foretail-drop'")  # only the better one
        sent = "validation_replay/whole/sent_percent_of_lqd"
        best = max(runs, key=lambda run: run.data.metrics[sent])
        assert f"{best.data.metrics[sent]:.4g}" in str(version.description)
        assert "models:/foretail-drop@candidate is version 1 now" + (", as before" if sweep else "") in done.stdout
        assert done.stdout.count("yes") == 2 * sweep
    for run in runs:
        assert run.info.status == "FINISHED"
        assert run.data.metrics["validation/asked/f1"] > 0
        assert run.inputs is not None
        assert {item.dataset.digest for item in run.inputs.dataset_inputs} == {
            item["content_sha256"][:36] for item in trained.outcome["datasets"]
        }

    def made() -> list[str]:
        found = client.search_runs([experiment_id])
        inside = [run for run in found if "mlflow.parentRunId" in run.data.tags]
        return [run.info.run_id for run in inside if "reused_run_id" not in run.data.tags]

    client.delete_run(made()[0])  # a run that is gone is trained and logged again
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=300, check=False).returncode == 0
    assert len(made()) == 2
    results = sorted((tmp_path / "outputs" / "train").rglob("result.json"))
    assert len(results) == 6


@pytest.mark.slow
def test_the_demo_tells_the_story_in_one_screen_and_reuses_it(tmp_path: Path) -> None:
    def demo(*overrides: str) -> tuple[dict[str, Any], list[str]]:
        done = foretail(tmp_path, "demo", "size=small", *overrides)
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads((tmp_path / "outputs" / "demo" / "result.json").read_text())
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
