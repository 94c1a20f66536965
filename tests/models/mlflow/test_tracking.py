"""Tracking in MLflow on a temporary SQLite file, which comes into being whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretail.core.errors import ForetailError
from foretail.core.reading import Reading, telling
from foretail.models.ensemble import model_files
from foretail.models.ensemble.frontends import from_sklearn, from_xgboost
from foretail.models.mlflow.registry import (
    alias_holder,
    lineage,
    load_ensemble,
    register_model,
    run_document,
    versions_of,
)
from foretail.models.mlflow.store import MOST_PATH_BYTES, SQLITE, answered, create_store, sqlite_file, store_exists
from foretail.models.mlflow.tracking import RegisteredModel, TrackedRun, nest, run_exists, track
from foretail.models.scoring.metrics import scores
from foretail.testing import synthetic_arrivals
from tests.forests import PAPER_INPUTS, Trained, paper_forest
from tests.torture.faults import free_port, mlflow_server

pytestmark = pytest.mark.slow
Registered = tuple[TrackedRun, RegisteredModel | None]
Foreign = tuple[str, dict[str, Any]]
CONFIG = {"predictor": {"trees": 4, "class_weight": None}, "features": {"names": ["queue"]}, "note": "x" * 7000}


@pytest.fixture(scope="module")
def trained() -> Trained:
    return paper_forest()


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('tracking')}/deep/mlflow.db"


@pytest.fixture(scope="module")
def run(uri: str, trained: Trained) -> Registered:
    x, y = synthetic_arrivals(rows=5000, seed=2)
    probability = trained.ensemble.probability(x)
    predicted = trained.ensemble.exceeds(x)
    with track("drops", CONFIG, uri=uri, run_name="first", tags={"sweep_id": "s1"}) as tracked:
        tracked.log_dataset("tiny-1", "ab" * 32, "12" * 32, "store/abc", rows=20_000, drops=180, context="train")
        tracked.log_dataset("tiny-1", "ab" * 32, "12" * 32, "store/abc", rows=5000, drops=int(y.sum()), context="test")
        found = scores(y, predicted, ports=10, score=probability, asked=x[:, 2] > 2048)
        found["asked"]["closed_form_eta"] = None
        tracked.log_scores("test", found)
        tracked.log_figures("test", "whole", y, predicted, probability)
        tracked.log_model(trained.ensemble)
    return tracked, register_model("foretail-drop", "candidate", tracked.run_id, uri, "the first", {"kind": "forest"})


def client(uri: str) -> Any:
    import mlflow

    return mlflow.MlflowClient(uri)


@pytest.fixture
def stored(run: Registered, uri: str) -> Any:
    return client(uri).get_run(run[0].run_id)


def _artifact(stored: Any, path: str) -> Path:
    return Path(stored.info.artifact_uri.removeprefix("file://")) / path


def test_a_run_holds_config_scores_and_status(stored: Any) -> None:
    assert stored.info.status == "FINISHED"
    assert stored.info.run_name == "first"
    assert stored.data.tags["sweep_id"] == "s1"
    assert stored.data.params["predictor.trees"] == "4"
    assert stored.data.params["predictor.class_weight"] == "null"
    assert stored.data.params["features.names"] == '["queue"]'
    assert json.loads(_artifact(stored, "config.json").read_text()) == CONFIG
    assert 0 < stored.data.metrics["test/whole/f1"] <= 1
    assert "test/asked/closed_form_eta" not in stored.data.metrics
    assert json.loads(_artifact(stored, "scores/test.json").read_text())["asked"]["closed_form_eta"] is None


def test_a_run_names_its_datasets_with_their_digests(stored: Any) -> None:
    inputs = {i.tags[0].value: i.dataset for i in stored.inputs.dataset_inputs}
    assert set(inputs) == {"train", "test"}  # MLflow keeps one input per name and digest
    for dataset in inputs.values():
        assert dataset.digest == ("ab" * 32)[:36]
        assert json.loads(dataset.source) == {"uri": "store/abc", "sha256": "ab" * 32, "traffic_sha256": "12" * 32}
    assert json.loads(inputs["train"].profile) == {"rows": 20_000, "drops": 180}
    assert json.loads(inputs["test"].profile)["rows"] == 5000


def test_the_ensemble_is_found_through_the_registry(run: Registered, stored: Any, uri: str, trained: Trained) -> None:
    assert run[1] == RegisteredModel("foretail-drop", "1", "candidate")
    assert stored.data.tags["ensemble_sha256"] == trained.ensemble.sha256
    for address in ("models:/foretail-drop@candidate", "models:/foretail-drop/1", "models:/foretail-drop@latest"):
        assert load_ensemble(address, uri) == trained.ensemble


def test_a_model_whose_run_is_deleted_is_told(run: Registered, uri: str, trained: Trained) -> None:
    readings: list[Reading] = []
    client(uri).delete_run(run[0].run_id)
    with telling(readings.append):
        assert load_ensemble("models:/foretail-drop/1", uri) == trained.ensemble
        client(uri).restore_run(run[0].run_id)
        load_ensemble("models:/foretail-drop/1", uri)
    (reading,) = readings
    assert "models:/foretail-drop/1, it is taken for granted that it counts although its run is" in reading.sentence()
    assert f"deleted in MLflow, until mlflow gc removes its files (mlflow runs restore --run-id {run[0].run_id}" in (
        reading.sentence()
    )


def test_mlflow_loads_the_model_without_a_pickle(run: Registered, uri: str, trained: Trained) -> None:
    import mlflow

    root = Path(uri.removeprefix("sqlite:///")).parent / "mlartifacts"
    kinds = {path.suffix for path in root.rglob("*") if path.is_file()}
    assert not kinds & {".pkl", ".pickle", ".joblib"}
    with track("drops", {}, uri=uri):
        loaded = mlflow.pyfunc.load_model("models:/foretail-drop@candidate")
    columns = [item.name for item in PAPER_INPUTS]
    rows = pd.DataFrame(trained.rows, columns=columns)[columns[::-1]]
    assert np.array_equal(loaded.predict(rows), trained.ensemble.exceeds(trained.rows))


def test_mlflow_refuses_a_model_that_was_altered(run: Registered, uri: str, trained: Trained) -> None:
    import mlflow

    assert run[0].model_id is not None
    root = Path(uri.removeprefix("sqlite:///")).parent / "mlartifacts" / "models" / run[0].model_id
    (file,) = root.rglob("ensemble.json")
    text = file.read_text()
    other = replace(trained.ensemble, threshold=trained.ensemble.threshold + 1)
    file.write_text(other.to_json())
    try:
        with (
            track("drops", {}, uri=uri),
            pytest.raises(ForetailError, match=r"ensemble\.json was altered or damaged since its run: log the model"),
        ):
            mlflow.pyfunc.load_model("models:/foretail-drop@candidate")
    finally:
        file.write_text(text)


def test_the_alias_moves_to_a_new_version(
    run: object, uri: str, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = paper_forest(trees=1, depth=2)
    runs = []
    for _ in range(2):
        with track("drops", {}, uri=uri) as tracked:
            tracked.log_model(other.ensemble)
        runs.append(tracked.run_id)
    first, again, moved, back = (
        register_model("foretail-moving", "best", run, uri) for run in (runs[0], runs[0], runs[1], runs[0])
    )
    with pytest.raises(ForetailError, match="refuses to register"):
        register_model("foretail-moving", "not an alias", runs[0], uri)
    with pytest.raises(ForetailError, match="saved its model"), track("drops", {}, uri=uri) as empty:
        register_model("foretail-moving", "best", empty.run_id, uri)
    assert (first, again, moved, back) == (
        RegisteredModel("foretail-moving", "1", "best"),
        RegisteredModel("foretail-moving", "1", "best", "1"),
        RegisteredModel("foretail-moving", "2", "best", "1"),
        RegisteredModel("foretail-moving", "1", "best", "2"),
    )
    assert first.sentence() == "models:/foretail-moving@best is version 1 now"
    assert again.sentence() == "models:/foretail-moving@best is version 1 now, as before"
    assert moved.sentence() == "models:/foretail-moving@best is version 2 now; before: version 1"
    assert [(one.version, one.aliases) for one in versions_of(runs, uri)] == [("2", ()), ("1", ("best",))]
    by_sql = versions_of(runs, uri)
    with monkeypatch.context() as patched:
        patched.setattr("foretail.models.mlflow.registry.answered", lambda *question: None)
        assert versions_of(runs, uri) == by_sql, "as MLflow itself answers"
    assert load_ensemble("models:/foretail-moving@best", uri) == other.ensemble
    assert load_ensemble("models:/foretail-drop@candidate", uri) == trained.ensemble


@pytest.mark.parametrize(("error", "status"), [(RuntimeError("disk\nfull"), "FAILED"), (KeyboardInterrupt(), "KILLED")])
def test_a_run_that_ends_early_says_so(error: BaseException, status: str, uri: str) -> None:
    import mlflow

    with pytest.raises(type(error)), track("drops", {"a": 1}, uri=uri) as tracked:
        raise error
    stored = mlflow.MlflowClient(uri).get_run(tracked.run_id)
    assert stored.info.status == status
    assert stored.data.tags.get("error") == ("RuntimeError: disk" if status == "FAILED" else None)
    assert mlflow.active_run() is None


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("models:/foretail-drop", "not a model address"),
        ("runs:/", "not a model address"),
        ("runs:/abc", "has no model"),
        ("models:/foretail-drop@nobody", "has no model"),
        ("models:/nothing/1", "has no model"),
        ("models:/m-1234", "has no model"),
    ],
)
def test_addresses_without_a_model_are_refused(address: str, says: str, run: object, uri: str) -> None:
    with pytest.raises(ForetailError, match=says):
        load_ensemble(address, uri)


@pytest.fixture(scope="module")
def foreign(uri: str) -> Foreign:
    """A run of somebody else with models of three flavors and one of none: its id, and name -> classifier."""
    import mlflow
    import mlflow.xgboost
    import xgboost
    from sklearn.ensemble import RandomForestClassifier

    x, y = synthetic_arrivals(rows=2000, seed=3)
    boosted = xgboost.XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1).fit(x, y)
    forest = RandomForestClassifier(2, max_depth=2, random_state=1).fit(x, y)
    trusted = ["sklearn.tree._tree.Tree"]
    with warnings.catch_warnings(), track("drops", {}, uri=uri) as tracked:
        warnings.simplefilter("ignore")  # MLflow's own, on what it cannot infer
        mlflow.xgboost.log_model(boosted, name="boosted", pip_requirements=["xgboost"])
        for name, form in (("forest", "skops"), ("pickled", "cloudpickle")):
            mlflow.sklearn.log_model(
                forest,
                name=name,
                serialization_format=form,
                skops_trusted_types=trusted if form == "skops" else None,
                pip_requirements=["scikit-learn"],
            )
        mlflow.log_text("flavors: {python_function: {loader_module: x}}\n", "none/MLmodel")
        mlflow.log_text("flavors: {xgboost: {data: ../../secret}}\n", "outside/MLmodel")
        mlflow.log_text("not a model", "nothing/file.txt")
    return tracked.run_id, {"boosted": boosted, "forest": forest, "pickled": forest}


@pytest.mark.parametrize("name", ["boosted", "forest", "pickled"])
def test_models_of_others_are_read_from_their_flavor(
    name: str, foreign: Foreign, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "_read_apart", model_files.read_foreign)  # saves seconds
    run_id, models = foreign
    read = from_xgboost if name == "boosted" else from_sklearn
    expected = read(models[name], PAPER_INPUTS)
    for address in (f"runs:/{run_id}/{name}", _logged_model(uri, run_id, name)):
        loaded = load_ensemble(address, uri, features=PAPER_INPUTS, allow_pickle=name == "pickled")
        assert loaded.trees[0].value.tolist() == expected.trees[0].value.tolist()
        assert replace(loaded, origin=expected.origin) == expected


def _logged_model(uri: str, run_id: str, name: str) -> str:
    experiment = client(uri).get_run(run_id).info.experiment_id
    found = client(uri).search_logged_models(
        [experiment], filter_string=f"name = '{name}' AND source_run_id = '{run_id}'"
    )
    return f"models:/{found[0].model_id}"


@pytest.mark.parametrize(
    ("path", "features", "says"),
    [
        ("boosted", None, "does not say the range"),
        ("pickled", PAPER_INPUTS, "is a pickle"),
        ("none", PAPER_INPUTS, "has flavors python_function, but"),
        ("outside", PAPER_INPUTS, "points outside its own folder"),
        ("nothing", PAPER_INPUTS, "is not an MLflow model"),
        ("nothing/file.txt", PAPER_INPUTS, "not a model file"),
        ("absent", PAPER_INPUTS, "has no model"),
    ],
)
def test_models_of_others_that_cannot_be_read_are_refused(
    path: str, features: Any, says: str, foreign: Foreign, uri: str
) -> None:
    address = f"runs:/{foreign[0]}/{path}"
    with pytest.raises(ForetailError, match=says) as caught:
        load_ensemble(address, uri, features=features)
    assert address in str(caught.value)


def test_the_run_of_an_ensemble_stands_for_it(run: Registered, uri: str, trained: Trained) -> None:
    run_id = run[0].run_id
    for address in (f"runs:/{run_id}", f"runs:/{run_id}/model", f"runs:/{run_id}/ensemble.json"):
        assert load_ensemble(address, uri) == trained.ensemble
    assert load_ensemble(f"runs:/{run_id}", uri, features=PAPER_INPUTS) == trained.ensemble
    with pytest.raises(ForetailError, match="its own features"):
        load_ensemble(f"runs:/{run_id}", uri, features=PAPER_INPUTS[::-1])


def test_a_store_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"this is not a database, " * 100)
    with (
        pytest.raises(ForetailError, match=r"MLflow cannot use sqlite.*tracking\.uri"),
        track("drops", {}, uri=f"sqlite:///{tmp_path}/mlflow.db"),
    ):
        pass


def _inside(uri: str, parent: TrackedRun) -> list[Any]:
    inside = f"tags.`mlflow.parentRunId` = '{parent.run_id}'"
    return list(client(uri).search_runs([parent.experiment_id], inside))


def test_runs_of_a_study_are_nested_and_those_from_before_are_shown_once(run: Registered, uri: str) -> None:
    with track("studies", {}, uri=uri, run_name="study") as study:
        with track("studies", {"a": 1}, uri=uri, run_name="point", parent_run_id=study.run_id) as point:
            assert point.run_id != study.run_id
        for _ in range(2):
            nest(point.run_id, study.run_id, uri)
            nest(run[0].run_id, study.run_id, uri)
    copies = {found.info.run_name: found for found in _inside(uri, study)}
    assert set(copies) == {"point", "first"}
    assert len(_inside(uri, study)) == 2
    original = client(uri).get_run(run[0].run_id)
    copy = copies["first"]
    assert copy.data.tags["reused_run_id"] == run[0].run_id
    assert (copy.data.params, copy.data.metrics) == (original.data.params, original.data.metrics)
    assert {i.tags[0].value for i in copy.inputs.dataset_inputs} == {"train", "test"}
    assert [copies["point"].info.status, copy.info.status] == ["FINISHED", "FINISHED"]


def test_a_parent_that_does_not_exist_is_refused(uri: str) -> None:
    import mlflow

    with (
        pytest.raises(ForetailError, match=r"no parent run 0{32}.*tracking\.parent_run_id"),
        track("drops", {}, uri=uri, parent_run_id="0" * 32),
    ):
        pass
    assert mlflow.active_run() is None


def test_a_store_of_somebody_else_stays(tmp_path: Path) -> None:
    other = tmp_path / "books.db"
    with contextlib.closing(sqlite3.connect(other)) as database, database:
        database.execute("CREATE TABLE books (title TEXT)")
    assert store_exists(f"{SQLITE}{other}")
    create_store(f"{SQLITE}{other}")
    assert {path.name for path in tmp_path.iterdir()} == {"books.db"}


def test_reading_makes_no_store(tmp_path: Path) -> None:
    missing = f"{SQLITE}{tmp_path}/deep/mlflow.db"
    assert alias_holder("m", "champion", missing) is None
    assert not run_exists("0" * 32, missing)
    for read in (
        lambda: load_ensemble("models:/m@champion", missing),
        lambda: lineage("0" * 64, missing),
        lambda: run_document("0" * 32, "config.json", missing),
    ):
        with pytest.raises(ForetailError, match=r"not there|no tracking store"):
            read()
    assert list(tmp_path.iterdir()) == []


def test_an_alias_that_is_not_there_is_told_without_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"{SQLITE}{tmp_path}/mlflow.db"
    create_store(uri)
    monkeypatch.setattr("foretail.models.mlflow.registry.connected", lambda uri: pytest.fail("MLflow was asked"))
    with pytest.raises(ForetailError, match=r"^models:/m@nobody has no model in sqlite.* \(there is no such alias\): "):
        load_ensemble("models:/m@nobody", uri)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_server_that_goes_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outputs").mkdir()
    create_store(f"{SQLITE}{tmp_path}/outputs/mlflow.db")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    port = free_port()
    address = f"http://127.0.0.1:{port}"

    def run_meanwhile() -> None:
        with track("drops", {}, uri=address) as run:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
            run.log_metrics({"a": 1.0})

    sentence = f"no tracking server answers at {address}: start it, .*or choose tracking=off"
    with mlflow_server(tmp_path, port) as server, pytest.raises(ForetailError, match=sentence):
        run_meanwhile()
    with pytest.raises(ForetailError, match=sentence):
        run_meanwhile()


@pytest.mark.nightly
def test_a_store_that_another_program_locks_is_told_from_a_missing_model(tmp_path: Path) -> None:
    address = f"{SQLITE}{tmp_path}/mlflow.db"
    with track("drops", {}, uri=address):
        pass
    for alias in ("candidate", "champion"):
        with pytest.raises(ForetailError, match=r"foretail train moves tracking\.alias, foretail promote champion"):
            load_ensemble(f"models:/drops@{alias}", address)
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        database.execute("BEGIN EXCLUSIVE")
        with pytest.raises(
            ForetailError, match=r"another program has locked the tracking store .*: wait until it ends"
        ):
            load_ensemble("models:/drops@champion", address)


def test_a_folder_in_the_place_of_the_store_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match=r"is a folder: name a file in tracking\.uri"):
        store_exists(f"sqlite:///{tmp_path}")


def test_a_path_that_sqlite_cannot_open_is_refused_before_work_begins(tmp_path: Path) -> None:
    for bytes_long, opens in ((MOST_PATH_BYTES, True), (MOST_PATH_BYTES + 1, False)):
        folder = tmp_path / ("a" * 200) / ("b" * (bytes_long - len(str(tmp_path)) - 207))
        folder.mkdir(parents=True)
        file = folder / "m.db"
        assert len(str(file)) == bytes_long
        if opens:
            with contextlib.closing(sqlite3.connect(file.with_name(".m.db.partial"))) as database:
                database.execute("CREATE TABLE t (a)")
            assert sqlite_file(f"{SQLITE}{file}") == file
        else:
            with pytest.raises(ForetailError, match=rf"has {bytes_long} bytes, and SQLite takes at most .*=off"):
                sqlite_file(f"{SQLITE}{file}")


FIRST_RUN = (
    "from foretail.models.mlflow.tracking import track\nwith track('drops', {}, uri='sqlite:///mlflow.db'):\n    pass\n"
)


def first_run(folder: Path, script: str = FIRST_RUN) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"}
    return subprocess.Popen(
        [sys.executable, "-c", script], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    )


def table_count(file: Path) -> int:
    try:
        with contextlib.closing(sqlite3.connect(file)) as database:
            return len(database.execute("SELECT name FROM sqlite_master").fetchall())
    except sqlite3.Error:  # locked by who makes it
        return 0


@pytest.mark.nightly
@pytest.mark.slow
def test_a_full_disk_is_one_sentence_and_nothing_of_mlflow(tmp_path: Path) -> None:
    create_store(f"{SQLITE}{tmp_path}/mlflow.db")
    limited = f"""
