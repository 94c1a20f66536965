"""Throughput of shortest paths, and of Valiant load balancing: to a random node first, then to the destination.

Source: Addanki, thesis, section 7.4, which evaluates Mars, RotorNet and Sirius with Valiant load balancing, and Opera
and expanders with shortest paths. At every node traffic is split over the next hops of all shortest paths, in
proportion to their capacity.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csgraph, csr_array

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix

FloatArray = npt.NDArray[np.float64]


def valiant(demand: DemandMatrix, capacity: FloatArray) -> float:
    """Return the largest factor by which the demand can be sent: least capacity over load.

    The demand is in uplinks; `capacity` is float64[n, n], as ``Schedule.capacity``, so without the duty cycle. The
    random node is uniform over all n, source and destination included, so only the row and column sums count.
    ForetailError on a zero matrix, or a graph in which some node does not reach some other.
    """
    if not demand.demand.any():
        raise ForetailError("the demand matrix is zero: its throughput is not bounded")
    # from s to each node a share of the row sum of s, from each node to d a share of the column sum of d
    sent = (demand.demand.sum(axis=1)[:, np.newaxis] + demand.demand.sum(axis=0)) / demand.nodes
    return _throughput(capacity, sent)


def shortest_paths(demand: DemandMatrix, capacity: FloatArray) -> float:
    """Return the largest factor by which the demand can be sent on shortest paths: as :func:`valiant`, without detour.

    A split over all shortest paths stands for the thesis's split over those that share no edge.
    """
    if not demand.demand.any():
        raise ForetailError("the demand matrix is zero: its throughput is not bounded")
    return _throughput(capacity, demand.demand)


def _throughput(capacity: FloatArray, sent: FloatArray) -> float:
    """The least capacity over load when `sent`, float64[n, n], goes on shortest paths."""
    hops = csgraph.shortest_path(csr_array(capacity > 0), unweighted=True)
    if np.isinf(hops).any():
        raise ForetailError("some node does not reach some other: shortest paths need a strongly connected graph")
    load = np.zeros_like(capacity)
    for destination in range(len(capacity)):
        load += _load(hops[:, destination], capacity, sent[:, destination])
    used = load > 0
    return float(np.min(capacity[used] / load[used]))


def _load(hops: FloatArray, capacity: FloatArray, sent: FloatArray) -> FloatArray:
    """Return the load of what every node sends to the one that is 0 hops away: float64[n, n]."""
    share = np.where(hops[:, np.newaxis] == hops + 1, capacity, 0)
    width = share.sum(axis=1, keepdims=True)
    share = np.divide(share, width, out=share, where=width > 0)
    passing = sent.copy()
    for distance in range(int(hops.max()), 0, -1):  # from the farthest inwards
        at = hops == distance
        passing += passing[at] @ share[at]
    load: FloatArray = share * passing[:, np.newaxis]
    return load
