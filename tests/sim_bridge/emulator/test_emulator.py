"""Linux's TCP through the emulated switch. Costs the build of the emulator, unless it is built, and 8 s of emulation.

Where a kernel forbids the namespaces that hosts live in, the tests skip with its reason.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, read_records
from foretail.sim_bridge.emulator.emulator import EMULATOR, EmulatorRun, run_emulator, why_not_here
from foretail.sim_bridge.ns3.driver import run_driver
from tests.scenarios import settings, with_racks
from tests.sim_bridge.ns3.test_ns3_driver import require_flows_across_racks

pytestmark = [pytest.mark.slow, pytest.mark.nightly]
MILLISECOND = 1_000_000
STAR: dict[str, Any] = {
    "topology__leaves": 1,
    "topology__spines": 0,
    "topology__servers_per_leaf": 4,
    "background__destinations": "other_servers",
    "incast__responders": "other_servers",
    "incast__fan_in": 3,
    "transport__name": "cubic",
    "transport__mark_bytes": 0,
    "traffic_ns": 2 * MILLISECOND,
    "drain_ns": 20 * MILLISECOND,
}
TRAFFIC = ("start_ns", "size_bytes", "source", "destination", "query", "flow_class", "connected_in_advance")


@pytest.fixture(scope="module")
def emulator() -> Path:
    """The executable, on a machine that lets it work."""
    executable = EMULATOR.build()
    reason = why_not_here(executable)
    if reason is not None:
        pytest.skip(reason)
    return executable


def document(emulation: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    usual = {
        "factor": 100,
        "control": "cubic",
        "background_control": "reno",
        "lateness_share": 0.1,
        "tail_loss_probes": True,
    }
    return settings(**(STAR | changes)) | {"emulation": usual | (emulation or {})}


def children(pid: int) -> list[int]:
    """The processes that a process has started, from /proc."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]


def descendants(process: int) -> list[int]:
    found = children(process)
    return found + [one for child in found for one in descendants(child)]


def networks() -> set[str]:
    """The network namespaces of all processes."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                found.add(str((folder / "ns" / "net").readlink()))
            except OSError:  # it ended meanwhile
                continue
    return found


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether something becomes true within a minute."""
    for _ in range(6000):
        if holds():
            return True
        time.sleep(0.01)
    return False


@pytest.mark.ns3
def test_linux_sends_the_flows_that_ns3_would(emulator: Path, tmp_path: Path) -> None:
    (tmp_path / "ns3").mkdir()
    (tmp_path / "emulated").mkdir()
    asked = document(policy__name="lqd", trace=True)
    run = run_emulator(asked, tmp_path / "emulated", executable=emulator)
    twin = run_driver({key: part for key, part in asked.items() if key != "emulation"}, tmp_path / "ns3")
    flows, theirs = run.flows(), twin.flows()
    for name in (*TRAFFIC, "ideal_fct_ns"):
        np.testing.assert_array_equal(flows[name], theirs[name])
    done = flows["fct_ns"] >= 0
    assert done.sum() == run.summary["completed_flows"] > 0.8 * len(flows) > 40
    assert set(flows["flow_class"]) == {FlowClass.BACKGROUND, FlowClass.INCAST}
    # Nobody is faster than an idle network; a flow that began late is later, never earlier.
    assert np.all(flows["fct_ns"][done] >= flows["ideal_fct_ns"][done])
    assert run.summary["base_rtt_ns"] == twin.summary["base_rtt_ns"]

    (switch,) = run.summary["switches"]
    data = flows["size_bytes"][done].sum()
    assert switch["data_in"]["bytes"] > data
    assert switch["data_drops"]["pushed_out"]["packets"] > 0
    assert flows["retransmissions"].sum() > 0
    emulation = run.summary["emulation"]
    assert emulation["lost_packets"] == 0
    assert 0 <= emulation["spurious_timeouts"] <= flows["timeouts"].sum()
    assert 0 <= emulation["undone_reductions"] <= flows["retransmissions"].sum()
    on_the_wire = switch["data_out"]["packets"] + switch["control_out"]["packets"] - emulation["packets_written"]
    assert 0 <= on_the_wire < 100
    assert run.is_valid == (run.why_invalid == "")

    arrivals = read_records(tmp_path / "emulated" / "arrivals.bin", ARRIVAL_DTYPE)
    assert len(arrivals) == switch["data_in"]["packets"] + switch["control_in"]["packets"] == run.summary["arrivals"]
    assert np.all(np.diff(arrivals["time_ns"]) >= 0)
    of_data = arrivals[arrivals["flow_class"] != FlowClass.CONTROL]
    assert of_data["size_bytes"].max() == 1440  # no segment was left to a network card to cut
    assert of_data["lqd_drop"].sum() == run.summary["labelled_drops"] > 0
    # The switch runs LQD itself, so that its drops are the labels.
    np.testing.assert_array_equal(of_data["lqd_drop"], of_data["outcome"] != 0)


