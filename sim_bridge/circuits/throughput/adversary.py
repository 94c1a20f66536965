"""Predictions that are as wrong as can be: what Vermilion's robustness is measured against.

A prediction misleads most when it puts all demand where there is none, and in such a way that the circuits for it are
of little use as detours either. The worst one is not known; a search gives an upper bound of the least throughput.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.features.demand.matrix import DemandMatrix


@dataclass(frozen=True, eq=False, repr=False)
class WorstPrediction(Summarised):
    """The permutation matrix with the least throughput that a search has found, and that throughput."""

    prediction: DemandMatrix
    theta: float


def elsewhere(demand: DemandMatrix) -> DemandMatrix:
    """Return the permutation matrix on the pairs that together have the least demand."""
    return _predicted(_least_demand(demand))


def worst_prediction(
    demand: DemandMatrix, throughput: Callable[[DemandMatrix], float], tries: int, seed: int = 1
) -> WorstPrediction:
    """Search the permutation matrices for the prediction with the least throughput.

    `demand` is the true one; `throughput` is that of the schedule for a prediction, on `demand`. The search starts from
    ``elsewhere`` and tries, by turns, to exchange the receivers of two senders in the worst one so far, and to join the
    nodes in random pairs, whose circuits lead nowhere else. ForetailError on fewer than 4 nodes.
    """
    if demand.nodes < 4:
        raise ForetailError(f"{demand.nodes} nodes leave no choice of a wrong prediction: give at least 4")
    random = np.random.default_rng(seed)
    receiver = _least_demand(demand)
    least = throughput(_predicted(receiver))
    for turn in range(tries):
        tried = _exchanged(receiver, random) if turn % 2 else _paired(demand.nodes, random)
        theta = throughput(_predicted(tried))
        if theta < least:
            receiver, least = tried, theta
    return WorstPrediction(_predicted(receiver), least)


def _least_demand(demand: DemandMatrix) -> npt.NDArray[np.int64]:
    cost = demand.demand.copy()
    np.fill_diagonal(cost, 1 + cost.sum())  # never
    return np.asarray(linear_sum_assignment(cost)[1], np.int64)


def _exchanged(receiver: npt.NDArray[np.int64], random: np.random.Generator) -> npt.NDArray[np.int64]:
    while True:
        first, second = random.choice(len(receiver), 2, replace=False)
        if receiver[first] != second and receiver[second] != first:  # else a node would send to itself
            changed = receiver.copy()
            changed[[first, second]] = receiver[[second, first]]
            return changed


def _paired(nodes: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Random pairs; with an odd number of nodes the last three make a ring."""
    order = random.permutation(nodes)
    receiver = np.empty(nodes, np.int64)
    paired = nodes - 3 * (nodes % 2)
    receiver[order[0:paired:2]], receiver[order[1:paired:2]] = order[1:paired:2], order[0:paired:2]
    receiver[order[paired:]] = np.roll(order[paired:], 1)
    return receiver


def _predicted(receiver: npt.NDArray[np.int64]) -> DemandMatrix:
    return DemandMatrix(np.eye(len(receiver))[receiver])
