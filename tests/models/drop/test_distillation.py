"""Distillation: the student is an ensemble like any other, within its budget, and decides as its teacher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from foretail.export.passes import lower
from foretail.models.drop.distillation import LIGHTEST, Budget, Student, distill
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.scoring.metrics import Confusion
from foretail.testing import synthetic_arrivals
from tests.forests import PAPER_INPUTS, paper_forest
from tests.refusals import refusing

X, Y = synthetic_arrivals(rows=20_000, seed=3)
VALIDATION, _ = synthetic_arrivals(rows=20_000, seed=4)
TEST, _ = synthetic_arrivals(rows=20_000, seed=5)


@cache
def teacher_trees() -> Ensemble:
    return paper_forest(trees=3, depth=3, seed=9).ensemble


def students(
    budget: Budget,
    threshold: float = 0.3,
    inputs: Sequence[FeatureInput] = PAPER_INPUTS,
    region: npt.NDArray[np.bool_] | None = None,
) -> tuple[Student, ...]:
    return distill(teacher_trees().probability, threshold, inputs, X, VALIDATION, budget, seed=1, region=region)


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
    best, _ = students(Budget(2, 3), region=region)
    chosen = VALIDATION[region]
    assert Confusion.count(teacher_trees().probability(chosen) > 0.3, best.ensemble.exceeds(chosen)) == best.validation


NARROW = tuple(replace(item, bits=4) for item in PAPER_INPUTS)
NEVER = np.zeros(len(VALIDATION), np.bool_)
test_what_cannot_be_distilled_is_refused = refusing(
    (lambda: Budget(0, 4), r"student\.trees is 0"),
    (lambda: Budget(4, 0), r"student\.depth is 0"),
    (lambda: Budget(4, 4, 7), r"student\.leaves is 7, fewer than two for each of 4 trees"),
    (lambda: students(Budget(2, 2), threshold=1.0), "drops none of the 20000 training rows"),
    (lambda: students(Budget(2, 2), threshold=-1.0), "drops all of the 20000 training rows"),
    (lambda: students(Budget(2, 2), region=NEVER), "drops none of the validation rows"),
    (lambda: students(Budget(2, 2), inputs=NARROW), r"outside \[0, 2\*\*4\)"),
)