def test_what_is_lost_at_the_end_waits_for_the_smallest_timeout(emulator: Path, tmp_path: Path) -> None:
    """Of answers whose connection is older than they are, so that no SYN has timed out."""
    changes = {"policy__name": "dt", "traffic_ns": 8 * MILLISECOND, "transport__min_rto_ns": 3 * MILLISECOND}
    asked = document({"tail_loss_probes": False}, **changes)
    flows = run_emulator(asked, tmp_path, executable=emulator).flows()
    waited = flows[(flows["timeouts"] > 0) & (flows["connected_in_advance"] == 1) & (flows["fct_ns"] >= 0)]
    assert len(waited) > 0
    assert waited["fct_ns"].min() > 3 * MILLISECOND


def test_a_late_run_says_that_it_is_none(emulator: Path, tmp_path: Path) -> None:
    short = {"traffic_ns": MILLISECOND, "drain_ns": MILLISECOND, "incast__connect_ahead_ns": 500_000}
    run = run_emulator(document({"lateness_share": 1e-6}, **short), tmp_path, executable=emulator)
    assert not run.is_valid
    assert "99th percentile of" in run.why_invalid
    limit_ns = run.summary["emulation"]["lateness_limit_ns"]
    assert any(late.p99_ns > limit_ns for late in run.lateness.values())


def test_marks_reach_linux(emulator: Path, tmp_path: Path) -> None:
    asked = document({"background_control": "cubic"}, transport__mark_bytes=14_400, traffic_ns=MILLISECOND)
    run = run_emulator(asked, tmp_path, executable=emulator)
    (switch,) = run.summary["switches"]
    assert 0 < switch["marked"] < switch["data_in"]["packets"]
    # A wrong checksum would make the receiver throw every marked packet away.
    assert run.summary["completed_flows"] > 0.8 * run.summary["flows"]


@pytest.mark.parametrize(
    ("command", "processes"), [([], 4), (["sh", "-c", "setsid sleep 1000 & wait"], 4 + 4 * 2)], ids=["flows", "command"]
)
def test_an_emulator_that_is_killed_leaves_nothing(
    command: list[str], processes: int, emulator: Path, tmp_path: Path
) -> None:
    """Nor do the programs of hosts, and what these have started."""
    before = networks()
    asked = document({"factor": 10_000, "command": command, "command_seconds": 600})
    (tmp_path / "settings.json").write_text(json.dumps(asked), encoding="utf-8")
    with subprocess.Popen([emulator, tmp_path / "settings.json", tmp_path], stderr=subprocess.DEVNULL) as process:
        try:
            assert eventually(lambda: len(descendants(process.pid)) == processes and len(networks() - before) >= 5)
            started, made = descendants(process.pid), networks() - before
        finally:
            process.send_signal(signal.SIGKILL)
    assert eventually(lambda: not any(Path(f"/proc/{one}").exists() for one in started))
    assert not made & networks()
    assert not (tmp_path / "summary.json").exists()


