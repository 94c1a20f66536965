"""The text of a plan: the control, a program around it, and entries for the control plane."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal
from zlib import crc32

import jinja2

from foretail.core.errors import ForetailError
from foretail.export.folder import check_name
from foretail.export.p4.planning.architecture import INPUT_BITS
from foretail.export.p4.planning.cost import FeatureTable, Plan
from foretail.export.p4.planning.encoding import KeySlice
from foretail.export.p4.planning.frame import Frame
from foretail.export.p4.planning.prefixes import Row
from foretail.export.p4.text.names import check_control
from foretail.export.p4.text.rows import (
    ACTION_PREFIX,
    TABLE_PREFIX,
    TextTable,
    runtime_bfrt,
    runtime_command,
    runtime_update,
    split_row,
)
from foretail.export.p4.text.switch import can_compute, render_switch
from foretail.export.p4.text.syntax import CONTROL, key_name
from foretail.export.templates import environment
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput

FIRST_ID = 0xF07A01
"""P4Runtime ids of tables and actions count from here, so that entries can name them before any compiler ran.

Those of a control with a name of its own count from a number that its name makes, so that a program can hold several.
"""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_PLAIN = re.compile(r"[A-Za-z0-9_=,.+-]*")


def render_p4(
    ensemble: Ensemble,
    plan: Plan,
    name: str,
    entries: Literal["const", "runtime"] = "const",
    control: str = CONTROL,
    frame: Frame | None = None,
) -> dict[str, str]:
    """Return the generated files, name -> text; ForetailError on a name that cannot be written into P4.

    Returns ``<name>.p4``: the control; ``<name>_main.p4``: a program around it; for Tofino, if its
    ingress knows all features, ``<name>_switch.p4``: a switch that computes them; and with runtime entries
    ``<name>.entries.txtpb``, a P4Runtime WriteRequest as text, and ``<name>.commands.txt`` for simple_switch_CLI or
    ``<name>.bfrt.json`` for Tofino's runtime.

    With `frame` the plan is of :func:`plan_in`, and the text is that of every model in the frame, but for the model's
    name and first tau.
    """
    check_name(name)
    check_control(control)
    for feature in ensemble.features:
        if not _NAME.fullmatch(feature.name):
            raise ForetailError(f"{feature.name!r} cannot be written into P4: name features in letters, digits and _")
    statements, intermediate, operations = _statements(ensemble, plan)
    words, arch = code_words(ensemble, plan), plan.profile.arch
    filled = _tables(ensemble, plan)
    if frame is not None:
        described = {f"t_{feature}": params for feature, params in frame.features.items()}
        filled = [replace(table, size=frame.rows, description=described.get(table.name)) for table in filled]
    tables = [*filled, *operations]
    runtime = entries == "runtime"
    first = first_id(control)
    values = {
        "arch": arch,
        "control": control,
        "name": name,
        "sha256": ensemble.sha256,
        "features": ensemble.features,
        "width": plan.score_bits,
        "words": words,
        "variables": _declarations(ensemble, plan) + intermediate,
        "statements": statements,
        "tables": [_table_values(i, table, runtime and table in filled) for i, table in enumerate(tables, first)],
        "runtime": runtime,
        "sized": not plan.profile.architecture.expressions,
    }
    files = {
        f"{name}.p4": environment_of_p4().get_template("predictor.p4.j2").render(values),
    }
    if frame is None:  # else the program has two such controls
        files[f"{name}_main.p4"] = render_main(ensemble.features, name, arch, plan.score_bits, control, words)
        if arch == "tna" and can_compute(ensemble.features):
            files[f"{name}_switch.p4"] = render_switch(ensemble.features, name, control, plan.score_bits, words)
    if runtime:
        rows = [(table, i) for table in filled for i in range(len(table.rows))]
        if arch == "v1model":
            files[f"{name}.commands.txt"] = "".join(runtime_command(table, i) for table, i in rows)
        else:
            lines = ",\n".join(json.dumps(runtime_bfrt(table, i)) for table, i in rows)
            files[f"{name}.bfrt.json"] = f"[\n{lines}\n]\n"
        files[f"{name}.entries.txtpb"] = "".join(
            runtime_update(number, table, i)
            for number, table in enumerate(filled, first)
            for i in range(len(table.rows))
        )
    return files


def first_id(control: str) -> int:
    """Return the number that the ids of a control's tables and actions count from."""
    return FIRST_ID if control == CONTROL else (crc32(control.encode()) & 0xFFF) << 12


