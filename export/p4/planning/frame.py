"""A program that takes any model up to a size, so that a running switch gets another model by entries alone.

Its tables, keys and widths come from the frame and not from a model: every feature has a table with code words of 32
bits, every tree one whose key is all code words. What a model does not need is a row that matches everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretail.core.errors import ForetailError
from foretail.export.p4.planning.architecture import INPUT_BITS
from foretail.export.p4.planning.cost import Plan, candidates_of
from foretail.export.p4.planning.encoding import (
    Encoding,
    FeatureCode,
    KeySlice,
    VoteTable,
    leaf_rows,
    score_bits,
)
from foretail.export.p4.planning.prefixes import Intervals, Row
from foretail.export.p4.planning.profile import Profile
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.tree import Tree

WORD_BITS = 32


@dataclass(frozen=True)
class Frame:
    """What a program with room for models has."""

    features: Mapping[str, str]  #: names of the inputs, in order, and the constants of their arithmetic
    trees: int  #: tables of trees
    words: int  #: code words of each feature, a bit for every cut that some tree asks about
    rows: int  #: of every table

    def described(self) -> str:
        """Return the sizes, for a sentence."""
        return (
            f"{self.trees} trees, {self.rows} rows a table and {self.words * WORD_BITS} bits a feature over "
            f"{', '.join(self.features)}"
        )


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
        encoding = _in_frame(leaf_rows(ensemble, WORD_BITS), ensemble, frame)
        (chosen,) = candidates_of(encoding, profile, "ternary", score, [f.name for f in ensemble.features])
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


def _in_frame(encoding: Encoding, ensemble: Ensemble, frame: Frame) -> Encoding:
    """Spread an encoding over all tables and whole code words of a frame."""
    words = max([frame.words, *(len(code.words) for code in encoding.codes)])
    widths = tuple((word, WORD_BITS) for word in range(words))
    last = (1 << INPUT_BITS) - 1
    by_feature = {code.feature: code for code in encoding.codes}
    codes = []
    for feature in range(len(ensemble.features)):
        uppers, labels = [last], [(0,) * words]
        if code := by_feature.get(feature):
            uppers = [min(upper, last) for upper in (*code.intervals.uppers[:-1], last)]
            labels = [(*label, *(0,) * (words - len(label))) for label in code.intervals.labels]
        codes.append(FeatureCode(feature, last, widths, Intervals.of(INPUT_BITS, uppers, labels)))
    key = tuple(KeySlice(code.feature, word, WORD_BITS - 1, 0) for code in codes for word in range(words - 1, -1, -1))
    place = {(part.feature, part.word): WORD_BITS * (len(key) - 1 - position) for position, part in enumerate(key)}
    votes = [_whole_key(table, key, place) for table in encoding.votes]
    nothing = VoteTable(key, "ternary", (Row(0, 0, 0),), 0)
    return Encoding("leaf_rows", tuple(codes), (*votes, *[nothing] * (frame.trees - len(votes))), banked=True)


def _whole_key(table: VoteTable, key: tuple[KeySlice, ...], place: Mapping[tuple[int | None, int], int]) -> VoteTable:
    """Return a tree's table with rows over whole code words; its default becomes the last row."""
    bits: list[int] = []  # where each bit of the narrow key lies in the whole one, most significant first
    for part in table.key:
        bits += [place[part.feature, part.word] + bit for bit in range(part.high, part.low - 1, -1)]

    def spread(number: int) -> int:
        return sum(1 << to for bit, to in enumerate(reversed(bits)) if number >> bit & 1)

    rows: Sequence[Row[int]] = [Row(spread(row.first), spread(row.second), row.label) for row in table.rows]
    return VoteTable(key, "ternary", (*rows, Row(0, 0, table.default)), 0)
