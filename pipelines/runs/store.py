"""A store of finished outputs, addressed by a hash of everything that they depend on.

An entry is a folder ``<store>/<kind>/<key>`` with ``key.json``, ``content/`` and a digest over both; it is built beside
its place and renamed when it is complete, so an entry that exists is whole, and one that was damaged since is refused.
Nobody waits for anybody: two processes that build the same entry both finish, the second one throws its copy away. What
a dead process left is removed by the next builder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretail.core.digest import check_folder
from foretail.core.errors import ForetailError
from foretail.core.files import staged_folder, writing
from foretail.core.json_text import parse_json

KEY_FILE = "key.json"
CONTENT = "content"


def canonical_json(document: Any) -> str:
    """JSON with sorted keys and no spaces: equal documents give equal text; NaN and infinity are refused."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True)
class Key:
    """Key of an entry: all that it depends on."""

    kind: str  #: the folder of the entry, such as ``"dataset"``
    depends_on: Mapping[str, Any]  #: JSON-like document: settings that matter, hashes of inputs, digest of the code

    @property
    def digest(self) -> str:
        """First 32 hexadecimal digits of the SHA-256 of kind and canonical JSON."""
        return hashlib.sha256(f"{self.kind}\n{canonical_json(self.depends_on)}".encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Entry:
    """A finished entry of the store."""

    path: Path  #: folder of its content
    digest: str  #: its key
    reused: bool  #: whether it was there before
    seconds: float  #: wall time that building it took, in this or an earlier run

    def document(self, name: str) -> Any:
        """Return a JSON file of the content; ForetailError when it is not there or no longer JSON."""
        try:
            return parse_json((self.path / name).read_bytes())
        except (OSError, ValueError) as error:
            raise ForetailError(
                f"the store entry {self.path.parent} is damaged ({name}: {error}): delete that folder and run again"
            ) from error


class Store:
    """The store in one folder; the folder is made when the first entry is built."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).absolute()

    def has(self, key: Key) -> bool:
        """Return whether there is an entry of a key, whole or damaged."""
        return (self.folder / key.kind / key.digest).is_dir()

    def find(self, key: Key) -> Entry | None:
        """The entry of `key`, or None when it has not been built; ForetailError when it is not as it was written."""
        path = self.folder / key.kind / key.digest
        try:
            record = parse_json((path / KEY_FILE).read_bytes())
            if not (path / CONTENT).is_dir():
                raise ValueError("no content")
            seconds = float(record["seconds"])
        except (FileNotFoundError, NotADirectoryError):  # building one will say what is in the way
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ForetailError(f"the store entry {path} is damaged: delete that folder and run again") from error
        try:
            check_folder(path, f"delete {path} and run again")
        except ForetailError:
            if path.exists():
                raise
            return None  # another process removed it meanwhile
        return Entry(path / CONTENT, key.digest, True, seconds)

    def get_or_build(self, key: Key, build: Callable[[Path], object]) -> Entry:
        """The entry of `key`; when missing, ``build(folder)`` fills an empty folder that then becomes the entry.

        Whatever stops `build` (an error, Ctrl-C), the partial folder is removed and nothing is stored.
        """
        entry = self.find(key)
        if entry is not None:
            return entry
        path = self.folder / key.kind / key.digest
        started = time.monotonic()
        try:
            with staged_folder(path) as partial:
                (partial / CONTENT).mkdir()  # `partial` is locked: a build that stages folders of its own needs another
                build(partial / CONTENT)
                seconds = time.monotonic() - started
                record = {"kind": key.kind, "depends_on": key.depends_on, "seconds": seconds}
                with writing(path):
                    (partial / KEY_FILE).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", "utf-8")
        except ForetailError:
            entry = self.find(key)
            if entry is None:
                raise
            return entry  # another process was faster
        return Entry(path / CONTENT, key.digest, False, seconds)

    def remove(self, entry: Entry) -> None:
        """Forget an entry; readers see it whole or not at all."""
        whole = entry.path.parent
        removed = Path(tempfile.mkdtemp(prefix=".removed-", dir=whole.parent))
        try:
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                whole.rename(removed / entry.digest)
        finally:
            shutil.rmtree(removed, ignore_errors=True)
