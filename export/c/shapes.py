"""The two forms in which the C target writes a tree ensemble, nested comparisons and bitvectors, and the hot box.

*Trees* are nested comparisons, one macro per tree, from which the generated header makes nested ``if`` statements and
vector code with a row per lane. *Bitvectors* (the QuickScorer idea: Lucchese et al., SIGIR 2015) have a bit per leaf:
every input selects, by its interval among the cuts, the leaves that it does not rule out, and the AND over all inputs
leaves one bit per tree. The *hot box* are inputs that most training rows are in, and on which every tree is constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.models.ensemble.boxes import Boxes, leaf_boxes
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.tree import Tree, cuts_of

IntArray = npt.NDArray[np.int64]

WORD = 64
MAX_WORDS = 1 << 20
"""Words of all mask tables, 8 MiB; above, trees are the better form anyway."""

MAX_LANE_LEAVES = 1 << 15
"""Leaves of a tree are numbered in signed 16-bit lanes."""


@dataclass(frozen=True, eq=False)
class Trees:
    """Nested comparisons, one per tree of the ensemble."""

    trees: tuple[Tree, ...]  #: with votes

    @classmethod
    def of(cls, ensemble: Ensemble) -> Trees:
        """Return the trees of an ensemble with votes."""
        return cls(ensemble.trees)

    @property
    def boundaries(self) -> dict[int, set[int]]:
        """Input index -> its cuts."""
        return {index: set(cuts) for index, cuts in cuts_of(self.trees).items()}

    @property
    def leaves(self) -> int:
        """Leaves of the largest tree."""
        return max(len(tree.leaves) for tree in self.trees)

    @property
    def votes(self) -> list[int]:
        """All leaf votes."""
        return [vote for tree in self.trees for vote in tree.require_votes()[tree.leaves].tolist()]

    @property
    def largest_sum(self) -> int:
        """No score is larger, whatever its sign."""
        return sum(int(np.abs(tree.require_votes()).max()) for tree in self.trees)

    def boxes(self, features: Sequence[FeatureInput]) -> tuple[Boxes, ...]:
        """Return the boxes of every tree's leaves that some input reaches."""
        return tuple(leaf_boxes(tree, features) for tree in self.trees)


