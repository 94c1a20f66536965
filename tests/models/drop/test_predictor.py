"""The predictor interface, its contract, the forests behind it, and the estimator of scikit-learn."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from foretail.core.errors import ForetailError
from foretail.features.catalog import COUNTERS, counter_params
from foretail.features.rows.labelled_rows import Rows
from foretail.models.drop.boosted import BoostedTrees
from foretail.models.drop.forest import ExtraTrees, RandomForest
from foretail.models.drop.predictor import DropPredictor
from foretail.models.drop.sharing_rule import FEATURES, TRACKED, SharingRule
from foretail.models.drop.thresholds.alpha_tree import fit_alpha_tree, require_alpha_tree
from foretail.models.drop.weights import DropWeight, drop_factor, row_weights
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.nested import tree_of_rule
from foretail.models.ensemble.rounding import framework_sum
from foretail.models.estimator import DropClassifier
from foretail.models.scoring.metrics import rank
from foretail.testing import check_predictor, synthetic_arrivals
from tests.broken import broken
from tests.examples import draws
from tests.forests import PAPER_INPUTS, alpha_exponents
from tests.refusals import refusing

X, Y = synthetic_arrivals(rows=3000, seed=3)


@pytest.mark.parametrize(
    "predictor",
    [
        RandomForest,
        RandomForest(trees=1, depth=1),
        RandomForest(trees=8, depth=6, bootstrap=True, seed=5),
        RandomForest(min_leaf_rows=20, features_per_split=4, bootstrap=False, jobs=2),
        ExtraTrees,
        ExtraTrees(trees=6, depth=8, features_per_split=1, bootstrap=True, jobs=2),
        BoostedTrees,
        BoostedTrees(trees=30, depth=3, learning_rate=1, min_child_weight=0, l2=0.5, seed=3),
        BoostedTrees("forest", trees=8, depth=6, learning_rate=1, subsample=0.6, feature_share=0.5),
    ],
)
def test_predictors_keep_the_contract(predictor: DropPredictor | type[DropPredictor]) -> None:
    check_predictor(predictor)


def test_logistic_regression_keeps_the_contract() -> None:
    from foretail.models.drop.logistic import LogisticRegression

    check_predictor(LogisticRegression)
    check_predictor(LogisticRegression(l2=100))


class _LearnsInConstructor(RandomForest):
    def __init__(self, trees: int = 4, depth: int = 4) -> None:
        super().__init__(trees, depth)
        self.learned_ = 1


@dataclass(eq=False)
class _ForgetsToDeclare(RandomForest):
    extra: int = 1


def changes_its_input(usual: Callable[..., None], x: npt.NDArray[np.int32], *asked: Any) -> None:
    usual(x, *asked)
    x[0, 0] += 1


def changes_what_it_predicts(usual: Callable[..., Any], x: npt.NDArray[np.int32]) -> Any:
    x += 1
    return usual(x)


def forgets_its_seed(usual: Callable[..., None], x: npt.NDArray[np.int32], *asked: Any) -> None:
    usual(np.random.default_rng().permutation(x), *asked)


@pytest.mark.parametrize(
    ("predictor", "clause"),
    [
        (
            broken(RandomForest, _probability=lambda *_: 1 // 0),
            "probability must answer for any rows: .*Broken fails in probability: ZeroDivisionError: ",
        ),
        (broken(RandomForest, _probability=lambda usual, x: usual(x) * np.nan), "probability must be finite, not nan"),
        (
            broken(RandomForest, _probability=lambda usual, x: np.stack([usual(x)] * 2, axis=1)),
            r"probability must give one number per row, shape \(2001,\), not shape \(2001, 2\)",
        ),
        (broken(RandomForest, _probability=changes_what_it_predicts), "probability must not change the features"),
        (broken(RandomForest, _fit=lambda *_: 1 // 0), "fit must learn from labelled rows: .*ZeroDivisionError: "),
        (
            broken(RandomForest, _probability=lambda usual, x: usual(x) / max(1.0, len(x) / 100)),
            "must not depend on the rows beside it",
        ),
        (
            broken(RandomForest, _ensemble=lambda *_: None),
            "to_ensemble must return an Ensemble, not a NoneType",
        ),
        (_LearnsInConstructor, "declared|only store"),
        (_ForgetsToDeclare, "must be declared"),
        (broken(RandomForest, fit=lambda usual, *asked: usual(*asked) and None), "return self"),
        (broken(RandomForest, _fit=changes_its_input), "not change the features"),
        (broken(RandomForest, _fit=forgets_its_seed), "same seed"),
        (broken(RandomForest, _fit=lambda usual, x, y, weight: usual(x, y, np.ones(len(y)))), "heavier drops"),
        (
            broken(RandomForest, fit_batches=lambda usual, rows, most: usual(lambda: list(rows())[:-1], most)),
            "rows in batches",
        ),
        (
            broken(RandomForest, _ensemble=lambda _, features: RandomForest().fit(4096 - X, Y).to_ensemble(features)),
            "Not equal|decide as the model",
        ),
        (broken(RandomForest, _probability=lambda usual, x: 100 * usual(x)), r"in \[0, 1\]"),
    ],
)
def test_the_contract_catches_predictors_that_break_it(predictor: type[DropPredictor], clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        check_predictor(predictor)


def test_no_drop_in_training_names_the_settings_that_raise_congestion() -> None:
    with pytest.raises(ForetailError) as caught:
        RandomForest().fit(X, np.zeros(len(X), np.bool_))
    for setting in (
        "incast.queries_per_second_per_server",
        "incast.burst_fraction",
        "background.load",
        "traffic_ns",
        "3000 training rows hold no drop",
    ):
        assert setting in str(caught.value)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_a_weight_of_n_is_the_row_n_times(seed: int, depth: int) -> None:
    random = np.random.default_rng(seed)
    x = random.integers(0, 30, (200, 3))
    y = x[:, 0] + random.integers(0, 30, 200) > 40
    y[:2] = True, False
    weight = random.integers(1, 5, 200)
    for kind in (RandomForest, ExtraTrees):
        forest = kind(trees=2, depth=depth, bootstrap=False, seed=1)
        weighted = copy.deepcopy(forest).fit(x, y, weight).probability(x)
        repeated = forest.fit(np.repeat(x, weight, axis=0), np.repeat(y, weight)).probability(x)
        np.testing.assert_allclose(weighted, repeated, rtol=1e-12)


@pytest.mark.parametrize("mode", ["boosted", "forest"])
def test_the_sums_of_boosted_trees_are_those_of_xgboost_to_the_last_bit(mode: Literal["boosted", "forest"]) -> None:
    import xgboost

    trained = BoostedTrees(mode, trees=12, depth=6, subsample=0.8).fit(X, Y, np.where(Y, 3.0, 1.0))
    x = np.concatenate([X, synthetic_arrivals(rows=2000, seed=5)[0], np.full((1, 4), (1 << 24) - 1, np.int32)])
    margin = trained.booster_.predict(xgboost.DMatrix(x), output_margin=True)
    ensemble = trained.to_ensemble(PAPER_INPUTS)
    assert len(ensemble.trees) == 12
    assert np.array_equal(framework_sum(ensemble, x), margin.astype(np.float64))
    assert ensemble.origin["parameter.subsample"] == "0.8"
    assert "parameter.jobs" not in ensemble.origin


@given(
    rows=st.integers(20, 2000),
    batches=st.integers(1, 20),
    weighted=st.booleans(),
    trees=st.sampled_from(
        [
            BoostedTrees(trees=2),
            BoostedTrees(trees=2, bins=7),
            BoostedTrees("forest", trees=2, depth=5, learning_rate=1, subsample=0.6, feature_share=0.5),
        ]
    ),
)
@settings(max_examples=draws(15))
def test_boosted_trees_learn_the_same_from_batches_of_any_size(
    rows: int, batches: int, weighted: bool, trees: BoostedTrees
) -> None:
    x, y = X[:rows], Y[:rows].copy()
    y[:2] = True, False
    weight = np.where(np.arange(rows) % 3 == 0, 20.0, 1.0) if weighted else None
    whole = Rows(x, y, None, weight)
    ends = np.linspace(0, rows, batches + 1).astype(int).tolist()
    parts = [whole[slice(*ends_of_one)] for ends_of_one in pairwise(ends)]
    expected = copy.deepcopy(trees).fit(x, y, weight).to_ensemble(PAPER_INPUTS)
    for rows_in_memory in (rows, rows - 1):  # then in files
        streamed = replace(trees, rows_in_memory=rows_in_memory).fit_batches(lambda: parts, rows)
        assert streamed.to_ensemble(PAPER_INPUTS) == expected


def test_boosted_trees_need_a_gpu_for_cuda() -> None:
    import xgboost

    if xgboost.build_info()["USE_CUDA"]:
        pytest.skip("this XGBoost is built for GPUs")
    with pytest.raises(ForetailError, match=r"trainer\.device=cuda finds no GPU for XGBoost"):
        BoostedTrees(device="cuda").fit(X, Y)
    assert BoostedTrees.device_here() == "cpu"
    assert RandomForest.device_here() == "cpu"


def test_a_logistic_regression_is_a_network_of_one_layer() -> None:
    from foretail.models.drop.logistic import LogisticRegression

    trained = LogisticRegression(l2=10).fit(X, Y)
    network = trained.to_network(PAPER_INPUTS)
    np.testing.assert_allclose(network.probability(X), trained.probability(X), rtol=1e-3, atol=1e-6)
    precision = rank(Y, trained.probability(X)).average_precision
    assert precision is not None
    assert precision > 0.3
    with pytest.raises(ForetailError, match="does not converge in 2 iterations"):
        LogisticRegression(iterations=2).fit(X, Y)


DROP = np.array([True, False, False, True, False])
STANDS_FOR = np.array([1.0, 4.0, 2.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("drop_weight", "weight", "expected"),
    [
        (1.0, None, [1, 1, 1, 1, 1]),
        (2.5, None, [2.5, 1, 1, 2.5, 1]),
        ("cost", None, [9, 1, 1, 9, 1]),
        ("cost", STANDS_FOR, [9, 4, 2, 9, 2]),
        ("balanced", None, [1.5, 1, 1, 1.5, 1]),
        ("balanced", STANDS_FOR, [4, 4, 2, 4, 2]),
    ],
)
def test_a_drop_weighs_what_it_costs(
    drop_weight: DropWeight, weight: np.ndarray[tuple[int], np.dtype[np.float64]] | None, expected: list[float]
) -> None:
    rows = Rows(np.zeros((5, 1), np.int32), DROP, None, weight)
    parts = [rows[:2], rows[2:]]
    factor = drop_factor(drop_weight, 10, parts)
    assert [one for part in parts for one in row_weights(part, factor).tolist()] == expected


@pytest.mark.parametrize("last_pressure", [0, 160, 255])
@pytest.mark.parametrize(("far", "far_less"), [(0, 16), (17, 16), (100, 16), (100, 0), (254, 255), (255, 16)])
@pytest.mark.parametrize("numbers", [(-1, 255, 136, 136), (17, 229, 136, 176), (17, 255, 255, 255), (-1, 200, 8, 255)])
def test_far_and_last_packets_have_limits_of_their_own(
    numbers: tuple[int, int, int, int], last_pressure: int, far: int, far_less: int
) -> None:
    rule = SharingRule(*numbers, last_pressure, far, far_less)
    ensemble = rule.ensemble(cell_bytes=256)
    cuts = {-1, *numbers, last_pressure, far, *(max(0, one - far_less) for one in numbers)}
    values = sorted({0, 255} | {min(max(one + more, 0), 255) for one in cuts for more in (0, 1)})
    seen = np.array(list(itertools.product(values, values, (0, 1), values)), np.int64)
    assert ensemble.exceeds(seen).tolist() == [rule.drops(*row) for row in seen.tolist()]
    assert len(ensemble.trees) <= 2
    assert all(tree.depth <= 4 for tree in ensemble.trees)
    assert [item.name for item in ensemble.features] == list(FEATURES)
    assert ensemble.features[0].params == "cell_bytes=256"


def test_without_far_packets_the_rule_is_one_tree() -> None:
    assert SharingRule(17, 229, 136, 176).ensemble(256) == SharingRule(17, 229, 136, 176, 255, 200, 0).ensemble(256)


def test_the_rule_on_what_tofino_knows() -> None:
    rule = SharingRule(17, 255, 136, 176)
    ensemble = rule.tracked(cell_bytes=256)
    seen = np.array(list(itertools.product((0, 17, 18, 255), (0, 1), (0, 136, 137, 176, 177, 255))), np.int64)
    assert ensemble.exceeds(seen).tolist() == [
        rule.drops(left, 0, first, ratio) for left, first, ratio in seen.tolist()
    ]
    assert [item.name for item in ensemble.features] == list(TRACKED)
    assert [item.params for item in ensemble.features] == ["cell_bytes=256", "", "reported_every=8"]
    with pytest.raises(ForetailError, match=r"^no ingress of Tofino knows the fill of the buffer: set fill to 255$"):
        SharingRule(17, 229, 136, 176).tracked(cell_bytes=256)


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


def test_threads_do_not_change_the_model() -> None:
    one, two = (RandomForest(seed=9, jobs=jobs).fit(X, Y) for jobs in (1, 2))
    assert one.to_ensemble(PAPER_INPUTS) == two.to_ensemble(PAPER_INPUTS)
    assert np.array_equal(one.probability(X), two.probability(X))


def weighing(row: int, weight: float) -> npt.NDArray[Any]:
    return np.where(np.arange(len(Y)) == row, weight, 1.0)


def fitted(**parameters: Any) -> DropPredictor:
    return RandomForest(**parameters).fit(X, Y)


def learned(rows: Any) -> DropPredictor:
    return RandomForest().fit(rows, np.array([True, False]))


ONE_CLASS = Rows(np.zeros((3, 1), np.int32), np.ones(3, np.bool_), None)
heavy: Any = "heavy"
test_what_cannot_be_is_refused = refusing(
    (
        lambda: fitted(trees=0),
        r"predictor\.trees = 0 is out of range: it must be a whole number, at least 1, at most 4,096",
    ),
    (lambda: fitted(trees=2.5), r"predictor\.trees"),
    (lambda: fitted(trees=True), r"predictor\.trees"),
    (lambda: fitted(depth=0), r"predictor\.depth"),
    (lambda: fitted(depth=33), "at most 32"),
    (lambda: fitted(min_leaf_rows=0), r"predictor\.min_leaf_rows"),
    (lambda: fitted(features_per_split=0), "or null"),
    (lambda: fitted(features_per_split=5), "at most the 4 features"),
    (lambda: fitted(bootstrap=1), "true or false"),
    (lambda: fitted(seed=-1), r"predictor\.seed"),
    (lambda: fitted(jobs=0), r"predictor\.jobs"),
    (lambda: learned(np.zeros((0, 4), np.int64)), "the features have"),
    (lambda: learned(np.full((2, 1), 1 << 24)), "the features have"),
    (lambda: learned(np.full((2, 1), -1)), "the features have"),
    (lambda: learned([[0.5], [1.0]]), "the features have"),
    (lambda: RandomForest().fit(X, Y, np.ones(len(Y) - 1)), r"shape \(2999,\) .* pass 3000 numbers"),
    (lambda: RandomForest().fit(X, Y, np.ones((len(Y), 1))), "shape"),
    (lambda: RandomForest().fit(X, Y, np.full(len(Y), "1")), "type"),
    (lambda: RandomForest().fit(X, Y, weighing(7, 0.0)), "row 7 weighs 0"),
    (lambda: RandomForest().fit(X, Y, weighing(8, -2.0)), "row 8 weighs -2"),
    (lambda: RandomForest().fit(X, Y, weighing(9, np.nan)), "row 9 weighs nan"),
    (lambda: drop_factor(0.0, 10, []), "drop_weight is 0.0: set it to a positive number, balanced or cost"),
    (lambda: drop_factor(float("nan"), 10, []), "positive number"),
    (lambda: drop_factor(heavy, 10, []), "drop_weight is heavy"),
    (lambda: drop_factor("cost", 1, []), "a switch of 1 ports"),
    (lambda: drop_factor("balanced", 10, [ONE_CLASS]), "none of one"),
    (
        lambda: require_alpha_tree(model(name="fill", params=""), "m"),
        "m predicts no alpha, for it does not read counters",
    ),
    (lambda: require_alpha_tree(model(params=""), "m"), "m predicts no alpha"),
    (lambda: require_alpha_tree(model(params="interval_ns=0100"), "m"), "m predicts no alpha"),
    (
        lambda: require_alpha_tree(model(value=0.5), "m"),
        "m is not one tree with whole numbers from -7 to 6 in its leaves",
    ),
    (lambda: require_alpha_tree(model(value=7.0), "m"), "m is not one tree with whole numbers"),
    (lambda: require_alpha_tree(replace(model(), base=1.0), "m"), "m is not one tree"),
    (lambda: require_alpha_tree(replace(model(), trees=model().trees * 2), "m"), "m is not one tree"),
)


ROWS, LABELS = synthetic_arrivals(rows=2000, seed=1)
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
    model = clone(DropClassifier(forest)).set_params(predictor__trees=3).fit(ROWS, LABELS)
    assert (forest.trees, model.predictor_.trees, model.get_params()["predictor__depth"]) == (2, 3, 3)
    probability = RandomForest(trees=3, depth=3).fit(ROWS, LABELS).probability(ROWS)
    assert np.array_equal(model.predict_proba(ROWS), np.stack([1 - probability, probability], axis=1))
    assert np.array_equal(model.predict(ROWS), probability > 0.5)
    named = DropClassifier(forest).fit(ROWS.astype(float), np.where(LABELS, "drop", "accept"))
    assert set(named.predict(ROWS)) == {"accept", "drop"}


def test_refusals() -> None:
    with pytest.raises(ForetailError, match="RandomForest has no parameter leaves: it takes trees, depth"):
        RandomForest().set_params(leaves=3)
    with pytest.raises(ForetailError, match="pass at least one row of integers"):
        DropClassifier().fit(ROWS + 0.5, LABELS)
    with pytest.raises(ValueError, match="the labels have 1 class"):
        DropClassifier().fit(ROWS, LABELS, np.where(LABELS, 0.0, 1.0))
