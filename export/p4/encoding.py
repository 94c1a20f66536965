"""Encodings of an ensemble as tables: code words per feature, and what decides on them.

Every feature is first saturated one above the model's largest cut on it, which no comparison can see, where the
architecture compares. One table per feature then maps the value to code words, and the decision side turns code words
into votes:

- ``leaf_rows``: a bit of a code word says on which side of a cut the feature is, or whether it is between two cuts.
  One ternary row per box of equal votes and tree; the commonest vote of a tree has no rows, it is the default.
- ``product``: the same, for the sum of all trees in one table.
- ``groups``: the same, with one table for the sum of each of a few groups of trees. Then fewer votes are left to add, a
  step for every doubling.

Bits that two trees need are there once, and bits that no row cares for are not there at all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations
from typing import Literal

import numpy as np

from foretail.export.p4.profile import INPUT_BITS, V1MODEL, Architecture
from foretail.export.p4.rows import Intervals, Kind, Row, Rows
from foretail.models.ensemble.boxes import leaf_boxes
from foretail.models.ensemble.ensemble import Ensemble

Decision = Literal["leaf_rows", "product", "groups"]
DECISIONS: tuple[Decision, ...] = ("leaf_rows", "product", "groups")

MAX_GROUPED = 32
"""Trees that are grouped: every two are tried."""

WORD_BITS = 32
"""Width of a code word in a frame."""

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
    words: tuple[int, ...]  #: widths
    intervals: Intervals[Words]  #: the key's width, and the words on every interval


@dataclass(frozen=True)
class FeatureTable:
    """The table of one feature's code words: kind of the key and rows."""

    code: FeatureCode
    kind: Kind
    rows: Rows[Words]


@dataclass(frozen=True)
class KeySlice:
    """Bits ``high`` down to ``low`` of a code word."""

    feature: int
    word: int
    high: int
    low: int


@dataclass(frozen=True)
class VoteTable:
    """One part of the score."""

    key: tuple[KeySlice, ...]  #: most significant first; empty when the part is `default` everywhere
    rows: tuple[Row[int], ...]  #: ternary and disjoint; the label is the vote
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
        """True if votes are stored in two's complement."""
        return min((row.label for row in self.rows), default=0) < 0 or self.default < 0

    @property
    def vote_bits(self) -> int:
        """Width of the votes as action data."""
        votes = [self.default, *(row.label for row in self.rows)]
        return max(max(v.bit_length() if v >= 0 else (~v).bit_length() for v in votes) + self.signed, 1)


@dataclass(frozen=True)
class Encoding:
    """An ensemble as tables, before the kind of the feature tables is chosen."""

    architecture: Architecture
    decision: Decision
    codes: tuple[FeatureCode, ...]  #: of the features that matter
    votes: tuple[VoteTable, ...]  #: their sum is the score; one per tree or group, or a single one with ``product``
    #: whether it is one of two banks. Then every default is 0, for any model: a model's own default is a last row that
    #: matches everything; and both banks share the adders
    banked: bool = False

    @cached_property
    def keyed(self) -> list[int]:
        """The votes that are made by a table with a key."""
        return [i for i, votes in enumerate(self.votes) if votes.key]

    def accumulator(self, index: int) -> int | None:
        """Return which vote the table of vote `index` adds to; None when it sets a variable of its own."""
        keyed, count = self.keyed, self._accumulators
        place = keyed.index(index)
        return None if count is None or place < count else keyed[place % count]

    def vote_name(self, index: int) -> str:
        """Return the variable of a vote: ``v_`` and its number, or where each operation takes a stage a lone one's."""
        alone = len(self.terms) == 1 and bool(self.votes[index].key) and not self.architecture.expressions
        return "score" if alone else f"v_{index}"

    def table_name(self, index: int) -> str:
        """Return the name of the table of a vote."""
        return {"product": "product", "groups": f"group_{index}"}.get(self.decision, f"tree_{index}")

    def vote_step(self, index: int) -> int:
        """Return how many tables of votes come before that of vote `index`, one after the other."""
        return self.keyed.index(index) // (self._accumulators or len(self.keyed))

    @property
    def _accumulators(self) -> int | None:
        count = self.architecture.accumulators
        return count // 4 if count is not None and self.banked else count  # of either bank, with sums

    @cached_property
    def terms(self) -> list[int]:
        """The votes with variables of their own, constant ones last."""
        own = [i for i in self.keyed if self.accumulator(i) is None]
        return own + [i for i, votes in enumerate(self.votes) if not votes.key]

    @property
    def operands(self) -> int:
        """How many numbers the score is the sum of, all constant votes being one."""
        keyed = [bool(self.votes[i].key) for i in self.terms]
        return sum(keyed) + (not all(keyed))

    @property
    def early_tau(self) -> bool:
        """True if the table of the first vote takes tau off, so that the sum is compared as it is made.

        This takes a second sum beside the score, of the containers that one adder reaches: twice the operands less one
        for the score, one more than steps for the other, and one for tau.
        """
        count = self.operands
        containers = 2 * count + (count - 1).bit_length() + 1
        reached = 2 * (self.architecture.accumulators or 0) * (not self.banked)
        return containers <= reached and bool(self.votes[self.terms[0]].key)


