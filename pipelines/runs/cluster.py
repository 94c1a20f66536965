"""Work on the nodes of a Ray cluster, which see the same files: ``launcher=ray`` (docs/guide/install.md).

What travels between the processes is serialised by Ray, in a cluster whose processes are all ours; nothing that is
loaded comes from a file. Whoever reaches a port of a cluster can run code there: on one machine Ray listens on
127.0.0.1 alone, on several give it a private network and a token.

A process of its own talks with the cluster, because Ray ends the process that cancels a task which is just ending
(https://github.com/ray-project/ray/pull/54785), and Ctrl-C must not depend on that.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import multiprocessing
import os
import platform
import signal
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from foretail.core.code import code_digest
from foretail.core.errors import ForetailError, first_line
from foretail.core.plugins import study_packages
from foretail.pipelines.errors import is_bad_input, sentence
from foretail.pipelines.runs.progress import StageProgress

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
    return point(_unheard)


def _unheard(fraction: float, words: str) -> None:
    """Ignore a point's progress, which stays on its node."""


@functools.cache
def _code() -> str:
    return code_digest("configs", "pipelines", "export", "models", "sim_bridge", "features", "core", *study_packages())
