"""Circuit-switched fabrics: rounding, matchings, Vermilion's guarantees, throughput with its certificates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from benchmarks.schedule import birkhoff_steps, stuffed, whole
from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge._native import ConcurrentFlow, perfect_matchings, round_matrix
from foretail.sim_bridge.circuits.demand import (
    JOBS,
    Phase,
    all_to_all,
    mixed,
    permutation,
    random_hose,
    repeated,
    ring,
)
from foretail.sim_bridge.circuits.schedules import (
    IDLE,
    Schedule,
    best_degree,
    consistency,
    emulated_edges,
    mars,
    next_period_factor,
    randomised_consistency,
    randomised_robustness,
    robustness,
    round_robin,
    single_hop_guarantee,
    vermilion,
)
from foretail.sim_bridge.circuits.throughput import MultiHop, multi_hop, single_hop, valiant
from tests.examples import draws
from tests.refusals import refusing


@st.composite
def demands(draw: st.DrawFn, min_nodes: int = 2, max_nodes: int = 7) -> DemandMatrix:
    """Draw sparse, skewed and even matrices."""
    nodes = draw(st.integers(min_nodes, max_nodes))
    values = st.sampled_from([0.0, 0.0, 1.0, 3.0]) | st.floats(1e-3, 1e3)
    demand = draw(hnp.arrays(np.float64, (nodes, nodes), elements=values))
    np.fill_diagonal(demand, 0)
    assume(demand.any())
    return DemandMatrix(demand)


def slow_rounding(entries: NDArray[np.int64], bits: int) -> NDArray[np.int64]:
    """Rows, columns and a hub: an edge with the bit set is walked once, out of a node in order of its number."""
    n = len(entries)
    full = np.zeros((2 * n + 1, 2 * n + 1), np.int64)  # from, to: hub -> row -> column -> hub
    full[:n, n : 2 * n] = entries
    full[2 * n, :n] = entries.sum(axis=1)
    full[n : 2 * n, 2 * n] = entries.sum(axis=0)
    for bit in range(bits):
        unit = 1 << bit
        left = full & unit != 0
        for start in range(2 * n + 1):
            node = start
            while left[node].any() or left[:, node].any():
                ahead, back = np.flatnonzero(left[node]), np.flatnonzero(left[:, node])
                # a row's entries come before its sum, and a column's too; the hub's rows come before its columns
                forward = len(ahead) > 0 and (node < n or node == 2 * n or not len(back))
                other = int(ahead[0] if forward else back[0])
                edge = (node, other) if forward else (other, node)
                full[edge] += unit if forward else -unit
                left[edge] = False
                node = other
    return full[:n, n : 2 * n] >> bits


@settings(max_examples=draws(200))
@given(demands(), st.floats(0.01, 50))
def test_entries_and_sums_are_rounded_up_or_down(demand: DemandMatrix, scale: float) -> None:
    exact = np.floor(demand.scaled_to(scale).demand * 2.0**40).astype(np.int64)
    found = round_matrix(exact, 40)
    for got, wanted in ((found, exact), (found.sum(axis=0), exact.sum(axis=0)), (found.sum(axis=1), exact.sum(axis=1))):
        assert np.all((got == wanted >> 40) | (got == -(-wanted >> 40)))


@settings(max_examples=draws(60))
@given(demands(), st.sampled_from([3000, 65_536]), st.integers(1, 9))
def test_a_large_trust_leaves_no_node_with_too_many_circuits(demand: DemandMatrix, k: int, oblivious: int) -> None:
    """Where floats round a sum of demand above what it means, no float64 being exact to 40 bits there."""
    edges = emulated_edges(demand, k, oblivious)
    for axis in (0, 1):
        assert np.all(edges.sum(axis=axis) == k * demand.nodes)
    assert edges.min() >= oblivious


@settings(max_examples=draws(100))
@given(st.integers(1, 8) | st.just(70), st.integers(0, 13), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_a_regular_multigraph_is_a_union_of_perfect_matchings(nodes: int, drawn: int, most: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    counts = np.full((nodes, nodes), random.integers(0, 2), np.int64)
    for _ in range(drawn):
        counts[np.arange(nodes), random.permutation(nodes)] += random.integers(1, most + 1)
    partner = perfect_matchings(counts)
    assert partner.shape == (counts[0].sum(), nodes)
    found = np.zeros_like(counts)
    for matching in partner:
        assert sorted(matching) == list(range(nodes))
        found[np.arange(nodes), matching] += 1
    assert np.array_equal(found, counts)


@pytest.mark.parametrize("nodes", [1, 5, 64, 130])
def test_rounding_walks_the_first_edge_that_is_left(nodes: int) -> None:
    """The same as a slow walk over lists, bit by bit, where words of 64 begin and end too."""
    entries = (np.random.default_rng(nodes).random((nodes, nodes)) * 64).astype(np.int64)
    assert np.array_equal(round_matrix(entries, 4), slow_rounding(entries, 4))


@settings(max_examples=draws(60))
@given(demands(), st.integers(1, 8), st.data())
def test_every_slot_is_a_matching_and_the_guarantees_hold(demand: DemandMatrix, k: int, data: st.DataObject) -> None:
    degree = data.draw(st.integers(1, min(4, demand.nodes)))
    k = next_period_factor(demand.nodes, degree, k)
    oblivious = data.draw(st.integers(1, k))
    demand = demand.scaled_to(degree)
    schedule = vermilion(demand, degree, k, oblivious, seed=data.draw(st.integers(0, 9)))
    assert schedule.matchings.shape == (k * demand.nodes // degree, degree, demand.nodes)
    used = schedule.edges.sum(axis=1) + (schedule.matchings == IDLE).sum(axis=(0, 1))
    assert np.all(used == k * demand.nodes)
    assert single_hop(demand, schedule.capacity) >= single_hop_guarantee(k, oblivious) - 1e-9  # Theorem 22
    assert multi_hop(demand, schedule.capacity).theta >= consistency(k / oblivious) - 1e-6  # Theorem 24


@settings(max_examples=draws(40))
@given(demands(5, 5), demands(5, 5), st.integers(1, 8))
def test_a_wrong_prediction_costs_no_more_than_the_theorem_says(
    truth: DemandMatrix, predicted: DemandMatrix, k: int
) -> None:
    truth = truth.scaled_to(1)
    theta = multi_hop(truth, vermilion(predicted, 1, k).capacity).theta
    assert theta >= robustness(k) - 1e-6  # Theorem 25


def test_the_ring_at_trust_10() -> None:
    """The thesis' figure 9.5 at zero noise: 0.9 direct and half of the rest, 0.95 before the duty cycle."""
    demand = ring(8, 4)
    assert multi_hop(demand, vermilion(demand, 4, 10).capacity).theta == pytest.approx(0.95, abs=1e-6)
    reused = vermilion(demand, 4, 10, diagonal="reuse")
    assert multi_hop(demand, reused.capacity).theta > 0.95


