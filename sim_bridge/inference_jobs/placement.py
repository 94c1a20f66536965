"""Where the tasks of jobs go so that they complete soonest on average, by a queueing model of the link they share.

A job is cut at its bottlenecks, the tasks on every path. Between two of these, a placement says which tasks share a
server: a partition of the first one, the tasks between, and the last one. Jobs draw a placement by probabilities. Data
between servers crosses one link, on which it waits as in a queue with Poisson arrivals and a fixed service time for
each kind of transfer (the formula of Pollaczek and Khinchine). Waiting for servers does not count.

For a given wait the mean completion time is linear in the probabilities, and so is the condition that no transfer waits
longer. The optimum is a linear program for every wait, and a search over the wait. At most one set of placements has
more than one with a positive probability, because a single condition ties them together.

Source: Pit-Claudel, thesis, section 2.3.4, (I) to (XII), which it minimises on a grid. Equation (X) is printed with
indices that say nothing; a task here has its own time and that of what it needs from other servers. Data that goes from
a bottleneck to the next one directly is a branch of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import linprog, minimize_scalar

from foretail.core.errors import ForetailError
from foretail.sim_bridge.inference_jobs.job_graph import JobGraph

FloatArray = npt.NDArray[np.float64]
Groups = tuple[int, ...]

MOST_TASKS = 8
"""Tasks between two bottlenecks, both included: their 4,140 partitions are all tried."""
_WAITS = 60


@dataclass(frozen=True)
class JobClass:
    """Jobs of one kind."""

    graph: JobGraph
    arrivals_per_s: float  #: Poisson, positive


@dataclass(frozen=True)
class Cluster:
    """Servers and the link that they share; all numbers positive, and two servers or more."""

    servers: int
    operations_per_s: float  #: of a server
    link_bps: float

    def __post_init__(self) -> None:
        if self.servers < 2 or self.operations_per_s <= 0 or self.link_bps <= 0:
            raise ForetailError(f"{self} is no cluster: give 2 servers or more, and positive rates")


def pollaczek_khinchine(arrivals_per_s: FloatArray, service_s: FloatArray) -> float:
    """Return the mean wait in seconds, of customers of several kinds with fixed service times; inf under overload.

    Equation 2.3: a wait for every customer, whatever its kind.
    """
    load = float((arrivals_per_s * service_s).sum())
    return float((arrivals_per_s * service_s**2).sum()) / (2 * (1 - load)) if load < 1 else np.inf


@dataclass(frozen=True)
class Choice:
    """The placements of one part of a job, from a bottleneck to the next."""

    job: int  #: number of its class
    tasks: tuple[int, ...]  #: of the job's graph; the first and the last one are bottlenecks
    placements: tuple[Groups, ...]  #: the group of every task; group 0 has the first one

    def crossing(self, graph: JobGraph, placement: Groups) -> list[tuple[int, int]]:
        """Transfers between different groups."""
        group = dict(zip(self.tasks, placement, strict=True))
        return [(a, b) for a in self.tasks for b in self.tasks if (a, b) in graph.transfers and group[a] != group[b]]


def choices(classes: Sequence[JobClass]) -> tuple[Choice, ...]:
    """Return what there is to choose, with all partitions; ForetailError when a part of a job has too many tasks."""
    found = []
    for number, job in enumerate(classes):
        cuts = job.graph.bottlenecks
        for first, last in pairwise(cuts):
            tasks = tuple(range(first, last + 1))  # in topological order nothing else lies between them
            if len(tasks) > MOST_TASKS:
                raise ForetailError(
                    f"job {number} has {len(tasks)} tasks from one bottleneck to the next: contract it to {MOST_TASKS}"
                )
            found.append(Choice(number, tasks, tuple(_partitions(len(tasks)))))
    return tuple(found)


def _partitions(count: int) -> Iterator[Groups]:
    """All partitions, each group numbered at its first member."""
    if count == 0:
        yield ()
        return
    for groups in _partitions(count - 1):
        for group in range(max(groups, default=-1) + 2):
            yield (*groups, group)


@dataclass(frozen=True)
class Model:
    """The mean completion time of jobs as a function of the probabilities of placements."""

    cluster: Cluster
    classes: tuple[JobClass, ...]

    def __post_init__(self) -> None:
        if not self.classes or min(job.arrivals_per_s for job in self.classes) <= 0:
            raise ForetailError("jobs arrive at no positive rate: give classes with arrivals")

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """What there is to choose."""
        return choices(self.classes)

    @cached_property
    def _transfer_s(self) -> list[list[list[float]]]:
        """Service times of the transfers that cross the link, by choice and placement."""
        return [
            [
                [8 * graph.transfers[edge] / self.cluster.link_bps for edge in choice.crossing(graph, placement)]
                for placement in choice.placements
            ]
            for choice in self.choices
            for graph in (self.classes[choice.job].graph,)
        ]

    def wait_s(self, probabilities: Sequence[FloatArray]) -> float:
        """Return the mean wait of a transfer, (IV) to (VIII); inf when the link is overloaded."""
        arrivals, service = [], []
        for choice, chances, times in zip(self.choices, probabilities, self._transfer_s, strict=True):
            for chance, of_placement in zip(chances, times, strict=True):
                arrivals += [chance * self.classes[choice.job].arrivals_per_s] * len(of_placement)
                service += of_placement
        return pollaczek_khinchine(np.array(arrivals), np.array(service))

    def completion_s(self, probabilities: Sequence[FloatArray]) -> FloatArray:
        """Return the mean completion time of every class, (IX) to (XII): float64[classes]."""
        wait = self.wait_s(probabilities)
        total = np.array([self._compute_s(job.graph, job.graph.bottlenecks) for job in self.classes])
        for choice, chances in zip(self.choices, probabilities, strict=True):
            used = [(p, chance) for p, chance in zip(choice.placements, chances, strict=True) if chance > 0]
            total[choice.job] += sum(chance * self.between_s(choice, placement, wait) for placement, chance in used)
        return total

    def between_s(self, choice: Choice, placement: Groups, wait_s: float) -> float:
        """Return the time between the two bottlenecks of a choice, (X) and (XI), when transfers wait so long.

        The tasks of a group run one after another, groups at once: the slowest one counts.
        """
        graph = self.classes[choice.job].graph
        group = dict(zip(choice.tasks, placement, strict=True))
        first, *between, last = choice.tasks
        branch = dict.fromkeys((group[task] for task in between), 0.0)
        for task in between:
            branch[group[task]] += self._compute_s(graph, (task,))
        direct = 0.0
        for a, b in choice.crossing(graph, placement):
            cost = wait_s + 8 * graph.transfers[a, b] / self.cluster.link_bps
            if b != last:
                branch[group[b]] += cost
            elif a != first:
                branch[group[a]] += cost
            else:
                direct = cost
        return max([direct, *branch.values()])

    def _compute_s(self, graph: JobGraph, tasks: Sequence[int]) -> float:
        return sum(graph.operations[task] for task in tasks) / self.cluster.operations_per_s

    def optimum(self) -> list[FloatArray]:
        """Return the probabilities of least mean completion time over all jobs, (I): float64[placements] by choice."""
        if not self.choices:
            return []
        longest = max((time for of in self._transfer_s for times in of for time in times), default=0.0)
        waits = [0.0, *(longest * np.logspace(-4, 3, _WAITS))] if longest else [0.0]
        values = [self._program(wait)[0] for wait in waits]
        best = int(np.argmin(values))
        near = (waits[max(best - 1, 0)], waits[min(best + 1, len(waits) - 1)])
        wait = waits[best]
        if near[0] < near[1]:
            refined = minimize_scalar(lambda w: self._program(w)[0], bounds=near, method="bounded")
            wait = float(refined.x) if refined.fun < values[best] else wait
        return self._program(wait)[1]

    def _program(self, wait: float) -> tuple[float, list[FloatArray]]:
        """The least cost with placements whose transfers wait no longer, and their probabilities."""
        cost, load, square, choice_of = [], [], [], []
        for number, (choice, times) in enumerate(zip(self.choices, self._transfer_s, strict=True)):
            rate = self.classes[choice.job].arrivals_per_s
            for placement, of_placement in zip(choice.placements, times, strict=True):
                cost.append(rate * self.between_s(choice, placement, wait))
                load.append(rate * sum(of_placement))
                square.append(rate * sum(time**2 for time in of_placement))
                choice_of.append(number)
        weight = np.array(square) + 2 * wait * np.array(load)
        scale = max(weight.max(), 1e-300)  # HiGHS takes small numbers for 0
        solved = linprog(
            np.array(cost) / max(cost),
            A_ub=[weight / scale],
            b_ub=[2 * wait / scale],
            A_eq=sparse.csr_array((np.ones(len(cost)), (choice_of, np.arange(len(cost))))),
            b_eq=np.ones(len(self.choices)),
            method="highs",
        )
        if solved.status != 0:
            raise ForetailError(f"HiGHS found no placement ({solved.message}): report this as a bug")
        ends = np.cumsum([len(choice.placements) for choice in self.choices])[:-1]
        return float(solved.fun) * max(cost), np.split(np.clip(solved.x, 0, 1), ends)
