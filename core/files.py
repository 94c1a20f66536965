"""Files and folders that appear complete or not at all: built beside their place under another name, then renamed.

Whatever stops a process leaves the old ones or the new ones. Nothing is synced to the disk: a machine that loses power
may lose what it has just written, which the digest of a folder tells.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from uuid import uuid4

from foretail.core.digest import write_digest
from foretail.core.errors import ForetailError

_MARK = ".partial-"

_WRITTEN: ContextVar[set[Path] | None] = ContextVar("written", default=None)


OTHER_FOLDER = "give yourself the right to it, or choose a folder that is yours"
"""Advice where a file may not be read or written."""


@contextmanager
def recording() -> Iterator[set[Path]]:
    """Yield a set that gains the absolute path of every file and folder that this module puts in its place."""
    written: set[Path] = set()
    token = _WRITTEN.set(written)
    try:
        yield written
    finally:
        _WRITTEN.reset(token)


def _record(path: Path) -> None:
    written = _WRITTEN.get()
    if written is not None:
        written.add(path.absolute())


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` of the body (disk full, no permission, ...) into a :class:`ForetailError` about `path`."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
        refused = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        remedy = OTHER_FOLDER if refused else "make room there or choose a folder on another disk"
        raise ForetailError(f"cannot write {path}: {reason}; {remedy}") from error


@contextmanager
def holding_lock(file: Path) -> Iterator[None]:
    """Hold the lock of an empty file, which is made when missing and stays; other threads and processes wait for it.

    ForetailError if the file system refuses the file.
    """
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = file.open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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
def staged_folder(target: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield an empty folder beside `target` that becomes `target`, with a digest, when the body completes.

    On any exception, ``KeyboardInterrupt`` included, it is removed; what a killed process left beside `target` is
    removed by the next call. With `replace` a folder that is there gives its place at once and is removed then.
    ForetailError if `target` exists already, unless it is to be replaced, or the file system refuses.
    """
    if target.exists() and not replace:
        raise ForetailError(f"{target} exists already: remove it or choose another folder")
    target = target.resolve() if replace else target  # through a link, which stays
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target.parent)
        partial, lock = _new_partial(target)
    try:
        yield partial
        with writing(target):
            write_digest(partial)
            if replace and target.exists():
                _exchange(partial, target)
            else:
                partial.rename(target)
        _record(target)
    finally:
        os.close(lock)
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def staged_files(folder: Path) -> Iterator[Path]:
    """Yield an empty folder whose files and folders take their places in `folder` one by one when the body completes.

    What is in `folder` under other names stays. On any exception of the body nothing changes. Folders get a digest;
    that of `folder` itself is written by whoever knows what else belongs to it. ForetailError if the file system
    refuses.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder)
        partial, lock = _new_partial(folder / "files")
    try:
        yield partial
        with writing(folder):
            places = {item: folder / item.name for item in sorted(partial.iterdir())}
            for item, place in places.items():
                if place.exists() and place.is_dir() != item.is_dir():
                    raise OSError(f"{place.name} is {'a' if place.is_dir() else 'no'} folder")
                if item.is_dir():
                    write_digest(item)
            for item, place in places.items():
                if place.is_dir():
                    _exchange(item, place)
                else:
                    item.replace(place)
                _record(place)
    finally:
        os.close(lock)
        shutil.rmtree(partial, ignore_errors=True)


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file, text in UTF-8, so that it has the old content or the new one; its folder is made when missing.

    ForetailError if the file system refuses.
    """
    partial = path.with_name(f".{path.name}.{uuid4().hex}")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(content.encode() if isinstance(content, str) else content)
            partial.replace(path)
            _record(path)
        finally:
            partial.unlink(missing_ok=True)


def _exchange(new: Path, old: Path) -> None:
    """Let two folders change places in one step; a folder cannot be renamed over one that has files in it.

    A file system without that step (NFS) gets two renames, the first undone when the second fails; whoever is killed
    between them leaves the old folder as ``.NAME.previous``.
    """
    at_cwd, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(at_cwd, os.fsencode(new), at_cwd, os.fsencode(old), exchange) == 0:
        return
    if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(old))
    previous = old.with_name(f".{old.name}.previous")
    old.rename(previous)
    try:
        new.rename(old)
    except OSError:
        previous.rename(old)
        raise
    previous.rename(new)  # for the caller to remove
