"""The table of systems: verdicts by one rule, and the systems that compare policies and transports (ten seconds)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.pipelines.comparison.statistics import PairedDifference
from foretail.pipelines.experiment.claims import IN_SHAPE, NOT, REPRODUCED, UNKNOWN, verdict_of_value
from foretail_studies.systems.experiment import OURS, SYSTEMS_BY_NAME
from tests.composed import experiment_settings, run_of


@pytest.mark.parametrize(
    ("says", "ours", "low", "high", "verdict"),
    [
        (10.0, 10.4, None, None, REPRODUCED),
        (10.0, 10.6, None, None, IN_SHAPE),
        (10.0, 15.0, 9.0, 21.0, REPRODUCED),
        (10.0, 15.0, 11.0, 19.0, IN_SHAPE),
        (10.0, 5.0, None, None, IN_SHAPE),
        (10.0, 4.9, None, None, NOT),
        (0.0, 0.0, None, None, REPRODUCED),
        (0.0, 0.1, None, None, NOT),
        (10.0, None, None, None, UNKNOWN),
    ],
)
def test_verdicts_on_numbers(
    says: float, ours: float | None, low: float | None, high: float | None, verdict: str
) -> None:
    assert verdict_of_value(says, PairedDifference(ours, low, high, 1)) == verdict


def test_every_published_figure_is_there_once() -> None:
    for system in SYSTEMS_BY_NAME.values():
        quantities = [figure.quantity for figure in system.published]
        assert len(quantities) == len(set(quantities)), system.name
        assert all(np.isfinite(figure.value) for figure in system.published)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SYSTEMS_BY_NAME)
def test_one_command_gives_every_row_of_a_system(name: str, tmp_path: Path) -> None:
    given = ("size=small", f"systems=[{name}]", "tracking=off", f"store_dir={tmp_path / 'store'}")
    rows = run_of("systems", tmp_path / "run", *given).document()["rows"]
    system = SYSTEMS_BY_NAME[name]
    published = rows[: len(system.published)]
    assert [(row["quantity"], row["published"]) for row in published] == [
        (figure.quantity, figure.value) for figure in system.published
    ]
    assert {row["verdict"] for row in rows[len(published) :]} <= {OURS}
    for row in published:
        assert row["verdict"] != UNKNOWN, row["quantity"]
        assert row["seeds"] == len(system.seeds["small"])
        if row["seeds"] > 1:
            assert row["low"] <= row["ours"] <= row["high"]


def test_a_system_that_is_not_there_is_refused() -> None:
    with pytest.raises(ForetailError, match="systems"):
        experiment_settings("systems", "size=small", "systems=[sirius2]")
