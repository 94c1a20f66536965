"""Emitted P4 read back from nothing but its text: an interpreter of the emitted subset, and the boxes it is made of.

The subset is what ``render.py`` writes: one control of integer inputs, local variables, actions of assignments, tables of
one key with constant entries (or with entries from the control plane's file), and straight-line statements. Everything
else is refused, whatever it would mean in P4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from foretail.export.equivalence import ProofError, ReadBack
from foretail.models.boxes import Boxes

__all__ = ["Program", "read_p4"]

IntArray = npt.NDArray[np.int64]
WordArray = npt.NDArray[np.uint64]
BoolArray = npt.NDArray[np.bool_]

INPUT_BITS = 24
MAX_PIECES = 100_000

_TOKEN = re.compile(
    r"\s*(?:(\d+w(?:0x[0-9a-fA-F]+|\d+)|0x[0-9a-fA-F]+|\d+)|(@?[A-Za-z_]\w*)|(&&&|\+\+|\.\.|[-+&(){}\[\]<>=;:,.?@]))"
)
_COMMENT = re.compile(r"//[^\n]*")
_GUARD = re.compile(r"^#(ifndef|define) ([A-Z_][A-Z0-9_]*)$|^#endif$", re.MULTILINE)


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
    """``++``, ``&`` or ``+`` of two or more operands."""

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
    """A table with the one action it calls; without key, its default alone."""

    key: str | None
    kind: str
    action: str
    default: tuple[int, ...]
    entries: tuple[Entry, ...]
    id: int | None = None


@dataclass(frozen=True)
class Program:
    """The control, as read from its text.

    Attributes
    ----------
    inputs : tuple of str
        Parameters of direction in, 24 bits each.
    types : mapping of str to Type
        Of inputs, outputs and local variables.
    actions, tables : mapping of str to Action, Table
    statements : tuple of Statement
        Of the apply block.
    """

    inputs: tuple[str, ...]
    types: Mapping[str, Type]
    actions: Mapping[str, Action]
    tables: Mapping[str, Table]
    statements: tuple[Statement, ...]

    @property
    def default_tau(self) -> int:
        """The initial parameter of table ``decide``."""
        table = self.tables["decide"]
        return _signed(table.default[0], self.actions[table.action].parameters[0][1])

    def score(self, x: IntArray) -> IntArray:
        """Run the control on int64[rows, inputs] and return its scores, int64[rows].

        Raises
        ------
        ProofError
            When a decision is not ``score > tau`` with the initial tau.
        """
        values = self._run(x)
        score = _integers(values["score"])
        wrong = np.flatnonzero((_integers(values["drop"]) != 0) != (score > self.default_tau))
        if wrong.size:
            at = dict(zip(self.inputs, x[wrong[0]].tolist(), strict=True))
            raise ProofError(
                f"the exported P4 does not decide as score > {self.default_tau}, at {at}: report this as a bug"
            )
        return score

    def read_back(self, trees: int) -> ReadBack:
        """Return what the text says as boxes, one part per term of the score when these are as many as `trees`."""
        return _Boxer(self).read_back(trees)

    def _run(self, x: IntArray) -> dict[str, _Value]:
        if np.any(x < 0) or np.any(x >= 1 << INPUT_BITS):
            raise ProofError(
                f"an input is outside the {INPUT_BITS} bits that the exported P4 takes: report this as a bug"
            )
        values = {
            name: _Value(INPUT_BITS, False, (np.ascontiguousarray(x[:, i]).astype(np.uint64),))
            for i, name in enumerate(self.inputs)
        }
        for statement in self.statements:
            if isinstance(statement, Assign):
                values[statement.name] = _evaluate(statement.value, values, len(x))
            elif isinstance(statement, Choose):
                right = _evaluate(statement.right, values, len(x))
                holds = _integers(values[statement.left]) > _integers(right)
                yes, no = (_evaluate(branch.value, values, len(x)) for branch in (statement.yes, statement.no))
                limbs = tuple(np.where(holds, a, b) for a, b in zip(yes.limbs, no.limbs, strict=True))
                values[statement.yes.name] = _Value(yes.width, yes.signed, limbs)
            else:
                self._apply(self.tables[statement.table], values, len(x))
        return values

    def _apply(self, table: Table, values: dict[str, _Value], rows: int) -> None:
        action = self.actions[table.action]
        entry = np.full(rows, len(table.entries)) if table.key is None else _lookup(table, values[table.key])
        scope = dict(values)
        for place, (name, width) in enumerate(action.parameters):
            data = [e.data[place] for e in table.entries] + [table.default[place]]
            scope[name] = _Value(width, False, tuple(limb[entry] for limb in _limbs(data, width)))
        for assign in action.body:
            scope[assign.name] = values[assign.name] = _evaluate(assign.value, scope, rows)


def read_p4(text: str, commands: str | None = None, updates: str | None = None) -> Program:
    """Read the control back from its text, and its entries from the control plane's files when they are not in it.

    Parameters
    ----------
    text : str
        ``<name>.p4``.
    commands : str, optional
        ``<name>.commands.txt``, lines ``table_add`` for simple_switch_CLI.
    updates : str, optional
        ``<name>.entries.txtpb``, a P4Runtime WriteRequest; it has to hold the same entries as `commands`.

    Raises
    ------
    ProofError
        On anything outside the emitted subset, a variable that is read before it is set, or a row that cannot match.
    """
    program = _Parser(text, with_entries=commands is None).program()
    if commands is not None:
        entries = _read_commands(commands, program)
        if updates is not None and _read_updates(updates, program) != entries:
            _refuse("the P4Runtime entries are not those of the commands")
        for name, table in program.tables.items():
            program.tables[name] = replace(table, entries=tuple(entries.get(name, ())))  # type: ignore[index]
    _check(program)
    return program


def _refuse(reason: str) -> NoReturn:
    raise ProofError(f"the exported P4 cannot be read back ({reason}): nothing is exported, report this as a bug")


def _signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) else value


# -- text --------------------------------------------------------------------------------------------------------------


class _Parser:
    """Recursive descent over the tokens of one control."""

    def __init__(self, text: str, with_entries: bool) -> None:
        code = _COMMENT.sub(" ", text)
        guards = {match[2] for match in _GUARD.finditer(code) if match[2]}
        code = _GUARD.sub(" ", code)
        self.tokens: list[str] = []
        at = 0
        code = code.rstrip()
        while at < len(code):
            found = _TOKEN.match(code, at)
            if found is None:
                _refuse(f"at {code[at : at + 20].strip()!r}")
            self.tokens.append(found[1] or found[2] or found[3])
            at = found.end()
        if guards & set(self.tokens):
            _refuse("a guard is a name of the program")
        self.at = 0
        self.with_entries = with_entries
        self.types: dict[str, Type] = {}

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        token = self.peek()
        if wanted and token not in wanted:
            _refuse(f"{token!r} where {wanted[0]!r} is due")
        self.at += 1
        return token

    def takes(self, *wanted: str) -> None:
        for token in wanted:
            self.take(token)

    def takes_if(self, token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def name(self) -> str:
        token = self.take()
        if not re.fullmatch(r"[A-Za-z_]\w*", token):
            _refuse(f"{token!r} where a name is due")
        return token

    def integer(self) -> int:
        token = self.take()
        if not re.fullmatch(r"0x[0-9a-fA-F]+|\d+", token):
            _refuse(f"{token!r} where an integer is due")
        return int(token, 0)

    def number(self, width: int | None = None) -> Number:
        token = self.take()
        found = re.fullmatch(r"(\d+)w(0x[0-9a-fA-F]+|\d+)", token)
        if not found:
            _refuse(f"{token!r} where a number with its width is due")
        number = Number(int(found[1]), int(found[2], 0))
        if number.value >> number.width or (width is not None and number.width != width):
            _refuse(f"{token} is not a number of {width or number.width} bits")
        return number

    def type(self) -> Type:
        signed = self.take("bit", "int") == "int"
        self.take("<")
        width = self.integer()
        self.take(">")
        if not 1 <= width <= 4096:
            _refuse(f"a width of {width}")
        return Type(signed, width)

    def declare(self, name: str, kind: Type) -> None:
        if name in self.types:
            _refuse(f"{name} is declared twice")
        self.types[name] = kind

    def known(self, name: str, also: Mapping[str, Type] | None = None) -> Type:
        found = (also or {}).get(name) or self.types.get(name)
        if found is None:
            _refuse(f"{name} is not declared")
        return found

    def program(self) -> Program:
        self.takes("control", "DropPredictor", "(")
        inputs, outputs = [], []
        while True:
            direction = self.take("in", "out")
            kind, name = self.type(), self.name()
            self.declare(name, kind)
            if direction == "in":
                if kind != Type(False, INPUT_BITS) or outputs:
                    _refuse(f"the input {name} is not bit<{INPUT_BITS}> before the outputs")
                inputs.append(name)
            else:
                outputs.append((name, kind))
            if self.take(",", ")") == ")":
                break
        if [name for name, _ in outputs] != ["score", "drop"] or outputs[1][1] != Type(False, 1):
            _refuse("the outputs are not score and bit<1> drop")
        if not outputs[0][1].signed or outputs[0][1].width > 64:
            _refuse("the score is not an int of at most 64 bits")
        self.take("{")
        while self.peek() in ("bit", "int"):
            kind, name = self.type(), self.name()
            self.declare(name, kind)
            self.take(";")
        actions: dict[str, Action] = {}
        tables: dict[str, Table] = {}
        while self.peek() != "apply":
            number = None
            if self.takes_if("@id"):
                self.take("(")
                number = self.integer()
                self.take(")")
            what, name = self.take("action", "table"), self.name()
            if name in actions or name in tables or name in self.types:
                _refuse(f"{name} is declared twice")
            if what == "action":
                actions[name] = replace(self.action(), id=number)
            else:
                tables[name] = replace(self.table(actions), id=number)
        self.takes("apply", "{")
        statements = []
        while not self.takes_if("}"):
            statements.append(self.statement(tables))
        self.take("}")
        if self.at != len(self.tokens):
            _refuse(f"{self.peek()!r} after the control")
        return Program(tuple(inputs), self.types, actions, tables, tuple(statements))

    def action(self) -> Action:
        self.take("(")
        parameters: dict[str, Type] = {}
        while not self.takes_if(")"):
            if parameters:
                self.take(",")
            kind, name = self.type(), self.name()
            if kind.signed or name in parameters or name in self.types:
                _refuse(f"the action parameter {name}")
            parameters[name] = kind
        self.take("{")
        body = []
        while not self.takes_if("}"):
            body.append(self.assign(parameters))
        return Action(tuple((name, kind.width) for name, kind in parameters.items()), tuple(body))

    def table(self, actions: Mapping[str, Action]) -> Table:
        self.take("{")
        key, kind, width = None, "", 0
        if self.takes_if("key"):
            self.takes("=", "{")
            key = self.name()
            declared = self.known(key)
            if declared.signed:
                _refuse(f"the key {key} is signed")
            width = declared.width
            self.take(":")
            kind = self.take("range", "lpm", "ternary", "exact")
            self.takes(";", "}")
        self.takes("actions", "=", "{")
        action = self.name()
        if action not in actions:
            _refuse(f"{action} is no action")
        self.takes(";", "}")
        if key is not None:
            self.take("const")
        self.takes("default_action", "=")
        default = self.call(action, actions[action])
        self.take(";")
        entries: list[Entry] = []
        size = None
        if key is not None and self.with_entries:
            self.takes("const", "entries", "=", "{")
            while not self.takes_if("}"):
                first = self.number(width).value
                second = (1 << width) - 1
                if kind == "range":
                    self.take("..")
                    second = self.number(width).value
                elif kind != "exact":
                    self.take("&&&")
                    second = self.number(width).value
                self.take(":")
                entries.append(Entry(first, second, self.call(action, actions[action])))
                self.take(";")
        elif key is not None:
            self.takes("size", "=")
            size = self.integer()
            self.take(";")
        self.take("}")
        if size is not None and size < 1:
            _refuse("a table of no rows")
        return Table(key, kind, action, default, tuple(entries))

    def call(self, name: str, action: Action) -> tuple[int, ...]:
        self.takes(name, "(")
        data = []
        for place, (_, width) in enumerate(action.parameters):
            if place:
                self.take(",")
            data.append(self.number(width).value)
        self.take(")")
        return tuple(data)

    def statement(self, tables: Mapping[str, Table]) -> Statement:
        if self.takes_if("if"):
            self.take("(")
            left = self.name()
            self.take(">")
            right = self.expression({})
            self.takes(")", "{")
            yes = self.assign({})
            self.takes("}", "else", "{")
            no = self.assign({})
            self.take("}")
            kind = self.known(left)
            if not isinstance(right, Number | Slice) or self.kind(right, {}) != kind or yes.name != no.name:
                _refuse(f"the choice by {left}")
            if kind.width > 64:
                _refuse(f"{left} has more than 64 bits")
            return Choose(left, right, yes, no)
        if self.tokens[self.at + 1 : self.at + 2] == ["."]:
            name = self.name()
            self.takes(".", "apply", "(", ")", ";")
            if name not in tables:
                _refuse(f"{name} is no table")
            return Apply(name)
        return self.assign({})

    def assign(self, parameters: Mapping[str, Type]) -> Assign:
        name = self.name()
        if name in parameters or name.startswith("f_"):
            _refuse(f"an assignment to {name}")
        self.take("=")
        value = self.expression(parameters)
        self.take(";")
        if self.kind(value, parameters) != self.known(name):
            _refuse(f"the value of {name} has another type")
        return Assign(name, value)

    def expression(self, scope: Mapping[str, Type]) -> Expression:
        operands = [self.operand(scope)]
        sign = self.peek()
        if sign not in ("++", "&", "+"):
            return operands[0]
        while self.takes_if(sign):
            operands.append(self.operand(scope))
        return Operation(sign, tuple(operands))

    def operand(self, scope: Mapping[str, Type]) -> Expression:
        if self.takes_if("("):
            if self.peek() in ("bit", "int"):
                to = self.type()
                self.take(")")
                return Cast(to, self.operand(scope))
            inner = self.expression(scope)
            self.take(")")
            return inner
        if re.match(r"\d", self.peek()):
            return self.number()
        name = self.name()
        width = self.known(name, scope).width
        if not self.takes_if("["):
            return Slice(name)
        high = self.integer()
        self.take(":")
        low = self.integer()
        self.take("]")
        if not low <= high < width:
            _refuse(f"the slice {name}[{high}:{low}]")
        return Slice(name, high, low)

    def kind(self, value: Expression, scope: Mapping[str, Type]) -> Type:
        """Return the type of an expression; refuse operands that do not fit together."""
        if isinstance(value, Number):
            return Type(False, value.width)
        if isinstance(value, Slice):
            known = self.known(value.name, scope)
            if value.high is None or value.low is None:
                return known
            return Type(False, value.high - value.low + 1)
        if isinstance(value, Cast):
            inner = self.kind(value.operand, scope)
            # P4 casts bit<a> to bit<b>, int<a> to int<b>, and between the two only at one width.
            if inner.signed != value.to.signed and inner.width != value.to.width:
                _refuse("a cast that changes sign and width")
            return value.to
        kinds = [self.kind(operand, scope) for operand in value.operands]
        if value.sign == "++":
            if any(kind.signed for kind in kinds):
                _refuse("a concatenation of signed numbers")
            return Type(False, sum(kind.width for kind in kinds))
        if len(set(kinds)) != 1 or kinds[0].signed != (value.sign == "+"):
            _refuse(f"operands of {value.sign} of other types")
        return kinds[0]


def _read_commands(text: str, program: Program) -> dict[str, list[Entry]]:
    entries: dict[str, list[Entry]] = {}
    pattern = re.compile(
        r"table_add (\w+) (\w+) (0x[0-9a-f]+)(?:(/|&&&|->)(0x[0-9a-f]+|\d+))? =>((?: 0x[0-9a-f]+)+)(?: (\d+))?"
    )
    for line in text.splitlines():
        found = pattern.fullmatch(line)
        table = program.tables.get(found[1]) if found else None
        if found is None or table is None or table.key is None or table.action != found[2]:
            _refuse(f"the command {line[:60]!r}")
        width = program.types[table.key].width
        separator = {"lpm": "/", "ternary": "&&&", "range": "->", "exact": None}[table.kind]
        if found[4] != separator or (found[7] is not None) != (table.kind in ("ternary", "range")):
            _refuse(f"the command {line[:60]!r}")
        second = (1 << width) - 1 if found[5] is None else int(found[5], 0)
        if table.kind == "lpm":
            second = _prefix_mask(second, width)
        rows = entries.setdefault(found[1], [])
        if found[7] is not None and int(found[7]) != len(rows) + 1:
            _refuse("the priorities of commands do not count from 1")
        rows.append(Entry(int(found[3], 0), second, tuple(int(value, 0) for value in found[6].split())))
    return entries


def _read_updates(text: str, program: Program) -> dict[str, list[Entry]]:
    by_id = {table.id: name for name, table in program.tables.items() if table.id is not None}
    hexes = r'"((?:\\x[0-9a-f]{2})+)"'
    pattern = re.compile(
        r"updates \{ type: INSERT entity \{ table_entry \{ table_id: (\d+) match \{ field_id: 1 "
        rf"(lpm|ternary|range|exact) \{{ (value|low): {hexes}(?: (prefix_len|mask|high): (?:(\d+)|{hexes}))? \}} \}} "
        r"action \{ action \{ action_id: (\d+) ((?:params \{ param_id: \d+ value: \"[^\"]+\" \} ?)+)\} \}"
        r"(?: priority: (\d+))? \} \} \}"
    )
    entries: dict[str, list[Entry]] = {}
    priorities: dict[str, list[int]] = {}
    for line in text.splitlines():
        found = pattern.fullmatch(line)
        name = by_id.get(int(found[1])) if found else None
        table = program.tables.get(name or "")
        if found is None or name is None or table is None or table.key is None or found[2] != table.kind:
            _refuse(f"the update {line[:60]!r}")
        names = {"lpm": ("value", "prefix_len"), "ternary": ("value", "mask"), "range": ("low", "high")}
        if (found[3], found[5]) != names.get(table.kind, ("value", None)) or (found[6] is None) == (
            table.kind == "lpm"
        ):
            _refuse(f"the update {line[:60]!r}")
        if int(found[8]) != program.actions[table.action].id or (found[10] is None) != (table.kind in ("lpm", "exact")):
            _refuse(f"the update {line[:60]!r}")
        width = program.types[table.key].width
        second = (1 << width) - 1
        if table.kind == "lpm":
            second = _prefix_mask(int(found[6]), width)
        elif found[7] is not None:
            second = _from_bytes(found[7])
        parameters = re.findall(rf"param_id: (\d+) value: {hexes}", found[9])
        if [int(number) for number, _ in parameters] != list(range(1, len(parameters) + 1)):
            _refuse(f"the update {line[:60]!r}")
        data = tuple(_from_bytes(value) for _, value in parameters)
        entries.setdefault(name, []).append(Entry(_from_bytes(found[4]), second, data))
        priorities.setdefault(name, []).append(int(found[10] or 0))
    for name, numbers in priorities.items():
        if any(numbers) and numbers != list(range(len(numbers), 0, -1)):
            _refuse(f"the priorities of updates of {name} do not count down to 1")
    return entries


def _prefix_mask(length: int, width: int) -> int:
    if length > width:
        _refuse(f"a prefix of {length} bits")
    return ((1 << length) - 1) << (width - length)


def _from_bytes(text: str) -> int:
    return int(text.replace("\\x", ""), 16)


def _check(program: Program) -> None:
    """Refuse values that nothing set or that are set twice, a decision that is not by tau, and rows out of place."""
    known = set(program.inputs)

    def sets(assign: Assign, parameters: set[str]) -> None:
        unset = _names(assign.value) - known - parameters
        if unset:
            _refuse(f"{min(unset)} is read before it is set")
        if assign.name in known:
            _refuse(f"{assign.name} is set twice")
        known.add(assign.name)

    applied: set[str] = set()
    for statement in program.statements:
        if isinstance(statement, Assign):
            sets(statement, set())
        elif isinstance(statement, Choose):
            if not {statement.left, *_names(statement.right), *_names(statement.no.value)} <= known:
                _refuse(f"the choice by {statement.left} reads what is not set")
            sets(statement.yes, set())
        else:
            table = program.tables[statement.table]
            if statement.table in applied or (table.key is not None and table.key not in known):
                _refuse(f"table {statement.table} is applied twice or before its key is set")
            applied.add(statement.table)
            action = program.actions[table.action]
            for assign in action.body:
                sets(assign, {name for name, _ in action.parameters})
    if applied != set(program.tables) or not {"score", "drop", "tau"} <= known:
        _refuse("a table is not applied or an output is not set")
    score = program.types["score"]
    decision = Choose("score", Slice("tau"), Assign("drop", Number(1, 1)), Assign("drop", Number(1, 0)))
    decide = program.tables.get("decide", Table("", "", "", (), ()))
    if program.statements[-1] != decision or program.types["tau"] != score or decide.key is not None:
        _refuse("the decision is not score > tau")
    action = program.actions[decide.action]
    if [width for _, width in action.parameters] != [score.width] or action.body != (
        Assign("tau", Cast(score, Slice(action.parameters[0][0]))),
    ):
        _refuse("tau is not the parameter of table decide")
    for name, table in program.tables.items():
        if table.key is not None:
            _check_rows(name, table, program)


def _check_rows(name: str, table: Table, program: Program) -> None:
    assert table.key is not None
    full = (1 << program.types[table.key].width) - 1
    widths = [width for _, width in program.actions[table.action].parameters]
    if not table.entries:
        _refuse(f"table {name} has no rows")
    for entry in table.entries:
        if len(entry.data) != len(widths) or any(v >> w for v, w in zip(entry.data, widths, strict=True)):
            _refuse(f"action data of table {name}")
        if entry.first > full or entry.second > full:
            _refuse(f"a key of table {name} is too wide")
        if table.kind == "range" and entry.first > entry.second:
            _refuse(f"an empty range of table {name}")
        if table.kind != "range" and entry.first & ~entry.second:
            _refuse(f"a row of table {name} has value bits outside its mask")
        if table.kind == "exact" and entry.second != full:
            _refuse(f"a row of the exact table {name} has a mask")
        if table.kind == "lpm" and (full ^ entry.second) & ((full ^ entry.second) + 1):
            _refuse(f"a row of the lpm table {name} is no prefix")
    if table.kind in ("lpm", "exact") and len({(e.first, e.second) for e in table.entries}) < len(table.entries):
        _refuse(f"a row of table {name} occurs twice")


# -- running -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Value:
    """Bit patterns of one variable on many points, 64 bits per limb, least significant first."""

    width: int
    signed: bool
    limbs: tuple[WordArray, ...]


def _limbs(values: Sequence[int], width: int) -> tuple[WordArray, ...]:
    mask = (1 << 64) - 1
    return tuple(np.array([value >> shift & mask for value in values], np.uint64) for shift in range(0, width, 64))


def _integers(value: _Value) -> IntArray:
    """Return the numbers of at most 64 bits as int64."""
    (limb,) = value.limbs
    if not value.signed and value.width > 63:
        _refuse("an unsigned number of 64 bits is compared")
    if not value.signed:
        return limb.astype(np.int64)
    shift = np.uint64(64 - value.width)
    return (limb << shift).view(np.int64) >> np.int64(shift)


def _from_integers(numbers: IntArray, width: int, signed: bool) -> _Value:
    limb = numbers.view(np.uint64)
    return _Value(width, signed, ((limb & np.uint64((1 << width) - 1)) if width < 64 else limb,))


def _evaluate(value: Expression, scope: Mapping[str, _Value], rows: int) -> _Value:
    if isinstance(value, Number):
        return _Value(value.width, False, tuple(np.repeat(limb, rows) for limb in _limbs([value.value], value.width)))
    if isinstance(value, Slice):
        whole = scope[value.name]
        return whole if value.high is None or value.low is None else _slice(whole, value.high, value.low)
    if isinstance(value, Cast):
        return _cast(_evaluate(value.operand, scope, rows), value.to)
    operands = [_evaluate(operand, scope, rows) for operand in value.operands]
    if value.sign == "++":
        return _concatenate(operands)
    if value.sign == "&":
        limbs = operands[0].limbs
        for operand in operands[1:]:
            limbs = tuple(a & b for a, b in zip(limbs, operand.limbs, strict=True))
        return _Value(operands[0].width, False, limbs)
    total = _integers(operands[0])
    for operand in operands[1:]:
        total = total + _integers(operand)
    return _from_integers(total, operands[0].width, True)


def _slice(value: _Value, high: int, low: int) -> _Value:
    width = high - low + 1
    limbs = []
    for start in range(low, high + 1, 64):
        place, shift = divmod(start, 64)
        limb = value.limbs[place] >> np.uint64(shift)
        if shift and place + 1 < len(value.limbs):
            limb = limb | (value.limbs[place + 1] << np.uint64(64 - shift))
        left = high + 1 - start
        limbs.append(limb if left >= 64 else limb & np.uint64((1 << left) - 1))
    return _Value(width, False, tuple(limbs))


def _concatenate(parts: Sequence[_Value]) -> _Value:
    """Join bit strings, the most significant first."""
    width = sum(part.width for part in parts)
    limbs: list[WordArray] = [np.zeros(len(parts[0].limbs[0]), np.uint64) for _ in range(0, width, 64)]
    at = 0
    for part in reversed(parts):
        for index, limb in enumerate(part.limbs):
            place, shift = divmod(at + 64 * index, 64)
            limbs[place] |= limb << np.uint64(shift)
            if shift and place + 1 < len(limbs):
                limbs[place + 1] |= limb >> np.uint64(64 - shift)
        at += part.width
    return _Value(width, False, tuple(limbs))


def _cast(value: _Value, to: Type) -> _Value:
    if value.signed and to.width > value.width:
        return _from_integers(_integers(value), to.width, to.signed)
    if to.width <= value.width:
        return replace(_slice(value, to.width - 1, 0), signed=to.signed)
    zeros = np.zeros_like(value.limbs[0])
    limbs = value.limbs + (zeros,) * (-(-to.width // 64) - len(value.limbs))
    return _Value(to.width, to.signed, limbs)


def _lookup(table: Table, key: _Value) -> IntArray:
    """Return the index of the entry that every key matches first; the number of entries where none does."""
    entries = table.entries
    order = list(range(len(entries)))
    if table.kind == "lpm":
        order.sort(key=lambda i: -entries[i].second)  # the longest prefix, wherever it stands
    found = np.full(len(key.limbs[0]), len(entries))
    if table.kind == "range":
        for i in reversed(order):
            low, high = np.uint64(entries[i].first), np.uint64(entries[i].second)
            found[(key.limbs[0] >= low) & (key.limbs[0] <= high)] = i
        return found
    rank = np.full(len(key.limbs[0]), len(entries))  # place in `order` of the best match so far
    groups: dict[int, list[int]] = {}
    for place, i in enumerate(order):
        groups.setdefault(entries[i].second, []).append(place)
    for mask, places in groups.items():
        masks = _limbs([mask], key.width)
        if len(key.limbs) > 1 or len(places) < 4:
            for place in places:
                hit = np.ones(len(rank), np.bool_)
                for limb, cared, wanted in zip(
                    key.limbs, masks, _limbs([entries[order[place]].first], key.width), strict=True
                ):
                    hit &= (limb & cared[0]) == wanted[0]
                rank = np.where(hit, np.minimum(rank, place), rank)
            continue
        values = np.array([entries[order[place]].first for place in places], np.uint64)
        sort = np.argsort(values, kind="stable")  # of equal values the first in order comes first
        masked = key.limbs[0] & masks[0][0]
        at = np.minimum(np.searchsorted(values[sort], masked), len(places) - 1)
        hit = values[sort][at] == masked
        rank = np.where(hit, np.minimum(rank, np.array(places)[sort][at]), rank)
    return np.append(np.array(order, np.int64), len(entries))[rank]


# -- boxes -------------------------------------------------------------------------------------------------------------

_Bit = Mapping[int, BoolArray]
"""A bit as the AND, over inputs, of a function of each input's intervals; no entry for inputs that do not matter."""

