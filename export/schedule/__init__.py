"""Schedules of circuits for other programs: each text is read back and compared before anyone gets it.

- ``schedule.json`` is for whatever reads JSON.
- ``schedule.h`` is a C header for packet simulators, read back by running it.
- ``p4/tor_N.p4`` are P4_16 tables, one control per rack: slot and destination -> egress port.
"""

from __future__ import annotations

import ctypes
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.core.json_text import parse_json
from foretail.export.c.build import compiled_reader
from foretail.export.folder import environment
from foretail.sim_bridge.circuits.schedules import IDLE, Schedule

JSON, C_TABLE = "schedule.json", "schedule.h"

# Two periods through the accessor: it has to repeat.
_READER = """
#include "schedule.h"
void foretail_shape(int32_t *out) {
  out[0] = FORETAIL_SCHEDULE_SLOTS;
  out[1] = FORETAIL_SCHEDULE_UPLINKS;
  out[2] = FORETAIL_SCHEDULE_NODES;
}
void foretail_read(int32_t *out) {
  uint64_t slot;
  unsigned uplink, node;
  for (slot = 0; slot < 2 * FORETAIL_SCHEDULE_SLOTS; ++slot)
    for (uplink = 0; uplink < FORETAIL_SCHEDULE_UPLINKS; ++uplink)
      for (node = 0; node < FORETAIL_SCHEDULE_NODES; ++node)
        *out++ = foretail_schedule_destination(slot, uplink, node);
}
"""

_LAST_PORT = 510
"""Port 511 of v1model drops."""

MOST_CIRCUITS = 1 << 24
"""Slots times uplinks of a rack that are read back."""

_CONSTANT = re.compile(r"#define CIRCUIT_(\w+) ([0-9]{1,18})\n")
_CONSTANTS = {"slots", "lanes", "uplinks", "first_port", "nodes", "rack"}
_ENTRY = re.compile(r" {12}\(([0-9]{1,18}), ([0-9]{1,18}), ([0-9]{1,18})\) : send\(([0-9]{1,18})\);")
_HEAD, _TAIL = "        const entries = {\n", "\n        }\n"


@dataclass(frozen=True, eq=False)
class PlannedSchedule:
    """A schedule, what it was made with, and its throughput.

    Examples
    --------
    >>> from foretail.sim_bridge.circuits.schedules import round_robin
    >>> PlannedSchedule(round_robin(4, 1), None, None, 0.3, None).theta_single_hop
    0.3
    """

    schedule: Schedule
    k: int | None  #: the k of the thesis; None when another scheduler made it
    oblivious: int | None  #: its l; None as k
    theta_single_hop: float  #: throughput on the demand, not capped at 1, without the duty cycle
    theta_multi_hop: float | None  #: None when it was not computed


def render_schedule(planned: PlannedSchedule, outputs: Sequence[str], *, first_port: int = 0) -> dict[str, str]:
    """Return the files of the chosen outputs, by name: ``p4`` is one file per rack, the others are one each.

    ForetailError when an output cannot express the schedule, or does not read back as it; for C also without a
    compiler.

    Parameters
    ----------
    outputs : sequence of {'json', 'c', 'p4'}
    first_port : P4: egress port of uplink 0
    """
    schedule = planned.schedule
    files: dict[str, str] = {}
    for output in outputs:
        rendered: Mapping[str, str]
        if output == "json":
            rendered = {JSON: schedule_json(planned)}
            read_back = read_json(rendered[JSON])
        elif output == "c":
            rendered = {C_TABLE: c_table(schedule)}
            read_back = read_c_table(rendered[C_TABLE])
        else:
            texts = tor_entries(schedule, first_port)
            rendered = {f"p4/tor_{tor}.p4": text for tor, text in enumerate(texts)}
            read_back = read_tor_entries(texts)
        if not np.array_equal(read_back.matchings, schedule.matchings):
            raise ForetailError(f"the {output} output does not read back as the schedule: report this as a bug")
        files |= rendered
    return files


