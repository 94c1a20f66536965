"""Racks with circuits between hosts with ns-3's TCP: the document of the emulator, its log and its summary."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.sim_bridge.imports.etalon.circuit_use import circuit_use
from foretail.sim_bridge.imports.etalon.log import EtalonLog
from foretail.sim_bridge.imports.etalon.records import Reading
from foretail.sim_bridge.ns3.driver import DriverRun, build_driver, run_driver
from foretail.sim_bridge.packets.simulation import etalon_log
from tests.scenarios import RACKS, with_racks

pytestmark = pytest.mark.ns3

BUFFER = {"policy": "lqd", "bytes": 72_000, "alpha": 1.0, "library": None, "tau": None, "trace": False}
SHARED = {"voq_packets": None, "buffer": BUFFER}


def simulated(folder: Path, **groups: Any) -> DriverRun:
    folder.mkdir(exist_ok=True)
    return run_driver(with_racks(**groups), folder)


@pytest.mark.parametrize(
    "racks",
    [{}, {"resize": {"packets": 30, "ahead_ns": 100_000}}, SHARED],
    ids=["static", "resized", "shared"],
)
@pytest.mark.parametrize("control", ["cubic", "newreno"])
def test_long_flows_cross_racks_and_leave_a_log_that_the_importer_reads(
    tmp_path: Path, racks: dict[str, Any], control: str
) -> None:
    run = simulated(tmp_path, racks=racks, transport={"name": control})
    there, back = run.summary["voqs"]
    assert (there["source"], there["destination"], back["source"], back["destination"]) == (0, 2, 2, 0)
    for voq in (there, back):
        assert voq["arrived"] == voq["dropped"] + voq["by_packet"] + voq["by_circuit"] + voq["waiting"]
    assert min(there["by_circuit"], there["by_packet"], there["dropped"]) > 0
    assert 8 < there["longest"] <= 30 if "resize" in racks else there["longest"] == 8
    flows = run.flows()
    assert [(flow["source"], flow["destination"]) for flow in flows] == [(0, 2), (1, 3), (0, 2)]
    assert not (flows["fct_ns"] >= 0).any()
    assert not flows["ideal_fct_ns"].any()
    assert flows["retransmissions"].sum() > 0

    log = EtalonLog.open(etalon_log(tmp_path), Reading(racks=3, voq_packets=there["longest"]))
    survey = log.survey()
    sent = sum(voq[by] for voq in (there, back) for by in ("by_packet", "by_circuit"))
    assert 0 <= sent - survey.packets < 60  # what was on a link at the end
    assert survey.voqs.keys() == {(1, 3), (3, 1)}
    assert (survey.day_ns, survey.week_ns) == (180_000, 400_000)
    arrivals = np.concatenate(list(log.arrivals(survey)))
    assert len(set(arrivals["flow"])) == 6  # of three connections, both ways
    assert arrivals["size_bytes"].max() == 9000
    use = circuit_use(log, 1, 3, circuit_bps=80_000_000_000, skipped_weeks=1)
    assert 0 < use.utilisation_percent <= use.most_percent <= 100
    assert 10 < use.p50_us <= use.p99_us


def test_a_document_has_one_result(tmp_path: Path) -> None:
    one, same = (simulated(tmp_path / name) for name in ("one", "same"))
    for file in ("etalon.log", "flows.bin"):
        assert (one.folder / file).read_bytes() == (same.folder / file).read_bytes()
    assert one.summary["voqs"] == same.summary["voqs"]
    assert one.summary["events"] == same.summary["events"]


def test_one_flow_alone_has_all_of_its_packet_path(tmp_path: Path) -> None:
    """A flow that never ends is handed to TCP in pieces; here are more of them than its buffer holds at first."""
    idle = {"matchings": [[-1, -1, -1]], "voq_packets": 2000}
    run = simulated(
        tmp_path, racks=idle, flows={"flows_per_pair": 1}, transport={"delayed_ack_segments": 1}, traffic_ns=100_000_000
    )
    there = run.summary["voqs"][0]
    assert (there["dropped"], there["by_circuit"]) == (0, 0)
    assert run.flows()["timeouts"].sum() == 0
    assert 0.98 < there["by_packet"] * 9000 * 8 / 10e9 / 100e-3 <= 1.0
    assert there["by_packet"] > 8 * 1024


def test_the_control_has_to_be_named_and_settings_can_be_checked_alone(tmp_path: Path) -> None:
    unnamed = copy.deepcopy(RACKS)
    del unnamed["transport"]["name"]
    with pytest.raises(ForetailError, match=r"setting 'transport\.name' is missing"):
        run_driver(unnamed, tmp_path)
    command = [str(build_driver()), "--check", str(tmp_path / "settings.json")]
    checked = subprocess.run(command, capture_output=True, text=True, check=True)
    assert checked.stdout == "setting 'transport.name' is missing\n"
