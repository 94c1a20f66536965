"""Work on the nodes of a Ray cluster, which see the same files: ``launcher=ray`` (docs/cluster.md).

What travels between the processes is serialised by Ray, in a cluster whose processes are all ours; nothing that is
loaded comes from a file. Whoever reaches a port of a cluster can run code there: on one machine Ray listens on
127.0.0.1 alone, on several give it a private network and a token.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import platform
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from foretail.features.errors import ForetailError
from foretail.pipelines.errors import BAD_INPUT, sentence
from foretail.pipelines.progress import StageProgress
from foretail.pipelines.store import code_digest

Result = TypeVar("Result")

RETRIES = 3
"""How often work is begun again whose node was lost."""
CONNECT_SECONDS = 5.0
CANCEL_SECONDS = 30.0
LOOPBACK = ("127.0.0.1", "localhost")
_OFF_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""By this variable Ray decides whether it takes the machine's own address for 127.0.0.1, and listens to everybody."""


def run_on_cluster(
    title: str, points: Mapping[str, Callable[[Callable[[float, str], None]], Result]], address: str
) -> tuple[dict[str, Result], dict[str, str]]:
    """Run independent `points` on a Ray cluster, each on one CPU; a bad one ends nothing but itself.

    Points of a node that is lost begin again on another. Ctrl-C and defects stop everything.

    Parameters
    ----------
    title : for the progress
    points : what to run, by name; called with a function that takes progress, which does not leave the node
    address : of the cluster's head, ``host:port``

    Returns
    -------
    tuple
        The results and, of the points that failed, one sentence each, both by name in the order given.

    Raises
    ------
    ForetailError
        If Ray is not installed, or there is no cluster at `address`.
    """
    found: dict[str, Result] = {}
    failed: dict[str, str] = {}
    if not points:
        return found, failed
    with _cluster(address) as ray, StageProgress() as progress:
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_run)
        code, folder = _code(), Path.cwd()
        running = {remote.remote(point, code, folder): name for name, point in points.items()}
        try:
            while running:
                ended = len(found) + len(failed)
                progress.update(title, ended / len(points), f"{ended:,} of {len(points):,} points")
                (task,), _ = ray.wait(list(running), num_returns=1)
                name = running.pop(task)
                try:
                    found[name] = ray.get(task)
                except ray.exceptions.RayTaskError as raised:
                    if not isinstance(raised.cause, BAD_INPUT):
                        raise
                    failed[name] = sentence(raised.cause)
                except ray.exceptions.RayError as lost:
                    failed[name] = f"Ray gave it up: {_first_line(lost)}"
        finally:
            for task in running:
                ray.cancel(task)
            if running:  # so that they remove what they have begun; what is killed is removed by the next builder
                ray.wait(list(running), num_returns=len(running), timeout=CANCEL_SECONDS)
    return (
        {name: found[name] for name in points if name in found},
        {name: failed[name] for name in points if name in failed},
    )


@contextlib.contextmanager
def _cluster(address: str) -> Iterator[Any]:
    """The module ``ray``, connected."""
    if importlib.util.find_spec("ray") is None:
        raise ForetailError("launcher=ray needs Ray, which is not installed: pip install 'foretail[ray]'")
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise ForetailError(
            f"no Ray cluster answers at launcher.address = {address} ({error.strerror or error}): "
            "start it there, as docs/cluster.md says, or choose launcher=local"
        ) from error
    if host in LOOPBACK:
        os.environ.setdefault(_OFF_LOOPBACK, "0")
    import ray

    try:
        ray.init(address, log_to_driver=False, configure_logging=False)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError) as error:
        raise ForetailError(
            f"cannot join the Ray cluster at launcher.address = {address}: {_first_line(error)}; "
            "docs/cluster.md says how one starts, and this process needs the same RAY_AUTH_TOKEN"
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
    """What a point says of itself stays on its node."""


@functools.cache
def _code() -> str:
    return code_digest("configs", "pipelines", "export", "models", "sim_bridge", "features")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".:")
