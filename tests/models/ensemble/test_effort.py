"""Long work tells how far it is, and is refused as soon as it is clear that it would take longer than its budget."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from foretail.core.errors import ForetailError
from foretail.export.p4.target import P4
from foretail.export.target import export
from foretail.models.ensemble.effort import Effort
from tests.forests import stumps


def every_look_takes(seconds: int) -> itertools.count[int]:
    """A clock."""
    return itertools.count(0, seconds)


def test_work_within_its_budget_reports_every_part() -> None:
    told: list[tuple[str, float]] = []
    effort = Effort(100, lambda what, part: told.append((what, part)), every_look_takes(10).__next__)
    assert list(effort.watch("sums", "abcd", 4)) == list("abcd")
    assert told == [("sums", part) for part in (0.25, 0.5, 0.75, 1.0)]


def test_work_beyond_its_budget_is_refused_after_its_first_part() -> None:
    effort = Effort(100, clock=every_look_takes(10).__next__)
    seen: list[int] = []
    with pytest.raises(ForetailError, match=r"at least 1,010 s \(sums\), more than budget_seconds=100: raise it") as no:
        seen.extend(effort.watch("sums", range(100), 100))
    assert seen == [0]
    assert "\n" not in str(no.value)


def test_a_slow_start_of_less_than_a_hundredth_of_the_budget_is_no_estimate() -> None:
    times = iter([0, 0, 9, *range(10, 110)])
    assert len(list(Effort(1000, clock=lambda: next(times)).watch("sums", range(100), 120))) == 100


def test_loops_that_will_follow_count_from_the_first_one_on() -> None:
    assert len(list(Effort(100, clock=every_look_takes(10).__next__).watch("sums", range(5), 5))) == 5
    with pytest.raises(ForetailError, match=r"at least 160 s \(sums\)"):
        list(Effort(100, clock=every_look_takes(10).__next__).watch("sums", range(5), 5, later=2))


def test_budgets_count_from_the_start_of_the_export() -> None:
    effort = Effort(100, clock=every_look_takes(10).__next__)
    assert len(list(effort.watch("sums", range(4), 4))) == 4
    with pytest.raises(ForetailError, match=r"at least 110 s \(proof\)"):
        list(effort.watch("proof", range(5), 5))


@pytest.mark.parametrize("max_cells", [10**6, 1])
def test_an_export_that_would_take_too_long_writes_nothing(max_cells: int, tmp_path: Path) -> None:
    ensemble, slow = stumps(*[[0.0, 1.0]] * 3), Effort(5, clock=every_look_takes(9).__next__)
    with pytest.raises(ForetailError, match=r"budget_seconds=5: raise it, set max_cells"):
        export(ensemble, P4(), tmp_path / "p4", max_cells=max_cells, effort=slow)
    assert not (tmp_path / "p4").exists()
    told: dict[str, float] = {}
    export(ensemble, P4(), tmp_path / "p4", max_cells=max_cells, effort=Effort(60, told.__setitem__))
    by_cells = [f"{what} on 8 cells" for what in ("sums", "votes", "proof", "rounding")]
    steps = ["trees simplified", "votes chosen", "code written", "code built"]
    assert told == dict.fromkeys([*steps, *(["proof by boxes of tables"] if max_cells == 1 else by_cells)], 1.0)
