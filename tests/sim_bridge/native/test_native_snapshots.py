"""Snapshots of the native network: a run goes on from one as if nothing had been, with the bytes of a run in one piece.

Costs half a second for each drawn setting, and no compiler: the network runs in this process.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.sim_bridge.native.driver import NativeRun
from foretail.sim_bridge.native.network import NativeNetwork
from tests.examples import draws
from tests.scenarios import settings, with_racks
from tests.sim_bridge.native.drawn_settings import TCP, drawn_settings

OF_THE_MACHINE = {"simulation_cpu_seconds", "simulation_wall_seconds", "wall_seconds"}

Output = dict[str, Any]


def output(folder: Path, summary: dict[str, Any]) -> Output:
    """All that a run writes, and what it says."""
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix == ".bin"}
    return files | {"summary": {name: value for name, value in summary.items() if name not in OF_THE_MACHINE}}


def in_one_piece(document: dict[str, Any], folder: Path) -> Output:
    folder.mkdir()
    whole = NativeNetwork(document, folder)
    whole.advance()
    return output(folder, whole.finish())


@examples(max_examples=draws(25), deadline=None)
@given(
    number=st.integers(0, 2**32 - 1),
    senders=st.sampled_from(["ns3", "linux", "irn", "roce"]),
    moments=st.lists(st.integers(0, 6_000_000), min_size=1, max_size=3),
    further=st.integers(0, 3_000_000),
)
def test_a_run_that_went_back_writes_the_bytes_of_one_in_one_piece(
    number: int, senders: str, moments: list[int], further: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """At each moment it goes on for a while, comes back, and does so again with the same snapshot."""
    transport = {"ns3": None, "linux": TCP[number % len(TCP)]}.get(senders, senders)
    folder, document = tmp_path_factory.mktemp("run"), drawn_settings(number, transport)
    document["transport"]["recovery"] = "linux" if senders == "linux" else "ns3"
    expected = in_one_piece(document, folder / "whole")
    (folder / "divided").mkdir()
    divided = NativeNetwork(document, folder / "divided")
    snapshot = None
    for moment in sorted(moments):
        divided.advance(moment)
        flows, snapshot = divided.flows(), divided.snapshot(snapshot)
        for until in (moment + further, 2**62):
            divided.advance(until)
            divided.restore(snapshot)
            assert (divided.flows() == flows).all()
            assert divided.now_ns == snapshot.time_ns
    divided.advance()
    assert output(folder / "divided", divided.finish()) == expected


def test_counters_of_intervals_go_back_too(tmp_path: Path) -> None:
    document = settings(policy__name="dt", counters=True, traffic_ns=2_000_000)
    expected = in_one_piece(document, tmp_path / "whole")
    (tmp_path / "divided").mkdir()
    divided = NativeNetwork(document, tmp_path / "divided")
    divided.advance(2_000_000)
    snapshot = divided.snapshot()
    divided.advance()
    divided.restore(snapshot)
    divided.advance()
    assert output(tmp_path / "divided", divided.finish()) == expected
    assert expected["counters.bin"]


def test_the_files_are_those_of_the_program(tmp_path: Path) -> None:
    document = settings(policy__name="credence", traffic_ns=1_000_000)
    summary = in_one_piece(document, tmp_path / "run")["summary"]
    run = NativeRun.open(tmp_path / "run")
    assert run.settings() == document
    assert run.summary.items() >= summary.items()
    assert len(run.flows()) == summary["flows"]


def test_what_is_no_snapshot_of_this_network_is_refused() -> None:
    document = settings(policy__name="dt", traffic_ns=500_000)
    this, same = NativeNetwork(document), NativeNetwork(document)
    other = NativeNetwork(settings(policy__name="lqd", traffic_ns=500_000))
    complaint = "^the snapshot is of another network: restore it in the one that it was taken of$"
    own = this.snapshot()
    for foreign in (same.snapshot(), other.snapshot()):
        with pytest.raises(ForetailError, match=complaint):
            this.restore(foreign)
        with pytest.raises(ForetailError, match=complaint):
            this.snapshot(into=foreign)
    this.restore(own)
    for duplicate in (copy.copy, copy.deepcopy):
        with pytest.raises(ForetailError, match="a snapshot lives in the memory of its network and cannot be stored"):
            duplicate(own)


def test_a_snapshot_outlives_its_network() -> None:
    gone = NativeNetwork(settings(traffic_ns=500_000)).snapshot()
    later = NativeNetwork(settings(traffic_ns=500_000))  # perhaps where that one was
    with pytest.raises(ForetailError, match="of another network"):
        later.restore(gone)


def test_racks_stop_but_do_not_go_back(tmp_path: Path) -> None:
    expected = in_one_piece(with_racks(), tmp_path / "whole")
    (tmp_path / "divided").mkdir()
    divided = NativeNetwork(with_racks(), tmp_path / "divided")
    divided.advance(1_000_000)
    assert not divided.is_over
    assert divided.now_ns < 1_000_000
    with pytest.raises(ForetailError, match="racks with circuits cannot be copied, so there is no snapshot"):
        divided.snapshot()
    divided.advance()
    assert output(tmp_path / "divided", divided.finish()) == expected
    assert expected["flows.bin"]


def test_a_run_that_is_finished_is_refused() -> None:
    done = NativeNetwork(settings(traffic_ns=500_000))
    done.finish()
    with pytest.raises(ForetailError, match="this simulation has been finished: make another one"):
        done.advance()