def schedule_json(planned: PlannedSchedule) -> str:
    """Return ``schedule.json``.

    ``matchings`` is [slot][uplink][src] = dst or -1; ``slots`` has per slot the list of [src, dst], by uplink and
    source, parallel circuits repeated, no self loops.
    """
    schedule = planned.schedule
    slots = []
    for matchings in schedule.matchings:
        uplink, sender = np.nonzero(matchings != IDLE)
        slots.append(np.stack([sender, matchings[uplink, sender]], axis=1).tolist())
    document = {
        "n": schedule.nodes,
        "degree": schedule.degree,
        "k": planned.k,
        "l": planned.oblivious,
        "period_slots": schedule.period,
        "theta_single_hop": planned.theta_single_hop,
        "theta_multi_hop": planned.theta_multi_hop,
        "matchings": schedule.matchings.tolist(),
        "slots": slots,
    }
    return json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n"


_KEYS = {"n", "degree", "k", "l", "period_slots", "matchings", "slots", "theta_single_hop", "theta_multi_hop"}


def read_json(text: str) -> Schedule:
    """Return the schedule that ``schedule.json`` describes; ForetailError when it contradicts itself."""
    try:
        document = parse_json(text)
        if unknown := sorted(set(document) - _KEYS):
            raise ValueError(f"nothing is known of {', '.join(unknown)[:80]}")
        schedule = Schedule(np.array(document["matchings"]))
        shape = (document["period_slots"], document["degree"], document["n"])
        circuits = [np.array(slot, np.int64).reshape(-1, 2) for slot in document["slots"]]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ForetailError(f"a schedule cannot be read from JSON ({error}): let foretail schedule write it") from None
    if schedule.matchings.shape != shape or len(circuits) != schedule.period:
        raise ForetailError(f"a schedule in JSON says it has shape {shape}, which its matchings or slots have not")
    nodes = schedule.nodes
    for slot, (pairs, matchings) in enumerate(zip(circuits, schedule.matchings, strict=True)):
        sender = np.nonzero(matchings != IDLE)[1]
        listed = np.sort(pairs[:, 0] * nodes + pairs[:, 1])
        if not np.array_equal(listed, np.sort(sender * nodes + matchings[matchings != IDLE])):
            raise ForetailError(f"slot {slot} of a schedule in JSON lists other circuits than its matchings hold")
    return schedule


def c_table(schedule: Schedule) -> str:
    """Return ``schedule.h``: C99 and C++, no library but stdint.h."""
    slots = ",\n".join(
        "  {" + ",\n   ".join("{" + ", ".join(map(str, uplink)) + "}" for uplink in slot) + "}"
        for slot in schedule.matchings.tolist()
    )
    return (
        environment("foretail.export.schedule")
        .get_template("schedule.h.j2")
        .render(slots=schedule.period, uplinks=schedule.degree, nodes=schedule.nodes, table=slots)
    )


def read_c_table(text: str) -> Schedule:
    """Return what the accessor of ``schedule.h`` says in two periods.

    ForetailError without a C compiler, or when the second period is not the first.
    """
    with tempfile.TemporaryDirectory() as folder:
        reader = compiled_reader(Path(folder), {"schedule.h": text}, _READER, "-O0")  # a long table, read once
        shape = np.empty(3, np.int32)
        reader.foretail_shape(ctypes.c_void_p(shape.ctypes.data))
        periods = np.empty((2, *shape), np.int32)
        reader.foretail_read(ctypes.c_void_p(periods.ctypes.data))
    if not np.array_equal(*periods):
        raise ForetailError("the C table does not repeat after its period: report this as a bug")
    return Schedule(periods[0])


