"""What all tests need."""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib
import os
import re
import signal
import sys
import zlib
from collections import Counter
from collections.abc import Generator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import settings

from foretail.core.code import PACKAGE, code_digest, cpp_digest
from foretail.core.errors import ForetailError

ROOT = Path(__file__).parent
STUDIES = ROOT / "studies" / "tests"
_PASSED = "foretail/studies"  # in pytest's cache: the code with which each test of the studies passed

# No test judges by the clock: a loaded machine is no fault. `--hypothesis-profile=nightly` draws twelve times as much.
for _profile, _examples in {"quick": 10, "ci": 25, "nightly": 300}.items():
    settings.register_profile(_profile, deadline=None, max_examples=_examples)
settings.load_profile("ci")

# A job started in the background of a script ignores Ctrl-C, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--changed-studies`` of ``make test``, and ``--share=2/6``, the second of six shares of the tests."""
    about = "leave out tests of the studies that passed with the same code"
    parser.addoption("--changed-studies", action="store_true", help=about)
    parser.addoption("--share", default="1/1", help="K/N: the K-th of N shares of the tests, by their names")


@functools.cache
def _code_of(test_file: Path) -> str:
    """The digest of a file of tests of the studies, of the family that it tests, and of all that these import."""
    text = test_file.read_text(encoding="utf-8")
    modules = re.findall(r"^from ((?:foretail|tests)[\w.]*) import", text, re.MULTILINE)
    family = test_file.parent.relative_to(STUDIES.parent / "tests").as_posix().replace(".", "")
    product = {one for one in modules if not one.startswith("tests") and not one.endswith("._native")}
    product |= {"configs", f"foretail_studies.{family}" if family else "foretail_studies"}
    helpers = [ROOT / f"{one.replace('.', '/')}.py" for one in modules if one.startswith("tests")]
    files = [test_file, *sorted({*(ROOT / "tests").glob("*.py"), *helpers})]
    hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    simulators = PACKAGE / "sim_bridge"
    parts = [code_digest(*sorted(product)), cpp_digest(simulators, simulators), *hashes]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of other shares, and with ``--changed-studies`` those of the studies that passed as they are."""
    share, shares = map(int, config.getoption("--share").split("/"))
    items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % shares == share - 1]
    if not config.getoption("changed_studies"):
        return
    cache = getattr(config, "cache", None)
    passed, known = cache.get(_PASSED, {}) if cache else {}, set()
    for item in items:
        if STUDIES in item.path.parents:
            item.user_properties.append((_PASSED, _code_of(item.path)))
            if passed.get(item.nodeid) == _code_of(item.path):
                known.add(item)
    items[:] = [item for item in items if item not in known]
    config.hook.pytest_deselected(items=list(known))


def _remember_studies(terminalreporter: pytest.TerminalReporter) -> None:
    """Keep the code with which tests of the studies passed, and say how many were left out for it."""
    cache = getattr(terminalreporter.config, "cache", None)  # which -p no:cacheprovider leaves out
    if cache is None or not terminalreporter.config.getoption("changed_studies"):
        return
    passed = {name: code for name, code in cache.get(_PASSED, {}).items() if (ROOT / name.partition("::")[0]).exists()}
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)]
    ran = {report.nodeid: dict(report.user_properties).get(_PASSED) for report in reports if report.when == "call"}
    terminalreporter.write_line(f"{len(passed.keys() - ran)} tests of the studies passed before, with the same code")
    passed |= {name: code for name, code in ran.items() if code is not None}
    for report in terminalreporter.getreports("failed") + terminalreporter.getreports("error"):
        passed.pop(report.nodeid, None)
    cache.set(_PASSED, passed)


def pytest_collection_finish() -> None:
    """Leave what was collected and imported out of every later garbage collection, which takes seconds over it."""
    _CLOCK.lap()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


@pytest.fixture(scope="session", autouse=True)
def _errors_are_one_line() -> Generator[None]:
    """Refuse a ForetailError of several lines in every test that meets one."""
    usual = ForetailError.__init__

    def checked(error: ForetailError, message: str = "") -> None:
        assert "\n" not in message, f"an error of several lines: {message!r}"
        usual(error, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForetailError, "__init__", checked)
        yield


@pytest.fixture(scope="module", autouse=True)
def _figures_of_studies_are_drawn_once(request: pytest.FixtureRequest) -> Generator[None]:
    """Draw them in PNG alone but at night, with empty files in the place of PDF and SVG: a drawing takes seconds."""
    if STUDIES not in request.path.parents or "not nightly" not in request.config.getoption("markexpr"):
        yield
        return
    from matplotlib.figure import Figure

    usual = Figure.savefig

    def save(figure: Figure, fname: str | Path, **kwargs: Any) -> None:
        usual(figure, fname, **kwargs) if Path(fname).suffix == ".png" else Path(fname).touch()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        yield


@pytest.fixture(scope="session", autouse=True)
def _groups_of_settings_are_composed_once() -> Generator[None]:
    """Give the product the composition of tests.composed, which is Hydra's: that takes a fifth of a second a time."""
    if "foretail.pipelines.settings.compose" not in sys.modules:
        yield
        return
    from tests.composed import hydra_composed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foretail.pipelines.settings.compose._composed_alone", hydra_composed)
        yield


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
    _remember_studies(terminalreporter)
    skipped = terminalreporter.getreports("skipped")
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    if reasons:
        terminalreporter.section(f"{len(skipped)} tests skipped")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count:4}  {reason}")
