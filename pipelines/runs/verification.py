"""``foretail verify``: whether folders, stores and tracking databases are as Foretail wrote them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from foretail.core.digest import DIGEST_FILE, examine, files_below
from foretail.core.errors import ForetailError
from foretail.features.dataset.schema import MANIFEST_NAME
from foretail.pipelines.runs.result import RESULT_FILE, Table
from foretail.pipelines.runs.store import CONTENT, KEY_FILE

OURS = (MANIFEST_NAME, KEY_FILE, RESULT_FILE, "certificate.json")
"""Files that tell a folder of ours, if it has no digest: somebody took it away."""

ARTIFACTS = "mlartifacts"
"""MLflow's own files: a model among them is compared with the hash in its run."""

_SQLITE = b"SQLite format 3\0"


@dataclass
class Verified:
    """Findings below some paths; texts are sentences."""

    folders: int = 0  #: with a digest
    files: int = 0  #: that are as they were written
    models: int = 0  #: of tracking stores that are
    damaged: list[str] = field(default_factory=list)  #: or missing
    without_digest: list[str] = field(default_factory=list)  #: folders of ours that nobody can check
    foreign: list[str] = field(default_factory=list)  #: files that no digest names, which is no damage

    @property
    def is_whole(self) -> bool:
        """True if everything could be checked and nothing is damaged."""
        return not self.damaged and not self.without_digest

    @property
    def count(self) -> int:
        """How much of ours there was, whole or not."""
        return self.folders + self.files + self.models + len(self.damaged) + len(self.without_digest)

    def table(self) -> Table:
        """The counts, and a note for everything that is not as it was written."""
        counts = {
            "folders": self.folders,
            "files whole": self.files,
            "models whole": self.models,
            "damaged or missing": len(self.damaged),
            "without a digest": len(self.without_digest),
            "not ours": len(self.foreign),
        }
        return Table.of_rows("Verified", [counts], *self.damaged, *self.without_digest, *self.foreign)


def verify(paths: Sequence[str]) -> Verified:
    """Compare everything of ours below some paths with its digests.

    Paths are folders that Foretail wrote, or folders above such, stores and ``outputs`` among them; files in such
    folders; MLflow's SQLite files, whose models are compared with the hash in their run. ForetailError when a path is
    not there or holds nothing of ours.
    """
    verified = Verified()
    for path in map(Path, paths):
        before = verified.count
        if path.is_dir() and (any(path.rglob(DIGEST_FILE)) or not _inside(path)):
            _verify_below(path, verified)
        elif path.exists():
            _verify_part(path, verified)
        else:
            raise ForetailError(f"there is no {path}: give a folder or file that Foretail wrote")
        if verified.count == before:
            raise ForetailError(f"{path} holds nothing that Foretail wrote: give a folder or file of it")
    return verified


def _verify_below(folder: Path, verified: Verified) -> None:
    """Every folder with a digest, those that should have one, and tracking databases."""
    digests = {path.parent for path in folder.rglob(DIGEST_FILE)}
    for inside in sorted(digests):
        verified.folders += 1
        try:
            examined = examine(inside)
        except ForetailError as error:
            verified.damaged.append(f"{error}.")
            continue
        verified.files += len(examined.whole)
        verified.damaged += [f"{inside / name} was altered or damaged." for name in examined.damaged]
        verified.damaged += [f"{inside / name} is missing." for name in examined.missing]
        verified.foreign += [f"{inside / name} is not ours." for name in examined.foreign]
    ours = {path.parent for path in files_below(folder) if path.name in OURS and ARTIFACTS not in path.parts}
    for inside in sorted(ours - digests):
        if not any(parent in digests for parent in inside.parents) or inside.name == CONTENT:
            verified.without_digest.append(f"{inside} has no {DIGEST_FILE}.")
    for path in files_below(folder):
        if path.suffix == ".db" and _is_tracking(path):
            _verify_tracking(path, verified)


def _inside(path: Path) -> bool:
    """True if a folder above has a digest, as the entry of a store."""
    return any((parent / DIGEST_FILE).is_file() for parent in path.absolute().parents)


def _verify_part(path: Path, verified: Verified) -> None:
    """A tracking database, or a file or folder inside a folder whose digest speaks for it."""
    if path.is_file() and _is_tracking(path):
        _verify_tracking(path, verified)
        return
    folder = next((parent for parent in path.parents if (parent / DIGEST_FILE).is_file()), path.parent)
    examined = examine(folder)
    for names, what, where in (
        (examined.foreign, "is not ours.", verified.foreign),
        (examined.damaged, "was altered or damaged.", verified.damaged),
        (examined.missing, "is missing.", verified.damaged),
    ):
        where += [f"{folder / name} {what}" for name in names if (folder / name).is_relative_to(path)]
    verified.files += sum((folder / name).is_relative_to(path) for name in examined.whole)


def _is_tracking(path: Path) -> bool:
    with path.open("rb") as file:
        if file.read(len(_SQLITE)) != _SQLITE:
            return False
    try:
        with closing(sqlite3.connect(path)) as database:
            return database.execute("SELECT 1 FROM sqlite_master WHERE name = 'experiments'").fetchone() is not None
    except sqlite3.Error:
        return True  # damaged: its own check will say so


def _verify_tracking(path: Path, verified: Verified) -> None:
    """The database's own check, and every logged ensemble against the hash in its run."""
    from foretail.models.mlflow.registry import logged_ensembles
    from foretail.models.mlflow.store import SQLITE

    verified.damaged += [f"{path} is damaged ({reason})." for reason in _database_complaints(path)]
    try:
        for run, complaint in logged_ensembles(f"{SQLITE}{path.resolve()}"):
            if complaint is None:
                verified.models += 1
            else:
                verified.damaged.append(f"{path}, run {run}: {complaint}.")
    except ForetailError as error:
        verified.damaged.append(f"{error}.")


def _database_complaints(path: Path) -> Iterator[str]:
    try:
        with closing(sqlite3.connect(path)) as database:
            for (line,) in database.execute("PRAGMA integrity_check"):
                if line != "ok":
                    yield str(line).splitlines()[-1]
    except sqlite3.Error as error:
        yield str(error)
