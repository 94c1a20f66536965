"""Baselines: round robin, Mars, Valiant routing, Birkhoff-von Neumann, Solstice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.features.demand.matrix import DemandMatrix
from foretail.features.errors import ForetailError
from foretail.sim_bridge.circuits.demand.matrices import all_to_all, permutation, random_hose, ring
from foretail.sim_bridge.circuits.schedules.birkhoff import birkhoff, birkhoff_steps, stuffed, whole
from foretail.sim_bridge.circuits.schedules.mars import best_degree, mars
from foretail.sim_bridge.circuits.schedules.round_robin import round_robin
from foretail.sim_bridge.circuits.schedules.schedule import IDLE, Schedule
from foretail.sim_bridge.circuits.schedules.solstice import solstice
from foretail.sim_bridge.circuits.schedules.variable_schedule import VariableSchedule
from foretail.sim_bridge.circuits.schedules.vermilion import vermilion
from foretail.sim_bridge.circuits.throughput.throughput import multi_hop, single_hop
from foretail.sim_bridge.circuits.throughput.valiant import valiant
from tests.sim_bridge.test_fabric import demands

_STEPS = Schedule(np.array([[[1, 2, 0]], [[2, 0, 1]]]))


@settings(max_examples=50)
@given(st.integers(2, 12), st.data())
def test_round_robin_meets_everyone_equally_often(nodes: int, data: st.DataObject) -> None:
    degree = data.draw(st.integers(1, nodes - 1))
    schedule = round_robin(nodes, degree)
    assert np.allclose(schedule.capacity, (1 - np.eye(nodes)) * degree / (nodes - 1))
    assert (schedule.period * degree) % (nodes - 1) == 0
    assert schedule.period <= nodes - 1


@pytest.mark.parametrize("nodes", [4, 9])
def test_round_robin_on_a_permutation(nodes: int) -> None:
    demand, capacity = permutation(nodes, 2), round_robin(nodes, 2).capacity
    wanted = nodes / (2 * nodes - 2)
    assert multi_hop(demand, capacity).theta == pytest.approx(wanted, abs=1e-6)
    assert valiant(demand, capacity) == pytest.approx(wanted)
    assert single_hop(demand, capacity) == pytest.approx(1 / (nodes - 1))


@settings(max_examples=30)
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


def test_valiant_needs_paths_and_demand() -> None:
    with pytest.raises(ForetailError, match="does not reach"):
        valiant(ring(4, 1), np.triu(np.ones((4, 4)), 1))
    with pytest.raises(ForetailError, match="is zero"):
        valiant(DemandMatrix(np.zeros((3, 3))), np.ones((3, 3)))


@settings(max_examples=50)
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


@settings(max_examples=60)
@given(demands(), st.integers(1, 3))
def test_birkhoff_carries_what_it_was_made_for_and_nothing_else(demand: DemandMatrix, degree: int) -> None:
    demand = demand.scaled_to(degree)
    schedule = birkhoff(demand, degree)
    assert schedule.steps.degree == degree
    assert schedule.steps.period <= demand.nodes**2 - 2 * demand.nodes + 2
    assert schedule.durations.sum() == pytest.approx(1)
    assert single_hop(demand, schedule.capacity) >= 1 - 1e-9
    assert np.all(schedule.capacity[demand.demand == 0] == 0)
    exact = stuffed(whole(demand))
    assert len(set(exact.sum(axis=0)) | set(exact.sum(axis=1))) == 1
    for partner, units in birkhoff_steps(exact):
        exact[np.arange(demand.nodes), partner] -= units
        assert exact.min() == 0
    assert not exact.any()


def test_birkhoff_on_a_pair_that_the_prediction_lacks() -> None:
    """The thesis' proof of Theorem 23: predicted pairs talk to each other only, the truth has a little elsewhere."""
    nodes = 6
    predicted = DemandMatrix(np.eye(nodes)[np.arange(nodes) ^ 1])
    truth = DemandMatrix(predicted.demand + 0.01 * (1 - np.eye(nodes))).scaled_to(1)
    capacity = birkhoff(predicted, 1).capacity
    assert single_hop(truth, capacity) == 0
    assert multi_hop(truth, capacity).theta == pytest.approx(0, abs=1e-9)
    robust = vermilion(predicted, 1, 3).capacity
    assert single_hop(truth, robust) > 0
    assert multi_hop(truth, robust).theta > 1 / 2


