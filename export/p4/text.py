"""The text of a plan: the control, a program around it, and entries for the control plane."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any
from zlib import crc32

import jinja2

from foretail.core.errors import ForetailError
from foretail.export.folder import check_name, environment
from foretail.export.p4.encoding import FeatureTable, Frame, KeySlice, Tables
from foretail.export.p4.profile import INPUT_BITS
from foretail.export.p4.rows import Row
from foretail.export.p4.switch import can_compute, render_switch
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput

CONTROL = "DropPredictor"
"""Name of the control, unless another is asked for."""

TABLE_PREFIX, ACTION_PREFIX = 0x02000000, 0x01000000  # P4Runtime 1.3, section 6.3

FIRST_ID = 0xF07A01
"""P4Runtime ids of tables and actions count from here, so that entries can name them before any compiler ran.

Those of a control with a name of its own count from a number that its name makes, so that a program can hold several.
"""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_PLAIN = re.compile(r"[A-Za-z0-9_=,.+-]*")
_CONTROL = re.compile(r"[A-Z][A-Za-z0-9_]{0,62}")  # P4's own words are all lower case
_LIBRARIES = """
    ActionProfile ActionSelector Alpm Atcam CRCPolynomial Checksum CloneType ComputeChecksum Counter CounterType
    Deparser Digest DirectCounter DirectLpf DirectMeter DirectRegister DirectRegisterAction DirectRegisterAction2
    DirectRegisterAction3 DirectRegisterAction4 DirectWred Egress EgressDeparserT EgressParserT EgressT Hash
    HashAlgorithm Ingress IngressDeparserT IngressParserT IngressT LearnAction LearnAction2 LearnAction3
    LearnAction4 Lpf MathUnit Meter MeterType MinMaxAction MinMaxAction2 MinMaxAction3 MinMaxAction4 Mirror
    MultiParserPipeline MultiParserSwitch NoAction PacketBlackbox Parser ParserCounter ParserPriority Pipeline
    Random Register RegisterAction RegisterAction2 RegisterAction3 RegisterAction4 RegisterParam Resubmit
    SelectorAction Switch V1MODEL_VERSION V1Switch VerifyChecksum Wred
