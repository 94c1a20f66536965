"""The tracking store: where it is, how it comes into being, how it is reached, and what its errors become.

MLflow fills a new SQLite file in some seconds of migrations, and refuses for ever a file in which that was interrupted.
So the file is made under another name, behind a lock, and takes its own name when it is complete. Only what writes a
run makes one: reading from a store that is not there is an error.
"""

from __future__ import annotations

import logging
import os
import random
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from urllib.parse import unquote

from foretail.core.errors import ForetailError, user_apart, without_tokens
from foretail.core.files import holding_lock
from foretail.core.reading import Reading

MOST_PATH_BYTES = 490
"""Longest path of an SQLite file: SQLite opens 504 on Linux, and a store that is being made has a longer name."""

SQLITE = "sqlite:///"


_RACE = re.compile(
    "UniqueViolation|UNIQUE constraint|duplicate key|could not serialize|deadlock detected", re.IGNORECASE
)
_NO_ANSWER = re.compile(
    "Max retries exceeded|Connection (refused|reset)|[Cc]ould not connect|(Read|[Cc]onnection) timed out"
)
_OTHER_SCHEMA = re.compile(r"found version (\w+), but expected|revision identified by '(\w+)'|more than one head")
_FOLDER = "mlartifacts"
"""Artifacts of an SQLite store lie in this folder beside its file."""
Answer = TypeVar("Answer")
_HTTP = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
_CREDENTIALS = {"http": _HTTP, "https": _HTTP, "postgresql": ("PGUSER", "PGPASSWORD")}
"""Environment variables with the user and the password of a store, by the scheme of its address."""


def tracking_uri(uri: str | None, folder: Path) -> str:
    """Return `uri`, else ``MLFLOW_TRACKING_URI``, else the SQLite file ``mlflow.db`` in `folder`.

    A user and a password in it are handed to the environment, where MLflow's clients find them, because the address
    gets into results. ForetailError where the clients of a scheme do not look there.
    """
    given = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{folder / 'mlflow.db'}"
    user_and_password, address = user_apart(given)
    shown = without_tokens(address)
    if shown == given:
        return given
    names = _CREDENTIALS.get(given.partition("://")[0].partition("+")[0])
    if names is None or shown != address:
        raise ForetailError(f"the tracking store {shown} comes with a password: give that in the environment")
    user, _, password = user_and_password.partition(":")
    os.environ |= {name: unquote(value) for name, value in zip(names, (user, password), strict=True) if value}
    return address


def use_tracking(folder: Path | str = "outputs", uri: str | None = None) -> None:
    """Let ``mlflow`` read what commands tracked: those with this folder, or ``MLFLOW_TRACKING_URI``, or `uri`.

    ForetailError when there is no store, which MLflow would make, empty.

    Parameters
    ----------
    folder : in which commands write, ``outputs`` of the folder that they ran in
    uri : address of a store, where it is not the usual one
    """
    address = tracking_uri(uri, Path(folder).absolute())
    if not store_exists(address):
        raise ForetailError(
            f"{sqlite_file(address)} is not there: run foretail train first, name the folder with its outputs, or give "
            f"uri"
        )
    imported().set_tracking_uri(address)


