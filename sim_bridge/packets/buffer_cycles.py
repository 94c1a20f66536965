"""Whether switches that pause each other can stop for ever: a cycle of queues at ingress that wait for the next.

A route is the sequence of queues at ingress through which its packets go, each as (switch, port). With priority flow
control a queue that is full waits for the next one on every route through it. Routes that go up to a spine and down
again have no cycle; those around a ring do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import TypeAlias

from foretail.core.errors import ForetailError

QueueAtIngress: TypeAlias = tuple[int, int]
"""A switch, and the port by which packets come in."""


def find_cycle(routes: Iterable[Sequence[QueueAtIngress]]) -> list[QueueAtIngress] | None:
    """Return queues of which each waits for the next and the last for the first, or None if there are none.

    Examples
    --------
    >>> find_cycle([[(0, 1), (1, 1)], [(1, 1), (2, 1)]])
    >>> find_cycle([[(0, 1), (1, 1)], [(1, 1), (2, 1)], [(2, 1), (0, 1)]])
    [(0, 1), (1, 1), (2, 1)]
    """
    waits: TopologicalSorter[QueueAtIngress] = TopologicalSorter()
    for route in routes:
        for queue, following in pairwise(route):
            waits.add(queue, following)
    try:
        waits.prepare()
    except CycleError as error:
        backwards: list[QueueAtIngress] = error.args[1][1:]
        first = min(range(len(backwards)), key=lambda place: backwards[place])
        return [backwards[first - place] for place in range(len(backwards))]
    return None


def require_no_cycle(routes: Iterable[Sequence[QueueAtIngress]]) -> None:
    """Raise ForetailError if switches with these routes could wait for each other for ever."""
    cycle = find_cycle(routes)
    if cycle is not None:
        names = " waits for ".join(f"port {port} of switch {switch}" for switch, port in [*cycle, cycle[0]])
        raise ForetailError(f"these routes can stop for ever: {names}: take one of the routes through them away")
