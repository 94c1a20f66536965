"""The frame of every experiment: cases measured as points, then tables, figures, files and notes.

An experiment lists its cases, each a frozen dataclass; names what a case depends on; measures one; and says in tables
and figures what all of them show. Everything else is here: the store, jobs and clusters, what was reused, and files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import pandas as pd
from matplotlib.figure import Figure

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.configs.schema.tracking import Launcher
from foretail.pipelines.errors import PointsFailed
from foretail.pipelines.runs.points import Point, SoFar, measure_points, points_failed
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Entry, Key, Store
from foretail.pipelines.tracking.runs import address, tracked

Case = TypeVar("Case")
FIGURE_KINDS = ("pdf", "png")


class RunsPoints(Protocol):
    """The settings by which a stage measures points."""

    store_dir: str
    jobs: int
    launcher: Launcher


@dataclass
class Here:
    """Points are measured on this machine."""

    store_dir: str
    jobs: int  #: at the same time
    launcher: Launcher = field(default_factory=Launcher)


@dataclass(frozen=True)
class Measured(Generic[Case]):
    """Cases with what was found at each, and its entry of the store."""

    cases: Sequence[Case]
    found: Sequence[Any]
    entries: Sequence[Entry]

    @property
    def note(self) -> str:
        """How much was measured now."""
        return f"{len(self.cases):,} points, {sum(entry.reused for entry in self.entries):,} of them reused"

    def rows(self, row: Callable[[Case, Any], Mapping[str, Any] | Iterable[Mapping[str, Any]]]) -> pd.DataFrame:
        """A table of the fields of every case, with what `row` makes of its finding: one row, or several."""
        made: list[dict[str, Any]] = []
        for case, found in zip(self.cases, self.found, strict=True):
            rows = row(case, found)
            fields = dataclasses.asdict(case)  # type: ignore[call-overload] # a case is a dataclass
            made += [{**fields, **one} for one in ([rows] if isinstance(rows, Mapping) else rows)]
        return pd.DataFrame(made)


def measure_cases(
    experiment: str,
    kind: str,
    cases: Sequence[Case],
    config: RunsPoints,
    *,
    name: Callable[[Case], str],
    depends_on: Callable[[Case], Mapping[str, Any]],
    measure: Callable[[Case, SoFar], Any],
) -> Measured[Case]:
    """Measure every case that the store lacks, as :func:`measure_points` does.

    Parameters
    ----------
    experiment : for the progress
    kind : folder of the points in the store
    config : store, jobs and launcher
    name, depends_on : of a case: for progress and errors, distinct; everything that its finding depends on
    measure : returns the finding, JSON-like and finite; a function of a module, or a ``functools.partial`` of one, so
        that it can travel to another machine
    """
    points = [Point(name(case), Key(kind, depends_on(case)), partial(measure, case)) for case in cases]
    found = measure_points(experiment, points, Store(config.store_dir), config.jobs, config.launcher)
    return Measured(cases, [one.found for one in found], [one.entry for one in found])


@dataclass(frozen=True, eq=False)
class ExperimentResult:
    """A finished experiment."""

    experiment: str  #: its name
    figures: Mapping[str, Any]  #: what it found, JSON-like, as ``result.json`` shows it
    shown: Sequence[Table]  #: its tables
    files: tuple[Path, ...]  #: tables and figures in the run folder
    notes: Sequence[str] = ()  #: sentences below the last table
    tracked: Mapping[str, str] | None = None  #: run and server in MLflow, or None
    failed: Mapping[str, str] = field(default_factory=dict)  #: a sentence for each point that failed, by its name
    points: int = 0  #: how many points there are, failed ones included
    #: what the experiment comes to, in two sentences; none where it has no rule for that
    conclusion: Sequence[str] = ()
    #: what is seen on its figures, by their name, the one first that tells most
    captions: Mapping[str, str] = field(default_factory=dict)

    def verdict(self) -> list[str]:
        """The conclusion."""
        return list(self.conclusion)

    def document(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            **self.figures,
            "files": [path.name for path in self.files],
            "captions": self.captions,
            "failed": dict(self.failed),
            "tracked": self.tracked,
        }

    def tables(self) -> list[Table]:
        """Its tables, with all notes."""
        notes = list(self.notes)
        if self.tracked is not None:
            notes.append(f"MLflow run {self.tracked['run_id']} in {self.tracked['uri']}")
        *others, last = self.shown
        return [*others, dataclasses.replace(last, notes=(*last.notes, *notes))]

    def failure(self) -> PointsFailed | None:
        """One sentence that names the points that failed, if any did."""
        return points_failed(self.failed, self.points) if self.failed else None


def tracked_experiment(
    config: EvaluateConfig, settings: Mapping[str, Any], run: Callable[[], ExperimentResult]
) -> ExperimentResult:
    """What `run` returns, as a run of MLflow with these settings and its files where tracking is on."""
    if not config.tracking.enabled:
        return run()
    name = f"{settings['experiment']} {settings['size']}"
    with tracked(config.tracking, Store(config.store_dir), settings, name) as logged:
        result = run()
        for path in result.files:
            logged.log_file(path)
    return dataclasses.replace(result, tracked=address(logged))


def figure_files(stem: str, figure: Figure, kinds: Sequence[str] = FIGURE_KINDS) -> dict[str, Figure]:
    """A figure in every kind of file, by its name."""
    return {f"{stem}.{kind}": figure for kind in kinds}
