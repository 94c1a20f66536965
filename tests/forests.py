"""Small trained forests for the tests of models and export."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretail.features.catalog import COUNTERS
from foretail.models.drop.forest import RandomForest
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.frontends import from_sklearn, from_xgboost
from foretail.models.ensemble.tree import Tree
from foretail.testing import synthetic_arrivals

PAPER_INPUTS = tuple(
    FeatureInput(name, "cell_bytes=256" + ",average_shift=15" * name.endswith("average"), 24)
    for name in ("queue", "queue_average", "occupancy", "occupancy_average")
)


class Trained(NamedTuple):
    """A forest, its ensemble at threshold 0.5, and rows to try: random, extreme, beyond anything seen in training."""

    forest: RandomForest
    ensemble: Ensemble
    rows: NDArray[np.int64]


def alpha_exponents(ensemble: Ensemble, counters: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return log2(alpha), int64[rows], for `counters`, int64[rows, counters] in the order of ``COUNTERS``."""
    names = [counter.name for counter in COUNTERS]
    columns = counters[:, [names.index(item.name) for item in ensemble.features]]
    (tree,) = ensemble.trees
    return tree.value[tree.leaf(columns)].astype(np.int64)


@cache
def paper_forest(trees: int = 4, depth: int = 4, seed: int = 1) -> Trained:
    """Train on Credence-like arrivals, once in a process."""
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
        bootstrap=draw(st.booleans()),
        seed=draw(st.integers(0, 1000)),
    ).fit(x, y)
    ensemble = forest.to_ensemble([FeatureInput(f"f{i}", "", b) for i, b in enumerate(bits)])
    return Trained(forest, ensemble, np.concatenate([x, _trials(ensemble)]))


class Classified(NamedTuple):
    """A classifier of another framework, its ensemble, and rows to try, as in :class:`Trained`."""

    model: Any
    ensemble: Ensemble
    rows: NDArray[np.int64]


CLASSIFIERS = (
    "random_forest",
    "extra_trees",
    "decision_tree",
    "gradient_boosting",
    "histogram_boosting",
    "xgboost",
    "xgboost_dart",
    "xgboost_forest",
)


def untrained(kind: str, trees: int = 3, depth: int = 3, rate: float = 0.3, seed: int = 1, **settings: Any) -> Any:
    """Return one of ``CLASSIFIERS``, before fit."""
    import xgboost
    from sklearn.ensemble import (
        ExtraTreesClassifier,
        GradientBoostingClassifier,
        HistGradientBoostingClassifier,
        RandomForestClassifier,
    )
    from sklearn.tree import DecisionTreeClassifier

    if kind == "random_forest":
        return RandomForestClassifier(trees, max_depth=depth, random_state=seed, **settings)
    if kind == "extra_trees":
        return ExtraTreesClassifier(trees, max_depth=depth, random_state=seed, **settings)
    if kind == "decision_tree":
        return DecisionTreeClassifier(max_depth=depth, random_state=seed, **settings)
    if kind == "gradient_boosting":
        return GradientBoostingClassifier(
            n_estimators=trees, max_depth=depth, learning_rate=rate, random_state=seed, **settings
        )
    if kind == "histogram_boosting":
        return HistGradientBoostingClassifier(
            max_iter=trees, max_depth=depth, learning_rate=rate, min_samples_leaf=1, random_state=seed, **settings
        )
    common = {"max_depth": depth, "learning_rate": rate, "random_state": seed, "n_jobs": 1, **settings}
    if kind == "xgboost_dart":
        return xgboost.XGBClassifier(n_estimators=trees, booster="dart", rate_drop=0.5, **common)
    if kind == "xgboost_forest":
        return xgboost.XGBClassifier(n_estimators=1, num_parallel_tree=trees, subsample=0.6, **common)
    return xgboost.XGBClassifier(n_estimators=trees, **common)


def read(model: Any, features: Sequence[FeatureInput]) -> Ensemble:
    """Read a fitted classifier of either framework."""
    import xgboost

    return (from_xgboost if isinstance(model, xgboost.XGBModel) else from_sklearn)(model, features)


@st.composite
def classified(draw: st.DrawFn, kind: str, max_trees: int = 5, max_depth: int = 4, max_features: int = 3) -> Classified:
    """Draw a classifier of a kind; often its training saw values beyond the declared range."""
    bits = draw(st.lists(st.integers(1, 32), min_size=1, max_size=max_features))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(4, 100))
    seen = [min(b + draw(st.integers(-3, 3)), 32) for b in bits]
    x = np.stack([random.integers(0, 1 << max(s, 1), count) for s in seen], axis=1)
    y = random.random(count) < draw(st.sampled_from([0.1, 0.5, 0.9]))
    y[:4] = True, False, True, False  # histogram boosting needs two of each
    settings: dict[str, Any] = {}
    if kind in ("random_forest", "extra_trees", "decision_tree"):
        settings["class_weight"] = draw(st.sampled_from([None, "balanced", {0: 0.3, 1: 0.7}]))
    elif kind == "gradient_boosting":
        settings["init"] = draw(st.sampled_from([None, "zero"]))
    elif kind.startswith("xgboost"):
        settings["base_score"] = draw(st.sampled_from([None, 0.5]) | st.floats(0.01, 0.99))
    trees, depth = draw(st.integers(1, max_trees)), draw(st.integers(1, max_depth))
    rate = draw(st.sampled_from([0.1, 0.3, 1.0]))
    model = untrained(kind, trees, depth, rate, draw(st.integers(0, 1000)), **settings).fit(x, y)
    ensemble = read(model, [FeatureInput(f"f{i}", "", b) for i, b in enumerate(bits)])
    return Classified(model, ensemble, np.concatenate([x[np.all(x < 1 << np.array(bits), axis=1)], _trials(ensemble)]))


def _trials(ensemble: Ensemble) -> NDArray[np.int64]:
    """Return rows anywhere in the declared ranges, on both sides of cuts, and at the ends."""
    random = np.random.default_rng(0)
    bits = [f.bits for f in ensemble.features]
    anywhere = np.stack([random.integers(0, 1 << b, 100) for b in bits], axis=1)
    near_cuts = [
        np.stack(
            [np.clip(random.choice(_cuts(ensemble, i), 100) + d, 0, (1 << b) - 1) for i, b in enumerate(bits)], axis=1
        )
        for d in (0, 1)
    ]
    top = np.array([[(1 << b) - 1 for b in bits]])
    return np.concatenate([anywhere, *near_cuts, np.zeros_like(top), top])


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
