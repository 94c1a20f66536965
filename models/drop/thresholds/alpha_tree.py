"""The alpha of Dynamic Thresholds as one decision tree over the counters of an interval.

A leaf holds log2(alpha), a whole number from -7 to 6, which is what switches take for a dynamic threshold. The tree is
learned from what every fixed alpha costs under the conditions in which counters were logged: it chooses, leaf by leaf,
the alpha with the least mean cost. So a tree of depth 0 is the best fixed alpha.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.features.catalog import COUNTER_BITS, COUNTERS, counter_params
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.nested import Rule, tree_of_rule
from foretail.sim_bridge.policies import FIRST_EXPONENT, LAST_EXPONENT

SMALLEST_LEAF = 0.02
"""Least share of all weight in a leaf, so that no leaf stands for a few rows of one condition."""


def fit_alpha_tree(
    counters: npt.NDArray[np.int64],
    costs: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    exponents: Sequence[int],
    depth: int,
    interval_ns: int,
) -> Ensemble:
    """Learn which exponent costs least under which counters.

    A regression tree predicts the costs of all exponents together (scikit-learn's, least squares), and a leaf takes the
    cheapest. Siblings that take the same become one leaf.

    Parameters
    ----------
    counters : int64[rows, counters], in the order of ``COUNTERS``
    costs : float64[rows, exponents], what each exponent costs where the row was logged; finite
    weights : float64[rows], above 0
    exponents : log2 of the alphas that were tried, in order, from -7 to 6
    depth : of the tree, from 0 (one leaf) on
    interval_ns : between two predictions
    """
    from sklearn.tree import DecisionTreeRegressor

    cheapest = exponents[int(np.average(costs, axis=0, weights=weights).argmin())]
    root: Rule = float(cheapest)
    read: set[int] = set()  # places of the counters that are tested
    if depth > 0:
        model = DecisionTreeRegressor(max_depth=depth, min_weight_fraction_leaf=SMALLEST_LEAF, random_state=0)
        fitted = model.fit(counters, costs, sample_weight=weights).tree_

        def node_of(place: int) -> Rule:
            if fitted.children_left[place] < 0:
                return float(exponents[int(fitted.value[place, :, 0].argmin())])
            below, above = node_of(fitted.children_left[place]), node_of(fitted.children_right[place])
            if below == above and not isinstance(below, tuple):
                return below
            read.add(int(fitted.feature[place]))
            return (COUNTERS[fitted.feature[place]].name, int(fitted.threshold[place]), below, above)

        root = node_of(0)
    params = counter_params(interval_ns)
    tested = sorted(read) or [0]  # an ensemble has an input
    inputs = tuple(FeatureInput(COUNTERS[place].name, params, COUNTER_BITS) for place in tested)
    tree = tree_of_rule(root, [item.name for item in inputs])
    return Ensemble(inputs, (tree,), Fraction(0), output="value", origin={"kind": "alpha_tree"})


def within_exponents(ensemble: Ensemble, first: int, last: int, nearest: bool) -> Ensemble:
    """Return a tree of alphas whose exponents a platform takes, `first` to `last`.

    Others become the nearest one that it takes if `nearest` is true, and are a ForetailError that names it otherwise.
    """
    (tree,) = ensemble.trees
    exponents = tree.value[tree.leaves]
    other = exponents[(exponents < first) | (exponents > last)].astype(int)
    if not other.size:
        return ensemble
    if not nearest:
        taken = min(max(int(other[0]), first), last)
        raise ForetailError(
            f"the model sets alpha = 2^{other[0]}, and the platform takes 2^{first} to 2^{last}, of which 2^{taken} is "
            f"the nearest: search with alphas in that range, or write the nearest ones with sonic.nearest=true"
        )
    value = np.where(tree.feature < 0, np.clip(tree.value, first, last), tree.value)
    return replace(ensemble, trees=(replace(tree, value=value),))


def require_alpha_tree(ensemble: Ensemble, name: str) -> int:
    """Return the interval in ns of a tree of alphas; raise ForetailError, which calls it `name`, on any other model."""
    known = {counter.name for counter in COUNTERS}
    params = {item.params for item in ensemble.features}
    interval = next(iter(params)).removeprefix("interval_ns=")
    if (
        not {item.name for item in ensemble.features} <= known
        or len(params) != 1
        or not interval.isdecimal()
        or next(iter(params)) != counter_params(int(interval))
    ):
        raise ForetailError(
            f"{name} predicts no alpha, for it does not read counters of an interval: learn one with fit_alpha_tree"
        )
    values = ensemble.trees[0].value[ensemble.trees[0].leaves]
    if (
        len(ensemble.trees) != 1
        or ensemble.base
        or not set(values.tolist()) <= set(map(float, range(FIRST_EXPONENT, LAST_EXPONENT + 1)))
    ):
        raise ForetailError(
            f"{name} is not one tree with whole numbers from {FIRST_EXPONENT} to {LAST_EXPONENT} in its leaves, which "
            "are log2(alpha): learn one with fit_alpha_tree"
        )
    return int(interval)
