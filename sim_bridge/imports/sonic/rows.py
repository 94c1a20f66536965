"""Rows of the tables of a SONiC configuration, whose values are strings, and the keys that name ports and numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from foretail.core.errors import ForetailError

LARGEST = 2**64 - 1
"""Largest number: SONiC's are uint64."""

_RANGE = re.compile(r"([0-9]{1,2})(?:-([0-9]{1,2}))?")


def shown(text: str) -> str:
    """A name as sentences have it: on one line, and without the middle of a long list of ports."""
    plain = ascii(text)[1:-1]
    return plain if len(plain) <= 100 else f"{plain[:60]}...{plain[-30:]}"


class Row:
    """A row of a table: its fields, each of which is read by name and refused by its entry."""

    def __init__(self, table: str, key: str, fields: Any, known: tuple[str, ...] | None = None) -> None:
        """ForetailError on a row that is no object, a value that is no string, or a field that is not `known`."""
        self.name = shown(f"{table}|{key}")
        if not isinstance(fields, Mapping):
            raise ForetailError(f"{self.name} is no object: write its fields as {{NAME: VALUE}}")
        for field in fields:
            if known is not None and field not in known:
                raise ForetailError(f"{self.name} has the field {shown(field)}, and {table} only {', '.join(known)}")
        self._fields = fields

    def text(self, field: str, one_of: tuple[str, ...] | None = None) -> str | None:
        """The value of a field, or None without it; SONiC takes a whole number for the string of it."""
        value = self._fields.get(field)
        if field not in self._fields:
            return None
        if type(value) is int:
            value = str(value) if abs(value) <= LARGEST else "a larger number"
        if not isinstance(value, str):
            raise ForetailError(f"{self.name} has no string as its {shown(field)}: write the value in quotes")
        if one_of is not None and value not in one_of:
            raise self.refusal(field, f"{' or '.join(one_of)} is needed")
        return value

    def whole(self, field: str, at_least: int = 0, at_most: int = LARGEST) -> int | None:
        """The whole number of a field, or None without it."""
        value = self.text(field)
        if value is None:
            return None
        if not re.fullmatch(r"-?[0-9]{1,20}", value) or not at_least <= int(value) <= at_most:
            raise self.refusal(field, f"a whole number from {at_least} to {at_most} is needed")
        return int(value)

    def needed(self, value: Any, field: str, why: str) -> Any:
        """The value of a field; ForetailError without it."""
        if value is None:
            raise ForetailError(f"{self.name} has no {field}: {why}")
        return value

    def refusal(self, field: str, needed: str) -> ForetailError:
        """A field with a value that cannot be."""
        return ForetailError(f"{self.name} has {shown(field)} = {ascii(self._fields[field])[:60]}, where {needed}")


def table_of(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The rows of a table by key, none without it."""
    table = document.get(name, {})
    if not isinstance(table, Mapping):
        raise ForetailError(f"{name} is no table: write its rows as {{KEY: {{FIELD: VALUE}}}}")
    return table


def referred(row: Row, text: str, table: str) -> str:
    """The name in a reference, which SONiC wrote ``[TABLE|NAME]`` once and writes as NAME now."""
    if not text.startswith("["):
        return text
    if not (text.startswith(f"[{table}|") and text.endswith("]")):
        raise ForetailError(f"{row.name} refers to {shown(text)}, which is no row of {table}: write [{table}|NAME]")
    return text[len(table) + 2 : -1]


def number_of(row: Row, text: str, at_most: int) -> int:
    """A number that is a key, or one of a list."""
    if not re.fullmatch("[0-9]{1,2}", text) or int(text) > at_most:
        raise ForetailError(f"{row.name} names {shown(text)}, which is no number from 0 to {at_most}: correct it")
    return int(text)


def ports_and_numbers(row: Row, key: str, at_most: int) -> tuple[list[str], range]:
    """The ports and the numbers that a key such as ``Ethernet0,Ethernet4|3-4`` is for."""
    names, between, numbers = key.partition("|")
    match = _RANGE.fullmatch(numbers)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if not between or not low <= high <= at_most:
        raise ForetailError(f"{row.name} is for no ports and numbers: write PORT|LOW-HIGH with numbers to {at_most}")
    return names.split(","), range(low, high + 1)


def sorted_naturally(value: Any) -> Any:
    """The same JSON, with the keys of objects in SONiC's order: Ethernet4 before Ethernet12."""
    if isinstance(value, Mapping):
        return {key: sorted_naturally(value[key]) for key in sorted(value, key=_natural)}
    return [sorted_naturally(item) for item in value] if isinstance(value, list) else value


def _natural(key: str) -> tuple[list[Any], str]:
    parts: list[Any] = re.split("([0-9]+)", key)
    for place in range(1, len(parts), 2):
        digits = parts[place].lstrip("0")
        parts[place] = (len(digits), digits)
    return parts, key
