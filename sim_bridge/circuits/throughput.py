"""Throughput of schedules on demand matrices, and what a wrong prediction of them costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.features.demand.matrix import DemandMatrix
from foretail.sim_bridge._native import ConcurrentFlow

# Throughput of a static graph on a demand matrix: the largest factor by which all of it can be sent at once.
#
# Source: Addanki, thesis, sections 7.3 and 8.2: a periodic schedule has the throughput of the static graph it emulates.
# Capacities and demand are in uplinks, without the duty cycle: multiply the result by it.

FloatArray = npt.NDArray[np.float64]

_TOLERANCE = 1e-6
_PRIMAL_DUAL_NODES = 512
"""A flow of as many nodes takes 1 GB."""
_SWEEPS, _MOST_SWEEPS = 5, 20_000
"""Between looks at the bounds, and before giving up."""


def single_hop(demand: DemandMatrix, capacity: FloatArray) -> float:
    """Return the throughput when every packet goes its direct circuit: least capacity over demand; inf without demand.

    `capacity` is float64[n, n], as ``Schedule.capacity``.
    """
    wanted = demand.demand > 0
    return float(np.min(capacity[wanted] / demand.demand[wanted], initial=np.inf))


@dataclass(frozen=True, eq=False, repr=False)
class MultiHop(Summarised):
    """A maximum concurrent flow, or nearly one, with what is needed to check it without a solver."""

    theta: float  #: the throughput of the flow
    #: float64[n, n, n], ``flow[s, i, j]``: traffic of source s on the edge from i to j, when ``theta`` times the demand
    #: is sent
    flow: FloatArray
    #: float64[n, n], at least 0, positive on edges only: the dual solution. The demand, each pair along its shortest
    #: path in these lengths, would travel a total of at least 1; all edges together offer ``sum(capacity * length)``,
    #: which bounds every throughput from above.
    length: FloatArray
    #: no flow has a throughput above ``theta * (1 + epsilon)``: 0 of the linear program
    epsilon: float = 0.0

    def check(self, demand: DemandMatrix, capacity: FloatArray) -> None:
        """Raise ForetailError unless the flow is feasible and the lengths prove that none sends more."""
        if self.lower_bound(demand, capacity) < self.theta - _TOLERANCE * max(1, self.theta):
            raise ForetailError("the flow of the solver does not send what it claims: report this as a bug")
        if self.upper_bound(demand, capacity) > self.theta * (1 + self.epsilon) + _TOLERANCE * max(1, self.theta):
            raise ForetailError("the dual of the solver does not prove its throughput: report this as a bug")

    def lower_bound(self, demand: DemandMatrix, capacity: FloatArray) -> float:
        """Return the factor of the demand that the flow really delivers within the capacities, 0 if it loses any."""
        if self.flow.min() < -_TOLERANCE:
            return 0.0
        balance = self.flow.sum(axis=1) - self.flow.sum(axis=2)  # [source, node]: what arrives less what leaves
        off_source = ~np.eye(demand.nodes, dtype=bool)
        missing = np.abs(balance - self.theta * demand.demand)[off_source].max()
        used = self.flow.sum(axis=0)
        over = np.max(used - capacity)
        return self.theta if missing <= _TOLERANCE and over <= _TOLERANCE else 0.0

    def upper_bound(self, demand: DemandMatrix, capacity: FloatArray) -> float:
        """Return the bound of the lengths on every throughput."""
        import scipy

        length = np.maximum(self.length, 0)
        edges = scipy.sparse.csr_array(np.where(capacity > 0, length + np.finfo(float).tiny, 0))
        distance = scipy.sparse.csgraph.shortest_path(edges, method="D")
        wanted = demand.demand > 0
        travelled = float((demand.demand[wanted] * distance[wanted]).sum())
        return float((capacity * length).sum()) / travelled if travelled > 0 else np.inf


def multi_hop(demand: DemandMatrix, capacity: FloatArray, epsilon: float = 0.0) -> MultiHop:
    """Return the maximum concurrent flow: traffic may take any paths, split in any way.

    `capacity` is float64[n, n], as ``Schedule.capacity``. With an `epsilon` of 0 it is a linear program with one
    commodity per source, solved by HiGHS. With a larger one a primal-dual method stops as soon as its flow and its
    lengths prove that no flow sends more than 1 + `epsilon` times as much. Both are checked against their dual. Theta
    is not capped at 1. ForetailError on a zero matrix, an `epsilon` below 0, more than 512 nodes with an `epsilon`, or
    when solution and dual do not prove each other.
    """
    if not demand.demand.any():
        raise ForetailError("the demand matrix is zero: its throughput is not bounded")
    if epsilon < 0:
        raise ForetailError(f"epsilon is {epsilon}: give 0 for the linear program, or more")
    solution = _primal_dual(demand, capacity, epsilon) if epsilon else _linear_program(demand, capacity)
    solution.check(demand, capacity)
    return solution


def _primal_dual(demand: DemandMatrix, capacity: FloatArray, epsilon: float) -> MultiHop:
    import scipy

    nodes = demand.nodes
    if nodes > _PRIMAL_DUAL_NODES:
        raise ForetailError(f"multi-hop throughput of {nodes} nodes takes too much memory: give at most 512 nodes")
    reached = np.isfinite(scipy.sparse.csgraph.shortest_path(scipy.sparse.csr_array(capacity > 0), unweighted=True))
    if (demand.demand[~reached] > 0).any():
        return MultiHop(0.0, np.zeros((nodes, nodes, nodes)), (capacity > 0).astype(float), epsilon)
    run = ConcurrentFlow(np.ascontiguousarray(capacity, np.float64), np.ascontiguousarray(demand.demand))
    for _ in range(0, _MOST_SWEEPS, _SWEEPS):
        run.advance(_SWEEPS)
        lower, upper = run.bounds()
        if upper <= lower * (1 + epsilon):
            break
    else:
        raise ForetailError(f"multi-hop throughput is known to {upper / lower - 1:.2g} only: give a larger epsilon")
    flow = run.flow()
    used = flow.sum(axis=0)
    theta = float(np.min(capacity[used > 0] / used[used > 0]))
    flow *= theta
    return MultiHop(theta, flow, run.lengths(), epsilon)


def _linear_program(demand: DemandMatrix, capacity: FloatArray) -> MultiHop:
    import scipy

    sparse, nodes = scipy.sparse, demand.nodes
    sources = np.flatnonzero(demand.demand.sum(axis=1) > 0)
    tail, head = np.nonzero(capacity)
    edges, commodities = len(tail), len(sources)
    # Variables: flow of each commodity on each edge, then theta.
    incidence = sparse.coo_array(
        (np.repeat([1.0, -1.0], edges), (np.concatenate([head, tail]), np.tile(np.arange(edges), 2))), (nodes, edges)
    ).tocsr()
    rows, wanted = [], []
    for source in sources:
        others = np.arange(nodes) != source
        rows.append(incidence[others])
        wanted.append(demand.demand[source][others])
    conserve = sparse.hstack(
        [sparse.block_diag(rows), sparse.csr_array(-np.concatenate(wanted)[:, np.newaxis])], format="csr"
    )
    share = sparse.hstack(
        [sparse.csr_array(sparse.eye_array(edges))] * commodities + [sparse.csr_array((edges, 1))],
        format="csr",
    )
    variables = edges * commodities + 1
    cost = np.zeros(variables)
    cost[-1] = -1.0
    solved = scipy.optimize.linprog(
        cost,
        A_ub=share,
        b_ub=capacity[tail, head],
        A_eq=conserve,
        b_eq=np.zeros(conserve.shape[0]),
        bounds=(0, None),
        method="highs-ipm",
    )
    if solved.status != 0:
        raise ForetailError(f"HiGHS found no maximum concurrent flow ({solved.message}): report this as a bug")
    flow = np.zeros((nodes, nodes, nodes))
    for index, source in enumerate(sources):
        flow[source, tail, head] = solved.x[index * edges : (index + 1) * edges]
    length = np.zeros((nodes, nodes))
    length[tail, head] = -solved.ineqlin.marginals
    return MultiHop(float(solved.x[-1]), flow, length)


# Throughput of Valiant load balancing on shortest paths: to a random node first, then to the destination.
#
# Source: Addanki, thesis, section 7.4, which evaluates Mars, RotorNet and Sirius so. At every node traffic is split
# over the next hops of all shortest paths, in proportion to their capacity.


def valiant(demand: DemandMatrix, capacity: FloatArray) -> float:
    """Return the largest factor by which the demand can be sent: least capacity over load.

    The demand is in uplinks; `capacity` is float64[n, n], as ``Schedule.capacity``, so without the duty cycle. The
    random node is uniform over all n, source and destination included, so only the row and column sums count.
    ForetailError on a zero matrix, or a graph in which some node does not reach some other.
    """
    import scipy

    if not demand.demand.any():
        raise ForetailError("the demand matrix is zero: its throughput is not bounded")
    # from s to each node a share of the row sum of s, from each node to d a share of the column sum of d
    sent = (demand.demand.sum(axis=1)[:, np.newaxis] + demand.demand.sum(axis=0)) / demand.nodes
    hops = scipy.sparse.csgraph.shortest_path(scipy.sparse.csr_array(capacity > 0), unweighted=True)
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
