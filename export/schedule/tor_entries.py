"""A schedule as P4_16 tables, one control per rack: slot and destination -> egress port."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.export.templates import environment
from foretail.sim_bridge.circuits.schedules.schedule import IDLE, Schedule

_LAST_PORT = 510
"""Port 511 of v1model drops."""

MOST_CIRCUITS = 1 << 24
"""Slots times uplinks of a rack that are read back."""

_CONSTANT = re.compile(r"#define CIRCUIT_(\w+) ([0-9]{1,18})\n")
_CONSTANTS = {"slots", "lanes", "uplinks", "first_port", "nodes", "rack"}
_ENTRY = re.compile(r" {12}\(([0-9]{1,18}), ([0-9]{1,18}), ([0-9]{1,18})\) : send\(([0-9]{1,18})\);")
_HEAD, _TAIL = "        const entries = {\n", "\n        }\n"


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