"""
"""Names of core.p4, v1model.p4 and tna.p4."""


@dataclass(frozen=True)
class TextTable:
    """A table as text needs it; rows first match first, every one (match, action data)."""

    name: str
    action: str
    kind: str  #: of all fields of the key: ``range``, ``ternary`` or ``exact``
    key: tuple[tuple[str, int], ...]  #: fields and their widths, most significant first
    widths: tuple[int, ...]  #: of the action's parameters
    body: tuple[str, ...]  #: of the action
    parameter_names: tuple[str, ...]
    rows: tuple[tuple[Row[Any], tuple[int, ...]], ...]
    default: tuple[int, ...]
    fixed: bool = True  #: whether the default stays, rows too without those of a control plane
    size: int | None = None  #: rows that a control plane may fill; None: as many as there are
    description: str | None = None  #: of what the key is, for the control plane


def render_p4(
    ensemble: Ensemble,
    tables: Tables,
    name: str,
    runtime: bool = False,
    control: str = CONTROL,
    frame: Frame | None = None,
) -> dict[str, str]:
    """Return the generated files, name -> text; ForetailError on a name that cannot be written into P4.

    Returns ``<name>.p4``: the control; ``<name>_main.p4``: a program around it; for Tofino, if its
    ingress knows all features, ``<name>_switch.p4``: a switch that computes them; and with `runtime`, entries in files
    for the control plane, ``<name>.entries.txtpb``, a P4Runtime WriteRequest as text, and ``<name>.commands.txt`` for
    simple_switch_CLI or ``<name>.bfrt.json`` for Tofino's runtime.

    With `frame` the tables are of :func:`foretail.export.p4.banks.plan_in`, and the text is that of every model in the
    frame, but for the model's name and first tau.
    """
    check_name(name)
    check_control(control)
    for feature in ensemble.features:
        if not _NAME.fullmatch(feature.name):
            raise ForetailError(f"{feature.name!r} cannot be written into P4: name features in letters, digits and _")
    statements, intermediate, operations = _statements(ensemble, tables)
    architecture, words = tables.encoding.architecture, code_words(ensemble, tables)
    filled = _tables(ensemble, tables)
    if frame is not None:
        described = {f"t_{feature}": params for feature, params in frame.features.items()}
        filled = [replace(table, size=frame.rows, description=described.get(table.name)) for table in filled]
    first = first_id(control)
    values = {
        "arch": architecture.name,
        "control": control,
        "name": name,
        "sha256": ensemble.sha256,
        "features": ensemble.features,
        "width": tables.score_bits,
        "words": words,
        "variables": _declarations(ensemble, tables) + intermediate,
        "statements": statements,
        "tables": [
            _table_values(i, table, runtime and i < first + len(filled))
            for i, table in enumerate([*filled, *operations], first)
        ],
        "runtime": runtime,
        "sized": not architecture.expressions,
    }
    files = {
        f"{name}.p4": environment_of_p4().get_template("predictor.p4.j2").render(values),
    }
    if frame is None:  # else the program has two such controls
        files[f"{name}_main.p4"] = render_main(
            ensemble.features, name, architecture.name, tables.score_bits, control, words
        )
        if architecture.name == "tna" and can_compute(ensemble.features):
            files[f"{name}_switch.p4"] = render_switch(ensemble.features, name, control, tables.score_bits, words)
    if runtime:
        rows = [(number, table, i) for number, table in enumerate(filled, first) for i in range(len(table.rows))]
        if architecture.name == "v1model":
            files[f"{name}.commands.txt"] = "".join(_command(table, i) for _, table, i in rows)
        else:
            lines = ",\n".join(json.dumps(_bfrt(table, i)) for _, table, i in rows)
            files[f"{name}.bfrt.json"] = f"[\n{lines}\n]\n"
        files[f"{name}.entries.txtpb"] = "".join(_update(number, table, i) for number, table, i in rows)
    return files


def check_control(control: str) -> None:
    """Raise ForetailError on a control whose name is none in P4, or is taken in the programs around it."""
    if not _CONTROL.fullmatch(control):
        raise ForetailError(f"{control!r} cannot name a P4 control: use a capital letter, then letters, digits and _")
    if control in _taken():
        raise ForetailError(
            f"p4.control={control} is a name of P4's libraries or of the programs around the control: choose another, "
            f"such as My{control}"
        )


@cache
def _taken() -> frozenset[str]:
    """Names that the libraries declare, and every such word in the templates outside of comments."""
    templates = (resources.files("foretail.export.p4") / "templates").iterdir()
    texts = (re.sub(r"//[^\n]*|/\*.*?\*/|{#.*?#}", "", file.read_text(), flags=re.DOTALL) for file in templates)
    return frozenset(_LIBRARIES.split()).union(*(re.findall(r"\b[A-Z]\w*", text) for text in texts))


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


def _tables(ensemble: Ensemble, tables: Tables) -> list[TextTable]:
    names = [feature.name for feature in ensemble.features]
    made = []
    for chosen in tables.features:
        feature, words = names[chosen.code.feature], range(len(chosen.code.words))
        made.append(
            TextTable(
                f"t_{feature}",
                f"code_{feature}",
                chosen.kind,
                ((f"{'k' if saturates(chosen) else 'f'}_{feature}", chosen.code.intervals.bits),),
                chosen.code.words,
                tuple(f"c_{feature}_w{word} = w{word};" for word in words),
                tuple(f"w{word}" for word in words),
                tuple((row, row.label) for row in chosen.rows.rows),
                chosen.rows.default,
            )
        )
    width, encoding = tables.score_bits, tables.encoding
    expressions, framed = encoding.architecture.expressions, encoding.banked  # framed: the same text for any votes
    for index in encoding.keyed:
        votes = encoding.votes[index]
        signed = votes.signed or framed
        bits = votes.vote_bits if expressions and not framed else width
        widened = f"({'int' if signed else 'bit'}<{bits if signed else width}>) " if expressions else ""
        everything = (1 << bits) - 1
        value = f"(int<{width}>) {widened}vote"
        own, sum_in = encoding.vote_name(index), encoding.accumulator(index)
        body = [f"v_{sum_in} = v_{sum_in} + {value};" if sum_in is not None else f"{own} = {value};"]
        if encoding.early_tau and index == encoding.terms[0]:
            body.append(f"{_first_excess(tables)} = {value} |-| tau;")
        slices = tuple((_source(part, names), part.high - part.low + 1) for part in votes.key)
        made.append(
            TextTable(
                encoding.table_name(index),
                f"vote_{index}",
                "ternary",
                ((f"key_{index}", votes.key_bits),) if expressions else slices,
                (bits,),
                tuple(body),
                ("vote",),
                tuple((row, (row.label & everything,)) for row in votes.rows),
                (votes.default & everything,),
            )
        )
    tau = ensemble.require_votes()[1] & ((1 << width) - 1)
    early = expressions or encoding.early_tau
    set_tau = f"tau = (int<{width}>) value;" if early else f"margin = (int<{width}>) value |-| score;"
    made.append(TextTable("decide", "set_tau", "", (), (width,), (set_tau,), ("value",), (), (tau,), fixed=False))
    return made


def _first_excess(tables: Tables) -> str:
    """Return the variable of the first vote less tau, which is the excess of a lone vote."""
    return "excess" if tables.encoding.operands == 1 else "excess_0"


def _source(part: KeySlice, names: list[str]) -> str:
    return f"c_{names[part.feature]}_w{part.word}[{part.high}:{part.low}]"


def saturates(table: FeatureTable) -> bool:
    """Return whether an input is cut off before it is matched."""
    return table.code.saturation < (1 << INPUT_BITS) - 1


def _declarations(ensemble: Ensemble, tables: Tables) -> list[str]:
    """Return the local variables that hold code words and votes, and saturated keys where inputs are."""
    encoding, width = tables.encoding, tables.score_bits
    lines = []
    for table in tables.features:
        name = ensemble.features[table.code.feature].name
        if saturates(table):
            lines.append(f"bit<{table.code.intervals.bits}> k_{name};")
        lines += [f"bit<{bits}> c_{name}_w{word};" for word, bits in enumerate(table.code.words)]
    for index, votes in enumerate(encoding.votes):
        if votes.key and encoding.architecture.expressions:
            lines.append(f"bit<{votes.key_bits}> key_{index};")
        if index in encoding.terms and (own := encoding.vote_name(index)) != "score":
            lines.append(f"int<{width}> {own};")
    lines.append(f"int<{width}> {'tau' if encoding.architecture.expressions or encoding.early_tau else 'margin'};")
    excess = ("excess", _first_excess(tables)) if encoding.early_tau else ()
    return lines + [f"int<{width}> {name};" for name in dict.fromkeys(excess)]


def code_words(ensemble: Ensemble, tables: Tables) -> list[str]:
    """Return the variables of code words."""
    codes = (table.code for table in tables.features)
    return [f"c_{ensemble.features[code.feature].name}_w{word}" for code in codes for word in range(len(code.words))]


def _statements(ensemble: Ensemble, tables: Tables) -> tuple[list[str], list[str], list[TextTable]]:
    """Return the statements of the apply block, declarations of intermediate results, and tables of one operation."""
    encoding, width = tables.encoding, tables.score_bits
    expressions, names = encoding.architecture.expressions, [feature.name for feature in ensemble.features]
    lines: list[str] = []
    intermediate: list[str] = []
    operations: list[TextTable] = []

    def assign(name: str, value: str) -> None:
        if expressions:
            lines.append(f"{name} = {value};")
        else:
            operations.append(TextTable(f"at_{name}", f"do_{name}", "", (), (), (f"{name} = {value};",), (), (), ()))
            lines.append(f"at_{name}.apply();")

    def named(value: str) -> str:
        name = f"s_{len(intermediate)}"
        intermediate.append(f"int<{width}> {name};")
        assign(name, value)
        return name

    def combined(terms: list[str]) -> str:
        return _balanced(terms, (lambda value: f"({value})") if expressions else named)

    def sums(terms: list[str]) -> tuple[str, str]:
        """Return the sum of terms, and the same less tau, each as an expression."""
        if len(terms) == 1:
            return terms[0], _first_excess(tables)
        half = (len(terms) + 1) // 2
        left, excess = (value if half == 1 else named(value) for value in sums(terms[:half]))
        right = combined(terms[half:])
        right = right if len(terms) - half == 1 else named(right)
        return f"{left} + {right}", f"{excess} |+| {right}"

    if encoding.early_tau:
        lines.append("decide.apply();")
    for table in filter(saturates, tables.features):
        name, bits, largest = names[table.code.feature], table.code.intervals.bits, table.code.saturation
        lines.append(
            f"if (f_{name} > 24w{largest - 1}) {{ k_{name} = {bits}w{largest}; }} "
            f"else {{ k_{name} = f_{name}[{bits - 1}:0]; }}"
        )
    lines += [f"t_{names[code.feature]}.apply();" for code in encoding.codes]
    for index, votes in enumerate(encoding.votes):
        if not votes.key:
            lines.append(f"v_{index} = (int<{width}>) {width}w{votes.default & ((1 << width) - 1)};")
        elif expressions:
            lines.append(f"key_{index} = {' ++ '.join(_source(part, names) for part in votes.key)};")
    lines += [f"{encoding.table_name(i)}.apply();" for i in encoding.keyed]
    terms = [f"v_{i}" for i in encoding.terms if encoding.votes[i].key]
    constants = [f"v_{i}" for i in encoding.terms if not encoding.votes[i].key]
    if len(constants) > 1:  # among themselves, which takes no stage
        constants = [named(" + ".join(constants))]
    alone = [encoding.vote_name(i) for i in encoding.terms] == ["score"]
    if encoding.early_tau:
        if not alone:
            total, excess = sums(terms + constants)
            assign("score", total)
            assign("excess", excess)
        sign, every = 1 << (width - 1), (1 << width) - 1
        kind, key = "ternary", (f"excess[{width - 1}:0]", width)
        rows: tuple[Row[int], ...] = (Row(sign, sign, 0), Row(0, every, 0))  # negative, and 0
    else:
        if not alone:
            assign("score", combined(terms + constants))
        lines.append("decide.apply();")
        kind, key, rows = "exact", (f"margin[{width - 1}:{width - 1}]", 1), (Row(1, 1, 1),)  # negative
    if expressions:
        lines.append("if (score > tau) { drop = 1w1; } else { drop = 1w0; }")
    else:
        data, default = tuple((row, (row.label,)) for row in rows), (1 - rows[0].label,)
        operations.append(
            TextTable("verdict", "set_drop", kind, (key,), (1,), ("drop = value;",), ("value",), data, default)
        )
        lines.append("verdict.apply();")
    return lines, intermediate, operations


def _balanced(terms: list[str], inner: Callable[[str], str]) -> str:
    """Add terms in pairs: as few additions after another as possible; `inner` makes one term of two."""
    if len(terms) == 1:
        return terms[0]
    half = (len(terms) + 1) // 2
    sides = [
        _balanced(side, inner) if len(side) == 1 else inner(_balanced(side, inner))
        for side in (terms[:half], terms[half:])
    ]
    return " + ".join(sides)


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
        between = " .. " if table.kind == "range" else " &&& "
        fields.append(f"{w}w{first:#x}" + ("" if table.kind == "exact" else f"{between}{w}w{second:#x}"))
    return fields[0] if len(fields) == 1 else f"({', '.join(fields)})"


def split_row(table: TextTable, row: Row[Any]) -> tuple[list[int], list[int]]:
    """Return, for every field of the key, the value, or low end, and the mask, or high end, of a row."""
    parts: tuple[list[int], list[int]] = [], []
    left = sum(width for _, width in table.key)
    for _, width in table.key:
        left -= width
        for side, number in zip(parts, (row.first, row.second), strict=True):
            side.append(number >> left & ((1 << width) - 1))
    return parts


def key_name(field: str) -> str:
    """Return what the control plane calls a field of a key: a variable its name, ``c_queue_w0[5:3]`` c_queue_w0_5_3."""
    return re.sub(r"[\[:]", "_", field).rstrip("]")


def _command(table: TextTable, index: int) -> str:
    """Return a row as a line for simple_switch_CLI."""
    row, data = table.rows[index]
    match = f"{row.first:#x}{'->' if table.kind == 'range' else '&&&'}{row.second:#x}"
    values = " ".join(f"{value:#x}" for value in data)
    return f"table_add {table.name} {table.action} {match} => {values} {index + 1}\n"  # priority 1 goes first


def _update(number: int, table: TextTable, index: int) -> str:
    """Return a row as an update of P4Runtime in text form; `number` makes the ids of table and action."""
    row, data = table.rows[index]
    first, second = ("low", "high") if table.kind == "range" else ("value", "mask")
    matches = [
        f"match {{ field_id: {field} {table.kind} {{ {first}: {_bytes(low)} {second}: {_bytes(high)} }} }}"
        for field, (low, high) in enumerate(zip(*split_row(table, row), strict=True), 1)
        if high or table.kind == "range"  # P4Runtime leaves out what a row does not care for
    ]
    parameters = " ".join(f"params {{ param_id: {i} value: {_bytes(value)} }}" for i, value in enumerate(data, 1))
    action = f"action_id: {ACTION_PREFIX | number} {parameters}"
    priority = len(table.rows) - index  # the largest goes first
    return (
        f"updates {{ type: INSERT entity {{ table_entry {{ table_id: {TABLE_PREFIX | number} "
        f"{''.join(f'{match} ' for match in matches)}action {{ action {{ {action} }} }} priority: {priority} }} }} }}\n"
    )


def _bfrt(table: TextTable, index: int) -> dict[str, Any]:
    """Return a row for Tofino's runtime."""
    row, data = table.rows[index]
    key: dict[str, Any] = {}
    for (field, _), first, second in zip(table.key, *split_row(table, row), strict=True):
        key[key_name(field)] = {"value": first, "mask": second}
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


def _plain(text: str) -> str:
    """Return text for a comment; raise ForetailError on anything but letters, digits and ``_=,.+-``."""
    if not _PLAIN.fullmatch(text):
        raise ForetailError(f"{text!r} cannot be written into P4: use letters, digits and _=,.+- only")
    return text


@cache
def environment_of_p4() -> jinja2.Environment:
    """Return the templates of P4 texts."""
    return environment("foretail.export.p4", plain=_plain)
