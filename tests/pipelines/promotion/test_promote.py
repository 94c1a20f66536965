"""Promotion: who passes the gate takes the alias, everybody else leaves the holder where it is."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import skops.io
from mlflow import MlflowClient
from sklearn.ensemble import RandomForestClassifier

from foretail.configs.schema.model_stages import ExportConfig, PromoteConfig, TrainConfig
from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Rules, SwitchGeometry
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.registry import alias_holder, lineage, load_ensemble, move_alias
from foretail.models.mlflow.tracking import RegisteredModel, track
from foretail.pipelines import cli
from foretail.pipelines.errors import GateRefused
from foretail.pipelines.exporting.predictor import export_drop_predictor
from foretail.pipelines.promotion.model_card import markdown
from foretail.pipelines.promotion.promoting import (
    Check,
    HeldOutScores,
    PromoteResult,
    compare,
    compare_with_tuned,
    promote_model,
    refuse_seen,
)
from foretail.pipelines.stages.promote import Aliases, promote
from foretail.pipelines.stages.train import train
from foretail.pipelines.tracking.loading import chosen_in
from foretail.pipelines.training.fitting import TrainResult
from foretail.sim_bridge.open_loop.baselines import Baseline
from tests.composed import SIDES, result_in, stage_settings
from tests.forests import paper_forest
from tests.traces import write_bursts

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
TRAINED_ON = ("run-1", "run-2", "run-3")
HELD_OUT = ("run-5", "run-6", "run-7")
MODELS = {
    "strong": ("features=virtual", "predictor.trees=2", "predictor.depth=3", "tracking.alias=strong"),
    "weak": ("features=paper", "predictor.trees=1", "predictor.depth=1", "tracking.alias=weak"),
}
Trained = dict[str, TrainResult]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("promote")
    for seed in (1, 2, 3, 5, 6, 7):
        write_bursts(folder / f"run-{seed}", seed)
    return folder


def shared(folder: Path, *datasets: str) -> list[str]:
    return [
        f"store_dir={folder / 'store'}",
        f"tracking.uri={uri(folder)}",
        f"datasets=[{','.join(str(folder / name) for name in datasets)}]",
    ]


def uri(folder: Path) -> str:
    return f"sqlite:///{folder / 'mlflow.db'}"


@pytest.fixture(scope="module")
def trained(folder: Path) -> Trained:
    return {
        name: train(stage_settings(TrainConfig, *shared(folder, *TRAINED_ON), *SIDES, *own), folder / name)
        for name, own in MODELS.items()
    }


def promoted(
    folder: Path, name: str, model: str, *overrides: str, datasets: tuple[str, ...] = HELD_OUT
) -> PromoteResult:
    """Promote a model of its own name in the registry, so that tests do not meet."""
    given = (
        "baseline=always_accept",
        "sent_margin_percent=1",
        f"tracking.registered_model={name}",
        f"model={model}",
        *overrides,
    )
    config = stage_settings(PromoteConfig, *shared(folder, *datasets), *given)
    return promote_model(config, folder / "promoted" / name)


def holders(folder: Path, name: str) -> Mapping[str, str]:
    aliases = MlflowClient(uri(folder)).get_registered_model(name).aliases
    return {alias: str(version) for alias, version in aliases.items()}


def held(folder: Path, name: str, alias: str, trained: TrainResult) -> str:
    """Give an alias of a new registered model to a model, without any gate; returns the version."""
    ensemble = trained.ensemble
    return move_alias(name, alias, ensemble, lineage(ensemble.sha256, uri(folder)).runs, None, {}, uri(folder)).version


STRONG, WEAK = "models:/foretail-drop@strong", "models:/foretail-drop@weak"


@pytest.fixture(scope="module")
def first(folder: Path, trained: Trained) -> PromoteResult:
    return promoted(folder, "first", STRONG, "p4=true")


def test_without_a_holder_the_model_that_beats_always_accepting_takes_the_alias(
    folder: Path, trained: Trained, first: PromoteResult
) -> None:
    assert first.promoted is not None
    assert first.failure() is None
    assert holders(folder, "first") == {"champion": first.promoted.version}
    assert load_ensemble("models:/first@champion", uri(folder)) == trained["strong"].ensemble
    document = first.document()
    assert document["gate"]["holder_version"] is None
    assert [run["seed"] for run in document["held_out"]] == [5, 6, 7]
    assert all(run["candidate"]["sent"] > run["candidate"]["accepted"] for run in document["held_out"])
    exported = next(check for check in document["gate"]["checks"] if check["name"] == "c")["figures"]
    assert exported["rows_run"] > sum(run["rows"] for run in document["held_out"])
    assert {path.name for path in (folder / "promoted" / "first").iterdir()} == {
        "c",
        "p4",
        "ensemble.json",
        "model_card.md",
    }
    assert [table.title for table in first.tables()] == ["Held-out runs", "Gate"]


def test_the_gate_is_tracked_with_its_runs(folder: Path, first: PromoteResult) -> None:
    client = MlflowClient(uri(folder))
    run = client.get_run(first.tracked["run_id"])
    assert run.info.status == "FINISHED"
    assert {key: run.data.tags[key] for key in run.data.tags if key.startswith("gate")} == {
        "gate": "passed",
        "gate.asked_f1": "passed",
        "gate.sent": "passed",
        "gate.c": "passed",
        "gate.p4": "passed",
    }
    assert run.inputs is not None
    assert [item.tags[0].value for item in run.inputs.dataset_inputs] == ["held-out"] * 3
    files = {item.path for item in client.list_artifacts(run.info.run_id)}
    assert files >= {"gate.json", "model_card.md", "c", "p4"}
    (check,) = [check for check in first.checks if check.name == "asked_f1"]
    assert check.difference is not None
    assert run.data.metrics["gate/asked_f1/low"] == pytest.approx(check.difference.low)
    version = client.get_model_version("first", first.promoted.version)  # type: ignore[union-attr]
    assert version.tags["model_card"] == f"runs:/{run.info.run_id}/model_card.md"


def test_the_card_holds_what_the_documents_say(folder: Path, trained: Trained, first: PromoteResult) -> None:
    card = (folder / "promoted" / "first" / "model_card.md").read_text()
    outcome = trained["strong"].outcome
    assert trained["strong"].ensemble.sha256 in card
    for item in outcome["datasets"]:
        assert item["content_sha256"] in card
        assert f"{item['rows']:,} | {item['drops']:,}" in card
    for side in outcome["scores"].values():
        for named in side.values():
            assert f"{named['f1']:.4g}" in card
    assert f"{outcome['threshold_probability']:.4g}" in card
    assert f"a recovered loss of {outcome['replay']['recovered_loss']:.4g}" in card
    assert f"it sent {outcome['replay']['sent_percent_of_lqd']:.4g} % of the bytes of LQD" in card
    for run in first.document()["held_out"]:
        assert f"| {run['candidate']['sent']:.4g} | - |" in card
    report = json.loads((folder / "promoted" / "first" / "p4" / "report.json").read_text())
    assert f"| rows | {report['chosen']['rows']:,} |" in card
    library = folder / "promoted" / "first" / "c" / "drop_predictor.so"
    assert f"so | {library.stat().st_size:,} |" in card
    assert "cell\\_bytes=256" in card
    assert "| counted | lowest\\_port | tail |" in card
    assert "| 4 | 60,000 |" in card
    assert "own queues" not in card


def test_names_from_data_stay_text_in_the_card() -> None:
    assert markdown("a|b <script>\n# [x](y) `z` *_~$") == "a\\|b \\<script\\> # \\[x\\](y) \\`z\\` \\*\\_\\~\\$"
    assert [markdown(value) for value in (None, True, 12345, 0.123456, 1e6, "")] == [
        "-",
        "yes",
        "12,345",
        "0.1235",
        "1,000,000",
        "",
    ]


def test_a_tuned_policy_has_to_be_beaten(folder: Path, trained: Trained) -> None:
    """The settings come from the training; on these bursts a threshold is as good as LQD."""
    result = promoted(folder, "tuned", STRONG, "baseline=tuned")
    tuned = next(check for check in result.checks if check.name == "tuned_baseline")
    best = trained["strong"].outcome["replay"]["baselines"][0]
    assert f"against {best['title']}, tuned on the runs that trained the model" in tuned.reason
    assert result.promoted is None or tuned.passed
    pairs = [
        run["candidate"]["sent"] - run["candidate"]["baselines"][0]["sent_percent_of_lqd"]
        for run in result.document()["held_out"]
    ]
    assert tuned.difference is not None
    assert tuned.difference.mean == pytest.approx(sum(pairs) / len(pairs))
    assert f"| {best['title']} |" in (folder / "promoted" / "tuned" / "model_card.md").read_text()


@pytest.mark.nightly
def test_a_worse_model_leaves_the_champion_where_it_is(
    folder: Path, first: PromoteResult, capsys: pytest.CaptureFixture[str]
) -> None:
    before = holders(folder, "first")
    given = (
        "baseline=always_accept",
        f"model={WEAK}",
        "tracking.registered_model=first",
        f"hydra.run.dir={folder / 'refused'}",
    )
    assert cli.main(["promote", *shared(folder, *HELD_OUT), *given]) == cli.EXIT_REFUSED
    said = capsys.readouterr()
    assert len(said.err.splitlines()) == 1
    assert "the gate refused asked_f1" in said.err
    assert "champion stays with version 1" in said.err
    assert "Gate" in said.out
    assert holders(folder, "first") == before
    document = result_in(folder / "refused")
    assert [model["address"] for model in document["used_models"]] == [WEAK]
    assert document["promoted"] is None
    assert {check["name"]: check["passed"] for check in document["gate"]["checks"]} == {
        "asked_f1": False,
        "sent": False,
        "c": True,
    }
    tags = MlflowClient(uri(folder)).get_run(document["tracked"]["run_id"]).data.tags
    assert (tags["gate"], tags["gate.asked_f1"], tags["gate.c"]) == ("refused", "refused", "passed")
    assert {path.name for path in (folder / "refused").iterdir()} == {"digest.json", "result.json", "model_card.md"}


def test_runs_that_the_model_was_given_are_no_held_out_runs(folder: Path, trained: Trained) -> None:
    for seen, name in (("run-1", "bursts-1 train"), ("run-2", "bursts-2 validation")):
        with pytest.raises(ForetailError, match=f"{seen} is not a held-out run: the model was given it as {name}"):
            promoted(folder, "seen", STRONG, datasets=("run-5", seen))
    if not (folder / "other-1").exists():
        write_bursts(folder / "other-1", 1, rules=Rules("counted", "lowest_port", "head"))
    with pytest.raises(
        ForetailError, match="other-1 is not a held-out run: its scenario and seed are those of bursts-1"
    ):
        promoted(folder, "seen", STRONG, datasets=("run-5", "other-1"))
    tested = [Dataset.open(folder / name) for name in ("run-3", "run-5")]  # on run-3 it was only scored
    refuse_seen(tested, lineage(trained["strong"].ensemble.sha256, uri(folder)), "the model")


def test_runs_that_cannot_judge_are_refused(folder: Path, trained: Trained) -> None:
    write_bursts(folder / "calm", 9, switches=(SwitchGeometry(4, 10**7, (10**9,) * 4),))
    with pytest.raises(ForetailError, match=r"calm cannot tell predictors apart.*hold out a congested run"):
        promoted(folder, "calm", STRONG, datasets=("run-5", "calm"))
    with pytest.raises(ForetailError, match="one held-out run gives no interval"):
        promoted(folder, "calm", STRONG, datasets=("run-5",))
    shutil.copytree(folder / "run-5", folder / "copy-5")
    with pytest.raises(ForetailError, match="runs of one scenario and seed"):
        promoted(folder, "calm", STRONG, datasets=("run-5", "copy-5"))
    write_bursts(folder / "cells", 10, cell_bytes=512)
    with pytest.raises(ForetailError, match="train on such features"):
        promoted(folder, "calm", STRONG, datasets=("run-5", "cells"))
    with pytest.raises(Exception, match="calm not found"):
        holders(folder, "calm")


def test_a_model_that_nobody_tracked_is_refused(folder: Path, trained: Trained, tmp_path: Path) -> None:
    paper_forest().ensemble.save(tmp_path / "ensemble.json")
    with pytest.raises(ForetailError, match=r"no run in .* made the ensemble .*train it with tracking"):
        promoted(folder, "unknown", str(tmp_path))
    with track("foretail", {}, uri=uri(folder)) as run:
        run.log_model(paper_forest().ensemble)
    with pytest.raises(ForetailError, match="names no dataset that it was given"):
        promoted(folder, "unknown", str(tmp_path))
    with track("foretail", {}, uri=uri(folder)) as run:
        run.log_document({}, "nothing.json")
    with pytest.raises(ForetailError, match="has no model"):
        promoted(folder, "unknown", f"runs:/{run.run_id}")


@pytest.mark.nightly
def test_exports_that_are_not_what_was_proven_or_do_not_fit_do_not_pass(
    folder: Path, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tampered(config: ExportConfig, run_dir: Path, model: Ensemble) -> Any:
        result = export_drop_predictor(config, run_dir, model)
        library = result.predictor.library
        library.write_bytes(library.read_bytes() + b"\0")
        return result

    monkeypatch.setattr("foretail.pipelines.promotion.promoting.export_drop_predictor", tampered)
    result = promoted(folder, "tampered", STRONG, "p4=true", f"p4_profile={tiny_switch(folder)}")
    assert [check.passed for check in result.checks] == [True, True, False, False]
    assert "is not the file that was proven" in result.checks[2].reason
    assert "too large for the P4 profile" in result.checks[3].reason
    assert isinstance(result.failure(), GateRefused)
    assert alias_holder("tampered", "champion", uri(folder)) is None


def tiny_switch(folder: Path) -> Path:
    profile = folder / "tiny.yaml"
    if not profile.exists():
        source = (ROOT / "export" / "p4" / "profiles" / "tofino.yaml").read_text()
        profile.write_text(source.replace("stages: 12", "stages: 1"))
    return profile


def test_a_promotion_that_another_one_overtakes_leaves_nothing(
    folder: Path, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(target: str, *given: object) -> Check:
        held(folder, "overtaken", "champion", trained["weak"])
        return Check(target, True, "proven")

    monkeypatch.setattr("foretail.pipelines.promotion.promoting.check_export", overtaken)
    with pytest.raises(ForetailError, match=r"overtaken@champion has moved from version none to 1 meanwhile"):
        promoted(folder, "overtaken", STRONG)
    assert list((folder / "promoted" / "overtaken").iterdir()) == []
    assert holders(folder, "overtaken") == {"champion": "1"}


def test_an_alias_of_a_deleted_version_is_named(folder: Path, trained: Trained) -> None:
    held(folder, "deleted", "champion", trained["strong"])
    MlflowClient(uri(folder)).delete_model_version("deleted", "1")
    assert alias_holder("deleted", "champion", uri(folder)) is None
    row = ("deleted", "champion", 1)  # as a registry that does not clean up would have it
    with closing(sqlite3.connect(folder / "mlflow.db")) as database, database:
        database.execute("INSERT INTO registered_model_aliases (name, alias, version) VALUES (?, ?, ?)", row)
    with pytest.raises(ForetailError, match=r"deleted@champion points at version 1, which is deleted"):
        alias_holder("deleted", "champion", uri(folder))


def test_a_model_of_ones_own_is_registered_with_what_trained_it(folder: Path, trained: Trained, tmp_path: Path) -> None:
    rows = Dataset.open(folder / "run-1").frame(["threshold", "shadow_queue", "lqd_drop"])
    columns = ["threshold", "shadow_queue"]
    forest = RandomForestClassifier(4, max_depth=4, random_state=1).fit(rows[columns], rows["lqd_drop"].astype(int))
    skops.io.dump(forest, tmp_path / "rf.skops")
    trained_on = f"trained_on=[{folder / 'run-1'},{folder / 'run-2'}]"
    result = promoted(folder, "own", str(tmp_path / "rf.skops"), trained_on)
    used = {one["content_sha256"] for one in result.gate["lineage"]["datasets"]}
    assert used == {Dataset.open(folder / name).manifest.content_sha256 for name in ("run-1", "run-2")}
    assert {check.name for check in result.checks} == {"asked_f1", "sent", "c"}
    card = (folder / "promoted" / "own" / "model_card.md").read_text()
    assert "packets sent while it decides in the switch" in card
    with pytest.raises(ForetailError, match="run-1 is not a held-out run: the model was given it"):
        promoted(folder, "own", str(tmp_path / "rf.skops"), trained_on, "to=challenger", datasets=("run-1", "run-5"))


def test_aliases_are_shown_and_given_back(folder: Path, trained: Trained) -> None:
    def command(*overrides: str) -> Aliases:
        given = (f"tracking.uri={uri(folder)}", f"store_dir={folder / 'store'}", "tracking.registered_model=back")
        result = promote(stage_settings(PromoteConfig, *given, *overrides), folder / "aliases")
        assert isinstance(result, Aliases)
        return result

    assert command().tables() == []
    assert "has no champion" in command().verdict()[0]
    held(folder, "back", "champion", trained["weak"])
    first = promoted(folder, "back", STRONG)
    assert first.promoted is not None
    assert command().document()["aliases"] == {"champion": "2", "previous_champion": "1"}
    assert command().verdict()[0].startswith("models:/back@champion is version 2")
    with pytest.raises(ForetailError, match="models:/back/1 never passed a gate"):
        command("rollback=true")
    with pytest.raises(ForetailError, match="version 2 already"):
        command("version=2")
    with pytest.raises(ForetailError, match="models:/back/7 is not there"):
        command("version=7")
    MlflowClient(uri(folder)).set_model_version_tag("back", "1", "gate_run_id", "a run")
    assert command("rollback=true").document()["aliases"] == {"champion": "1", "previous_champion": "2"}
    assert command("version=2").verdict() == ["models:/back@champion is version 2 now; before: version 1."]
    with pytest.raises(ForetailError, match="nobody was challenger before"):
        command("rollback=true", "to=challenger")


def scores_of(*values: float) -> list[HeldOutScores]:
    return [HeldOutScores(value, 100 * value, 0.0, None, (), {}) for value in values]


def passes(name: str, mine: list[HeldOutScores], theirs: list[HeldOutScores] | None, margin: float) -> bool:
    check = compare(name, mine, theirs, margin, "champion")
    assert check is not None
    return check.passed


def test_the_whole_interval_has_to_hold() -> None:
    # differences 0.00, -0.01, 0.01: mean 0, half-width t(2) * 0.01 / sqrt(3) = 0.02484
    mine, theirs = scores_of(0.5, 0.6, 0.7), scores_of(0.5, 0.61, 0.69)
    assert passes("asked_f1", mine, theirs, 0.025)
    assert not passes("asked_f1", mine, theirs, 0.0248)
    assert passes("asked_f1", mine, mine, 0.0)  # an equal model is no worse
    assert passes("sent", mine, None, 0.0)
    # mean 0.1, half-width 0.2484: more than always accepting on average, but it may be less
    assert not passes("sent", scores_of(0.0, 0.1, 0.2), None, 90)
    assert not passes("sent", scores_of(0.0, 0.0), None, 90)


def test_a_score_that_one_of_the_two_lacks_is_not_compared() -> None:
    mine = scores_of(0.5, 0.6)
    theirs = [replace(run, asked_f1=None) for run in mine]  # trained for what is sent
    assert compare("asked_f1", mine, theirs, 0.0, "champion") is None
    assert compare("asked_f1", theirs, None, 0.0, "champion") is None
    assert passes("sent", mine, theirs, 0.0)


def test_the_baselines_of_a_training_are_found() -> None:
    replay = {"baselines": [{"policy": "dt", "alpha": 16.0, "title": "DT, alpha 16"}, {"policy": "cs", "alpha": None}]}
    assert chosen_in({"replay": replay}) == (Baseline("dt", 16.0), Baseline("cs"))
    assert chosen_in({"replay": None}) == ()


@pytest.mark.parametrize(("sent", "passed"), [(50.0, True), (90.0, False), (70.0, False)])
def test_the_best_tuned_policy_has_to_be_beaten_by_a_whole_interval(sent: float, passed: bool) -> None:
    best = {"title": "DT, alpha 16", "sent_percent_of_lqd": sent}
    mine = [replace(run, baselines=(best,)) for run in scores_of(0.69, 0.7, 0.72)]
    check = compare_with_tuned(mine, "the runs that trained the model")
    assert check.passed == passed
    assert check.reason.startswith(
        "bytes sent, in % of LQD's, against DT, alpha 16, tuned on the runs that trained the "
    )


KILLED = """
import os, sys
from mlflow import MlflowClient
from foretail.pipelines import cli
set_alias = MlflowClient.set_registered_model_alias
def kill(self, name, alias, version):
    if alias == "champion":
        os._exit(9)
    set_alias(self, name, alias, version)
