"""Sweeps: what is compared, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from foretail.core.errors import ForetailError
from foretail.pipelines.experiment.sweep import paired
from tests.composed import experiment_settings, run_of


def rows_of(**metrics: dict[tuple[str, str, int], float]) -> pd.DataFrame:
    """Rows of runs, by condition, variant and seed."""
    cases = next(iter(metrics.values()))
    columns = {name: [values[case] for case in cases] for name, values in metrics.items()}
    names = [dict(zip(("condition", "variant", "seed"), case, strict=True)) | {"way": ""} for case in cases]
    return pd.DataFrame(names).assign(**columns)


ROWS = rows_of(
    pauses={
        (where, variant, seed): value
        for where, values in {"load_20": (2.0, 1.0), "load_40": (4.0, 3.0)}.items()
        for variant, value in zip(("sonic", "reverie"), values, strict=True)
        for seed in (1, 2)
    }
)


@pytest.mark.parametrize(
    ("by", "mean"), [("percent", -37.5), ("difference", -1.0), ("change", (math.log(1 / 2) + math.log(3 / 4)) / 2)]
)
def test_changes_are_means_over_conditions_by_seed(by: str, mean: float) -> None:
    found = paired(ROWS, ["load_20", "load_40"], "pauses", ("reverie", "sonic"), by=by)
    assert (found.mean, found.low, found.high) == pytest.approx((mean, mean, mean))
    assert found.pairs == 2


def test_of_0_there_is_no_change_in_percent() -> None:
    rows = rows_of(drops={("a", "x", 1): 1.0, ("a", "y", 1): 0.0, ("b", "x", 1): 0.0, ("b", "y", 1): 0.0})
    assert paired(rows, ["a"], "drops", ("x", "y")).mean is None
    assert paired(rows, ["a", "b"], "drops", ("x", "y")).mean == 0
    assert paired(rows, ["a"], "drops", ("x", "y"), by="difference").mean == 1


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("compare=[{against: [fifo], metrics: [cost]}]", "names fifo, which is not among variants: add it there"),
        ("compare=[{along: way, against: [sonic], metrics: [cost]}]", "names sonic, which is not among ways"),
        ("compare=[{against: [sonic], metrics: [colour]}]", "metrics lacks colour, which is compared"),
        ("least=[colour]", "metrics lacks colour, which is compared: add it with its title"),
    ],
)
def test_what_does_not_run_cannot_be_compared(given: str, sentence: str) -> None:
    with pytest.raises(ForetailError, match=sentence):
        experiment_settings("reverie_a", "size=small", given)


def test_a_metric_that_no_run_has_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match=r"metrics names colour, which no run has: choose from .*cost"):
        run_of("recovery", tmp_path, "size=small", "tracking=off", "+metrics.colour=colour", "jobs=1")
