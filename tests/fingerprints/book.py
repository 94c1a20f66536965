"""The accepted fingerprints: one CSV file per kind, one row per result, each with the reason of its last change."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.fingerprints.place import Place

FOLDER = Path(__file__).parent
COLUMNS = ("what", "parameters", "hash", "reason")


class Fingerprint(NamedTuple):
    """The hash of one result, and what it is the result of; `what` and `parameters` together name it."""

    what: str
    parameters: str
    hash: str


class Row(NamedTuple):
    """A line of a file: an accepted fingerprint, and why it was last accepted."""

    what: str
    parameters: str
    hash: str
    reason: str


@dataclass(frozen=True)
class Group:
    """Rows of one file that are computed together; the `what` of each begins with ``<name>: ``.

    Attributes
    ----------
    kind : str
        The file, without ``.csv``.
    name : str
    compute : function
        Yields what comes after ``<name>: ``, the parameters and the hash.
    ns3 : bool
        Whether it runs the ns-3 driver.
    nightly : bool
        Whether it is long, and `make nightly` computes it.
    """

    kind: str
    name: str
    compute: Callable[[Place], Iterator[Fingerprint]]
    ns3: bool = False
    nightly: bool = False

    def fingerprints(self, place: Place) -> list[Fingerprint]:
        """Compute the rows of the group."""
        return [found._replace(what=f"{self.name}: {found.what}") for found in self.compute(place)]

    def accepted(self, folder: Path = FOLDER) -> list[Row]:
        """Return the rows of the group in its file."""
        return [row for row in read(folder / f"{self.kind}.csv") if row.what.startswith(f"{self.name}: ")]


def read(path: Path) -> list[Row]:
    """Return the rows of a file, none when there is no such file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert tuple(header) == COLUMNS, f"{path} begins with {header}"
    return [Row(*row) for row in rows]


def changes(accepted: Iterable[Row], found: Iterable[Fingerprint]) -> list[str]:
    """Return one line for every row whose hash changed, that is missing or that nobody accepted yet."""
    before = {(row.what, row.parameters): row.hash for row in accepted}
    after = {(row.what, row.parameters): row.hash for row in found}
    return [
        *(
            f"changed: {what} [{parameters}]"
            for (what, parameters), digest in after.items()
            if before.get((what, parameters), digest) != digest
        ),
        *(f"missing: {what} [{parameters}]" for what, parameters in before.keys() - after.keys()),
        *(f"not accepted yet: {what} [{parameters}]" for what, parameters in after.keys() - before.keys()),
    ]


def accepted_rows(before: Iterable[Row], found: Iterable[Fingerprint], reason: str) -> list[Row]:
    """Return the rows in the order in which they were found; the reason is new where the hash is."""
    known = {(row.what, row.parameters): row for row in before}
    rows = []
    for fingerprint in found:
        old = known.get(fingerprint[:2])
        rows.append(old if old is not None and old.hash == fingerprint.hash else Row(*fingerprint, reason))
    return rows


def text_of(rows: Iterable[Row]) -> str:
    """Return the text of a file; ValueError when two rows have one name."""
    rows = list(rows)
    names = [row[:2] for row in rows]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two rows are called {twice[0]} [{twice[1]}]")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows)
    return text.getvalue()


def accept(found: Mapping[str, Sequence[Fingerprint]], reason: str, folder: Path = FOLDER) -> list[str]:
    """Rewrite the files of these kinds; rows whose hash is what it was stay as they are, and so does an equal file.

    Returns
    -------
    list of str
        What changed, a line each.
    """
    if not reason.strip():
        raise ValueError("say why the results change: make fingerprints REASON='...'")
    said = []
    for kind, fingerprints in found.items():
        path = folder / f"{kind}.csv"
        before = read(path)
        said += [f"{kind}.csv: {line}" for line in changes(before, fingerprints)]
        text = text_of(accepted_rows(before, fingerprints, " ".join(reason.split())))
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return said
