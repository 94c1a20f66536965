"""``foretail evaluate experiment=...``: sweeps of policies over generated arrivals in the slotted model.

Every point of a sweep is one sequence of arrivals with one share of inverted predictions, and an entry of the store:
a sweep that was stopped goes on where it was, and one that is repeated computes nothing.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from foretail.configs.schema.packet_experiments import Sweep
from foretail.configs.schema.stages import EvaluateConfig
from foretail.features.dataset.manifest import Rules
from foretail.models.mlflow.tracking import TrackedRun, track
from foretail.models.scoring.metrics import Confusion
from foretail.pipelines.experiments.slots.figures import draw
from foretail.pipelines.experiments.slots.tables import EXACT, LQD_RATIO, plain_rows, tables_of
from foretail.pipelines.runs.points import Measurement, Point, SoFar, measure_points
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Key, Store, code_digest
from foretail.pipelines.tracking.loading import tracking_uri
from foretail.sim_bridge.arrivals.slotted import Slotted
from foretail.sim_bridge.arrivals.workloads import WORKLOADS
from foretail.sim_bridge.arrivals.workloads.lower_bounds import LowerBound
from foretail.sim_bridge.open_loop.slotted import Parameters, compare, flipped

POINT = "laboratory"
FLIP_SEED = 2**32
"""Added to a point's seed for its flips, which must not be the random numbers that made its arrivals."""


@dataclass(frozen=True)
class Case:
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
        return f"{self.workload} N={self.ports} B={self.buffer} seed={self.seed} p={self.flip_probability:.12g}"


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
            "files": [path.name for path in self.files],
            "tracked": self.tracked,
        }

    def tables(self) -> list[Table]:
        """The experiment's tables."""
        tables = tables_of(self.sweep.experiment, self.points)
        reused = int(self.points["reused"].sum())
        notes = [f"{len(self.points):,} points, {reused:,} of them reused"]
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
    return LaboratoryResult(
        sweep, points, files, {"run_id": run.run_id, "experiment_id": run.experiment_id, "uri": run.uri}
    )


def cases_of(sweep: Sweep) -> Iterator[Case]:
    """The cases of a sweep, each once: where nothing is random, the first seed stands for all."""
    for workload in sweep.workloads:
        for ports in sweep.ports:
            for per_port in sweep.buffer_per_port:
                for probability in sweep.flip_probabilities:
                    random = probability not in (0.0, 1.0) or not issubclass(WORKLOADS[workload], LowerBound)
                    for seed in sweep.seeds if random else sweep.seeds[:1]:
                        yield Case(workload, ports, per_port * ports, sweep.slots, seed, probability)


def key_of(case: Case, sweep: Sweep, config: EvaluateConfig, code: str) -> Key:
    """What the counts of a point depend on; `code` is the digest of the simulator."""
    return Key(
        POINT,
        {
            **asdict(case),
            "workload": {"name": case.workload, **asdict(WORKLOADS[case.workload]())},
            "policies": sorted(sweep.policies),
            "predictions": {"name": "flipped", "seed": FLIP_SEED + case.seed},
            "optimum": sweep.experiment in EXACT,
            "rules": {**asdict(config.rules), "seed": config.rules_seed},
            "parameters": asdict(config.parameters),
            "code": code,
        },
    )


def _rows(config: EvaluateConfig, sweep: Sweep, store: Store) -> pd.DataFrame:
    """Measure what the store lacks and return one row per case."""
    cases = list(cases_of(sweep))
    for case in cases:  # what does not suit a workload is said before anything has run
        WORKLOADS[case.workload]().batches(case.ports, case.buffer, case.slots, case.seed)
    code = code_digest("sim_bridge")
    points = [
        Point(case.name, key_of(case, sweep, config, code), partial(_counts, case, sweep, config)) for case in cases
    ]
    measured = measure_points(sweep.experiment, points, store, config.jobs, config.launcher)
    return pd.DataFrame([_row(case, measurement) for case, measurement in zip(cases, measured, strict=True)])


def _counts(case: Case, sweep: Sweep, config: EvaluateConfig, so_far: SoFar) -> dict[str, Any]:
    def reported(batches: Iterator[Slotted]) -> Iterator[Slotted]:
        for batch in batches:
            so_far("")
            yield batch

    workload = WORKLOADS[case.workload]()
    found = compare(
        reported(workload.batches(case.ports, case.buffer, case.slots, case.seed)),
        case.ports,
        case.buffer,
        sorted(sweep.policies),
        flipped(case.flip_probability, FLIP_SEED + case.seed),
        rules=Rules(**asdict(config.rules)),
        parameters=Parameters(**(asdict(config.parameters) | {"alpha": tuple(config.parameters.alpha)})),
        seed=config.rules_seed,
        optimum=sweep.experiment in EXACT,
        threads=1,
    )
    return {
        "arrivals": found.arrivals,
        "transmitted": found.transmitted,
        "followlqd_without_predicted": found.followlqd,
        "optimum": found.optimum,
        "confusion": {name: getattr(found.whole, name) for name in ("tp", "fp", "tn", "fn")},
    }


def _row(case: Case, measured: Measurement) -> dict[str, Any]:
    """The case, its counts, and the ratios that follow from them; NaN where one has no value."""
    counts, entry = measured.found, measured.entry
    sent: Mapping[str, int] = counts["transmitted"]
    lqd, reduced, optimum = sent["lqd"], counts["followlqd_without_predicted"], counts["optimum"]
    eta = _ratio(lqd, reduced)
    closed_form = Confusion(**counts["confusion"]).closed_form_eta(case.ports)
    row = {
        **asdict(case),
        "buffer_per_port": case.buffer // case.ports,
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
            row["credence_bound"] = min(LQD_RATIO * eta, case.ports)
            row["bound_violated"] = row["opt_over_credence"] > row["credence_bound"] * (1 + 1e-12)
    return row | {"reused": entry.reused, "seconds": entry.seconds, "key": entry.digest}


def _ratio(numerator: int, denominator: int) -> float:
    return numerator / denominator if denominator else math.nan


def _log_points(run: TrackedRun, points: pd.DataFrame) -> None:
    """A nested run per point, those that were in the store too."""
    names = [*Case.__dataclass_fields__, "key"]
    for row in plain_rows(points):
        case = Case(**{name: row[name] for name in Case.__dataclass_fields__})
        metrics = {
            name: float(value)
            for name, value in row.items()
            if name not in (*names, "reused") and isinstance(value, (int, float))
        }
        run.log_nested(
            case.name, {name: row[name] for name in names}, metrics, tags={"reused": str(row["reused"]).lower()}
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