def imported() -> ModuleType:
    """Import MLflow, which takes a second and would otherwise report its use to its makers and talk on stderr."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")  # MLflow's 7 are silent for four minutes per request
    import mlflow

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it prints the traceback of what it raises
    return mlflow


def sqlite_file(address: str) -> Path | None:
    """Return the file of an SQLite store; None for a server. ForetailError when it can be none."""
    if not address.startswith(SQLITE):
        return None
    file = Path(address.removeprefix(SQLITE)).resolve()
    if file.is_dir():
        raise ForetailError(
            f"the tracking store {file} is a folder: name a file in tracking.uri, as in {SQLITE}runs.db"
        )
    if (length := len(os.fsencode(file))) > MOST_PATH_BYTES:
        raise ForetailError(
            f"the path of {file.name} below {str(file)[:40]}... has {length} bytes, and SQLite takes at most "
            f"{MOST_PATH_BYTES}: set tracking.uri to a file in another folder, or tracking=off"
        )
    return file


def store_exists(address: str) -> bool:
    """True if a store is there to be read: always for a server."""
    file = sqlite_file(address)
    return file is None or file.exists()


def answered(address: str, question: str, *values: str) -> list[tuple[str, ...]] | None:
    """Ask an SQLite store without MLflow, which takes a second to import and another to connect.

    None where only MLflow can tell: of a server, of a file that is not there, in use or of another version.
    """
    file = sqlite_file(address)
    if file is None or not file.exists():
        return None
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
            return database.execute(question, values).fetchall()
    except sqlite3.Error:
        return None


def create_store(address: str) -> None:
    """Make the SQLite store of an address complete or not at all; a server, and a file that is there, stay.

    ForetailError when MLflow cannot make it, or the file system refuses.
    """
    file = sqlite_file(address)
    if file is None or store_exists(address):
        return
    with locked(address), usable(address, ", or choose tracking=off"):
        if file.exists():  # two first runs: the other one was faster
            return
        partial = file.with_name(f".{file.name}.partial")
        _remove(partial)  # of a process that was killed: a living one holds the lock
        try:
            imported()
            from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

            artifacts = (file.parent / _FOLDER).as_uri()
            SqlAlchemyStore(f"{SQLITE}{partial}", artifacts).engine.dispose()  # type: ignore[no-untyped-call]
            partial.replace(file)
        finally:
            _remove(partial)


def _remove(database: Path) -> None:
    for end in ("", "-journal", "-wal", "-shm"):
        database.with_name(f"{database.name}{end}").unlink(missing_ok=True)


@contextmanager
def connected(address: str) -> Iterator[ModuleType]:
    """Yield MLflow, its process-wide state pointed at `address`, and put that back.

    ForetailError when there is no such store; :func:`create_store` makes one.
    """
    if not store_exists(address):
        raise ForetailError(f"there is no tracking store {address}: train a model with tracking, or set tracking.uri")
    mlflow = imported()
    _follow_folder(address)
    before, variable = mlflow.get_tracking_uri(), os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.set_tracking_uri(address)
    try:
        yield mlflow
    finally:
        mlflow.set_tracking_uri(before)
        if variable is None:
            os.environ.pop("MLFLOW_TRACKING_URI", None)
        else:
            os.environ["MLFLOW_TRACKING_URI"] = variable


_ADDRESSES = (
    *(("experiments", "artifact_location"), ("runs", "artifact_uri"), ("logged_models", "artifact_location")),
    *(("model_versions", "source"), ("model_versions", "storage_location")),
)
"""Tables and columns with addresses of artifacts."""
_FOLLOWED: set[tuple[str, int]] = set()
"""Stores whose addresses this process has looked at, with the number of their file."""


def _follow_folder(address: str) -> None:
    """Point a store that was copied or moved with its artifacts at those beside it, and tell so; once per process.

    Without them it stays as it is, because it may be a copy of the database alone.
    """
    file = sqlite_file(address)
    if file is None or (which := (address, file.stat().st_ino)) in _FOLLOWED:
        return
    places = answered(address, "SELECT artifact_uri FROM runs UNION SELECT artifact_location FROM experiments") or []
    _FOLLOWED.add(which)
    here, others = file.parent / _FOLDER, {}
    for (place,) in places:
        other, inside, below = place.partition(f"/{_FOLDER}/")
        if inside and other != file.parent.as_uri() and (here / unquote(below)).exists():
            others[f"{other}/{_FOLDER}"] = unquote(other)
    for other, folder in others.items():
        with locked(address), usable(address), closing(sqlite3.connect(file)) as database:
            imported().MlflowClient(address).search_experiments(max_results=1)  # refuses another version's tables
            for table, column in _ADDRESSES:
                database.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) "  # constants
                    f"WHERE substr({column} || '/', 1, ?) = ?",
                    (here.as_uri(), len(other) + 1, len(other) + 1, f"{other}/"),
                )
            database.commit()
        Reading(str(file), (f"addresses of artifacts below {folder}",), ("those beside it are the same",)).tell()


def require_own_artifacts(address: str, experiment: str) -> None:
    """Raise ForetailError where an experiment writes into the folder of the store that this one was copied from."""
    file = sqlite_file(address)
    places = answered(address, "SELECT artifact_location FROM experiments WHERE name = ?", experiment) or []
    if file is not None and places and places[0][0].rpartition(f"/{_FOLDER}")[0] not in ("", file.parent.as_uri()):
        raise ForetailError(
            f"the tracking store {file} is a copy whose artifacts lie in {unquote(places[0][0])}: copy that folder "
            f"{_FOLDER} beside it too, or set tracking.uri to another store"
        )


@contextmanager
def usable(address: str, otherwise: str = "") -> Iterator[None]:
    """Turn whatever the store raises into one sentence, which ends in what to do `otherwise`."""
    try:
        yield
    except ForetailError:
        raise
    except Exception as error:  # every store brings exception types of its own
        raise unusable(address, error, otherwise) from error


def settled(write: Callable[..., Answer], *arguments: Any, **named: Any) -> Answer:
    """Make a write that another job may make in the same instant, and make it again if the other one was first.

    MLflow looks whether a dataset, an alias or a tag is there before it inserts it. Between the two another job can
    insert the same, which a server's database refuses.
    """
    from mlflow.exceptions import MlflowException

    for seconds in (0.05, 0.2, 0.8):
        try:
            return write(*arguments, **named)
        except MlflowException as error:
            if not _RACE.search(str(error)):
                raise
        time.sleep(seconds * random.random())
    return write(*arguments, **named)


def unusable(address: str, error: Exception, otherwise: str = "") -> ForetailError:
    """Return the sentence about a store that raised `error`."""
    return out_of_reach(address, error, otherwise) or ForetailError(
        f"MLflow cannot use {address} ({first_line(error)}): set MLFLOW_TRACKING_URI or tracking.uri to a store that "
        f"works{otherwise}"
    )


def out_of_reach(address: str, error: Exception, otherwise: str = "") -> ForetailError | None:
    """Return the sentence about a store that is locked, of another version or silent, whatever was asked, or None."""
    text = str(error)
    if (version := _OTHER_SCHEMA.search(text)) is not None:
        return ForetailError(f"the tracking store {address} {_of_schema(version[1] or version[2], address)}{otherwise}")
    if "database is locked" in text:
        return ForetailError(
            f"another program has locked the tracking store {address}: wait until it ends, and give jobs that run at "
            f"the same time a server, mlflow server --backend-store-uri {SQLITE}FILE, named in MLFLOW_TRACKING_URI"
        )
    if _NO_ANSWER.search(text):
        return ForetailError(
            f"no tracking server answers at {address}: start it, or set MLFLOW_TRACKING_URI or tracking.uri to one "
            f"that runs{otherwise}"
        )
    return None


def _of_schema(version: str | None, address: str) -> str:
    """The maker of a database with another version of its tables than this MLflow's, and the remedy."""
    import mlflow.store.db_migrations

    (folder,) = mlflow.store.db_migrations.__path__
    if version and any((Path(folder) / "versions").glob(f"{version}_*.py")):
        return f"was made by an older MLflow: take a copy of it, then run mlflow db upgrade {address}"
    if version in (None, "None"):
        return "has tables without one version, as an upgrade that was interrupted leaves: restore a copy of it"
    return f"was made by a newer MLflow than {mlflow.__version__}: install that one, or give tracking.uri another"


@contextmanager
def locked(address: str) -> Iterator[None]:
    """Hold the lock of an SQLite store, whose folder is made when missing; a server has none that we could hold."""
    file = sqlite_file(address)
    if file is None:
        yield
        return
    with holding_lock(file.with_name(f".{file.name}.lock")):
        yield


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text that tells what is wrong, else its type."""
    lines = [line for line in str(error).strip().splitlines() if not line.startswith("(raised as a result of Query-")]
    return (lines or [type(error).__name__])[0]
