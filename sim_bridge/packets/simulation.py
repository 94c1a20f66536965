"""Runs of a network of packets: their progress, their files, and the first event in which two runs differ."""

from __future__ import annotations

import importlib.metadata
import json
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.core.files import writing
from foretail.core.json_text import parse_json
from foretail.core.summary import Summarised
from foretail.features.records import ARRIVAL_DTYPE, COUNTER_DTYPE, FLOW_DTYPE, OCCUPANCY_DTYPE, Records, read_records
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
    with writing(folder):
        document = json.dumps(with_compiled_policy(settings), indent=1)
        (folder / "settings.json").write_text(document + "\n", encoding="utf-8")
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


FILES = {
    "arrivals.bin": ARRIVAL_DTYPE,
    "flows.bin": FLOW_DTYPE,
    "occupancy.bin": OCCUPANCY_DTYPE,
    "counters.bin": COUNTER_DTYPE,
}
"""The files of a run whose records are compared, in this order."""
DECIDED_LATER = ("fate_time_ns", "lqd_drop")
"""Fields of an arrival that are known only after later events."""
OF_THE_MACHINE = ("ns3_version", "events", "simulation_cpu_seconds", "simulation_wall_seconds", "wall_seconds")
"""Keys of a summary that say how it was made."""
WHEN_AND_WHERE = ("time_ns", "start_ns", "switch", "port", "flow")
"""Fields that say of a record when and where it happened."""


def first_difference(runs: Mapping[str, PacketRun]) -> str | None:
    """Return where two runs of one document differ first, in one sentence; None when they have the same bytes.

    Runs with a trace name the first arrival at a switch that differs, which is the first event that does. Without one
    the first flow is named, else the first sample of a buffer, the first interval, or the first entry of the summary.

    Parameters
    ----------
    runs : both, by what their networks are called

    Raises
    ------
    ForetailError
        If a file of a run cannot be read.
    """
    one, other = runs.values()
    names = tuple(runs)
    files = [sorted(path.name for path in run.folder.iterdir() if path.name in FILES) for run in (one, other)]
    if files[0] != files[1]:
        return f"{names[0]} wrote {', '.join(files[0])}, {names[1]} {', '.join(files[1])}"
    for file in (name for name in FILES if name in files[0]):
        paths = one.folder / file, other.folder / file
        if paths[0].read_bytes() != paths[1].read_bytes():
            records = [read_records(path, FILES[file]) for path in paths]
            return _first_record(file, records[0], records[1], names)
    summaries = [{k: v for k, v in run.summary.items() if k not in OF_THE_MACHINE} for run in (one, other)]
    entry = next(_entries(summaries[0], summaries[1], ""), None)
    return (
        None if entry is None else f"summary.json differs in {entry[0]}: {names[0]} {entry[1]}, {names[1]} {entry[2]}"
    )


def first_event(
    document: Mapping[str, Any], folder: Path, networks: Mapping[str, Callable[[Mapping[str, Any], Path], PacketRun]]
) -> str | None:
    """Run a document again with a trace, and return the first arrival that differs as :func:`first_difference` does.

    Parameters
    ----------
    folder : an existing folder, in which each network gets one of its name
    networks : two functions that run a document, by what their networks are called
    """
    runs = {}
    for name, run in networks.items():
        (folder / name).mkdir()
        runs[name] = run({**document, "trace": True}, folder / name)
    return first_difference(runs)


def _first_record(file: str, one: Records, other: Records, names: tuple[str, ...]) -> str:
    common, fields = min(len(one), len(other)), FILES[file].names or ()
    at_once = [name for name in fields if name not in DECIDED_LATER]
    for compared in (at_once, fields):
        different = np.zeros(common, np.bool_)
        for name in compared:
            different |= (one[name][:common] != other[name][:common]).reshape(common, -1).any(axis=1)
        if different.any():
            place = int(np.argmax(different))
            return f"{file}, {_when(one[place], place)}: {_unlike(one[place], other[place], names)}"
    longer, records = (names[0], one) if len(one) > len(other) else (names[1], other)
    return f"{file}, {_when(records[common], common)}: only {longer} has it, and {len(records) - common - 1:,} after it"


def _unlike(one: np.void, other: np.void, names: tuple[str, ...]) -> str:
    """Return what two records have in the fields that differ."""
    fields = [name for name in one.dtype.names or () if one[name].tobytes() != other[name].tobytes()]
    has = (", ".join(f"{name} = {record[name].tolist()}" for name in fields) for record in (one, other))
    return "; ".join(f"{name} has {values}" for name, values in zip(names, has, strict=True))


def _when(record: np.void, place: int) -> str:
    """Return the place of a record, and where and when it happened."""
    known = (f"{name} {record[name]}" for name in WHEN_AND_WHERE if name in (record.dtype.names or ()))
    return f"record {place:,} ({', '.join(known)})"


def _entries(one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """The entries that differ, by their dotted names."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in dict.fromkeys([*one, *other]):
            yield from _entries(one.get(name), other.get(name), f"{path}.{name}".lstrip("."))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from _entries(*pair, f"{path}[{number}]")
    elif one != other:
        yield path, one, other
