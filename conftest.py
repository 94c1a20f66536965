"""What all tests need."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import PurePosixPath

import pytest
from hypothesis import settings

# No test judges by the clock: a loaded machine is no fault. `--hypothesis-profile=nightly` draws twenty times as much.
for _profile, _examples in {"quick": 10, "ci": 50, "nightly": 1000}.items():
    settings.register_profile(_profile, deadline=None, max_examples=_examples)
settings.load_profile("ci")

# A job started in the background of a script ignores Ctrl-C, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Leave what was collected and imported out of every later garbage collection, which takes seconds over it."""
    _CLOCK.lap()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


@pytest.fixture(scope="session", autouse=True)
def _before_forests_are_drawn() -> None:
    """Import what trains them outside of strategies: it draws from `random` itself, which Hypothesis refuses there."""
    if "tests.forests" in sys.modules:
        for package in ("sklearn.ensemble", "treelite", "xgboost"):
            importlib.import_module(package)


class _Clock:
    """CPU seconds of this process and of the children that it waited for."""

    def __init__(self) -> None:
        self._last = 0.0

    def lap(self) -> float:
        """CPU seconds since the last call."""
        now = sum(os.times()[:4])
        seconds, self._last = now - self._last, now
        return seconds


_CLOCK = _Clock()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach to each phase of a test its CPU seconds; pytest-xdist carries them to the process that prints."""
    report = yield
    vars(report)["cpu_seconds"] = _CLOCK.lap()
    return report


def _write_cpu_seconds(terminalreporter: pytest.TerminalReporter) -> None:
    """Write a line for each folder of tests with its CPU seconds, and one for the collection in all workers."""
    seconds: Counter[str] = Counter()
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if hasattr(report, "cpu_seconds"):
            seconds[str(PurePosixPath(report.nodeid.partition("::")[0]).parent)] += report.cpu_seconds
    terminalreporter.section(f"{sum(seconds.values()):.0f} CPU seconds")
    for folder, spent in seconds.most_common():
        terminalreporter.write_line(f"{spent:7.1f}  {folder}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end of a run what folders cost, and how many tests were skipped: a line for each tool they lack."""
    _write_cpu_seconds(terminalreporter)
    skipped = terminalreporter.getreports("skipped")
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    if reasons:
        terminalreporter.section(f"{len(skipped)} tests skipped")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count:4}  {reason}")
