"""The emulator: built once per machine from the sources in this package, then run as a process per emulation.

It takes the document of the ns-3 driver with one group more, ``emulation``, draws the same flows, and writes the same
files. The flows are sent by the kernel's TCP, in real time that runs ``factor`` times slower than that of the network.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretail.sim_bridge.builds import SimulatorProgram
from foretail.sim_bridge.packets.simulation import PacketRun, Progress, run_program

EMULATOR = SimulatorProgram("emulator", "foretail-emulator", "the emulator")
LATENESS_KINDS = ("deliveries", "readings", "starts")
"""Events that may be late: handing packets to hosts, reading them from hosts (an upper bound), starting flows."""


@dataclass(frozen=True)
class Lateness:
    """Lateness of an emulation, in virtual ns; percentiles are up to an eighth too high, rather than too low."""

    packets: int  #: or flows, for their starts
    p50_ns: int
    p99_ns: int
    max_ns: int


@dataclass(frozen=True)
class EmulatorRun(PacketRun):
    """A finished emulation; files and summary as of :class:`PacketRun`, with a group ``emulation`` in the summary."""

    @property
    def is_valid(self) -> bool:
        """True if nothing was lost outside the network, and lateness stayed within its limit."""
        return bool(self.summary["emulation"]["valid"])

    @property
    def why_invalid(self) -> str:
        """The reason why the run says nothing about its network; empty when it is valid."""
        return str(self.summary["emulation"]["why_invalid"])

    @property
    def lateness(self) -> dict[str, Lateness]:
        """Lateness by kind, of ``LATENESS_KINDS``."""
        return {kind: Lateness(**self.summary["emulation"]["lateness"][kind]) for kind in LATENESS_KINDS}

    def versions(self) -> dict[str, str]:
        """Return the versions that the run's output depends on."""
        return super().versions() | {"linux": self.summary["emulation"]["kernel"], "emulator_sha256": EMULATOR.digest()}


def why_not_here(executable: Path | None = None, *, control: str | None = None) -> str | None:
    """Return why this machine cannot emulate, in one sentence; None when it can. ForetailError without a compiler.

    With `control`, why it cannot with this congestion control.
    """
    executable = EMULATOR.build() if executable is None else executable
    command: list[str | Path] = [executable, "--probe", *([] if control is None else [control])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip().removeprefix("error: ")


def run_emulator(
    settings: Mapping[str, Any],
    folder: Path,
    progress: Callable[[Progress], None] | None = None,
    *,
    executable: Path | None = None,
) -> EmulatorRun:
    """Emulate one run and wait for it.

    Parameters
    ----------
    settings : mapping
        The driver's JSON document with the group ``emulation`` (docs/reference/emulator.md); the emulator checks it.
    folder, progress, executable : as :func:`foretail.sim_bridge.packets.simulation.run_program`.

    Raises
    ------
    ForetailError
        If the emulator refuses the settings, or this machine does not let it make networks.
    """
    executable = EMULATOR.build() if executable is None else executable
    run_program(executable, settings, folder, progress, "the emulation")
    return EmulatorRun.open(folder)
