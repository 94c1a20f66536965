"""``foretail evaluate experiment=...``: sweeps of policies over generated arrivals in the slotted model.

Every point of a sweep is one sequence of arrivals with one share of inverted predictions, and an entry of the store:
a sweep that was stopped goes on where it was, and one that is repeated computes nothing.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from foretail.configs.schema import EvaluateConfig, Sweep
from foretail.features.manifest import Rules
from foretail.models.metrics import Confusion
from foretail.models.tracking import TrackedRun, track
from foretail.pipelines.export import tracking_uri
from foretail.pipelines.jobs import Report, run_jobs
from foretail.pipelines.laboratory_figures import draw
from foretail.pipelines.laboratory_tables import EXACT, LQD_RATIO, plain_rows, tables_of
from foretail.pipelines.result import Table
from foretail.pipelines.store import Entry, Key, Store, code_digest
from foretail.sim_bridge.arrivals import Slotted
from foretail.sim_bridge.slotted import Comparison, Parameters, compare, flipped
from foretail.sim_bridge.workloads import WORKLOADS
from foretail.sim_bridge.workloads.lower_bounds import LowerBound

POINT = "laboratory"
POINT_FILE = "point.json"
FLIP_SEED = 2**32
"""Added to a point's seed for its flips, which must not be the random numbers that made its arrivals."""


@dataclass(frozen=True)
class Point:
    """One sequence of arrivals and one share of inverted predictions.

    Attributes
    ----------
    workload : name in ``WORKLOADS``; its parameters are the defaults
    ports, buffer : the switch, its buffer in packets
    slots : slots with arrivals
    seed : of the arrivals and, shifted, of the flips
    flip_probability : share of perfect predictions that is inverted
    """

    workload: str
    ports: int
    buffer: int
    slots: int
    seed: int
    flip_probability: float

    @property
    def name(self) -> str:
        """For progress and tracking."""
        return f"{self.workload} N={self.ports} B={self.buffer} seed={self.seed} p={self.flip_probability:g}"


@dataclass(frozen=True, eq=False)
class LaboratoryResult:
    """A finished sweep.

    Attributes
    ----------
    sweep : its settings
    points : one row per point
    files : Parquet and figures
    tracked : run and server in MLflow, or None
    """

    sweep: Sweep
    points: pd.DataFrame
    files: tuple[Path, ...]
    tracked: dict[str, Any] | None

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        return {
            "experiment": self.sweep.experiment,
            "points": plain_rows(self.points),
            "tables": [
                {"title": table.title, "rows": [dict(zip(table.columns, row, strict=True)) for row in table.rows]}
                for table in tables_of(self.sweep.experiment, self.points)
            ],
            "files": [path.name for path in self.files],
            "tracked": self.tracked,
        }

    def tables(self) -> list[Table]:
        """The experiment's tables."""
        tables = tables_of(self.sweep.experiment, self.points)
        reused = int(self.points["reused"].sum())
        notes = [f"{len(self.points):,} points, {reused:,} of them reused"]
        notes += [f"file: {path}" for path in self.files]
        if self.tracked is not None:
            notes.append(f"MLflow run {self.tracked['run_id']} in {self.tracked['uri']}")
        last = tables[-1]
        return [*tables[:-1], Table(last.title, last.columns, last.rows, (*last.notes, *notes))]


