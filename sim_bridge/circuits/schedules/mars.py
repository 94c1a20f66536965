"""Mars: an oblivious periodic network that emulates a de Bruijn graph.

Source: Addanki, thesis, section 7.4. Its formulas (Theorems 15 to 19) hold for Valiant routing on a worst-case
permutation, and take the diameter as the real number ``log_d n``. A degree equal to the uplinks makes a static graph,
which has no slots to wait for.
"""

from __future__ import annotations

import numpy as np

from foretail.core.errors import ForetailError
from foretail.sim_bridge.circuits.demand.matrices import all_to_all
from foretail.sim_bridge.circuits.schedules.schedule import Schedule
from foretail.sim_bridge.circuits.throughput.valiant import valiant


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
