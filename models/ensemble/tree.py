"""One decision tree as parallel arrays, the part of which ensembles are made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.sim_bridge._native import tree_leaves

IntArray = npt.NDArray[np.int64]

MAX_VISITS = 1 << 53
"""Visits of a leaf are fewer, so that a float64 holds them."""


@dataclass(frozen=True, eq=False, repr=False)
class Tree(Summarised):
    """One decision tree as parallel arrays, node 0 the root.

    Invariants: a child's index is greater than its parent's and every node but the root has exactly one parent;
    leaves have ``feature == left == right == -1`` and ``cut == 0``; inner nodes have ``0 <= cut < 2**bits - 1``,
    ``value == 0`` and no vote. Arrays are read-only.
    """

    feature: npt.NDArray[np.int32]  #: int32[n], index of the tested input, -1 at a leaf
    cut: IntArray  #: int64[n], go left iff ``x[feature] <= cut``
    left: npt.NDArray[np.int32]  #: int32[n], child, -1 at a leaf
    right: npt.NDArray[np.int32]  #: int32[n], the other child, -1 at a leaf
    value: npt.NDArray[np.float64]  #: float64[n], exact leaf value, finite
    votes: IntArray | None = None  #: int64[n] or None, integer leaf votes, None before the vote pass
    #: int64[n] or None, how many training rows reached each leaf, 0 at inner nodes; None where nobody counted
    visits: IntArray | None = None

    def __post_init__(self) -> None:
        dtypes = {"feature": np.int32, "cut": np.int64, "left": np.int32, "right": np.int32, "value": np.float64}
        for name, dtype in dtypes.items():
            object.__setattr__(self, name, _frozen(getattr(self, name), dtype))
        for name in ("votes", "visits"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _frozen(getattr(self, name), np.int64))

    @property
    def leaves(self) -> IntArray:
        """Indices of the leaves, int64[leaves]."""
        return np.flatnonzero(self.feature < 0)

    @property
    def depth(self) -> int:
        """Most tests on a way from the root to a leaf."""
        depth = np.zeros(len(self.feature), np.int64)
        for node in np.flatnonzero(self.feature >= 0).tolist():  # parents come before their children
            depth[self.left[node]] = depth[self.right[node]] = depth[node] + 1
        return int(depth.max())

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """The visits as shares of all, float64[n]; ForetailError where there are none."""
        if self.visits is None or not self.visits.any():
            raise ForetailError("the ensemble has no visits: run with_visits on it first")
        return np.asarray(self.visits / self.visits.sum(), np.float64)

    def sums(self, at_leaves: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the sum over the leaves below each node, float64[n], of numbers as :attr:`shares`."""
        sums = at_leaves.copy()
        for node in np.flatnonzero(self.feature >= 0)[::-1].tolist():  # children before their parents
            sums[node] = sums[self.left[node]] + sums[self.right[node]]
        return sums

    def require_votes(self) -> IntArray:
        """Return the votes; raise ForetailError before the vote pass."""
        if self.votes is None:
            raise ForetailError("the ensemble has no integer votes: run foretail.export.with_votes on it first")
        return self.votes

    def leaf(self, x: IntArray) -> IntArray:
        """Return the leaf that every row of `x`, int64[rows, features], reaches: int64[rows]."""
        leaves: IntArray = tree_leaves(self.feature, self.cut, self.left, self.right, np.ascontiguousarray(x))
        return leaves


def cuts_of(trees: Iterable[Tree]) -> dict[int, list[int]]:
    """Return the cuts of every input that some tree tests, by its index, each once and in order."""
    pairs = {pair for tree in trees for pair in zip(tree.feature.tolist(), tree.cut.tolist(), strict=True)}
    cuts: dict[int, list[int]] = {}
    for feature, cut in sorted(pairs):
        if feature >= 0:
            cuts.setdefault(feature, []).append(cut)
    return cuts


def tree_fault(tree: Tree, largest_cut: IntArray) -> str | None:
    """Say which invariant a tree breaks, None if none; the features have these largest cuts, int64[features]."""
    n = len(tree.feature)
    arrays = (tree.cut, tree.left, tree.right, tree.value, tree.votes, tree.visits)
    if any(array is not None and len(array) != n for array in arrays):
        return "has arrays of different lengths"
    leaf = tree.feature < 0
    inner = np.flatnonzero(~leaf)
    if np.any(tree.left[leaf] != -1) or np.any(tree.right[leaf] != -1) or np.any(tree.cut[leaf] != 0):
        return "has a leaf with a cut or children"
    children = np.concatenate([tree.left[inner], tree.right[inner]])
    if not np.array_equal(np.sort(children), np.arange(1, n)) or np.any(children <= np.tile(inner, 2)):
        return "is no tree with every child after its parent"
    if np.any(tree.feature[inner] >= len(largest_cut)):
        return "tests a feature that is not declared"
    if np.any(tree.cut[inner] < 0) or np.any(tree.cut[inner] > largest_cut[tree.feature[inner]]):
        return "has a cut outside its feature's range"
    if not np.all(np.isfinite(tree.value)) or np.any(tree.value[inner] != 0):
        return "has a value that is not finite, or one at an inner node"
    if tree.visits is not None and (np.any(tree.visits[inner]) or np.any(tree.visits.view(np.uint64) >= MAX_VISITS)):
        return "has visits outside [0, 2**53), or some at an inner node"
    return None


def _frozen(array: npt.ArrayLike, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    copy = np.array(array, dtype)
    copy.setflags(write=False)
    return copy
