"""Jobs of tasks that depend on each other, where to place them on servers that share a link, and how they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import count, pairwise
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix

# A job as a graph of tasks, and its contraction: tasks that cannot gain from running at once become one.
#
# Source: Pit-Claudel, thesis, section 2.4.1.

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


# Operators of four convolutional networks for one picture of 224 x 224, as their public descriptions have them.
#
# The operators are those of a trace of torchvision 0.2 as far as it is known: the input and the size of the batch are
# among them, and were chosen so that all four agree with Table 2.2 of Pit-Claudel's thesis. DenseNet reads that size
# from what goes into its last activation, the others from what goes into the operator that needs it. Operations are
# multiplications and additions; a transfer is a tensor of 32-bit numbers.

_NUMBER_BYTES = 4


@dataclass
class _Tensor:
    """The output of an operator: its task, channels, and rows, which are as many as columns."""

    task: int
    channels: int
    rows: int


@dataclass
class _Network:
    """A graph in the making."""

    operations: list[float] = field(default_factory=list)
    transfers: dict[tuple[int, int], float] = field(default_factory=dict)

    def add(self, operations: float, channels: int, rows: int, *inputs: _Tensor) -> _Tensor:
        task = len(self.operations)
        self.operations.append(operations)
        for given in inputs:
            self.transfers[given.task, task] = _NUMBER_BYTES * given.channels * given.rows**2
        return _Tensor(task, channels, rows)

    def picture(self) -> _Tensor:
        return self.add(0, 3, 224)

    def convolution(self, x: _Tensor, channels: int, kernel: int, stride: int = 1) -> _Tensor:
        rows = x.rows // stride
        return self.add(2.0 * kernel**2 * x.channels * channels * rows**2, channels, rows, x)

    def same(self, x: _Tensor, *others: _Tensor) -> _Tensor:
        """An operation for every number: activation, normalisation, dropout, sum."""
        return self.add(x.channels * x.rows**2, x.channels, x.rows, x, *others)

    def pool(self, x: _Tensor, rows: int) -> _Tensor:
        return self.add(x.channels * x.rows**2, x.channels, rows, x)

    def joined(self, x: _Tensor, other: _Tensor) -> _Tensor:
        return self.add(0, x.channels + other.channels, x.rows, x, other)

    def flat(self, x: _Tensor, size_of: _Tensor | None = None) -> _Tensor:
        size = self.add(0, 1, 1, size_of or x)
        return self.add(0, x.channels * x.rows**2, 1, x, size)

    def linear(self, x: _Tensor, channels: int) -> _Tensor:
        return self.add(2.0 * x.channels * channels, channels, 1, x)

    def classifier(self, x: _Tensor) -> JobGraph:
        """Two hidden layers with dropout, as AlexNet and VGG have them: seven operators."""
        x = self.flat(x)
        for _ in range(2):
            x = self.same(self.same(self.linear(x, 4096)))
        self.linear(x, 1000)
        return self.graph()

    def graph(self) -> JobGraph:
        return JobGraph(tuple(self.operations), self.transfers)


def alexnet() -> JobGraph:
    """Krizhevsky et al., 2012, in one column."""
    net = _Network()
    x = net.same(net.add(2.0 * 11**2 * 3 * 64 * 55**2, 64, 55, net.picture()))
    x = net.pool(x, 27)
    x = net.pool(net.same(net.convolution(x, 192, 5)), 13)
    for channels in (384, 256, 256):
        x = net.same(net.convolution(x, channels, 3))
    return net.classifier(net.pool(x, 6))


def vgg16() -> JobGraph:
    """Simonyan and Zisserman, 2015, configuration D."""
    net = _Network()
    x = net.picture()
    for channels, layers in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(layers):
            x = net.same(net.convolution(x, channels, 3))
        x = net.pool(x, x.rows // 2)
    return net.classifier(x)


def resnet18() -> JobGraph:
    """He et al., 2016: eight blocks, of which the first one of each later width has a convolution beside it."""
    net = _Network()
    x = net.pool(net.same(net.same(net.convolution(net.picture(), 64, 7, 2))), 56)
    for channels, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        y = net.same(net.same(net.convolution(x, channels, 3, stride)))
        y = net.same(net.convolution(y, channels, 3))
        beside = net.same(net.convolution(x, channels, 1, stride)) if stride > 1 else x
        x = net.same(net.same(y, beside))
    net.linear(net.flat(net.pool(x, 1)), 1000)
    return net.graph()


def densenet121() -> JobGraph:
    """Huang et al., 2017: four blocks with a growth of 32 channels."""
    net = _Network()
    x = net.pool(net.same(net.same(net.convolution(net.picture(), 64, 7, 2))), 56)
    for block, layers in enumerate((6, 12, 24, 16)):
        if block:
            x = net.convolution(net.same(net.same(x)), x.channels // 2, 1)
            x = net.pool(x, x.rows // 2)
        for _ in range(layers):
            y = net.convolution(net.same(net.same(x)), 128, 1)
            x = net.joined(x, net.convolution(net.same(net.same(y)), 32, 3))
    x = net.same(x)
    net.linear(net.flat(net.pool(net.same(x), 1), size_of=x), 1000)
    return net.graph()


ARCHITECTURES: Mapping[str, Callable[[], JobGraph]] = MappingProxyType(
    {"AlexNet": alexnet, "VGG16": vgg16, "ResNet18": resnet18, "DenseNet121": densenet121}
)


# Where the tasks of jobs go so that they complete soonest on average, by a queueing model of the link they share.
#
# A job is cut at its bottlenecks, the tasks on every path. Between two of these, a placement says which tasks share a
# server: a partition of the first one, the tasks between, and the last one. Jobs draw a placement by probabilities.
# Data between servers crosses one link, on which it waits as in a queue with Poisson arrivals and a fixed service time
# for each kind of transfer (the formula of Pollaczek and Khinchine). Waiting for servers does not count.
#
# For a given wait the mean completion time is linear in the probabilities, and so is the condition that no transfer
# waits longer. The optimum is a linear program for every wait, and a search over the wait. At most one set of
# placements has more than one with a positive probability, because a single condition ties them together.
#
# Source: Pit-Claudel, thesis, section 2.3.4, (I) to (XII), which it minimises on a grid. Equation (X) is printed with
# indices that say nothing; a task here has its own time and that of what it needs from other servers. Data that goes
# from a bottleneck to the next one directly is a branch of its own.

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
    choices = []
    for number, job in enumerate(classes):
        cuts = job.graph.bottlenecks
        for first, last in pairwise(cuts):
            tasks = tuple(range(first, last + 1))  # in topological order nothing else lies between them
            if len(tasks) > MOST_TASKS:
                raise ForetailError(
                    f"job {number} has {len(tasks)} tasks from one bottleneck to the next: contract it to {MOST_TASKS}"
                )
            choices.append(Choice(number, tasks, tuple(_partitions(len(tasks)))))
    return tuple(choices)


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

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """All choices."""
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
        import scipy

        if not self.choices:
            return []
        longest = max((time for of in self._transfer_s for times in of for time in times), default=0.0)
        waits = [0.0, *(longest * np.logspace(-4, 3, _WAITS))] if longest else [0.0]
        values = [self._program(wait)[0] for wait in waits]
        best = int(np.argmin(values))
        near = (waits[max(best - 1, 0)], waits[min(best + 1, len(waits) - 1)])
        wait = waits[best]
        if near[0] < near[1]:
            refined = scipy.optimize.minimize_scalar(lambda w: self._program(w)[0], bounds=near, method="bounded")
            wait = float(refined.x) if refined.fun < values[best] else wait
        return self._program(wait)[1]

    def _program(self, wait: float) -> tuple[float, list[FloatArray]]:
        """The least cost with placements whose transfers wait no longer, and their probabilities."""
        import scipy

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
        solved = scipy.optimize.linprog(
            np.array(cost) / max(cost),
            A_ub=[weight / scale],
            b_ub=[2 * wait / scale],
            A_eq=scipy.sparse.csr_array((np.ones(len(cost)), (choice_of, np.arange(len(cost))))),
            b_eq=np.ones(len(self.choices)),
            method="highs",
        )
        if solved.status != 0:
            raise ForetailError(f"HiGHS found no placement ({solved.message}): report this as a bug")
        ends = np.cumsum([len(choice.placements) for choice in self.choices])[:-1]
        return float(solved.fun) * max(cost), np.split(np.clip(solved.x, 0, 1), ends)


def apart(choices: Sequence[Choice]) -> list[FloatArray]:
    """Return the opportunistic placement: tasks between bottlenecks apart, the first of these with both bottlenecks."""
    return [_only(choice, (0, *range(len(choice.tasks) - 2), 0)) for choice in choices]


def together(choices: Sequence[Choice]) -> list[FloatArray]:
    """Return the placement of every job on one server."""
    return [_only(choice, (0,) * len(choice.tasks)) for choice in choices]


def _only(choice: Choice, placement: Groups) -> FloatArray:
    return np.array([float(other == placement) for other in choice.placements])


def placed_demand(
    model: Model, probabilities: Sequence[FloatArray], homes: FloatArray, uplink_bps: float
) -> DemandMatrix:
    """Return the bits per second between racks, in capacities of one uplink.

    Groups of tasks on different servers are on racks that are drawn independently.

    Parameters
    ----------
    model : jobs and their rates
    probabilities : as ``Model.optimum``
    homes : float64[classes, racks], probability that a server of a class is in a rack; rows sum to 1
    uplink_bps : positive
    """
    bits_per_s = np.zeros(len(homes))
    for choice, chances in zip(model.choices, probabilities, strict=True):
        job = model.classes[choice.job]
        for placement, chance in zip(choice.placements, chances, strict=True):
            crossing = choice.crossing(job.graph, placement)
            size_bits = 8 * sum(job.graph.transfers[edge] for edge in crossing)
            bits_per_s[choice.job] += job.arrivals_per_s * chance * size_bits
    demand = np.einsum("j,js,jd->sd", bits_per_s / uplink_bps, homes, homes)
    np.fill_diagonal(demand, 0)
    return DemandMatrix(demand)


def with_other_rates(classes: Sequence[JobClass], share: float, seed: int) -> tuple[JobClass, ...]:
    """Return the classes with arrival rates that are each wrong by up to a share of them, uniform; 0 <= share < 1."""
    factor = 1 + np.random.default_rng(seed).uniform(-share, share, len(classes))
    return tuple(
        replace(job, arrivals_per_s=job.arrivals_per_s * float(of)) for job, of in zip(classes, factor, strict=True)
    )


# Jobs event by event, under schedulers that know the servers or only probabilities. A server runs one task at a time,
# first come first served, and so does the link with transfers. A task starts when all that it needs has come over.
#
# Source of the schedulers: Pit-Claudel, thesis, section 2.5.1; Spark there is changed to give a server back when a task
# ends.


@dataclass
class Job:
    """A job that runs."""

    kind: int  #: number of its class
    tasks: int
    arrived: float
    servers: dict[int, int] = field(default_factory=dict)  #: by task, those that are placed
    done: set[int] = field(default_factory=set)  #: tasks
    missing: list[int] = field(default_factory=list)  #: by task, what has not come yet


class Scheduler:
    """Says where tasks run."""

    def placed(self, job: Job, servers: int, random: np.random.Generator) -> dict[int, int]:
        """Return the servers of tasks as their job arrives; those that are left out get one when they can run."""
        return {}

    def server(self, job: Job, free: Sequence[float], now: float, running: int, random: np.random.Generator) -> int:
        """Return the server of a task that has none when all tasks that it needs are done.

        `free` says when each server is done with what it has, and `running` how many jobs there are.
        """
        raise ForetailError(f"{type(self).__name__} has left out a task: place it as its job arrives")


class RandomServers(Scheduler):
    """Every task on any server."""

    def placed(self, job: Job, servers: int, random: np.random.Generator) -> dict[int, int]:
        return dict(enumerate(random.integers(servers, size=job.tasks).tolist()))


@dataclass(frozen=True)
class FairShare(Scheduler):
    """The policy of Spark: every running job may have as many servers as the others.

    A task goes to an idle server of its job, or to another one while the job has fewer than its share. With `spreads`
    it goes to another one whenever it may.
    """

    spreads: bool = False

    def server(self, job: Job, free: Sequence[float], now: float, running: int, random: np.random.Generator) -> int:
        own = set(job.servers.values())
        nearest = min(own, key=lambda server: free[server], default=-1)
        full = len(own) >= max(1, len(free) // running)
        if own and (full or (free[nearest] <= now and not self.spreads)):
            return nearest
        others = [server for server in range(len(free)) if server not in own]
        return min(others, key=lambda server: (max(free[server], now), random.random()))


@dataclass(frozen=True)
class DrawnPlacements(Scheduler):
    """The policy of Nona: a job's first task on any server, and groups of the others drawn by probabilities."""

    choices: Sequence[Choice]
    probabilities: Sequence[FloatArray]  #: of the placements of each choice

    def placed(self, job: Job, servers: int, random: np.random.Generator) -> dict[int, int]:
        of_task = {0: int(random.integers(servers))}
        for choice, chances in zip(self.choices, self.probabilities, strict=True):
            if choice.job != job.kind:
                continue
            placement = choice.placements[int(random.choice(len(chances), p=chances / chances.sum()))]
            first = of_task[choice.tasks[0]]
            others = random.choice(servers - 1, max(placement), replace=max(placement) >= servers)
            server = [first, *(int(other) + (int(other) >= first) for other in others)]
            of_task |= {task: server[group] for task, group in zip(choice.tasks, placement, strict=True)}
        return of_task


