"""Small trained forests for the tests of models and export."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretail.models.contract import synthetic_arrivals
from foretail.models.ensemble import Ensemble, FeatureInput, Tree
from foretail.models.forest import RandomForest

PAPER_INPUTS = tuple(
    FeatureInput(name, "cell_bytes=256" + ",average_shift=15" * name.endswith("average"), 24)
    for name in ("queue", "queue_average", "occupancy", "occupancy_average")
)


class Trained(NamedTuple):
    """A forest, its ensemble at threshold 0.5, and rows to try: random, extreme, beyond anything seen in training."""

    forest: RandomForest
    ensemble: Ensemble
    rows: NDArray[np.int64]


def paper_forest(trees: int = 4, depth: int = 4, seed: int = 1) -> Trained:
    """Train on Credence-like arrivals."""
    x, y = synthetic_arrivals(rows=20_000, seed=seed)
    forest = RandomForest(trees=trees, depth=depth, seed=seed).fit(x, y)
    beyond = np.random.default_rng(seed).integers(0, 1 << 24, (500, 4))
    rows = np.concatenate(
        [x[:2000].astype(np.int64), beyond, np.zeros((1, 4), np.int64), np.full((1, 4), (1 << 24) - 1)]
    )
    return Trained(forest, forest.to_ensemble(PAPER_INPUTS), rows)


@st.composite
def forests(draw: st.DrawFn, max_trees: int = 4, max_depth: int = 4, max_features: int = 3) -> Trained:
    """Draw a forest trained on random integers of random widths, neighbouring values included."""
    bits = draw(st.lists(st.integers(1, 24), min_size=1, max_size=max_features))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(2, 200))
    seen = [draw(st.integers(1, b)) for b in bits]  # training sees a part of the declared range only
    x = np.stack([random.integers(0, 1 << s, count) for s in seen], axis=1)
    y = random.random(count) < draw(st.sampled_from([0.05, 0.5, 0.9]))
    y[:2] = True, False
    forest = RandomForest(
        trees=draw(st.integers(1, max_trees)),
        depth=draw(st.integers(1, max_depth)),
        class_weight=draw(st.sampled_from([None, "balanced"])),
        bootstrap=draw(st.booleans()),
        seed=draw(st.integers(0, 1000)),
    ).fit(x, y)
    ensemble = forest.to_ensemble([FeatureInput(f"f{i}", "", b) for i, b in enumerate(bits)])
    anywhere = np.stack([random.integers(0, 1 << b, 100) for b in bits], axis=1)
    near_cuts = [
        np.stack(
            [np.clip(random.choice(_cuts(ensemble, i), 100) + d, 0, (1 << b) - 1) for i, b in enumerate(bits)], axis=1
        )
        for d in (0, 1)
    ]
    top = np.array([[(1 << b) - 1 for b in bits]])
    return Trained(forest, ensemble, np.concatenate([x, anywhere, *near_cuts, np.zeros_like(top), top]))


def stump(values: Sequence[float], cut: int = 10, feature: int = 0) -> Tree:
    """Return the tree ``x[feature] <= cut ? values[0] : values[1]``."""
    return Tree(
        feature=np.array([feature, -1, -1], np.int32),
        cut=np.array([cut, 0, 0]),
        left=np.array([1, -1, -1], np.int32),
        right=np.array([2, -1, -1], np.int32),
        value=np.array([0.0, *values]),
    )


def stumps(*pairs: Sequence[float], threshold: Fraction = Fraction(1, 2), bits: int = 8) -> Ensemble:
    """Return an ensemble of one stump per feature: every combination of its values is a cell."""
    features = tuple(FeatureInput(f"f{i}", "", bits) for i in range(len(pairs)))
    return Ensemble(features, tuple(stump(pair, feature=i) for i, pair in enumerate(pairs)), threshold)


def _cuts(ensemble: Ensemble, feature: int) -> NDArray[np.int64]:
    cuts = [tree.cut[tree.feature == feature] for tree in ensemble.trees]
    return np.concatenate([*cuts, np.zeros(1, np.int64)])