def laboratory(config: EvaluateConfig, run_dir: Path) -> LaboratoryResult:
    """Run the sweep that ``config.size`` chooses of ``config.sweep``, draw it and track it."""
    sweep = config.sweep[config.size]
    store = Store(config.store_dir)
    tracking = config.tracking
    if not tracking.enabled:
        points = _rows(config, sweep, store)
        return LaboratoryResult(sweep, points, _write(sweep, points, run_dir), None)
    settings = {
        "experiment": sweep.experiment,
        "size": config.size,
        "sweep": asdict(sweep),
        "rules": asdict(config.rules),
        "parameters": asdict(config.parameters),
    }
    with track(
        tracking.experiment,
        settings,
        uri=tracking_uri(tracking, store),
        run_name=tracking.run_name or f"{sweep.experiment} {config.size}",
        tags={} if tracking.sweep_id is None else {"sweep_id": tracking.sweep_id},
        parent_run_id=tracking.parent_run_id,
    ) as run:
        points = _rows(config, sweep, store)
        _log_points(run, points)
        files = _write(sweep, points, run_dir)
        for path in files:
            run.log_file(path)
    return LaboratoryResult(sweep, points, files, {"run_id": run.run_id, "uri": run.uri})


def points_of(sweep: Sweep) -> Iterator[Point]:
    """The points of a sweep, each once: where nothing is random, the first seed stands for all."""
    for workload in sweep.workloads:
        for ports in sweep.ports:
            for per_port in sweep.buffer_per_port:
                for probability in sweep.flip_probabilities:
                    random = probability not in (0.0, 1.0) or not issubclass(WORKLOADS[workload], LowerBound)
                    for seed in sweep.seeds if random else sweep.seeds[:1]:
                        yield Point(workload, ports, per_port * ports, sweep.slots, seed, probability)


def key_of(point: Point, sweep: Sweep, config: EvaluateConfig, code: str) -> Key:
    """What the counts of a point depend on; `code` is the digest of the simulator."""
    return Key(
        POINT,
        {
            **asdict(point),
            "workload": {"name": point.workload, **asdict(WORKLOADS[point.workload]())},
            "policies": sorted(sweep.policies),
            "predictions": {"name": "flipped", "seed": FLIP_SEED + point.seed},
            "optimum": sweep.experiment in EXACT,
            "rules": {**asdict(config.rules), "seed": config.rules_seed},
            "parameters": asdict(config.parameters),
            "code": code,
        },
    )


def _rows(config: EvaluateConfig, sweep: Sweep, store: Store) -> pd.DataFrame:
    """Measure every point that the store lacks, some at a time, and return one row per point."""
    points = list(points_of(sweep))
    for point in points:  # what does not suit a workload is said before anything has run
        WORKLOADS[point.workload]().batches(point.ports, point.buffer, point.slots, point.seed)
    code = code_digest("sim_bridge")
    waiting = iter(enumerate(points))
    found: dict[int, dict[str, Any]] = {}

    def work(report: Report) -> None:
        for place, point in waiting:  # shared by all jobs
            name = point.name

            def so_far(name: str = name) -> None:
                report(len(found) / len(points), f"{len(found):,} of {len(points):,} points, now {name}")

            so_far()
            key = key_of(point, sweep, config, code)
            entry = store.get_or_build(key, _measured(point, sweep, config, so_far))
            found[place] = _row(point, entry)

    jobs = min(config.jobs, len(points))
    run_jobs({f"{sweep.experiment} {job + 1} of {jobs}": work for job in range(jobs)}, jobs)
    return pd.DataFrame([found[place] for place in range(len(points))])


def _measured(point: Point, sweep: Sweep, config: EvaluateConfig, so_far: Callable[[], None]) -> Callable[[Path], None]:
    def reported(batches: Iterator[Slotted]) -> Iterator[Slotted]:
        for batch in batches:
            so_far()
            yield batch

    def build(folder: Path) -> None:
        workload = WORKLOADS[point.workload]()
        comparison = compare(
            reported(workload.batches(point.ports, point.buffer, point.slots, point.seed)),
            point.ports,
            point.buffer,
            sorted(sweep.policies),
            flipped(point.flip_probability, FLIP_SEED + point.seed),
            rules=Rules(**asdict(config.rules)),
            parameters=Parameters(**(asdict(config.parameters) | {"alpha": tuple(config.parameters.alpha)})),
            seed=config.rules_seed,
            optimum=sweep.experiment in EXACT,
            threads=1,
        )
        (folder / POINT_FILE).write_text(json.dumps(_counts(comparison), indent=1) + "\n", encoding="ascii")

    return build


