"""The stages on real ns-3 packets, on the tiny scenario."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.configs.schema.policies import Policy
from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURE_GROUPS, PAPER_FEATURES
from foretail.models.ensemble.ensemble import Ensemble
from foretail.pipelines.comparison.figures import write_figures
from foretail.pipelines.comparison.flows import FlowsResult, evaluate_flows, evaluate_policies
from foretail.pipelines.comparison.policy_runs import flows_sha256
from foretail.pipelines.exporting.predictor import export_to_store
from foretail.pipelines.runs.notes import collecting_notes
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.train import train
from foretail.pipelines.training.outcome import TrainResult
from foretail.sim_bridge.ns3.driver import DriverRun
from tests.composed import composed
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


@pytest.mark.slow
def test_the_demo_runs_the_whole_path_and_reuses_it(tmp_path: Path) -> None:
    def demo() -> dict[str, Any]:
        done = foretail(tmp_path, "demo", "size=small", "contended_scenario.traffic_ns=500_000")
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads((tmp_path / "outputs" / "demo" / "result.json").read_text())
        for table in ("Datasets", "Scores", "Policies", "Difference to lqd", "C predictor", "Steps"):
            assert table in done.stdout
        return document

    first, second = demo(), demo()
    for document in (first, second):
        assert document["evaluate"]["seeds"] == [101, 102]
        assert all(len(item["content_sha256"]) == 64 for item in document["train"]["datasets"])
        assert document["train"]["tracked"]["registered"]["name"] == "foretail-drop"
        exported = Ensemble.load(Path(document["export"]["folder"]) / "ensemble.json")
        assert document["export"]["certificate"]["ir_sha256"] == exported.sha256
        trained = Ensemble.load(tmp_path / "outputs" / "demo" / "ensemble.json")
        assert document["export"]["certificate"]["model_sha256"] == trained.sha256
        assert set(document["evaluate"]["means"]["slowdown.incast.p95"]) == {
            "lqd",
            "credence",
            "credence_accept",
            "dt_tuned",
            "cs",
        }
        ruled = document["evaluate_rule"]
        assert set(ruled["means"]["cost"]) == {"cs", "dt_tuned", "lqd", "learned"}
        of_rule = Ensemble.load(Path(document["export_rule"]["folder"]) / "ensemble.json")
        assert of_rule.origin == {"kind": "sharing_rule"}
        assert document["export_rule"]["certificate"]["ir_sha256"] == of_rule.sha256
        for run in ruled["runs"]:  # the others ran in the half before, on the same flows
            assert bool(run["asked"]) == (run["policy"] == "learned")
            assert run["reused"] or run["policy"] == "learned"
        sending = document["train_sending"]
        assert sending["datasets"] == document["train"]["datasets"]
        assert [item["name"] for item in sending["features"]] == list(FEATURE_GROUPS["threshold"])
        assert [rule["trials"] for rule in sending["sending"]["rules"]] == [96]
        in_ns3 = document["in_ns3"]
        (same,) = (run for run in document["evaluate"]["runs"] if (run["policy"], run["seed"]) == ("lqd", 101))
        assert (in_ns3["policy"], in_ns3["seed"]) == ("lqd", 101)
        assert in_ns3["flows_sha256"] == same["flows_sha256"]
        for where in ("evaluate_sending", "evaluate_sending_contended"):
            assert set(document[where]["means"]["cost"]) == {"cs", "dt_tuned", "lqd", "learned"}
    assert not first["train"]["reused"]
    assert second["train"]["reused"]
    assert all(run["reused"] for run in second["evaluate"]["runs"])
    assert second["evaluate"]["means"] == first["evaluate"]["means"]
    assert second["evaluate_contended"]["means"] == first["evaluate_contended"]["means"]
    assert second["evaluate_rule"]["means"] == first["evaluate_rule"]["means"]
    assert sum(second["step_seconds"].values()) < 60
