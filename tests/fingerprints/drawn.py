"""Models that nobody trained: their numbers are drawn, so that no framework and no rounding can move them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.tree import Tree


def drawn_tree(random: np.random.Generator, features: Sequence[FeatureInput], depth: int, narrow: int) -> Tree:
    """Return a tree of random cuts, below ``2**narrow``, and of leaves in 64ths; some branches end early."""
    feature: list[int] = []
    cut: list[int] = []
    left: list[int] = []
    right: list[int] = []
    value: list[float] = []

    def grow(level: int) -> int:
        node = len(feature)
        leaf = level == depth or (level > 1 and random.random() < 0.2)
        chosen = -1 if leaf else int(random.integers(len(features)))
        feature.append(chosen)
        bits = 0 if leaf else min(narrow, features[chosen].bits)
        cut.append(0 if leaf else int(random.integers(0, (1 << bits) - 1)))
        value.append(float(random.integers(0, 65)) / 64 if leaf else 0.0)
        left.append(-1)
        right.append(-1)
        if not leaf:
            left[node] = grow(level + 1)
            right[node] = grow(level + 1)
        return node

    grow(0)
    return Tree(
        np.array(feature, np.int32),
        np.array(cut, np.int64),
        np.array(left, np.int32),
        np.array(right, np.int32),
        np.array(value),
    )


def drawn_ensemble(
    features: Sequence[FeatureInput], seed: int, trees: int = 4, depth: int = 4, narrow: int = 24
) -> Ensemble:
    """Return a forest of drawn trees; it drops when the mean of their leaves is above a half."""
    random = np.random.default_rng(seed)
    found = tuple(drawn_tree(random, features, depth, narrow) for _ in range(trees))
    return Ensemble(tuple(features), found, Fraction(trees, 2))


def redrawn(document: Any, random: np.random.Generator) -> Any:
    """Return a JSON document with every float in it drawn anew, in 256ths from -1 to 1."""
    if isinstance(document, dict):
        return {name: redrawn(value, random) for name, value in document.items()}
    if isinstance(document, list):
        return [redrawn(value, random) for value in document]
    return float(random.integers(-256, 257)) / 256 if isinstance(document, float) else document
