"""The control plane's files read back, as Foretail writes them: for simple_switch_CLI, P4Runtime and Tofino."""

from __future__ import annotations

import json
import re

from foretail.export.p4.text.syntax import Entry, Program, refuse, whole_number


def read_commands(text: str, program: Program) -> dict[str, list[Entry]]:
    """Return the entries of every table, in order, from ``table_add`` lines; refuse any other line."""
    entries: dict[str, list[Entry]] = {}
    pattern = re.compile(
        r"table_add (\w+) (\w+) (0x[0-9a-f]+)(?:(/|&&&|->)(0x[0-9a-f]+|\d+))? =>((?: 0x[0-9a-f]+)+)(?: (\d+))?"
    )
    for line in text.splitlines():
        parts = pattern.fullmatch(line)
        table = program.tables.get(parts[1]) if parts else None
        if parts is None or table is None or table.key is None or table.action != parts[2]:
            refuse(f"the command {line[:60]!r}")
        width = program.types[table.key].width
        separator = {"lpm": "/", "ternary": "&&&", "range": "->", "exact": None}[table.kind]
        if parts[4] != separator or (parts[7] is not None) != (table.kind in ("ternary", "range")):
            refuse(f"the command {line[:60]!r}")
        second = (1 << width) - 1 if parts[5] is None else whole_number(parts[5])
        if table.kind == "lpm":
            second = _prefix_mask(second, width)
        rows = entries.setdefault(parts[1], [])
        if parts[7] is not None and int(parts[7]) != len(rows) + 1:
            refuse("the priorities of commands do not count from 1")
        rows.append(Entry(whole_number(parts[3]), second, tuple(whole_number(value) for value in parts[6].split())))
    return entries


def read_bfrt(text: str, program: Program) -> dict[str, list[Entry]]:
    """Return the entries of every table, in order, from a JSON array of them; refuse anything else."""
    entries: dict[str, list[Entry]] = {}
    try:
        document = json.loads(text)
        for place, row in enumerate(document):
            table = program.tables[row["table"]]
            action = program.actions[table.action]
            numbered = {} if table.kind == "exact" else {"$MATCH_PRIORITY": len(entries.get(row["table"], ()))}
            parts = [row["key"][name] for name, _ in table.fields]
            names = {"value"} if table.kind == "exact" else {"value", "mask"}
            # as numbers and names in the order of the text, so that nothing is there twice or beside them
            expected = {
                "table": row["table"],
                "key": {name: {n: part[n] for n in part} for (name, _), part in zip(table.fields, parts, strict=True)}
                | numbered,
                "action": table.action,
                "data": {name: row["data"][name] for name, _ in action.parameters},
            }
            if row != expected or not table.fields or any(set(part) != names for part in parts):
                refuse(f"entry {place} for Tofino")
            first = second = 0
            for (_, width), part in zip(table.fields, parts, strict=True):
                first = first << width | _field(part["value"], width)
                second = second << width | _field(part.get("mask", (1 << width) - 1), width)
            data = tuple(_field(row["data"][name], width) for name, width in action.parameters)
            entries.setdefault(row["table"], []).append(Entry(first, second, data))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        refuse(f"the entries for Tofino: {type(error).__name__}")
    return entries


def _field(value: object, width: int) -> int:
    if type(value) is not int or not 0 <= value < 1 << width:
        refuse(f"{str(value)[:40]} where {width} bits are due")
    return value


def read_updates(text: str, program: Program) -> dict[str, list[Entry]]:
    """Return the entries of every table, in order, from the updates of a WriteRequest; refuse any other line."""
    by_id = {table.id: name for name, table in program.tables.items() if table.id is not None}
    hexes = r'"(?:\\x[0-9a-f]{2})+"'
    field = re.compile(
        r"match \{ field_id: (\d+) (lpm|ternary|range|exact) "
        rf"\{{ (value|low): ({hexes})(?: (prefix_len|mask|high): (\d+|{hexes}))? \}} \}} "
    )
    pattern = re.compile(
        r"updates \{ type: INSERT entity \{ table_entry \{ table_id: (\d+) ((?:match \{[^{}]+\{[^{}]+\} \} )*)"
        r"action \{ action \{ action_id: (\d+) ((?:params \{ param_id: \d+ value: \"[^\"]+\" \} ?)+)\} \}"
        r"(?: priority: (\d+))? \} \} \}"
    )
    forms = {"lpm": ("value", "prefix_len"), "ternary": ("value", "mask"), "range": ("low", "high")}
    entries: dict[str, list[Entry]] = {}
    priorities: dict[str, list[int]] = {}  # of tables that have an order
    for line in text.splitlines():
        parts = pattern.fullmatch(line)
        name = by_id.get(int(parts[1])) if parts else None
        table = program.tables.get(name or "")
        if parts is None or name is None or table is None or table.key is None:
            refuse(f"the update {line[:60]!r}")
        if int(parts[3]) != program.actions[table.action].id or (parts[5] is None) != (table.kind in ("lpm", "exact")):
            refuse(f"the update {line[:60]!r}")
        fields = field.findall(parts[2])
        if "".join(one[0] for one in field.finditer(parts[2])) != parts[2]:
            refuse(f"the update {line[:60]!r}")
        numbers = [int(number) for number, *_ in fields]
        whole = table.kind != "ternary"  # else fields of no care are left out
        every = list(range(1, len(table.fields) + 1))
        if numbers != sorted(set(numbers)) or not set(numbers) <= set(every) or (whole and numbers != every):
            refuse(f"the update {line[:60]!r}")
        values, masks = [0] * len(table.fields), [0] * len(table.fields)
        for number, (_, kind, low, first, high, second) in zip(numbers, fields, strict=True):
            if kind != table.kind or (low, high) != forms.get(kind, ("value", "")):
                refuse(f"the update {line[:60]!r}")
            if (kind == "lpm") == second.startswith('"') and kind != "exact":
                refuse(f"the update {line[:60]!r}")
            width = table.fields[number - 1][1]
            values[number - 1] = _field(_from_bytes(first), width)
            if kind == "lpm":
                masks[number - 1] = _prefix_mask(int(second), width)
            else:
                masks[number - 1] = (1 << width) - 1 if kind == "exact" else _field(_from_bytes(second), width)
        first = second = 0
        for (_, width), value, mask in zip(table.fields, values, masks, strict=True):
            first, second = first << width | value, second << width | mask
        parameters = re.findall(rf"param_id: (\d+) value: ({hexes})", parts[4])
        if [int(number) for number, _ in parameters] != list(range(1, len(parameters) + 1)):
            refuse(f"the update {line[:60]!r}")
        data = tuple(_from_bytes(value) for _, value in parameters)
        entries.setdefault(name, []).append(Entry(first, second, data))
        if parts[5] is not None:
            priorities.setdefault(name, []).append(int(parts[5]))
    for name, numbers in priorities.items():
        if numbers != list(range(len(numbers), 0, -1)):
            refuse(f"the priorities of updates of {name} do not count down to 1")
    return entries


def _prefix_mask(length: int, width: int) -> int:
    if length > width:
        refuse(f"a prefix of {length} bits")
    return ((1 << length) - 1) << (width - length)


def _from_bytes(text: str) -> int:
    return int(text.strip('"').replace("\\x", ""), 16)
