"""Tables as a text needs them, and their rows in the forms of three control planes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foretail.export.p4.planning.prefixes import Row
from foretail.export.p4.text.syntax import key_name, split_key

TABLE_PREFIX, ACTION_PREFIX = 0x02000000, 0x01000000  # P4Runtime 1.3, section 6.3


@dataclass(frozen=True)
class TextTable:
    """A table as text needs it; rows first match first, every one (match, action data)."""

    name: str
    action: str
    kind: str
    key: tuple[tuple[str, int], ...]  # fields and their widths, most significant first
    widths: tuple[int, ...]
    body: tuple[str, ...]
    parameter_names: tuple[str, ...]
    rows: tuple[tuple[Row[Any], tuple[int, ...]], ...]
    default: tuple[int, ...]
    fixed: bool = True  # whether the default stays, rows too without those of a control plane
    size: int | None = None  # rows that a control plane may fill; None: as many as there are
    description: str | None = None  # of what the key is, for the control plane

    @property
    def key_bits(self) -> int:
        """Width of all fields."""
        return sum(width for _, width in self.key)


def split_row(table: TextTable, row: Row[Any]) -> tuple[list[int], list[int]]:
    """Return, for every field of the key, the value, or low end, and the mask, or high end, of a row."""
    widths = [width for _, width in table.key]
    return split_key(row.first, widths), split_key(row.second, widths)


def runtime_command(table: TextTable, index: int) -> str:
    """Return a row as a line for simple_switch_CLI."""
    row, data = table.rows[index]
    match, priority = f"{row.first:#x}", ""
    if table.kind == "lpm":
        match += f"/{row.second.bit_count()}"
    elif table.kind == "ternary":
        match, priority = f"{match}&&&{row.second:#x}", f" {index + 1}"  # 1 goes first
    elif table.kind == "range":
        match, priority = f"{match}->{row.second:#x}", f" {index + 1}"
    values = " ".join(f"{value:#x}" for value in data)
    return f"table_add {table.name} {table.action} {match} => {values}{priority}\n"


def runtime_update(number: int, table: TextTable, index: int) -> str:
    """Return a row as an update of P4Runtime in text form; `number` makes the ids of table and action."""
    row, data = table.rows[index]
    # the largest priority goes first
    priority = "" if table.kind in ("lpm", "exact") else f" priority: {len(table.rows) - index}"
    matches = []
    for field, (low, high) in enumerate(zip(*split_row(table, row), strict=True), 1):
        first, second = _bytes(low), _bytes(high)
        if table.kind == "lpm":
            match = f"lpm {{ value: {first} prefix_len: {high.bit_count()} }}"
        elif table.kind == "exact":
            match = f"exact {{ value: {first} }}"
        elif table.kind == "ternary" and not high:
            continue  # P4Runtime leaves out what a row does not care for
        else:
            names = ("value", "mask") if table.kind == "ternary" else ("low", "high")
            match = f"{table.kind} {{ {names[0]}: {first} {names[1]}: {second} }}"
        matches.append(f"match {{ field_id: {field} {match} }}")
    parameters = " ".join(f"params {{ param_id: {i} value: {_bytes(value)} }}" for i, value in enumerate(data, 1))
    action = f"action_id: {ACTION_PREFIX | number} {parameters}"
    return (
        f"updates {{ type: INSERT entity {{ table_entry {{ table_id: {TABLE_PREFIX | number} "
        f"{''.join(f'{match} ' for match in matches)}action {{ action {{ {action} }} }}{priority} }} }} }}\n"
    )


def runtime_bfrt(table: TextTable, index: int) -> dict[str, Any]:
    """Return a row for Tofino's runtime."""
    row, data = table.rows[index]
    key: dict[str, Any] = {}
    for (field, _), first, second in zip(table.key, *split_row(table, row), strict=True):
        key[key_name(field)] = {"value": first} if table.kind == "exact" else {"value": first, "mask": second}
    if table.kind != "exact":
        key["$MATCH_PRIORITY"] = index  # 0 goes first
    return {
        "table": table.name,
        "key": key,
        "action": table.action,
        "data": dict(zip(table.parameter_names, data, strict=True)),
    }


def _bytes(value: int) -> str:
    """Return the shortest big-endian byte string of a value, as protobuf text writes it."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in value.to_bytes(max(1, -(-value.bit_length() // 8)), "big")) + '"'
