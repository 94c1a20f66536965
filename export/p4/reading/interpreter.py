"""The interpreter of the emitted P4 subset: a control, read back from its text, run on many inputs at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from foretail.export.p4.planning.architecture import INPUT_BITS
from foretail.export.p4.text.syntax import (
    Assign,
    Cast,
    Choose,
    Expression,
    Number,
    Program,
    Slice,
    Statement,
    Table,
    Type,
    refuse,
)
from foretail.export.proof.certificate import ProofError

IntArray = npt.NDArray[np.int64]
WordArray = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Value:
    """Bit patterns of one variable on many points, 64 bits per limb, least significant first."""

    width: int
    signed: bool
    limbs: tuple[WordArray, ...]


def score(program: Program, x: IntArray) -> IntArray:
    """Run a control on int64[rows, inputs] and return its scores, int64[rows].

    ProofError when a decision is not ``score > tau`` with the initial tau, or an input has more than 24 bits.
    """
    values = run(program, x)
    scores = integers(values["score"])
    wrong = np.flatnonzero((integers(values["drop"]) != 0) != (scores > program.default_tau))
    if wrong.size:
        at = ", ".join(f"{name}={v}" for name, v in zip(program.inputs, x[wrong[0]].tolist(), strict=True))
        raise ProofError(
            f"the exported P4 does not decide as score > {program.default_tau}, at {at}: report this as a bug"
        )
    return scores


def run(program: Program, x: IntArray, needed: Callable[[str], bool] = lambda _: True) -> dict[str, Value]:
    """Run a control on int64[rows, inputs] and return its variables by name, without those that are not `needed`."""
    if np.any(x < 0) or np.any(x >= 1 << INPUT_BITS):
        raise ProofError(
            f"an input has more than the {INPUT_BITS} bits that the exported P4 takes: report this as a bug"
        )
    values = {
        name: Value(INPUT_BITS, False, (np.ascontiguousarray(x[:, i]).astype(np.uint64),))
        for i, name in enumerate(program.inputs)
    }
    for statement in program.statements:
        written = _written(program, statement)
        if not written or not all(map(needed, written)):
            continue
        if isinstance(statement, Assign):
            values[statement.name] = evaluate(statement.value, values, len(x))
        elif isinstance(statement, Choose):
            holds = integers(values[statement.left]) > integers(evaluate(statement.right, values, len(x)))
            yes, no = (evaluate(branch.value, values, len(x)) for branch in (statement.yes, statement.no))
            limbs = tuple(np.where(holds, a, b) for a, b in zip(yes.limbs, no.limbs, strict=True))
            values[statement.yes.name] = Value(yes.width, yes.signed, limbs)
        else:
            table = program.tables[statement.table]
            action = program.actions[table.action]
            entry = np.full(len(x), len(table.entries)) if table.key is None else _lookup(table, values[table.key])
            data = {name: _taken(column, entry) for name, column in action_data(program, table).items()}
            for assign in action.body:
                values[assign.name] = evaluate(assign.value, {**values, **data}, len(x))
    return values


def _written(program: Program, statement: Statement) -> list[str]:
    if isinstance(statement, Assign):
        return [statement.name]
    if isinstance(statement, Choose):
        return [statement.yes.name]
    return [assign.name for assign in program.actions[program.tables[statement.table].action].body]


def action_data(program: Program, table: Table) -> dict[str, Value]:
    """Return, for every parameter of a table's action, its value in every entry and then in the default."""
    values = {}
    for place, (name, width) in enumerate(program.actions[table.action].parameters):
        data = [entry.data[place] for entry in table.entries] + [table.default[place]]
        values[name] = Value(width, False, _columns(data, width))
    return values


def _taken(value: Value, index: IntArray) -> Value:
    return Value(value.width, value.signed, tuple(limb[index] for limb in value.limbs))


def _columns(values: Sequence[int], width: int) -> tuple[WordArray, ...]:
    mask = (1 << 64) - 1
    return tuple(np.array([value >> shift & mask for value in values], np.uint64) for shift in range(0, width, 64))


def integers(value: Value) -> IntArray:
    """Return the numbers of at most 64 bits as int64."""
    (limb,) = value.limbs
    if not value.signed and value.width > 63:
        refuse("an unsigned number of 64 bits is compared")
    if not value.signed:
        return limb.astype(np.int64)
    shift = np.uint64(64 - value.width)
    return (limb << shift).view(np.int64) >> np.int64(shift)


