"""Noise on predictions, and the best distribution of trust."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.features.demand_matrix import DemandMatrix
from foretail.features.errors import ForetailError
from foretail.sim_bridge.fabric.matrices import chessboard, ring
from foretail.sim_bridge.fabric.throughput import multi_hop
from foretail.sim_bridge.fabric.tradeoff import Noise, best_distribution, noisy
from foretail.sim_bridge.fabric.vermilion import (
    consistency,
    randomised_consistency,
    randomised_robustness,
    robustness,
    vermilion,
)

KINDS: tuple[Noise, ...] = ("additive", "multiplicative")


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_the_prediction_is_the_matrix(kind: Noise) -> None:
    demand = chessboard(8, 4)
    wrong = noisy(demand, 0, kind, 1)
    assert wrong.demand.max() == pytest.approx(10)
    assert np.allclose(wrong.scaled_to(4).demand, demand.demand)


def test_only_additive_noise_invents_demand() -> None:
    assert np.all((noisy(ring(8, 4), 3, "multiplicative", 1).demand > 0) <= (ring(8, 4).demand > 0))
    invented = noisy(ring(8, 4), 3, "additive", 1).demand > 0
    assert invented.sum() > 8
    assert not invented.diagonal().any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trust", [2, 5, 10])
def test_noise_costs_no_more_than_the_robustness(kind: Noise, trust: int) -> None:
    demand = ring(8, 4)
    right = multi_hop(demand, vermilion(demand, 4, trust).capacity).theta
    for seed in range(5):
        wrong = multi_hop(demand, vermilion(noisy(demand, 10, kind, seed), 4, trust).capacity).theta
        assert robustness(trust) - 1e-6 <= wrong <= right + 1e-6


@settings(max_examples=40)
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


def test_a_floor_of_a_half_is_the_oblivious_schedule() -> None:
    assert best_distribution(10, 0.5) == pytest.approx([1.0] + [0.0] * 9)
    assert best_distribution(10, 0.0) == pytest.approx([0.0] * 9 + [1.0])
    assert randomised_consistency(best_distribution(10, 0.0).tolist()) == pytest.approx(consistency(10))


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ForetailError, match="floor between 0 and"):
        best_distribution(10, 0.6)
    with pytest.raises(ForetailError, match="choose at least 1"):
        best_distribution(0, 0.1)
    with pytest.raises(ForetailError, match="deviation -1"):
        noisy(ring(8, 4), -1, "additive", 1)
    with pytest.raises(ForetailError, match="the demand matrix is zero"):
        noisy(DemandMatrix(np.zeros((3, 3))), 1, "additive", 1)
