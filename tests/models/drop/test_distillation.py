"""Distillation: the student is an ensemble like any other, within its budget, and decides as its teacher."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from foretail.core.errors import ForetailError
from foretail.export.passes import lower
from foretail.features.catalog import SelectionCost, selection_cost
from foretail.features.rows.labelled_rows import Rows
from foretail.models.drop.boosted import BoostedTrees
from foretail.models.drop.contract import synthetic_arrivals
from foretail.models.drop.distillation import LIGHTEST, Budget, Student, distill
from foretail.models.drop.feature_selection import (
    FeatureBudget,
    SelectedFeatures,
    permutation_importance,
    select_features,
)
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.scoring.metrics import Confusion, rank
from tests.forests import PAPER_INPUTS, paper_forest

X, Y = synthetic_arrivals(rows=20_000, seed=3)
VALIDATION, _ = synthetic_arrivals(rows=20_000, seed=4)
TEST, _ = synthetic_arrivals(rows=20_000, seed=5)


@cache
def teacher_trees() -> Ensemble:
    return paper_forest(trees=3, depth=3, seed=9).ensemble


def students(budget: Budget, threshold: float = 0.3, seed: int = 1) -> tuple[Student, ...]:
    return distill(teacher_trees().probability, threshold, PAPER_INPUTS, X, VALIDATION, budget, seed=seed)


@pytest.fixture(scope="module")
def both() -> tuple[Student, ...]:
    return students(Budget(4, 4))


def test_students_decide_as_the_teacher_the_best_first(both: tuple[Student, ...]) -> None:
    assert {student.answers for student in both} == {"decisions", "probabilities"}
    agreement = []
    for student in both:
        counted = Confusion.count(teacher_trees().probability(VALIDATION) > 0.3, student.ensemble.exceeds(VALIDATION))
        assert counted == student.validation
        agreement.append(counted.f1)
    assert agreement == sorted(agreement, reverse=True)  # type: ignore[type-var]
    unseen = Confusion.count(teacher_trees().probability(TEST) > 0.3, both[0].ensemble.exceeds(TEST)).f1
    assert unseen is not None
    assert unseen > 0.8


def test_a_student_is_an_ensemble_like_any_other(both: tuple[Student, ...]) -> None:
    for student in both:
        ensemble = student.ensemble
        assert Ensemble.from_json(ensemble.to_json()) == ensemble
        assert ensemble.features == PAPER_INPUTS
        assert ensemble.origin["distilled_from"] == student.answers
        forest = student.forest.predict_proba(TEST)[:, 1]
        np.testing.assert_allclose(ensemble.probability(TEST), forest, rtol=1e-12, atol=1e-12)
        clear = np.abs(forest - student.probability_threshold) > 1e-9
        assert np.array_equal(ensemble.exceeds(TEST)[clear], forest[clear] > student.probability_threshold)
        voted = lower(ensemble).ensemble
        assert voted.default_tau is not None
        assert np.array_equal(voted.score(TEST) > voted.default_tau, ensemble.exceeds(TEST))


@pytest.mark.parametrize("budget", [Budget(1, 1), Budget(3, 2), Budget(4, 8, 16), Budget(2, 32, 5), Budget(5, 3, 10)])
def test_students_stay_within_their_budget(budget: Budget) -> None:
    for student in students(budget):
        trees = student.ensemble.trees
        assert len(trees) == budget.trees
        assert max(estimator.get_depth() for estimator in student.forest.estimators_) <= budget.depth
        if budget.leaves is not None:
            assert sum(len(tree.leaves) for tree in trees) <= budget.leaves


def test_a_student_of_probabilities_learns_their_mean() -> None:
    def teacher(x: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
        return np.where(x[:, 0] > 100, 0.75, 0.125)

    rows = np.stack([np.arange(400) % 200] * 4, axis=1).astype(np.int32)
    found = distill(teacher, 0.5, PAPER_INPUTS, rows, rows, Budget(1, 1))
    (student,) = (student for student in found if student.answers == "probabilities")
    leaves = np.sort(student.ensemble.trees[0].value[student.ensemble.trees[0].leaves])
    # a bootstrap of rows that come twice moves the mean
    np.testing.assert_allclose(leaves, [0.125, 0.75], atol=0.1)
    assert LIGHTEST < 0.125
    assert np.array_equal(student.ensemble.exceeds(rows), teacher(rows) > 0.5)


def test_only_rows_of_the_region_count() -> None:
    region = VALIDATION[:, 2] > 3900
    best, _ = distill(teacher_trees().probability, 0.3, PAPER_INPUTS, X, VALIDATION, Budget(2, 3), region=region)
    chosen = VALIDATION[region]
    assert Confusion.count(teacher_trees().probability(chosen) > 0.3, best.ensemble.exceeds(chosen)) == best.validation


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        ((0, 4), r"student\.trees is 0"),
        ((4, 0), r"student\.depth is 0"),
        ((4, 4, 7), r"student\.leaves is 7, fewer than two for each of 4 trees"),
    ],
)
def test_budgets_without_a_tree_are_refused(budget: tuple[int, ...], says: str) -> None:
    with pytest.raises(ForetailError, match=says):
        Budget(*budget)


def test_a_teacher_without_both_answers_is_refused() -> None:
    with pytest.raises(ForetailError, match="drops none of the 20000 training rows"):
        students(Budget(2, 2), threshold=1.0)
    with pytest.raises(ForetailError, match="drops all of the 20000 training rows"):
        students(Budget(2, 2), threshold=-1.0)
    never = np.zeros(len(VALIDATION), np.bool_)
    with pytest.raises(ForetailError, match="drops none of the validation rows"):
        distill(teacher_trees().probability, 0.3, PAPER_INPUTS, X, VALIDATION, Budget(2, 2), region=never)


def test_inputs_of_too_few_bits_are_refused() -> None:
    narrow = tuple(replace(item, bits=4) for item in PAPER_INPUTS)
    with pytest.raises(ForetailError, match=r"outside \[0, 2\*\*4\)"):
        distill(teacher_trees().probability, 0.3, narrow, X, VALIDATION, Budget(2, 2))


NAMES = ("threshold_gap", "threshold_average", "threshold", "threshold_rank", "threshold_max")
NOISE, COPY, DECIDES, HELPS, __FEATURE_SELECTION = NAMES
PORTS = 8


def rows(seed: int, count: int = 2000) -> Rows:
    """Noise, a copy, what mostly decides, what decides the rest, and a constant."""
    draw = np.random.default_rng(seed)
    decides, helps, noise = draw.integers(0, 1000, (3, count))
    x = np.stack([noise, decides, decides, helps, np.full(count, 7)], axis=1).astype(np.int32)
    return Rows(x, (decides > 800) & (helps > 300), None)


TRAIN, VALIDATION_FEATURE_SELECTION = rows(1), rows(2)


def make() -> BoostedTrees:
    return BoostedTrees(trees=4, depth=3, learning_rate=1.0)


def selected(
    budget: FeatureBudget, names: tuple[str, ...] = NAMES, margin: float = 0.03
) -> tuple[SelectedFeatures, ...]:
    places = [NAMES.index(name) for name in names]
    train, validation = (replace(side, x=side.x[:, places]) for side in (TRAIN, VALIDATION_FEATURE_SELECTION))
    return select_features(make, names, train, validation, ports=PORTS, budget=budget, margin=margin)


def test_the_path_takes_the_cheaper_of_two_copies_then_what_is_left_and_ends_there() -> None:
    path = selected(FeatureBudget())
    assert [step.names for step in path] == [(DECIDES,), (DECIDES, HELPS)]
    for step in path:
        assert step.cost == selection_cost(step.names, PORTS)
        places = [NAMES.index(name) for name in step.names]
        model = make().fit(TRAIN.x[:, places], TRAIN.lqd_drop)
        score = rank(
            VALIDATION_FEATURE_SELECTION.lqd_drop, model.probability(VALIDATION_FEATURE_SELECTION.x[:, places])
        ).average_precision
        assert step.average_precision == score
    assert VALIDATION_FEATURE_SELECTION.lqd_drop.mean() < path[0].average_precision < path[1].average_precision
    assert path == selected(FeatureBudget())


def test_rows_of_a_sample_count_as_all_that_they_stand_for() -> None:
    weight = np.random.default_rng(3).choice([1.0, 50.0], len(TRAIN))
    sampled = replace(TRAIN, weight=weight)
    one = FeatureBudget(features=1)
    path = select_features(make, NAMES, sampled, VALIDATION_FEATURE_SELECTION, ports=PORTS, budget=one, margin=0.03)
    places = [NAMES.index(name) for name in path[-1].names]
    models = [make().fit(TRAIN.x[:, places], TRAIN.lqd_drop, given) for given in (weight, None)]
    scores = [
        rank(
            VALIDATION_FEATURE_SELECTION.lqd_drop, model.probability(VALIDATION_FEATURE_SELECTION.x[:, places])
        ).average_precision
        for model in models
    ]
    assert path[-1].average_precision == scores[0] != scores[1]


@pytest.mark.parametrize(
    ("budget", "chosen"),
    [
        (FeatureBudget(features=1), (DECIDES,)),
        (FeatureBudget(operations=16), (DECIDES,)),
        (FeatureBudget(operations=17), (DECIDES, HELPS)),
        (FeatureBudget(register_bits=0), (DECIDES, HELPS)),
    ],
)
def test_nothing_is_chosen_beyond_the_budget(budget: FeatureBudget, chosen: tuple[str, ...]) -> None:
    path = selected(budget)
    assert path[-1].names == chosen
    assert all(budget.allows(len(step.names), step.cost) for step in path)


def test_what_costs_registers_is_chosen_only_where_they_are_affordable() -> None:
    names = (NOISE, COPY, HELPS)
    bits = selection_cost([COPY], PORTS).register_bits
    assert selected(FeatureBudget(register_bits=bits), names)[-1].names == (COPY, HELPS)
    assert selected(FeatureBudget(register_bits=bits - 1), names)[-1].names == (HELPS,)


def test_a_feature_has_to_add_more_than_the_margin() -> None:
    first, second = selected(FeatureBudget())
    gain = second.average_precision - first.average_precision
    assert selected(FeatureBudget(), margin=gain + 1e-9) == (first,)
    assert selected(FeatureBudget(), margin=gain - 1e-9) == (first, second)


def test_a_limit_counts_what_it_names() -> None:
    cost = SelectionCost(register_bits=10, operations=3)
    assert FeatureBudget(2, 10, 3).allows(2, cost)
    assert FeatureBudget().allows(99, cost)
    for less in (FeatureBudget(features=1), FeatureBudget(register_bits=9), FeatureBudget(operations=2)):
        assert not less.allows(2, cost)
    assert str(FeatureBudget(2, None, 3)) == "features <= 2, operations <= 3"


@pytest.mark.parametrize(
    ("names", "budget", "margin", "why"),
    [
        ((DECIDES,), FeatureBudget(operations=0), 0.0, "no feature fits the budget .operations <= 0., threshold alone"),
        ((NOISE,), FeatureBudget(), 0.5, "adds more than 0.5 to"),
        ((DECIDES, DECIDES), FeatureBudget(), 0.0, "chosen more than once"),
    ],
)
def test_a_selection_of_nothing_is_refused(
    names: tuple[str, ...], budget: FeatureBudget, margin: float, why: str
) -> None:
    with pytest.raises(ForetailError, match=why):
        selected(budget, names, margin)


@pytest.mark.parametrize(("name", "why"), [("no_such", "unknown feature 'no_such'"), ("incast", "no switch can know")])
def test_a_feature_that_no_switch_has_is_refused(name: str, why: str) -> None:
    with pytest.raises(ForetailError, match=why):
        select_features(
            make,
            (name, *NAMES[1:]),
            TRAIN,
            VALIDATION_FEATURE_SELECTION,
            ports=PORTS,
            budget=FeatureBudget(),
            margin=0.0,
        )


def test_sides_without_drops_are_refused() -> None:
    none = replace(VALIDATION_FEATURE_SELECTION, lqd_drop=np.zeros(len(VALIDATION_FEATURE_SELECTION), np.bool_))
    with pytest.raises(ForetailError, match="hold no drop"):
        select_features(make, NAMES, TRAIN, none, ports=PORTS, budget=FeatureBudget(), margin=0.0)
    with pytest.raises(ForetailError, match="hold no drop"):
        select_features(
            make, NAMES, none, VALIDATION_FEATURE_SELECTION, ports=PORTS, budget=FeatureBudget(), margin=0.0
        )
    with pytest.raises(ForetailError, match="hold no drop"):
        permutation_importance(make().fit(TRAIN.x, TRAIN.lqd_drop), none.x, none.lqd_drop, 2, 1)


def test_importance_is_the_fall_of_average_precision_over_shuffles() -> None:
    places = [NAMES.index(name) for name in (NOISE, DECIDES, HELPS, "threshold_max")]
    x, labels = VALIDATION_FEATURE_SELECTION.x[:, places], VALIDATION_FEATURE_SELECTION.lqd_drop
    model = make().fit(TRAIN.x[:, places], TRAIN.lqd_drop)
    before = x.copy()
    noise, decides, helps, constant = permutation_importance(model, x, labels, 20, 1)
    np.testing.assert_array_equal(x, before)
    assert decides.mean > helps.mean > 10 * abs(noise.mean)
    assert (constant.mean, constant.deviation) == (0, 0)
    draw, falls = np.random.default_rng(9), []
    whole = rank(labels, model.probability(x)).average_precision
    for __FEATURE_SELECTION in range(20):
        shuffled = x.copy()
        shuffled[:, 1] = draw.permutation(x[:, 1])
        falls.append((whole or 0) - (rank(labels, model.probability(shuffled)).average_precision or 0))
    error = np.hypot(np.std(falls), decides.deviation) / np.sqrt(20)
    assert abs(np.mean(falls) - decides.mean) < 5 * error
    assert 0.3 < decides.deviation / np.std(falls) < 3
