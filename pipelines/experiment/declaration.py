"""Declarations of experiments: the settings, how one is measured, and what it shows.

Most experiments are a :class:`PointExperiment`: cases, one function that measures a case, one that makes rows of a
measurement, and one that shows all rows. Everything else is the engine's: the store, jobs, tracking, files, captions
and notes.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from foretail.configs.schema.experiment import RUN_SETTINGS, ExperimentSettings, PointSettings
from foretail.configs.schema.tracking import Tracking
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.tracking import TrackedRun
from foretail.pipelines.data.simulation import KeepsRuns
from foretail.pipelines.runs.points import Report, SoFar, points_failed, run_points
from foretail.pipelines.runs.result import Table, plain
from foretail.pipelines.runs.store import Entry, Key, Store
from foretail.pipelines.stage import SaysVerdict, StageResult

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Case = TypeVar("Case")

POINT_FILE = "point.json"
"""The measurement of a point, in its entry of the store."""


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
    """Measure every case that the store lacks, on `config.jobs` cores.

    PointsFailed when all others are done, with the names of those that failed; ForetailError when all failed for the
    same reason.

    Parameters
    ----------
    title : for the progress
    kind : folder of the points in the store
    config : store and jobs
    name, depends_on : of a case: for progress and errors, distinct; everything that its measurement depends on
    measure : returns the measurement, JSON-like and finite
    """
    store = Store(config.store_dir)
    by_name = {name(case): case for case in cases}
    if len(by_name) < len(cases):
        raise ValueError(f"{title}: points share a name")
    keys = {point: Key(kind, depends_on(case)) for point, case in by_name.items()}
    entries = {point: entry for point, key in keys.items() if (entry := store.find(key)) is not None}
    documents = {point: entry.document(POINT_FILE) for point, entry in entries.items()}
    missing = {
        point: partial(_stored, store, keys[point], partial(measure, case))
        for point, case in by_name.items()
        if point not in entries
    }
    measured, failed = run_points(title, missing, config.jobs or 1)
    documents |= {point: entry.document(POINT_FILE) for point, entry in measured.items()}
    if failed and not documents and len(set(failed.values())) == 1 < len(failed):
        raise ForetailError(next(iter(failed.values())))  # no matter of points: the settings, the disk
    if failed:
        raise points_failed(failed, len(cases))
    entries |= measured
    return Measured(cases, [documents[point] for point in by_name], [entries[point] for point in by_name])


def _stored(store: Store, key: Key, measure: Callable[[SoFar], Any], report: Report) -> Entry:
    """Measure a point into its entry of the store."""

    def build(folder: Path) -> None:
        measurement = measure(partial(report, 0.0))
        (folder / POINT_FILE).write_text(json.dumps(measurement, allow_nan=False) + "\n", encoding="ascii")

    return store.get_or_build(key, build)


def axes(case: Callable[..., Case], *values: Iterable[Any]) -> Iterator[Case]:
    """Every combination of the values of axes as a case, the last axis fastest; axes in the order of its fields."""
    return (case(*combination) for combination in product(*values))


Settings = TypeVar("Settings", bound=ExperimentSettings)
PointsOf = TypeVar("PointsOf", bound=PointSettings)


@dataclass(frozen=True)
class Run:
    """Place where an experiment runs."""

    folder: Path  #: the run folder
    store: Store
    logged: TrackedRun | None  #: its run in MLflow; None without tracking

    def inside(self, tracking: Tracking) -> Tracking:
        """The tracking of what runs inside the experiment, such as a training."""
        if self.logged is None:
            return tracking
        return dataclasses.replace(tracking, parent_run_id=self.logged.run_id, run_name=None)


@dataclass(frozen=True, eq=False, repr=False)
class Drawn(Summarised):
    """A figure."""

    figure: Figure
    caption: str  #: what is seen on it
    numbers: pd.DataFrame | None = None  #: what is drawn, for a file beside it; None where that is the rows


@dataclass(frozen=True)
class Learned:
    """A model that an experiment learned."""

    ensemble: Ensemble
    description: str  #: for the registry
    metrics: Mapping[str, float]  #: for MLflow
    log: Callable[[TrackedRun], None]  #: logs what it learned from


@dataclass(frozen=True, eq=False, repr=False)
class Shown(Summarised):
    """Tables, figures and sentences that an experiment shows."""

    rows: pd.DataFrame  #: what was measured, as ``rows`` of ``result.json`` and as a Parquet file
    tables: Sequence[Table]
    figures: Mapping[str, Drawn] = field(default_factory=dict)  #: by what follows the experiment's name in file names
    frames: Mapping[str, pd.DataFrame] = field(default_factory=dict)  #: further files, by name
    files: Sequence[Path] = ()  #: that are in the run folder already
    captions: Mapping[str, str] = field(default_factory=dict)  #: of figures among these files
    notes: Sequence[str] = ()  #: sentences below the last table
    verdict: Sequence[str] = ()  #: what the experiment comes to, in two sentences
    details: Mapping[str, Any] = field(default_factory=dict)  #: more of ``result.json``
    learned: Learned | None = None
    failed: Mapping[str, str] = field(default_factory=dict)  #: a sentence for each point that failed, by its name
    points: int = 0  #: how many points there are, failed ones included

    @classmethod
    def of_stage(cls, result: StageResult, rows: pd.DataFrame, folder: Path) -> Shown:
        """Output of a stage, whose files are in the run folder, with its figures as rows."""
        details = result.document()
        files = [folder / name for name in details.pop("files", ())]
        captions = details.pop("captions", {})
        details.pop("tracked", None)
        verdict = result.verdict() if isinstance(result, SaysVerdict) else []
        return cls(rows, result.tables(), files=files, captions=captions, verdict=verdict, details=details)


class Experiment(Protocol[Settings]):
    """An experiment, as a YAML file of a package of studies names it."""

    @property
    def settings(self) -> type[Settings]:
        """The class of its settings."""

    def find(self, settings: Settings, run: Run) -> Shown:
        """Measure, and show."""


@dataclass(frozen=True)
class FunctionExperiment(Generic[Settings]):
    """An experiment that one function makes."""

    settings: type[Settings]
    function: Callable[[Settings, Run], Shown]

    def find(self, settings: Settings, run: Run) -> Shown:
        """Return what the function shows."""
        return self.function(settings, run)


@dataclass(frozen=True, kw_only=True)
class PointExperiment(Generic[PointsOf, Case]):
    """An experiment whose cases are measured one by one, each a point of the store."""

    settings: type[PointsOf]
    kind: str  #: folder of the points in the store
    #: frozen dataclasses, all that are measured; refuses what does not fit before anything has run
    cases: Callable[[PointsOf], Iterable[Case]]
    name: Callable[[Case], str] = str  #: of a case, distinct, for progress and errors
    measure: Callable[[Case, SoFar, PointsOf], Any]  #: of a case; JSON-like and finite
    #: of a case and its measurement; one row or several, beside the fields of the case
    rows: Callable[[Case, Any, PointsOf], Mapping[str, Any] | Iterable[Mapping[str, Any]]] = (
        lambda case, measurement, settings: measurement
    )
    show: Callable[[pd.DataFrame, PointsOf], Shown]  #: all rows
    code: Sequence[str]  #: rooms whose code decides a measurement
    #: settings that a measurement does not depend on, beside those of the run: the case has their value
    varied: Sequence[str] = ()
    #: what a case depends on beside its fields, the settings and the code
    depends_on: Callable[[Case, PointsOf], Mapping[str, Any]] = lambda case, settings: {}
    #: rows also have the key, seconds and reuse of their point, and each is a run of its own in MLflow
    tracks_points: bool = False

    def find(self, settings: PointsOf, run: Run) -> Shown:
        """Measure what the store lacks, and show the rows of all cases."""
        import pandas as pd

        unmeasured = RUN_SETTINGS | set(self.varied)
        fixed = {name: value for name, value in dataclasses.asdict(settings).items() if name not in unmeasured}
        fixed["code"] = code_digest(*self.code)
        measured = measure_cases(
            settings.experiment,
            self.kind,
            list(self.cases(settings)),
            settings,
            name=self.name,
            depends_on=lambda case: {
                "settings": fixed,
                "case": dataclasses.asdict(case),  # type: ignore[call-overload] # a case is a dataclass
                **self.depends_on(case, settings),
            },
            measure=lambda case, so_far: self.measure(case, so_far, settings),
        )
        rows = measured.rows(lambda case, measurement: self.rows(case, measurement, settings))
        if self.tracks_points:
            entries = [{"reused": one.reused, "seconds": one.seconds, "key": one.digest} for one in measured.entries]
            rows = pd.concat([rows, pd.DataFrame(entries)], axis=1)
        if self.tracks_points and run.logged is not None:
            _log_points(run.logged, [self.name(case) for case in measured.cases], rows, measured.cases[0])
        shown = self.show(rows, settings)
        return dataclasses.replace(shown, notes=(measured.note, *shown.notes))


def _log_points(run: TrackedRun, names: Sequence[str], rows: pd.DataFrame, case: Any) -> None:
    """A nested run for each row, those of points that were in the store too."""
    params = [*dataclasses.asdict(case), "key"]
    for name, row in zip(names, plain(rows.to_dict("records")), strict=True):
        numbers = {column: value for column, value in row.items() if isinstance(value, (int, float))}
        metrics = {column: float(value) for column, value in numbers.items() if column not in (*params, "reused")}
        tags = {"reused": str(row["reused"]).lower()}
        run.log_nested(name, {column: row[column] for column in params}, metrics, tags=tags)
