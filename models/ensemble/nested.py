"""A tree as nested tests, and nested tests as a tree: for whoever walks, rewrites or writes down a tree by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from foretail.models.ensemble.tree import Tree

Node: TypeAlias = "int | tuple[int, int, Node, Node]"
"""The number of a leaf; or an input's index, a cut, what holds up to the cut, and what holds above it."""

Rule: TypeAlias = "float | tuple[str, int, Rule, Rule]"
"""The same as one writes a rule down: the value of a leaf, and the names of inputs."""


def nested(tree: Tree, node: int = 0) -> Node:
    """Return a tree, or the part below a node, as nested tests; the number of a leaf is its index in the tree."""
    if tree.feature[node] < 0:
        return node
    left, right = (nested(tree, int(side[node])) for side in (tree.left, tree.right))
    return int(tree.feature[node]), int(tree.cut[node]), left, right


def tree_of(
    root: Node,
    values: npt.NDArray[np.float64],
    votes: npt.NDArray[np.int64] | None = None,
    visits: npt.NDArray[np.int64] | None = None,
) -> Tree:
    """Return nested tests as a tree whose nodes are in preorder.

    Parameters
    ----------
    root : the number of a leaf is its place in `values`, in `votes` and in `visits`
    values : float64[n]
    votes, visits : int64[n], or None for a tree without
    """
    rows: list[tuple[int, int, int, int]] = []
    leaves: list[int] = []

    def add(node: Node) -> int:
        place = len(rows)
        rows.append((-1, 0, -1, -1))
        leaves.append(node if isinstance(node, int) else -1)
        if not isinstance(node, int):
            feature, cut, below, above = node
            rows[place] = (feature, cut, add(below), add(above))
        return place

    add(root)
    feature, cut, left, right = (np.array(column) for column in zip(*rows, strict=True))
    leaf = np.array(leaves)
    value = np.where(leaf >= 0, values[leaf], 0.0)
    counts = (None if of is None else np.where(leaf >= 0, of[leaf], 0) for of in (votes, visits))
    return Tree(feature, cut, left, right, value, *counts)


def tree_of_rule(root: Rule, names: Sequence[str]) -> Tree:
    """Return the tree of a rule; `names` are those of the ensemble's inputs in their order."""
    values: list[float] = []

    def numbered(rule: Rule) -> Node:
        if isinstance(rule, tuple):
            name, cut, below, above = rule
            return names.index(name), cut, numbered(below), numbered(above)
        values.append(float(rule))
        return len(values) - 1

    return tree_of(numbered(root), np.array(values))
