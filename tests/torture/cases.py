"""One case: a command, a fault, and everything that has to hold afterwards."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from foretail.pipelines.runs.verification import verify
from tests.torture import checks, faults
from tests.torture.commands import COMMANDS, copy_template
from tests.torture.faults import Ended
from tests.torture.reference import Reference, bytes_of, reference

LEFTOVER_BYTES = 4_000_000
"""More than that must not be left after the next run: nothing that the small commands write is larger."""
ORPHAN_SECONDS = 20.0
FIRST_STORE = (
    "from foretail.models.mlflow.tracking import track\n"
    "with track('drops', {}, uri='sqlite:///outputs/mlflow.db'):\n    pass\n"
)


@dataclass
class Outcome:
    """What became of a case.

    Attributes
    ----------
    number, family, command, fault, moment : the case; the moment in words
    code : the exit code under the fault, None when it hung
    struck : whether the fault struck before the command ended
    lost : what cannot be had again: damage, an alias that nobody moved, a next run that fails
    different : values of the next run that are not those of an undisturbed one
    unclean : processes, locks, and leftovers above the limit
    rough : an exit code that is not promised, or a traceback
    silent : a damaged file that changed the result without an error
    unnamed : a damaged file that ``foretail verify`` does not name
    leftover_bytes, open_runs : what the next run has not removed, and runs that MLflow shows as running
    seconds : wall time of the case
    said : the last line on stderr under the fault
    """

    number: int
    family: str
    command: str
    fault: str
    moment: str = ""
    code: int | None = 0
    struck: bool = False
    lost: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    unclean: list[str] = field(default_factory=list)
    rough: str = ""
    silent: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    leftover_bytes: int = 0
    open_runs: int = 0
    seconds: float = 0.0
    said: str = ""

    @property
    def is_good(self) -> bool:
        """Whether nothing is lost, different or left, and no damage went unseen."""
        return not (self.lost or self.different or self.unclean or self.silent or self.unnamed)


def stop_case(outcome: Outcome, place: Path, random: np.random.Generator) -> None:
    """A signal at a random moment, or when the n-th file has changed; then the same command again."""
    undisturbed = reference(outcome.command, place)
    folder = case_folder(outcome, place)
    if random.random() < 0.5:
        second = undisturbed.seconds * float(random.uniform(0.1, 1.05))
        outcome.moment = f"after {second:.2f} s of {undisturbed.seconds:.1f}"
        strike = faults.at_second(outcome.fault, second)
    else:
        number = int(random.integers(1, max(undisturbed.changes, 1) + 1))
        outcome.moment = f"at change {number} of {undisturbed.changes}"
        strike = faults.at_change(outcome.fault, folder, number)
    arguments = COMMANDS[outcome.command].arguments()
    ended = faults.run(arguments, folder, most_seconds=_patience(undisturbed), strike=strike)
    _note(outcome, ended)
    _look_and_run_again(outcome, folder, undisturbed, place)


def limit_case(outcome: Outcome, place: Path, random: np.random.Generator) -> None:
    """The machine refuses something all along; then the same command again without that."""
    name, fault = outcome.command, outcome.fault
    undisturbed = reference(name, place)
    folder = case_folder(outcome, place)
    prepare, before = None, list[str]()
    if fault in ("full disk", "read-only") and not faults.can_mount():
        outcome.moment = "no mount namespace here: the largest file instead"
        fault = "largest file"
    if fault == "full disk":
        kilobytes = int(2 ** random.uniform(3, 11.5))
        before = faults.on_full_disk(folder, kilobytes)
        outcome.moment = f"{kilobytes} KB free"
    elif fault == "read-only":
        before = faults.on_read_only(folder)
        outcome.moment = "outputs is mounted read-only"
    elif fault == "clock set back":
        seconds = float(10 ** random.uniform(1, 8))
        faults.set_clock_back(folder, seconds)
        outcome.moment = f"every file is {seconds:.0f} s in the future"
    else:
        kind, value = {
            "largest file": (resource.RLIMIT_FSIZE, int(2 ** random.uniform(13, 20))),
            "open files": (resource.RLIMIT_NOFILE, int(random.integers(6, 80))),
            "memory": (resource.RLIMIT_AS, int(2 ** random.uniform(27, 32))),
        }[fault]
        prepare = faults.limit(kind, value)
        outcome.moment = f"{outcome.moment} {value:,}".strip()
    arguments = COMMANDS[name].arguments()
    ended = faults.run(arguments, folder, most_seconds=_patience(undisturbed), prepare=prepare, before=before)
    outcome.fault = fault
    _note(outcome, ended)
    _look_and_run_again(outcome, folder, undisturbed, place)


def store_case(outcome: Outcome, place: Path, random: np.random.Generator) -> None:
    """SIGKILL while the first tracking store is made; the next run has to make it."""
    folder = case_folder(outcome, place, empty=True)
    (folder / "outputs").mkdir()
    (folder / "tmp").mkdir()
    after = float(random.uniform(0, 4))
    outcome.moment = f"{after:.2f} s after .mlflow.db.partial came into being"
    strike = faults.at_partial(outcome.fault, folder / "outputs" / ".mlflow.db.partial", after)
    ended = faults.run(["-c", FIRST_STORE], folder, most_seconds=120, strike=strike)
    outcome.struck = ended.struck and not (folder / "outputs" / "mlflow.db").exists()
    _note(outcome, ended, struck=outcome.struck)
    end_orphans(outcome, folder)
    again = faults.run(["-c", FIRST_STORE], folder, most_seconds=120)
    if again.code != 0 or again.said:
        outcome.lost.append(f"the next run ends with {again.code}: {again.said}")
        return
    left = {path.name for path in (folder / "outputs").iterdir()}
    if left != {"mlflow.db", ".mlflow.db.lock", "mlartifacts"}:
        outcome.unclean.append(f"beside the store: {sorted(left)}")
    with closing(sqlite3.connect(folder / "outputs" / "mlflow.db")) as database:
        (found,) = database.execute("PRAGMA integrity_check").fetchone()
        (finished,) = database.execute("SELECT count(*) FROM runs WHERE status = 'FINISHED'").fetchone()
    if found != "ok" or not finished:
        outcome.lost.append(f"the store: {found}, {finished} finished runs")
    outcome.unclean += checks.held_locks(folder)


def server_case(outcome: Outcome, place: Path, random: np.random.Generator) -> None:
    """The MLflow server is killed in the middle and started again; then the same command again."""
    undisturbed = reference(outcome.command, place)
    folder = case_folder(outcome, place)
    port = faults.free_port()
    address = f"http://127.0.0.1:{port}"
    environment = {"MLFLOW_TRACKING_URI": address}
    second = undisturbed.seconds * float(random.uniform(0.1, 1.3))
    outcome.moment = f"after {second:.2f} s of {undisturbed.seconds:.1f} with a local file"
    arguments = COMMANDS[outcome.command].arguments()
    with faults.mlflow_server(folder, port) as server:

        def strike(process: object, so_far: float) -> bool:
            if so_far < second:
                return False
            os.killpg(server.pid, signal.SIGKILL)
            return True

        ended = faults.run(
            arguments,
            folder,
            most_seconds=10 * undisturbed.seconds + 120,
            environment=environment,
            strike=strike,
        )
    _note(outcome, ended)
    with faults.mlflow_server(folder, port):
        _look_and_run_again(outcome, folder, undisturbed, place, address, environment)


def case_folder(outcome: Outcome, place: Path, empty: bool = False) -> Path:
    """Make the folder of a case: a copy of the template, or an empty one."""
    folder = place / f"case-{outcome.number}"
    if empty:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    else:
        copy_template(place / "template", folder)
    return folder


def _patience(undisturbed: Reference) -> float:
    return 10 * undisturbed.seconds + 120


def _note(outcome: Outcome, ended: Ended, struck: bool | None = None) -> None:
    outcome.code, outcome.said = ended.code, ended.said
    outcome.struck = ended.struck if struck is None else struck
    if ended.code is None:
        outcome.unclean.append(f"hung for {ended.seconds:.0f} s")
    elif ended.code != 0 and ended.code not in faults.PROMISED[outcome.fault]:
        outcome.rough = f"exit code {ended.code}"
    elif ended.traceback and ended.code != 0 and outcome.fault not in faults.STOPS:
        outcome.rough = "a traceback"


def end_orphans(outcome: Outcome, folder: Path) -> None:
    """Wait for processes of the case that are just ending; those that stay are named, and ended."""
    since = time.monotonic()
    while (left := checks.processes(str(folder))) and time.monotonic() - since < ORPHAN_SECONDS:
        time.sleep(0.1)
    for process in left:
        outcome.unclean.append(f"process {process}")
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process.split()[0]), signal.SIGKILL)


def _look_and_run_again(
    outcome: Outcome,
    folder: Path,
    undisturbed: Reference,
    place: Path,
    address: str = "",
    environment: dict[str, str] | None = None,
) -> None:
    end_orphans(outcome, folder)
    outcome.unclean += [f"lock {lock}" for lock in checks.held_locks(folder)]
    found = verify(whole_paths(folder))
    outcome.lost += [f"damage: {sentence}" for sentence in found.damaged]
    database = folder / "outputs" / "mlflow.db"
    before = checks.aliases(place / "template" / "outputs" / "mlflow.db")
    for alias, model in checks.aliases(database).items():
        if model not in (before.get(alias), undisturbed.expected.get(f"alias {alias}")):
            outcome.lost.append(f"{alias} is {model}")
    arguments = COMMANDS[outcome.command].arguments()
    again = faults.run(arguments, folder, most_seconds=_patience(undisturbed), environment=environment)
    end_orphans(outcome, folder)
    if again.code != 0:
        outcome.lost.append(f"the next run ends with {again.code}: {again.said}")
        return
    outcome.different += differences(undisturbed.expected, checks.results(folder, address))
    outcome.unclean += [f"lock {lock}" for lock in checks.held_locks(folder)]
    found = verify(whole_paths(folder))
    outcome.lost += [f"after the next run: {sentence}" for sentence in (*found.damaged, *found.without_digest)]
    left = checks.leftovers(folder)
    outcome.leftover_bytes = max(sum(left.values()), bytes_of(folder) - undisturbed.bytes if left else 0)
    if outcome.leftover_bytes > LEFTOVER_BYTES:
        outcome.unclean.append(f"{outcome.leftover_bytes:,} bytes left in {', '.join(left)}")
    outcome.open_runs = checks.open_runs(database)


def whole_paths(folder: Path) -> list[str]:
    """The paths that ``foretail verify`` looks at: the datasets and ``outputs``."""
    return [str(path) for path in (*sorted(folder.glob("run-*")), folder / "outputs")]


def differences(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """Return the values that are missing or different."""
    wrong = [key for key, value in expected.items() if found.get(key) != value]
    return [f"{key}: {expected[key][:80]} is {found.get(key, 'missing')[:80]}" for key in wrong[:5]] + (
        [f"and {len(wrong) - 5} more"] if len(wrong) > 5 else []
    )


def perform(outcome: Outcome, work: Callable[..., None], place: Path, random: np.random.Generator) -> dict[str, Any]:
    """Do a case, remove its folder when all is well, and return its row of the journal."""
    since = time.monotonic()
    try:
        work(outcome, place, random)
    except Exception as error:  # no case ends the campaign
        outcome.unclean.append(f"the case itself failed: {type(error).__name__}: {error}")
    outcome.seconds = time.monotonic() - since
    if outcome.is_good:
        for left in _left_by(outcome, place):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()
    return asdict(outcome)


def _left_by(outcome: Outcome, place: Path) -> Sequence[Path]:
    return list(place.glob(f"case-{outcome.number}")) + list(place.glob(f"case-{outcome.number}.*"))
