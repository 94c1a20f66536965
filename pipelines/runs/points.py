"""Points of an experiment: each measured once, some at a time, and kept in the store; and the files that are left.

A sweep that was stopped goes on where it was, and one that is repeated computes nothing. A point that fails is named
when the others are done; the same command then measures it again.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import itertools
import multiprocessing
import os
import platform
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from foretail.configs.schema.tracking import Launcher
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError, first_line
from foretail.core.files import staged_files
from foretail.core.plugins import study_packages
from foretail.models.scoring.figure_style import FIGURE_KINDS, figure_style
from foretail.pipelines.errors import PointsFailed, is_bad_input, sentence
from foretail.pipelines.runs.progress import StageProgress

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Result = TypeVar("Result")

RETRIES = 3
"""How often work is begun again whose node was lost."""
CONNECT_SECONDS = 5.0
CANCEL_SECONDS = 30.0
POLL_SECONDS = 1.0
LOOPBACK = ("127.0.0.1", "localhost")
_OFF_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""By this variable Ray decides whether it takes the machine's own address for 127.0.0.1, and listens to everybody."""


def run_on_cluster(
    title: str, points: Mapping[str, Callable[[Callable[[float, str], None]], Result]], address: str
) -> tuple[dict[str, Result], dict[str, str]]:
    """Run independent `points` on a Ray cluster, each on one CPU; a bad one ends nothing but itself.

    Points of a node that is lost begin again on another. Ctrl-C and defects stop everything. Returns the results and,
    of the points that failed, one sentence each, both by name in the order given. ForetailError if Ray is not
    installed, or there is no cluster at `address`.

    Parameters
    ----------
    title : for the progress
    points : what to run, by name; called with a function that takes progress, which does not leave the node
    address : of the cluster's head, ``host:port``
    """
    results: dict[str, Result] = {}
    failed: dict[str, str] = {}
    if not points:
        return results, failed
    _check_cluster(address)
    if address.rpartition(":")[0] in LOOPBACK:
        os.environ.setdefault(_OFF_LOOPBACK, "0")  # read when Ray is imported, here and in the driver
    cloudpickle: Any = importlib.import_module("ray.cloudpickle")
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    driver = spawn.Process(target=_drive, args=(cloudpickle.dumps(dict(points)), address, there), daemon=True)
    with StageProgress() as progress, here:
        try:
            driver.start()
            there.close()  # so that the end of the driver ends the pipe
            while (ended := len(results) + len(failed)) < len(points):
                progress.update(title, ended / len(points), f"{ended:,} of {len(points):,} points")
                try:
                    name, outcome = cloudpickle.loads(here.recv_bytes())  # from our own child
                except EOFError as gone:
                    driver.join()
                    raise ForetailError(
                        f"Ray ended the process that talks with the cluster at {address} (exit code "
                        f"{driver.exitcode}): start the same command again, which goes on where this one was"
                    ) from gone
                if isinstance(outcome, BaseException):
                    raise outcome
                if isinstance(outcome, _Failed):
                    failed[name] = outcome.sentence
                else:
                    results[name] = outcome
            driver.join(CANCEL_SECONDS)
        finally:
            if driver.is_alive():
                driver.terminate()
                driver.join(2 * CANCEL_SECONDS)
                driver.kill()
    return in_order(points, results), in_order(points, failed)


def in_order(points: Iterable[str], outcomes: Mapping[str, Result]) -> dict[str, Result]:
    """The outcomes of points, in the order of these."""
    return {name: outcomes[name] for name in points if name in outcomes}


@dataclass(frozen=True)
class _Failed:
    """Reason why a point failed, in one sentence."""

    sentence: str


def _drive(pickled_points: bytes, address: str, results: Connection) -> None:
    """In a process of its own: run the points on the cluster and send what comes of each, by name."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to both processes; the other one decides
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parent = os.getppid()
    cloudpickle: Any = importlib.import_module("ray.cloudpickle")

    def send(name: str | None, outcome: object) -> None:
        results.send_bytes(cloudpickle.dumps((name, outcome)))

    points = cloudpickle.loads(pickled_points)
    try:
        with _joined(address) as ray:
            remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_run)
            code, folder = _code(), Path.cwd()
            running = {remote.remote(point, code, folder): name for name, point in points.items()}
            try:
                while running and os.getppid() == parent:
                    done, _ = ray.wait(list(running), num_returns=1, timeout=POLL_SECONDS)
                    for task in done:
                        name = running.pop(task)
                        try:
                            send(name, ray.get(task))
                        except ray.exceptions.RayTaskError as raised:
                            send(name, _Failed(sentence(raised.cause)) if is_bad_input(raised.cause) else raised)
                        except ray.exceptions.RayError as lost:
                            send(name, _Failed(f"Ray gave it up: {first_line(lost)}"))
            finally:
                if running:
                    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # Ray tells of its own end at length
                for task in running:
                    ray.cancel(task)
                if running:  # so that they remove what they have begun; what is killed is removed by the next builder
                    ray.wait(list(running), num_returns=len(running), timeout=CANCEL_SECONDS)
    except KeyboardInterrupt:
        return
    except ForetailError as error:
        send(None, error)


def _check_cluster(address: str) -> None:
    """Check that something answers at `address`."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise ForetailError(
            f"no Ray cluster answers at launcher.address = {address} ({error.strerror or error}): "
            "start it there, as docs/guide/install.md says, or choose launcher=local"
        ) from error


