"""Runs of the ns-3 driver, as the stages use them."""

from __future__ import annotations

import functools
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from foretail.configs.schema.scenario import Scenario
from foretail.core.digest import check_file
from foretail.pipelines.runs.jobs import Report
from foretail.pipelines.runs.store import file_digest
from foretail.sim_bridge.guest_policies import GuestPolicy, policy_identity
from foretail.sim_bridge.ns3.collection import collect_dataset
from foretail.sim_bridge.ns3.driver import DriverRun, build_driver, driver_digest, find_ns3, run_driver
from foretail.sim_bridge.packets.simulation import PacketRun, Progress
from foretail.sim_bridge.policies import POLICIES, heeded_settings

if TYPE_CHECKING:  # it draws figures too, which a simulation does not
    from foretail.pipelines.runs.points import SoFar


class Simulates(Protocol):
    """Settings of what simulates: where runs are kept, which ns-3 makes them, and how many at the same time."""

    @property
    def store_dir(self) -> str: ...

    @property
    def ns3_prefix(self) -> str | None: ...

    @property
    def jobs(self) -> int | None: ...


class Ns3:
    """The ns-3 of a stage: found when its version is asked for, the driver built when the first run needs it."""

    def __init__(self, prefix: str | None) -> None:
        self._prefix = prefix
        self._executables: dict[str, Path] = {}
        self._building = threading.Lock()

    def __reduce__(self) -> tuple[type[Ns3], tuple[str | None]]:
        return Ns3, (self._prefix,)  # another machine has a driver of its own

    @functools.cached_property
    def version(self) -> str:
        """Version such as ``3.44``; ``ForetailError`` when there is no ns-3."""
        return find_ns3(self._prefix).version

    @functools.cached_property
    def driver_sha256(self) -> str:
        """Digest of the driver's sources, the same for all runs of a stage."""
        return driver_digest()

    def depends_on(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Everything that a run with this document depends on."""
        return {"driver": settings_that_matter(document), "ns3": self.version, "driver_code": self.driver_sha256}

    def driver(self, policy: str, report: Report) -> Path:
        """The executable that knows a policy, built on first use (threads of one stage build it once)."""
        guest = GuestPolicy.of(policy)
        known = "" if guest is None else policy
        with self._building:
            if known not in self._executables:
                once = "once per machine" if guest is None else f"once for {guest.name}"
                report(0.0, f"finding the ns-3 driver, which is built {once}")
                self._executables[known] = build_driver(
                    self._prefix,
                    policy=guest,
                    report=lambda done, of: report(0.0, f"building the ns-3 driver, {once}: {done} of {of} steps"),
                )
            return self._executables[known]


def settings_that_matter(document: Mapping[str, Any]) -> dict[str, Any]:
    """The driver's settings on which its output depends.

    Of a policy's settings those count that it heeds; a predictor library and the header of a policy from outside count
    with their content, not their path.
    """
    policy = document["policy"]
    if (library := policy["library"]) is not None:
        check_file(Path(library), "export the predictor again")
    heeded = heeded_settings(policy["name"]) if policy["name"] in POLICIES else list(policy)
    return {
        **document,
        "policy": {
            **{setting: value for setting, value in policy.items() if setting in heeded},
            "name": policy_identity(policy["name"]),
            "library": library and file_digest(Path(library)),
        },
    }


def simulate_dataset(document: Mapping[str, Any], scenario: Scenario, folder: Path, ns3: Ns3, report: Report) -> None:
    """Run the driver with a trace and write the labelled dataset to `folder`."""
    collect_dataset(
        document,
        folder,
        scenario=asdict(scenario),
        progress=reporting(report),
        executable=ns3.driver(document["policy"]["name"], report),
    )


@contextmanager
def scratch_run(document: Mapping[str, Any], ns3: Ns3, so_far: SoFar) -> Iterator[DriverRun]:
    """A run without a trace in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory() as name:
        simulate_flows(document, Path(name), ns3, lambda done, words: so_far(words))
        yield DriverRun.open(Path(name))


def simulate_flows(document: Mapping[str, Any], folder: Path, ns3: Ns3, report: Report) -> None:
    """Run the driver without a trace; flows, occupancy and summary go to `folder`."""
    executable = ns3.driver(document["policy"]["name"], report)
    run_driver(document, folder, reporting(report), executable=executable)


def leaf_buffers(run: PacketRun) -> dict[int, int]:
    """Buffer in bytes of every leaf, by switch number."""
    return {
        number: switch["buffer_bytes"]
        for number, switch in enumerate(run.summary["switches"])
        if switch["role"] == "leaf"
    }


def counters(run: PacketRun) -> dict[str, int]:
    """Counters summed over all switches: dropped data packets by reason, predictions, marks, invariants."""
    switches = run.summary["switches"]
    total = {
        f"{kind}.{reason}": sum(switch[kind][reason]["packets"] for switch in switches)
        for kind in ("data_drops", "control_drops")
        for reason in switches[0][kind]
    }
    total |= {name: sum(switch[name] for switch in switches) for name in ("asked", "marked", "threshold_deficits")}
    total["data_packets"] = sum(switch["data_in"]["packets"] for switch in switches)
    total["flipped_predictions"] = run.summary["flipped_predictions"]
    return total


def packets_per_cpu_second(run: PacketRun) -> float | None:
    """Data packets that arrived at leaves, per CPU second of the simulation."""
    seconds = run.summary["simulation_cpu_seconds"]
    return run.summary["leaf_data_packets"] / seconds if seconds > 0 else None


def reporting(report: Report) -> Callable[[Progress], None]:
    """What passes the progress of a run on to `report`."""

    def passed_on(progress: Progress) -> None:
        done = progress.simulated_ns / progress.end_ns
        rate = progress.simulated_ns / 1e6 / max(progress.wall_seconds, 1e-9)
        report(
            done,
            f"{progress.simulated_ns / 1e6:.1f} of {progress.end_ns / 1e6:.0f} ms simulated, {rate:.1f} ms/s, "
            f"{progress.flows} of {progress.planned_flows} flows",
        )

    return passed_on
