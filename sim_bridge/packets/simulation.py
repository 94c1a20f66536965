"""Runs of a network of packets: their progress and their files."""

from __future__ import annotations

import importlib.metadata
import json
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.core.files import writing
from foretail.core.json_text import parse_json
from foretail.core.summary import Summarised
from foretail.features.records import COUNTER_DTYPE, FLOW_DTYPE, OCCUPANCY_DTYPE, Records, read_records
from foretail.sim_bridge.builds import with_compiled_policy
from foretail.sim_bridge.packets.cost import query_table, round_table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Progress:
    """Progress of a simulation: simulated time in ns, flows, and wall time in s."""

    simulated_ns: int
    end_ns: int
    flows: int
    planned_flows: int
    wall_seconds: float


@dataclass(frozen=True)
class Branch:
    """Outcome of a branch of a run that divides at an arrival."""

    row: int  #: that arrival's position among all arrivals of the run
    turned: bool  #: whether it was decided otherwise than by the policy
    repeat: int  #: from then on the link of its port is so many times ``repeat_ns`` longer
    decisions: int  #: so many arrivals were decided otherwise
    end_ns: int  #: simulated time at which the branch ended
    file: Path  #: its flows

    def flows(self) -> Records:
        """Return what became of every flow, as :meth:`PacketRun.flows` does."""
        return read_records(self.file, FLOW_DTYPE)


@dataclass(frozen=True, repr=False)
class PacketRun(Summarised):
    """A finished simulation.

    Attributes
    ----------
    folder : Path
        Holds ``settings.json``, ``summary.json``, ``flows.bin``, ``occupancy.bin``, with trace
        ``arrivals.bin``, and with counters ``counters.bin``.
    summary : counters of every switch, speeds and versions, as the simulator wrote them
    """

    folder: Path
    summary: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open the output of an earlier run; raise :class:`ForetailError` if it is not complete."""
        return cls(folder, _read_json(folder / "summary.json"))

    def flows(self) -> Records:
        """Return what became of every flow: array of FLOW_DTYPE, background and answers by start, then messages."""
        return read_records(self.folder / "flows.bin", FLOW_DTYPE)

    def settings(self) -> dict[str, Any]:
        """Return the driver's document of the run."""
        return _read_json(self.folder / "settings.json")

    def queries(self) -> pd.DataFrame:
        """Return what became of every query as a whole: :func:`foretail.sim_bridge.packets.cost.query_table`."""
        return query_table(self.flows(), self.summary["end_ns"], self.settings())

    def rounds(self) -> pd.DataFrame:
        """Return the same of every round of a collective: :func:`foretail.sim_bridge.packets.cost.round_table`."""
        return round_table(self.flows(), self.summary["end_ns"], self.settings())

    def counters(self) -> Records:
        """Return what every interval of a queue began with and brought: array of COUNTER_DTYPE, if they were logged."""
        return read_records(self.folder / "counters.bin", COUNTER_DTYPE)

    def branches(self) -> list[Branch]:
        """Return the branches of a run that divides, in order of their arrivals; of any other none."""
        return [
            Branch(
                **one,
                file=self.folder / f"branch_{one['row']}_{'turned' if one['turned'] else 'kept'}_{one['repeat']}.bin",
            )
            for one in self.summary.get("branches", [])
        ]

    def priorities(self) -> NDArray[np.uint8]:
        """Return the priority of each arrival of a trace, 0 of TCP, if the transport is RC3: uint8[arrivals]."""
        return np.fromfile(self.folder / "priorities.bin", np.uint8)

    def versions(self) -> dict[str, str]:
        """Return the versions that the run's output depends on."""
        return {"foretail": importlib.metadata.version("foretail")}

    def occupancy(self) -> Records:
        """Return the samples of every switch's buffer while traffic was offered: array of OCCUPANCY_DTYPE."""
        return read_records(self.folder / "occupancy.bin", OCCUPANCY_DTYPE)


def etalon_log(folder: Path) -> Path:
    """Return the packet log of a finished run of racks with circuits, in the format of the Etalon emulator."""
    return folder / "etalon.log"


def run_program(
    executable: Path, settings: Mapping[str, Any], folder: Path, progress: Callable[[Progress], None] | None, what: str
) -> None:
    """Run a simulator that takes the driver's settings, and wait for it; `what` is its name in errors."""
    document = json.dumps(with_compiled_policy(settings), indent=1) + "\n"
    with writing(folder):
        (folder / "settings.json").write_text(document, encoding="utf-8")
    command = [executable, folder / "settings.json", folder]
    complaints: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if not line.startswith("{"):
                    complaints.append(line.strip())
                elif progress is not None:
                    progress(Progress(**json.loads(line)))
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        reason = " ".join(complaint for complaint in complaints if complaint).removeprefix("error: ")
        if process.returncode < 0:
            reason = f"it was ended by {signal.Signals(-process.returncode).name} {reason}".strip()
        raise ForetailError(f"{what} failed: {reason}")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ForetailError(f"{path.parent} contains no complete simulation ({error}): run it again") from None
    return document
