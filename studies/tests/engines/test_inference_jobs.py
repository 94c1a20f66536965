"""Jobs of tasks: contraction, placements by a queueing model, and runs event by event. Costs ten seconds."""

from __future__ import annotations

import random
from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.sim_bridge.circuits.demand import _SENT_BITS
from foretail_studies.engines.inference_jobs import (
    ARCHITECTURES,
    Cluster,
    DrawnPlacements,
    FairShare,
    Groups,
    JobClass,
    JobGraph,
    Model,
    RandomServers,
    apart,
    placed_demand,
    pollaczek_khinchine,
    run_jobs,
    together,
    with_other_rates,
)
from tests.examples import draws
from tests.refusals import refusing

pytestmark = pytest.mark.slow

CHAIN = JobGraph((1.0, 2.0, 3.0), {(0, 1): 5.0, (1, 2): 7.0})
DIAMOND = JobGraph((1.0, 10.0, 8.0, 1.0), {(0, 1): 4.0, (0, 2): 1.0, (1, 3): 2.0, (2, 3): 0.5})


@st.composite
def graphs(draw: st.DrawFn, most: int = 8) -> JobGraph:
    """Draw a graph with one source and one sink."""
    count = draw(st.integers(1, most))
    edges = {(a, b) for a, b in product(range(count), repeat=2) if a < b and draw(st.booleans())}
    for task in range(1, count):
        if not any(b == task for _, b in edges):
            edges.add((draw(st.integers(0, task - 1)), task))
    for task in range(count - 1):
        if not any(a == task for a, _ in edges):
            edges.add((task, draw(st.integers(task + 1, count - 1))))
    operations = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    return JobGraph(tuple(map(float, operations)), {edge: float(draw(st.integers(0, 9))) for edge in sorted(edges)})


def contracted_slowly(graph: JobGraph, seed: int) -> tuple[list[float], set[tuple[frozenset[int], frozenset[int]]]]:
    """The rule of the thesis, one random edge after another; nodes are sets of tasks."""
    nodes = [frozenset({task}) for task in range(len(graph.operations))]
    edges = {(nodes[a], nodes[b]) for a, b in graph.transfers}
    rng = random.Random(seed)
    while True:
        allowed = [
            (a, b)
            for a, b in edges
            if all((n, a) in edges for n, m in edges if m == b and n != a)
            and all((b, m) in edges for n, m in edges if n == a and m != b)
        ]
        if not allowed:
            names = {node for edge in edges for node in edge} or {frozenset(range(len(graph.operations)))}
            return sorted(sum(graph.operations[task] for task in node) for node in names), edges
        a, b = rng.choice(sorted(allowed, key=lambda edge: (sorted(edge[0]), sorted(edge[1]))))
        whole = {a: a | b, b: a | b}
        edges = {(whole.get(n, n), whole.get(m, m)) for n, m in edges if {n, m} != {a, b}}


@settings(max_examples=draws(120))
@given(graphs(), st.integers(0, 99))
def test_contraction_is_that_of_the_rule_in_any_order(graph: JobGraph, seed: int) -> None:
    found = graph.contracted()
    operations, edges = contracted_slowly(graph, seed)
    assert sorted(found.operations) == operations
    assert len(found.transfers) == len(edges)
    assert found.contracted() == found


@pytest.mark.parametrize(
    ("name", "tasks", "contracted", "giga_operations"),
    [("AlexNet", 23, 1, 1.4), ("VGG16", 41, 1, 31), ("ResNet18", 71, 10, 3.6), ("DenseNet121", 429, 4, 5.7)],
)
def test_architectures_are_those_of_table_2_2(name: str, tasks: int, contracted: int, giga_operations: float) -> None:
    graph = ARCHITECTURES[name]()
    assert (len(graph.operations), len(graph.contracted().operations)) == (tasks, contracted)
    assert sum(graph.operations) == pytest.approx(giga_operations * 1e9, rel=0.03)


def test_densenets_second_branch_reads_the_size_of_the_batch() -> None:
    graph = ARCHITECTURES["DenseNet121"]().contracted()
    assert graph.bottlenecks == (0, 3)
    assert min(graph.operations) == 0
    assert min(graph.transfers.values()) == 4


@settings(max_examples=draws(60))
@given(graphs())
def test_a_bottleneck_is_a_task_without_which_the_sink_is_not_reached(graph: JobGraph) -> None:
    last = len(graph.operations) - 1

    def reaches(without: int) -> bool:
        seen = {0} - {without}
        for task in range(1, last + 1):
            if task != without and seen & graph.before[task]:
                seen.add(task)
        return last in seen

    slow = [task for task in range(last + 1) if task in (0, last) or not reaches(task)]
    assert list(graph.bottlenecks) == slow