def test_a_host_that_dies_ends_the_run_in_one_sentence(emulator: Path, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(json.dumps(document({"factor": 10_000})), encoding="utf-8")
    command = [emulator, tmp_path / "settings.json", tmp_path]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert eventually(lambda: len(children(process.pid)) == 4)
        os.kill(children(process.pid)[2], signal.SIGKILL)
        assert process.stderr is not None
        said = [line for line in process.stderr.read().splitlines() if not line.startswith("{")]
    assert process.returncode == 2
    assert len(said) == 1
    assert said[0].startswith("error: ")


@pytest.mark.parametrize(
    ("emulation", "changes", "complaint"),
    [
        ({"control": "vegas9"}, {}, "does not offer the congestion control vegas9: set control to one of "),
        ({"background_control": "vegas9"}, {}, "or run modprobe tcp_vegas9 as root if your distribution has"),
        ({"control": 3}, {}, "'emulation.control' must be a text, not 3"),
        ({"factor": 1.5}, {}, "'emulation.factor' must be a whole number that 64 bits hold, not 1.5"),
        ({"haste": 1}, {}, "'emulation.haste' is unknown: leave it out"),
        ({}, {"policy__name": "best"}, "unknown policy 'best'"),
    ],
)
def test_what_cannot_be_emulated_is_refused_in_one_sentence(
    tmp_path: Path, emulation: dict[str, Any], changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ForetailError, match="the emulation failed") as refused:
        run_emulator(document(emulation, **changes), tmp_path)
    assert complaint in str(refused.value)
    assert not (tmp_path / "summary.json").exists()


@pytest.mark.parametrize(
    ("prepare", "complaint"),
    [
        ("mount -t tmpfs none /dev/net", "/dev/net/tun cannot be opened (load the kernel module tun"),
        ("echo 0 > /proc/sys/user/max_user_namespaces", "the kernel forbids user namespaces"),
        ("mount --bind /bin/false $(command -v ip)", "the program ip cannot set up the interface of a host"),
    ],
)
def test_a_machine_that_cannot_is_told_in_one_sentence(
    emulator: Path, tmp_path: Path, prepare: str, complaint: str
) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare of util-linux, which takes the device away for this test, is not on PATH")
    (tmp_path / "settings.json").write_text(json.dumps(document()), encoding="utf-8")
    for arguments in ("--probe", f'"{tmp_path}/settings.json" "{tmp_path}"'):
        command = [unshare, "-Urm", "sh", "-c", f'{prepare} && exec "{emulator}" {arguments}']
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith(f"error: {complaint}")
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "summary.json").exists()


@pytest.mark.parametrize("resize", [None, {"packets": 30, "ahead_ns": 100_000}], ids=["static", "resized"])
def test_long_flows_cross_racks_and_leave_a_log_that_the_importer_reads(
    emulator: Path, tmp_path: Path, resize: dict[str, int] | None
) -> None:
    run = run_emulator(with_racks(racks={"resize": resize}), tmp_path, executable=emulator)
    use = require_flows_across_racks(run, tmp_path, resized=resize is not None)  # not full on a stalled machine
    assert use.weeks == 7
    assert 0 < use.least_percent <= use.utilisation_percent
    assert 0 < use.packet_gbps < 10


MARK_BYTES = 43_200
FACTOR, LONG_FLOWS_MS = 1000, 6
BULK_TRANSFER = Path(__file__).parents[3] / "examples" / "emulator" / "bulk_transfer.py"


def two_long_flows(executable: Path, folder: Path, control: str, mark_bytes: int) -> tuple[EmulatorRun, Any]:
    """Two hosts that send to a third as fast as they may; the run, and the longest queue at each sample, in bytes."""
    folder.mkdir()
    emulation = {
        "factor": FACTOR,
        "control": control,
        "background_control": control,
        "command": [sys.executable, str(BULK_TRANSFER), str(LONG_FLOWS_MS)],
        "command_seconds": 60,
    }
    asked = document(
        emulation,
        policy__name="cs",
        topology__servers_per_leaf=3,
        topology__buffer_bytes_per_port_per_gbps=102_400,
        incast__fan_in=2,
        incast__connect_ahead_ns=0,
        transport__mark_bytes=mark_bytes,
        traffic_ns=LONG_FLOWS_MS * MILLISECOND,
        occupancy_interval_ns=5_000,
    )
    run = run_emulator(asked, folder, executable=executable)
    samples = run.occupancy()
    second_half = samples["time_ns"] > LONG_FLOWS_MS * MILLISECOND // 2
    return run, samples["longest_bytes"][second_half]


@pytest.mark.parametrize("control", ["cubic", "dctcp"])
def test_marks_hold_the_queue_at_their_threshold_where_cubic_fills_it(
    emulator: Path, tmp_path: Path, control: str
) -> None:
    reason = why_not_here(emulator, control=control)
    if reason is not None:
        pytest.skip(reason)
    run, queue = two_long_flows(emulator, tmp_path / "marked", control, MARK_BYTES)
    (switch,) = run.summary["switches"]
    assert 0 < switch["marked"] < switch["data_in"]["packets"] / 2
    assert 0.5 * MARK_BYTES < np.median(queue) < 1.5 * MARK_BYTES
    assert np.percentile(queue, 95) < 2 * MARK_BYTES
    _, cubic = two_long_flows(emulator, tmp_path / "cubic", "cubic", 0)
    assert np.median(cubic) > 3 * MARK_BYTES
