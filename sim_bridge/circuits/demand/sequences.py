"""Demand of jobs over time: phases that repeat, on nodes placed at random, mixed and noisy.

Source of the shapes: Addanki, thesis, section 8.6 (data- and hybrid-parallel training of recommendation models with
embedding tables), and Pit-Claudel, thesis, chapter 2 (inference). The lengths of phases are inputs; nothing here claims
to be a measured application.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix
from foretail.features.demand.sequences import DemandSequence
from foretail.sim_bridge.circuits.demand.matrices import all_to_all, ring
from foretail.sim_bridge.circuits.demand.placed_jobs import placed_demand, with_other_rates
from foretail.sim_bridge.inference_jobs.architectures import densenet121, resnet18
from foretail.sim_bridge.inference_jobs.cluster_run import apart
from foretail.sim_bridge.inference_jobs.placement import Cluster, JobClass, Model

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Phase:
    """A matrix that is wanted for `steps` intervals, at least 1."""

    demand: DemandMatrix
    steps: int = 1

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ForetailError(f"a phase takes {self.steps} steps: give at least 1")


def embedding_exchange(nodes: int, degree: int, seed: int = 1, spread: float = 1.0) -> DemandMatrix:
    """Return all to all from nodes in proportion to the embedding tables they hold.

    The sizes of the tables are log-normal; `spread`, at least 0, is the standard deviation of their logarithm, and 0 is
    plain all to all.
    """
    tables = np.random.default_rng(seed).lognormal(0.0, spread, nodes)
    return DemandMatrix(all_to_all(nodes, degree).demand * tables[:, np.newaxis]).scaled_to(degree)


def data_parallel(nodes: int, degree: int, seed: int = 1) -> tuple[Phase, ...]:
    """Return the phases of an iteration: even input traffic at a tenth of the uplinks, then gradients along a ring."""
    del seed  # nothing is drawn
    return (Phase(all_to_all(nodes, degree).scaled_to(degree / 10), 2), Phase(ring(nodes, degree), 3))


def hybrid_parallel(nodes: int, degree: int, seed: int = 1) -> tuple[Phase, ...]:
    """Return the phases of an iteration: embeddings out, their gradients back, dense gradients along a ring."""
    out = embedding_exchange(nodes, degree, seed)
    return Phase(out, 2), Phase(DemandMatrix(out.demand.T), 2), Phase(ring(nodes, degree), 2)


def inference(nodes: int, degree: int, seed: int = 1) -> tuple[Phase, ...]:
    """Return six phases of two kinds of inference jobs, whose arrival rates change by up to 40 %.

    Their tasks between bottlenecks run apart, and each kind has its servers in racks that are drawn: a Dirichlet
    distribution with all parameters 1. The largest phase fills the uplinks.
    """
    homes = np.random.default_rng(seed).dirichlet(np.ones(nodes), 2)
    classes = (JobClass(resnet18().contracted(), 1.0), JobClass(densenet121().contracted(), 10.0))
    model = Model(Cluster(nodes, 1.0, 1.0), classes)
    matrices = []
    for phase in range(6):
        now = Model(model.cluster, with_other_rates(classes, 0.4, 6 * seed + phase))
        matrices.append(placed_demand(now, apart(model.choices), homes, 1.0))
    largest = max(matrix.largest_sum for matrix in matrices)
    return tuple(Phase(matrix.scaled_to(degree * matrix.largest_sum / largest)) for matrix in matrices)


def _ring(nodes: int, degree: int, seed: int = 1) -> tuple[Phase, ...]:
    del seed
    return (Phase(ring(nodes, degree)),)


def _all_to_all(nodes: int, degree: int, seed: int = 1) -> tuple[Phase, ...]:
    del seed
    return (Phase(all_to_all(nodes, degree)),)


JOBS: Mapping[str, Callable[[int, int, int], tuple[Phase, ...]]] = {
    "ring": _ring,
    "all_to_all": _all_to_all,
    "data_parallel": data_parallel,
    "hybrid_parallel": hybrid_parallel,
    "inference": inference,
}
"""Phases of a job by its name, from nodes, degree and a seed."""


def repeated(
    phases: Sequence[Phase],
    steps: int,
    interval_ns: int,
    run: str,
    seed: int = 1,
    *,
    placed_at_random: bool = False,
    noise: float = 0.0,
) -> DemandSequence:
    """Return `steps` intervals of phases that repeat in order.

    ForetailError without phases, with phases of different sizes, or numbers out of range.

    Parameters
    ----------
    phases : all on the same nodes
    steps, interval_ns, run :
        Of the sequence.
    seed : of placement, first step and noise; the same seed gives the same sequence
    placed_at_random : bool
        Whether the nodes are renamed by a random permutation and the first step is a random one of the iteration.
    noise : float
        Standard deviation, at least 0: every entry is multiplied by ``max(0, 1 + normal(0, noise))`` (chapter 9), and a
        matrix whose sums then exceed those of its phase is scaled back.
    """
    if not phases or len({phase.demand.nodes for phase in phases}) != 1:
        raise ForetailError(f"the {len(phases)} phases of run {run} are not on the same nodes: give at least one")
    if steps < 1 or not noise >= 0:
        raise ForetailError(
            f"run {run} has {steps} steps and noise {noise}: give a step or more and noise of 0 or more"
        )
    random = np.random.default_rng(seed)
    cycle = np.concatenate([np.repeat(phase.demand.demand[np.newaxis], phase.steps, axis=0) for phase in phases])
    if placed_at_random:
        place = random.permutation(cycle.shape[1])
        cycle = np.roll(cycle[:, place][:, :, place], random.integers(len(cycle)), axis=0)
    demand = cycle[np.arange(steps) % len(cycle)]
    if noise > 0:
        noisy = demand * np.maximum(0.0, 1.0 + random.normal(0.0, noise, demand.shape))
        demand = noisy * np.minimum(1.0, _largest_sums(demand) / np.maximum(_largest_sums(noisy), np.finfo(float).tiny))
    return DemandSequence(demand, interval_ns, run)


def mixed(first: DemandSequence, second: DemandSequence, period_steps: float, run: str) -> DemandSequence:
    """Return a mixture that swings from the first to the second sequence and back, along a cosine.

    Both have the same steps, nodes and interval; `period_steps` is that of the cosine. ForetailError on sequences that
    do not fit together, or a period below 2.
    """
    if first.demand.shape != second.demand.shape or first.interval_ns != second.interval_ns:
        raise ForetailError(f"runs {first.run} and {second.run} differ in steps, nodes or interval: mix equal ones")
    if not period_steps >= 2:
        raise ForetailError(f"a mixture has period_steps={period_steps}: give at least 2")
    share = ((1 + np.cos(2 * np.pi * np.arange(len(first)) / period_steps)) / 2)[:, np.newaxis, np.newaxis]
    return DemandSequence(share * first.demand + (1 - share) * second.demand, first.interval_ns, run)


def _largest_sums(demand: FloatArray) -> FloatArray:
    """Largest row or column sum of every matrix: float64[steps, 1, 1]."""
    largest: FloatArray = np.maximum(demand.sum(axis=1).max(axis=1), demand.sum(axis=2).max(axis=1))
    return largest[:, np.newaxis, np.newaxis]
