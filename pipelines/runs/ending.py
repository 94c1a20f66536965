"""How a command ends early: by Ctrl-C or SIGTERM until its results are complete, or by an error of its stage."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

STOPPING = (signal.SIGTERM, signal.SIGINT)
AGAIN_SECONDS = 0.01
_stoppable = False


class Terminated(KeyboardInterrupt):
    """SIGTERM, cleaned up like Ctrl-C."""


class StageFailed(BaseException):
    """Carries a stage's error past Hydra, which prints a line of its own about every ``Exception`` of a job."""

    def __init__(self, error: Exception | SystemExit) -> None:
        super().__init__(error)
        self.error = error


@contextlib.contextmanager
def stoppable(stopped: list[int], of_process: bool) -> Iterator[None]:
    """SIGTERM raises ``Terminated`` as Ctrl-C does, so that partial outputs are removed.

    Only the main thread may set handlers; in any other nothing changes.

    Parameters
    ----------
    stopped : gets the signals
    of_process : whether nothing follows in this process, so that its exit code stays whatever arrives afterwards
    """
    global _stoppable

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.append(number)
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def swallowed(unraisable: Any) -> None:
        """Interrupt again: a callback of a weak reference, as SQLAlchemy has them, cannot raise what interrupts it."""
        if isinstance(unraisable.exc_value, KeyboardInterrupt) and stopped and _stoppable:
            threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), stopped[-1])).start()
        else:
            hook(unraisable)

    before = {number: signal.signal(number, stop) for number in STOPPING}
    hook, sys.unraisablehook = sys.unraisablehook, swallowed
    _stoppable = True
    try:
        yield
    finally:
        _stoppable = False
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if of_process else handler)


def results_complete() -> None:
    """Let nothing stop the command any more: its results are written, and only printing is left."""
    if _stoppable and threading.current_thread() is threading.main_thread():
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