@pytest.mark.parametrize("nodes", [4, 8, 9])
def test_the_complete_graph_on_a_permutation(nodes: int) -> None:
    capacity = (1 - np.eye(nodes)) / (nodes - 1)
    demand, wanted = permutation(nodes, 1), nodes / (2 * nodes - 2)
    assert multi_hop(demand, capacity).theta == pytest.approx(wanted, abs=1e-6)
    assert valiant(demand, capacity) == pytest.approx(wanted)
    assert single_hop(demand, capacity) == pytest.approx(1 / (nodes - 1))


def test_randomised_guarantees_are_the_corollarys() -> None:
    harmonic = sum(1 / r for r in range(1, 11))
    uniform = [0.1] * 10
    assert randomised_consistency(uniform) == pytest.approx(1 + 1 / 20 - harmonic / 10)
    assert randomised_robustness(uniform) == pytest.approx(harmonic / 20)


def test_a_certificate_that_was_tampered_with_is_caught() -> None:
    demand = random_hose(5, 1)
    capacity: NDArray[np.float64] = vermilion(demand, 1, 3).capacity
    found = multi_hop(demand, capacity)
    found.check(demand, capacity)
    for wrong in (
        replace(found, theta=found.theta * 1.01),
        replace(found, theta=found.theta * 0.99),
        replace(found, flow=found.flow * 1.05),
        replace(found, flow=-found.flow),
        replace(found, length=found.length[::-1]),
    ):
        with pytest.raises(ForetailError, match="report this as a bug"):
            wrong.check(demand, capacity)


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
    one_way = np.roll(np.eye(4), 1, axis=1)  # each way round carries half of what goes to the opposite of 4 nodes
    assert valiant(all_to_all(4, 1), one_way + one_way.T) == pytest.approx(1)
    with pytest.raises(ForetailError, match="does not reach"):
        valiant(ring(4, 1), np.triu(np.ones((4, 4)), 1))


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
    """Return the bounds that the lengths prove, by Floyd and Warshall's algorithm."""
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


def test_a_demand_without_a_path_has_no_throughput() -> None:
    demand, capacity = DemandMatrix(np.array([[0, 1.0], [1.0, 0]])), np.array([[0, 1.0], [0, 0]])
    assert multi_hop(demand, capacity, 0.1).theta == 0
    with pytest.raises(ValueError, match="no path"):
        ConcurrentFlow(capacity, np.ascontiguousarray(demand.demand))


NODES, DEGREE = 6, 2


@pytest.mark.parametrize("job", JOBS)
def test_every_job_stays_in_the_hose_model_and_repeats(job: str) -> None:
    phases = JOBS[job](NODES, DEGREE, 3)
    period = sum(phase.steps for phase in phases)
    found = repeated(phases, 3 * period + 1, 100, job, 7, placed_at_random=True)
    assert np.array_equal(found.demand[period:], found.demand[:-period])
    again = repeated(phases, 3 * period + 1, 100, job, 7, placed_at_random=True)
    assert np.array_equal(found.demand, again.demand)
    noisy = repeated(phases, 40, 100, job, 7, noise=0.5)
    plain = repeated(phases, 40, 100, job, 7)
    assert not np.array_equal(noisy.demand, plain.demand)
    for sequence in (found, noisy):
        for matrix in sequence.demand:
            DemandMatrix(matrix).require_hose(DEGREE)
    assert np.all((noisy.demand > 0) <= (plain.demand > 0))