@contextlib.contextmanager
def _joined(address: str) -> Iterator[Any]:
    """The module ``ray``, connected."""
    import ray

    try:
        ray.init(address, log_to_driver=False, configure_logging=False)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError) as error:
        raise ForetailError(
            f"cannot join the Ray cluster at launcher.address = {address}: {first_line(error)}; "
            "docs/guide/install.md says how one starts, and this process needs the same RAY_AUTH_TOKEN"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _run(point: Callable[[Callable[[float, str], None]], Result], code: str, folder: Path) -> Result:
    """On a node: `point`, in the folder of whoever wants it."""
    if _code() != code:
        raise ForetailError(f"{platform.node()} has another version of Foretail: install the same on all nodes")
    try:
        os.chdir(folder)
    except OSError as error:
        raise ForetailError(f"{platform.node()} does not see {folder}: all nodes need the same file system") from error
    return point(lambda fraction, words: None)  # progress stays on its node


@functools.cache
def _code() -> str:
    return code_digest("configs", "pipelines", "export", "models", "sim_bridge", "features", "core", *study_packages())


Report = Callable[[float, str], None]
"""Called by a job with the fraction that is done (0 to 1) and a few words; raises when the job has to stop."""


class _Stopped(Exception):
    """Raised inside a job whose stage was interrupted or whose neighbour failed."""


def run_jobs(tasks: Mapping[str, Callable[[Report], Result]], jobs: int) -> dict[str, Result]:
    """Run `tasks` with at most `jobs` at the same time and return their results by name, in the order given.

    The first error, or Ctrl-C, stops the others at their next report and is raised once all have ended. Notes and
    readings of the tasks reach the command.
    """
    stop = threading.Event()
    with StageProgress() as progress, ThreadPoolExecutor(jobs) as pool:

        def run(name: str, task: Callable[[Report], Result]) -> Result:
            def report(fraction: float, detail: str) -> None:
                if stop.is_set():
                    raise _Stopped
                progress.update(name, fraction, detail)

            report(0.0, "")
            result = task(report)
            progress.update(name, 1.0, "")
            return result

        try:  # Ctrl-C may come before the last job is submitted
            futures = {name: pool.submit(copy_context().run, run, name, task) for name, task in tasks.items()}
            done, _ = wait(futures.values(), return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            return {name: future.result() for name, future in futures.items()}
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


def run_points(
    title: str, points: Mapping[str, Callable[[Report], Result]], jobs: int, launcher: Launcher | None = None
) -> tuple[dict[str, Result], dict[str, str]]:
    """Run independent `points`; a bad one ends nothing but itself.

    Returns the results and, of the points that failed, one sentence each, both by name in the order given. Ctrl-C and
    defects stop everything, as in :func:`run_jobs`.

    Parameters
    ----------
    title : for the progress, which is that of all points together, with the time that is left
    points : what to run, by name; with a cluster their arguments and results travel between processes
    jobs : points at the same time on this machine
    launcher : where they run; None: here
    """
    if launcher is not None and launcher.name == "ray":
        return run_on_cluster(title, points, launcher.address)
    waiting = iter(points.items())
    results: dict[str, Result] = {}
    failed: dict[str, str] = {}
    running: dict[str, float] = {}
    started = time.monotonic()

    def work(report: Report) -> None:
        for name, point in waiting:  # shared by all jobs

            def so_far(fraction: float, words: str, name: str = name) -> None:
                running[name] = fraction
                ended = len(results) + len(failed)
                done = (ended + sum(list(running.values()))) / len(points)
                left = "" if done == 0 else f", {_minutes((time.monotonic() - started) * (1 - done) / done)} left"
                report(done, f"{ended:,} of {len(points):,} points{left}, now {name}, {words}".removesuffix(", "))

            try:
                so_far(0.0, "")
                results[name] = point(so_far)
            except Exception as error:
                if not is_bad_input(error):
                    raise
                failed[name] = sentence(error)
            finally:
                running.pop(name, None)

    workers = min(jobs, len(points))
    run_jobs({f"{title} {worker + 1} of {workers}": work for worker in range(workers)}, max(workers, 1))
    return in_order(points, results), in_order(points, failed)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


NAMED = 5
"""Number of the failed points that the error names."""

SoFar = Callable[[str], None]
"""Called while a point is measured, with a few words; raises when the sweep has to stop."""


def points_failed(failed: Mapping[str, str], points: int) -> PointsFailed:
    """Error that names the failed points among so many, with a sentence each."""
    named = [f"{name}: {reason.rstrip('.')}" for name, reason in itertools.islice(failed.items(), NAMED)]
    named += [f"{len(failed) - NAMED:,} more"] if len(failed) > NAMED else []
    return PointsFailed(
        f"{len(failed):,} of {points:,} points failed, and running again repeats only those: {'; '.join(named)}"
    )


def write_figure(run_dir: Path, name: str, figure: Figure, numbers: pd.DataFrame) -> tuple[str, ...]:
    """Write a figure of a stage with its numbers into the run folder; returns the names of the files."""
    written = write_files(run_dir, {f"{name}.csv": numbers, **{f"{name}.{kind}": figure for kind in FIGURE_KINDS}})
    return tuple(path.name for path in written)


def write_files(run_dir: Path, files: Mapping[str, pd.DataFrame | Figure]) -> tuple[Path, ...]:
    """Write tables (CSV, Parquet) and figures (PDF, PNG, SVG) by name into the run folder; a file appears whole."""
    from matplotlib.figure import Figure

    with staged_files(run_dir) as staging, figure_style():
        for name, content in files.items():
            path = staging / name
            if isinstance(content, Figure):
                content.savefig(path)
            elif path.suffix == ".parquet":
                content.to_parquet(path, index=False)
            else:
                content.to_csv(path, index=False)
    return tuple(run_dir / name for name in sorted(files))
