"""Damaged files: each is damaged in one way, looked for by ``foretail verify``, and read by a command."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from foretail.pipelines.runs.verification import verify
from tests.torture import checks, faults
from tests.torture.cases import Outcome, _patience, case_folder, differences, whole_paths
from tests.torture.commands import COMMANDS
from tests.torture.reference import reference

READERS: dict[str, tuple[str, ...]] = {
    "run-[123]": ("train",),
    "run-[35]": ("replay, datasets",),
    "run-[567]": ("promote",),
    "outputs/strong": ("report", "export, C", "export, P4", "export, ONNX"),
    "outputs/weak": ("replay, datasets",),
    "outputs/store/[!mn]*": ("collect, slots", "collect, ns-3", "evaluate, slots", "evaluate, ns-3", "points"),
    "outputs/run": ("report", "schedule", "collect, slots", "evaluate, slots", "demand"),
    "outputs/mlartifacts": ("promote",),
}
"""Folders whose files are damaged, and commands that read them; in the store and in its run folder a command reads
again what it has written itself."""

TRACKED = "outputs/mlartifacts"
GIVEN = ("store/", "strong/", "weak/")
"""Values that are no result of the command, or of entries that go by what was damaged."""
WAYS = (
    "a bit flipped",
    "cut in half",
    "emptied",
    "deleted",
    "another file in its place",
    "a byte more",
    "a digit changed",
)


def damage_case(outcome: Outcome, place: Path, random: np.random.Generator) -> None:
    """Damage one file, verify, and run a command that reads it."""
    below = str(random.choice(list(READERS)))
    outcome.command = str(random.choice(READERS[below]))
    undisturbed = reference(outcome.command, place)
    folder = case_folder(outcome, place)
    arguments = COMMANDS[outcome.command].arguments()
    if below.startswith(("outputs/store", "outputs/run")):
        faults.run(arguments, folder, most_seconds=_patience(undisturbed))
    files = [path for root in folder.glob(below) for path in sorted(root.rglob("*")) if path.is_file()]
    path = files[int(random.integers(len(files)))]
    damage(path, outcome.fault, files, random)
    relative = path.relative_to(folder).as_posix()
    models = below == TRACKED and path.name == "ensemble.json" and "models" not in path.parts
    outcome.moment = f"{below}: {relative}"
    found = verify(whole_paths(folder))
    said = [*found.damaged, *found.without_digest]
    if not any(str(path) in line or str(path.parent) in line for line in said) and not (models and said):
        outcome.unnamed.append(relative)
    ended = faults.run(arguments, folder, most_seconds=_patience(undisturbed))
    outcome.code, outcome.said, outcome.struck = ended.code, ended.said, True
    if ended.code is None:
        outcome.unclean.append("hung")
    elif ended.code != 0:
        outcome.rough = "" if ended.code == 2 and not ended.traceback else f"exit code {ended.code}"
    else:
        made = {key: value for key, value in undisturbed.expected.items() if not key.startswith(GIVEN)}
        outcome.silent = differences(made, checks.results(folder))


def damage(path: Path, way: str, files: list[Path], random: np.random.Generator) -> None:
    """Damage a file; in one of the ways that change it."""
    content = path.read_bytes()
    digits = [at for at, byte in enumerate(content) if 48 <= byte <= 57]
    others = [other for other in files if other.suffix == path.suffix and other.read_bytes() != content]
    if way == "another file in its place" and others:
        shutil.copyfile(others[int(random.integers(len(others)))], path)
    elif way == "deleted":
        path.unlink()
    elif way == "emptied" and content:
        path.write_bytes(b"")
    elif way == "cut in half" and content:
        path.write_bytes(content[: len(content) // 2])
    elif way == "a digit changed" and digits:
        at = digits[int(random.integers(len(digits)))]
        path.write_bytes(content[:at] + bytes([48 + (content[at] - 47) % 10]) + content[at + 1 :])
    elif way == "a bit flipped" and content:
        at, bit = int(random.integers(len(content))), 1 << int(random.integers(8))
        path.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
    else:
        path.write_bytes(content + b"\n")
