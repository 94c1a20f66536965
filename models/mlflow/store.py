"""The tracking store: where it is, how it is reached, and what its errors become."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from foretail.features.errors import ForetailError
from foretail.features.staging import writing

SQLITE = "sqlite:///"


def tracking_uri(uri: str | None, folder: Path) -> str:
    """Return `uri`, else ``MLFLOW_TRACKING_URI``, else the SQLite file ``mlflow.db`` in `folder`."""
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}{folder / 'mlflow.db'}"


def imported() -> ModuleType:
    """Import MLflow, which takes a second and would otherwise report its use to its makers and talk on stderr."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    import mlflow

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return mlflow


@contextmanager
def connected(address: str) -> Iterator[ModuleType]:
    """Yield MLflow, its process-wide state pointed at `address`, and put that back."""
    mlflow = imported()
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


@contextmanager
def usable(address: str, otherwise: str = "") -> Iterator[None]:
    """Turn whatever the store raises into one sentence, which ends in what to do `otherwise`."""
    try:
        yield
    except ForetailError:
        raise
    except Exception as error:  # every store brings exception types of its own
        raise ForetailError(
            f"MLflow cannot use {address} ({first_line(error)}): set MLFLOW_TRACKING_URI or tracking.uri to a store "
            f"that works{otherwise}"
        ) from error


@contextmanager
def locked(address: str) -> Iterator[None]:
    """Hold the lock of an SQLite store, whose folder is made when missing; a server has none that we could hold."""
    if not address.startswith(SQLITE):
        yield
        return
    file = Path(address.removeprefix(SQLITE)).resolve()
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = (file.parent / f".{file.name}.lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, else its type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
