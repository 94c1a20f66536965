"""Baselines: round robin, Mars, Valiant routing, the steps of Birkhoff and von Neumann."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge.circuits.demand import all_to_all, random_hose, ring
from foretail.sim_bridge.circuits.schedules import (
    best_degree,
    birkhoff_steps,
    mars,
    round_robin,
    stuffed,
    vermilion,
    whole,
)
from foretail.sim_bridge.circuits.throughput import multi_hop, valiant
from tests.examples import draws
from tests.sim_bridge.circuits.test_fabric import demands


@settings(max_examples=draws(50))
@given(st.integers(2, 12), st.data())
def test_round_robin_meets_everyone_equally_often(nodes: int, data: st.DataObject) -> None:
    degree = data.draw(st.integers(1, nodes - 1))
    schedule = round_robin(nodes, degree)
    assert np.allclose(schedule.capacity, (1 - np.eye(nodes)) * degree / (nodes - 1))
    assert (schedule.period * degree) % (nodes - 1) == 0
    assert schedule.period <= nodes - 1


@settings(max_examples=draws(30))
@given(demands(3, 6), demands(3, 6))
def test_valiant_is_a_routing_and_looks_at_sums_only(demand: DemandMatrix, predicted: DemandMatrix) -> None:
    capacity = vermilion(predicted, 1, 3).capacity
    on_it = random_hose(predicted.nodes, 1)
    assert valiant(on_it, capacity) <= multi_hop(on_it, capacity).theta + 1e-6
    assert valiant(on_it, capacity) == pytest.approx(valiant(all_to_all(predicted.nodes, 1), capacity))
    scaled = valiant(demand.scaled_to(2), round_robin(demand.nodes, 1).capacity)
    assert valiant(demand.scaled_to(1), round_robin(demand.nodes, 1).capacity) == pytest.approx(2 * scaled)


def test_valiant_on_a_ring_by_hand() -> None:
    """Each leg goes 0, 1 or 2 hops round a ring of 3: its edges carry 1 per leg."""
    capacity = np.roll(np.eye(3), 1, axis=1)
    assert valiant(ring(3, 1), capacity) == pytest.approx(1 / 2)


@settings(max_examples=draws(50))
@given(st.integers(2, 40), st.integers(1, 4), st.data())
def test_mars_emulates_a_de_bruijn_graph(nodes: int, uplinks: int, data: st.DataObject) -> None:
    uplinks = min(uplinks, nodes // 2)
    degree = uplinks * data.draw(st.integers(2, nodes // uplinks))
    schedule = mars(nodes, uplinks, degree, seed=data.draw(st.integers(0, 9)))
    assert schedule.matchings.shape == (degree // uplinks, uplinks, nodes)
    wanted = np.zeros((nodes, nodes), np.int64)
    for node in range(nodes):
        for digit in range(degree):
            wanted[node, (node * degree + digit) % nodes] += 1
    np.fill_diagonal(wanted, 0)
    assert np.array_equal(schedule.edges, wanted)


def test_the_real_graph_has_other_best_degrees_than_the_formula() -> None:
    """Valiant throughput of de Bruijn graphs of 64 nodes does not grow with the degree."""
    even = all_to_all(64, 1)
    found = {degree: valiant(even, mars(64, 1, degree).capacity) for degree in (4, 8, 16, 32, 64)}
    assert found == pytest.approx({4: 8 / 57, 8: 4 / 17, 16: 2 / 9, 32: 8 / 39, 64: 1 / 2})
    assert best_degree(64, 8, 32) == 8
    assert best_degree(64, 8, 64) == 64


@settings(max_examples=draws(60))
@given(demands(), st.integers(1, 3))
def test_birkhoff_steps_are_the_demand_and_few(demand: DemandMatrix, degree: int) -> None:
    exact = stuffed(whole(demand.scaled_to(degree)))
    assert len(set(exact.sum(axis=0)) | set(exact.sum(axis=1))) == 1
    steps = list(birkhoff_steps(exact))
    assert len(steps) <= demand.nodes**2 - 2 * demand.nodes + 2
    for partner, units in steps:
        exact[np.arange(demand.nodes), partner] -= units
        assert exact.min() == 0
    assert not exact.any()


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: round_robin(1, 1), "nodes is 1"),
        (lambda: round_robin(4, 4), "degree is 4"),
        (lambda: mars(8, 1, 1), "degree is 1"),
        (lambda: mars(8, 2, 10), "degree is 10"),
        (lambda: mars(8, 2, 5), "no multiple of 2 uplinks"),
        (lambda: best_degree(16, 17, 17), "uplinks is 17"),
        (lambda: best_degree(16, 4, 3), "no multiple of 4 uplinks"),
    ],
)
def test_what_makes_no_baseline_is_refused(call: object, complaint: str) -> None:
    assert callable(call)
    with pytest.raises(ForetailError, match=complaint):
        call()
