"""Encodings of an ensemble as tables: code words per feature, and what decides on them.

Every feature is first saturated one above the model's largest cut on it, which no comparison can see, where the
architecture compares. One table per feature then maps the value to code words, and the decision side turns code words
into votes:

- ``leaf_rows``: a bit of a code word says on which side of a cut the feature is, or whether it is between two cuts.
  One ternary row per box of equal votes and tree; the commonest vote of a tree has no rows, it is the default.
- ``product``: the same, for the sum of all trees in one table.
- ``groups``: the same, with one table for the sum of each of a few groups of trees (:mod:`.grouping`).
- ``bitvector``: one bit per box; the AND of the features' masks leaves the box that holds the input, if any.

Bits that two trees need are there once, and bits that no row cares for are not there at all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from foretail.export.p4.planning.architecture import INPUT_BITS, V1MODEL, Architecture
from foretail.export.p4.planning.prefixes import Intervals, Row
from foretail.models.ensemble.boxes import leaf_boxes
from foretail.models.ensemble.ensemble import Ensemble

Decision = Literal["leaf_rows", "product", "groups", "bitvector"]
DECISIONS: tuple[Decision, ...] = ("leaf_rows", "product", "groups", "bitvector")

Words = tuple[int, ...]
Bounds = tuple[tuple[int, int], ...]
"""A box: inclusive (low, high) of every feature."""

Column = tuple[int, int]
"""A bit of a code word: 1 iff the feature is in this inclusive interval."""


@dataclass(frozen=True)
class FeatureCode:
    """The code words of one feature."""

    feature: int  #: index in the ensemble
    saturation: int  #: the value that larger ones are replaced with; the largest input where nothing is replaced
    words: tuple[tuple[int, int], ...]  #: number and width of every word
    intervals: Intervals[Words]  #: the key's width, and the words on every interval


@dataclass(frozen=True)
class KeySlice:
    """Bits ``high`` down to ``low`` of a code word: of a feature, or with None of the AND of all features' words."""

    feature: int | None
    word: int
    high: int
    low: int


