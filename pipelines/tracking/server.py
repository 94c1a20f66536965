"""MLflow's pages, and a tracking server of several people: PostgreSQL behind MLflow, both on this machine alone.

``python -m foretail.pipelines.tracking.server FOLDER`` (``make tracking-server``) keeps everything in a folder: the
database, the artifacts, which MLflow hands on, and the password. It ends both servers when it is interrupted.
"""

from __future__ import annotations

import argparse
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from foretail.core.errors import ForetailError, install_command
from foretail.models.mlflow.store import sqlite_file, store_exists, tracking_uri

LOOPBACK = "127.0.0.1"
USUAL_PORT = 5000
WORKERS = 2
START_SECONDS = 120
POSTGRES_USER = "postgres"
"""User that runs PostgreSQL, which refuses root, when root starts the server; and the database's own user."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted; 2 = it cannot be started."""
    parser = argparse.ArgumentParser(prog="make tracking-server", description=__doc__)
    parser.add_argument("folder", type=Path, help="of database and artifacts, made when missing")
    parser.add_argument("--port", type=int, default=USUAL_PORT)
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        serve(given.folder.absolute(), given.port, lambda line: print(line, flush=True))
    except ForetailError as error:
        print(f"foretail: {error}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0
    return 2


def show_pages(folder: Path, port: int) -> None:
    """Show the tracked runs of ``outputs`` in a folder until interrupted: ``foretail ui``.

    ForetailError when there is no tracked run, a server has the runs, or the port is taken.
    """
    uri = tracking_uri(None, folder / "outputs")
    file = sqlite_file(uri)
    if file is None:
        raise ForetailError(f"MLFLOW_TRACKING_URI names a server, which has pages of its own: open {uri}")
    if not store_exists(uri):
        raise ForetailError(f"there is no tracked run in {file} yet: train a model first, as make demo does")
    _require_free(port)
    print(f"MLflow shows {file} at http://{LOOPBACK}:{port}; Ctrl-C ends it", flush=True)
    settings = {"MLFLOW_BACKEND_STORE_URI": uri, "MLFLOW_DEFAULT_ARTIFACT_ROOT": (file.parent / "mlartifacts").as_uri()}
    with _running(_mlflow("ui", port), os.environ | settings) as pages:
        pages.wait()
    raise ForetailError("MLflow has ended by itself: its lines above say why")


def serve(folder: Path, port: int, say: Callable[[str], None]) -> None:
    """Run PostgreSQL and MLflow in front of it until interrupted.

    ForetailError without PostgreSQL or its driver for Python, when the port is taken, or when one of the two ends by
    itself.
    """
    programs, owner = postgres_programs(), _owner()
    try:
        import psycopg2  # noqa: F401
    except ImportError:
        raise ForetailError(f"psycopg2 is missing: {install_command('server')}") from None
    _require_free(port)
    folder.mkdir(parents=True, exist_ok=True)
    database, password_file = folder / "postgres", folder / "password"
    if not password_file.exists():
        with os.fdopen(os.open(password_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(24))
    password = password_file.read_text(encoding="utf-8")
    with ExitStack() as stack:
        # Its path is short, which a socket needs, and no port of the network leads to the database.
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="foretail-postgres-")))
        shutil.chown(place, owner.pw_uid, owner.pw_gid)
        if not database.exists():
            say(f"making the database in {database}")
            _make_database(programs, database, password, owner, place)
        options: list[str | Path] = ["-D", database, "-k", place]
        options += ["-c", "listen_addresses=", "-c", "logging_collector=off"]
        postgres = stack.enter_context(_running([programs / "postgres", *options], _environment(), owner))
        uri = f"postgresql+psycopg2://{POSTGRES_USER}:{password}@/{POSTGRES_USER}?host={place}"
        _wait(lambda: _answers(place, password), [postgres], "PostgreSQL")
        settings = {"MLFLOW_BACKEND_STORE_URI": uri, "MLFLOW_ARTIFACTS_DESTINATION": (folder / "artifacts").as_uri()}
        command = [*_mlflow("server", port), "--serve-artifacts"]
        mlflow = stack.enter_context(_running(command, os.environ | settings))
        _wait(lambda: _listens(port), [postgres, mlflow], "MLflow")
        say(f"tracking server at http://{LOOPBACK}:{port}, in {folder}; Ctrl-C ends it")
        say(f"elsewhere on this machine: export MLFLOW_TRACKING_URI=http://{LOOPBACK}:{port}")
        while all(process.poll() is None for process in (postgres, mlflow)):
            time.sleep(0.5)
    raise ForetailError("a part of the tracking server has ended by itself: its lines above say why")


