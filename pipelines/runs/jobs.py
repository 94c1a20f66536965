"""Jobs side by side: simulations are processes of their own, so threads are enough to wait for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TypeVar

from foretail.configs.schema.tracking import Launcher
from foretail.pipelines.errors import is_bad_input, sentence
from foretail.pipelines.runs.cluster import in_order, run_on_cluster
from foretail.pipelines.runs.progress import StageProgress

Result = TypeVar("Result")
Report = Callable[[float, str], None]
"""Called by a job with the fraction that is done (0 to 1) and a few words; raises when the job has to stop."""


class _Stopped(Exception):
    """Raised inside a job whose stage was interrupted or whose neighbour failed."""


def run_jobs(tasks: Mapping[str, Callable[[Report], Result]], jobs: int) -> dict[str, Result]:
    """Run `tasks` with at most `jobs` at the same time and return their results by name, in the order given.

    The first error, or Ctrl-C, stops the others at their next report and is raised once all have ended. Notes and
    readings of the tasks reach the command.
    """
    stop = threading.Event()
    with StageProgress() as progress, ThreadPoolExecutor(jobs) as pool:

        def run(name: str, task: Callable[[Report], Result]) -> Result:
            def report(fraction: float, detail: str) -> None:
                if stop.is_set():
                    raise _Stopped
                progress.update(name, fraction, detail)

            report(0.0, "")
            result = task(report)
            progress.update(name, 1.0, "")
            return result

        try:  # Ctrl-C may come before the last job is submitted
            futures = {name: pool.submit(copy_context().run, run, name, task) for name, task in tasks.items()}
            done, _ = wait(futures.values(), return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            return {name: future.result() for name, future in futures.items()}
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)


def run_points(
    title: str, points: Mapping[str, Callable[[Report], Result]], jobs: int, launcher: Launcher | None = None
) -> tuple[dict[str, Result], dict[str, str]]:
    """Run independent `points`; a bad one ends nothing but itself.

    Returns the results and, of the points that failed, one sentence each, both by name in the order given. Ctrl-C and
    defects stop everything, as in :func:`run_jobs`.

    Parameters
    ----------
    title : for the progress, which is that of all points together, with the time that is left
    points : what to run, by name; with a cluster their arguments and results travel between processes
    jobs : points at the same time on this machine
    launcher : where they run; None: here
    """
    if launcher is not None and launcher.name == "ray":
        return run_on_cluster(title, points, launcher.address)
    waiting = iter(points.items())
    results: dict[str, Result] = {}
    failed: dict[str, str] = {}
    running: dict[str, float] = {}
    started = time.monotonic()

    def work(report: Report) -> None:
        for name, point in waiting:  # shared by all jobs

            def so_far(fraction: float, words: str, name: str = name) -> None:
                running[name] = fraction
                ended = len(results) + len(failed)
                done = (ended + sum(list(running.values()))) / len(points)
                left = "" if done == 0 else f", {_minutes((time.monotonic() - started) * (1 - done) / done)} left"
                report(done, f"{ended:,} of {len(points):,} points{left}, now {name}, {words}".removesuffix(", "))

            try:
                so_far(0.0, "")
                results[name] = point(so_far)
            except Exception as error:
                if not is_bad_input(error):
                    raise
                failed[name] = sentence(error)
            finally:
                running.pop(name, None)

    workers = min(jobs, len(points))
    run_jobs({f"{title} {worker + 1} of {workers}": work for worker in range(workers)}, max(workers, 1))
    return in_order(points, results), in_order(points, failed)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