@dataclass(frozen=True)
class VoteTable:
    """One part of the score."""

    key: tuple[KeySlice, ...]  #: most significant first; empty when the part is `default` everywhere
    kind: Literal["ternary", "exact"]
    rows: tuple[Row[int], ...]  #: disjoint; the label is the vote
    default: int

    @property
    def key_bits(self) -> int:
        """Width of the key."""
        return sum(part.high - part.low + 1 for part in self.key)

    @property
    def key_bytes(self) -> int:
        """Bytes of code words that the key has bits of."""
        return len({(part.feature, part.word, bit // 8) for part in self.key for bit in range(part.low, part.high + 1)})

    @property
    def signed(self) -> bool:
        """Whether votes are stored in two's complement."""
        return min((row.label for row in self.rows), default=0) < 0 or self.default < 0

    @property
    def vote_bits(self) -> int:
        """Width of the votes as action data."""
        votes = [self.default, *(row.label for row in self.rows)]
        return max(max(v.bit_length() if v >= 0 else (~v).bit_length() for v in votes) + self.signed, 1)


@dataclass(frozen=True)
class Encoding:
    """An ensemble as tables, before the kind of the feature tables is chosen."""

    decision: Decision
    codes: tuple[FeatureCode, ...]  #: of the features that matter
    votes: tuple[VoteTable, ...]  #: their sum is the score; one per tree or group, or a single one with ``product``
    #: with ``bitvector``, number and width of the words that are the AND of all features'
    masks: tuple[tuple[int, int], ...] = ()
    #: whether it is one of two banks. Then every default is 0, for any model: what a default of its own would say is a
    #: last row that matches everything; and both banks share the adders
    banked: bool = False

    def accumulator(self, index: int, architecture: Architecture) -> int | None:
        """Return which vote the table of vote `index` adds to; None when it sets a variable of its own."""
        keyed = [i for i, votes in enumerate(self.votes) if votes.key]
        count = self._accumulators(architecture)
        place = keyed.index(index)
        return None if count is None or place < count else keyed[place % count]

    def vote_name(self, index: int, architecture: Architecture) -> str:
        """Return the variable of a vote: ``v_`` and its number, or where each operation takes a stage a lone one's."""
        alone = len(self.terms(architecture)) == 1 and bool(self.votes[index].key) and not architecture.expressions
        return "score" if alone else f"v_{index}"

    def table_name(self, index: int) -> str:
        """Return the name of the table of a vote."""
        return {"product": "product", "groups": f"group_{index}"}.get(self.decision, f"tree_{index}")

    def vote_step(self, index: int, architecture: Architecture) -> int:
        """Return how many tables of votes come before that of vote `index`, one after the other."""
        keyed = [i for i, votes in enumerate(self.votes) if votes.key]
        return keyed.index(index) // (self._accumulators(architecture) or len(keyed))

    def _accumulators(self, architecture: Architecture) -> int | None:
        count = architecture.accumulators
        return count // 4 if count is not None and self.banked else count  # of either bank, with sums

    def terms(self, architecture: Architecture) -> list[int]:
        """Return the votes with variables of their own, constant ones last."""
        own = [i for i, votes in enumerate(self.votes) if votes.key and self.accumulator(i, architecture) is None]
        return own + [i for i, votes in enumerate(self.votes) if not votes.key]

    def operands(self, architecture: Architecture) -> int:
        """Return how many numbers the score is the sum of, all constant votes being one."""
        keyed = [bool(self.votes[i].key) for i in self.terms(architecture)]
        return sum(keyed) + (not all(keyed))

    def early_tau(self, architecture: Architecture) -> bool:
        """Return whether the table of the first vote takes tau off, so that the sum is compared as it is made.

        This takes a second sum beside the score, of the containers that one adder reaches: twice the operands less one
        for the score, one more than steps for the other, and one for tau.
        """
        count = self.operands(architecture)
        containers = 2 * count + (count - 1).bit_length() + 1
        reached = 0 if architecture.accumulators is None or self.banked else 2 * architecture.accumulators
        return containers <= reached and bool(self.votes[self.terms(architecture)[0]].key)


@dataclass(frozen=True)
class Part:
    """Boxes of one part of the score that do not have its default vote."""

    boxes: tuple[Bounds, ...]
    votes: tuple[int, ...]
    default: int


def score_bits(ensemble: Ensemble, architecture: Architecture = V1MODEL) -> int:
    """Return the narrowest integer that holds tau and every sum of some trees' votes, also less one or two.

    Where no comparison follows the sum, two keep a tau that is far below all sums from being mistaken for one above.
    """
    votes = [tree.require_votes()[tree.leaves] for tree in ensemble.trees]
    high = sum(max(0, int(v.max())) for v in votes)
    low = sum(min(0, int(v.min())) for v in votes) - (1 if architecture.expressions else 2)
    _, tau = ensemble.require_votes()
    low, high = min(low, tau), max(high, tau)
    return architecture.width(max((~low).bit_length(), high.bit_length()) + 1)


def leaf_rows(ensemble: Ensemble, word_bits: int, architecture: Architecture = V1MODEL) -> Encoding:
    """Return the encoding with one table per tree."""
    return columns_and_rows(ensemble, _tree_parts(ensemble), word_bits, "leaf_rows", architecture)


def product(
    ensemble: Ensemble, word_bits: int, max_boxes: int, architecture: Architecture = V1MODEL
) -> Encoding | None:
    """Return the encoding with one table for the sum of all trees; None when it takes too many boxes or steps."""
    part = sum_part(ensemble, max_boxes)
    return None if part is None else columns_and_rows(ensemble, [part], word_bits, "product", architecture)


def bitvectors(ensemble: Ensemble, word_bits: int, architecture: Architecture = V1MODEL) -> tuple[Encoding, Encoding]:
    """Return the encodings with one bit per box, whose tables decode the surviving bit by exact and by ternary keys."""
    parts = _tree_parts(ensemble)
    columns: dict[int, dict[int, Column]] = defaultdict(dict)  # feature -> bit -> where it is set
    votes, start = [], 0
    tops = _tops(ensemble)
    for part in parts:
        for bit, box in enumerate(part.boxes, start):
            for feature, (low, high) in enumerate(box):
                if (low, high) != (0, tops[feature]):
                    columns[feature][bit] = (low, high)
        count = len(part.boxes)
        key = tuple(
            KeySlice(
                None, word, min(start + count - 1 - word * word_bits, word_bits - 1), max(start - word * word_bits, 0)
            )
            for word in range((start + count - 1) // word_bits, start // word_bits - 1, -1)
        )
        rows = tuple(Row(1 << i, (1 << count) - 1, vote) for i, vote in enumerate(part.votes))
        votes.append(VoteTable(key if count else (), "exact", rows, part.default))
        start += count
    masks = tuple(
        (word, architecture.word_width(min(word_bits, start - word * word_bits)))
        for word in range(-(-start // word_bits))
    )
    codes = []
    for feature in sorted(columns):
        used = {bit // word_bits for bit in columns[feature]}
        words = tuple((word, width) for word, width in masks if word in used)
        others = sum(1 << bit for bit in range(start) if bit not in columns[feature])  # this feature leaves them set
        codes.append(_code(feature, columns[feature], others, words, word_bits, tops[feature], architecture))
    exact = Encoding("bitvector", tuple(codes), tuple(votes), masks)
    one_bit = (
        replace(table, kind="ternary", rows=tuple(Row(row.first, row.first, row.label) for row in table.rows))
        for table in votes
    )
    return exact, replace(exact, votes=tuple(one_bit))


def columns_and_rows(
    ensemble: Ensemble, parts: Sequence[Part], word_bits: int, decision: Decision, architecture: Architecture
) -> Encoding:
    """Return the encoding with one table for each part of the score."""
    tops = _tops(ensemble)
    places: list[dict[Column, int]] = []  # per feature, the bit of every column
    literals: list[dict[Column, tuple[tuple[Column, bool], ...]]] = []
    for feature in range(len(tops)):
        # Neighbouring bits where possible for what one tree asks: its key is then made of few slices.
        sides = list(dict.fromkeys(box[feature] for part in parts for box in part.boxes))
        chosen = _literals(sides, tops[feature])
        literals.append(chosen)
        used = dict.fromkeys(column for side in sides for column, _ in chosen[side])
        places.append({column: place for place, column in enumerate(used)})
    votes = []
    for part in parts:
        wanted = [
            [(feature, *literal) for feature, side in enumerate(box) for literal in literals[feature][side]]
            for box in part.boxes
        ]
        bits = sorted(
            {(feature, places[feature][column]) for row in wanted for feature, column, _ in row}, reverse=True
        )
        place = {bit: len(bits) - 1 - i for i, bit in enumerate(bits)}
        rows = []
        for row, vote in zip(wanted, part.votes, strict=True):
            value = mask = 0
            for feature, column, holds in row:
                bit = 1 << place[feature, places[feature][column]]
                mask |= bit
                value |= bit if holds else 0
            rows.append(Row(value, mask, vote))
        votes.append(VoteTable(_slices(bits, word_bits), "ternary", tuple(rows), part.default))
    codes = []
    for feature, columns in enumerate(places):
        if columns:
            count = len(columns)
            words = tuple(
                (w, architecture.word_width(min(word_bits, count - w * word_bits)))
                for w in range(-(-count // word_bits))
            )
            of_bit = {bit: column for column, bit in columns.items()}
            codes.append(_code(feature, of_bit, 0, words, word_bits, tops[feature], architecture))
    return Encoding(decision, tuple(codes), tuple(votes))


def _literals(sides: Sequence[Column], top: int) -> dict[Column, tuple[tuple[Column, bool], ...]]:
    """Choose, for every interval that a box asks of a feature, the columns to test.

    "x >= low" and "x <= high" are one bit each, which other boxes may ask as well; an interval with both bounds is
    either those two bits or a bit of its own, when that makes fewer.
    """
    above = {low for low, high in sides if low > 0 and high == top} | {
        high + 1 for low, high in sides if low == 0 and high < top
    }
    chosen: dict[Column, tuple[tuple[Column, bool], ...]] = {}
    between = [(low, high) for low, high in sides if low > 0 and high < top]
    # Bounds that many intervals share come first, so that a bit of one's own is left to the lonely ones.
    shared = Counter(bound for low, high in between for bound in (low, high + 1))
    for low, high in sorted(between, key=lambda side: (-min(shared[side[0]], shared[side[1] + 1]), side)):
        missing = {low, high + 1} - above
        if len(missing) <= 1 or min(shared[bound] for bound in missing) > 1:
            above |= missing
        else:
            chosen[low, high] = (((low, high), True),)
    for low, high in sides:
        if (low, high) not in chosen:
            chosen[low, high] = tuple(
                ((bound, top), holds)
                for bound, holds, asked in ((low, True, low > 0), (high + 1, False, high < top))
                if asked
            )
    return chosen


def _slices(bits: Sequence[tuple[int, int]], word_bits: int) -> tuple[KeySlice, ...]:
    """Join (feature, bit) pairs, in decreasing order, to slices of code words."""
    slices: list[KeySlice] = []
    for feature, bit in bits:
        word, place = divmod(bit, word_bits)
        last = slices[-1] if slices else None
        if last is not None and (last.feature, last.word, last.low) == (feature, word, place + 1):
            slices[-1] = KeySlice(feature, word, last.high, place)
        else:
            slices.append(KeySlice(feature, word, place, place))
    return tuple(slices)


def _code(
    feature: int,
    columns: Mapping[int, Column],
    others: int,
    words: tuple[tuple[int, int], ...],
    word_bits: int,
    top: int,
    architecture: Architecture,
) -> FeatureCode:
    """Return the code of a feature that sets every bit where its column says, beside `others`, which are always set."""
    cuts = _cuts(columns.values(), top)
    changes: dict[int, int] = defaultdict(int)  # where the code changes, and the bits that do
    for bit, (low, high) in columns.items():
        changes[low] ^= 1 << bit
        changes[high + 1] ^= 1 << bit
    labels, code = [], others
    for point in (0, *(cut + 1 for cut in cuts)):
        code ^= changes[point]
        labels.append(tuple(code >> word * word_bits & ((1 << width) - 1) for word, width in words))
    saturation = cuts[-1] + 1 if architecture.saturates else (1 << INPUT_BITS) - 1
    bits = saturation.bit_length()
    return FeatureCode(feature, saturation, words, Intervals.of(bits, (*cuts, (1 << bits) - 1), labels))


def _cuts(columns: Iterable[Column], top: int) -> list[int]:
    """Return b, increasing, such that some column changes between b and b + 1."""
    columns = list(columns)
    return sorted({low - 1 for low, _ in columns if low > 0} | {high for _, high in columns if high < top})


def _tops(ensemble: Ensemble) -> list[int]:
    return [(1 << feature.bits) - 1 for feature in ensemble.features]


def _tree_parts(ensemble: Ensemble) -> list[Part]:
    parts = []
    for tree in ensemble.trees:
        leaves = leaf_boxes(tree, ensemble.features)
        bounds = np.stack([leaves.low, leaves.high], axis=2).tolist()
        parts.append(_part([tuple((low, high) for low, high in box) for box in bounds], leaves.votes.tolist()))
    return parts


def _part(boxes: Sequence[Bounds], votes: Sequence[int]) -> Part:
    """Merge neighbouring boxes of one vote, and leave out those of the vote that has most."""
    by_vote: dict[int, list[Bounds]] = defaultdict(list)
    for box, vote in zip(boxes, votes, strict=True):
        by_vote[vote].append(box)
    merged = {vote: _merge(of_vote) for vote, of_vote in by_vote.items()}
    default = min(merged, key=lambda vote: (-len(merged[vote]), abs(vote), vote))
    rows = [(box, vote) for vote in sorted(merged) if vote != default for box in merged[vote]]
    return Part(tuple(box for box, _ in rows), tuple(vote for _, vote in rows), default)


def _merge(boxes: list[Bounds]) -> list[Bounds]:
    """Join boxes that touch in one feature and agree in the others, until there are none."""
    again = True
    while again:
        again = False
        for feature in range(len(boxes[0])):
            beside: dict[tuple[Bounds, Bounds], list[tuple[int, int]]] = defaultdict(list)
            for box in boxes:
                beside[box[:feature], box[feature + 1 :]].append(box[feature])
            joined: list[Bounds] = []
            for (before, after), sides in beside.items():
                sides.sort()
                run = sides[0]
                for side in sides[1:]:
                    if side[0] == run[1] + 1:
                        run = (run[0], side[1])
                        again = True
                    else:
                        joined.append((*before, run, *after))
                        run = side
                joined.append((*before, run, *after))
            boxes = joined
    return boxes


_MAX_STEPS = 500
"""Tests on one way through all trees; Python's own recursion ends at 1000."""

_SumNode = int | tuple[int, int, "_SumNode", "_SumNode"]


def sum_part(ensemble: Ensemble, max_boxes: int) -> Part | None:
    """Return the sum of all trees as one tree's boxes, equal subtrees merged; None above `max_boxes` leaves."""
    if sum(tree.depth + 1 for tree in ensemble.trees) > _MAX_STEPS:
        return None
    left_boxes = max_boxes

    def walk(index: int, node: int, box: Bounds, total: int) -> _SumNode | None:
        nonlocal left_boxes
        if index == len(ensemble.trees):
            left_boxes -= 1
            return total if left_boxes >= 0 else None
        tree = ensemble.trees[index]
        feature = int(tree.feature[node])
        if feature < 0:
            return walk(index + 1, 0, box, total + int(tree.require_votes()[node]))
        cut, (low, high) = int(tree.cut[node]), box[feature]
        if cut >= high:
            return walk(index, int(tree.left[node]), box, total)
        if cut < low:
            return walk(index, int(tree.right[node]), box, total)
        below = walk(index, int(tree.left[node]), (*box[:feature], (low, cut), *box[feature + 1 :]), total)
        if below is None:
            return None
        above = walk(index, int(tree.right[node]), (*box[:feature], (cut + 1, high), *box[feature + 1 :]), total)
        if above is None:
            return None
        return below if below == above else (feature, cut, below, above)

    everything: Bounds = tuple((0, top) for top in _tops(ensemble))
    root = walk(0, 0, everything, 0)
    if root is None:
        return None
    boxes: list[Bounds] = []
    votes: list[int] = []

    def list_boxes(node: _SumNode, box: Bounds) -> None:
        if isinstance(node, int):
            boxes.append(box)
            votes.append(node)
            return
        feature, cut, below, above = node
        low, high = box[feature]
        list_boxes(below, (*box[:feature], (low, cut), *box[feature + 1 :]))
        list_boxes(above, (*box[:feature], (cut + 1, high), *box[feature + 1 :]))

    list_boxes(root, everything)
    return _part(boxes, votes)
