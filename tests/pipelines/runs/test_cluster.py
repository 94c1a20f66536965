"""Sweeps on a Ray cluster of two nodes on this machine: stopped, resumed, and finished when a node is killed."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from foretail.pipelines import cli
from tests.composed import result_in

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray, the extra ray, is not installed"),
]

SWEEP = [
    "run",
    "vermilion_fig9_5",
    "tracking=off",
    "size=small",
    "k=4",
    "matrices=[ring,random]",
    "deviations=[0,1,2,3,4,5,6,7,8,10]",
    "samples=4",
]
POINTS = 20
HEAD = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--include-dashboard=false"]
NODE = """
from ray._private import services
from ray.scripts.scripts import main
services.resolve_ip_for_localhost = lambda host: host
main()
"""
"""``ray start`` of a second node of the same machine on 127.0.0.1, for which Ray takes the machine's address."""


@dataclass(frozen=True)
class Cluster:
    """A head and a second node, each with one CPU.

    Attributes
    ----------
    address : of the head
    environment : of whoever joins
    head, node : sessions of processes
    """

    address: str
    environment: dict[str, str]
    head: subprocess.Popen[str]
    node: subprocess.Popen[str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = os.environ | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        # a dead node is known after seconds
        "RAY_health_check_initial_delay_ms": "1000",
        "RAY_health_check_period_ms": "1000",
        "RAY_health_check_failure_threshold": "3",
    }
    with contextlib.ExitStack() as stack:
        # sockets lie in this folder, and their paths have to be short
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True))
        on_loopback = environment | {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        port = address.partition(":")[2]
        head = stack.enter_context(started([*HEAD, f"--port={port}", f"--temp-dir={folder}"], on_loopback))
        joining = [sys.executable, "-c", NODE, "start", f"--address={address}"]
        node = stack.enter_context(started(joining, environment))
        yield Cluster(address, environment, head, node)


@contextlib.contextmanager
def started(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A node that is ready, in a session of its own, which ends with the context."""
    settings = ["--node-ip-address=127.0.0.1", "--num-cpus=1", "--object-store-memory=80000000", "--block"]
    with subprocess.Popen(
        [*command, *settings],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    ) as node:
        try:
            assert node.stdout is not None
            said = []
            for line in node.stdout:
                said.append(line)
                if "Ray runtime started" in line:
                    break
            else:
                pytest.fail("".join(said))
            threading.Thread(target=node.stdout.read, daemon=True).start()  # a full pipe would block the node
            yield node
        finally:
            kill(node)


def kill(node: subprocess.Popen[str]) -> None:
    """SIGKILL to every process of a node."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(node.pid, signal.SIGKILL)


def opened(session: int) -> dict[int, list[str]]:
    """What the processes of a session have open, by process."""
    found: dict[int, list[str]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if os.getsid(int(process.name)) == session:
                found[int(process.name)] = [str(file.readlink()) for file in (process / "fd").iterdir()]
    return found


def listening(session: int) -> list[str]:
    """Local addresses, in hexadecimal, at which a session listens for connections."""
    sockets = {file for files in opened(session).values() for file in files if file.startswith("socket:")}
    rows = [
        line.split()
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text("ascii").splitlines()[1:]
    ]
    return [row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


def builds(session: int) -> bool:
    """Whether a process of a session is building an entry of a store."""
    return any(".partial-" in file for files in opened(session).values() for file in files)


def wait_for(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not happened():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


def started_sweep(cluster: Cluster, folder: Path) -> subprocess.Popen[str]:
    where = [f"store_dir={folder / 'store'}", f"hydra.run.dir={folder / 'ray'}"]
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "foretail.pipelines.cli",
            *SWEEP,
            *where,
            "launcher=ray",
            f"launcher.address={cluster.address}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=cluster.environment,
        cwd=folder,
        start_new_session=True,
    )


def result(folder: Path) -> dict[str, Any]:
    return result_in(folder)


@pytest.mark.nightly
def test_stopped_resumed_and_without_a_node_that_was_killed_the_results_are_the_same(
    cluster: Cluster, tmp_path: Path
) -> None:
    entries = tmp_path / "store" / "schedule_noise"

    def finished() -> int:
        return len(list(entries.glob("[0-9a-f]*")))

    with started_sweep(cluster, tmp_path) as stopped:
        wait_for(lambda: finished() >= 1 and builds(cluster.node.pid), stopped)
        for session in (cluster.head.pid, cluster.node.pid, stopped.pid):
            addresses = listening(session)
            assert addresses
            assert {address[-8:] for address in addresses} == {"0100007F"}  # 127.0.0.1, the low byte first
        stopped.send_signal(signal.SIGINT)
        assert stopped.wait() == cli.EXIT_INTERRUPTED
    before = finished()
    assert 1 <= before < POINTS

    with started_sweep(cluster, tmp_path) as resumed:
        wait_for(lambda: finished() > before and builds(cluster.node.pid), resumed)
        kill(cluster.node)
        said = resumed.communicate()
    assert resumed.returncode == 0, said
    assert before < finished() == POINTS
    assert not list(entries.glob(".*"))

    where = [f"store_dir={tmp_path / 'other'}", f"hydra.run.dir={tmp_path / 'local'}"]
    assert cli.main([*SWEEP, *where, "launcher=local"]) == 0
    on_cluster, here = result(tmp_path / "ray"), result(tmp_path / "local")
    assert on_cluster["curves"] == here["curves"]
    name = f"{here['experiment']}.parquet"
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "ray" / name), pd.read_parquet(tmp_path / "local" / name))
    assert f"{POINTS} points, {before} of them reused" in said[0]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at launcher.address = 127.0.0.1:1"),
        ("ray://somewhere", "launcher.address = ray://somewhere is not HOST:PORT"),
        ("127.0.0.1:65536", "launcher.address = 127.0.0.1:65536 is not HOST:PORT"),
    ],
)
def test_where_no_cluster_is_one_sentence_says_so(
    address: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [f"store_dir={tmp_path / 'store'}", f"hydra.run.dir={tmp_path / 'run'}"]
    assert cli.main([*SWEEP, *where, "launcher=ray", f"launcher.address={address}"]) == cli.EXIT_BAD_INPUT
    assert words in capsys.readouterr().err
