"""A store of finished outputs, addressed by a hash of everything that they depend on.

An entry is a folder ``<store>/<kind>/<key>``; it is built under ``<store>/.partial`` and renamed when it is complete,
so an entry that exists is whole. There are no locks: two processes that build the same entry both finish, the second
one throws its copy away. What a dead process left in ``.partial`` is removed by the next builder.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from foretail.features.errors import ForetailError

PARTIAL = ".partial"
KEY_FILE = "key.json"
_SOURCES = (".py", ".hpp", ".h", ".cpp", ".cc", ".txt", ".cmake", ".j2")


def canonical_json(document: Any) -> str:
    """JSON with sorted keys and no spaces: equal documents give equal text; NaN and infinity are refused."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True)
class Key:
    """What an entry depends on.

    Attributes
    ----------
    kind : the folder of the entry, such as ``"dataset"``
    depends_on : JSON-like document: settings that matter, hashes of inputs, digest of the code
    """

    kind: str
    depends_on: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """First 32 hexadecimal digits of the SHA-256 of kind and canonical JSON."""
        return hashlib.sha256(f"{self.kind}\n{canonical_json(self.depends_on)}".encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Entry:
    """A finished entry of the store.

    Attributes
    ----------
    path : its folder
    digest : its key
    reused : whether it was there before
    seconds : wall time that building it took, in this or an earlier run
    """

    path: Path
    digest: str
    reused: bool
    seconds: float


class Store:
    """The store in one folder; the folder is made when the first entry is built."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).absolute()

    def find(self, key: Key) -> Entry | None:
        """The entry of `key`, or None when it has not been built."""
        path = self.folder / key.kind / key.digest
        try:
            record = json.loads((path / KEY_FILE).read_text(encoding="utf-8"))
            return Entry(path, key.digest, True, float(record["seconds"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(path) from error

    def get_or_build(self, key: Key, build: Callable[[Path], None]) -> Entry:
        """The entry of `key`; when missing, ``build(folder)`` fills an empty folder that then becomes the entry.

        Whatever stops `build` (an error, Ctrl-C), the partial folder is removed and nothing is stored.
        """
        found = self.find(key)
        if found is not None:
            return found
        partial = self._new_partial()
        try:
            started = time.monotonic()
            build(partial)
            seconds = time.monotonic() - started
            record = {"kind": key.kind, "digest": key.digest, "depends_on": key.depends_on, "seconds": seconds}
            (partial / KEY_FILE).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            path = self.folder / key.kind / key.digest
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                partial.rename(path)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
                found = self.find(key)
                if found is None:
                    raise _damaged(path) from error
                return found
            return Entry(path, key.digest, False, seconds)
        finally:
            self._discard(partial)

    def remove(self, entry: Entry) -> None:
        """Forget an entry; readers see it whole or not at all."""
        partial = self._new_partial()
        try:
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                entry.path.rename(partial / entry.digest)
        finally:
            self._discard(partial)

    def _discard(self, partial: Path) -> None:
        shutil.rmtree(partial, ignore_errors=True)
        for folder in (partial.parent, self.folder):
            with contextlib.suppress(OSError):
                folder.rmdir()  # only when empty: a failed first build leaves no trace

    def _new_partial(self) -> Path:
        partials = self.folder / PARTIAL
        partials.mkdir(parents=True, exist_ok=True)
        for left_over in partials.iterdir():
            if _is_abandoned(left_over.name):
                shutil.rmtree(left_over, ignore_errors=True)
        pid = os.getpid()
        while True:
            partial = partials / f"{socket.gethostname()}~{pid}~{_start_of(pid) or 0}~{secrets.token_hex(4)}"
            try:
                partial.mkdir()
                return partial
            except FileNotFoundError:  # another process removed the empty parent in between
                partials.mkdir(parents=True, exist_ok=True)


def code_digest(*rooms: str) -> str:
    """SHA-256 over the sources of rooms, such as ``code_digest("features", "sim_bridge")``.

    Any change in a room's Python, C++ or template files makes entries that name it be built again.
    """
    digest = hashlib.sha256()
    for room in rooms:
        for name, source in sorted(_sources(room, resources.files(f"foretail.{room}"))):
            digest.update(f"{name}\n{hashlib.sha256(source.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damaged(path: Path) -> ForetailError:
    return ForetailError(f"the store entry {path} is damaged: delete that folder and run again")


def _sources(name: str, folder: Traversable) -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for child in folder.iterdir():
        if child.is_dir():
            if child.name != "__pycache__":
                found += _sources(f"{name}/{child.name}", child)
        elif child.name.endswith(_SOURCES):
            found.append((f"{name}/{child.name}", child))
    return found


def _is_abandoned(name: str) -> bool:
    """Whether a partial folder's process is certainly dead (another machine's processes cannot be seen from here)."""
    match = re.fullmatch(r"(?P<host>.+)~(?P<pid>\d+)~(?P<start>\d+)~[0-9a-f]+", name)
    if match is None or match["host"] != socket.gethostname():
        return False
    pid, start = int(match["pid"]), int(match["start"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    now = _start_of(pid)
    return now is not None and start != 0 and now != start  # the number was given to a newer process


def _start_of(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot, where the system has /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])
