"""Snapshots of the native network: a run goes on from one as if nothing had been, with the bytes of a run in one piece.

Costs half a second for each drawn setting, and no compiler: the network runs in this process.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Outcome, Records, read_records
from foretail.sim_bridge.native.driver import NativeRun, run_native
from foretail.sim_bridge.native.network import NativeNetwork
from tests.examples import draws
from tests.scenarios import settings, with_racks
from tests.sim_bridge.native.drawn_settings import TCP, drawn_settings
from tests.sim_bridge.packets.paused_runs import output, written


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
    expected = written(document, folder / "whole", [])
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
    whole = written(document, tmp_path / "whole", [])
    assert written(document, tmp_path / "divided", [2_000_000]) == whole
    assert whole["counters.bin"]


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
    expected = written(with_racks(), tmp_path / "whole", [])
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


RTT_NS = 20_000


@pytest.fixture(scope="module")
def simulate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Run the network under DT with alpha 2 and these branches; DT, because it also drops what fits."""
    runs: list[NativeRun] = []

    def run(rows: list[int] | None = None, hold_ns: int = 0, repeats: int = 1, fork: bool = True, **more: Any) -> Any:
        document = settings(policy__name="dt", policy__alpha=2.0, **more)
        if rows is not None:
            document["branches"] = {"rows": rows, "hold_ns": hold_ns, "repeats": repeats, "repeat_ns": 1, "fork": fork}
        runs.append(run_native(document, tmp_path_factory.mktemp("run")))
        return runs[-1]

    yield run
    for done in runs:
        shutil.rmtree(done.folder)


@pytest.fixture(scope="module")
def traced(simulate: Any) -> tuple[NativeRun, Records]:
    run = simulate(trace=True)
    return run, read_records(run.folder / "arrivals.bin", ARRIVAL_DTYPE)


