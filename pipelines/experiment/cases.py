"""Cases of an experiment, measured as points of the store: some at a time, here or on a cluster, each of them once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from foretail.configs.schema.experiment import PointSettings
from foretail.pipelines.data.simulation import KeepsRuns
from foretail.pipelines.runs.points import Point, SoFar, measure_points
from foretail.pipelines.runs.store import Entry, Key, Store

if TYPE_CHECKING:
    import pandas as pd

Case = TypeVar("Case")


@dataclass(frozen=True)
class Measured(Generic[Case]):
    """Cases with the measurement of each, and its entry of the store."""

    cases: Sequence[Case]
    measurements: Sequence[Any]
    entries: Sequence[Entry]

    @property
    def reused(self) -> int:
        """How many were in the store."""
        return sum(entry.reused for entry in self.entries)

    @property
    def note(self) -> str:
        """How much was measured now."""
        return f"{len(self.cases):,} points, {self.reused:,} of them reused"

    def rows(self, row: Callable[[Case, Any], Mapping[str, Any] | Iterable[Mapping[str, Any]]]) -> pd.DataFrame:
        """A table of the fields of every case, with what `row` makes of its measurement: one row, or several."""
        import pandas as pd

        made: list[dict[str, Any]] = []
        for case, measurement in zip(self.cases, self.measurements, strict=True):
            rows = row(case, measurement)
            fields = dataclasses.asdict(case)  # type: ignore[call-overload] # a case is a dataclass
            made += [{**fields, **one} for one in ([rows] if isinstance(rows, Mapping) else rows)]
        return pd.DataFrame(made)


def measure_cases(
    title: str,
    kind: str,
    cases: Sequence[Case],
    config: KeepsRuns,
    *,
    name: Callable[[Case], str],
    depends_on: Callable[[Case], Mapping[str, Any]],
    measure: Callable[[Case, SoFar], Any],
) -> Measured[Case]:
    """Measure every case that the store lacks, as :func:`measure_points` does.

    Parameters
    ----------
    title : for the progress
    kind : folder of the points in the store
    config : store and jobs, and of an experiment's points the launcher
    name, depends_on : of a case: for progress and errors, distinct; everything that its measurement depends on
    measure : returns the measurement, JSON-like and finite; a function of a module, or a ``functools.partial`` of one,
        so that it can travel to another machine
    """
    points = [Point(name(case), Key(kind, depends_on(case)), partial(measure, case)) for case in cases]
    launcher = config.launcher if isinstance(config, PointSettings) else None
    measured = measure_points(title, points, Store(config.store_dir), config.jobs or 1, launcher)
    return Measured(cases, [one.figures for one in measured], [one.entry for one in measured])


def axes(case: Callable[..., Case], *values: Iterable[Any]) -> Iterator[Case]:
    """Every combination of the values of axes as a case, the last axis fastest; axes in the order of its fields."""
    return (case(*combination) for combination in product(*values))
