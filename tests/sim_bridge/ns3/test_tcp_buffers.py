"""The driver's own TCP buffers against ns-3's, which a debug build keeps: the same bytes whatever is lost.

Costs the build of a debug driver, unless test_ns3_driver.py has built it, and half a minute of simulations.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.sim_bridge.ns3.driver import build_driver, run_driver
from foretail.sim_bridge.ns3.messages.elephants import elephants
from foretail.sim_bridge.ns3.messages.message import columns
from tests.scenarios import MILLISECOND, settings

pytestmark = pytest.mark.ns3

ELEPHANTS = {
    "topology__spines": 4,
    "topology__buffer_bytes_per_port_per_gbps": 1280,
    "background__size_bytes": [3_999_999, 4_000_000],
    "background__cumulative": [0, 1],
    "incast__burst_fraction": 2.0,
}
"""Long flows that fill shallow buffers, so that retransmissions are lost again."""


def both(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """Run both drivers, compare what they wrote, and return the summary."""
    runs = []
    for debug in (False, True):
        folder = tmp_path / ("debug" if debug else "release")
        folder.mkdir()
        runs.append(run_driver(settings(trace=True, **changes), folder, executable=build_driver(debug=debug)))
    for name in ("flows.bin", "arrivals.bin", "occupancy.bin"):
        ours, theirs = ((run.folder / name).read_bytes() for run in runs)
        assert ours == theirs, name
    assert runs[0].summary["events"] == runs[1].summary["events"]
    timed_out = np.count_nonzero(runs[0].flows()["timeouts"])
    return runs[0].summary | {"timed_out": timed_out}


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.parametrize("transport", ["dctcp", "cubic", "newreno", "theta_powertcp", "timely", "powertcp"])
def test_every_transport_recovers_in_the_same_way(tmp_path: Path, transport: str) -> None:
    assert both(tmp_path, transport__name=transport, **ELEPHANTS)["timed_out"] > 0


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.parametrize("transport", ["dctcp", "cubic", "newreno", "theta_powertcp", "timely", "powertcp"])
def test_connections_with_several_messages(tmp_path: Path, transport: str) -> None:
    bursts = elephants(
        [[(server + 4) % 8, (server + 1) % 8] for server in range(8)],
        *(2, 300_000, 20_000),
        link_bps=10**10,
        traffic_ns=3 * MILLISECOND,
        seed=1,
    )
    found = both(
        tmp_path,
        transport__name=transport,
        messages=columns(bursts),
        incast__connections="reused",
        incast__cluster_size=4.0,
        incast__cluster_gap_ns=20_000,
        topology__buffer_bytes_per_port_per_gbps=640,
        incast__burst_fraction=3.0,
    )
    assert found["timed_out"] > 0


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.parametrize("policy", ["lqd", "cs", "dt", "abm"])
def test_whatever_the_policy_drops(tmp_path: Path, policy: str) -> None:
    changes = ELEPHANTS | {"transport__name": "cubic", "transport__mark_bytes": 0, "traffic_ns": 10 * MILLISECOND}
    assert both(tmp_path, policy__name=policy, **changes)["timed_out"] > 0


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 9))
def test_segments_of_odd_sizes(tmp_path: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    both(
        tmp_path,
        seed=seed,
        policy__name=str(draw.choice(["lqd", "cs", "dt"])),
        background__size_bytes=[1, 2_000_000],
        background__cumulative=[0, 1],
        incast__burst_fraction=float(draw.uniform(0.2, 3)),
        topology__buffer_bytes_per_port_per_gbps=int(draw.integers(640, 5120)),
        transport__name=str(draw.choice(["cubic", "newreno", "dctcp"])),
        transport__segment_bytes=int(draw.integers(64, 1460)),
        transport__slow_start=bool(draw.integers(2)),
        transport__min_rto_ns=int(draw.integers(100_000, 10_000_000)),
        transport__delayed_ack_segments=int(draw.integers(1, 5)),
        traffic_ns=MILLISECOND,
    )


@pytest.mark.skipif(sys.platform != "linux" or not os.confstr("CS_GNU_LIBC_VERSION"), reason="asks glibc's linker")
def test_ns3_calls_the_drivers_functions() -> None:
    done = subprocess.run(
        [build_driver(), "--check"],
        env=os.environ | {"LD_DEBUG": "bindings", "LD_BIND_NOW": "1"},
        capture_output=True,
        text=True,
    )
    for function in ("TcpTxBuffer6UpdateE", "TcpTxBuffer7NextSegE", "TcpTxBuffer11DiscardUpToE", "TcpRxBuffer3AddE"):
        bindings = [line for line in done.stderr.splitlines() if function in line and "libns3.44-internet" in line]
        assert bindings
        assert all("foretail-ns3 [0]" in line.split(" to ")[1] for line in bindings)