@dataclass(frozen=True, eq=False)
class JobTimes:
    """Outcomes of the jobs of a run."""

    kind: npt.NDArray[np.int64]  #: int64[jobs], the class of each
    completion_s: FloatArray  #: float64[jobs], from its arrival
    transfers: int  #: over the link
    mean_wait_s: float  #: of a transfer for the link; 0 without any


def run_jobs(cluster: Cluster, classes: Sequence[JobClass], scheduler: Scheduler, jobs: int, seed: int) -> JobTimes:
    """Simulate `jobs` jobs, at least one, until all are complete. The same seed gives the same arrivals."""
    arrivals, random = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    rates = np.array([job.arrivals_per_s for job in classes])
    times = np.cumsum(arrivals.exponential(1 / rates.sum(), jobs)).tolist()
    kinds = arrivals.choice(len(classes), jobs, p=rates / rates.sum())
    run = _Run(cluster, classes, scheduler, random)
    for number, (time, kind) in enumerate(zip(times, kinds.tolist(), strict=True)):
        run.push(time, number, -1)
        run.jobs.append(Job(kind, len(classes[kind].graph.operations), time))
    run.play()
    wait = run.waited / run.transfers if run.transfers else 0.0
    return JobTimes(kinds, np.array(run.completed), run.transfers, wait)


