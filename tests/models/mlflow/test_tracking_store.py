"""The tracking store comes into being whole or not at all. Cost: ten first runs of MLflow, half a minute."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from foretail.core.errors import ForetailError
from foretail.core.reading import Reading, telling
from foretail.models.mlflow.registry import load_ensemble, run_document
from foretail.models.mlflow.store import SQLITE, answered
from foretail.models.mlflow.tracking import track

pytestmark = pytest.mark.slow


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
