"""Points of an experiment: each measured once, some at a time, and kept in the store; and the files that are left.

A sweep that was stopped goes on where it was, and one that is repeated computes nothing. A point that fails is named
when the others are done; the same command then measures it again.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretail.configs.schema.tracking import Launcher
from foretail.core.errors import ForetailError
from foretail.core.files import staged_files
from foretail.models.scoring.figure_style import FIGURE_KINDS, figure_style
from foretail.pipelines.errors import PointsFailed
from foretail.pipelines.runs.jobs import Report, run_points
from foretail.pipelines.runs.store import Entry, Key, Store

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

POINT_FILE = "point.json"
NAMED = 5
"""Number of the failed points that the error names."""

SoFar = Callable[[str], None]
"""Called while a point is measured, with a few words; raises when the sweep has to stop."""


@dataclass(frozen=True)
class Point:
    """One measurement of an experiment, measured on its own."""

    name: str  #: for the progress, and to say which one failed
    key: Key  #: everything that its measurement depends on
    #: returns the measurement, JSON-like and finite; a module's function with plain arguments (``functools.partial``),
    #: so that it can travel to another machine
    measure: Callable[[SoFar], Any]


@dataclass(frozen=True)
class Measurement:
    """Figures that were measured at a point, as JSON gives them back, and their entry of the store."""

    figures: Any
    entry: Entry


def measure_points(
    experiment: str, points: Sequence[Point], store: Store, jobs: int, launcher: Launcher | None = None
) -> list[Measurement]:
    """Measure every point that the store lacks; in the order of `points`, whose names are distinct.

    PointsFailed when all others are done, with the names of those that failed; ForetailError when all failed for the
    same reason.

    Parameters
    ----------
    experiment : for the progress
    jobs : points at the same time on this machine
    launcher : where the points are measured; None: here
    """
    entries = {point.name: store.find(point.key) for point in points}
    if len(entries) < len(points):
        raise ValueError(f"{experiment}: points share a name")
    measurements = {name: _read(entry) for name, entry in entries.items() if entry is not None}
    missing = {point.name: partial(_measured, point, store) for point in points if point.name not in measurements}
    measured, failed = run_points(experiment, missing, jobs, launcher)
    for name, measurement in measured.items():
        if not measurement.entry.path.exists():
            raise ForetailError(f"a node measured {name}, but {store.folder} is not the folder in which it wrote")
    measurements |= measured
    if failed and not measurements and len(set(failed.values())) == 1 < len(failed):
        raise ForetailError(next(iter(failed.values())))  # no matter of points: the settings, the disk
    if failed:
        raise points_failed(failed, len(points))
    return [measurements[point.name] for point in points]


def points_failed(failed: Mapping[str, str], points: int) -> PointsFailed:
    """Error that names the failed points among so many, with a sentence each."""
    named = [f"{name}: {reason.rstrip('.')}" for name, reason in itertools.islice(failed.items(), NAMED)]
    named += [f"{len(failed) - NAMED:,} more"] if len(failed) > NAMED else []
    return PointsFailed(
        f"{len(failed):,} of {points:,} points failed, and running again repeats only those: {'; '.join(named)}"
    )


def _measured(point: Point, store: Store, report: Report) -> Measurement:
    def build(folder: Path) -> None:
        measurement = point.measure(partial(report, 0.0))
        (folder / POINT_FILE).write_text(json.dumps(measurement, allow_nan=False) + "\n", encoding="ascii")

    return _read(store.get_or_build(point.key, build))


def _read(entry: Entry) -> Measurement:
    return Measurement(entry.document(POINT_FILE), entry)


def write_figure(run_dir: Path, name: str, figure: Figure, numbers: pd.DataFrame) -> tuple[str, ...]:
    """Write a figure of a stage with its numbers into the run folder; returns the names of the files."""
    written = write_files(run_dir, {f"{name}.csv": numbers, **{f"{name}.{kind}": figure for kind in FIGURE_KINDS}})
    return tuple(path.name for path in written)


def write_files(run_dir: Path, files: Mapping[str, pd.DataFrame | Figure]) -> tuple[Path, ...]:
    """Write tables (CSV, Parquet) and figures (PDF, PNG, SVG) by name into the run folder; a file appears whole."""
    from matplotlib.figure import Figure

    with staged_files(run_dir) as staging, figure_style():
        for name, content in files.items():
            path = staging / name
            if isinstance(content, Figure):
                content.savefig(path)
            elif path.suffix == ".parquet":
                content.to_parquet(path, index=False)
            else:
                content.to_csv(path, index=False)
    return tuple(run_dir / name for name in sorted(files))
