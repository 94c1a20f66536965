"""Expanders: a static random regular graph, and Opera, whose rotating circuits form one at any time.

Source: Addanki, thesis, section 7.5, which compares Mars with both; Opera: Mellette et al., NSDI 2020.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
import numpy.typing as npt
from scipy.sparse import csgraph, csr_array

from foretail.core.errors import ForetailError
from foretail.sim_bridge.circuits.schedules.birkhoff import matching_on
from foretail.sim_bridge.circuits.schedules.schedule import IDLE, Schedule

NodeArray = npt.NDArray[np.int32]

_TRIES = 10_000


def expander(nodes: int, degree: int, seed: int = 1) -> Schedule:
    """Return one slot for ever, in which the uplinks are disjoint random pairings of the nodes.

    They are drawn until the graph is connected and its second eigenvalue at most ``2 sqrt(degree - 1)`` (a Ramanujan
    graph). ForetailError on an odd number of nodes, a degree outside 2 to nodes - 1, or when no such graph is drawn.
    """
    if nodes < 4 or nodes % 2 or not 2 <= degree < nodes:
        raise ForetailError(
            f"{nodes} nodes with {degree} uplinks: an expander has 4 nodes or more, an even number, and 2 to "
            f"{nodes - 1} uplinks"
        )
    random = np.random.default_rng(seed)
    for _ in range(_TRIES):
        pairings: list[NodeArray] = []
        for _ in range(_TRIES):
            pairing = _pairing(nodes, random)
            if not any((pairing == other).any() for other in pairings):
                pairings.append(pairing)
                if len(pairings) == degree:
                    break
        else:
            continue
        schedule = Schedule(np.stack(pairings)[np.newaxis])
        second = np.linalg.eigvalsh(schedule.capacity)[-2]
        if second <= 2 * sqrt(degree - 1) + 1e-9 and second < degree - 1e-9:
            return schedule
    raise ForetailError(f"no expander of {nodes} nodes with {degree} uplinks was drawn: choose more nodes")


def opera(nodes: int, uplinks: int, seed: int = 1) -> Schedule:
    """Return `nodes` slots in which every node meets every other `uplinks` - 1 slots in a row.

    The n matchings of a random decomposition of the complete graph with self loops, which are idle circuits, are dealt
    to the uplinks. In slot t uplink ``t % uplinks`` goes over to its next matching and carries nothing. With 3 uplinks
    or more, the others connect all nodes in every slot; the decomposition is drawn until they do. ForetailError on
    fewer than 2 uplinks, nodes that are no multiple of them, or when none is drawn.
    """
    if uplinks < 2 or nodes % uplinks:
        raise ForetailError(f"{nodes} nodes with {uplinks} uplinks: Opera needs 2 or more, and a multiple of them")
    random = np.random.default_rng(seed)
    slot, uplink = np.arange(nodes)[:, np.newaxis], np.arange(uplinks)
    turn = (slot - uplink) // uplinks % (nodes // uplinks)
    for _ in range(_TRIES):
        dealt = _decomposition(nodes, random).reshape(uplinks, -1, nodes)
        matchings = dealt[uplink, turn]  # [slot, uplink, node]
        matchings[np.arange(nodes), np.arange(nodes) % uplinks] = IDLE
        if uplinks == 2 or all(_connects(of_slot) for of_slot in matchings):
            return Schedule(matchings)
    raise ForetailError(f"no schedule of Opera with {nodes} nodes and {uplinks} uplinks was drawn: choose more nodes")


def _pairing(nodes: int, random: np.random.Generator) -> NodeArray:
    one, other = random.permutation(nodes).reshape(2, -1)
    pairing = np.empty(nodes, np.int32)
    pairing[one], pairing[other] = other, one
    return pairing


def _decomposition(nodes: int, random: np.random.Generator) -> NodeArray:
    """Matchings that use every ordered pair once, a node with itself being idle: int32[n, n]."""
    left = np.ones((nodes, nodes), bool)
    matchings = np.empty((nodes, nodes), np.int32)
    for matching in matchings:
        row, column = random.permutation(nodes), random.permutation(nodes)
        matching[row] = column[matching_on(left[row][:, column])]
        left[np.arange(nodes), matching] = False
    matchings[matchings == np.arange(nodes)] = IDLE
    return matchings


def _connects(matchings: NodeArray) -> bool:
    uplink, sender = np.nonzero(matchings != IDLE)
    edges = csr_array((np.ones(len(sender)), (sender, matchings[uplink, sender])), (matchings.shape[1],) * 2)
    return int(csgraph.connected_components(edges, connection="strong", return_labels=False)) == 1
