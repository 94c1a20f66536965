"""Demand between racks that follows from jobs: how often they come, and how their tasks are placed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge.inference_jobs.placement import JobClass, Model

FloatArray = npt.NDArray[np.float64]


def placed_demand(
    model: Model, probabilities: Sequence[FloatArray], homes: FloatArray, uplink_bps: float
) -> DemandMatrix:
    """Return the bits per second between racks, in capacities of one uplink.

    Groups of tasks on different servers are on racks that are drawn independently. ForetailError on homes that are no
    probabilities, or of other classes.

    Parameters
    ----------
    model : jobs and their rates
    probabilities : as ``Model.optimum``
    homes : float64[classes, racks]
        Probability that a server of a class is in a rack; rows sum to 1.
    uplink_bps : positive
    """
    if (
        homes.ndim != 2
        or len(homes) != len(model.classes)
        or (homes < 0).any()
        or not np.allclose(homes.sum(axis=1), 1)
    ):
        raise ForetailError(f"homes has shape {homes.shape}: give a row of probabilities for each class of jobs")
    if uplink_bps <= 0:
        raise ForetailError(f"uplink_bps is {uplink_bps}: give a positive rate")
    bits_per_s = np.zeros(len(homes))
    for choice, chances in zip(model.choices, probabilities, strict=True):
        job = model.classes[choice.job]
        for placement, chance in zip(choice.placements, chances, strict=True):
            crossing = choice.crossing(job.graph, placement)
            size_bits = 8 * sum(job.graph.transfers[edge] for edge in crossing)
            bits_per_s[choice.job] += job.arrivals_per_s * chance * size_bits
    demand = np.einsum("j,js,jd->sd", bits_per_s / uplink_bps, homes, homes)
    np.fill_diagonal(demand, 0)
    return DemandMatrix(demand)


def with_other_rates(classes: Sequence[JobClass], share: float, seed: int) -> tuple[JobClass, ...]:
    """Return the classes with arrival rates that are each wrong by up to a share of them, uniform; 0 <= share < 1."""
    if not 0 <= share < 1:
        raise ForetailError(f"share is {share}: give 0 to below 1")
    factor = 1 + np.random.default_rng(seed).uniform(-share, share, len(classes))
    return tuple(
        replace(job, arrivals_per_s=job.arrivals_per_s * float(of)) for job, of in zip(classes, factor, strict=True)
    )