@dataclass(frozen=True)
class Tables:
    """All that a text holds beside names and sizes: an encoding with its feature tables chosen."""

    encoding: Encoding
    features: tuple[FeatureTable, ...]  #: of the encoding's codes, in order
    score_bits: int


@dataclass(frozen=True)
class Frame:
    """The sizes of a program with room for models, see :mod:`foretail.export.p4.banks`."""

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


def groups(ensemble: Ensemble, word_bits: int, max_boxes: int, architecture: Architecture) -> Iterator[Encoding]:
    """Yield encodings of 2^k tables, fewer than trees, fewer each time; each table has at most `max_boxes` boxes.

    Groups grow by joining two at a time. From m groups to the next smaller power of two, those are joined whose common
    table has the fewest rows more than both of theirs, which ask about the same cuts. Two trees often have fewer rows
    together than apart.
    """

    @cache
    def part(group: tuple[int, ...]) -> Part | None:
        return sum_part(replace(ensemble, trees=tuple(ensemble.trees[i] for i in group)), max_boxes)

    current: list[tuple[int, ...]] = [(i,) for i in range(len(ensemble.trees))]  # indices of trees, increasing
    while 2 < len(current) <= MAX_GROUPED:
        added: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        for pair in combinations(current, 2):
            parts = [part(group) for group in (*pair, tuple(sorted(sum(pair, ()))))]
            if all(parts):
                alone, other, both = (len(one.boxes) for one in parts if one)
                added[pair] = both - alone - other
        wanted = 1 << (len(current) - 1).bit_length() - 1
        for first, second in sorted(added, key=lambda pair: (added[pair], pair)):
            if len(current) > wanted and first in current and second in current:
                current = [group for group in current if group not in (first, second)]
                current.append(tuple(sorted(first + second)))
        if len(current) > wanted:
            return
        current.sort()
        if architecture.accumulators is None or wanted <= architecture.accumulators:
            parts = [part(group) for group in current]
            yield columns_and_rows(ensemble, [p for p in parts if p], word_bits, "groups", architecture)


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
        votes.append(VoteTable(_slices(bits, word_bits), tuple(rows), part.default))
    codes = []
    for feature, columns in enumerate(places):
        if columns:
            count = len(columns)
            words = tuple(
                architecture.word_width(min(word_bits, count - start)) for start in range(0, count, word_bits)
            )
            of_bit = {bit: column for column, bit in columns.items()}
            codes.append(_code(feature, of_bit, words, word_bits, tops[feature], architecture))
    return Encoding(architecture, decision, tuple(codes), tuple(votes))


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
                for bound, holds, is_bounded in ((low, True, low > 0), (high + 1, False, high < top))
                if is_bounded
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
    words: tuple[int, ...],
    word_bits: int,
    top: int,
    architecture: Architecture,
) -> FeatureCode:
    """Return the code of a feature that sets every bit where its column says."""
    cuts = _cuts(columns.values(), top)
    changes: dict[int, int] = defaultdict(int)  # where the code changes, and the bits that do
    for bit, (low, high) in columns.items():
        changes[low] ^= 1 << bit
        changes[high + 1] ^= 1 << bit
    labels, code = [], 0
    for point in (0, *(cut + 1 for cut in cuts)):
        code ^= changes[point]
        labels.append(tuple(code >> word * word_bits & ((1 << width) - 1) for word, width in enumerate(words)))
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
