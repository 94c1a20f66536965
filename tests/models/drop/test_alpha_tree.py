"""Trees that predict alpha: what they learn, and which models are none."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.features.catalog import COUNTERS, counter_params
from foretail.models.drop.thresholds.alpha_tree import alpha_exponents, fit_alpha_tree, require_alpha_tree
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.nested import tree_of_rule

EXPONENTS = [-2, 0, 5]


def learnable(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows whose third counter decides which exponent costs nothing."""
    draw = np.random.default_rng(seed)
    counters = draw.integers(0, 256, (400, len(COUNTERS)))
    best = np.digitize(counters[:, 2], [80, 160])
    return counters, 1.0 - np.eye(3)[best], np.ones(400)


def test_a_tree_chooses_what_costs_least() -> None:
    counters, costs, weights = learnable(0)
    tree = fit_alpha_tree(counters, costs, weights, EXPONENTS, 2, 100_000)
    assert [item.name for item in tree.features] == ["queue_dropped"]
    found = alpha_exponents(tree, counters)
    assert (found == np.array(EXPONENTS)[costs.argmin(axis=1)]).all()
    assert require_alpha_tree(tree, "it") == 100_000


@given(st.integers(0, 20), st.integers(0, 3))
def test_no_tree_loses_more_than_the_best_fixed_exponent(seed: int, depth: int) -> None:
    counters, _, weights = learnable(seed)
    costs = np.random.default_rng(seed).random((400, 3))
    tree = fit_alpha_tree(counters, costs, weights, EXPONENTS, depth, 100_000)
    places = [EXPONENTS.index(exponent) for exponent in alpha_exponents(tree, counters).tolist()]
    least = costs.mean(axis=0).min()
    lost = costs[np.arange(400), places].mean()
    assert lost <= least + 1e-12
    assert depth > 0 or lost == pytest.approx(least)


def test_weights_decide() -> None:
    counters, costs = np.zeros((2, len(COUNTERS)), np.int64), np.array([[0.0, 1, 1], [1, 1, 0]])
    for weights, exponent in (([1.0, 3.0], 5), ([3.0, 1.0], -2)):
        tree = fit_alpha_tree(counters, costs, np.array(weights), EXPONENTS, 0, 100_000)
        assert alpha_exponents(tree, counters).tolist() == [exponent] * 2


def model(value: float = 1.0, name: str = "queue_load", params: str = counter_params(100_000)) -> Ensemble:
    tree = tree_of_rule((name, 7, value, 0.0), [name])
    return Ensemble((FeatureInput(name, params, 8),), (tree,), Fraction(0), output="value")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (model(name="fill", params=""), "m predicts no alpha, for it does not read counters of an interval"),
        (model(params=""), "m predicts no alpha"),
        (model(params="interval_ns=0100"), "m predicts no alpha"),
        (model(value=0.5), "m is not one tree with whole numbers from -7 to 6 in its leaves"),
        (model(value=7.0), "m is not one tree with whole numbers"),
        (replace(model(), base=1.0), "m is not one tree"),
        (replace(model(), trees=model().trees * 2), "m is not one tree"),
    ],
)
def test_other_models_are_refused(wrong: Ensemble, sentence: str) -> None:
    with pytest.raises(ForetailError) as error:
        require_alpha_tree(wrong, "m")
    assert sentence in str(error.value)
