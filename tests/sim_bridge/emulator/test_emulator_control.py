"""Congestion controls that Foretail brings to the kernel. Costs the build of the emulator and 20 s of emulation.

Registering them needs root, clang, libbpf and a kernel that describes its types; elsewhere the tests skip and say what
is missing.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.sim_bridge.emulator.emulator import EMULATOR, EmulatorRun, run_emulator, why_not_here
from foretail.sim_bridge.imports.etalon.circuit_use import circuit_use
from foretail.sim_bridge.imports.etalon.log import EtalonLog
from foretail.sim_bridge.imports.etalon.records import Reading
from foretail.sim_bridge.packets.simulation import etalon_log
from tests.scenarios import with_racks
from tests.sim_bridge.emulator.test_emulator import document, eventually

pytestmark = pytest.mark.slow

MILLISECOND = 1_000_000
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
MARK_BYTES = 43_200
FACTOR, LONG_FLOWS_MS = 1000, 6
BULK_TRANSFER = Path(__file__).parents[3] / "examples" / "emulator" / "bulk_transfer.py"


@pytest.fixture(scope="module")
def emulator() -> Path:
    """The executable, on a machine that lets it bring a congestion control."""
    executable = EMULATOR.build()
    reason = why_not_here(executable, control="dctcp")
    if reason is not None:
        pytest.skip(reason)
    return executable


def available() -> set[str]:
    """The congestion controls that the kernel has now."""
    return set(AVAILABLE.read_text(encoding="utf-8").split())


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


@pytest.mark.nightly
def test_dctcp_holds_the_queue_at_its_threshold_where_cubic_fills_it(emulator: Path, tmp_path: Path) -> None:
    run, queue = two_long_flows(emulator, tmp_path / "dctcp", "dctcp", MARK_BYTES)
    (switch,) = run.summary["switches"]
    name = run.summary["emulation"]["control"]
    assert name == "dctcp" or name.startswith("dctcp_")
    assert 0 < switch["marked"] < switch["data_in"]["packets"] / 2
    assert 0.5 * MARK_BYTES < np.median(queue) < 1.5 * MARK_BYTES
    assert np.percentile(queue, 95) < 2 * MARK_BYTES
    _, cubic = two_long_flows(emulator, tmp_path / "cubic", "cubic", 0)
    assert np.median(cubic) > 3 * MARK_BYTES


@pytest.mark.nightly
@pytest.mark.full
def test_dctcp_gives_up_less_than_half_where_reno_gives_up_half(emulator: Path, tmp_path: Path) -> None:
    """With the same marks the queue of DCTCP runs dry less often."""
    _, queue = two_long_flows(emulator, tmp_path / "dctcp", "dctcp", MARK_BYTES)
    _, reno = two_long_flows(emulator, tmp_path / "reno", "reno", MARK_BYTES)
    assert np.percentile(queue, 5) > 2 * np.percentile(reno, 5)


def use_of_the_circuit(executable: Path, folder: Path, control: str) -> tuple[float, EmulatorRun]:
    """In percent, by 16 flows of one of eight racks, whose queue grows 150 us before its circuit."""
    folder.mkdir()
    racks = 8
    asked = with_racks(
        racks={
            "racks": racks,
            "hosts_per_rack": 4,
            "matchings": [[(rack + shift) % racks for rack in range(racks)] for shift in range(1, racks)],
            "voq_packets": 16,
            "resize": {"packets": 50, "ahead_ns": 150_000},
        },
        flows={"source": [1], "destination": [2], "flows_per_pair": 16},
        transport={"min_rto_ns": 10 * MILLISECOND},
        emulation={"factor": 500, "control": control, "background_control": control},
    )
    run = run_emulator(asked | {"traffic_ns": 14 * 1_400_000}, folder, executable=executable)
    log = EtalonLog.open(etalon_log(folder), Reading(racks=racks))
    return circuit_use(log, 2, 3, circuit_bps=80_000_000_000, skipped_weeks=2).utilisation_percent, run


@pytest.mark.nightly
@pytest.mark.full
def test_retcp_fills_more_of_a_circuit_that_it_is_told_of(emulator: Path, tmp_path: Path) -> None:
    reason = why_not_here(emulator, control="retcp")
    if reason is not None:
        pytest.skip(reason)
    percent, run = use_of_the_circuit(emulator, tmp_path / "retcp", "retcp")
    cubic_percent, _ = use_of_the_circuit(emulator, tmp_path / "cubic", "cubic")
    assert run.summary["emulation"]["control"].startswith("retcp_")
    assert percent > 1.1 * cubic_percent
    # A wrong checksum would make hosts throw announcements away, and with them the circuit.
    assert run.summary["voqs"][0]["by_circuit"] > 100


def test_an_emulator_that_is_killed_leaves_no_control_in_the_kernel(emulator: Path, tmp_path: Path) -> None:
    if "dctcp" in available():
        pytest.skip("this kernel has its own dctcp, so that none of ours is registered")
    asked = document({"factor": 10_000, "control": "dctcp"}, transport__mark_bytes=MARK_BYTES)
    (tmp_path / "settings.json").write_text(json.dumps(asked), encoding="utf-8")
    before = available()
    with subprocess.Popen([emulator, tmp_path / "settings.json", tmp_path], stderr=subprocess.DEVNULL) as process:
        try:
            assert eventually(lambda: available() - before != set())
            ours = available() - before
            assert all(name.startswith("dctcp_") for name in ours)
        finally:
            process.send_signal(signal.SIGKILL)
    assert eventually(lambda: not ours & available())


def test_two_emulators_at_once_have_a_control_each(emulator: Path, tmp_path: Path) -> None:
    if "dctcp" in available():
        pytest.skip("this kernel has its own dctcp, so that none of ours is registered")
    asked = document({"factor": 10_000, "control": "dctcp"}, transport__mark_bytes=MARK_BYTES)
    (tmp_path / "settings.json").write_text(json.dumps(asked), encoding="utf-8")
    before = available()
    command = [emulator, tmp_path / "settings.json", tmp_path]
    with (
        subprocess.Popen(command, stderr=subprocess.DEVNULL) as one,
        subprocess.Popen(command, stderr=subprocess.DEVNULL) as other,
    ):
        try:
            assert eventually(lambda: len(available() - before) >= 2)
        finally:
            one.kill()
            other.kill()


@pytest.mark.parametrize(
    ("start", "lacks"),
    [
        ("PATH=/nowhere exec", "which clang compiles, and that is not on PATH: install clang"),
        ('LD_LIBRARY_PATH="$FOLDER" exec', "which libbpf.so.1 loads, and that is not here: install libbpf1"),
        ("mount -t tmpfs none /sys/kernel/btf && exec", "which needs /sys/kernel/btf/vmlinux: take a kernel"),
        ("exec setpriv --bounding-set=-bpf --inh-caps=-bpf", "which only root may load: run as root of the machine"),
    ],
    ids=["clang", "libbpf", "types", "root"],
)
def test_what_a_machine_lacks_for_it_is_named_in_one_sentence(
    emulator: Path, tmp_path: Path, start: str, lacks: str
) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or shutil.which("setpriv") is None:
        pytest.skip("unshare and setpriv of util-linux, which take away what is needed, are not on PATH")
    if "dctcp" in available():
        pytest.skip("this kernel has its own dctcp, which needs nothing")
    (tmp_path / "libbpf.so.1").touch()
    command = [unshare, "-m", "sh", "-c", f'{start} "{emulator}" --probe dctcp']
    environment = os.environ | {"FOLDER": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: this kernel does not offer the congestion control dctcp, and ours is a BPF")
    assert lacks in done.stderr
    assert done.stderr.count("\n") == 1
