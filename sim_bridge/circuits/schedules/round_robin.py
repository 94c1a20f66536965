"""Oblivious round robin: every node meets every other in turn, as RotorNet, Sirius and the Etalon emulator's strobe.

RotorNet and Sirius differ in what goes over it. RotorNet keeps a matching for many packets, and takes a second hop only
where the direct circuit is busy and the relay has room (``two_hop`` in cells). Sirius changes circuits every few
packets, and sends all of them over a random node (``valiant``).
"""

from __future__ import annotations

from math import gcd

import numpy as np

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import MAX_NODES
from foretail.sim_bridge.circuits.schedules.schedule import Schedule


def round_robin(nodes: int, degree: int) -> Schedule:
    """Return the n - 1 cyclic shifts, dealt to the uplinks in order.

    The period is ``(n - 1) / degree`` slots, or as many times that as make it whole; the emulated graph is complete.
    Its throughput on a permutation is ``n / (2 n - 2)`` with multi-hop routing, ``1 / (n - 1)`` with single-hop.
    ForetailError on fewer than 2 or more than 16,384 nodes, or a degree outside 1 to n - 1.
    """
    if not 2 <= nodes <= MAX_NODES:
        raise ForetailError(f"nodes is {nodes}: give 2 to {MAX_NODES}")
    if not 1 <= degree < nodes:
        raise ForetailError(f"degree is {degree}: give 1 to {nodes - 1} uplinks for {nodes} nodes")
    shift = np.tile(np.arange(1, nodes), degree // gcd(degree, nodes - 1))
    reached = (np.arange(nodes) + shift[:, np.newaxis]) % nodes
    return Schedule(reached.reshape(-1, degree, nodes).astype(np.int32))