def render_main(
    features: Sequence[FeatureInput],
    name: str,
    arch: str,
    score_bits: int,
    control: str = CONTROL,
    words: Sequence[str] = (),
    banked: bool = False,
) -> str:
    """Return a program around a control that answers packets of features with what it says.

    The control is that of ``<name>.p4``, or with `banked` that of ``<name>_banks.p4``. For TNA, each of `words`,
    variables of the control, has a container of its own.
    """
    template = environment_of_p4().get_template(f"predictor_main_{arch}.p4.j2")
    file = f"{name}{'_banks' if banked else ''}.p4"
    return template.render(features=features, file=file, width=score_bits, control=control, words=words, banked=banked)


def _tables(ensemble: Ensemble, plan: Plan) -> list[TextTable]:
    names = [feature.name for feature in ensemble.features]
    tables = []
    for chosen in plan.chosen.features:
        feature, words = names[chosen.code.feature], chosen.code.words
        tables.append(
            TextTable(
                f"t_{feature}",
                f"code_{feature}",
                chosen.kind,
                ((f"{'k' if _saturates(chosen, plan) else 'f'}_{feature}", _key_bits(chosen)),),
                tuple(width for _, width in words),
                tuple(f"c_{feature}_w{word} = w{word};" for word, _ in words),
                tuple(f"w{word}" for word, _ in words),
                tuple((_padded(row, chosen), row.label) for row in chosen.rows.rows),
                chosen.rows.default,
            )
        )
    width, architecture, encoding = plan.score_bits, plan.profile.architecture, plan.chosen.encoding
    expressions, early, first = architecture.expressions, encoding.early_tau(architecture), encoding.terms(architecture)
    for index, votes in enumerate(encoding.votes):
        if votes.key:
            framed = encoding.banked  # the same text for any votes
            signed = votes.signed or framed
            bits = votes.vote_bits if expressions and not framed else width
            widened = f"({'int' if signed else 'bit'}<{bits if signed else width}>) " if expressions else ""
            everything = (1 << bits) - 1
            value = f"(int<{width}>) {widened}vote"
            own, sum_in = encoding.vote_name(index, architecture), encoding.accumulator(index, architecture)
            body = [f"v_{sum_in} = v_{sum_in} + {value};" if sum_in is not None else f"{own} = {value};"]
            if early and index == first[0]:
                body.append(f"{_first_excess(plan)} = {value} |-| tau;")
            slices = tuple((_source(part, names), part.high - part.low + 1) for part in votes.key)
            tables.append(
                TextTable(
                    encoding.table_name(index),
                    f"vote_{index}",
                    votes.kind,
                    ((f"key_{index}", votes.key_bits),) if expressions else slices,
                    (bits,),
                    tuple(body),
                    ("vote",),
                    tuple((row, (row.label & everything,)) for row in votes.rows),
                    (votes.default & everything,),
                )
            )
    tau = ensemble.require_votes()[1] & ((1 << width) - 1)
    set_tau = f"tau = (int<{width}>) value;" if expressions or early else f"margin = (int<{width}>) value |-| score;"
    tables.append(TextTable("decide", "set_tau", "", (), (width,), (set_tau,), ("value",), (), (tau,), fixed=False))
    return tables


def _first_excess(plan: Plan) -> str:
    """Return the variable of the first vote less tau, which is the excess of a lone vote."""
    return "excess" if plan.chosen.encoding.operands(plan.profile.architecture) == 1 else "excess_0"


def _source(part: KeySlice, names: list[str]) -> str:
    word = f"b_w{part.word}" if part.feature is None else f"c_{names[part.feature]}_w{part.word}"
    return f"{word}[{part.high}:{part.low}]"


