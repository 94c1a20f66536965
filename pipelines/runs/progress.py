"""Progress on stderr: bars on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from foretail.core.errors import printable

PLAIN_SECONDS = 10.0
_terminal = (
    threading.Lock()
)  # it has room for one set of bars: what runs inside, as the trainings of a search, has none


class StageProgress:
    """Progress of several jobs at once; safe to call from threads.

    >>> with StageProgress() as progress:
    ...     progress.update("seed 1", 0.5, "20 ms simulated")
    """

    def __init__(self) -> None:
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._said: dict[str, float] = {}
        self._lock = threading.Lock()
        self._silent = False

    def __enter__(self) -> StageProgress:
        if sys.stderr.isatty():
            self._silent = not _terminal.acquire(blocking=False)
        if sys.stderr.isatty() and not self._silent:
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:3.0f} %"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[detail]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
            _terminal.release()

    def update(self, job: str, fraction: float, detail: str = "") -> None:
        """Report that `fraction` (0 to 1) of `job` is done."""
        if self._silent:
            return
        job, detail = printable(job), printable(detail)
        with self._lock:
            if self._bars is not None:
                if job not in self._tasks:
                    self._tasks[job] = self._bars.add_task(job, total=1.0, detail=detail)
                self._bars.update(self._tasks[job], completed=fraction, detail=detail)
                return
            now = time.monotonic()
            if job not in self._said:
                self._said[job] = now  # a job shorter than PLAIN_SECONDS says nothing
            elif now - self._said[job] >= PLAIN_SECONDS:
                self._said[job] = now
                done = f"{100 * fraction:.0f} % " if fraction or not detail else ""  # a build has no share of the job
                print(f"{job}: {done}{detail}".rstrip(), file=sys.stderr, flush=True)

    def say(self, line: str) -> None:
        """Print a line above the bars."""
        line = printable(line)
        with self._lock:
            if self._bars is not None:
                self._bars.console.print(line)
            else:
                print(line, file=sys.stderr, flush=True)


class Steps:
    """Wall time per step of this run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}  #: by name, in order; what the store had takes next to nothing

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Say that a step begins, and note how long it took."""
        print(f"{step} ...", file=sys.stderr, flush=True)
        started = time.monotonic()
        yield
        self.seconds[step] = time.monotonic() - started