def _counts(found: Comparison) -> dict[str, Any]:
    return {
        "arrivals": found.arrivals,
        "transmitted": found.transmitted,
        "followlqd_without_predicted": found.followlqd,
        "optimum": found.optimum,
        "confusion": {name: getattr(found.whole, name) for name in ("tp", "fp", "tn", "fn")},
    }


def _row(point: Point, entry: Entry) -> dict[str, Any]:
    """The point, its counts, and the ratios that follow from them; NaN where one has no value."""
    counts = json.loads((entry.path / POINT_FILE).read_text(encoding="ascii"))
    sent: Mapping[str, int] = counts["transmitted"]
    lqd, reduced, optimum = sent["lqd"], counts["followlqd_without_predicted"], counts["optimum"]
    eta = _ratio(lqd, reduced)
    closed_form = Confusion(**counts["confusion"]).closed_form_eta(point.ports)
    row = {
        **asdict(point),
        "buffer_per_port": point.buffer // point.ports,
        "arrivals": counts["arrivals"],
        "followlqd_without_predicted": reduced,
        **counts["confusion"],
        "eta": eta,
        "closed_form_eta": math.inf if closed_form is None else closed_form,
        **{f"transmitted_{policy}": count for policy, count in sent.items()},
        **{f"lqd_over_{policy}": _ratio(lqd, count) for policy, count in sent.items() if policy != "lqd"},
    }
    row["eta_over_closed_form_eta"] = eta / row["closed_form_eta"]
    # Theorem 2 of Credence: eta <= closed form. A relative 1e-12 is rounding.
    row["theorem_2_violated"] = row["eta_over_closed_form_eta"] > 1 + 1e-12
    if "credence" in sent:
        # Lemma 1 of Credence: LQD / Credence <= eta, that is, Credence sends at least what FollowLQD sends of the rest.
        row["lqd_over_credence_times_eta"] = _ratio(reduced, sent["credence"])
        row["lemma_1_violated"] = reduced > sent["credence"]
    if optimum is not None:
        row["optimum"] = optimum
        row |= {f"opt_over_{policy}": _ratio(optimum, count) for policy, count in sent.items()}
        if "credence" in sent:  # its competitive ratio, min(1.707 eta, N)
            row["credence_bound"] = min(LQD_RATIO * eta, point.ports)
            row["bound_violated"] = row["opt_over_credence"] > row["credence_bound"] * (1 + 1e-12)
    return row | {"reused": entry.reused, "seconds": entry.seconds, "key": entry.digest}


def _ratio(numerator: int, denominator: int) -> float:
    return numerator / denominator if denominator else math.nan


def _log_points(run: TrackedRun, points: pd.DataFrame) -> None:
    """A nested run per point, those that were in the store too."""
    names = [*Point.__dataclass_fields__, "key"]
    for row in plain_rows(points):
        point = Point(**{name: row[name] for name in Point.__dataclass_fields__})
        metrics = {
            name: float(value)
            for name, value in row.items()
            if name not in (*names, "reused") and isinstance(value, (int, float))
        }
        run.log_nested(
            point.name, {name: row[name] for name in names}, metrics, tags={"reused": str(row["reused"]).lower()}
        )


def _write(sweep: Sweep, points: pd.DataFrame, run_dir: Path) -> tuple[Path, ...]:
    """Write the points and the figure into the run folder; a file appears whole."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".laboratory.", dir=run_dir) as staging:
        stem = Path(staging) / sweep.experiment
        points.to_parquet(stem.with_suffix(".parquet"), index=False)
        figure = draw(sweep.experiment, points)
        figure.savefig(stem.with_suffix(".svg"))
        figure.savefig(stem.with_suffix(".png"), dpi=150)
        return tuple(path.rename(run_dir / path.name) for path in sorted(Path(staging).iterdir()))
