"""Demand matrices of the evaluations by name, and the throughput that each design of a periodic network has on them.

Source: Addanki, thesis, sections 8.6 and 9.5. A training job's matrix is its demand over an iteration, all phases by
their steps; *placed* means that its nodes are renamed by a random permutation. Throughput is without the duty cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge.circuits.demand.matrices import (
    all_to_all,
    chessboard,
    permutation,
    random_hose,
    ring,
    skewed_ring,
    skewed_uniform,
)
from foretail.sim_bridge.circuits.demand.sequences import JOBS
from foretail.sim_bridge.circuits.schedules.expander import expander, opera
from foretail.sim_bridge.circuits.schedules.mars import best_degree, mars
from foretail.sim_bridge.circuits.schedules.round_robin import round_robin
from foretail.sim_bridge.circuits.schedules.schedule import Schedule
from foretail.sim_bridge.circuits.schedules.scheduler import SCHEDULER_KINDS
from foretail.sim_bridge.circuits.schedules.single_hop_optimum import single_hop_optimum
from foretail.sim_bridge.circuits.schedules.vermilion import vermilion
from foretail.sim_bridge.circuits.throughput.throughput import multi_hop, single_hop
from foretail.sim_bridge.circuits.throughput.valiant import shortest_paths, valiant

__all__ = [
    "DESIGNS",
    "EVALUATION_MATRICES",
    "SKEW",
    "Outcome",
    "evaluation_matrix",
    "iteration",
    "outcomes_of",
    "placed",
]


def iteration(job: str, nodes: int, degree: int, seed: int = 1) -> DemandMatrix:
    """Return the demand of one iteration of a job in ``JOBS``, scaled to fill the uplinks."""
    phases = JOBS[job](nodes, degree, seed)
    return DemandMatrix(np.sum([phase.steps * phase.demand.demand for phase in phases], axis=0)).scaled_to(degree)


def placed(demand: DemandMatrix, seed: int) -> DemandMatrix:
    """Return the demand with its nodes renamed by a random permutation."""
    place = np.random.default_rng(seed).permutation(demand.nodes)
    return DemandMatrix(demand.demand[place][:, place])


EVALUATION_MATRICES: Mapping[str, Callable[[int, int, int], DemandMatrix]] = {
    "data_parallel": lambda nodes, degree, seed: iteration("data_parallel", nodes, degree, seed),
    "hybrid_parallel": lambda nodes, degree, seed: iteration("hybrid_parallel", nodes, degree, seed),
    "data_parallel_placed": lambda nodes, degree, seed: placed(iteration("data_parallel", nodes, degree, seed), seed),
    "hybrid_parallel_placed": lambda nodes, degree, seed: placed(
        iteration("hybrid_parallel", nodes, degree, seed), seed
    ),
    "ring": lambda nodes, degree, seed: ring(nodes, degree),
    "all_to_all": lambda nodes, degree, seed: all_to_all(nodes, degree),
    "chessboard": lambda nodes, degree, seed: chessboard(nodes, degree),
    "random_hose": random_hose,
    "permutation": permutation,
    "skewed_ring": lambda nodes, degree, seed: skewed_ring(nodes, degree, 0.5, seed),
}
"""From nodes, degree and a seed, which not all need. A skewed ring is half a permutation."""

SKEW = "skew-"
"""Followed by a number from 0 to 1: that share of a permutation, the rest all to all, as the thesis writes it."""


def evaluation_matrix(name: str, nodes: int, degree: int, seed: int = 1) -> DemandMatrix:
    """Return a matrix of ``EVALUATION_MATRICES``, or ``skew-0.3``; ForetailError on another name."""
    if name in EVALUATION_MATRICES:
        return EVALUATION_MATRICES[name](nodes, degree, seed)
    try:
        skew = float(name.removeprefix(SKEW)) if name.startswith(SKEW) else -1.0
    except ValueError:
        skew = -1.0
    if not 0 <= skew <= 1:
        raise ForetailError(
            f"there is no matrix {name}: choose from {', '.join(EVALUATION_MATRICES)}, or skew-A with A from 0 to 1"
        )
    return skewed_uniform(nodes, degree, skew, seed)


@dataclass(frozen=True)
class Outcome:
    """Throughput of a design under a routing; `k` is that of Vermilion's period, 0 for designs without one."""

    design: str
    routing: str
    k: int
    theta: float


