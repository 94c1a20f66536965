"""Points of an experiment: each measured once, some at a time, and kept in the store; and the files that are left.

A sweep that was stopped goes on where it was, and one that is repeated computes nothing. A point that fails is named
when the others are done; the same command then measures it again.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from foretail.core.files import staged_files
from foretail.models.scoring.figure_style import FIGURE_KINDS, figure_style
from foretail.pipelines.errors import PointsFailed, is_bad_input, sentence
from foretail.pipelines.runs.progress import StageProgress

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

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
    title: str, points: Mapping[str, Callable[[Report], Result]], jobs: int
) -> tuple[dict[str, Result], dict[str, str]]:
    """Run independent `points`; a bad one ends nothing but itself.

    Returns the results and, of the points that failed, one sentence each, both by name in the order given. Ctrl-C and
    defects stop everything, as in :func:`run_jobs`.

    Parameters
    ----------
    title : for the progress, which is that of all points together, with the time that is left
    points : what to run, by name
    jobs : points at the same time
    """
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
    return (
        {name: results[name] for name in points if name in results},
        {name: failed[name] for name in points if name in failed},
    )


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


NAMED = 5
"""Number of the failed points that the error names."""

SoFar = Callable[[str], None]
"""Called while a point is measured, with a few words; raises when the sweep has to stop."""


def points_failed(failed: Mapping[str, str], points: int) -> PointsFailed:
    """Error that names the failed points among so many, with a sentence each."""
    named = [f"{name}: {reason.rstrip('.')}" for name, reason in itertools.islice(failed.items(), NAMED)]
    named += [f"{len(failed) - NAMED:,} more"] if len(failed) > NAMED else []
    return PointsFailed(
        f"{len(failed):,} of {points:,} points failed, and running again repeats only those: {'; '.join(named)}"
    )


def write_figure(run_dir: Path, name: str, figure: Figure, numbers: pd.DataFrame) -> tuple[str, ...]:
    """Write a figure of a stage with its numbers into the run folder; returns the names of the files."""
    written = write_files(run_dir, {f"{name}.csv": numbers, **{f"{name}.{kind}": figure for kind in FIGURE_KINDS}})
    return tuple(path.name for path in written)


def write_files(run_dir: Path, files: Mapping[str, pd.DataFrame | Figure]) -> tuple[Path, ...]:
    """Write tables (CSV, Parquet) and figures (PDF, PNG, SVG) by name into the run folder; a file appears whole."""
    from matplotlib.figure import Figure

    with staged_files(run_dir) as staging, figure_style():
        for name, content in files.items():
            path = staging / name
            if isinstance(content, Figure):
                content.savefig(path)
            elif path.suffix == ".parquet":
                content.to_parquet(path, index=False)
            else:
                content.to_csv(path, index=False)
    return tuple(run_dir / name for name in sorted(files))