def test_steps_cost_reconfigurations() -> None:
    schedule = birkhoff(all_to_all(5, 1), 1)
    assert schedule.steps.period == 4
    assert schedule.duty_cycle(0.01) == pytest.approx(0.96)
    assert schedule.duty_cycle(0.3) == 0


@settings(max_examples=60)
@given(demands(), st.integers(1, 3), st.floats(0.05, 1), st.integers(0, 30), st.integers(100, 1000))
def test_solstice_fills_its_week(demand: DemandMatrix, degree: int, load: float, night: int, week: int) -> None:
    schedule = solstice(demand.scaled_to(degree * load), degree, week, night, shortest_day=40)
    days = schedule.durations * week + night
    assert days.sum() == pytest.approx(week)
    assert days.min() >= max(40, 2 * night) - 1e-9
    assert np.all(schedule.steps.matchings[:, 0] == schedule.steps.matchings[:, -1])


def test_solstice_on_all_to_all_is_a_strobe() -> None:
    """What the Etalon paper says of it: every pair once a week, equally long."""
    schedule = solstice(all_to_all(8, 1), 1)
    assert schedule.steps.period == 7
    assert np.array_equal(schedule.steps.edges, 1 - np.eye(8))
    assert np.ptp(schedule.durations * 2000) == pytest.approx(1)  # 2000 us are no multiple of 7 days


def test_solstice_gives_large_demands_long_days_and_leaves_small_ones() -> None:
    """By hand: of a week of 1000, 800 to the next node, 190 to the one after it, 10 to a third."""
    nodes, shares = 5, (0.8, 0.19, 0.01)
    demand = DemandMatrix(
        np.sum([share * np.roll(np.eye(nodes), by, axis=1) for by, share in enumerate(shares, 1)], axis=0)
    )
    schedule = solstice(demand, 1, week=1000, night=10, shortest_day=40)
    first, second = schedule.steps.matchings[:, 0]
    assert np.array_equal(first, np.roll(np.arange(nodes), -1))
    assert np.array_equal(second, np.roll(np.arange(nodes), -2))
    # days of 800 + 10 and 190 + 10 are 10 too long together, which both lose half of
    assert schedule.durations * 1000 == pytest.approx([795, 185])
    assert single_hop(demand, schedule.capacity) == 0


def test_solstice_inflates_a_low_load_and_idles_on_crumbs() -> None:
    low, half = (solstice(permutation(6, 2).scaled_to(load), 2) for load in (0.001, 1.0))
    assert np.array_equal(low.capacity, half.capacity)
    idle = solstice(all_to_all(64, 1), 1)  # every pair wants 32 us, less than the shortest day
    assert idle.steps.period == 1
    assert not np.any(idle.steps.matchings == IDLE)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: round_robin(1, 1), "nodes is 1"),
        (lambda: round_robin(4, 4), "degree is 4"),
        (lambda: mars(8, 1, 1), "degree is 1"),
        (lambda: mars(8, 2, 10), "degree is 10"),
        (lambda: mars(8, 2, 5), "no multiple of 2 uplinks"),
        (lambda: best_degree(16, 4, 3), "no multiple of 4 uplinks"),
        (lambda: birkhoff(DemandMatrix(np.zeros((3, 3))), 1), "is zero"),
        (lambda: birkhoff(ring(3, 1), 0), "degree is 0"),
        (lambda: solstice(DemandMatrix(np.zeros((3, 3))), 0), "is zero"),
        (lambda: solstice(ring(3, 1), 0), "more than the 0 uplinks"),
        (lambda: solstice(ring(3, 2), 1), "more than the 1 uplinks"),
        (lambda: solstice(ring(3, 1), 1, week=30), "a week of 30 has no room for a day of 40"),
        (lambda: solstice(ring(3, 1), 1, night=-1), "night is -1"),
        (lambda: VariableSchedule(_STEPS, np.array([0.5])), "2 steps have durations of shape"),
        (lambda: VariableSchedule(_STEPS, np.array([0.5, 0.6])), "sum to more than 1"),
        (lambda: VariableSchedule(_STEPS, np.array([0.5, 0.0])), "not positive"),
        (lambda: VariableSchedule(_STEPS, np.array([0.5, np.nan])), "not positive"),
    ],
)
def test_what_makes_no_baseline_is_refused(call: object, complaint: str) -> None:
    assert callable(call)
    with pytest.raises(ForetailError, match=complaint):
        call()
