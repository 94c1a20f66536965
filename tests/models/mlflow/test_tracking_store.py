"""The tracking store comes into being whole or not at all. Cost: ten first runs of MLflow, half a minute."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foretail.core.errors import ForetailError
from foretail.core.reading import Reading, telling
from foretail.models.mlflow.registry import lineage, load_ensemble, run_document
from foretail.models.mlflow.store import MOST_PATH_BYTES, SQLITE, answered, create_store, sqlite_file, store_exists
from foretail.models.mlflow.tracking import run_exists, track
from foretail.models.mlflow.versions import alias_holder
from tests.torture.faults import free_port, mlflow_server

FIRST_RUN = (
    "from foretail.models.mlflow.tracking import track\nwith track('drops', {}, uri='sqlite:///mlflow.db'):\n    pass\n"
)


def first_run(folder: Path, script: str = FIRST_RUN) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"}
    return subprocess.Popen(
        [sys.executable, "-c", script], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.nightly
@pytest.mark.full
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
@pytest.mark.full
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
    with pytest.raises(ForetailError, match=f"models:/m@champion has no model in {SQLITE}{file} ") as refused:
        load_ensemble("models:/m@champion", f"{SQLITE}{file}")
    assert "\n" not in str(refused.value)
    assert file.exists()


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.slow
def test_a_full_disk_is_one_sentence_and_nothing_of_mlflow(tmp_path: Path) -> None:
    create_store(f"{SQLITE}{tmp_path}/mlflow.db")
    limited = f"""
import resource, sys
from foretail.core.errors import ForetailError
from foretail.core.reading import Reading, telling
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    exec({FIRST_RUN!r})
except ForetailError as error:
    print(error, file=sys.stderr)
"""
    said = first_run(tmp_path, limited).communicate(timeout=60)[1].splitlines()
    assert len(said) == 1, said
    assert "disk I/O error" in said[0]


def table_count(file: Path) -> int:
    try:
        with contextlib.closing(sqlite3.connect(file)) as database:
            return len(database.execute("SELECT name FROM sqlite_master").fetchall())
    except sqlite3.Error:  # locked by who makes it
        return 0


def test_a_store_of_another_version_or_of_somebody_else_stays(tmp_path: Path) -> None:
    old = tmp_path / "mlflow.db"
    create_store(f"{SQLITE}{old}")
    with contextlib.closing(sqlite3.connect(old)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = 'c48cb773bb87'")
    with pytest.raises(ForetailError, match="was made by an older MLflow"), track("drops", {}, uri=f"{SQLITE}{old}"):
        pass
    other = tmp_path / "books.db"
    with contextlib.closing(sqlite3.connect(other)) as database, database:
        database.execute("CREATE TABLE books (title TEXT)")
    assert store_exists(f"{SQLITE}{other}")
    create_store(f"{SQLITE}{other}")
    assert {path.name for path in tmp_path.iterdir()} == {"mlflow.db", "books.db", ".mlflow.db.lock"}


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
@pytest.mark.full
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
