"""The control plane's files read back: simple_switch_CLI commands and P4Runtime updates, as Foretail writes them."""

from __future__ import annotations

import re

from foretail.export.p4.syntax import Entry, Program, refuse, whole_number


def read_commands(text: str, program: Program) -> dict[str, list[Entry]]:
    """Return the entries of every table, in order, from ``table_add`` lines; refuse any other line."""
    entries: dict[str, list[Entry]] = {}
    pattern = re.compile(
        r"table_add (\w+) (\w+) (0x[0-9a-f]+)(?:(/|&&&|->)(0x[0-9a-f]+|\d+))? =>((?: 0x[0-9a-f]+)+)(?: (\d+))?"
    )
    for line in text.splitlines():
        found = pattern.fullmatch(line)
        table = program.tables.get(found[1]) if found else None
        if found is None or table is None or table.key is None or table.action != found[2]:
            refuse(f"the command {line[:60]!r}")
        width = program.types[table.key].width
        separator = {"lpm": "/", "ternary": "&&&", "range": "->", "exact": None}[table.kind]
        if found[4] != separator or (found[7] is not None) != (table.kind in ("ternary", "range")):
            refuse(f"the command {line[:60]!r}")
        second = (1 << width) - 1 if found[5] is None else whole_number(found[5])
        if table.kind == "lpm":
            second = _prefix_mask(second, width)
        rows = entries.setdefault(found[1], [])
        if found[7] is not None and int(found[7]) != len(rows) + 1:
            refuse("the priorities of commands do not count from 1")
        rows.append(Entry(whole_number(found[3]), second, tuple(whole_number(value) for value in found[6].split())))
    return entries


def read_updates(text: str, program: Program) -> dict[str, list[Entry]]:
    """Return the entries of every table, in order, from the updates of a WriteRequest; refuse any other line."""
    by_id = {table.id: name for name, table in program.tables.items() if table.id is not None}
    hexes = r'"((?:\\x[0-9a-f]{2})+)"'
    pattern = re.compile(
        r"updates \{ type: INSERT entity \{ table_entry \{ table_id: (\d+) match \{ field_id: 1 "
        rf"(lpm|ternary|range|exact) \{{ (value|low): {hexes}(?: (prefix_len|mask|high): (?:(\d+)|{hexes}))? \}} \}} "
        r"action \{ action \{ action_id: (\d+) ((?:params \{ param_id: \d+ value: \"[^\"]+\" \} ?)+)\} \}"
        r"(?: priority: (\d+))? \} \} \}"
    )
    entries: dict[str, list[Entry]] = {}
    priorities: dict[str, list[int]] = {}  # of tables that have an order
    for line in text.splitlines():
        found = pattern.fullmatch(line)
        name = by_id.get(int(found[1])) if found else None
        table = program.tables.get(name or "")
        if found is None or name is None or table is None or table.key is None or found[2] != table.kind:
            refuse(f"the update {line[:60]!r}")
        names = {"lpm": ("value", "prefix_len"), "ternary": ("value", "mask"), "range": ("low", "high")}
        if (found[3], found[5]) != names.get(table.kind, ("value", None)) or (found[6] is None) == (
            table.kind == "lpm"
        ):
            refuse(f"the update {line[:60]!r}")
        if int(found[8]) != program.actions[table.action].id or (found[10] is None) != (table.kind in ("lpm", "exact")):
            refuse(f"the update {line[:60]!r}")
        width = program.types[table.key].width
        second = (1 << width) - 1
        if table.kind == "lpm":
            second = _prefix_mask(int(found[6]), width)
        elif found[7] is not None:
            second = _from_bytes(found[7])
        parameters = re.findall(rf"param_id: (\d+) value: {hexes}", found[9])
        if [int(number) for number, _ in parameters] != list(range(1, len(parameters) + 1)):
            refuse(f"the update {line[:60]!r}")
        data = tuple(_from_bytes(value) for _, value in parameters)
        entries.setdefault(name, []).append(Entry(_from_bytes(found[4]), second, data))
        if found[10] is not None:
            priorities.setdefault(name, []).append(int(found[10]))
    for name, numbers in priorities.items():
        if numbers != list(range(len(numbers), 0, -1)):
            refuse(f"the priorities of updates of {name} do not count down to 1")
    return entries


def _prefix_mask(length: int, width: int) -> int:
    if length > width:
        refuse(f"a prefix of {length} bits")
    return ((1 << length) - 1) << (width - length)


def _from_bytes(text: str) -> int:
    return int(text.replace("\\x", ""), 16)
