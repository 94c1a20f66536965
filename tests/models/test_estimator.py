"""The classifier of scikit-learn: its own checks, and that it is the predictor that it was given."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from foretail.core.errors import ForetailError
from foretail.models.drop.forest import RandomForest
from foretail.models.estimator import DropClassifier
from foretail.testing import synthetic_arrivals

X, Y = synthetic_arrivals(rows=2000, seed=1)
INTEGERS = "features are integers in [0, 2**24)"


@pytest.mark.filterwarnings("ignore")  # the checks warn of what they skip and of what is expected
def test_checks_of_scikit_learn() -> None:
    expected = {
        "check_positive_only_tag_during_fit": f"{INTEGERS}, which the error says in our words",
        "check_sample_weight_equivalence_on_dense_data": f"{INTEGERS}, and the check draws fractions",
    }
    results = check_estimator(DropClassifier(), expected_failed_checks=expected, on_skip=None)
    assert {one["check_name"] for one in results if one["status"] == "xfail"} == set(expected)
    assert sum(one["status"] == "passed" for one in results) > 40


def test_it_is_its_predictor() -> None:
    forest = RandomForest(trees=2, depth=3)
    model = clone(DropClassifier(forest)).set_params(predictor__trees=3).fit(X, Y)
    assert (forest.trees, model.predictor_.trees, model.get_params()["predictor__depth"]) == (2, 3, 3)
    probability = RandomForest(trees=3, depth=3).fit(X, Y).probability(X)
    assert np.array_equal(model.predict_proba(X), np.stack([1 - probability, probability], axis=1))
    assert np.array_equal(model.predict(X), probability > 0.5)
    named = DropClassifier(forest).fit(X.astype(float), np.where(Y, "drop", "accept"))
    assert set(named.predict(X)) == {"accept", "drop"}


def test_refusals() -> None:
    with pytest.raises(ForetailError, match="RandomForest has no parameter leaves: it takes trees, depth"):
        RandomForest().set_params(leaves=3)
    with pytest.raises(ForetailError, match="pass at least one row of integers"):
        DropClassifier().fit(X + 0.5, Y)
    with pytest.raises(ValueError, match="the labels have 1 class"):
        DropClassifier().fit(X, Y, np.where(Y, 0.0, 1.0))
