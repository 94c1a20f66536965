"""Branches of a run: each decides as a run of its own would, and the run does not notice. ns-3 has none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Outcome, Records, read_records
from foretail.sim_bridge.native.driver import NativeRun, run_native
from tests.scenarios import settings

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
    assert "\n" not in str(error.value)


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