@pytest.fixture(scope="module")
def rows(traced: tuple[NativeRun, Records]) -> list[int]:
    """An early accepted arrival, a refused one that fits, and a late accepted one."""
    _, arrivals = traced
    data = arrivals["flow_class"] != FlowClass.CONTROL
    accepted = np.flatnonzero(data & (arrivals["outcome"] == Outcome.ACCEPTED))
    refused = np.flatnonzero(data & (arrivals["outcome"] == Outcome.OVER_THRESHOLD))
    chosen = {int(accepted[len(accepted) // 4]), int(refused[0]), int(accepted[3 * len(accepted) // 4])}
    return sorted(chosen)


NAMES = [feature.name for feature in FEATURES]


def buffer_of(run: NativeRun, arrivals: Records) -> Any:
    """Bytes of the shared buffer that each arrival meets."""
    return np.array([switch["buffer_bytes"] for switch in run.summary["switches"]])[arrivals["switch"]]


def content(path: Path) -> bytes:
    return path.read_bytes()


def test_the_run_is_what_it_is_without_branches(
    simulate: Any, traced: tuple[NativeRun, Records], rows: list[int]
) -> None:
    whole, plain = simulate(rows, repeats=2), simulate()
    for name in ("flows.bin", "occupancy.bin"):
        assert content(whole.folder / name) == content(plain.folder / name) == content(traced[0].folder / name)
    for key in ("switches", "end_ns", "completed_flows", "leaf_data_packets"):
        assert whole.summary[key] == plain.summary[key]
    assert "branches" not in plain.summary


@pytest.mark.parametrize("hold_ns", [0, RTT_NS])
def test_a_branch_is_a_run_with_that_decision_forced(simulate: Any, rows: list[int], hold_ns: int) -> None:
    forked, plain = simulate(rows, hold_ns), simulate()
    branches = forked.branches()
    assert [(one.row, one.turned, one.repeat) for one in branches] == [(row, True, 0) for row in rows]
    for branch in branches:
        forced = simulate([branch.row], hold_ns, fork=False)
        assert content(branch.file) == content(forced.folder / "flows.bin")
        assert content(branch.file) != content(plain.folder / "flows.bin")
        assert forced.summary["branches"] == [
            entry for entry in forked.summary["branches"] if entry["row"] == branch.row
        ]
        assert forced.summary["end_ns"] == branch.end_ns
        assert branch.decisions == 1 if hold_ns == 0 else branch.decisions >= 1
    if hold_ns > 0:
        assert max(branch.decisions for branch in branches) > 1


@pytest.mark.parametrize("hold_ns", [0, RTT_NS])
def test_a_decision_is_turned_where_it_should_be_and_nowhere_else(
    simulate: Any, rows: list[int], traced: tuple[NativeRun, Records], hold_ns: int
) -> None:
    """The traces of both runs are one up to the row; from there on the other answer holds for what is alike."""
    _, arrivals = traced
    for row in rows:
        forced = simulate([row], hold_ns, fork=False, trace=True)
        found = read_records(forced.folder / "arrivals.bin", ARRIVAL_DTYPE)
        outcomes = [name for name in found.dtype.names or () if name not in ("fate_time_ns", "lqd_drop", "pad")]
        assert np.array_equal(found[:row][outcomes], arrivals[:row][outcomes])
        accepts = arrivals["outcome"][row] != Outcome.ACCEPTED
        assert (found["outcome"][row] == Outcome.ACCEPTED) == accepts
        alike = np.arange(len(found)) > row
        for name in ("switch", "port", "flow_class"):
            alike &= found[name] == found[name][row]
        held = found[alike & (found["time_ns"] <= found["time_ns"][row] + hold_ns)]
        if hold_ns and not accepts:
            assert (held["outcome"] != Outcome.ACCEPTED).all()
        if hold_ns and accepts:
            assert np.isin(held["outcome"], (Outcome.ACCEPTED, Outcome.BUFFER_FULL, Outcome.OVER_THRESHOLD)).all()
            fits = held["features"][:, NAMES.index("occupancy")] * 256 + 256 + held["size_bytes"] <= buffer_of(
                forced, held
            )
            assert (held["outcome"][fits] == Outcome.ACCEPTED).all()
        assert hold_ns == 0 or len(held) > 0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rows": []}, "setting 'branches.rows' must name an arrival"),
        ({"rows": [7, 7]}, "entry 1 of setting 'branches.rows' must be a whole number from 8"),
        ({"repeats": 1.5}, "setting 'branches.repeats' must be a whole number that 32 bits hold, not 1.5"),
        ({"rows": [7, 8], "fork": False}, "setting 'branches.fork' must be true with several branches"),
        ({"rows": [10**9]}, "names arrival 1000000000, which is not a data packet of this run"),
        ({"trace": True}, "setting 'trace' must be false with 'branches.fork'"),
        ({"policy__name": "lqd"}, "setting 'branches' needs a policy that decides arrivals, and lqd pushes out"),
    ],
)
def test_bad_branches_are_named_in_one_sentence(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    document = settings(policy__name="cs", traffic_ns=500_000)
    document["branches"] = {"rows": [7], "hold_ns": 0, "repeats": 1, "repeat_ns": 1, "fork": True}
    for path, value in changes.items():
        if path in document["branches"]:
            document["branches"][path] = value
        elif path == "policy__name":
            document["policy"]["name"] = value
        else:
            document[path] = value
    with pytest.raises(ForetailError) as error:
        run_native(document, tmp_path)
    assert named in str(error.value)


def test_what_does_not_fit_cannot_be_accepted(tmp_path: Path) -> None:
    document = settings(policy__name="cs", trace=True)
    arrivals = read_records(run_native(document, tmp_path).folder / "arrivals.bin", ARRIVAL_DTYPE)
    full = int(np.flatnonzero((arrivals["outcome"] == Outcome.BUFFER_FULL) & (arrivals["flow_class"] != 0))[0])
    document = settings(policy__name="cs")
    document["branches"] = {"rows": [full], "hold_ns": 0, "repeats": 1, "repeat_ns": 1, "fork": True}
    with pytest.raises(ForetailError, match=f"arrival {full} does not fit into the buffer, so no branch can accept it"):
        run_native(document, tmp_path)


def test_a_branch_that_cannot_write_ends_the_run_in_one_sentence(tmp_path: Path, rows: list[int]) -> None:
    document = settings(policy__name="dt", policy__alpha=2.0)
    document["branches"] = {"rows": rows, "hold_ns": 0, "repeats": 1, "repeat_ns": 1, "fork": True}
    (tmp_path / f"branch_{rows[0]}_turned_0.bin").mkdir()
    with pytest.raises(ForetailError) as error:
        run_native(document, tmp_path)
    assert f"the branch at arrival {rows[0]} failed: cannot write" in str(error.value)
    assert not (tmp_path / "summary.json").exists()