_Set = tuple[BoolArray, ...]
"""A product set of inputs: for every input, which of its intervals."""


@dataclass
class _Boxer:
    """Takes a program apart: what depends on one input is a function of its intervals, the rest are products."""

    program: Program
    depends: dict[str, frozenset[int]] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)  # saturated inputs, used as keys and nowhere else

    def read_back(self, trees: int) -> ReadBack:
        program = self.program
        self._find_dependencies()
        edges = [self._edges(i) for i in range(len(program.inputs))]
        values: list[dict[str, _Value]] = []
        boundaries: dict[int, set[int]] = {}
        self.lows: list[IntArray] = []
        for index, edge in enumerate(edges):
            points = np.zeros((len(edge) + 1, len(program.inputs)), np.int64)
            points[1:, index] = np.array(edge, np.int64) + 1
            found = {n: v for n, v in program._run(points).items() if self.depends.get(n) == {index}}
            # Between neighbours that agree in everything the text computes from this input, nothing can change.
            changes = np.zeros(len(edge), np.bool_)
            for name, value in found.items():
                if name not in program.inputs and name not in self.keys:
                    for limb in value.limbs:
                        changes |= limb[1:] != limb[:-1]
            kept = np.append(True, changes)
            boundaries[index] = {edge[i] for i in np.flatnonzero(changes)}
            self.lows.append(points[kept, index])
            values.append(
                {n: _Value(v.width, v.signed, tuple(limb[kept] for limb in v.limbs)) for n, v in found.items()}
            )
        self.values = values
        terms = self._terms()
        if len(terms) != trees:
            return ReadBack(boundaries)
        parts = tuple(self._part(term) for term in terms)
        reached = [[*part.votes.tolist(), *([] if part.default is None else [part.default])] for part in parts]
        half = 1 << (program.types["score"].width - 1)
        # Additions wrap, so only the whole sum has to fit.
        if not -half <= sum(map(min, reached)) <= sum(map(max, reached)) < half:
            _refuse("a sum of votes does not fit the score")
        return ReadBack(boundaries, parts)

    def _find_dependencies(self) -> None:
        depends = self.depends
        depends.update({name: frozenset([i]) for i, name in enumerate(self.program.inputs)})

        def of(value: Expression, scope: Mapping[str, frozenset[int]]) -> frozenset[int]:
            if isinstance(value, Slice):
                return scope[value.name]
            if isinstance(value, Cast):
                return of(value.operand, scope)
            if isinstance(value, Operation):
                return frozenset().union(*(of(operand, scope) for operand in value.operands))
            return frozenset()

        self.writer: dict[str, Statement] = {}
        for statement in self.program.statements:
            if isinstance(statement, Assign):
                written = {statement.name: of(statement.value, depends)}
            elif isinstance(statement, Choose):
                left, right = depends[statement.left], of(statement.right, depends)
                sides = of(statement.yes.value, depends) | of(statement.no.value, depends)
                written = {statement.yes.name: left | right | sides}
            else:
                table = self.program.tables[statement.table]
                action = self.program.actions[table.action]
                key = depends[table.key] if table.key is not None else frozenset()
                scope = {**depends, **{name: key for name, _ in action.parameters}}
                written = {assign.name: of(assign.value, scope) for assign in action.body}
            self.writer.update(dict.fromkeys(written, statement))
            depends.update(written)

    def _edges(self, index: int) -> list[int]:
        """Return b, increasing, such that something may change between the values b and b + 1 of an input."""
        name, edges = self.program.inputs[index], set()
        for statement in self.program.statements:
            if isinstance(statement, Choose) and statement.left == name:
                cut, low = statement.right, statement.no.value
                keeps = isinstance(low, Slice) and (low.name, low.low) == (name, 0) and low.high is not None
                if not isinstance(cut, Number) or not keeps or not isinstance(statement.yes.value, Number):
                    _refuse(f"the use of {name}")
                assert isinstance(low, Slice)
                assert low.high is not None
                if cut.value >> (low.high + 1):
                    _refuse(f"{name} loses bits")
                edges.add(cut.value)
                key = statement.yes.name
                for user in self.program.statements:
                    if isinstance(user, Apply) and self.program.tables[user.table].key == key:
                        edges |= {edge for edge in self._table_edges(user.table) if edge < cut.value}
                    elif not isinstance(user, Apply) and user is not statement and key in _names(user):
                        _refuse(f"the use of {key}")
                self.keys.add(key)
            elif (not isinstance(statement, Apply) and name in _names(statement)) or (
                isinstance(statement, Apply) and self.program.tables[statement.table].key == name
            ):
                _refuse(f"the use of {name}")
        return sorted(edge for edge in edges if 0 <= edge < (1 << INPUT_BITS) - 1)

    def _table_edges(self, name: str) -> set[int]:
        table = self.program.tables[name]
        assert table.key is not None
        width = self.program.types[table.key].width
        edges: set[int] = set()
        for entry in table.entries:
            blocks = [(entry.first, entry.second)]
            if table.kind != "range":
                free = ((1 << width) - 1) ^ entry.second
                run = (free ^ (free + 1)) >> 1  # the wildcards at the end, which are one block
                starts = [entry.first]
                for bit in (1 << b for b in range(width)):
                    if bit & free & ~run:
                        starts += [start | bit for start in starts]
                        if len(starts) > MAX_PIECES:
                            _refuse(f"a row of table {name} has too many pieces")
                blocks = [(start, start | run) for start in starts]
            edges |= {edge for low, high in blocks for edge in (low - 1, high)}
        return edges

    def _terms(self) -> list[str]:
        """Return the variables that the score is the sum of, in order."""

        def flat(value: Expression) -> list[str]:
            if isinstance(value, Operation) and value.sign == "+":
                return [name for operand in value.operands for name in flat(operand)]
            if isinstance(value, Slice) and value.high is None:
                return [value.name]
            _refuse("the score is not a sum of variables")

        score = self.writer["score"]
        if not isinstance(score, Assign):
            _refuse("the score is not a sum of variables")
        return flat(score.value)

    def _part(self, name: str) -> Boxes:
        everything: _Set = tuple(np.ones(len(low), np.bool_) for low in self.lows)
        inputs = self.depends[name]
        if not inputs:
            at = np.zeros((1, len(self.program.inputs)), np.int64)
            return self._boxes([], [], int(_integers(self.program._run(at)[name])[0]))
        if len(inputs) == 1:
            (index,) = inputs
            numbers = _integers(self.values[index][name])
            sets, votes = [], []
            for vote in np.unique(numbers).tolist():
                sets.append((*everything[:index], numbers == vote, *everything[index + 1 :]))
                votes.append(vote)
            return self._boxes(sets, votes, None)
        writer = self.writer[name]
        if not isinstance(writer, Apply):
            _refuse(f"{name} is not set by a table")
        table = self.program.tables[writer.table]
        if table.key is None or table.kind not in ("ternary", "exact"):
            _refuse(f"the table of {name}")
        bits = self._bits(Slice(table.key))
        sets, votes = [], []
        earlier: list[_Set] = []
        for entry, vote in zip((*table.entries, None), self._votes(table, name), strict=True):
            if entry is None:
                return self._boxes(sets, votes, vote)
            pieces = self._matches(entry, bits, everything)
            for before in earlier:
                pieces = _without(pieces, before)
            earlier += pieces
            sets += pieces
            votes += [vote] * len(pieces)
            if len(sets) > MAX_PIECES:
                _refuse(f"the rows of table {writer.table} overlap in too many pieces")
        raise AssertionError("the default comes last")

    def _votes(self, table: Table, name: str) -> list[int]:
        """Return the value of `name` that every entry, and then the default, sets."""
        action = self.program.actions[table.action]
        rows = len(table.entries) + 1
        scope = {}
        for place, (parameter, width) in enumerate(action.parameters):
            data = [e.data[place] for e in table.entries] + [table.default[place]]
            scope[parameter] = _Value(width, False, _limbs(data, width))
        (assign,) = (assign for assign in action.body if assign.name == name)
        if any(read not in scope for read in _names(assign) - {name}):
            _refuse(f"{name} is not made of action data alone")
        return [int(v) for v in _integers(_evaluate(assign.value, scope, rows))]

    def _bits(self, value: Expression) -> list[_Bit]:
        """Return the bits of an expression, least significant first."""
        if isinstance(value, Operation) and value.sign == "++":
            return [bit for operand in reversed(value.operands) for bit in self._bits(operand)]
        if isinstance(value, Operation) and value.sign == "&":
            rows = [self._bits(operand) for operand in value.operands]
            return [_and(bits) for bits in zip(*rows, strict=True)]
        if not isinstance(value, Slice):
            _refuse("a key that is not made of code words")
        inputs = self.depends[value.name]
        if len(inputs) == 1:
            (index,) = inputs
            whole = self.values[index][value.name]
            bits: list[_Bit] = [
                {index: (whole.limbs[b // 64] >> np.uint64(b % 64) & np.uint64(1)).astype(np.bool_)}
                for b in range(whole.width)
            ]
        else:
            writer = self.writer[value.name]
            if not isinstance(writer, Assign):
                _refuse("a key that is not made of code words")
            bits = self._bits(writer.value)
        return bits if value.high is None or value.low is None else bits[value.low : value.high + 1]

    def _matches(self, entry: Entry, bits: list[_Bit], everything: _Set) -> list[_Set]:
        """Return disjoint product sets of the inputs whose key an entry matches."""
        ones, zeros = [], []
        for place, bit in enumerate(bits):
            if entry.second >> place & 1:
                (ones if entry.first >> place & 1 else zeros).append(bit)
        inside = list(everything)
        for bit in ones:
            for index, holds in bit.items():
                inside[index] = inside[index] & holds
        for bit in zeros:
            if len(bit) == 1:
                ((index, holds),) = bit.items()
                inside[index] = inside[index] & ~holds
        pieces = [tuple(inside)] if all(side.any() for side in inside) else []
        for bit in zeros:
            if len(bit) != 1:
                pieces = _without(pieces, tuple(bit.get(i, every) for i, every in enumerate(everything)))
        return pieces

    def _boxes(self, sets: list[_Set], votes: list[int], default: int | None) -> Boxes:
        """Cut product sets into boxes: one per combination of runs of intervals."""
        inputs = len(self.lows)
        lows: list[IntArray] = []
        highs: list[IntArray] = []
        of_box: list[int] = []
        for whole, vote in zip(sets, votes, strict=True):
            runs = [self._runs(index, side) for index, side in enumerate(whole)]
            grid = np.stack(np.meshgrid(*(np.arange(len(r)) for r in runs), indexing="ij"), axis=-1).reshape(-1, inputs)
            lows.append(np.stack([runs[i][grid[:, i], 0] for i in range(inputs)], axis=1))
            highs.append(np.stack([runs[i][grid[:, i], 1] for i in range(inputs)], axis=1))
            of_box += [vote] * len(grid)
        none = np.empty((0, inputs), np.int64)
        return Boxes(np.concatenate([none, *lows]), np.concatenate([none, *highs]), np.array(of_box, np.int64), default)

    def _runs(self, index: int, side: BoolArray) -> IntArray:
        """Return the (low, high) of runs of chosen intervals, int64[runs, 2]."""
        bounds = np.append(self.lows[index], 1 << INPUT_BITS)
        starts = np.flatnonzero(side & ~np.append(False, side[:-1]))
        ends = np.flatnonzero(side & ~np.append(side[1:], False))
        return np.stack([bounds[starts], bounds[ends + 1] - 1], axis=1)


def _names(statement: Statement | Expression) -> set[str]:
    """Return the variables that occur in a statement or expression."""
    if isinstance(statement, Slice):
        return {statement.name}
    if isinstance(statement, Cast):
        return _names(statement.operand)
    if isinstance(statement, Operation):
        return set().union(*(_names(operand) for operand in statement.operands))
    if isinstance(statement, Assign):
        return {statement.name} | _names(statement.value)
    if isinstance(statement, Choose):
        return {statement.left} | _names(statement.right) | _names(statement.yes) | _names(statement.no)
    return set()


def _and(bits: Sequence[_Bit]) -> _Bit:
    merged: dict[int, BoolArray] = {}
    for bit in bits:
        for index, holds in bit.items():
            merged[index] = merged[index] & holds if index in merged else holds
    return merged


def _without(pieces: list[_Set], taken: _Set) -> list[_Set]:
    """Return disjoint product sets: `pieces` without `taken`."""
    left: list[_Set] = []
    for piece in pieces:
        if not all((a & b).any() for a, b in zip(piece, taken, strict=True)):
            left.append(piece)
            continue
        rest = list(piece)
        for index, side in enumerate(taken):
            outside = rest[index] & ~side
            if outside.any():
                left.append((*rest[:index], outside, *rest[index + 1 :]))
            rest[index] = rest[index] & side
    return left
