"""Multi-hop throughput by the primal-dual method, beside the linear program and bounds by slow loops: 2 CPU seconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge._native import ConcurrentFlow
from foretail.sim_bridge.circuits.demand import permutation, random_hose, skewed_uniform
from foretail.sim_bridge.circuits.schedules import expander, vermilion
from foretail.sim_bridge.circuits.throughput import MultiHop, multi_hop
from tests.examples import draws

FloatArray = NDArray[np.float64]


def delivered(found: MultiHop, demand: DemandMatrix, capacity: FloatArray) -> float:
    """The least share of a demand that arrives, after every edge and every relay was looked at."""
    share = np.inf
    for i, j in np.ndindex(capacity.shape):
        assert found.flow[:, i, j].sum() <= capacity[i, j] + 1e-9
    for s, t in np.ndindex(capacity.shape):
        if s != t:
            kept = found.flow[s, :, t].sum() - found.flow[s, t].sum()
            assert kept >= -1e-9
            if demand.demand[s, t] > 0:
                share = min(share, kept / demand.demand[s, t])
    return share


def bound(found: MultiHop, demand: DemandMatrix, capacity: FloatArray) -> float:
    """What the lengths prove, by Floyd and Warshall's algorithm."""
    distance = np.where(capacity > 0, found.length, np.inf)
    np.fill_diagonal(distance, 0)
    for via in range(len(distance)):
        distance = np.minimum(distance, distance[:, [via]] + distance[[via]])
    wanted = demand.demand > 0
    return float((capacity * found.length).sum() / (demand.demand[wanted] * distance[wanted]).sum())


@settings(max_examples=draws(60))
@given(st.integers(2, 8), st.integers(0, 2**32 - 1), st.sampled_from([0.3, 0.6, 1.0]), st.sampled_from([0.1, 1e-3]))
def test_bounds_hold_and_enclose_the_linear_program(nodes: int, seed: int, share: float, epsilon: float) -> None:
    random = np.random.default_rng(seed)
    demand = random.exponential(1, (nodes, nodes)) * (random.random((nodes, nodes)) < share)
    np.fill_diagonal(demand, 0)
    demand[0, 1] += 1
    capacity = random.exponential(1, (nodes, nodes)) * (random.random((nodes, nodes)) < share)
    ring = np.roll(np.eye(nodes), 1, axis=1)  # connects all
    capacity = (capacity + 0.1 * ring) * (1 - np.eye(nodes))
    matrix = DemandMatrix(demand).scaled_to(1)
    found, exact = multi_hop(matrix, capacity, epsilon), multi_hop(matrix, capacity).theta
    assert delivered(found, matrix, capacity) >= found.theta * (1 - 1e-6)
    assert exact - 1e-6 <= bound(found, matrix, capacity) <= found.theta * (1 + epsilon) + 1e-6
    assert found.theta <= exact + 1e-6


@pytest.mark.parametrize("demand", [random_hose(16, 4), permutation(16, 4), skewed_uniform(16, 4, 0.5)])
def test_graphs_of_schedules_are_as_the_linear_program_says(demand: DemandMatrix) -> None:
    for capacity in (vermilion(demand, 4, 3).capacity, expander(16, 4, 1).capacity):
        exact = multi_hop(demand, capacity).theta
        for epsilon in (0.05, 1e-4):
            found = multi_hop(demand, capacity, epsilon)
            assert exact / (1 + epsilon) - 1e-6 <= found.theta <= exact + 1e-6


def test_a_demand_without_a_path_has_no_throughput() -> None:
    demand, capacity = DemandMatrix(np.array([[0, 1.0], [1.0, 0]])), np.array([[0, 1.0], [0, 0]])
    assert multi_hop(demand, capacity, 0.1).theta == 0
    with pytest.raises(ValueError, match="no path"):
        ConcurrentFlow(capacity, np.ascontiguousarray(demand.demand))


def test_what_has_no_bounds_is_refused() -> None:
    demand, capacity = permutation(4, 1), np.ones((4, 4)) - np.eye(4)
    with pytest.raises(ForetailError, match="demand matrix is zero"):
        multi_hop(DemandMatrix(np.zeros((4, 4))), capacity, 0.1)
    with pytest.raises(ForetailError, match="give 0 for the linear program, or more"):
        multi_hop(demand, capacity, -0.1)
    with pytest.raises(ForetailError, match="give at most 512 nodes"):
        multi_hop(permutation(513, 1), np.ones((513, 513)) - np.eye(513), 0.1)
    found = multi_hop(demand, capacity, 0.01)
    for wrong in (replace(found, theta=found.theta * 0.97), replace(found, flow=found.flow * 1.05)):
        with pytest.raises(ForetailError, match="report this as a bug"):
            wrong.check(demand, capacity)
