"""What an emitted control says, as boxes: its tables taken apart into one function per term of the score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from operator import and_

import numpy as np
import numpy.typing as npt

from foretail.export.p4.planning.architecture import INPUT_BITS
from foretail.export.p4.reading.interpreter import Value, action_data, evaluate, integers, run
from foretail.export.p4.text.syntax import (
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
    names_in,
    refuse,
)
from foretail.export.proof.prove import ReadBack
from foretail.models.ensemble.boxes import Boxes

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

MAX_PIECES = 100_000

_Bit = Mapping[int, int]
"""A bit as the AND, over inputs, of which of an input's intervals set it; no entry for inputs that do not matter."""

_Set = tuple[int, ...]
"""A product set of inputs: for every input, which of its intervals, one bit each."""


def read_back(program: Program, trees: int) -> ReadBack:
    """Return what a control says as boxes: one part per term of the score, when these are as many as `trees`."""
    return _Boxer(program).read_back(trees)


@dataclass
class _Boxer:
    """Takes a program apart: what depends on one input is a function of its intervals, the rest are products."""

    program: Program
    depends: dict[str, frozenset[int]] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)  # saturated inputs, used as keys and nowhere else
    runs: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)

    def read_back(self, trees: int) -> ReadBack:
        program = self.program
        self._find_dependencies()
        edges = [self._edges(i) for i in range(len(program.inputs))]
        values: list[dict[str, Value]] = []
        boundaries: dict[int, set[int]] = {}
        self.lows: list[IntArray] = []
        for index, edge in enumerate(edges):
            points = np.zeros((len(edge) + 1, len(program.inputs)), np.int64)
            points[1:, index] = np.array(edge, np.int64) + 1
            own = frozenset([index])
            computed = run(program, points, lambda name, own=own: self.depends[name] <= own)  # type: ignore[misc]
            computed = {name: value for name, value in computed.items() if self.depends[name] == own}
            # Between neighbours that agree in everything the text computes from this input, nothing can change.
            changes = np.zeros(len(edge), np.bool_)
            for name, value in computed.items():
                if name not in program.inputs and name not in self.keys:
                    for limb in value.limbs:
                        changes |= limb[1:] != limb[:-1]
            is_start = np.append(True, changes)
            boundaries[index] = {edge[i] for i in np.flatnonzero(changes)}
            self.lows.append(points[is_start, index])
            values.append(
                {n: Value(v.width, v.signed, tuple(limb[is_start] for limb in v.limbs)) for n, v in computed.items()}
            )
        self.values = values
        terms = self._terms()
        if len(terms) < trees:
            return ReadBack(boundaries)
        parts = tuple(self._part(term) for term in terms)
        if any({*part.votes.tolist(), part.default or 0} != {0} for part in parts[trees:]):  # not tables of no tree
            return ReadBack(boundaries)
        parts = parts[:trees]
        reached = [[*part.votes.tolist(), *([] if part.default is None else [part.default])] for part in parts]
        half = 1 << (program.types["score"].width - 1)
        # Additions wrap, so only the whole sum has to fit.
        if not -half <= sum(map(min, reached)) <= sum(map(max, reached)) < half:
            refuse("a sum of votes does not fit the score")
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
                written = {assign.name: key | of(assign.value, scope) for assign in action.body}
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
                    refuse(f"the use of {name}")
                assert isinstance(low, Slice)
                assert low.high is not None
                if cut.value >> (low.high + 1):
                    refuse(f"{name} loses bits")
                edges.add(cut.value)
                key = statement.yes.name
                for user in self.program.statements:
                    if isinstance(user, Apply) and self.program.tables[user.table].key == key:
                        edges |= {edge for edge in self._table_edges(user.table) if edge < cut.value}
                    elif not isinstance(user, Apply) and user is not statement and key in names_in(user):
                        refuse(f"the use of {key}")
                self.keys.add(key)
            elif isinstance(statement, Apply) and self.program.tables[statement.table].key == name:
                edges |= self._table_edges(statement.table)
            elif not isinstance(statement, Apply) and name in names_in(statement):
                refuse(f"the use of {name}")
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
                            refuse(f"a row of table {name} has too many pieces")
                blocks = [(start, start | run) for start in starts]
            edges |= {edge for low, high in blocks for edge in (low - 1, high)}
        return edges

    def _terms(self) -> list[str]:
        """Return the variables that the score is the sum of, by the numbers in their names."""
        names: list[str] = []
        left: list[Expression] = [Slice("score")]
        while left:
            value = left.pop()
            writer = self.writer[value.name] if isinstance(value, Slice) and value.high is None else None
            if isinstance(value, Operation) and value.sign == "+":
                left += value.operands
            elif isinstance(writer, Assign) and not isinstance(writer.value, Cast | Number):
                left.append(writer.value)
            elif isinstance(value, Slice) and writer is not None:
                names.append(value.name)
            else:
                refuse("the score is not a sum of variables")
            if len(names) > MAX_PIECES:
                refuse("the score is a sum of too many variables")
        # Any order will do: every term is compared with one tree.
        return sorted(names, key=lambda name: (len(name), name))

    def _part(self, name: str) -> Boxes:
        everything: _Set = tuple((1 << len(low)) - 1 for low in self.lows)
        inputs = self.depends[name]
        if not inputs:
            at = np.zeros((1, len(self.program.inputs)), np.int64)
            return self._boxes([], [], int(integers(run(self.program, at)[name])[0]))
        if len(inputs) == 1:
            (index,) = inputs
            numbers = integers(self.values[index][name])
            sets, votes = [], []
            for vote in np.unique(numbers).tolist():
                sets.append((*everything[:index], _mask(numbers == vote), *everything[index + 1 :]))
                votes.append(vote)
            return self._boxes(sets, votes, None)
        writer = self.writer[name]
        if not isinstance(writer, Apply):
            refuse(f"{name} is not set by a table")
        table = self.program.tables[writer.table]
        if table.key is None or table.kind not in ("ternary", "exact"):
            refuse(f"the table of {name}")
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
                refuse(f"the rows of table {writer.table} overlap in too many pieces")
        raise AssertionError("the default comes last")

    def _votes(self, table: Table, name: str) -> list[int]:
        """Return the value of `name` that every entry, and then the default, sets."""
        scope = action_data(self.program, table)
        (assign,) = (assign for assign in self.program.actions[table.action].body if assign.name == name)
        if not names_in(assign.value) <= set(scope):
            refuse(f"{name} is not made of action data alone")
        return [int(v) for v in integers(evaluate(assign.value, scope, len(table.entries) + 1))]

    def _bits(self, value: Expression) -> list[_Bit]:
        """Return the bits of an expression, least significant first."""
        if isinstance(value, Operation) and value.sign == "++":
            return [bit for operand in reversed(value.operands) for bit in self._bits(operand)]
        if isinstance(value, Operation) and value.sign == "&":
            rows = [self._bits(operand) for operand in value.operands]
            return [_and(bits) for bits in zip(*rows, strict=True)]
        if not isinstance(value, Slice):
            refuse("a key that is not made of code words")
        inputs = self.depends[value.name]
        if len(inputs) == 1:
            (index,) = inputs
            whole = self.values[index][value.name]
            bits: list[_Bit] = [
                {index: _mask((whole.limbs[b // 64] >> np.uint64(b % 64) & np.uint64(1)).astype(np.bool_))}
                for b in range(whole.width)
            ]
        else:
            writer = self.writer[value.name]
            if not isinstance(writer, Assign):
                refuse("a key that is not made of code words")
            bits = self._bits(writer.value)
        return bits if value.high is None or value.low is None else bits[value.low : value.high + 1]

    def _matches(self, entry: Entry, bits: list[_Bit], everything: _Set) -> list[_Set]:
        """Return disjoint product sets of the inputs whose key an entry matches."""
        ones: list[_Bit] = []
        zeros: list[_Bit] = []
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
        pieces = [tuple(inside)] if all(inside) else []
        for bit in zeros:
            if len(bit) != 1:
                pieces = _without(pieces, tuple(bit.get(i, every) for i, every in enumerate(everything)))
        return pieces

    def _boxes(self, sets: list[_Set], votes: list[int], default: int | None) -> Boxes:
        """Cut product sets into boxes: one per combination of runs of intervals."""
        inputs = len(self.lows)
        boxes: list[tuple[tuple[int, int], ...]] = []
        of_box: list[int] = []
        for whole, vote in zip(sets, votes, strict=True):
            cells = list(product(*(self._runs(index, side) for index, side in enumerate(whole))))
            boxes += cells
            of_box += [vote] * len(cells)
            if len(boxes) > MAX_PIECES:
                refuse("a part of the score is made of too many boxes")
        bounds = np.array(boxes, np.int64).reshape(-1, inputs, 2)
        return Boxes(bounds[:, :, 0], bounds[:, :, 1], np.array(of_box, np.int64), default)

    def _runs(self, index: int, side: int) -> list[tuple[int, int]]:
        """Return the (low, high) of the runs of chosen intervals of an input."""
        known = self.runs.get((index, side))
        if known is None:
            low = self.lows[index]
            starts, ends = _places(side & ~(side << 1)), _places(side & ~(side >> 1))
            known = [
                (int(low[first]), int(low[last + 1]) - 1 if last + 1 < len(low) else (1 << INPUT_BITS) - 1)
                for first, last in zip(starts, ends, strict=True)
            ]
            self.runs[index, side] = known
        return known


def _mask(chosen: BoolArray) -> int:
    return int.from_bytes(np.packbits(chosen, bitorder="little").tobytes(), "little")


def _places(mask: int) -> list[int]:
    """Return which bits are set, increasing."""
    runs = []
    while mask:
        runs.append((mask & -mask).bit_length() - 1)
        mask &= mask - 1
    return runs


def _and(bits: Sequence[_Bit]) -> _Bit:
    merged: dict[int, int] = {}
    for bit in bits:
        for index, holds in bit.items():
            merged[index] = merged[index] & holds if index in merged else holds
    return merged


def _without(pieces: list[_Set], taken: _Set) -> list[_Set]:
    """Return disjoint product sets: `pieces` without `taken`."""
    left: list[_Set] = []
    for piece in pieces:
        if not all(map(and_, piece, taken)):
            left.append(piece)
            continue
        rest = list(piece)
        for index, side in enumerate(taken):
            outside = rest[index] & ~side
            if outside:
                left.append((*rest[:index], outside, *rest[index + 1 :]))
            rest[index] = rest[index] & side
    return left