def _mlflow(command: str, port: int) -> list[str | Path]:
    program = [sys.executable, "-m", "mlflow", command]
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")  # seven processes for what Foretail never asks
    return [*program, "--host", LOOPBACK, "--port", str(port), "--workers", str(WORKERS)]


def postgres_programs() -> Path:
    """The folder of PostgreSQL's programs: on PATH, else the newest where Debian and others put them."""
    on_path = shutil.which("initdb")
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    program = Path(on_path) if on_path else next(iter(versions[::-1]), None)
    if program is None:
        raise ForetailError(
            "there is no PostgreSQL on this machine (no initdb): install it, as apt install postgresql does, or stay "
            "with the SQLite file that needs no server"
        )
    return program.resolve().parent


def _owner() -> pwd.struct_passwd:
    """User that runs PostgreSQL: this user, or its own user when this one is root, whom it refuses."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    try:
        return pwd.getpwnam(POSTGRES_USER)
    except KeyError:
        raise ForetailError(
            f"PostgreSQL does not run as root, and there is no user {POSTGRES_USER}: start it as another user"
        ) from None


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except (OSError, OverflowError) as error:
            raise ForetailError(f"port {port} cannot be used ({error}): give another, as in --port 5055") from None


def _make_database(programs: Path, database: Path, password: str, owner: pwd.struct_passwd, place: Path) -> None:
    partial = database.with_name(f".{database.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a start that was interrupted
    partial.mkdir(mode=0o700)
    shutil.chown(partial, owner.pw_uid, owner.pw_gid)
    handed = place / "password"
    handed.touch(mode=0o600)
    handed.write_text(password, encoding="utf-8")
    shutil.chown(handed, owner.pw_uid, owner.pw_gid)
    arguments: list[str | Path] = ["-D", partial, "-U", POSTGRES_USER, "-A", "scram-sha-256", f"--pwfile={handed}"]
    done = subprocess.run(
        [programs / "initdb", *arguments, "-E", "UTF8", "--locale=C"],
        capture_output=True,
        text=True,
        errors="replace",
        cwd="/",
        env=_environment(),
        **_as(owner),
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        raise ForetailError(
            f"PostgreSQL cannot make its database in {database} ({reason}): give a folder that {owner.pw_name} reaches"
        )
    handed.unlink()
    partial.rename(database)


def _as(owner: pwd.struct_passwd) -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def _environment() -> dict[str, str]:
    """Without what is set for PostgreSQL's other servers."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


@contextmanager
def _running(
    command: Sequence[str | Path], environment: dict[str, str], owner: pwd.struct_passwd | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A server in a session of its own, so that Ctrl-C reaches it through this process, in order."""
    more = {} if owner is None else _as(owner)
    process = subprocess.Popen(command, cwd="/", env=environment, start_new_session=True, **more)
    # A shell that reads until this process is gone, however it ends, and then ends the server.
    end = f"cat; kill -s INT -- -{process.pid}; sleep 5; kill -s KILL -- -{process.pid}"
    guard = subprocess.Popen(
        ["/bin/sh", "-c", end],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        guard.kill()
        guard.wait()
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with suppress(ProcessLookupError):  # children that it left
            os.killpg(process.pid, signal.SIGKILL)


def _wait(ready: Callable[[], bool], processes: Sequence[subprocess.Popen[bytes]], name: str) -> None:
    end = time.monotonic() + START_SECONDS
    while not ready():
        if any(process.poll() is not None for process in processes) or time.monotonic() > end:
            raise ForetailError(f"{name} does not start: its lines above say why")
        time.sleep(0.1)


def _answers(place: Path, password: str) -> bool:
    import psycopg2

    try:
        psycopg2.connect(host=str(place), user=POSTGRES_USER, password=password, dbname=POSTGRES_USER).close()
    except psycopg2.OperationalError:
        return False
    return True


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


if __name__ == "__main__":
    sys.exit(main())
