"""Jobs on servers that share a link, event by event, under schedulers that know the servers or only probabilities.

A server runs one task at a time, first come first served, and so does the link with transfers. A task starts when all
that it needs has come over. Source of the schedulers: Pit-Claudel, thesis, section 2.5.1; Spark there is changed to
give a server back when a task ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.sim_bridge.inference_jobs import Choice, Cluster, FloatArray, JobClass


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
    if jobs < 1 or not classes:
        raise ForetailError(f"{jobs} jobs of {len(classes)} classes: give at least one of each")
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