class _Run:
    """The state of a run. Events: a job arrives (task -1), something came for a task, a task is done."""

    def __init__(
        self, cluster: Cluster, classes: Sequence[JobClass], scheduler: Scheduler, random: np.random.Generator
    ) -> None:
        self.cluster, self.classes, self.scheduler, self.random = cluster, classes, scheduler, random
        self.jobs: list[Job] = []
        self.events: list[tuple[float, int, int, int, bool]] = []  # time, order, job, task, whether it is done
        self.order = count()
        self.free = [0.0] * cluster.servers
        self.link_free = self.waited = 0.0
        self.transfers = self.running = 0
        self.completed: list[float] = []

    def push(self, time: float, job: int, task: int, *, done: bool = False) -> None:
        heappush(self.events, (time, next(self.order), job, task, done))

    def play(self) -> None:
        self.completed = [0.0] * len(self.jobs)
        while self.events:
            now, _, number, task, done = heappop(self.events)
            job = self.jobs[number]
            graph = self.classes[job.kind].graph
            if task < 0:
                self.running += 1
                job.missing = [len(before) for before in graph.before]
                job.servers = self.scheduler.placed(job, self.cluster.servers, self.random)
                self._start(now, number, 0)
            elif not done:
                self._comes(now, number, task)
            elif task == job.tasks - 1:
                self.running -= 1
                self.completed[number] = now - job.arrived
            else:
                self._pass_on(now, number, task)

    def _comes(self, now: float, number: int, task: int) -> None:
        """Something that a task needs is there."""
        job = self.jobs[number]
        job.missing[task] -= 1
        if not job.missing[task]:
            self._start(now, number, task)

    def _start(self, now: float, number: int, task: int) -> None:
        job = self.jobs[number]
        if task not in job.servers:
            job.servers[task] = self.scheduler.server(job, self.free, now, self.running, self.random)
        server = job.servers[task]
        operations = self.classes[job.kind].graph.operations[task]
        self.free[server] = max(now, self.free[server]) + operations / self.cluster.operations_per_s
        self.push(self.free[server], number, task, done=True)

    def _pass_on(self, now: float, number: int, task: int) -> None:
        """Send what a task made to those that need it, to one without a server when all that it needs is made."""
        job = self.jobs[number]
        graph = self.classes[job.kind].graph
        job.done.add(task)
        for after in sorted(graph.after[task]):
            if after in job.servers:
                self._send(now, number, task, after)
            elif graph.before[after] <= job.done:
                job.servers[after] = self.scheduler.server(job, self.free, now, self.running, self.random)
                for before in sorted(graph.before[after]):
                    self._send(now, number, before, after)

    def _send(self, now: float, number: int, task: int, after: int) -> None:
        job = self.jobs[number]
        if job.servers[after] == job.servers[task]:
            self._comes(now, number, after)
            return
        self.waited += max(0.0, self.link_free - now)
        self.transfers += 1
        size_bits = 8 * self.classes[job.kind].graph.transfers[task, after]
        self.link_free = max(now, self.link_free) + size_bits / self.cluster.link_bps
        self.push(self.link_free, number, after)
