"""Jobs side by side: simulations are processes of their own, so threads are enough to wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from foretail.pipelines.progress import StageProgress

Result = TypeVar("Result")
Report = Callable[[float, str], None]
"""Called by a job with the fraction that is done (0 to 1) and a few words; raises when the job has to stop."""


class _Stopped(Exception):
    """Raised inside a job whose stage was interrupted or whose neighbour failed."""


def run_jobs(tasks: Mapping[str, Callable[[Report], Result]], jobs: int) -> dict[str, Result]:
    """Run `tasks` with at most `jobs` at the same time and return their results by name, in the order given.

    The first error, or Ctrl-C, stops the others at their next report and is raised once all have ended.
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

        futures = {name: pool.submit(run, name, task) for name, task in tasks.items()}
        try:
            done, _ = wait(futures.values(), return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            return {name: future.result() for name, future in futures.items()}
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
