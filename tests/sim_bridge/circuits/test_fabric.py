"""Circuit-switched fabrics: rounding, matchings, Vermilion's guarantees, throughput with its certificates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge._native import perfect_matchings, round_matrix
from foretail.sim_bridge.circuits.demand import (
    MATRICES,
    permutation,
    random_hose,
    ring,
)
from foretail.sim_bridge.circuits.schedules import (
    IDLE,
    Schedule,
    consistency,
    emulated_edges,
    next_period_factor,
    randomised_consistency,
    randomised_robustness,
    robustness,
    single_hop_guarantee,
    vermilion,
)
from foretail.sim_bridge.circuits.throughput import multi_hop, single_hop
from tests.examples import draws


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


def test_circuits_that_all_pairs_have_are_spread_evenly_over_the_period() -> None:
    counts = np.full((6, 6), 1, np.int64) + 12 * np.roll(np.eye(6, dtype=np.int64), 2, axis=1)
    shifts = (perfect_matchings(counts) - np.arange(6)) % 6
    assert np.all(shifts == shifts[:, :1])
    assert set(shifts[:, 0][2::3]) == set(range(6))
    assert np.all(np.delete(shifts[:, 0], np.s_[2::3]) == 2)


@pytest.mark.parametrize("nodes", [1, 5, 64, 130])
def test_rounding_walks_the_first_edge_that_is_left(nodes: int) -> None:
    """The same as a slow walk over lists, bit by bit, where words of 64 begin and end too."""
    entries = (np.random.default_rng(nodes).random((nodes, nodes)) * 64).astype(np.int64)
    assert np.array_equal(round_matrix(entries, 4), slow_rounding(entries, 4))


@pytest.mark.parametrize(
    ("counts", "complaint"),
    [
        ([[1, 1], [1, 0]], "node 0 has degrees 2 and 2|node 1 has degrees 1"),
        ([[1, -1], [1, 1]], "negative"),
        ([[1, 1]], "not square"),
    ],
)
def test_what_is_no_regular_multigraph_is_refused(counts: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        perfect_matchings(np.array(counts, np.int64))


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


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("k", [3, 6])
def test_the_papers_matrices_keep_their_guarantee(name: str, k: int) -> None:
    demand = MATRICES[name](16, 4)
    assert demand.largest_sum == pytest.approx(4)
    assert single_hop(demand, vermilion(demand, 4, k).capacity) >= single_hop_guarantee(k)


def test_the_ring_at_trust_10() -> None:
    """The thesis' figure 9.5 at zero noise: 0.9 direct and half of the rest, 0.95 before the duty cycle."""
    demand = ring(8, 4)
    assert multi_hop(demand, vermilion(demand, 4, 10).capacity).theta == pytest.approx(0.95, abs=1e-6)
    reused = vermilion(demand, 4, 10, diagonal="reuse")
    assert multi_hop(demand, reused.capacity).theta > 0.95


@pytest.mark.parametrize("nodes", [4, 8, 9])
def test_the_complete_graph_on_a_permutation(nodes: int) -> None:
    capacity = (1 - np.eye(nodes)) / (nodes - 1)
    found = multi_hop(permutation(nodes, 1), capacity)
    assert found.theta == pytest.approx(nodes / (2 * nodes - 2), abs=1e-6)
    assert single_hop(permutation(nodes, 1), capacity) == pytest.approx(1 / (nodes - 1))


def test_without_trust_the_demand_is_not_looked_at() -> None:
    assert np.array_equal(vermilion(ring(8, 4), 4, 3, 2).edges, vermilion(random_hose(8, 4), 4, 3, 2).edges)


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


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((0, 3, 1), "degree is 0"),
        ((9, 3, 1), "degree is 9"),
        ((4, 0, 1), "k is 0"),
        ((4, 2, 3), "k is 2 and l is 3"),
        ((3, 2, 1), "choose k = 3"),
        ((4, 1 << 20, 1), "choose k n below"),
    ],
)
def test_settings_that_make_no_schedule_are_refused(arguments: tuple[int, int, int], complaint: str) -> None:
    with pytest.raises(ForetailError) as refusal:
        vermilion(ring(8, 2), *arguments)
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("matchings", "complaint"),
    [
        ([[[1, 1]]], "goes from|from a node to itself"),
        ([[[1, 2, 2]]], "a node to itself"),
        ([[[2, 2, 1]]], "slot 0 of uplink 0 reaches a node twice"),
        ([[[3, 0, 1]]], "outside"),
        ([[1, 0]], "has shape"),
    ],
)
def test_what_is_no_schedule_is_refused(matchings: object, complaint: str) -> None:
    with pytest.raises(ForetailError, match=complaint):
        Schedule(np.array(matchings))


def test_a_graph_that_does_not_fill_the_uplinks_is_refused() -> None:
    with pytest.raises(ForetailError, match="3 matchings do not fill 2 uplinks evenly"):
        Schedule.of_multigraph(np.full((3, 3), 1, np.int64), 2)
    with pytest.raises(ForetailError, match="cannot be scheduled"):
        Schedule.of_multigraph(np.triu(np.full((3, 3), 1, np.int64)), 1)