def _key_bits(table: FeatureTable) -> int:
    """Return the key's width in the text: whole bytes for lpm, because BMv2 counts prefixes from a byte's first bit."""
    bits = table.code.intervals.bits
    return -(-bits // 8) * 8 if table.kind == "lpm" else bits


def _saturates(table: FeatureTable, plan: Plan) -> bool:
    """Return whether an input is cut off before it is matched."""
    return plan.profile.architecture.saturates and table.code.saturation < (1 << INPUT_BITS) - 1


def _padded(row: Row[Any], table: FeatureTable) -> Row[Any]:
    """Return a prefix behind the zeros that pad its key."""
    padding = (1 << _key_bits(table)) - (1 << table.code.intervals.bits)
    return Row(row.first, row.second | padding, row.label)


def _declarations(ensemble: Ensemble, plan: Plan) -> list[str]:
    """Return the local variables that hold code words, masks and votes, and saturated keys where inputs are."""
    architecture, encoding, width = plan.profile.architecture, plan.chosen.encoding, plan.score_bits
    lines = []
    for table in plan.chosen.features:
        name = ensemble.features[table.code.feature].name
        if _saturates(table, plan):
            lines.append(f"bit<{_key_bits(table)}> k_{name};")
        lines += [f"bit<{bits}> c_{name}_w{word};" for word, bits in table.code.words]
    lines += [f"bit<{bits}> b_w{word};" for word, bits in encoding.masks]
    for index, votes in enumerate(encoding.votes):
        if votes.key and architecture.expressions:
            lines.append(f"bit<{votes.key_bits}> key_{index};")
        if index in encoding.terms(architecture) and (own := encoding.vote_name(index, architecture)) != "score":
            lines.append(f"int<{width}> {own};")
    early = encoding.early_tau(architecture)
    lines.append(f"int<{width}> {'tau' if architecture.expressions or early else 'margin'};")
    return lines + [f"int<{width}> {name};" for name in dict.fromkeys(("excess", _first_excess(plan))) if early]


def code_words(ensemble: Ensemble, plan: Plan) -> list[str]:
    """Return the variables of code words and masks."""
    codes = (table.code for table in plan.chosen.features)
    words = [f"c_{ensemble.features[code.feature].name}_w{word}" for code in codes for word, _ in code.words]
    return words + [f"b_w{word}" for word, _ in plan.chosen.encoding.masks]


def _statements(ensemble: Ensemble, plan: Plan) -> tuple[list[str], list[str], list[TextTable]]:
    """Return the statements of the apply block, declarations of intermediate results, and tables of one operation."""
    architecture, encoding, width = plan.profile.architecture, plan.chosen.encoding, plan.score_bits
    names = [feature.name for feature in ensemble.features]
    lines: list[str] = []
    intermediate: list[str] = []
    operations: list[TextTable] = []

    def assign(name: str, value: str) -> None:
        if architecture.expressions:
            lines.append(f"{name} = {value};")
        else:
            operations.append(TextTable(f"at_{name}", f"do_{name}", "", (), (), (f"{name} = {value};",), (), (), ()))
            lines.append(f"at_{name}.apply();")

    def named(value: str, kind: str) -> str:
        name = f"s_{len(intermediate)}"
        intermediate.append(f"{kind} {name};")
        assign(name, value)
        return name

    def combined(terms: list[str], sign: str, kind: str) -> str:
        inner = (lambda value: f"({value})") if architecture.expressions else (lambda value: named(value, kind))
        return _balanced(terms, sign, inner)

    def sums(terms: list[str]) -> tuple[str, str]:
        """Return the sum of terms, and the same less tau, each as an expression."""
        if len(terms) == 1:
            return terms[0], _first_excess(plan)
        half, kind = (len(terms) + 1) // 2, f"int<{width}>"
        left, excess = (value if half == 1 else named(value, kind) for value in sums(terms[:half]))
        right = combined(terms[half:], " + ", kind)
        right = right if len(terms) - half == 1 else named(right, kind)
        return f"{left} + {right}", f"{excess} |+| {right}"

    if encoding.early_tau(architecture):
        lines.append("decide.apply();")
    for table in (table for table in plan.chosen.features if _saturates(table, plan)):
        name, bits, largest = names[table.code.feature], _key_bits(table), table.code.saturation
        lines.append(
            f"if (f_{name} > 24w{largest - 1}) {{ k_{name} = {bits}w{largest}; }} "
            f"else {{ k_{name} = f_{name}[{bits - 1}:0]; }}"
        )
    lines += [f"t_{names[code.feature]}.apply();" for code in encoding.codes]
    for word, bits in encoding.masks:
        parts = [f"c_{names[code.feature]}_w{word}" for code in encoding.codes if word in dict(code.words)]
        mask = " & ".join(parts) if architecture.expressions else combined(parts, " & ", f"bit<{bits}>")
        assign(f"b_w{word}", mask)
    for index, votes in enumerate(encoding.votes):
        if not votes.key:
            lines.append(f"v_{index} = (int<{width}>) {width}w{votes.default & ((1 << width) - 1)};")
        elif architecture.expressions:
            lines.append(f"key_{index} = {' ++ '.join(_source(part, names) for part in votes.key)};")
    lines += [f"{encoding.table_name(i)}.apply();" for i, votes in enumerate(encoding.votes) if votes.key]
    terms = [f"v_{i}" for i in encoding.terms(architecture) if encoding.votes[i].key]
    constants = [f"v_{i}" for i in encoding.terms(architecture) if not encoding.votes[i].key]
    if len(constants) > 1:  # among themselves, which takes no stage
        constants = [named(" + ".join(constants), f"int<{width}>")]
    alone = [encoding.vote_name(i, architecture) for i in encoding.terms(architecture)] == ["score"]
    if encoding.early_tau(architecture):
        if not alone:
            total, excess = sums(terms + constants)
            assign("score", total)
            assign("excess", excess)
        sign, every = 1 << (width - 1), (1 << width) - 1
        kind, key = "ternary", (f"excess[{width - 1}:0]", width)
        rows: tuple[Row[int], ...] = (Row(sign, sign, 0), Row(0, every, 0))  # negative, and 0
    else:
        if not alone:
            assign("score", combined(terms + constants, " + ", f"int<{width}>"))
        lines.append("decide.apply();")
        kind, key, rows = "exact", (f"margin[{width - 1}:{width - 1}]", 1), (Row(1, 1, 1),)  # negative
    if architecture.expressions:
        lines.append("if (score > tau) { drop = 1w1; } else { drop = 1w0; }")
    else:
        data, default = tuple((row, (row.label,)) for row in rows), (1 - rows[0].label,)
        operations.append(
            TextTable("verdict", "set_drop", kind, (key,), (1,), ("drop = value;",), ("value",), data, default)
        )
        lines.append("verdict.apply();")
    return lines, intermediate, operations


def _balanced(terms: list[str], sign: str, inner: Callable[[str], str]) -> str:
    """Combine terms in pairs: as few operations after another as possible; `inner` makes one term of two."""
    if len(terms) == 1:
        return terms[0]
    half = (len(terms) + 1) // 2
    sides = [
        _balanced(side, sign, inner) if len(side) == 1 else inner(_balanced(side, sign, inner))
        for side in (terms[:half], terms[half:])
    ]
    return sign.join(sides)


def _table_values(number: int, table: TextTable, runtime: bool) -> dict[str, Any]:
    return {
        "name": table.name,
        "action": table.action,
        "id": f"{TABLE_PREFIX | number:#010x}",
        "action_id": f"{ACTION_PREFIX | number:#010x}",
        "parameters": [f"bit<{w}> {name}" for w, name in zip(table.widths, table.parameter_names, strict=True)],
        "body": table.body,
        "key": " ".join(f"{field} : {table.kind}{_annotation(field)};" for field, _ in table.key),
        "fixed": table.fixed,
        "runtime": runtime,
        "size": table.size or len(table.rows),
        "description": table.description,
        "default": _call(table, table.default),
        "entries": [f"{_keyset(table, row)} : {_call(table, data)}" for row, data in table.rows],
    }


def _annotation(field: str) -> str:
    """Return what names a slice of a variable for the control plane."""
    return f' @name("{key_name(field)}")' if "[" in field else ""


def _call(table: TextTable, data: tuple[int, ...]) -> str:
    arguments = ", ".join(f"{w}w{value:#x}" for w, value in zip(table.widths, data, strict=True))
    return f"{table.action}({arguments})"


def _keyset(table: TextTable, row: Row[Any]) -> str:
    fields = []
    for (_, w), first, second in zip(table.key, *split_row(table, row), strict=True):
        if table.kind == "range":
            fields.append(f"{w}w{first:#x} .. {w}w{second:#x}")
        else:
            fields.append(f"{w}w{first:#x}" if table.kind == "exact" else f"{w}w{first:#x} &&& {w}w{second:#x}")
    return fields[0] if len(fields) == 1 else f"({', '.join(fields)})"


def _plain(text: str) -> str:
    """Return text for a comment; raise ForetailError on anything but letters, digits and ``_=,.+-``."""
    if not _PLAIN.fullmatch(text):
        raise ForetailError(f"{text!r} cannot be written into P4: use letters, digits and _=,.+- only")
    return text


@cache
def environment_of_p4() -> jinja2.Environment:
    """Return the templates of P4 texts."""
    return environment("foretail.export.p4.text", plain=_plain)
