"""P4 as one would read it, one input at a time and statement by statement: the slow model of the emitted text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from types import CodeType


@dataclass(frozen=True)
class Bits:
    """A number of P4; `|` is concatenation, `cast ** number` a cast."""

    value: int  # bit pattern
    width: int
    signed: bool = False

    @property
    def number(self) -> int:
        return self.value - (1 << self.width) if self.signed and self.value >> (self.width - 1) else self.value

    def __getitem__(self, bounds: slice) -> Bits:
        width = bounds.start - bounds.stop + 1
        return Bits(self.value >> bounds.stop & ((1 << width) - 1), width)

    def __or__(self, other: Bits) -> Bits:
        return Bits(self.value << other.width | other.value, self.width + other.width)

    def __sub__(self, other: Bits) -> Bits:
        """Saturating subtraction, which P4 writes as |-|."""
        half = 1 << (self.width - 1)
        number = min(max(self.number - other.number, -half), half - 1)
        return Bits(number & ((1 << self.width) - 1), self.width, True)

    def __mul__(self, other: Bits) -> Bits:
        """Saturating addition, which P4 writes as |+|."""
        half = 1 << (self.width - 1)
        number = min(max(self.number + other.number, -half), half - 1)
        return Bits(number & ((1 << self.width) - 1), self.width, True)

    def __add__(self, other: Bits) -> Bits:
        return Bits((self.value + other.value) & ((1 << self.width) - 1), self.width, self.signed)


@dataclass(frozen=True)
class Cast:
    signed: bool
    width: int

    def __pow__(self, other: Bits) -> Bits:
        return Bits(other.number & ((1 << self.width) - 1), self.width, self.signed)


@cache
def in_python(expression: str) -> CodeType:
    """An expression of P4 as one of :class:`Bits`."""
    python = re.sub(r"\b(\d+)w(0x[0-9a-f]+|\d+)\b", r"Bits(\2, \1)", expression)
    python = re.sub(r"\((int|bit)<(\d+)>\) ", lambda m: f"Cast({m[1] == 'int'}, {m[2]}) ** ", python)
    return compile(python.replace("++", "|").replace("|-|", "-").replace("|+|", "*"), expression, "eval")


def run_slowly(text: str, inputs: dict[str, int]) -> tuple[int, bool]:
    """Return score and decision of the control in `text`, entries in the program, on one input."""
    code = re.sub(r"//[^\n]*", "", text)
    actions = {
        name: ([p.split()[1] for p in parameters.split(", ") if p], re.findall(r"(\w+) = (.*?);", body))
        for name, parameters, body in re.findall(r"action (\w+)\((.*?)\) \{(.*?)\}", code, re.DOTALL)
    }
    tables = {}
    for name, body in re.findall(r"table (\w+) \{(.*?)\n    \}", code, re.DOTALL):
        key = re.findall(
            r"([\w\[\]:]+) : (\w+)(?: @name\(\"\w+\"\))?;", (re.search(r"key = \{(.*?)\}", body) or [""])[0]
        )
        default = re.search(r"default_action = (\w+)\((.*?)\);", body)
        assert default
        entries = [
            ([re.split(r" &&& | \.\. ", field) for field in match.strip("()").split(", ")], action, data.split(", "))
            for match, action, data in re.findall(r"^ {12}(.*?) : (\w+)\((.*?)\);", body, re.MULTILINE)
        ]
        tables[name] = (key, (default[1], [data for data in default[2].split(", ") if data]), entries)
    values = {name: Bits(value, 24) for name, value in inputs.items()}

    def value_of(expression: str, scope: dict[str, Bits]) -> Bits:
        found = eval(in_python(expression), {"Bits": Bits, "Cast": Cast, **scope})
        assert isinstance(found, Bits)
        return found

    def apply(name: str) -> None:
        key, (action, data), entries = tables[name]
        for match, then, arguments in entries:
            hits = []
            for (field, kind), parts in zip(key, match, strict=True):
                value, (first, *second) = value_of(field, values).value, (value_of(part, {}).value for part in parts)
                if kind == "range":
                    hits.append(first <= value <= second[0])
                else:
                    hits.append(value & second[0] == first if second else value == first)
            if all(hits):
                action, data = then, arguments
                break
        names, body = actions[action]
        scope = {**values, **{n: value_of(d, {}) for n, d in zip(names, data, strict=True)}}
        for target, expression in body:
            values[target] = value_of(expression, scope)

    for line in code.split("apply {", 1)[1].splitlines():
        choice = re.match(r"\s*if \((\w+) > (.*?)\) \{ (\w+) = (.*?); \} else \{ \w+ = (.*?); \}", line)
        if choice:
            left, right, target, yes, no = choice.groups()
            values[target] = value_of(yes if values[left].number > value_of(right, values).number else no, values)
        elif found := re.match(r"\s*(\w+)\.apply\(\);", line):
            apply(found[1])
        elif found := re.match(r"\s*(\w+) = (.*);", line):
            values[found[1]] = value_of(found[2], values)
    return values["score"].number, bool(values["drop"].value)
