"""The first event in which two runs of a network of packets differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from foretail.features.records import ARRIVAL_DTYPE, COUNTER_DTYPE, FLOW_DTYPE, OCCUPANCY_DTYPE, Records, read_records
from foretail.sim_bridge.packets.simulation import PacketRun

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
