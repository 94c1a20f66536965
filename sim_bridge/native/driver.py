"""The native network: built once per machine from the sources in this package, then run as a process per simulation.

It takes the document of the ns-3 driver, draws the same flows, and writes the same files with the same bytes: its TCP
sends what ns-3 3.44 sends. A run becomes a dataset here, whatever network it is of.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from foretail.core.digest import write_digest
from foretail.core.files import writing
from foretail.features.dataset.schema import LosslessQueues, Rules, Run, SwitchGeometry
from foretail.features.dataset.writer import LosslessWriter, write_dataset
from foretail.features.records import ARRIVAL_DTYPE, PAUSE_DTYPE, iterate_records, read_records
from foretail.sim_bridge.builds import SimulatorProgram
from foretail.sim_bridge.open_loop.replay import shadow_credence, shadow_of
from foretail.sim_bridge.packets.simulation import PacketRun, Progress, etalon_log, run_program
from foretail.sim_bridge.policies import policy_name

NATIVE = SimulatorProgram("native", "foretail-native", "the native network")


@dataclass(frozen=True, repr=False)
class NativeRun(PacketRun):
    """A finished simulation in the native network; files and summary as of :class:`PacketRun`."""

    def versions(self) -> dict[str, str]:
        """Return the versions that the run's output depends on."""
        return super().versions() | {"native_sha256": NATIVE.digest()}


def run_native(
    settings: Mapping[str, Any],
    folder: Path,
    progress: Callable[[Progress], None] | None = None,
    *,
    executable: Path | None = None,
) -> NativeRun:
    """Simulate one run in the native network and wait for it.

    Parameters
    ----------
    settings : the driver's JSON document (docs/reference/driver.md)
    folder, progress, executable : as :func:`foretail.sim_bridge.packets.simulation.run_program`.

    Raises
    ------
    ForetailError
        If the simulation fails.
    """
    executable = NATIVE.build() if executable is None else executable
    run_program(executable, settings, folder, progress, "the native simulation")
    return NativeRun.open(folder)


def collect_dataset(
    settings: Mapping[str, Any],
    path: Path,
    *,
    scenario: Mapping[str, Any],
    progress: Callable[[Progress], None] | None = None,
    executable: Path | None = None,
    simulate: Callable[..., PacketRun] = run_native,
) -> PacketRun:
    """Simulate with a trace, add what a shadow Credence would have seen, and write the dataset to `path`.

    Parameters
    ----------
    settings : the driver's JSON document, ``trace`` true
    path : the dataset folder; must not exist. Flows and summary of the run are kept in its folder ``run``
    scenario : the resolved scenario, for the manifest
    progress, executable : as :func:`foretail.sim_bridge.native.driver.run_native`.
    simulate : callable
        Runs the simulation, with the parameters and the files of that function:
        :func:`foretail.sim_bridge.ns3.driver.run_driver` does so in ns-3.

    Returns
    -------
    PacketRun
        The run inside the dataset folder.

    Raises
    ------
    ForetailError
        If the simulation fails, the file system refuses, or the replay of the recorded arrivals does not reproduce the
        thresholds of the simulation.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = TemporaryDirectory(prefix=f".{path.name}.run-", dir=path.parent)
    with scratch as folder:
        run = simulate(settings, Path(folder), progress, executable=executable)
        write_trace(run, settings, path, scenario=scenario)
        (run.folder / "arrivals.bin").unlink()
        (run.folder / "pauses.bin").unlink(missing_ok=True)
        etalon_log(run.folder).unlink(missing_ok=True)  # of racks; it says less than the trace
        with writing(path):
            shutil.copytree(run.folder, path / "run")
            write_digest(path / "run")
    return PacketRun.open(path / "run")


def write_trace(run: PacketRun, settings: Mapping[str, Any], path: Path, *, scenario: Mapping[str, Any]) -> None:
    """Convert the arrivals of a finished run into the dataset `path`; memory does not depend on their number."""
    described = _described(run, settings, scenario)
    pauses = None if described.lossless is None else read_records(run.folder / "pauses.bin", PAUSE_DTYPE)
    shadow = shadow_of(described, pauses)
    with write_dataset(path, described) as writer:
        if isinstance(writer, LosslessWriter) and pauses is not None:
            writer.write_pauses(pauses)
        for records in iterate_records(run.folder / "arrivals.bin", ARRIVAL_DTYPE):
            features, asked = shadow_credence(shadow, records)
            writer.write(records, features, asked)


def _described(run: PacketRun, settings: Mapping[str, Any], scenario: Mapping[str, Any]) -> Run:
    """Return a run for its manifest; racks have LQD's default rules, and the arithmetic that their summary names."""
    buffer = settings["racks"]["buffer"] if "racks" in settings else None
    policy = settings["policy"] if buffer is None else {**buffer, "name": buffer["policy"]}
    return Run(
        scenario=dict(scenario),
        policy={**policy, "name": policy_name(policy["name"])},
        seed=settings["seed"] if buffer is None else settings["flows"]["seed"],
        switches=tuple(
            SwitchGeometry(len(s["port_rates_bps"]), s["buffer_bytes"], tuple(s["port_rates_bps"]))
            for s in run.summary["switches"]
        ),
        rules=Rules(**settings["rules"]) if buffer is None else Rules("counted", "lowest_port", "tail"),
        cell_bytes=(run.summary if buffer is not None else settings["features"])["cell_bytes"],
        average_shift=run.summary["average_shift"],
        versions=run.versions(),
        lossless=_lossless(run, settings),
    )


def _lossless(run: PacketRun, settings: Mapping[str, Any]) -> LosslessQueues | None:
    """The queues of a run that may not lose; None where there are none."""
    if "racks" in settings or not settings["queues"]["lossless"]:
        return None
    switches, pfc = [switch["lossless"] for switch in run.summary["switches"]], settings["pfc"]
    return LosslessQueues(
        queues=tuple(settings["queues"]["lossless"]),
        alpha=float(pfc["alpha"]),
        xon_bytes=pfc["xon_bytes"],
        xon_offset_bytes=switches[0]["xon_offset_bytes"],
        makes_room=pfc["makes_room"],
        headroom_bytes=tuple(switch["headroom_pool_bytes"] for switch in switches),
    )
