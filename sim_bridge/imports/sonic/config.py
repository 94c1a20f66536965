"""``config_db.json`` read into :class:`SonicBuffers`, and written: tables of buffers anew, every other as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from foretail.core.errors import ForetailError, readable
from foretail.core.files import write_file
from foretail.core.impostors import refuse_impostor
from foretail.core.json_text import parse_json
from foretail.core.settings import MOST_PORTS
from foretail.sim_bridge.imports.sonic.checks import require_bytes, require_consistent, require_headroom
from foretail.sim_bridge.imports.sonic.rows import (
    Row,
    number_of,
    ports_and_numbers,
    referred,
    shown,
    sorted_naturally,
    table_of,
)
from foretail.sim_bridge.imports.sonic.tables import (
    LARGEST_DYNAMIC_TH,
    PRIORITIES,
    SMALLEST_DYNAMIC_TH,
    Pool,
    Port,
    Profile,
    SonicBuffers,
)

LARGEST_FILE_BYTES = 1 << 26
"""Size of a configuration; that of a chassis has a few million bytes."""

_POOL_FIELDS = {"type": "ingress", "mode": "dynamic", "size": "size_bytes", "xoff": "xoff_bytes"}
_PROFILE_FIELDS = {
    **{name: name for name in ("pool", "dynamic_th", "headroom_type", "packet_discard_action")},
    **{name: f"{name}_bytes" for name in ("size", "static_th", "xoff", "xon", "xon_offset")},
}
"""The attribute that has the value of a field."""

_ENTRIES = {"BUFFER_PG": ("priority group", PRIORITIES - 1), "BUFFER_QUEUE": ("queue", 15)}
"""Meaning of the numbers in the keys of a table, and the largest."""

_MAPS = {
    "tc_to_pg_map": ("TC_TO_PRIORITY_GROUP_MAP", 15, PRIORITIES - 1),
    "tc_to_queue_map": ("TC_TO_QUEUE_MAP", 15, 15),
    "pfc_to_pg_map": ("PFC_PRIORITY_TO_PRIORITY_GROUP_MAP", PRIORITIES - 1, PRIORITIES - 1),
    "dscp_to_tc_map": ("DSCP_TO_TC_MAP", 63, 15),
}
"""The table of a field of ``PORT_QOS_MAP``, and the largest key and value of its maps."""

_BUFFER_TABLES = ("BUFFER_POOL", "BUFFER_PROFILE", *_ENTRIES)
_DYNAMIC_MODEL = (
    "the dynamic buffer model leaves it to the switch, so give the value that show buffer information prints"
)


def read_config(path: Path) -> SonicBuffers:
    """Read a configuration; ForetailError on anything in its tables of buffers that a switch could not do.

    `path`: ``config_db.json``, as ``config save`` writes it.
    """
    with readable(f"the SONiC configuration {path}", "give config_db.json"):
        refuse_impostor(path)
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    try:
        buffers = parse_config(content)
        require_headroom(buffers)
        require_bytes(buffers)
    except ForetailError as error:
        raise ForetailError(f"{path}: {error}") from None
    return buffers


def write_config(buffers: SonicBuffers, path: Path) -> None:
    """Write a configuration, whole or not at all; equal ones give equal bytes, in the order that SONiC sorts in."""
    write_file(path, config_text(buffers))


def parse_config(content: bytes) -> SonicBuffers:
    """Read the content of a configuration; ForetailError as :func:`read_config`, without a check of the headroom."""
    if len(content) > LARGEST_FILE_BYTES:
        raise ForetailError(f"it is larger than {LARGEST_FILE_BYTES:,} bytes: give config_db.json alone")
    try:
        document = parse_json(content, _finite, distinct_keys=True)
    except ValueError as error:
        raise ForetailError(f"it is no JSON that can be read ({error}): save it again with config save") from None
    if not isinstance(document, dict):
        raise ForetailError("it is no object of tables: give config_db.json")
    in_brackets = False

    def name_in(row: Row, text: str, table: str) -> str:
        nonlocal in_brackets
        in_brackets |= text.startswith("[")
        return referred(row, text, table)

    pools = {
        key: _pool(Row("BUFFER_POOL", key, row, tuple(_POOL_FIELDS))) for key, row in _rows(document, "BUFFER_POOL")
    }
    profiles = {}
    for key, fields in _rows(document, "BUFFER_PROFILE"):
        row = Row("BUFFER_PROFILE", key, fields, tuple(_PROFILE_FIELDS))
        pool = row.needed(row.text("pool"), "pool", _DYNAMIC_MODEL)
        profiles[key] = _profile(row, name_in(row, pool, "BUFFER_POOL"))
    names = _port_names(document)
    entries = {table: _entries(document, table, names, name_in) for table in _ENTRIES}
    cables, maps = _cables(document, names), _port_maps(document, names)
    ports_by_name = {
        name: _port(row, cables.get(name), maps[name], *(entries[table][name] for table in _ENTRIES))
        for name, row in names.items()
    }
    rest = {table: rows for table, rows in document.items() if table not in _BUFFER_TABLES}
    buffers = SonicBuffers(pools, profiles, ports_by_name, rest, in_brackets)
    require_consistent(buffers)
    return buffers


def config_text(buffers: SonicBuffers) -> str:
    """The text of a configuration; :func:`parse_config` reads it back as the same."""

    def reference(table: str, name: str) -> str:
        return f"[{table}|{name}]" if buffers.in_brackets else name

    def fields(row: Pool | Profile, names: Mapping[str, str]) -> dict[str, str]:
        values = {field: getattr(row, attribute) for field, attribute in names.items()}
        return {field: str(value) for field, value in values.items() if value is not None}

    tables: dict[str, dict[str, dict[str, str]]] = {table: {} for table in _BUFFER_TABLES}
    for name, pool in buffers.pools.items():
        kind = {"type": "ingress" if pool.ingress else "egress", "mode": "dynamic" if pool.dynamic else "static"}
        tables["BUFFER_POOL"][name] = fields(pool, _POOL_FIELDS) | kind
    for name, profile in buffers.profiles.items():
        pool_name = {"pool": reference("BUFFER_POOL", profile.pool)}
        tables["BUFFER_PROFILE"][name] = fields(profile, _PROFILE_FIELDS) | pool_name
    for name, port in buffers.ports.items():
        for table, entries in (("BUFFER_PG", port.groups), ("BUFFER_QUEUE", port.queues)):
            for numbers, profile_name in _ranges(entries):
                tables[table][f"{name}|{numbers}"] = {"profile": reference("BUFFER_PROFILE", profile_name)}
    document = {**buffers.rest, **{table: rows for table, rows in tables.items() if rows}}
    return json.dumps(sorted_naturally(document), indent=4) + "\n"


def _ranges(entries: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """The profile of each run of numbers that share one, such as of 3-4."""
    numbered = enumerate(sorted(entries.items()))
    for (_, profile), run in groupby(numbered, lambda item: (item[1][0] - item[0], item[1][1])):
        numbers = [number for _, (number, _) in run]
        yield (f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])), profile


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:60]} is not finite")
    return number


def _rows(document: Mapping[str, Any], table: str) -> Iterator[tuple[str, Any]]:
    for key, fields in table_of(document, table).items():
        if not re.fullmatch(r"[\w.-]{1,255}", key, re.ASCII):
            kind = "port" if table == "PORT" else "row"
            raise ForetailError(f"{table} names a {kind} {ascii(key)[:100]}: use letters, digits, _, . and - in names")
        yield key, fields


def _pool(row: Row) -> Pool:
    kind = row.needed(row.text("type", ("ingress", "egress")), "type", "write ingress or egress")
    mode = row.needed(row.text("mode", ("dynamic", "static")), "mode", "write dynamic or static")
    size_bytes = row.needed(row.whole("size"), "size", _DYNAMIC_MODEL)
    return Pool(kind == "ingress", mode == "dynamic", size_bytes, row.whole("xoff"))


def _profile(row: Row, pool: str) -> Profile:
    dynamic = row.whole("dynamic_th", SMALLEST_DYNAMIC_TH, LARGEST_DYNAMIC_TH)
    static = row.whole("static_th")
    if (dynamic is None) == (static is None):
        which = "neither dynamic_th nor static_th" if dynamic is None else "both dynamic_th and static_th"
        raise ForetailError(f"{row.name} has {which}: give it one of them")
    headroom_type = row.text("headroom_type", ("static", "dynamic"))
    if headroom_type == "dynamic":
        raise ForetailError(f"{row.name} has headroom_type = dynamic: {_DYNAMIC_MODEL}")
    return Profile(
        pool,
        row.needed(row.whole("size"), "size", "write 0 where nothing is reserved"),
        dynamic,
        static,
        row.whole("xoff"),
        row.whole("xon"),
        row.whole("xon_offset"),
        headroom_type,
        row.text("packet_discard_action", ("drop", "trim")),
    )


def _port_names(document: Mapping[str, Any]) -> dict[str, Row]:
    """The rows of ``PORT`` by name."""
    table = table_of(document, "PORT")
    if not table and any(key.startswith(("PORT|", "PORT:")) for key in document):
        raise ForetailError("it has keys such as PORT|Ethernet0, as the database does: give what config save writes")
    if not 0 < len(table) <= MOST_PORTS:
        raise ForetailError(f"PORT has {len(table):,} ports: give a configuration with 1 to {MOST_PORTS:,}")
    return {name: Row("PORT", name, fields) for name, fields in _rows(document, "PORT")}


def _known(row: Row, port: str, names: Mapping[str, Any]) -> str:
    if port not in names:
        raise ForetailError(f"{row.name} is for {shown(port)}, which is no PORT: add the port, or leave it out")
    return port


def _port(
    row: Row, cable_m: int | None, qos: Mapping[str, Any], groups: Mapping[int, str], queues: Mapping[int, str]
) -> Port:
    speed_mbps = row.needed(row.whole("speed", 100, 10**9), "speed", "add it, in Mbit/s, such as 10000")
    itself = {number: number for number in range(PRIORITIES)}
    return Port(
        speed_mbps * 1_000_000,
        cable_m,
        row.text("admin_status", ("up", "down")) != "down",
        qos.get("pfc_enable", ()),
        groups,
        queues,
        qos.get("tc_to_pg_map", itself),
        qos.get("tc_to_queue_map", itself),
        qos.get("pfc_to_pg_map", itself),
        qos.get("dscp_to_tc_map", {}),
    )


def _entries(
    document: Mapping[str, Any], table: str, names: Mapping[str, Any], name_in: Callable[[Row, str, str], str]
) -> dict[str, dict[int, str]]:
    """The profile of each priority group, or of each queue, by port."""
    numbered, at_most = _ENTRIES[table]
    entries: dict[str, dict[int, str]] = {name: {} for name in names}
    for key, fields in table_of(document, table).items():
        row = Row(table, key, fields, ("profile",))
        ports, numbers = ports_and_numbers(row, key, at_most)
        profile = name_in(row, row.needed(row.text("profile"), "profile", "name one"), "BUFFER_PROFILE")
        if profile == "NULL":
            raise ForetailError(f"{row.name} has the profile NULL: {_DYNAMIC_MODEL}")
        for port in ports:
            of_port = entries[_known(row, port, names)]
            for number in numbers:
                if number in of_port:
                    raise ForetailError(
                        f"{row.name} is a second row for {numbered} {number} of {port}: leave it out of one row"
                    )
                of_port[number] = profile
    return entries


def _cables(document: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, int | None]:
    """Metres of cable of each port that has some."""
    cables: dict[str, int | None] = {}
    for key, fields in table_of(document, "CABLE_LENGTH").items():
        row = Row("CABLE_LENGTH", key, fields)
        for port in fields:
            text = row.text(_known(row, port, names))
            if port in cables:
                raise ForetailError(f"{row.name} is a second length for {port}: leave the port out of one")
            if text is None or not re.fullmatch("[0-9]{1,7}m|None", text):
                raise row.refusal(port, "metres such as 5m are needed")
            cables[port] = None if text == "None" else int(text[:-1])
    return cables


def _port_maps(document: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Fields of ``PORT_QOS_MAP`` for each port: priorities with PFC, and maps by field; `global` holds for all."""
    tables = {
        field: {
            key: {
                number_of(row, number, at_most): number_of(row, row.text(number) or "", highest)
                for number in (fields if isinstance(fields, Mapping) else {})
            }
            for key, fields in table_of(document, table).items()
            for row in [Row(table, key, fields)]
        }
        for field, (table, at_most, highest) in _MAPS.items()
    }
    maps: dict[str, dict[str, Any]] = {name: {} for name in names}
    of_all: dict[str, Any] = {}
    for key, fields in table_of(document, "PORT_QOS_MAP").items():
        row = Row("PORT_QOS_MAP", key, fields)
        qos: dict[str, Any] = {}
        for field, (table, _, _) in _MAPS.items():
            text = row.text(field)
            if text is not None:
                name = referred(row, text, table)
                if name not in tables[field]:
                    raise ForetailError(f"{row.name} has {field} {shown(name)}, which is no row of {table}: add it")
                qos[field] = tables[field][name]
        enabled = row.text("pfc_enable")
        if enabled is not None:
            numbers = [number_of(row, text, PRIORITIES - 1) for text in enabled.split(",")] if enabled else []
            if len(set(numbers)) < len(numbers):
                raise row.refusal("pfc_enable", "each priority is needed once")
            qos["pfc_enable"] = tuple(sorted(numbers))
        if key == "global":
            of_all = qos
            continue
        for port in key.split(","):
            if maps[_known(row, port, names)]:
                raise ForetailError(f"{row.name} is a second row for {port}: leave the port out of one")
            maps[port] = qos
    return {name: {**of_all, **qos} for name, qos in maps.items()}
