"""A job as a graph of tasks, and its contraction: tasks that cannot gain from running at once become one.

Source: Pit-Claudel, thesis, section 2.4.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from foretail.core.errors import ForetailError

Edge = tuple[int, int]


@dataclass(frozen=True)
class JobGraph:
    """Tasks of a job, the first one its only source and the last one its only sink.

    ForetailError when tasks are not in topological order, there is another source or sink, or a number is negative.
    """

    operations: tuple[float, ...]  #: of every task, at least 0
    transfers: Mapping[Edge, float]  #: bytes that a later task needs of an earlier one, at least 0

    def __post_init__(self) -> None:
        count = len(self.operations)
        if count == 0 or min(self.operations) < 0 or min(self.transfers.values(), default=0) < 0:
            raise ForetailError("a job has no task, or a negative number: give operations and bytes of 0 or more")
        for a, b in self.transfers:
            if not 0 <= a < b < count:
                raise ForetailError(f"task {b} of {count} needs task {a}: number tasks in topological order")
        sources = [task for task in range(count) if not self.before[task]]
        sinks = [task for task in range(count) if not self.after[task]]
        if sources != [0] or sinks != [count - 1]:
            raise ForetailError(f"a job has the sources {sources} and the sinks {sinks}: give one first and one last")

    @cached_property
    def before(self) -> tuple[frozenset[int], ...]:
        """Tasks that each task needs."""
        return tuple(frozenset(a for a, b in self.transfers if b == task) for task in range(len(self.operations)))

    @cached_property
    def after(self) -> tuple[frozenset[int], ...]:
        """Tasks that need each task."""
        return tuple(frozenset(b for a, b in self.transfers if a == task) for task in range(len(self.operations)))

    @cached_property
    def bottlenecks(self) -> tuple[int, ...]:
        """Tasks on every path from the source to the sink, both included, in order."""
        count = len(self.operations)
        to, on = [1] + [0] * (count - 1), [0] * (count - 1) + [1]
        for task in range(1, count):
            to[task] = sum(to[a] for a in self.before[task])
        for task in range(count - 2, -1, -1):
            on[task] = sum(on[b] for b in self.after[task])
        return tuple(task for task in range(count) if to[task] * on[task] == to[-1])

    def contracted(self) -> JobGraph:
        """Return the graph in which no edge can be contracted any more.

        An edge from a to b is contracted when all other tasks that b needs are needed by a, and all other tasks that
        need a need b. Operations are added, and so are the bytes of edges that fall together.
        """
        operations = dict(enumerate(self.operations))
        edges = dict(self.transfers)
        before = {task: set(self.before[task]) for task in operations}
        after = {task: set(self.after[task]) for task in operations}
        waiting = sorted(edges)
        while waiting:
            a, b = waiting.pop()
            if (a, b) not in edges or not (before[b] - {a} <= before[a] and after[a] - {b} <= after[b]):
                continue
            operations[a] += operations.pop(b)
            del edges[a, b]
            for task in before[b] - {a}:
                edges[task, a] += edges.pop((task, b))
                after[task].discard(b)
            for task in after[b]:
                edges[a, task] = edges.get((a, task), 0) + edges.pop((b, task))
                before[task] = (before[task] - {b}) | {a}
            after[a] = after[b]
            del before[b], after[b]
            near = {a} | before[a] | after[a]
            waiting += [edge for edge in edges if near & set(edge)]
        return _numbered(operations, edges)


def _numbered(operations: Mapping[int, float], edges: Mapping[Edge, float]) -> JobGraph:
    """The tasks in topological order, numbered anew."""
    missing = {task: sum(b == task for _, b in edges) for task in operations}
    order: list[int] = []
    while missing:
        task = min(task for task, count in missing.items() if count == 0)
        order.append(task)
        del missing[task]
        for a, b in edges:
            if a == task:
                missing[b] -= 1
    place = {task: number for number, task in enumerate(order)}
    return JobGraph(
        tuple(operations[task] for task in order),
        dict(sorted(((place[a], place[b]), size) for (a, b), size in edges.items())),
    )
