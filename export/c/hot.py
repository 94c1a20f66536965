"""The hot box: inputs that most training rows are in, and on which every tree is constant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretail.models.ensemble.boxes import Boxes, leaf_boxes
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput

IntArray = npt.NDArray[np.int64]


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
        constant = all(len(found) and np.all(found == found[0]) for found in votes)
        return constant and sum(int(found[0]) for found in votes) == self.score
