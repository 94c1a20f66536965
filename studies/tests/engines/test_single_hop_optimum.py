"""The best single-hop schedule: against brute force, never below Vermilion, exact on near ties."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge.circuits.demand import MATRICES, all_to_all, random_hose
from foretail.sim_bridge.circuits.schedules import next_period_factor, vermilion
from foretail.sim_bridge.circuits.throughput import multi_hop, single_hop
from foretail_studies.engines.circuits import single_hop_optimum
from tests.examples import draws
from tests.sim_bridge.circuits.test_fabric import demands


def rounding_gap(
    demand: DemandMatrix, degree: int, k: int, oblivious: int = 1, seed: int = 1
) -> tuple[float, float, float]:
    """Single-hop throughput of Vermilion, and of the best schedules of its period: as robust, and of all."""
    schedule = vermilion(demand, degree, k, oblivious, seed)
    robust, best = (float(single_hop_optimum(demand, degree, schedule.period, kept).theta) for kept in (oblivious, 0))
    return single_hop(demand, schedule.capacity), robust, best


def _brute_force(demand: DemandMatrix, degree: int, period: int, oblivious: int) -> Fraction:
    """Return the best throughput over all multigraphs of degree at most ``degree * period``, no pair below `oblivious`.

    Pairs without demand get the least.
    """
    nodes, circuits = demand.nodes, degree * period
    rows = []
    for node in range(nodes):
        least = [oblivious * (to != node) for to in range(nodes)]
        most = [circuits if demand.demand[node, to] > 0 else least[to] for to in range(nodes)]
        choices = product(*(range(low, high + 1) for low, high in zip(least, most, strict=True)))
        rows.append([choice for choice in choices if sum(choice) <= circuits])
    best = Fraction(0)
    for edges in product(*rows):
        if max(map(sum, zip(*edges, strict=True))) <= circuits:
            theta = min(
                Fraction(edges[i][j]) / Fraction(demand.demand[i, j]) / period
                for i, j in zip(*np.nonzero(demand.demand), strict=True)
            )
            best = max(best, theta)
    return best


@settings(max_examples=draws(60))
@given(demands(2, 3), st.sampled_from([(1, 1, 0), (1, 2, 0), (2, 1, 0), (1, 3, 0), (1, 2, 1), (1, 3, 1), (2, 2, 1)]))
def test_no_multigraph_is_better(demand: DemandMatrix, size: tuple[int, int, int]) -> None:
    assert single_hop_optimum(demand, *size).theta == _brute_force(demand, *size)


@settings(max_examples=draws(60))
@given(demands(), st.integers(1, 6), st.integers(0, 9), st.data())
def test_the_schedule_reaches_it_and_vermilion_never_more(
    demand: DemandMatrix, k: int, seed: int, data: st.DataObject
) -> None:
    degree = data.draw(st.integers(1, min(3, demand.nodes)))
    k = next_period_factor(demand.nodes, degree, k)
    period = k * demand.nodes // degree
    oblivious = data.draw(st.integers(0, k))
    best = single_hop_optimum(demand, degree, period, oblivious, seed)
    assert best.schedule.matchings.shape == (period, degree, demand.nodes)
    assert np.all(best.edges.sum(axis=0) == degree * period)
    assert np.all(best.edges.sum(axis=1) == degree * period)
    assert best.schedule.edges[~np.eye(demand.nodes, dtype=bool)].min() >= oblivious
    reached = single_hop(demand, best.schedule.capacity)
    assert reached == pytest.approx(float(best.theta), rel=1e-12)
    reached, robust, optimum = rounding_gap(demand, degree, k, data.draw(st.integers(1, k)), seed)
    assert 0 < reached <= robust * (1 + 1e-12)
    assert robust <= optimum


@settings(max_examples=draws(30))
@given(demands(5, 5), demands(5, 5), st.integers(1, 6), st.data())
def test_oblivious_circuits_make_it_as_robust_as_vermilion(
    truth: DemandMatrix, predicted: DemandMatrix, k: int, data: st.DataObject
) -> None:
    """Theorem 25: at least l / (2 k), whatever the prediction."""
    oblivious = data.draw(st.integers(1, k))
    schedule = single_hop_optimum(predicted, 1, 5 * k, oblivious).schedule
    assert multi_hop(truth.scaled_to(1), schedule.capacity).theta >= oblivious / (2 * k) - 1e-6


@pytest.mark.parametrize("name", MATRICES)
def test_vermilion_is_near_it_on_the_papers_matrices(name: str) -> None:
    reached, robust, optimum = rounding_gap(MATRICES[name](16, 4), 4, 3)
    assert optimum <= 1 + 1e-12
    assert 2 / 3 <= reached <= robust <= optimum


def test_entries_that_differ_in_the_last_bit_share_the_circuits() -> None:
    demand = np.array(all_to_all(8, 1).demand)
    demand[0, 1:] = np.nextafter(demand[0, 1:], 1)
    best = single_hop_optimum(DemandMatrix(demand), 1, 21)
    assert best.theta == 3 / Fraction(demand.max()) / 21
    assert np.array_equal(best.edges, 3 * (1 - np.eye(8)))


def test_numbers_far_apart_stay_exact() -> None:
    demand = np.zeros((3, 3))
    demand[0, 1], demand[0, 2] = 1e-300, 1e300
    assert single_hop_optimum(DemandMatrix(demand), 1, 4).theta == Fraction(3, 4) / Fraction(1e300)


@pytest.mark.parametrize(
    ("demand", "degree", "period", "complaint"),
    [
        (random_hose(4, 1), 0, 1, "degree is 0"),
        (random_hose(4, 1), 5, 1, "degree is 5"),
        (random_hose(4, 1), 2, 0, "period is 0"),
        (random_hose(4, 1), 1, 1 << 22, "choose 1 to 4194303"),
        (DemandMatrix(np.zeros((3, 3))), 1, 1, "is zero"),
    ],
)
def test_what_has_no_schedule_is_refused(demand: DemandMatrix, degree: int, period: int, complaint: str) -> None:
    with pytest.raises(ForetailError, match=complaint):
        single_hop_optimum(demand, degree, period)


@pytest.mark.parametrize("oblivious", [-1, 3])
def test_more_oblivious_circuits_than_there_are_is_refused(oblivious: int) -> None:
    with pytest.raises(ForetailError, match=f"l is {oblivious}: choose 0 to 2 circuits"):
        single_hop_optimum(random_hose(4, 1), 1, 8, oblivious)
