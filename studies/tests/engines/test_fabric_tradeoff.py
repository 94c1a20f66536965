"""Noise on predictions, predictions as wrong as can be, the best distribution of trust, and what is expected of it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge.circuits.demand import chessboard, random_hose, ring
from foretail.sim_bridge.circuits.schedules import (
    randomised_consistency,
    randomised_robustness,
    robustness,
    vermilion,
)
from foretail.sim_bridge.circuits.throughput import multi_hop
from foretail_studies.engines.circuits import (
    EVALUATION_MATRICES,
    Noise,
    best_distribution,
    evaluation_matrix,
    noisy,
    worst_prediction,
)
from tests.examples import draws
from tests.sim_bridge.circuits.test_fabric import demands

KINDS: tuple[Noise, ...] = ("additive", "multiplicative")


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_the_prediction_is_the_matrix(kind: Noise) -> None:
    demand = chessboard(8, 4)
    wrong = noisy(demand, 0, kind, 1)
    assert wrong.demand.max() == pytest.approx(10)
    assert np.allclose(wrong.scaled_to(4).demand, demand.demand)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trust", [2, 5, 10])
def test_noise_costs_no_more_than_the_robustness(kind: Noise, trust: int) -> None:
    demand = ring(8, 4)
    right = multi_hop(demand, vermilion(demand, 4, trust).capacity).theta
    for seed in range(5):
        wrong = multi_hop(demand, vermilion(noisy(demand, 10, kind, seed), 4, trust).capacity).theta
        assert robustness(trust) - 1e-6 <= wrong <= right + 1e-6


@settings(max_examples=draws(40))
@given(st.integers(1, 9), st.floats(0, 0.5))
def test_no_mixture_of_two_is_better(largest: int, floor: float) -> None:
    found = best_distribution(largest, floor)
    assert randomised_robustness(found.tolist()) >= floor - 1e-9
    best = 0.0
    for a, b in (*combinations(range(1, largest + 1), 2), *((r, r) for r in range(1, largest + 1))):
        for share in (0.0, 1.0, 2 * a * b / (b - a) * floor - a / (b - a) if a != b else 1.0):
            mixed = np.zeros(largest)
            mixed[a - 1] += share
            mixed[b - 1] += 1 - share
            if 0 <= share <= 1 and randomised_robustness(mixed.tolist()) >= floor - 1e-12:
                best = max(best, randomised_consistency(mixed.tolist()))
    assert randomised_consistency(found.tolist()) == pytest.approx(best, abs=1e-9)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ForetailError, match="floor between 0 and"):
        best_distribution(10, 0.6)
    with pytest.raises(ForetailError, match="choose at least 1"):
        best_distribution(0, 0.1)
    with pytest.raises(ForetailError, match="deviation -1"):
        noisy(ring(8, 4), -1, "additive", 1)
    with pytest.raises(ForetailError, match="the demand matrix is zero"):
        noisy(DemandMatrix(np.zeros((3, 3))), 1, "additive", 1)


@settings(max_examples=draws(25), deadline=None)
@given(demands(2, 6), st.data())
def test_the_expected_throughput_of_a_drawn_k_is_what_is_proven(demand: DemandMatrix, data: st.DataObject) -> None:
    """Theorems 26 and 27, with exact expectations over k."""
    nodes = demand.nodes
    degree = data.draw(st.sampled_from([d for d in range(1, nodes + 1) if nodes % d == 0]))
    weight = data.draw(st.lists(st.floats(0, 1), min_size=1, max_size=6).filter(lambda drawn: sum(drawn) > 0.1))
    mass = [share / sum(weight) for share in weight]
    wrong, seed = data.draw(demands(nodes, nodes)), data.draw(st.integers(0, 99))
    saturated = demand.scaled_to(degree)
    for predicted, proven in ((saturated, randomised_consistency(mass)), (wrong, randomised_robustness(mass))):
        theta = [
            multi_hop(saturated, vermilion(predicted, degree, k, seed=seed).capacity).theta
            for k in range(1, len(mass) + 1)
        ]
        assert np.dot(mass, theta) >= proven - 1e-6


@given(st.integers(4, 9), st.integers(0, 99))
def test_the_worst_prediction_is_the_least_permutation_that_was_tried(nodes: int, seed: int) -> None:
    demand, tried = random_hose(nodes, 1, seed), []

    def throughput(predicted: DemandMatrix) -> float:
        matrix = predicted.demand
        assert np.array_equal(matrix.sum(axis=0), np.ones(nodes))
        assert np.array_equal(matrix.sum(axis=1), np.ones(nodes))
        tried.append(float((matrix * demand.demand).sum() + matrix[0, 1]))
        return tried[-1]

    found = worst_prediction(demand, throughput, 20, seed)
    assert len(tried) == 21
    assert found.theta == min(tried)
    assert throughput(found.prediction) == found.theta


def test_the_robustness_is_tight() -> None:
    """Theorem 25 promises 1 / (2 gamma); on a ring the search finds a prediction that leaves no more."""
    demand = ring(8, 4)
    found = worst_prediction(demand, lambda p: multi_hop(demand, vermilion(p, 4, 3).capacity).theta, 40)
    assert found.theta == pytest.approx(robustness(3), abs=1e-6)


@pytest.mark.parametrize("name", [*EVALUATION_MATRICES, "skew-0", "skew-0.3", "skew-1"])
def test_a_matrix_of_the_evaluation_fills_the_uplinks(name: str) -> None:
    demand = evaluation_matrix(name, 8, 4, 3)
    demand.require_hose(4)
    assert demand.largest_sum == pytest.approx(4)