import resource, sys
from foretail.core.errors import ForetailError
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    exec({FIRST_RUN!r})
except ForetailError as error:
    print(error, file=sys.stderr)
"""
    said = first_run(tmp_path, limited).communicate(timeout=60)[1].splitlines()
    assert len(said) == 1, said
    assert "disk I/O error" in said[0]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_the_store_is_made_leaves_none_and_the_next_run_makes_it(tmp_path: Path, stop: int) -> None:
    partial = tmp_path / ".mlflow.db.partial"
    first = first_run(tmp_path)
    while not (partial.exists() and partial.stat().st_size > 100_000):  # in the middle of the migrations
        assert first.poll() is None
        time.sleep(0.005)
    first.send_signal(stop)
    first.communicate(timeout=60)
    assert not (tmp_path / "mlflow.db").exists()
    again = first_run(tmp_path)
    assert again.communicate(timeout=60)[1] == ""
    assert again.returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"mlflow.db", ".mlflow.db.lock", "mlartifacts"}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("tables", [0, 5, 20])
def test_a_store_in_which_mlflow_itself_was_killed_is_refused(tmp_path: Path, tables: int) -> None:
    file = tmp_path / "mlflow.db"
    direct = f"import mlflow\nmlflow.MlflowClient('{SQLITE}mlflow.db').search_experiments()"
    killed = first_run(tmp_path, direct)
    while not file.exists() or table_count(file) < tables:
        assert killed.poll() is None
        time.sleep(0.002)
    killed.kill()
    killed.communicate(timeout=60)
    with pytest.raises(ForetailError, match=f"models:/m@champion has no model in {SQLITE}{file} "):
        load_ensemble("models:/m@champion", f"{SQLITE}{file}")
    assert file.exists()


def logged(folder: Path) -> str:
    """A store with a run that logged a file; its address."""
    folder.mkdir()
    address = f"{SQLITE}{folder / 'mlflow.db'}"
    with track("drops", {}, uri=address) as run:
        run.log_document({"one": 1}, "made.json")
    return address


def artifacts_of(address: str) -> list[Path]:
    (rows,) = [answered(address, "SELECT artifact_uri FROM runs")]
    assert rows is not None
    return [Path(row[0].removeprefix("file://")) for row in rows]


def test_artifacts_follow_a_store_that_was_copied_with_them(tmp_path: Path) -> None:
    first = logged(tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    before = files_of(tmp_path / "first")
    copy = f"{SQLITE}{tmp_path / 'copy' / 'mlflow.db'}"
    readings: list[Reading] = []
    with telling(readings.append), track("drops", {}, uri=copy) as run:
        run.log_document({"two": 2}, "made.json")
    assert "has addresses of artifacts below" in readings[0].sentence()
    assert len(readings) == 1
    assert {path.is_relative_to(tmp_path / "copy") for path in artifacts_of(copy)} == {True}
    assert len([path for path in artifacts_of(copy) if (path / "made.json").exists()]) == 2
    assert files_of(tmp_path / "first") == before
    assert {path.is_relative_to(tmp_path / "first") for path in artifacts_of(first)} == {True}


def test_a_store_that_was_copied_without_its_artifacts_is_read_and_not_written(tmp_path: Path) -> None:
    first = logged(tmp_path / "first")
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "first" / "mlflow.db", tmp_path / "copy")
    copy = f"{SQLITE}{tmp_path / 'copy' / 'mlflow.db'}"
    (artifacts,) = artifacts_of(first)
    assert run_document(artifacts.parent.name, "made.json", copy) == {"one": 1}
    with pytest.raises(
        ForetailError, match=r"is a copy whose artifacts lie in .*: copy that folder mlartifacts beside"
    ):
        track("drops", {}, uri=copy).__enter__()


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        (
            "UPDATE alembic_version SET version_num = 'bd07f7e963c5'",
            "older MLflow: take a copy of it, then run mlflow db",
        ),
        ("UPDATE alembic_version SET version_num = 'f00dfeedbeef'", "newer MLflow than .*: install that one"),
        ("DELETE FROM alembic_version", "tables without one version"),
        ("INSERT INTO alembic_version VALUES ('bd07f7e963c5')", "tables without one version"),
    ],
)
def test_a_store_of_another_version_is_told_with_a_remedy_that_works(
    tmp_path: Path, statement: str, sentence: str
) -> None:
    logged(tmp_path / "first")
    file = Path(shutil.copytree(tmp_path / "first", tmp_path / "other")) / "mlflow.db"  # MLflow remembers the first
    address = f"{SQLITE}{file}"
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute(statement)
    before = file.read_bytes()
    for use in (
        lambda: track("drops", {}, uri=address).__enter__(),
        lambda: load_ensemble("models:/drops/1", address),
    ):
        with pytest.raises(ForetailError, match=sentence):
            use()
    assert file.read_bytes() == before


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
