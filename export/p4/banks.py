"""A program that takes any model up to a size, in two banks, so that a running switch gets another model by entries.

Its tables, keys and widths come from the frame and not from a model: every feature has a table with code words of 32
bits, every tree one whose key is all code words. A row that matches everything stands for what a model does not need.
Two controls of one frame are in the program, and one around them that chooses by a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from foretail.core.errors import ForetailError
from foretail.export.p4.encoding import (
    WORD_BITS,
    Encoding,
    FeatureCode,
    Frame,
    KeySlice,
    Tables,
    VoteTable,
    leaf_rows,
    score_bits,
)
from foretail.export.p4.planning import Plan, candidates_of
from foretail.export.p4.profile import INPUT_BITS, Architecture, Profile
from foretail.export.p4.rows import Intervals, Row
from foretail.export.p4.text import (
    ACTION_PREFIX,
    CONTROL,
    TABLE_PREFIX,
    check_control,
    code_words,
    environment_of_p4,
    first_id,
    render_main,
    render_p4,
)
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.tree import Tree

COUNTER_PREFIX = 0x12000000  # P4Runtime 1.3, section 6.3


def over(ensemble: Ensemble, frame: Frame) -> Ensemble:
    """Return the same decisions over the features of a frame; ForetailError when it lacks one, or computes it else."""
    own = {feature.name: feature for feature in ensemble.features}
    for name, feature in own.items():
        if name not in frame.features:
            raise ForetailError(
                f"the switch's program has no feature {name}, it has {', '.join(frame.features)}: train on those, or "
                f"put a program for this model onto the switch (program=true)"
            )
        if feature.params != frame.features[name]:
            raise ForetailError(
                f"the switch computes {name} with {frame.features[name] or 'no constants'}, the model needs "
                f"{feature.params or 'none'}: train for the switch's, or put another program onto it (program=true)"
            )
    names = list(frame.features)
    features = [own.get(name, FeatureInput(name, params, INPUT_BITS)) for name, params in frame.features.items()]
    place = np.array([names.index(feature.name) for feature in ensemble.features] or [0], np.int32)

    def moved(tree: Tree) -> Tree:
        leaf = tree.feature < 0
        return replace(tree, feature=np.where(leaf, tree.feature, place[np.where(leaf, 0, tree.feature)]))

    return replace(ensemble, features=tuple(features), trees=tuple(map(moved, ensemble.trees)))


def plan_in(ensemble: Ensemble, frame: Frame, profile: Profile) -> Plan:
    """Return a model's rows in the tables of a frame, with votes; ForetailError when there is no room.

    The ensemble's features are those of the frame, see :func:`over`.
    """
    faults = []
    if len(ensemble.trees) > frame.trees:
        faults.append(f"{len(ensemble.trees)} trees")
    width = score_bits(ensemble, profile.architecture)
    score = profile.architecture.integer_bits[-1]
    if width > score:
        faults.append(f"a score of {width} bits, where {score} are (any_tau=false makes it narrower)")
    if not faults:
        encoding = _in_frame(leaf_rows(ensemble, WORD_BITS), ensemble, frame, profile.architecture)
        (chosen,) = candidates_of(encoding, profile, ("ternary",), score, [f.name for f in ensemble.features])
        for code in encoding.codes:
            if len(code.words) > frame.words:
                faults.append(f"{len(code.words) * WORD_BITS} bits of {ensemble.features[code.feature].name}")
        for table in chosen.tables:
            if table.rows > frame.rows:
                faults.append(f"{table.rows} rows in {table.name}")
    if faults:
        raise ForetailError(
            f"the model needs {', '.join(faults)}, and the program of the switch has room for {frame.described()}: "
            f"train a smaller one, or put a larger program onto it (banks and program=true)"
        )
    return Plan(chosen, (chosen,), f"a program with room for {frame.described()}", profile, score)


def _in_frame(encoding: Encoding, ensemble: Ensemble, frame: Frame, architecture: Architecture) -> Encoding:
    """Spread an encoding over all tables and whole code words of a frame."""
    words = max([frame.words, *(len(code.words) for code in encoding.codes)])
    last = (1 << INPUT_BITS) - 1
    by_feature = {code.feature: code for code in encoding.codes}
    codes = []
    for feature in range(len(ensemble.features)):
        uppers, labels = [last], [(0,) * words]
        if code := by_feature.get(feature):
            uppers = [min(upper, last) for upper in (*code.intervals.uppers[:-1], last)]
            labels = [(*label, *(0,) * (words - len(label))) for label in code.intervals.labels]
        codes.append(FeatureCode(feature, last, (WORD_BITS,) * words, Intervals.of(INPUT_BITS, uppers, labels)))
    key = tuple(KeySlice(code.feature, word, WORD_BITS - 1, 0) for code in codes for word in range(words - 1, -1, -1))
    place = {(part.feature, part.word): WORD_BITS * (len(key) - 1 - position) for position, part in enumerate(key)}
    votes = [_whole_key(table, key, place) for table in encoding.votes]
    nothing = VoteTable(key, (Row(0, 0, 0),), 0)
    votes += [nothing] * (frame.trees - len(votes))
    return Encoding(architecture, "leaf_rows", tuple(codes), tuple(votes), banked=True)


def _whole_key(table: VoteTable, key: tuple[KeySlice, ...], place: Mapping[tuple[int, int], int]) -> VoteTable:
    """Return a tree's table with rows over whole code words; its default becomes the last row."""
    bits: list[int] = []  # where each bit of the narrow key lies in the whole one, most significant first
    for part in table.key:
        bits += [place[part.feature, part.word] + bit for bit in range(part.high, part.low - 1, -1)]

    def spread(number: int) -> int:
        return sum(1 << to for bit, to in enumerate(reversed(bits)) if number >> bit & 1)

    rows: Sequence[Row[int]] = [Row(spread(row.first), spread(row.second), row.label) for row in table.rows]
    return VoteTable(key, (*rows, Row(0, 0, table.default)), 0)


def bank_controls(control: str = CONTROL) -> tuple[str, str]:
    """Return the names of the controls of both banks."""
    return f"{control}A", f"{control}B"


def render_banks(
    ensemble: Ensemble, tables: Tables, frame: Frame, name: str, control: str = CONTROL
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the first bank's files, with a model's entries, and those of the program around both, name -> text.

    The first are those of :func:`render_p4` for control ``<control>A``; then come ``<name>_b.p4``, the other bank;
    ``<name>_banks.p4``, the control that takes the place of a single predictor; and ``<name>_main.p4``, a program.
    """
    check_control(control)
    first, second = bank_controls(control)
    arch = tables.encoding.architecture.name
    own = render_p4(ensemble, tables, name, True, first, frame)
    other = render_p4(ensemble, tables, f"{name}_b", True, second, frame)[f"{name}_b.p4"]
    number = first_id(f"{control} banks")
    values = {
        "arch": arch,
        "features": ensemble.features,
        "name": name,
        "control": control,
        "banks": (first, second),
        "width": tables.score_bits,
        "table_id": f"{TABLE_PREFIX | number:#010x}",
        "action_id": f"{ACTION_PREFIX | number:#010x}",
        "counter_id": f"{COUNTER_PREFIX | number:#010x}",
    }
    words = [f"{bank}_{word}" for bank in ("bank_a", "bank_b") for word in code_words(ensemble, tables)]
    around = {
        f"{name}_b.p4": other,
        f"{name}_banks.p4": environment_of_p4().get_template("banks.p4.j2").render(values),
        f"{name}_main.p4": render_main(ensemble.features, name, arch, tables.score_bits, control, words, banked=True),
    }
    return own, around
