"""Demand matrices of the evaluations, and sequences of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix, DemandSequence

# Demand matrices of the papers' evaluations, scaled so that the largest row or column sum fills `degree` uplinks.
#
# Source: Addanki, thesis, sections 8.6 and 9.5. Where chapter 8 mixes a permutation with uniform demand and chapter 9
# with a ring, both are here, by name.


def ring(nodes: int, degree: int) -> DemandMatrix:
    """Return all demand from each node to the next."""
    return DemandMatrix(np.roll(np.eye(nodes), 1, axis=1)).scaled_to(degree)


def all_to_all(nodes: int, degree: int) -> DemandMatrix:
    """Return equal demand between all pairs."""
    return DemandMatrix(1 - np.eye(nodes)).scaled_to(degree)


def chessboard(nodes: int, degree: int) -> DemandMatrix:
    """Return demand that alternates between 1.5 and 0.5 along rows and columns, before scaling."""
    row, column = np.indices((nodes, nodes))
    return DemandMatrix(np.where((row + column) % 2 == 1, 1.5, 0.5) * (row != column)).scaled_to(degree)


def permutation(nodes: int, degree: int, seed: int = 1) -> DemandMatrix:
    """Return all demand from each node to one other, drawn without fixed points."""
    return DemandMatrix(_derangement(nodes, seed)).scaled_to(degree)


def random_hose(nodes: int, degree: int, seed: int = 1) -> DemandMatrix:
    """Return independent uniform entries, balanced until all rows and columns fill the uplinks to one in 10^9."""
    demand = np.random.default_rng(seed).random((nodes, nodes)) * (1 - np.eye(nodes))
    while abs(demand.sum(axis=0) - 1).max() > 1e-9 or abs(demand.sum(axis=1) - 1).max() > 1e-9:
        demand /= demand.sum(axis=1, keepdims=True)
        demand /= demand.sum(axis=0, keepdims=True)
        if nodes == 2:
            break
    return DemandMatrix(demand).scaled_to(degree)


def skewed_uniform(nodes: int, degree: int, skew: float, seed: int = 1) -> DemandMatrix:
    """Return `skew` of a permutation and the rest all to all (chapter 8), ``0 <= skew <= 1``."""
    return _mixed(all_to_all(nodes, degree), permutation(nodes, degree, seed), skew, degree)


def skewed_ring(nodes: int, degree: int, skew: float, seed: int = 1) -> DemandMatrix:
    """Return `skew` of a permutation and the rest a ring (chapter 9), ``0 <= skew <= 1``."""
    return _mixed(ring(nodes, degree), permutation(nodes, degree, seed), skew, degree)


def _mixed(base: DemandMatrix, other: DemandMatrix, skew: float, degree: int) -> DemandMatrix:
    return DemandMatrix((1 - skew) * base.demand + skew * other.demand).scaled_to(degree)


def _derangement(nodes: int, seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    random = np.random.default_rng(seed)
    while True:
        drawn = random.permutation(nodes)
        if not np.any(drawn == np.arange(nodes)):
            return np.eye(nodes)[drawn]


FloatArray = npt.NDArray[np.float64]


# Demand of jobs over time: phases that repeat, on nodes placed at random, mixed and noisy.
#
# Source of the shapes: Addanki, thesis, section 8.6 (data- and hybrid-parallel training of recommendation models with
# embedding tables), and Pit-Claudel, thesis, chapter 2 (inference). The lengths of phases are inputs; nothing here
# claims to be a measured application.


@dataclass(frozen=True)
class Phase:
    """A matrix that is wanted for `steps` intervals, at least 1."""

    demand: DemandMatrix
    steps: int = 1

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ForetailError(f"a phase takes {self.steps} steps: give at least 1")


def embedding_exchange(nodes: int, degree: int, seed: int = 1) -> DemandMatrix:
    """Return all to all from nodes in proportion to the embedding tables they hold.

    The sizes of the tables are log-normal, with a standard deviation of 1 of their logarithm.
    """
    tables = np.random.default_rng(seed).lognormal(0.0, 1.0, nodes)
    return DemandMatrix(all_to_all(nodes, degree).demand * tables[:, np.newaxis]).scaled_to(degree)


def data_parallel(nodes: int, degree: int, seed: int = 1) -> tuple[Phase, ...]:
    """Return the phases of an iteration: even input traffic at a tenth of the uplinks, then gradients along a ring."""
    del seed  # nothing is drawn
    return (Phase(all_to_all(nodes, degree).scaled_to(degree / 10), 2), Phase(ring(nodes, degree), 3))


def hybrid_parallel(nodes: int, degree: int, seed: int = 1) -> tuple[Phase, ...]:
    """Return the phases of an iteration: embeddings out, their gradients back, dense gradients along a ring."""
    out = embedding_exchange(nodes, degree, seed)
    return Phase(out, 2), Phase(DemandMatrix(out.demand.T), 2), Phase(ring(nodes, degree), 2)


_SENT_BITS = ((9_633_792, 4_816_896, 2_408_448), (1_605_664,))
"""Bits that a job of ResNet18 and one of DenseNet121 send at each split of their tasks, all of which run apart; the
graphs are in ``studies/foretail_studies/engines/inference_jobs.py``.
"""


def inference(nodes: int, degree: int, seed: int = 1) -> tuple[Phase, ...]:
    """Return six phases of two kinds of inference jobs, whose arrival rates change by up to 40 %.

    Their tasks between bottlenecks run apart, and each kind has its servers in racks that are drawn: a Dirichlet
    distribution with all parameters 1. The largest phase fills the uplinks.
    """
    homes = np.random.default_rng(seed).dirichlet(np.ones(nodes), 2)
    matrices = []
    for phase in range(6):
        rates = (1.0, 10.0) * (1 + np.random.default_rng(6 * seed + phase).uniform(-0.4, 0.4, 2))
        bits = [sum(rate * size for size in sizes) for rate, sizes in zip(rates, _SENT_BITS, strict=True)]
        demand = np.einsum("j,js,jd->sd", bits, homes, homes)
        np.fill_diagonal(demand, 0)
        matrices.append(DemandMatrix(demand))
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
    steps, interval_ns, run : of the sequence
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