def model_of(*parts: tuple[JobGraph, float], link_bps: float = 80.0) -> Model:
    return Model(Cluster(4, 1.0, link_bps), tuple(JobClass(graph, rate) for graph, rate in parts))


def test_all_partitions_are_tried() -> None:
    bell = {2: 2, 3: 5, 4: 15, 5: 52}
    for tasks, count in bell.items():
        fan = JobGraph(
            (1.0,) * tasks,
            {**{(0, t): 1.0 for t in range(1, tasks)}, **{(t, tasks - 1): 1.0 for t in range(tasks - 1)}},
        )
        (choice,) = model_of((fan, 0.1)).choices
        assert len(set(choice.placements)) == count


def test_the_completion_time_is_that_of_the_equations() -> None:
    """The diamond by hand, (IV) to (XII), with the second branch on a server of its own and the sink with the first."""
    model = model_of((DIAMOND, 0.05))
    (choice,) = model.choices
    drawn: dict[Groups, float] = {(0, 0, 1, 0): 0.5, (0, 1, 2, 1): 0.25, (0, 0, 0, 0): 0.25}
    chances = np.array([drawn.get(placement, 0.0) for placement in choice.placements])
    service = {edge: size * 8 / 80 for edge, size in DIAMOND.transfers.items()}
    rates = {(0, 2): 0.05 * 0.75, (2, 3): 0.05 * 0.75, (0, 1): 0.05 * 0.25}
    load = sum(rates[edge] * service[edge] for edge in rates)
    wait = sum(rates[edge] * service[edge] ** 2 for edge in rates) / (2 * (1 - load))
    assert model.wait_s([chances]) == pytest.approx(wait)
    cost = {edge: wait + service[edge] for edge in service}
    first = max(10, 8 + cost[0, 2] + cost[2, 3])
    second = max(10 + cost[0, 1], 8 + cost[0, 2] + cost[2, 3])
    expected = 1 + 0.5 * first + 0.25 * second + 0.25 * 18 + 1
    assert model.completion_s([chances])[0] == pytest.approx(expected)
    assert model.completion_s(together(model.choices))[0] == pytest.approx(20)
    assert model.completion_s(apart(model.choices))[0] == pytest.approx(
        2 + max(10, 8 + 0.15 + 2 * model.wait_s(apart(model.choices)))
    )


@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0, 3.0])
def test_the_optimum_beats_a_grid(rate: float) -> None:
    """Two diamonds after each other: all mixtures of four placements of each, in steps of a fifth."""
    both = JobGraph(
        (1.0, 10.0, 8.0, 1.0, 5.0, 5.0, 1.0),
        {(0, 1): 9.0, (0, 2): 6.0, (1, 3): 2.0, (2, 3): 2.0, (3, 4): 5.0, (3, 5): 5.0, (4, 6): 1.0, (5, 6): 1.0},
    )
    model = model_of((both, rate), link_bps=80.0)
    best = model.optimum()
    found = float(model.completion_s(best)[0])
    assert model.wait_s(best) < inf
    shares = [of for of in product(range(6), repeat=4) if sum(of) == 5]
    tried: tuple[Groups, ...] = ((0, 0, 0, 0), (0, 0, 1, 0), (0, 0, 1, 1), (0, 1, 0, 0))
    grid = inf
    for mixtures in product(shares, repeat=2):
        chances = [
            np.array([dict(zip(tried, mixture, strict=True)).get(p, 0) / 5 for p in choice.placements])
            for choice, mixture in zip(model.choices, mixtures, strict=True)
        ]
        if model.wait_s(chances) < inf:
            grid = min(grid, float(model.completion_s(chances)[0]))
    assert found <= grid + 1e-6
    assert found > grid - 1
    drawn = [chances for chances in best if (chances > 1e-6).sum() > 1]
    assert len(drawn) <= 1, "one condition ties the choices together"
    assert (rate >= 3.0) <= (found > float(model_of((both, 0.01)).completion_s(best)[0]))


def test_the_product_knows_what_the_jobs_of_two_networks_send() -> None:
    for name, sent in zip(("ResNet18", "DenseNet121"), _SENT_BITS, strict=True):
        model = model_of((ARCHITECTURES[name]().contracted(), 1.0))
        (graph,) = (job.graph for job in model.classes)
        crossing = [
            choice.crossing(graph, choice.placements[int(chances.argmax())])
            for choice, chances in zip(model.choices, apart(model.choices), strict=True)
        ]
        assert tuple(8 * sum(graph.transfers[edge] for edge in edges) for edges in crossing) == sent


