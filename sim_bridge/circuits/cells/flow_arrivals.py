"""Flows with Poisson arrivals between racks, sizes from a distribution, in slots and cells of a fabric of circuits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge.circuits.cells.cell_fabric import CellFlows


@dataclass(frozen=True)
class SlotTime:
    """A slot: a day, in which every circuit carries one cell, and the night in which circuits are changed."""

    uplink_bps: int  #: rate of a circuit that is up
    day_ns: int  #: how long circuits are up
    night_ns: int  #: how long their reconfiguration takes

    @property
    def slot_ns(self) -> int:
        """Duration of a slot."""
        return self.day_ns + self.night_ns

    @property
    def duty_cycle(self) -> float:
        """Share of a slot in which circuits are up."""
        return self.day_ns / self.slot_ns

    @property
    def cell_bytes(self) -> float:
        """What a circuit carries in a day."""
        return self.uplink_bps * self.day_ns / 8e9


def mean_size(size_bytes: Sequence[int], cumulative: Sequence[float]) -> float:
    """Return the mean of a distribution that is linear between its points, in bytes."""
    points = pairwise(zip(size_bytes, cumulative, strict=True))
    return sum((upper - lower) * (low + high) / 2 for (low, lower), (high, upper) in points)


def poisson_flows(
    demand: DemandMatrix,
    load: float,
    slots: int,
    time: SlotTime,
    size_bytes: Sequence[int],
    cumulative: Sequence[float],
    seed: int,
) -> tuple[CellFlows, npt.NDArray[np.int64]]:
    """Return the flows that start before slot `slots`, and their sizes in bytes: int64[flows].

    ForetailError when nothing arrives on average.

    Parameters
    ----------
    demand : in uplinks; flows of a pair bring on average `load` times this
    load : float
        Of the uplinks' rate, night included: what arrives in a slot is ``load / duty_cycle`` of what a day carries, and
        a little more, because a flow ends with a cell that is not full.
    size_bytes, cumulative : sequences
        Distribution of sizes: points with probability ``cumulative[i]`` of at most ``size_bytes[i]``, from 0 to 1,
        linear between. A drawn size is rounded, and at least 1 byte.
    """
    random = np.random.default_rng(seed)
    bytes_per_slot = load * demand.demand * (time.uplink_bps * time.slot_ns / 8e9)
    rate = bytes_per_slot.ravel() / mean_size(size_bytes, cumulative)
    if not rate.sum() > 0:
        raise ForetailError("no flow arrives: give a load and a demand above 0")
    count = int(random.poisson(rate.sum() * slots))
    start = np.sort(random.integers(0, slots, count))
    pair = random.choice(len(rate), count, p=rate / rate.sum())
    size = np.maximum(1, np.rint(np.interp(random.random(count), cumulative, size_bytes))).astype(np.int64)
    cells = np.ceil(size / time.cell_bytes).astype(np.int64)
    source, destination = np.divmod(pair.astype(np.int32), np.int32(demand.nodes))
    return CellFlows(start, source, destination, cells), size
