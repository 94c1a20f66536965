"""Inputs that look right and mean something else, as people reported them: each is told or refused by the command.

Modules of torch are in ``tests/models/drop/test_neural.py``, labels in ``tests/sim_bridge``, environments in
``tests/gym``, stores in ``tests/models/mlflow``, numbers of YAML in ``tests/pipelines/settings/test_validation.py``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import skops.io
from sklearn.ensemble import RandomForestClassifier

from tests.composed import foretail
from tests.docs.pages import ROOT

pytestmark = pytest.mark.slow

Case = tuple[Sequence[str], int, str]
"""Arguments of a command, its exit code, and what it says."""

PCAP = ("collect", "source=pcap", "pcap.table=ports.csv", "pcap.ports=2", "pcap.buffer_bytes=100_000")
SMALL = (
    "scenario=star",
    "scenario.topology.servers_per_leaf=4",
    "scenario.incast.fan_in=3",
    "scenario.traffic_ns=200_000",
)


def times_in_seconds(folder: Path) -> Case:
    rows = [f"{run},{source},{1 - source},{run},{1000 + 9 * run}" for run in range(3) for source in (0, 1, 0)]
    (folder / "log.csv").write_text("time_ns,source,destination,run,bytes\n" + "\n".join(rows) + "\n")
    given = ("interval_ns=1_000_000", "uplink_bps=10_000_000_000", "degree=2", "tracking=off", "racks=2")
    sides = ("split.train=[1]", "split.validation=[2]", "split.test=[3]", "demand_predictor=[last_value]")
    complaint = "no training sequence has a second step of interval_ns=1,000,000 to predict: give longer runs, times in"
    return ("demand", "logs=[log.csv]", *given, *sides), 2, complaint


def columns_that_nothing_reads(folder: Path) -> Case:
    (folder / "a.csv").write_text("slot,port,colour\n0,0,red\n0,1,red\n1,1,green\n")
    return (
        ("replay", "arrivals=a.csv", "ports=2", "buffer=4"),
        0,
        "a.csv has the column colour, which Foretail does not use",
    )


def packets_that_a_capture_lost(folder: Path) -> Case:
    """A capture (pcapng) of 30 packets to two ports, with statistics."""

    def block(kind: int, body: bytes) -> bytes:
        return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)

    content = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)) + block(1, struct.pack("<HHI", 1, 0, 0))
    for number in range(30):
        ip = struct.pack(">BBHHHBBH8B", 0x45, 0, 986, 50 + number, 0, 64, 6, 0, 10, 1, 0, 1, 10, 0, number % 2, 1)
        tcp = struct.pack(">HHIIBBHHH", 9, 80, number * 946, 0, 5 << 4, 16, 0, 0, 0)
        frame = (bytes(12) + b"\x08\x00" + ip + tcp).ljust(1000, b"\0")
        content += block(6, struct.pack("<5I", 0, 0, 10**6 + 10 * number, 1000, 1000) + frame)
    content += block(5, struct.pack("<3I", 0, 0, 0) + struct.pack("<HHQ", 5, 8, 49))
    (folder / "ports.csv").write_text("prefix,port\n10.0.0.0/24,0\n10.0.1.0/24,1\n")
    (folder / "a.pcapng").write_bytes(content)
    given = ("log=a.pcapng", "pcap.port_rates_bps=[10_000_000_000]")
    return (*PCAP, *given), 0, "counts of 49 packets that the capture lost"


def tables_of_a_switch(folder: Path) -> Case:
    document = json.loads((ROOT / "examples" / "switch_config" / "config_db.json").read_text())
    document["SCHEDULER"] = {"scheduler.0": {"type": "DWRR", "weight": "1"}}
    (folder / "config.json").write_text(json.dumps(document))
    given = ("config=config.json", "policy=[sonic]", "baselines=[sonic]", "seeds=[1]")
    per_port = "scenario.topology.buffer_bytes_per_port_per_gbps=750_000"
    return ("evaluate", *SMALL, per_port, *given), 0, "config = config.json has SCHEDULER"


def trees_of_scaled_columns(folder: Path) -> Case:
    x = np.random.default_rng(0).integers(0, 4000, (600, 2))
    skops.io.dump(
        RandomForestClassifier(3, max_depth=4, random_state=1).fit(x / 4000, x.sum(axis=1) > 4000), folder / "m"
    )
    inputs = "inputs=[{name: queue, bits: 12}, {name: occupancy, bits: 12}]"
    return ("export", "model=m", "target=c", inputs, "tracking=off"), 0, "whole numbers reach the thresholds of queue"


CASES = (
    *(times_in_seconds, columns_that_nothing_reads, packets_that_a_capture_lost, tables_of_a_switch),
    trees_of_scaled_columns,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_an_input_that_means_something_else_is_told_or_refused(tmp_path: Path, case: Callable[[Path], Case]) -> None:
    arguments, code, words = case(tmp_path)
    for _ in range(2 if arguments[0] == "collect" else 1):  # a dataset of the store is told as well
        done = foretail(tmp_path, *arguments)
        printed = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == code, printed
        assert printed.count(words) == 1
