"""A tree as nested tests, as one writes a rule down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from foretail.models.ensemble.ensemble import Tree

Node: TypeAlias = "float | tuple[str, int, Node, Node]"
"""The value of a leaf; or an input's name, a cut, and what holds up to the cut and above it."""


def nested_tree(root: Node, names: Sequence[str]) -> Tree:
    """The tree of nested tests; `names` are those of the ensemble's inputs in their order."""
    rows: list[tuple[int, int, int, int, float]] = []

    def add(node: Node) -> int:
        place = len(rows)
        if isinstance(node, tuple):
            name, cut, below, above = node
            rows.append((0, 0, 0, 0, 0.0))
            rows[place] = (names.index(name), cut, add(below), add(above), 0.0)
        else:
            rows.append((-1, 0, -1, -1, float(node)))
        return place

    add(root)
    feature, cut, left, right, value = zip(*rows, strict=True)
    return Tree(
        np.array(feature, np.int32),
        np.array(cut, np.int64),
        np.array(left, np.int32),
        np.array(right, np.int32),
        np.array(value, np.float64),
    )
