"""Points of an experiment: each measured once, some at a time, and kept in the store; and the files that are left.

A sweep that was stopped goes on where it was, and one that is repeated computes nothing.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from foretail.pipelines.jobs import Report, run_jobs
from foretail.pipelines.store import Entry, Key, Store

POINT_FILE = "point.json"

SoFar = Callable[[str], None]
"""Called while a point is measured, with a few words or none; raises when the sweep has to stop."""


@dataclass(frozen=True)
class Point:
    """What is measured on its own.

    Attributes
    ----------
    name : for the progress
    key : everything that its measurement depends on
    measure : returns the measurement, JSON-like and finite
    """

    name: str
    key: Key
    measure: Callable[[SoFar], Any]


@dataclass(frozen=True)
class Measurement:
    """What was measured at a point, as JSON gives it back, and its entry of the store."""

    found: Any
    entry: Entry


def measure_points(experiment: str, points: Sequence[Point], store: Store, jobs: int) -> list[Measurement]:
    """Measure every point that the store lacks, at most `jobs` at the same time; in the order of `points`."""
    waiting = iter(enumerate(points))
    found: dict[int, Measurement] = {}

    def work(report: Report) -> None:
        for place, point in waiting:  # shared by all jobs

            def so_far(words: str = "", point: Point = point) -> None:
                now = f"{point.name}, {words}" if words else point.name
                report(len(found) / len(points), f"{len(found):,} of {len(points):,} points, now {now}")

            def build(folder: Path, point: Point = point, so_far: SoFar = so_far) -> None:
                text = json.dumps(point.measure(so_far), allow_nan=False)
                (folder / POINT_FILE).write_text(text + "\n", encoding="ascii")

            so_far()
            entry = store.get_or_build(point.key, build)
            found[place] = Measurement(json.loads((entry.path / POINT_FILE).read_text(encoding="ascii")), entry)

    jobs = min(jobs, len(points))
    run_jobs({f"{experiment} {job + 1} of {jobs}": work for job in range(jobs)}, jobs)
    return [found[place] for place in range(len(points))]


def write_files(run_dir: Path, files: Mapping[str, pd.DataFrame | Figure]) -> tuple[Path, ...]:
    """Write tables (CSV, Parquet) and figures (PDF, PNG, SVG) by name into the run folder; a file appears whole."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".files.", dir=run_dir) as staging:
        for name, content in files.items():
            path = Path(staging) / name
            if isinstance(content, Figure):
                content.savefig(path, dpi=150)
            elif path.suffix == ".parquet":
                content.to_parquet(path, index=False)
            else:
                content.to_csv(path, index=False)
        return tuple(path.rename(run_dir / path.name) for path in sorted(Path(staging).iterdir()))