MlflowClient.set_registered_model_alias = kill
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.nightly
def test_a_killed_promotion_leaves_the_old_champion(folder: Path, trained: Trained, tmp_path: Path) -> None:
    assert held(folder, "killed", "champion", trained["weak"]) == "1"
    given = [
        *shared(folder, *HELD_OUT),
        "baseline=always_accept",
        "sent_margin_percent=1",
        f"model={STRONG}",
        "tracking.registered_model=killed",
    ]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, "promote", *given], cwd=tmp_path, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 9, done.stderr
    assert holders(folder, "killed")["champion"] == "1"
    assert load_ensemble("models:/killed@champion", uri(folder)) == trained["weak"].ensemble
    again = promoted(folder, "killed", STRONG).promoted
    assert again is not None
    assert holders(folder, "killed") == {"champion": again.version, "previous_champion": "1"}


@pytest.mark.nightly
def test_a_promotion_that_was_killed_after_the_alias_moved_ends_as_it_would_have(
    folder: Path, trained: Trained
) -> None:
    held(folder, "halfway", "champion", trained["weak"])
    first = promoted(folder, "halfway", STRONG)
    after = holders(folder, "halfway")
    shutil.rmtree(folder / "promoted" / "halfway")
    again = promoted(folder, "halfway", STRONG)
    assert first.promoted == again.promoted == RegisteredModel("halfway", after["champion"], "champion", "1")
    assert again.gate["held_out"] == first.gate["held_out"]
    assert again.gate["gate"]["holder_version"] == first.gate["gate"]["holder_version"] == "1"
    assert holders(folder, "halfway") == after
    assert (folder / "promoted" / "halfway" / "model_card.md").exists()
    with pytest.raises(ForetailError, match="is this very model already"):
        promoted(folder, "halfway", STRONG, "f1_margin=0.03")


def test_who_scored_against_a_holder_that_moved_meanwhile_is_refused(folder: Path, trained: Trained) -> None:
    held(folder, "race", "champion", trained["strong"])
    runs = lineage(trained["strong"].ensemble.sha256, uri(folder)).runs
    with pytest.raises(ForetailError, match="no longer holds the ensemble"):
        move_alias("race", "champion", trained["weak"].ensemble, runs, "1", {}, uri(folder))
    assert holders(folder, "race") == {"champion": "1"}