@dataclass(frozen=True)
class Bitvectors:
    """Mask tables.

    A word holds one tree per field; with ``span`` > 1 a tree has so many words of its own and one field.
    """

    features: tuple[int, ...]  #: inputs that have a table
    cuts: tuple[tuple[int, ...], ...]  #: per table, increasing; interval i holds the values with i cuts below them
    #: tuple of uint64[intervals, words], per table, the leaves that an interval leaves possible
    masks: tuple[npt.NDArray[np.uint64], ...]
    votes: IntArray  #: int64[words, 64], of the leaf of every bit
    fields: tuple[int, ...]  #: bits of a word that belong to its first, second, ... tree
    spans: tuple[int, ...]  #: words of every tree; 1 for every word of several trees

    @classmethod
    def of(cls, ensemble: Ensemble) -> Bitvectors:
        """Return the mask tables of an ensemble with votes; ForetailError above 8 MiB of them."""
        parts = [leaf_boxes(tree, ensemble.features) for tree in ensemble.trees]
        sizes = [len(part.votes) for part in parts]
        spans: tuple[int, ...] = (1,)
        if sum(sizes) <= WORD:
            starts = np.cumsum([0, *sizes])
            fields = tuple(_ones(size) << int(start) for size, start in zip(sizes, starts, strict=False))
            places = [int(start) for start in starts[:-1]]
        else:
            per_word = max(1, WORD // max(sizes))
            width = WORD // per_word
            fields = tuple(_ones(width) << (width * field) for field in range(per_word))
            if per_word == 1:
                spans = tuple(-(-size // WORD) for size in sizes)
                places = [WORD * int(word) for word in np.cumsum([0, *spans[:-1]])]
            else:
                spans = (1,) * -(-len(parts) // per_word)
                places = [WORD * (tree // per_word) + width * (tree % per_word) for tree in range(len(parts))]
        words = sum(spans)
        tested = cuts_of(ensemble.trees) or {0: []}
        features = tuple(tested)
        if words * sum(len(cuts) + 1 for cuts in tested.values()) > MAX_WORDS:
            raise ForetailError(
                f"{len(parts)} trees are too many for mask tables of {8 * MAX_WORDS >> 20} MiB: choose shape=branches"
            )
        # The last word may have fields of no tree: their first bit, without a vote, is always set.
        spare = []
        if words > 1 and len(fields) > 1:
            ends = [WORD * (words - 1) + field * (WORD // len(fields)) for field in range(len(fields))]
            spare = [bit for bit in ends if bit > max(places)]
        votes = np.zeros(words * WORD, np.int64)
        for place, part in zip(places, parts, strict=True):
            votes[place : place + len(part.votes)] = part.votes
        masks = []
        for feature in features:
            bits = np.zeros((len(tested[feature]) + 1, words * WORD), np.bool_)
            bits[:, spare] = True
            first = np.array([0, *(cut + 1 for cut in tested[feature])])[:, np.newaxis]
            for place, part in zip(places, parts, strict=True):
                inside = (part.low[:, feature] <= first) & (first <= part.high[:, feature])
                bits[:, place : place + len(part.votes)] = inside
            masks.append(np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64))
        cuts = tuple(tuple(tested[index]) for index in features)
        return cls(features, cuts, tuple(masks), votes.reshape(words, WORD), fields, spans)

    @property
    def boundaries(self) -> dict[int, set[int]]:
        """Input index -> its cuts."""
        return {feature: set(cuts) for feature, cuts in zip(self.features, self.cuts, strict=True)}

    def boxes(self, features: Sequence[FeatureInput]) -> tuple[Boxes, ...]:
        """Return the boxes of every field's bits; ForetailError when a bit's intervals are not neighbours."""
        bits = self.votes.size
        low, high = np.zeros((bits, len(features)), np.int64), np.empty((bits, len(features)), np.int64)
        high[:] = [(1 << feature.bits) - 1 for feature in features]
        alive = np.ones(bits, np.bool_)
        for feature, cuts, masks in zip(self.features, self.cuts, self.masks, strict=True):
            packed = np.ascontiguousarray(masks.astype("<u8")).view(np.uint8)
            inside = np.unpackbits(packed, axis=1, bitorder="little").astype(np.bool_)
            first, count = inside.argmax(axis=0), inside.sum(axis=0)
            last = len(cuts) - inside[::-1].argmax(axis=0)
            alive &= count > 0
            if np.any((count > 0) & (last - first + 1 != count)):
                bit = int(np.argmax((count > 0) & (last - first + 1 != count)))
                raise ForetailError(f"leaf bit {bit} is set in intervals of x[{feature}] that are not neighbours")
            lows, highs = np.array([0, *(c + 1 for c in cuts)]), np.array([*cuts, high[0, feature]])
            low[:, feature] = np.maximum(low[:, feature], lows[first])
            high[:, feature] = np.minimum(high[:, feature], highs[last])
        alive &= np.all(low <= high, axis=1)
        votes, place = self.votes.reshape(-1), np.arange(bits) % WORD
        group_of = np.repeat(np.arange(len(self.spans)), np.array(self.spans) * WORD)
        if np.any(votes[~alive]):
            raise ForetailError("a bit that is never set has a vote")
        parts = []
        for group in range(len(self.spans)):
            for field in self.fields:
                in_field = np.array([bool(field >> bit & 1) for bit in range(WORD)])
                chosen = alive & (group_of == group) & in_field[place]
                parts.append(Boxes(low[chosen], high[chosen], votes[chosen]))
        return tuple(parts)


@dataclass(frozen=True, eq=False)
class HotBox:
    """A box of inputs and the score of all of them."""

    low: IntArray  #: int64[inputs], inclusive
    high: IntArray  #: int64[inputs], inclusive
    score: int
    inside: float = 0.0  #: share of the training rows that is in the box at least, where they are known

    @classmethod
    def of(cls, ensemble: Ensemble) -> HotBox | None:
        """Return the hot box of an ensemble with votes; None where nobody counted visits, or where no tree tests.

        It is where the leaves meet that most rows reach. It begins with the tree whose rows are spread most, so that
        few rows are left for the other trees to part from it: those of their other leaves that meet the box so far.
        Every side then moves outwards until a tree would give another vote.
        """
        if any(tree.visits is None or not tree.visits.any() for tree in ensemble.trees):
            return None
        inputs = len(ensemble.features)
        top = np.array([(1 << feature.bits) - 1 for feature in ensemble.features])
        low, high, score, inside = np.zeros(inputs, np.int64), top.copy(), 0, 1.0
        parts, shares = [], []
        for tree in ensemble.trees:
            part = leaf_boxes(tree, ensemble.features, np.arange(len(tree.feature)))
            parts.append(Boxes(part.low, part.high, tree.require_votes()[part.votes]))
            shares.append(tree.shares[part.votes])
        others = []  # leaves with another vote than that of their tree in the box
        for index in sorted(range(len(parts)), key=lambda index: float(shares[index].max())):
            part = parts[index]
            meets = np.all((part.low <= high) & (low <= part.high), axis=1)
            leaf = int(np.argmax(np.where(meets, shares[index], -1)))
            inside -= float(shares[index][meets].sum() - shares[index][leaf])
            low, high = np.maximum(low, part.low[leaf]), np.minimum(high, part.high[leaf])
            score += int(part.votes[leaf])
            others.append((part.low[part.votes != part.votes[leaf]], part.high[part.votes != part.votes[leaf]]))
        lows, highs = (np.concatenate(bounds) for bounds in zip(*others, strict=True))
        for feature in range(inputs):
            meets = (lows <= high) & (low <= highs)
            meets[:, feature] = True
            beside = np.all(meets, axis=1)
            above, below = lows[beside, feature], highs[beside, feature]
            high[feature] = np.min(above[above > high[feature]], initial=top[feature] + 1) - 1
            low[feature] = np.max(below[below < low[feature]], initial=-1) + 1
        return None if np.all(low == 0) and np.all(high == top) else cls(low, high, score, max(inside, 0.0))

    def tests(self, features: Sequence[FeatureInput]) -> list[str]:
        """Return what an input has to pass, in C."""
        low = [f"x[{index}] >= {bound}" for index, bound in enumerate(self.low.tolist()) if bound > 0]
        sides = enumerate(zip(self.high.tolist(), features, strict=True))
        return low + [f"x[{index}] <= {bound}" for index, (bound, item) in sides if bound < (1 << item.bits) - 1]

    @property
    def boundaries(self) -> dict[int, set[int]]:
        """Input index -> the values b with a side between b and b + 1."""
        pairs = zip(self.low.tolist(), self.high.tolist(), strict=True)
        return {index: {low - 1, high} for index, (low, high) in enumerate(pairs)}

    def rest(self, ensemble: Ensemble) -> list[npt.NDArray[np.float64]]:
        """Return the shares of training rows at the leaves of every tree, float64[n] each, without those in the box."""
        shares = [tree.shares for tree in ensemble.trees]
        for tree, share in zip(ensemble.trees, shares, strict=True):
            part = leaf_boxes(tree, ensemble.features, np.arange(len(tree.feature)))
            meets = part.votes[np.all((part.low <= self.high) & (self.low <= part.high), axis=1)]
            share[meets] *= 1 - self.inside / max(self.inside, share[meets].sum())
        return shares

    def holds(self, parts: Sequence[Boxes]) -> bool:
        """Return whether the parts of a score are constant in the box and add up to its score."""
        votes = [part.votes[np.all((part.low <= self.high) & (self.low <= part.high), axis=1)] for part in parts]
        constant = all(len(inside) and np.all(inside == inside[0]) for inside in votes)
        return constant and sum(int(inside[0]) for inside in votes) == self.score


def _ones(count: int) -> int:
    return (1 << count) - 1
