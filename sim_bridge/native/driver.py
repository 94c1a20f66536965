"""The native network: built once per machine from the sources in this package, then run as a process per simulation.

It takes the document of the ns-3 driver, draws the same flows, and writes the same files with the same bytes: its TCP
sends what ns-3 3.44 sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretail.sim_bridge.guest_policies import SimulatorProgram
from foretail.sim_bridge.packets.simulation import PacketRun, Progress, run_program

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
    settings : mapping
        The driver's JSON document (docs/reference/driver.md).
    folder, progress, executable :
        As :func:`foretail.sim_bridge.packets.simulation.run_program`.

    Raises
    ------
    ForetailError
        If the simulation fails.
    """
    executable = NATIVE.build() if executable is None else executable
    run_program(executable, settings, folder, progress, "the native simulation")
    return NativeRun.open(folder)
