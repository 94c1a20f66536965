"""Points of an experiment: what fails is named, what is there is not measured again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from foretail.core.errors import ForetailError
from foretail.pipelines.errors import PointsFailed
from foretail.pipelines.runs.jobs import Report, run_jobs
from foretail.pipelines.runs.points import Point, SoFar, measure_points
from foretail.pipelines.runs.store import Key, Store


def points(numbers: Sequence[int], bad: frozenset[int], log: list[int]) -> list[Point]:
    def measure(number: int, so_far: SoFar) -> int:
        so_far("squaring")
        log.append(number)
        if number in bad:
            raise ForetailError(f"{number} has no square here.")
        return number * number

    return [
        Point(f"number {number}", Key("squares", {"number": number}), partial(measure, number)) for number in numbers
    ]


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_point_that_fails_is_named_and_only_it_is_measured_again(jobs: int, tmp_path: Path) -> None:
    store, log, numbers = Store(tmp_path), list[int](), range(5)
    with pytest.raises(
        PointsFailed,
        match=r"^2 of 5 points failed, and running again repeats only those: number 1: 1 has no square here; "
        r"number 3: 3 has no square here$",
    ):
        measure_points("squares", points(numbers, frozenset({1, 3}), log), store, jobs)
    assert sorted(log) == list(numbers)

    log.clear()
    measured = measure_points("squares", points(numbers, frozenset(), log), store, jobs)
    assert sorted(log) == [1, 3]
    assert [one.figures for one in measured] == [0, 1, 4, 9, 16]
    assert [one.entry.reused for one in measured] == [True, False, True, False, True]


def test_many_failures_are_counted(tmp_path: Path) -> None:
    with pytest.raises(PointsFailed, match=r"^8 of 8 points failed.*; number 4: 4 has no square here; 3 more$"):
        measure_points("squares", points(range(8), frozenset(range(8)), []), Store(tmp_path), 2)


def test_what_has_nothing_to_do_with_points_is_said_once(tmp_path: Path) -> None:
    def measure(so_far: SoFar) -> int:
        raise ForetailError("the settings make no sense")

    same = [Point(f"number {number}", Key("squares", {"number": number}), measure) for number in range(3)]
    with pytest.raises(ForetailError, match=r"^the settings make no sense") as raised:
        measure_points("squares", same, Store(tmp_path), 1)
    assert not isinstance(raised.value, PointsFailed)


def test_a_defect_is_no_failed_point(tmp_path: Path) -> None:
    def measure(so_far: SoFar) -> float:
        return 1 / 0

    with pytest.raises(ZeroDivisionError):
        measure_points("squares", [Point("number 1", Key("squares", {}), measure)], Store(tmp_path), 1)
    assert not list((tmp_path / "squares").iterdir())


def test_ctrl_c_before_the_last_job_is_submitted_stops_the_first() -> None:
    started, ended = threading.Event(), list[str]()

    def job(report: Report) -> None:
        started.set()
        try:
            for _ in range(1_000):
                report(0.0, "")
                time.sleep(0.01)
            ended.append("by itself")
        except Exception:
            ended.append("stopped")
            raise

    class Interrupted(dict[str, Callable[[Report], None]]):
        def items(self) -> Any:
            yield "first", job
            started.wait(10)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(Interrupted(), 2)
    assert ended == ["stopped"]