def tor_entries(schedule: Schedule, first_port: int) -> list[str]:
    """Return the P4 text of each rack.

    Circuits that a rack has to one destination at once share its traffic by lanes: every lane has an entry, and lane x
    takes circuit x modulo their number. ForetailError when an egress port would be above 510, or a rack has no circuit
    at all.
    """
    if first_port + schedule.degree - 1 > _LAST_PORT:
        raise ForetailError(
            f"p4.first_port = {first_port} and {schedule.degree} uplinks need egress ports up to "
            f"{first_port + schedule.degree - 1}: ports of v1model end at {_LAST_PORT}"
        )
    texts = []
    for tor in range(schedule.nodes):
        ports = _ports(schedule.matchings[:, :, tor], first_port)
        if not ports:
            raise ForetailError(f"rack {tor} has no circuit in the schedule: a P4 table needs an entry")
        lanes = max(map(len, ports.values()))
        entries = "\n".join(
            f"            ({slot}, {destination}, {lane}) : send({choice[lane % len(choice)]});"
            for (slot, destination), choice in ports.items()
            for lane in range(lanes)
        )
        texts.append(
            environment("foretail.export.schedule")
            .get_template("schedule.p4.j2")
            .render(
                rack=tor,
                nodes=schedule.nodes,
                slots=schedule.period,
                lanes=lanes,
                uplinks=schedule.degree,
                first_port=first_port,
                entries=entries,
            )
        )
    return texts


def read_tor_entries(texts: Sequence[str]) -> Schedule:
    """Return the schedule that the texts of all racks hold; ForetailError when they are not what is written here."""
    columns = [_read(tor, text) for tor, text in enumerate(texts)]
    if len({column.shape for column in columns}) != 1:
        raise ForetailError("the racks' P4 tables have different periods or uplinks: write them again together")
    return Schedule(np.stack(columns, axis=2))


def _ports(matchings: npt.NDArray[np.int32], first_port: int) -> dict[tuple[int, int], list[int]]:
    """Egress ports by slot and destination, of one rack's matchings[slot, uplink]."""
    ports: dict[tuple[int, int], list[int]] = {}
    for slot, uplinks in enumerate(matchings.tolist()):
        for uplink, destination in enumerate(uplinks):
            if destination != IDLE:
                ports.setdefault((slot, destination), []).append(first_port + uplink)
    return ports


def _read(tor: int, text: str) -> npt.NDArray[np.int32]:
    values = {name.lower(): int(value) for name, value in _CONSTANT.findall(text)}
    entries = text.partition(_HEAD)[2].partition(_TAIL)[0]
    rows = list(_entries(tor, entries))
    if (
        values.keys() != _CONSTANTS
        or values["rack"] != tor
        or text
        != environment("foretail.export.schedule").get_template("schedule.p4.j2").render(**values, entries=entries)
    ):
        raise ForetailError(f"the P4 table of rack {tor} is not as Foretail writes it: write it again")
    lanes = values["lanes"]
    by_key = {(slot, destination, lane): port for slot, destination, lane, port in rows}
    keys = {(slot, destination) for slot, destination, _ in by_key}
    if (
        len(by_key) != len(rows)
        or len(by_key) != len(keys) * lanes
        or set(by_key) != {(*key, lane) for key in keys for lane in range(lanes)}
    ):
        raise ForetailError(f"the P4 table of rack {tor} repeats an entry or lacks one: write it again")
    if values["slots"] * values["uplinks"] > MOST_CIRCUITS:
        raise ForetailError(f"the P4 table of rack {tor} has {values['slots']:,} slots, too many to read back")
    matchings = np.full((values["slots"], values["uplinks"]), IDLE, np.int32)
    for slot, destination, _, port in rows:
        place = (slot, port - values["first_port"])
        if not (slot < len(matchings) and destination < values["nodes"] and 0 <= place[1] < values["uplinks"]):
            raise ForetailError(f"the P4 table of rack {tor} has a slot, rack or port out of range: write it again")
        if matchings[place] not in (IDLE, destination):
            raise ForetailError(f"the P4 table of rack {tor} sends two ways through port {port}: write it again")
        matchings[place] = destination
    return matchings


def _entries(tor: int, text: str) -> Iterator[tuple[int, int, int, int]]:
    for line in text.split("\n"):
        match = _ENTRY.fullmatch(line)
        if match is None:
            raise ForetailError(f"the P4 table of rack {tor} holds the line {line!r}: write it again")
        slot, destination, lane, port = map(int, match.groups())
        yield slot, destination, lane, port
