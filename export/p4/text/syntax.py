"""Syntax of the P4 subset that Foretail emits and reads back: one control, as plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from foretail.export.proof.certificate import ProofError

CONTROL = "DropPredictor"
"""Name of the control, unless another is asked for."""


@dataclass(frozen=True)
class Type:
    """``bit<width>`` or ``int<width>``."""

    signed: bool
    width: int


@dataclass(frozen=True)
class Number:
    """A number of `width` bits, as its bit pattern."""

    width: int
    value: int


@dataclass(frozen=True)
class Slice:
    """Bits ``high`` down to ``low`` of a variable; a whole variable has None for both."""

    name: str
    high: int | None = None
    low: int | None = None


@dataclass(frozen=True)
class Operation:
    """``++``, ``&`` or ``+`` of two or more operands, or ``|+|`` or ``|-|``, which saturate, of two."""

    sign: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class Cast:
    """An operand as another type."""

    to: Type
    operand: Expression


Expression = Number | Slice | Operation | Cast


@dataclass(frozen=True)
class Assign:
    """``name = value;``"""

    name: str
    value: Expression


@dataclass(frozen=True)
class Apply:
    """``table.apply();``"""

    table: str


@dataclass(frozen=True)
class Choose:
    """``if (left > right) { yes } else { no }``, both of the same variable."""

    left: str
    right: Number | Slice
    yes: Assign
    no: Assign


Statement = Assign | Apply | Choose


@dataclass(frozen=True)
class Action:
    """Parameters, all bit strings, and assignments."""

    parameters: tuple[tuple[str, int], ...]
    body: tuple[Assign, ...]
    id: int | None = None


@dataclass(frozen=True)
class Entry:
    """One row: ``[first, second]`` of a range key, else ``key & second == first``."""

    first: int
    second: int
    data: tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """A table with the one action it calls; without key, its default alone.

    A key of several fields is one number, the most significant field first.
    """

    key: str | None
    kind: str
    action: str
    default: tuple[int, ...]
    entries: tuple[Entry, ...]
    size: int | None = None
    id: int | None = None
    fields: tuple[tuple[str, int], ...] = ()  #: of the key: what the control plane calls them, and widths
    description: str | None = None  #: that the control plane reads


@dataclass(frozen=True)
class Program:
    """The control, as read from its text."""

    name: str
    inputs: tuple[str, ...]  #: parameters of direction in, 24 bits each
    types: Mapping[str, Type]  #: of inputs, outputs and local variables
    actions: Mapping[str, Action]
    tables: Mapping[str, Table]
    statements: tuple[Statement, ...]  #: of the apply block

    @property
    def default_tau(self) -> int:
        """The initial parameter of table ``decide``."""
        table = self.tables["decide"]
        value, width = table.default[0], self.actions[table.action].parameters[0][1]
        return value - (1 << width) if value >> (width - 1) else value


def split_key(number: int, widths: Sequence[int]) -> list[int]:
    """Return the bits of a number that fields of these widths have, the most significant first."""
    parts, left = [], sum(widths)
    for width in widths:
        left -= width
        parts.append(number >> left & ((1 << width) - 1))
    return parts


def key_name(field: str) -> str:
    """Return what the control plane calls a field of a key: a variable its name, ``c_queue_w0[5:3]`` c_queue_w0_5_3."""
    return re.sub(r"[\[:]", "_", field).rstrip("]")


def names_in(statement: Statement | Expression) -> set[str]:
    """Return the variables that occur in a statement or expression."""
    if isinstance(statement, Slice):
        return {statement.name}
    if isinstance(statement, Cast):
        return names_in(statement.operand)
    if isinstance(statement, Operation):
        return set().union(*(names_in(operand) for operand in statement.operands))
    if isinstance(statement, Assign):
        return {statement.name} | names_in(statement.value)
    if isinstance(statement, Choose):
        return {statement.left} | names_in(statement.right) | names_in(statement.yes) | names_in(statement.no)
    return set()


def whole_number(text: str) -> int:
    """Return a hexadecimal or decimal number; refuse leading zeros, which P4 and C read differently."""
    if not re.fullmatch(r"0x[0-9a-fA-F]{1,1024}|0|[1-9][0-9]{0,1023}", text):
        refuse(f"{text[:40]!r} where an integer is due")
    return int(text, 0)


def refuse(reason: str) -> NoReturn:
    """Raise ProofError: the text is outside the subset."""
    raise ProofError(f"the exported P4 cannot be read back ({reason}): nothing is exported, report this as a bug")