def _vermilion(demand: DemandMatrix, degree: int, trusts: Sequence[int], seed: int) -> list[Outcome]:
    return [
        Outcome("vermilion", "single-hop", k, single_hop(demand, vermilion(demand, degree, k, seed=seed).capacity))
        for k in trusts
    ]


def _optimum(demand: DemandMatrix, degree: int, trusts: Sequence[int], seed: int) -> list[Outcome]:
    """The best schedules of Vermilion's period, with its one circuit for every pair and without."""
    return [
        Outcome(
            design,
            "single-hop",
            k,
            float(single_hop_optimum(demand, degree, k * demand.nodes // degree, kept, seed).theta),
        )
        for k in trusts
        for design, kept in (("robust optimum", 1), ("optimum", 0))
    ]


def _oblivious(demand: DemandMatrix, degree: int, trusts: Sequence[int], seed: int) -> list[Outcome]:
    capacity = round_robin(demand.nodes, degree).capacity
    return [
        Outcome("oblivious", routing, 0, theta)
        for routing, theta in (
            ("multi-hop", multi_hop(demand, capacity).theta),
            ("single-hop", single_hop(demand, capacity)),
            ("valiant", valiant(demand, capacity)),
        )
    ]


def _mars(demand: DemandMatrix, degree: int, trusts: Sequence[int], seed: int) -> list[Outcome]:
    """With the best degree up to half the nodes: of all of them it is the oblivious design."""
    of_graph = best_degree(demand.nodes, degree, max(degree, demand.nodes // 2))
    capacity = mars(demand.nodes, degree, of_graph, seed).capacity
    return [Outcome("mars", "valiant", 0, valiant(demand, capacity))]


def _expander(demand: DemandMatrix, degree: int, trusts: Sequence[int], seed: int) -> list[Outcome]:
    capacity = expander(demand.nodes, degree, seed).capacity
    return [
        Outcome("expander", "multi-hop", 0, multi_hop(demand, capacity).theta),
        Outcome("expander", "shortest paths", 0, shortest_paths(demand, capacity)),
    ]


def _opera(demand: DemandMatrix, degree: int, trusts: Sequence[int], seed: int) -> list[Outcome]:
    """All demand as short flows, on the graph of every slot in turn, and all as long ones, on direct circuits."""
    made = opera(demand.nodes, degree, seed)
    of_slots = [shortest_paths(demand, Schedule(slot[np.newaxis]).capacity) for slot in made.matchings]
    return [
        Outcome("opera", "multi-hop", 0, multi_hop(demand, made.capacity).theta),
        Outcome("opera", "shortest paths", 0, float(np.mean(of_slots))),
        Outcome("opera", "single-hop", 0, single_hop(demand, made.capacity)),
    ]


DESIGNS: Mapping[str, Callable[[DemandMatrix, int, Sequence[int], int], list[Outcome]]] = {
    "vermilion": _vermilion,
    "optimum": _optimum,
    "oblivious": _oblivious,
    "mars": _mars,
    "expander": _expander,
    "opera": _opera,
}
"""Outcomes of a design on a matrix, from the degree, the values of k, and a seed."""


def outcomes_of(design: str, demand: DemandMatrix, degree: int, trusts: Sequence[int], seed: int) -> list[Outcome]:
    """Return the outcomes of one of ``DESIGNS``, or the single-hop throughput of a scheduler of a package."""
    if design in DESIGNS:
        return DESIGNS[design](demand, degree, trusts, seed)
    made = SCHEDULER_KINDS.make(design, {}).schedule(demand, degree, seed)
    return [Outcome(design, "single-hop", 0, single_hop(demand, made.capacity))]
