"""What all tests need."""

from __future__ import annotations

import gc
import importlib
import signal
import sys
import zlib
from collections import Counter

import pytest
from hypothesis import settings

# No test judges by the clock: a loaded machine is no fault. `--hypothesis-profile=nightly` draws six times as much.
for _profile, _examples in {"quick": 10, "ci": 50, "nightly": 300}.items():
    settings.register_profile(_profile, deadline=None, max_examples=_examples)
settings.load_profile("ci")

# A job started in the background of a script ignores Ctrl-C, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let ``--share=2/6`` choose the second of six shares of the tests."""
    parser.addoption("--share", default="1/1", help="K/N: the K-th of N shares of the tests, by their names")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other shares."""
    share, shares = map(int, config.getoption("--share").split("/"))
    items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % shares == share - 1]


def pytest_collection_finish() -> None:
    """Leave what was collected and imported out of every later garbage collection, which takes seconds over it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


@pytest.fixture(scope="session", autouse=True)
def _before_forests_are_drawn() -> None:
    """Import what trains them outside of strategies: it draws from `random` itself, which Hypothesis refuses there."""
    if "tests.forests" in sys.modules:
        for package in ("sklearn.ensemble", "treelite", "xgboost"):
            importlib.import_module(package)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end of a run how many tests were skipped, a line for each tool that they lack."""
    skipped = terminalreporter.getreports("skipped")
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    if reasons:
        terminalreporter.section(f"{len(skipped)} tests skipped")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count:4}  {reason}")
