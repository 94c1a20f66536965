"""The text of a plan: the control, a program around it, and entries for the control plane."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import jinja2

from foretail.export.folder import check_name
from foretail.export.p4.cost import FeatureTable, Plan
from foretail.export.p4.encoding import KeySlice
from foretail.export.p4.prefixes import Row
from foretail.export.templates import environment
from foretail.features.errors import ForetailError
from foretail.models.ensemble.ensemble import Ensemble

FIRST_ID = 0xF07A01
"""P4Runtime ids of tables and actions count from here, so that entries can name them before any compiler ran."""

TABLE_PREFIX, ACTION_PREFIX = 0x02000000, 0x01000000  # P4Runtime 1.3, section 6.3

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_PLAIN = re.compile(r"[A-Za-z0-9_=,.+-]*")


@dataclass(frozen=True)
class _Table:
    """A table as text needs it; rows first match first, every one (match, action data)."""

    name: str
    action: str
    kind: str
    key: str
    key_bits: int
    widths: tuple[int, ...]
    body: tuple[str, ...]
    parameter_names: tuple[str, ...]
    rows: tuple[tuple[Row[Any], tuple[int, ...]], ...]
    default: tuple[int, ...]


def render_p4(
    ensemble: Ensemble, plan: Plan, name: str, entries: Literal["const", "runtime"] = "const"
) -> dict[str, str]:
    """Return the generated files, name -> text; ForetailError on a name that cannot be written into P4.

    Returns ``<name>.p4``: control DropPredictor; ``<name>_main.p4``: a program around it; and with runtime entries
    ``<name>.commands.txt`` for simple_switch_CLI and ``<name>.entries.txtpb``, a P4Runtime WriteRequest as text.
    """
    check_name(name)
    for feature in ensemble.features:
        if not _NAME.fullmatch(feature.name):
            raise ForetailError(f"{feature.name!r} cannot be written into P4: name features in letters, digits and _")
    tables = _tables(ensemble, plan)
    runtime = entries == "runtime"
    values = {
        "name": name,
        "sha256": ensemble.sha256,
        "features": ensemble.features,
        "width": plan.score_bits,
        "variables": _variables(ensemble, plan),
        "statements": _statements(ensemble, plan),
        "tables": [_table_values(i, table) for i, table in enumerate(tables)],
        "runtime": runtime,
    }
    files = {
        f"{name}.p4": _environment().get_template("predictor.p4.j2").render(values),
        f"{name}_main.p4": _environment().get_template("predictor_main.p4.j2").render(values),
    }
    if runtime:
        files[f"{name}.commands.txt"] = "".join(_command(table, i) for table in tables for i in range(len(table.rows)))
        files[f"{name}.entries.txtpb"] = "".join(
            _update(number, table, i) for number, table in enumerate(tables) for i in range(len(table.rows))
        )
    return files


def _tables(ensemble: Ensemble, plan: Plan) -> list[_Table]:
    names = [feature.name for feature in ensemble.features]
    tables = []
    for chosen in plan.chosen.features:
        feature, words = names[chosen.code.feature], chosen.code.words
        tables.append(
            _Table(
                f"t_{feature}",
                f"code_{feature}",
                chosen.kind,
                f"k_{feature}",
                _key_bits(chosen),
                tuple(width for _, width in words),
                tuple(f"c_{feature}_w{word} = w{word};" for word, _ in words),
                tuple(f"w{word}" for word, _ in words),
                tuple((_padded(row, chosen), row.label) for row in chosen.rows.rows),
                chosen.rows.default,
            )
        )
    width = plan.score_bits
    for index, votes in enumerate(plan.chosen.encoding.votes):
        if votes.key:
            sign = "int" if votes.signed else "bit"
            everything = (1 << votes.vote_bits) - 1
            tables.append(
                _Table(
                    "product" if plan.chosen.encoding.decision == "product" else f"tree_{index}",
                    f"vote_{index}",
                    votes.kind,
                    f"key_{index}",
                    votes.key_bits,
                    (votes.vote_bits,),
                    (f"v_{index} = (int<{width}>) ({sign}<{votes.vote_bits if votes.signed else width}>) vote;",),
                    ("vote",),
                    tuple((row, (row.label & everything,)) for row in votes.rows),
                    (votes.default & everything,),
                )
            )
    tau = ensemble.require_votes()[1] & ((1 << width) - 1)
    body = (f"tau = (int<{width}>) value;",)
    tables.append(_Table("decide", "set_tau", "", "", 0, (width,), body, ("value",), (), (tau,)))
    return tables


def _key_bits(table: FeatureTable) -> int:
    """Return the key's width in the text: whole bytes for lpm, because BMv2 counts prefixes from a byte's first bit."""
    bits = table.code.intervals.bits
    return -(-bits // 8) * 8 if table.kind == "lpm" else bits


def _padded(row: Row[Any], table: FeatureTable) -> Row[Any]:
    """Return a prefix behind the zeros that pad its key."""
    padding = (1 << _key_bits(table)) - (1 << table.code.intervals.bits)
    return Row(row.first, row.second | padding, row.label)


def _variables(ensemble: Ensemble, plan: Plan) -> list[dict[str, str]]:
    encoding, width = plan.chosen.encoding, plan.score_bits
    found = []
    for table in plan.chosen.features:
        name = ensemble.features[table.code.feature].name
        found.append((f"bit<{_key_bits(table)}>", f"k_{name}"))
        found += [(f"bit<{bits}>", f"c_{name}_w{word}") for word, bits in table.code.words]
    found += [(f"bit<{bits}>", f"b_w{word}") for word, bits in encoding.masks]
    for index, votes in enumerate(encoding.votes):
        if votes.key:
            found.append((f"bit<{votes.key_bits}>", f"key_{index}"))
        found.append((f"int<{width}>", f"v_{index}"))
    found.append((f"int<{width}>", "tau"))
    return [{"type": kind, "name": name} for kind, name in found]


def _statements(ensemble: Ensemble, plan: Plan) -> list[str]:
    encoding, width = plan.chosen.encoding, plan.score_bits
    names = [feature.name for feature in ensemble.features]
    found = []
    for table in plan.chosen.features:
        name, bits, largest = names[table.code.feature], _key_bits(table), table.code.saturation
        found.append(
            f"if (f_{name} > 24w{largest - 1}) {{ k_{name} = {bits}w{largest}; }} "
            f"else {{ k_{name} = f_{name}[{bits - 1}:0]; }}"
        )
    found += [f"t_{names[code.feature]}.apply();" for code in encoding.codes]
    for word, _ in encoding.masks:
        parts = [f"c_{names[code.feature]}_w{word}" for code in encoding.codes if word in dict(code.words)]
        found.append(f"b_w{word} = {' & '.join(parts)};")

    def source(part: KeySlice) -> str:
        word = f"b_w{part.word}" if part.feature is None else f"c_{names[part.feature]}_w{part.word}"
        return f"{word}[{part.high}:{part.low}]"

    for index, votes in enumerate(encoding.votes):
        if votes.key:
            found.append(f"key_{index} = {' ++ '.join(source(part) for part in votes.key)};")
        else:
            found.append(f"v_{index} = (int<{width}>) {width}w{votes.default & ((1 << width) - 1)};")
    for index, votes in enumerate(encoding.votes):
        if votes.key:
            found.append(f"{'product' if encoding.decision == 'product' else f'tree_{index}'}.apply();")
    found.append(f"score = {_sum([f'v_{i}' for i in range(len(encoding.votes))])};")
    found.append("decide.apply();")
    found.append("if (score > tau) { drop = 1w1; } else { drop = 1w0; }")
    return found


def _sum(terms: list[str], inside: bool = False) -> str:
    """Return a balanced sum: as few additions after another as possible."""
    if len(terms) == 1:
        return terms[0]
    half = (len(terms) + 1) // 2
    text = f"{_sum(terms[:half], True)} + {_sum(terms[half:], True)}"
    return f"({text})" if inside else text


def _table_values(index: int, table: _Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "action": table.action,
        "id": f"{TABLE_PREFIX | FIRST_ID + index:#010x}",
        "action_id": f"{ACTION_PREFIX | FIRST_ID + index:#010x}",
        "parameters": [f"bit<{w}> {name}" for w, name in zip(table.widths, table.parameter_names, strict=True)],
        "body": table.body,
        "key": table.key,
        "kind": table.kind,
        "default": _call(table, table.default),
        "entries": [f"{_keyset(table, row)} : {_call(table, data)}" for row, data in table.rows],
    }


def _call(table: _Table, data: tuple[int, ...]) -> str:
    arguments = ", ".join(f"{w}w{value:#x}" for w, value in zip(table.widths, data, strict=True))
    return f"{table.action}({arguments})"


def _keyset(table: _Table, row: Row[Any]) -> str:
    w = table.key_bits
    if table.kind == "range":
        return f"{w}w{row.first:#x} .. {w}w{row.second:#x}"
    return f"{w}w{row.first:#x}" if table.kind == "exact" else f"{w}w{row.first:#x} &&& {w}w{row.second:#x}"


def _command(table: _Table, index: int) -> str:
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


def _update(number: int, table: _Table, index: int) -> str:
    row, data = table.rows[index]
    first, second, priority = _bytes(row.first), _bytes(row.second), ""
    if table.kind == "lpm":
        match = f"lpm {{ value: {first} prefix_len: {row.second.bit_count()} }}"
    elif table.kind == "exact":
        match = f"exact {{ value: {first} }}"
    else:
        names = ("value", "mask") if table.kind == "ternary" else ("low", "high")
        match = f"{table.kind} {{ {names[0]}: {first} {names[1]}: {second} }}"
        priority = f" priority: {len(table.rows) - index}"  # the largest goes first
    parameters = " ".join(f"params {{ param_id: {i} value: {_bytes(value)} }}" for i, value in enumerate(data, 1))
    action = f"action_id: {ACTION_PREFIX | FIRST_ID + number} {parameters}"
    return (
        f"updates {{ type: INSERT entity {{ table_entry {{ table_id: {TABLE_PREFIX | FIRST_ID + number} "
        f"match {{ field_id: 1 {match} }} action {{ action {{ {action} }} }}{priority} }} }} }}\n"
    )


def _bytes(value: int) -> str:
    """Return the shortest big-endian byte string of a value, as protobuf text writes it."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in value.to_bytes(max(1, -(-value.bit_length() // 8)), "big")) + '"'


def _plain(text: str) -> str:
    """Return text for a comment; raise ForetailError on anything but letters, digits and ``_=,.+-``."""
    if not _PLAIN.fullmatch(text):
        raise ForetailError(f"{text!r} cannot be written into P4: use letters, digits and _=,.+- only")
    return text


@cache
def _environment() -> jinja2.Environment:
    return environment("foretail.export.p4", plain=_plain)
