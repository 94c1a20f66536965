"""Runs of the emulator, as the stages use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from foretail.configs.schema.emulation import Emulation
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario
from foretail.core.errors import ForetailError
from foretail.pipelines.data.simulation import Simulator, driver_config, reporting
from foretail.pipelines.runs.points import Report
from foretail.sim_bridge.emulator.emulator import EMULATOR, EmulatorRun, run_emulator
from foretail.sim_bridge.native.driver import collect_dataset
from foretail.sim_bridge.packets.simulation import Progress


@dataclass(frozen=True)
class HostCommand:
    """A program that every host runs; the run ends when it ends on host 0."""

    words: tuple[str, ...]  #: its name and arguments
    most_seconds: int  #: of the clock, within which it has to end there


def emulated_settings(
    scenario: Scenario,
    policy: Policy,
    seed: int,
    emulation: Emulation,
    *,
    trace: bool,
    library: Path | None = None,
    command: HostCommand | None = None,
) -> dict[str, Any]:
    """The emulator's document for one run: the driver's, how it is emulated, and what hosts run beside its flows."""
    document = driver_config(scenario, policy, seed, trace=trace, library=library)
    run = {} if command is None else {"command": list(command.words), "command_seconds": command.most_seconds}
    return {**document, "emulation": emulation.settings() | run}


def emulator_simulator() -> Simulator:
    """TCP of this machine's kernel over Foretail's links and switches, in real time."""
    return Simulator(EMULATOR, run_emulator)


def emulate_dataset(document: Mapping[str, Any], scenario: Scenario, folder: Path, report: Report) -> None:
    """Emulate with a trace and write the labelled dataset to `folder`; ForetailError if the run is invalid."""
    collect_dataset(
        document,
        folder,
        scenario=asdict(scenario) | {"emulation": document["emulation"]},
        progress=reporting(report),
        executable=emulator_simulator().driver(report),
        simulate=_in_time,
    )


def _in_time(
    settings: Mapping[str, Any],
    folder: Path,
    progress: Callable[[Progress], None] | None,
    *,
    executable: Path | None,
) -> EmulatorRun:
    run = run_emulator(settings, folder, progress, executable=executable)
    if not run.is_valid:
        raise ForetailError(
            f"the emulation is not a trace of its network, because {run.why_invalid}: give the machine less to do, "
            "raise network.factor, or network.lateness_share if you can bear it"
        )
    return run
