"""Mars: an oblivious periodic network that emulates a de Bruijn graph, its degree chosen by a delay or buffer budget.

Source: Addanki, thesis, section 7.4, Theorems 15 to 19. The formulas hold for Valiant routing on a worst-case
permutation; they take the diameter as the real number ``log_d n``, and their throughput is without the duty cycle. A
degree equal to the uplinks makes a static graph, which has no slots to wait for.
"""

from __future__ import annotations

from math import log

import numpy as np

from foretail.features.errors import ForetailError
from foretail.sim_bridge.circuits.demand.matrices import all_to_all
from foretail.sim_bridge.circuits.schedules.schedule import Schedule
from foretail.sim_bridge.circuits.throughput.valiant import valiant

_SLACK = 1e-9
"""Relative; a budget that a degree meets exactly is met."""


def mars(nodes: int, uplinks: int, degree: int, seed: int = 1) -> Schedule:
    """Return a schedule of ``degree / uplinks`` slots whose circuits form a de Bruijn graph, in random order.

    Node u reaches ``u * degree + a`` modulo n for a below `degree`; a self loop is an idle circuit. ForetailError on a
    degree below 2 or above `nodes`, or no multiple of the uplinks.
    """
    if not 2 <= degree <= nodes:
        raise ForetailError(f"degree is {degree}: give 2 to {nodes} for a de Bruijn graph of {nodes} nodes")
    if uplinks < 1 or degree % uplinks:
        raise ForetailError(f"degree is {degree}, no multiple of {uplinks} uplinks: choose one that is")
    edges = np.zeros((nodes, nodes), np.int64)
    sender = np.repeat(np.arange(nodes), degree)
    np.add.at(edges, (sender, np.arange(nodes * degree) % nodes), 1)
    matchings = Schedule.of_multigraph(edges, uplinks).matchings.reshape(degree, nodes)
    return Schedule(np.random.default_rng(seed).permutation(matchings).reshape(-1, uplinks, nodes))


def ideal_throughput(nodes: int, degree: int) -> float:
    """Return ``1 / (2 log_d n)``, what no buffer and no delay budget limits (Theorem 17)."""
    return log(degree) / (2 * log(nodes))


def delay(nodes: int, uplinks: int, degree: int, slot: float) -> float:
    """Return the delay of a route, in the unit of `slot`, the duration of one slot (Theorem 15)."""
    return 0.0 if degree == uplinks else degree * slot / (uplinks * ideal_throughput(nodes, degree))


def buffer_needed(uplinks: int, degree: int, slot_bytes: float) -> float:
    """Return the bytes a node must store, `slot_bytes` is what one uplink sends in a slot (Theorems 16 and 19)."""
    return 0.0 if degree == uplinks else degree * slot_bytes


def throughput_within_buffer(nodes: int, uplinks: int, degree: int, slot_bytes: float, buffer: float) -> float:
    """Return the throughput when a node can store no more than `buffer` bytes (Theorem 16)."""
    needed = buffer_needed(uplinks, degree, slot_bytes)
    return ideal_throughput(nodes, degree) * (min(1.0, buffer / needed) if needed else 1.0)


def degree_for_delay(nodes: int, uplinks: int, slot: float, budget: float) -> int:
    """Return the largest multiple of `uplinks` whose delay is within `budget` (Theorem 18, by trying them all).

    ForetailError when none is, which takes a single uplink.
    """
    within = budget * (1 + _SLACK)
    return _largest([d for d in _degrees(nodes, uplinks, nodes) if delay(nodes, uplinks, d, slot) <= within])


def degree_for_buffer(nodes: int, uplinks: int, slot_bytes: float, budget: float) -> int:
    """Return the largest multiple of `uplinks` that needs no more than `budget` bytes per node (Theorem 19).

    ForetailError when none does, which takes a single uplink.
    """
    within = budget * (1 + _SLACK)
    return _largest([d for d in _degrees(nodes, uplinks, nodes) if buffer_needed(uplinks, d, slot_bytes) <= within])


def best_degree(nodes: int, uplinks: int, largest: int) -> int:
    """Return the degree up to `largest` with the best Valiant throughput on its real graph; the smallest on a tie.

    The formulas' throughput grows with the degree. Real diameters are whole, and de Bruijn graphs have self loops: of
    64 nodes, degree 8 beats 16 and 32. ForetailError when no multiple of `uplinks` is within 2 to `largest`.
    """
    even = all_to_all(nodes, uplinks)
    throughput = {d: valiant(even, mars(nodes, uplinks, d).capacity) for d in _degrees(nodes, uplinks, largest)}
    if not throughput:
        raise ForetailError(f"no multiple of {uplinks} uplinks is within 2 to {largest}: allow a larger degree")
    return max(throughput, key=throughput.__getitem__)


def _degrees(nodes: int, uplinks: int, largest: int) -> list[int]:
    if not 1 <= uplinks <= nodes:
        raise ForetailError(f"uplinks is {uplinks}: give 1 to {nodes} for {nodes} nodes")
    return [d for d in range(uplinks, min(largest, nodes) + 1, uplinks) if d >= 2]


def _largest(degrees: list[int]) -> int:
    if not degrees:
        raise ForetailError("no de Bruijn graph keeps to the budget: allow more, or use 2 uplinks and a static graph")
    return max(degrees)