def _from_integers(numbers: IntArray, width: int, signed: bool) -> Value:
    limb = numbers.view(np.uint64)
    return Value(width, signed, ((limb & np.uint64((1 << width) - 1)) if width < 64 else limb,))


def evaluate(value: Expression, scope: Mapping[str, Value], rows: int) -> Value:
    """Return the value of an expression on `rows` points, given that of every variable."""
    if isinstance(value, Number):
        return Value(value.width, False, tuple(np.repeat(limb, rows) for limb in _columns([value.value], value.width)))
    if isinstance(value, Slice):
        whole = scope[value.name]
        return whole if value.high is None or value.low is None else _slice(whole, value.high, value.low)
    if isinstance(value, Cast):
        return _cast(evaluate(value.operand, scope, rows), value.to)
    operands = [evaluate(operand, scope, rows) for operand in value.operands]
    if value.sign == "++":
        return _concatenate(operands)
    if value.sign == "&":
        limbs = operands[0].limbs
        for operand in operands[1:]:
            limbs = tuple(a & b for a, b in zip(limbs, operand.limbs, strict=True))
        return Value(operands[0].width, False, limbs)
    if value.sign in ("|+|", "|-|"):  # of at most 32 bits
        bits, (first, second) = operands[0].width, (integers(operand) for operand in operands)
        exact, half = first + second if value.sign == "|+|" else first - second, 1 << (bits - 1)
        return _from_integers(np.clip(exact, -half, half - 1), bits, True)
    total = integers(operands[0])
    for operand in operands[1:]:
        total = total + integers(operand)
    return _from_integers(total, operands[0].width, True)


def _slice(value: Value, high: int, low: int) -> Value:
    width = high - low + 1
    limbs = []
    for start in range(low, high + 1, 64):
        place, shift = divmod(start, 64)
        limb = value.limbs[place] >> np.uint64(shift)
        if shift and place + 1 < len(value.limbs):
            limb = limb | (value.limbs[place + 1] << np.uint64(64 - shift))
        left = high + 1 - start
        limbs.append(limb if left >= 64 else limb & np.uint64((1 << left) - 1))
    return Value(width, False, tuple(limbs))


def _concatenate(parts: Sequence[Value]) -> Value:
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
    return Value(width, False, tuple(limbs))


def _cast(value: Value, to: Type) -> Value:
    if value.signed and to.width > value.width:
        return _from_integers(integers(value), to.width, to.signed)
    if to.width <= value.width:
        return replace(_slice(value, to.width - 1, 0), signed=to.signed)
    zeros = np.zeros_like(value.limbs[0])
    limbs = value.limbs + (zeros,) * (-(-to.width // 64) - len(value.limbs))
    return Value(to.width, to.signed, limbs)


def _lookup(table: Table, key: Value) -> IntArray:
    """Return the index of the entry that every key matches first; the number of entries where none does."""
    entries = table.entries
    order = list(range(len(entries)))
    if table.kind == "lpm":
        order.sort(key=lambda i: -entries[i].second)  # the longest prefix, wherever it stands
    if table.kind == "range":
        inside = np.full(len(key.limbs[0]), len(entries))
        for i in reversed(order):
            low, high = np.uint64(entries[i].first), np.uint64(entries[i].second)
            inside[(key.limbs[0] >= low) & (key.limbs[0] <= high)] = i
        return inside
    rank = np.full(len(key.limbs[0]), len(entries))  # place in `order` of the best match so far
    groups: dict[int, list[int]] = {}
    for place, i in enumerate(order):
        groups.setdefault(entries[i].second, []).append(place)
    for mask, places in groups.items():
        masks = _columns([mask], key.width)
        if len(key.limbs) > 1 or len(places) < 4:
            for place in places:
                hit = np.ones(len(rank), np.bool_)
                for limb, cared, wanted in zip(
                    key.limbs, masks, _columns([entries[order[place]].first], key.width), strict=True
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
    by_rank: IntArray = np.append(np.array(order, np.int64), len(entries))
    actions: IntArray = by_rank[rank]
    return actions