def test_demand_between_racks_follows_from_rates_and_placements() -> None:
    model = model_of((DIAMOND, 0.5), (CHAIN, 2.0))
    homes = np.array([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]])
    probabilities = apart(model.choices)
    demand = placed_demand(model, probabilities, homes, uplink_bps=8.0).demand
    crossing = 0.5 * (1.0 + 0.5)  # bytes of the diamond's second branch; both parts of the chain stay together
    assert demand == pytest.approx(np.array([[0, 0.25, 0], [0.25, 0, 0], [0, 0, 0]]) * crossing)
    chain_apart = [*probabilities[:1], *(np.array([0.0, 1.0]) for _ in probabilities[1:])]
    more = placed_demand(model, chain_apart, homes, uplink_bps=8.0).demand - demand
    assert more[1, 2] == more[2, 1] == pytest.approx(2.0 * 12 * 0.25 * 0.75)
    wrong = with_other_rates(model.classes, 0.4, 1)
    for one, other in zip(model.classes, wrong, strict=True):
        assert 0.6 <= other.arrivals_per_s / one.arrivals_per_s <= 1.4
        assert other.arrivals_per_s != one.arrivals_per_s


WIDE = JobGraph((1.0,) * 9, {**{(0, t): 1.0 for t in range(1, 8)}, **{(t, 8): 1.0 for t in range(1, 8)}})
test_what_is_no_job_is_refused = refusing(
    (lambda: model_of((WIDE, 0.1)).choices, "contract it to 8"),
    (lambda: JobGraph((1.0, 1.0), {(1, 0): 1.0}), "topological order"),
    (lambda: JobGraph((1.0, 1.0, 1.0), {(0, 2): 1.0}), "sources \\[0, 1\\]"),
    (lambda: JobGraph((-1.0,), {}), "a negative number"),
)


def test_a_link_waits_as_in_the_formula() -> None:
    """Chains of two tasks on two servers: transfers of two sizes arrive as a Poisson process."""
    pair = JobGraph((0.0, 0.0), {(0, 1): 1.0})
    large = JobGraph((0.0, 0.0), {(0, 1): 3.0})
    model = model_of((pair, 2.0), (large, 1.0), link_bps=80.0)
    split = [np.array([0.0, 1.0]), np.array([0.0, 1.0])]
    assert [choice.placements for choice in model.choices] == [((0, 0), (0, 1))] * 2
    expected = (2 * 0.1**2 + 1 * 0.3**2) / (2 * (1 - 0.5))
    assert model.wait_s(split) == pytest.approx(expected)
    found = run_jobs(model.cluster, model.classes, DrawnPlacements(model.choices, split), 60_000, 1)
    assert found.transfers == 60_000
    assert found.mean_wait_s == pytest.approx(expected, rel=0.05)
    for kind in (0, 1):
        assert found.completion_s[found.kind == kind].mean() == pytest.approx(model.completion_s(split)[kind], rel=0.05)


def test_servers_are_queues_too_and_fair_shares_know_them() -> None:
    """Jobs of one task on random servers: M/D/1 on each; by the shortest queue they wait less."""
    one = JobGraph((1.0,), {})
    classes = (JobClass(one, 2.4),)
    cluster = Cluster(4, 1.0, 1.0)
    drawn = run_jobs(cluster, classes, RandomServers(), 60_000, 1).completion_s.mean()
    assert drawn == pytest.approx(1 + pollaczek_khinchine(np.array([0.6]), np.array([1.0])), rel=0.05)
    placed = run_jobs(cluster, classes, DrawnPlacements((), ()), 60_000, 1).completion_s.mean()
    assert placed == pytest.approx(drawn, rel=0.05)
    assert run_jobs(cluster, classes, FairShare(), 20_000, 1).completion_s.mean() < 1.3


def test_a_lone_job_runs_its_branches_at_once() -> None:
    cluster = Cluster(4, 1.0, 80.0)
    classes = (JobClass(DIAMOND, 1e-6),)
    seconds = {
        name: run_jobs(cluster, classes, scheduler, 20, 1).completion_s
        for name, scheduler in {
            "together": DrawnPlacements(model_of((DIAMOND, 1.0)).choices, together(model_of((DIAMOND, 1.0)).choices)),
            "apart": DrawnPlacements(model_of((DIAMOND, 1.0)).choices, apart(model_of((DIAMOND, 1.0)).choices)),
            "fair": FairShare(),
            "spreads": FairShare(spreads=True),
        }.items()
    }
    assert np.allclose(seconds["together"], 20)
    assert np.allclose(seconds["apart"], 1 + 10 + 1)
    assert np.allclose(seconds["fair"], 1 + 10 + 1, atol=0.3)  # the last task waits for what another server has
    assert np.allclose(seconds["spreads"], 1 + 0.4 + 10 + 0.2 + 1, atol=0.3)
