"""Permutation importance and forward selection of features, where it is known what each feature tells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretail.features.catalog import selection_cost
from foretail.features.rows.labelled_rows import Rows
from foretail.models.drop.boosted import BoostedTrees
from foretail.models.drop.feature_selection import (
    FeatureBudget,
    SelectedFeatures,
    permutation_importance,
    select_features,
)
from foretail.models.scoring.metrics import rank
from tests.refusals import refusing

NAMES = ("threshold_gap", "threshold_average", "threshold", "threshold_rank", "threshold_max")
NOISE, COPY, DECIDES, HELPS, _ = NAMES
PORTS = 8


def rows(seed: int, count: int = 2000) -> Rows:
    """Noise, a copy, what mostly decides, what decides the rest, and a constant."""
    draw = np.random.default_rng(seed)
    decides, helps, noise = draw.integers(0, 1000, (3, count))
    x = np.stack([noise, decides, decides, helps, np.full(count, 7)], axis=1).astype(np.int32)
    return Rows(x, (decides > 800) & (helps > 300), None)


TRAIN, VALIDATION = rows(1), rows(2)


def make() -> BoostedTrees:
    return BoostedTrees(trees=4, depth=3, learning_rate=1.0)


def selected(
    budget: FeatureBudget, names: tuple[str, ...] = NAMES, margin: float = 0.03
) -> tuple[SelectedFeatures, ...]:
    places = [NAMES.index(name) for name in names]
    train, validation = (replace(side, x=side.x[:, places]) for side in (TRAIN, VALIDATION))
    return select_features(make, names, train, validation, ports=PORTS, budget=budget, margin=margin)


def test_the_path_takes_the_cheaper_of_two_copies_then_what_is_left_and_ends_there() -> None:
    path = selected(FeatureBudget())
    assert [step.names for step in path] == [(DECIDES,), (DECIDES, HELPS)]
    for step in path:
        assert step.cost == selection_cost(step.names, PORTS)
        places = [NAMES.index(name) for name in step.names]
        model = make().fit(TRAIN.x[:, places], TRAIN.lqd_drop)
        score = rank(VALIDATION.lqd_drop, model.probability(VALIDATION.x[:, places])).average_precision
        assert step.average_precision == score
    assert VALIDATION.lqd_drop.mean() < path[0].average_precision < path[1].average_precision
    assert path == selected(FeatureBudget())


def test_rows_of_a_sample_count_as_all_that_they_stand_for() -> None:
    weight = np.random.default_rng(3).choice([1.0, 50.0], len(TRAIN))
    sampled = replace(TRAIN, weight=weight)
    one = FeatureBudget(features=1)
    path = select_features(make, NAMES, sampled, VALIDATION, ports=PORTS, budget=one, margin=0.03)
    places = [NAMES.index(name) for name in path[-1].names]
    models = [make().fit(TRAIN.x[:, places], TRAIN.lqd_drop, given) for given in (weight, None)]
    scores = [
        rank(VALIDATION.lqd_drop, model.probability(VALIDATION.x[:, places])).average_precision for model in models
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


def test_importance_is_the_fall_of_average_precision_over_shuffles() -> None:
    places = [NAMES.index(name) for name in (NOISE, DECIDES, HELPS, "threshold_max")]
    x, labels = VALIDATION.x[:, places], VALIDATION.lqd_drop
    model = make().fit(TRAIN.x[:, places], TRAIN.lqd_drop)
    before = x.copy()
    noise, decides, helps, constant = permutation_importance(model, x, labels, 20, 1)
    np.testing.assert_array_equal(x, before)
    assert decides.mean > helps.mean > 10 * abs(noise.mean)
    assert (constant.mean, constant.deviation) == (0, 0)
    draw, falls = np.random.default_rng(9), []
    whole = rank(labels, model.probability(x)).average_precision
    for _ in range(20):
        shuffled = x.copy()
        shuffled[:, 1] = draw.permutation(x[:, 1])
        falls.append((whole or 0) - (rank(labels, model.probability(shuffled)).average_precision or 0))
    error = np.hypot(np.std(falls), decides.deviation) / np.sqrt(20)
    assert abs(np.mean(falls) - decides.mean) < 5 * error
    assert 0.3 < decides.deviation / np.std(falls) < 3


def chosen_from(first: str, train: Rows = TRAIN, validation: Rows = VALIDATION) -> object:
    names = (first, *NAMES[1:])
    return select_features(make, names, train, validation, ports=PORTS, budget=FeatureBudget(), margin=0.0)


NONE = replace(VALIDATION, lqd_drop=np.zeros(len(VALIDATION), np.bool_))
test_what_cannot_be_selected_is_refused = refusing(
    (
        lambda: selected(FeatureBudget(operations=0), (DECIDES,), 0.0),
        "no feature fits the budget .operations <= 0., thr",
    ),
    (lambda: selected(FeatureBudget(), (NOISE,), 0.5), "adds more than 0.5 to"),
    (lambda: selected(FeatureBudget(), (DECIDES, DECIDES), 0.0), "chosen more than once"),
    (lambda: chosen_from("no_such"), "unknown feature 'no_such'"),
    (lambda: chosen_from("incast"), "no switch can know"),
    (lambda: chosen_from(NAMES[0], TRAIN, NONE), "hold no drop"),
    (lambda: chosen_from(NAMES[0], NONE, VALIDATION), "hold no drop"),
    (lambda: permutation_importance(make().fit(TRAIN.x, TRAIN.lqd_drop), NONE.x, NONE.lqd_drop, 2, 1), "hold no drop"),
)
