"""The faults: how a command is started under one, when it strikes, and which exit codes are promised then."""

from __future__ import annotations

import os
import resource
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from urllib.request import urlopen

from tests.torture.checks import MARK
from tests.torture.commands import clean

STOPS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
LIMITS = ("full disk", "largest file", "read-only", "open files", "memory", "clock set back")

PROMISED = {
    "SIGKILL": (-9,),
    "SIGTERM": (143, -15),  # by the signal itself while Python starts
    "SIGINT": (130, -2),
    "server killed": (2, 4),
    "full disk": (2, 4),
    "largest file": (2, 4),
    "read-only": (2,),
    "open files": (2, 4),
    "memory": (2, 4),
    "clock set back": (),
}
"""Exit codes beside 0: 2 is one sentence about the machine, 4 a sweep of which points failed."""

_POLL_SECONDS = 0.004

Strike = Callable[[subprocess.Popen[bytes], float], bool]
"""Called again and again with the process and the seconds so far; returns whether the fault struck."""


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes
    ----------
    code : exit code; None when it hung and was killed
    seconds : wall time
    said : its last line on stderr
    struck : whether the fault struck before it ended
    traceback : whether it printed one
    """

    code: int | None
    seconds: float
    said: str
    struck: bool
    traceback: bool


def run(
    arguments: Sequence[str],
    folder: Path,
    *,
    most_seconds: float,
    environment: Mapping[str, str] | None = None,
    prepare: Callable[[], None] | None = None,
    before: Sequence[str] = (),
    strike: Strike | None = None,
) -> Ended:
    """Run the interpreter with arguments in a session of its own and wait for its end.

    Parameters
    ----------
    arguments : of the interpreter
    folder : where it runs, by which its processes are marked; its ``tmp`` is the place of temporary files
    most_seconds : then it hangs, and is killed
    environment : more variables
    prepare : called in the child before the interpreter starts
    before : a program that starts the interpreter
    strike : makes the fault strike
    """
    said = folder.with_name(f"{folder.name}.stderr")
    variables = clean() | {MARK: str(folder), "TMPDIR": str(folder / "tmp")} | dict(environment or {})
    started = time.monotonic()
    with said.open("wb") as stderr:
        process = subprocess.Popen(
            [*before, sys.executable, *arguments],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            preexec_fn=prepare,
            start_new_session=True,
        )
        struck = strike is None
        hung = False
        while process.poll() is None:
            if not struck and strike is not None:
                struck = strike(process, time.monotonic() - started)
            if time.monotonic() - started > most_seconds:
                hung = True
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            time.sleep(_POLL_SECONDS if not struck else 5 * _POLL_SECONDS)
    lines = said.read_text(errors="replace").strip().splitlines()
    return Ended(
        None if hung else process.returncode,
        time.monotonic() - started,
        lines[-1][:300] if lines else "",
        struck,
        any(line.startswith("Traceback") for line in lines),
    )


def _when(name: str, is_due: Callable[[float], bool]) -> Strike:
    """Return a strike with a signal when what is told of the seconds so far holds."""

    def strike(process: subprocess.Popen[bytes], so_far: float) -> bool:
        if not is_due(so_far):
            return False
        if name == "SIGINT":
            os.killpg(process.pid, signal.SIGINT)  # Ctrl-C reaches every process of the terminal
        else:
            process.send_signal(STOPS[name])
        return True

    return strike


def at_second(name: str, second: float) -> Strike:
    """Return a strike with a signal after so many seconds."""
    return _when(name, lambda so_far: so_far >= second)


def at_change(name: str, folder: Path, number: int) -> Strike:
    """Return a strike with a signal when the files of a folder have changed so many times."""
    seen = Changes(folder)
    return _when(name, lambda _: seen.count() >= number)


def at_partial(name: str, file: Path, after: float) -> Strike:
    """Return a strike with a signal so many seconds after a file came into being."""
    since: list[float] = []

    def is_due(so_far: float) -> bool:
        if not since and file.exists():
            since.append(so_far)
        return bool(since) and so_far - since[0] >= after

    return _when(name, is_due)


class Changes:
    """Counts how often the names and sizes of the files below a folder were found changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last = self._look()
        self._count = 0

    def count(self) -> int:
        """Look, and return the count so far."""
        found = self._look()
        self._count += found != self._last
        self._last = found
        return self._count

    def _look(self) -> frozenset[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        waiting = [str(self._folder)]
        while waiting:
            try:
                with os.scandir(waiting.pop()) as entries:
                    for entry in entries:
                        folder = entry.is_dir(follow_symlinks=False)
                        if folder:
                            waiting.append(entry.path)
                        found.append((entry.path, 0 if folder else entry.stat(follow_symlinks=False).st_size))
            except OSError:
                continue
        return frozenset(found)


def limit(kind: int, value: int) -> Callable[[], None]:
    """Return what sets a resource limit in a child."""
    return partial(resource.setrlimit, kind, (value, value))


@cache
def can_mount() -> bool:
    """Whether this machine lets us mount a file system in a namespace of our own."""
    try:
        done = subprocess.run(["unshare", "-Urm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True)
    except OSError:
        return False
    return done.returncode == 0


def on_full_disk(folder: Path, kilobytes: int) -> list[str]:
    """Return what runs a command with its folder on a disk of so many free kilobytes, and keeps what it left there."""
    place, disk, below = shlex.quote(str(folder)), folder.with_name(f"{folder.name}.disk"), f"{folder}.below"
    script = f"""
mkdir -p {disk} {below}
mount --bind {place} {below}
used=$(du -sk {place} | cut -f1)
mount -t tmpfs -o size=$((used + {kilobytes}))k none {disk}
cp -a {below}/. {disk}/
mount --bind {disk} {place}
cd {place}
"$@"
code=$?
rm -rf {below}/* {below}/.[!.]*
cp -a {disk}/. {below}/
exit $code
"""
    return ["unshare", "-Urm", "bash", "-c", script, "bash"]


def on_read_only(folder: Path) -> list[str]:
    """Return what runs a command whose ``outputs`` is read-only; for root too."""
    outputs = shlex.quote(str(folder / "outputs"))
    script = f'mount --bind {outputs} {outputs} && mount -o remount,ro,bind {outputs} && cd {outputs}/.. && exec "$@"'
    return ["unshare", "-Urm", "bash", "-c", script, "bash"]


def set_clock_back(folder: Path, seconds: float) -> None:
    """Let every file be of the future, as it is when the clock was set back after it was written."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            status = path.stat()
            os.utime(path, (status.st_atime + seconds, status.st_mtime + seconds))


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for_mlflow(server: subprocess.Popen[bytes], port: int) -> None:
    """Wait until MLflow's server answers on a port."""
    since = time.monotonic()
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                return
        except OSError:
            if server.poll() is not None or time.monotonic() - since > 120:
                raise RuntimeError("MLflow's server does not start") from None
            time.sleep(0.1)


@contextmanager
def mlflow_server(
    folder: Path, port: int, artifacts: str = "--default-artifact-root", workers: int = 1
) -> Iterator[subprocess.Popen[bytes]]:
    """Run MLflow's server on the database of a folder, whose artifacts clients write by default; killed at the end."""
    outputs = folder / "outputs"
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)),
        *("--workers", str(workers), "--backend-store-uri", f"sqlite:///{outputs / 'mlflow.db'}", artifacts),
        (outputs / "mlartifacts").as_uri(),
    ]
    environment = clean() | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # seven processes for what nobody asks
    with folder.with_name(f"{folder.name}.server").open("ab") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for_mlflow(server, port)
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
