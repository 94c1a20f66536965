"""Folders that appear complete or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from foretail.features.errors import ForetailError

_MARK = ".partial-"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` of the body (disk full, no permission, ...) into a :class:`ForetailError` about `path`."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
        raise ForetailError(
            f"cannot write {path}: {reason}; make room there or choose a folder on another disk"
        ) from error


def _new_partial(target: Path) -> tuple[Path, int]:
    """Make a partial folder beside `target` and lock it, so that nobody takes it for an abandoned one."""
    while True:
        partial = target.parent / f".{target.name}{_MARK}{uuid4().hex}"
        partial.mkdir()
        with suppress(FileNotFoundError):
            lock = os.open(partial, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)  # waits for whoever found it before it was locked
            if partial.exists():
                return partial, lock
            os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    """Remove the partial folders whose writer was killed: a living one holds their lock."""
    for partial in parent.glob(f".*{_MARK}*"):
        with suppress(OSError):
            descriptor = os.open(partial, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(partial)
            finally:
                os.close(descriptor)


@contextmanager
def staged_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside `target` that becomes `target` when the body completes.

    On any exception, ``KeyboardInterrupt`` included, it is removed; what a killed process left beside `target` is
    removed by the next call.

    Raises
    ------
    ForetailError
        If `target` exists already, or the file system refuses.
    """
    if target.exists():
        raise ForetailError(f"{target} exists already: remove it or choose another folder")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target.parent)
        partial, lock = _new_partial(target)
    try:
        yield partial
        with writing(target):
            partial.rename(target)
    finally:
        os.close(lock)
        shutil.rmtree(partial, ignore_errors=True)
