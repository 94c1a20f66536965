"""A parser of the P4 subset that ``render.py`` writes, by recursive descent.

The subset is one control of integer inputs, local variables, actions of assignments, tables with constant entries (or
with entries from the control plane's file), and straight-line statements. A key of several fields is read as a variable
of its own, their concatenation; a table that always does the same as an assignment; a table that adds to a variable as
one that sets an addend. Everything else is refused, whatever it would mean in P4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from foretail.export.p4.planning.architecture import INPUT_BITS
from foretail.export.p4.reading.tokens import tokens_of
from foretail.export.p4.text.syntax import (
    Action,
    Apply,
    Assign,
    Cast,
    Choose,
    Entry,
    Expression,
    Number,
    Operation,
    Program,
    Slice,
    Statement,
    Table,
    Type,
    key_name,
    names_in,
    refuse,
    whole_number,
)


def _text(field: Expression) -> str:
    if not isinstance(field, Slice):
        refuse("a key that is not a variable")
    return field.name if field.high is None else f"{field.name}[{field.high}:{field.low}]"


class Parser:
    """Recursive descent over the tokens of one control."""

    def __init__(self, text: str, with_entries: bool) -> None:
        self.tokens = tokens_of(text)
        self.at = 0
        self.with_entries = with_entries
        self.joined: dict[str, Expression] = {}  # keys of several fields
        self.versions: dict[str, str] = {}  # of variables that were added to, the last
        self.types: dict[str, Type] = {}

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        token = self.peek()
        if wanted and token not in wanted:
            refuse(f"{token!r} where {wanted[0]!r} is due")
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
            refuse(f"{token!r} where a name is due")
        return token

    def text(self) -> str:
        """Read what stands in quotes, in parentheses."""
        self.take("(")
        token = self.take()
        if not token.startswith('"'):
            refuse(f"{token!r} where a text is due")
        self.take(")")
        return token.strip('"')

    def integer(self) -> int:
        return whole_number(self.take())

    def number(self, width: int | None = None) -> Number:
        token = self.take()
        sized = re.fullmatch(r"(\d+)w(0x[0-9a-fA-F]+|\d+)", token)
        if not sized:
            refuse(f"{token!r} where a number with its width is due")
        number = Number(whole_number(sized[1]), whole_number(sized[2]))
        if number.value >> number.width or (width is not None and number.width != width):
            refuse(f"{token} is not a number of {width or number.width} bits")
        return number

    def type(self) -> Type:
        signed = self.take("bit", "int") == "int"
        self.take("<")
        width = self.integer()
        self.take(">")
        if not 1 <= width <= (64 if signed else 4096):
            refuse(f"a width of {width}")
        return Type(signed, width)

    def declare(self, name: str, kind: Type) -> None:
        if name in self.types:
            refuse(f"{name} is declared twice")
        self.types[name] = kind

    def known(self, name: str, also: Mapping[str, Type] | None = None) -> Type:
        kind = (also or {}).get(name) or self.types.get(name)
        if kind is None:
            refuse(f"{name} is not declared")
        return kind

    def program(self) -> Program:
        self.take("control")
        control = self.name()
        self.take("(")
        inputs: list[str] = []
        outputs: list[tuple[str, Type]] = []
        while True:
            direction = self.take("in", "out")
            kind, name = self.type(), self.name()
            self.declare(name, kind)
            if direction == "in":
                if kind != Type(False, INPUT_BITS) or outputs:
                    refuse(f"the input {name} is not bit<{INPUT_BITS}> before the outputs")
                inputs.append(name)
            else:
                outputs.append((name, kind))
            if self.take(",", ")") == ")":
                break
        if [name for name, _ in outputs] != ["score", "drop"] or outputs[1][1] != Type(False, 1):
            refuse("the outputs are not score and bit<1> drop")
        if not outputs[0][1].signed or outputs[0][1].width > 64:
            refuse("the score is not an int of at most 64 bits")
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
            description = self.text() if self.takes_if("@description") else None
            what, name = self.take(*(("action", "table") if description is None else ("table",))), self.name()
            if name in actions or name in tables or name in self.types:
                refuse(f"{name} is declared twice")
            if what == "action":
                actions[name] = replace(self.action(), id=number)
            else:
                tables[name] = replace(self.table(name, actions), id=number, description=description)
        self.takes("apply", "{")
        statements: list[Statement] = []
        while not self.takes_if("}"):
            statement = self.statement(tables)
            if isinstance(statement, Apply):
                operation = self.operation(tables[statement.table], actions)
                if operation is not None:
                    if isinstance(operation, Assign):
                        operation = replace(operation, value=self.current(operation.value))
                    statements.append(operation)
                    del tables[statement.table]  # so that it is applied once
                    continue
                key = tables[statement.table].key
                if key in self.joined:
                    statements.append(Assign(key, self.joined[key]))
                read = names_in(self.joined[key]) if key in self.joined else {key}
                if read & set(self.versions):
                    refuse(f"the key of table {statement.table}")
                statements += self.applied(statement, tables[statement.table], actions)
            elif isinstance(statement, Assign):
                statements.append(replace(statement, value=self.current(statement.value)))
            elif names_in(statement) & set(self.versions):
                refuse(f"the choice by {statement.left}")
            else:
                statements.append(statement)
        if not self.with_entries and any(table.entries for table in tables.values()):
            refuse("a table has entries in the text and the control plane's")
        self.take("}")
        if self.at != len(self.tokens):
            refuse(f"{self.peek()!r} after the control")
        return Program(control, tuple(inputs), self.types, actions, tables, tuple(statements))

    def action(self) -> Action:
        self.take("(")
        parameters: dict[str, Type] = {}
        while not self.takes_if(")"):
            if parameters:
                self.take(",")
            kind, name = self.type(), self.name()
            if kind.signed or name in parameters or name in self.types:
                refuse(f"the action parameter {name}")
            parameters[name] = kind
        self.take("{")
        body = []
        while not self.takes_if("}"):
            body.append(self.assign(parameters))
        return Action(tuple((name, kind.width) for name, kind in parameters.items()), tuple(body))

    def key(self, table: str) -> tuple[str, str, tuple[tuple[str, int], ...]]:
        """Read a key: its variable, its kind and its fields, text and width."""
        self.takes("=", "{")
        fields: list[Expression] = []
        kinds = set()
        while not self.takes_if("}"):
            fields.append(self.operand({}))
            self.take(":")
            kinds.add(self.take("range", "lpm", "ternary", "exact"))
            if self.takes_if("@name"):
                self.takes("(", f'"{key_name(_text(fields[-1]))}"', ")")
            self.take(";")
        types = [self.kind(field, {}) for field in fields]
        names = {_text(field) for field in fields if isinstance(field, Slice)}
        if len(kinds) != 1 or any(kind.signed for kind in types) or len(names) != len(fields):
            refuse(f"the key of table {table}")
        (kind,) = kinds
        known = tuple((key_name(_text(field)), of.width) for field, of in zip(fields, types, strict=True))
        whole = fields[0] if len(fields) == 1 else Operation("++", tuple(fields))
        if isinstance(whole, Slice) and whole.high is None:
            return whole.name, kind, known
        if kind not in ("ternary", "exact"):
            refuse(f"the key of table {table}")
        name = f"key of {table}"  # no name of the text has a space
        self.declare(name, Type(False, sum(width for _, width in known)))
        self.joined[name] = whole
        return name, kind, known

    def keyset(self, kind: str, widths: Sequence[int]) -> tuple[int, int]:
        """Read what an entry matches, of all fields as one number: value and mask, or both ends of a range."""
        several = len(widths) > 1
        if several:
            self.take("(")
        first = second = 0
        for place, width in enumerate(widths):
            if place:
                self.take(",")
            low, high = self.number(width).value, (1 << width) - 1
            if kind != "exact":
                self.take(".." if kind == "range" else "&&&")
                high = self.number(width).value
            first, second = first << width | low, second << width | high
        if several:
            self.take(")")
        return first, second

    def table(self, name: str, actions: Mapping[str, Action]) -> Table:
        self.take("{")
        key, kind = None, ""
        fields: tuple[tuple[str, int], ...] = ()
        if self.takes_if("key"):
            key, kind, fields = self.key(name)
        self.takes("actions", "=", "{")
        action = self.name()
        if action not in actions:
            refuse(f"{action} is not an action")
        self.takes(";", "}")
        if key is not None or not actions[action].parameters:
            self.take("const")
        self.takes("default_action", "=")
        default = self.call(action, actions[action])
        self.take(";")
        entries: list[Entry] = []
        size = None
        if key is not None and self.takes_if("size"):
            self.take("=")
            size = self.integer()
            self.take(";")
        if key is not None and (self.with_entries or self.peek() == "const"):
            self.takes("const", "entries", "=", "{")
            while not self.takes_if("}"):
                match = self.keyset(kind, [width for _, width in fields])
                self.take(":")
                entries.append(Entry(*match, self.call(action, actions[action])))
                self.take(";")
        elif key is not None and size is None:
            refuse(f"table {name} has no size")
        self.take("}")
        return Table(key, kind, action, default, tuple(entries), size, fields=fields)

    def applied(self, statement: Apply, table: Table, actions: dict[str, Action]) -> list[Statement]:
        """Return a table's application; of one that adds to a variable, that it sets an addend, and the addition."""
        action = actions[table.action]
        total, value = (action.body[0].name, action.body[0].value) if len(action.body) == 1 else ("", None)
        if not isinstance(value, Operation) or value.sign != "+" or value.operands[0] != Slice(total):
            if any(names_in(one) & set(self.versions) for one in action.body):
                refuse(f"the action of table {statement.table}")
            return [statement]
        if len(value.operands) != 2 or total in ("score", "drop"):
            refuse(f"the sum of table {statement.table}")
        addend = f"addend of {statement.table}"  # no name of the text has a space
        self.declare(addend, self.types[total])
        actions[table.action] = replace(action, body=(Assign(addend, value.operands[1]),))
        before = self.versions.get(total, total)
        now = f"{total} with {statement.table}"
        self.declare(now, self.types[total])
        self.versions[total] = now
        return [statement, Assign(now, Operation("+", (Slice(before), Slice(addend))))]

    def current(self, value: Expression) -> Expression:
        """Return an expression of the last versions of its variables."""
        if isinstance(value, Slice):
            return replace(value, name=self.versions.get(value.name, value.name))
        if isinstance(value, Cast):
            return replace(value, operand=self.current(value.operand))
        if isinstance(value, Operation):
            return replace(value, operands=tuple(map(self.current, value.operands)))
        return value

    def operation(self, table: Table, actions: Mapping[str, Action]) -> Assign | Choose | None:
        """Return what a table always assigns: that of an action without data, or the one bit that it matches.

        Of the table that tells by its sign, and by 0, whether the excess is positive, this is a choice.
        """
        action = actions[table.action]
        if len(action.body) != 1:
            return None
        (assign,) = action.body
        if table.key is None and not action.parameters:
            return assign
        copies = table.key in self.joined and self.types[table.key] == Type(False, 1) and table.kind == "exact"
        if copies and (table.entries, table.default) == ((Entry(1, 1, (1,)),), (0,)):
            assert table.key is not None
            if assign.value == Slice(action.parameters[0][0]):
                return replace(assign, value=self.joined[table.key])
        score = self.types["score"]
        sign, every = 1 << (score.width - 1), (1 << score.width) - 1
        signs = table.key is not None and self.joined.get(table.key) == Slice("excess", score.width - 1, 0)
        if signs and self.types["excess"] == score and (table.kind, table.size, table.default) == ("ternary", 2, (1,)):
            rows = (Entry(sign, sign, (0,)), Entry(0, every, (0,)))
            if table.entries == rows and assign == Assign("drop", Slice(action.parameters[0][0])):
                return Choose("excess", Number(1, 0), *(Assign("drop", Number(1, bit)) for bit in (1, 0)))
        return None

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
                refuse(f"the choice by {left}")
            if kind.width > 64:
                refuse(f"{left} has more than 64 bits")
            return Choose(left, right, yes, no)
        if self.tokens[self.at + 1 : self.at + 2] == ["."]:
            name = self.name()
            self.takes(".", "apply", "(", ")", ";")
            if name not in tables:
                refuse(f"{name} is not a table")
            return Apply(name)
        return self.assign({})

    def assign(self, parameters: Mapping[str, Type]) -> Assign:
        name = self.name()
        if name in parameters or name.startswith("f_"):
            refuse(f"an assignment to {name}")
        self.take("=")
        value = self.expression(parameters)
        self.take(";")
        if self.kind(value, parameters) != self.known(name):
            refuse(f"the value of {name} has another type")
        return Assign(name, value)

    def expression(self, scope: Mapping[str, Type]) -> Expression:
        operands = [self.operand(scope)]
        sign = self.peek()
        if sign not in ("++", "&", "+", "|+|", "|-|"):
            return operands[0]
        while self.takes_if(sign) and (sign[0] != "|" or len(operands) == 1):
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
            refuse(f"the slice {name}[{high}:{low}]")
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
                refuse("a cast that changes sign and width")
            return value.to
        kinds = [self.kind(operand, scope) for operand in value.operands]
        if value.sign == "++":
            if any(kind.signed for kind in kinds):
                refuse("a concatenation of signed numbers")
            return Type(False, sum(kind.width for kind in kinds))
        if len(set(kinds)) != 1 or kinds[0].signed != (value.sign != "&"):
            refuse(f"operands of {value.sign} of other types")
        return kinds[0]
