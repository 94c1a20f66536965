"""What a command gives when nobody disturbs it: run twice in two folders, and once more where it has run before."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.torture import faults
from tests.torture.checks import results
from tests.torture.commands import COMMANDS, copy_template

COUNTED_ON = ".registered.version"
"""A version that a killed run has registered stays in the registry, without an alias: the next one has a new number."""


@dataclass(frozen=True)
class Reference:
    """An undisturbed command.

    Attributes
    ----------
    seconds : wall time of the first run
    changes : how often the files of the folder were found changed meanwhile
    bytes : what its folder holds afterwards
    expected : the values on which the three runs agree
    own : names of values that are a run's own, such as its seconds: the runs do not agree on them
    """

    seconds: float
    changes: int
    bytes: int
    expected: dict[str, str]
    own: list[str]


def reference(name: str, place: Path) -> Reference:
    """Return the reference of a command, made once per place and kept there."""
    folder = place / "references"
    folder.mkdir(exist_ok=True)
    file = folder / f"{name.replace(', ', '-')}.json"
    with (folder / f"{file.stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            made = _make(name, place)
            partial = file.with_suffix(".partial")
            partial.write_text(json.dumps(asdict(made)))
            partial.replace(file)
        return Reference(**json.loads(file.read_text()))


def _make(name: str, place: Path) -> Reference:
    arguments = COMMANDS[name].arguments()
    found, seconds, changes, size = [], 0.0, 0, 0
    for folder in (place / f"undisturbed a {name}", place / f"undisturbed bb {name}"):
        copy_template(place / "template", folder)
        seen = faults.Changes(folder)

        def look(process: subprocess.Popen[bytes], so_far: float, seen: faults.Changes = seen) -> bool:
            seen.count()
            return False

        for again in (False, True):
            ended = faults.run(arguments, folder, most_seconds=600, strike=look)
            if ended.code != 0:
                raise RuntimeError(f"{name} does not run undisturbed: exit code {ended.code}, {ended.said}")
            found.append(results(folder))
            if not again:
                seconds, changes, size = ended.seconds, seen.count(), bytes_of(folder)
            if folder.name.startswith("undisturbed bb"):
                break
    shutil.rmtree(place / f"undisturbed a {name}")
    shutil.rmtree(place / f"undisturbed bb {name}")
    first, *others = found
    expected = {
        key: value
        for key, value in first.items()
        if all(other.get(key) == value for other in others) and not key.endswith(COUNTED_ON)
    }
    own = sorted({key for one in found for key in one} - set(expected))
    return Reference(seconds, changes, size, expected, own)


def bytes_of(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
