"""Boxes of integer inputs: the form in which two writings of one decision tree are compared on every input.

A leaf of a tree is reached from a box, an interval of every input. Two functions that are constant on boxes are equal
iff every pair of boxes that meet has equal votes and every input is covered, which takes as many comparisons as there
are pairs, whatever the number of cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.models.ensemble.ensemble import FeatureInput
from foretail.models.ensemble.tree import Tree

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Boxes:
    """A function of integer inputs that is constant on boxes: one additive part of a score."""

    low: IntArray  #: int64[rows, inputs], inclusive lower bounds
    high: IntArray  #: int64[rows, inputs], inclusive upper bounds; ``low <= high`` everywhere
    votes: IntArray  #: int64[rows], value in each box
    default: int | None = None  #: value of inputs in no box; None says that the boxes cover everything

    def __post_init__(self) -> None:
        if self.low.ndim != 2 or self.low.shape != self.high.shape or self.votes.shape != self.low.shape[:1]:
            raise ForetailError(
                f"boxes have bounds of shape {self.low.shape} and {self.high.shape} and {self.votes.shape} votes: "
                f"give one bound per box and input and one vote per box"
            )
        if np.any(self.low > self.high):
            raise ForetailError("a box is empty: leave it out")

    @property
    def corners(self) -> IntArray:
        """Both extreme corners of every box: int64[2 rows, inputs]."""
        return np.concatenate([self.low, self.high])


def leaf_boxes(tree: Tree, features: Sequence[FeatureInput], values: npt.NDArray[np.int64] | None = None) -> Boxes:
    """Return the boxes of a tree's leaves that some input reaches, with their votes.

    Parameters
    ----------
    tree : with votes, unless `values` are given
    features : the ensemble's inputs; they bound the boxes
    values : int64[n], another value per node in place of the votes
    """
    chosen = tree.require_votes() if values is None else values
    low = np.zeros((len(tree.feature), len(features)), np.int64)
    high = np.tile(np.array([(1 << f.bits) - 1 for f in features]), (len(tree.feature), 1))
    for node in np.flatnonzero(tree.feature >= 0).tolist():  # parents come before their children
        feature, cut, left, right = tree.feature[node], tree.cut[node], tree.left[node], tree.right[node]
        low[left], low[right], high[left], high[right] = low[node], low[node], high[node], high[node]
        high[left, feature] = min(high[left, feature], cut)
        low[right, feature] = max(low[right, feature], cut + 1)
    reached = tree.leaves[np.all(low <= high, axis=1)[tree.leaves]]
    return Boxes(low[reached], high[reached], chosen[reached])


def overlap(boxes: Boxes) -> IntArray | None:
    """Return an input in two of the boxes, int64[inputs], or None when they are disjoint."""
    for row in range(len(boxes.votes) - 1):
        low = np.maximum(boxes.low[row + 1 :], boxes.low[row])
        meets = np.all(low <= np.minimum(boxes.high[row + 1 :], boxes.high[row]), axis=1)
        if meets.any():
            at: IntArray = low[np.argmax(meets)]
            return at
    return None


def difference(model: Boxes, other: Boxes) -> IntArray | None:
    """Return an input at which `other` does not have the model's value, int64[inputs], or None: they are then equal.

    Parameters
    ----------
    model : without default: the inputs that matter
    other : disjoint (see :func:`overlap`), with or without default
    """
    for low, high, vote in zip(model.low, model.high, model.votes, strict=True):
        low_both, high_both = np.maximum(other.low, low), np.minimum(other.high, high)
        meets = np.flatnonzero(np.all(low_both <= high_both, axis=1))
        wrong = meets[other.votes[meets] != vote]
        if wrong.size:
            at: IntArray = low_both[wrong[0]]
            return at
        if other.default is not None and other.default == vote:
            continue
        covered = sum(_volume(low_both[row], high_both[row]) for row in meets)
        if covered != _volume(low, high):
            return _uncovered(low, high, low_both[meets], high_both[meets])
    return None


def _volume(low: IntArray, high: IntArray) -> int:
    return math.prod((high - low + 1).tolist())


def _uncovered(low: IntArray, high: IntArray, lows: IntArray, highs: IntArray) -> IntArray:
    """Return an input of the box [low, high] that none of the disjoint boxes inside it holds; there is one."""
    if not len(lows):
        return low
    for feature in range(len(low)):
        for first, last in ((low[feature], lows[0, feature] - 1), (highs[0, feature] + 1, high[feature])):
            if first > last:
                continue
            slab_low, slab_high = low.copy(), high.copy()
            slab_low[feature], slab_high[feature] = first, last
            inside = _inside(slab_low, slab_high, lows, highs)
            if sum(_volume(*box) for box in zip(*inside, strict=True)) < _volume(slab_low, slab_high):
                return _uncovered(slab_low, slab_high, *inside)
        # what is uncovered lies beside the first box in another input
        low, high = low.copy(), high.copy()
        low[feature], high[feature] = lows[0, feature], highs[0, feature]
        lows, highs = _inside(low, high, lows, highs)
    raise AssertionError("the boxes cover everything")


def _inside(low: IntArray, high: IntArray, lows: IntArray, highs: IntArray) -> tuple[IntArray, IntArray]:
    """Return the parts of boxes that lie in [low, high]."""
    lows, highs = np.maximum(lows, low), np.minimum(highs, high)
    some = np.all(lows <= highs, axis=1)
    return lows[some], highs[some]