def test_inference_keeps_its_racks_while_its_rates_change_by_up_to_40_percent() -> None:
    phases = np.stack([phase.demand.demand for phase in JOBS["inference"](NODES, DEGREE, 3)])
    assert len(phases) == 6
    assert max(DemandMatrix(phase).largest_sum for phase in phases) == pytest.approx(DEGREE)
    assert np.linalg.matrix_rank(phases.reshape(6, -1), tol=1e-9) == 2, "two kinds of jobs"
    change = phases[:, phases[0] > 0] / phases[0, phases[0] > 0]
    assert change.min() >= 0.6 / 1.4
    assert change.max() <= 1.4 / 0.6
    assert not np.allclose(change, change[:, :1]), "the kinds change apart"


def test_a_mixture_swings_between_its_two() -> None:
    first = repeated([Phase(ring(NODES, DEGREE))], 9, 100, "a")
    second = repeated([Phase(all_to_all(NODES, DEGREE))], 9, 100, "b")
    found = mixed(first, second, 8, "c")
    assert np.allclose(found.demand[[0, 8]], first.demand[0])
    assert np.allclose(found.demand[4], second.demand[4])
    assert np.allclose(found.demand[2], (first.demand[2] + second.demand[2]) / 2)
    with pytest.raises(ForetailError, match="runs a and d differ"):
        mixed(first, repeated([Phase(ring(NODES, DEGREE))], 8, 100, "d"), 8, "c")
    with pytest.raises(ForetailError, match="period_steps=1"):
        mixed(first, second, 1, "c")


PHASE, FULL = Phase(ring(NODES, DEGREE)), np.ones((4, 4)) - np.eye(4)
test_what_cannot_be_is_refused = refusing(
    (lambda: vermilion(ring(8, 2), 0, 3, 1), "degree is 0"),
    (lambda: vermilion(ring(8, 2), 9, 3, 1), "degree is 9"),
    (lambda: vermilion(ring(8, 2), 4, 0, 1), "k is 0"),
    (lambda: vermilion(ring(8, 2), 4, 2, 3), "k is 2 and l is 3"),
    (lambda: vermilion(ring(8, 2), 3, 2, 1), "choose k = 3"),
    (lambda: vermilion(ring(8, 2), 4, 1 << 20, 1), "choose k n below"),
    (lambda: Schedule(np.array([[[1, 1]]])), "goes from|from a node to itself"),
    (lambda: Schedule(np.array([[[1, 2, 2]]])), "a node to itself"),
    (lambda: Schedule(np.array([[[2, 2, 1]]])), "slot 0 of uplink 0 reaches a node twice"),
    (lambda: Schedule(np.array([[[3, 0, 1]]])), "outside"),
    (lambda: Schedule(np.array([[1, 0]])), "has shape"),
    (lambda: Schedule.of_multigraph(np.full((3, 3), 1), 2), "3 matchings do not fill 2 uplinks evenly"),
    (lambda: Schedule.of_multigraph(np.triu(np.full((3, 3), 1)), 1), "cannot be scheduled"),
    (lambda: round_robin(1, 1), "nodes is 1"),
    (lambda: round_robin(4, 4), "degree is 4"),
    (lambda: mars(8, 1, 1), "degree is 1"),
    (lambda: mars(8, 2, 10), "degree is 10"),
    (lambda: mars(8, 2, 5), "no multiple of 2 uplinks"),
    (lambda: best_degree(16, 17, 17), "uplinks is 17"),
    (lambda: best_degree(16, 4, 3), "no multiple of 4 uplinks"),
    (lambda: multi_hop(DemandMatrix(np.zeros((4, 4))), FULL, 0.1), "demand matrix is zero"),
    (lambda: multi_hop(permutation(4, 1), FULL, -0.1), "give 0 for the linear program, or more"),
    (lambda: Phase(ring(NODES, DEGREE), 0), "takes 0 steps"),
    (lambda: repeated([], 4, 100, "a"), "not on the same nodes"),
    (lambda: repeated([PHASE, Phase(ring(5, DEGREE))], 4, 100, "a"), "not on the same nodes"),
    (lambda: repeated([PHASE], 0, 100, "a"), "noise"),
    (lambda: repeated([PHASE], 1, 100, "a", noise=-1.0), "noise"),
    (lambda: repeated([PHASE], 1, 100, "a", noise=float("nan")), "noise"),
    (lambda: repeated([PHASE], 4, 0, "a"), "interval_ns"),
    (lambda: perfect_matchings(np.array([[1, 1], [1, 0]])), "node 0 has degrees 2 and 2|node 1 has degrees 1"),
    (lambda: perfect_matchings(np.array([[1, -1], [1, 1]])), "negative"),
    (lambda: perfect_matchings(np.array([[1, 1]])), "not square"),
)
