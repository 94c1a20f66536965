"""``foretail schedule experiment=...``: throughput of schedules that are made for wrong predictions.

A point of a sweep is one matrix under one deviation of the noise, with all its samples and trust factors, and an entry
of the store: a sweep that was stopped goes on where it was, and the randomised schedules reuse the deterministic ones.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import pandas as pd

from foretail.configs.schema import NoiseSweep, ScheduleConfig
from foretail.features.demand_matrix import DemandMatrix
from foretail.features.errors import ForetailError
from foretail.pipelines.jobs import Report, run_jobs
from foretail.pipelines.result import Table, plain
from foretail.pipelines.schedule_figures import draw
from foretail.pipelines.store import Key, Store, code_digest
from foretail.sim_bridge.fabric.matrices import all_to_all, chessboard, random_hose, ring, skewed_ring
from foretail.sim_bridge.fabric.throughput import multi_hop
from foretail.sim_bridge.fabric.tradeoff import Noise, noisy
from foretail.sim_bridge.fabric.vermilion import (
    Diagonal,
    consistency,
    randomised_consistency,
    randomised_robustness,
    robustness,
    vermilion,
)

POINT = "schedule_noise"
POINT_FILE = "throughput.json"
NOISE_SEED = 2**32
"""Added to a sample's seed for the noise, which must not be the random numbers that made its matrix."""


@dataclass(frozen=True)
class Point:
    """One matrix under one deviation of the noise.

    Attributes
    ----------
    matrix : name in ``NoiseSweep.matrices``
    noise : additive or multiplicative
    deviation : its standard deviation, where the largest entry of the matrix is 10 (additive) or every entry 1
    """

    matrix: str
    noise: str
    deviation: float


@dataclass(frozen=True, eq=False)
class NoiseResult:
    """A finished sweep.

    Attributes
    ----------
    sweep : its settings
    curves : one row per matrix, noise, deviation and schedule: mean, least and largest throughput over the samples
    reused, points : how many of the points were in the store
    files : curves, samples and figure
    """

    sweep: NoiseSweep
    curves: pd.DataFrame
    reused: int
    points: int
    files: tuple[Path, ...]

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        return {
            "experiment": self.sweep.experiment,
            "routing": "multi-hop",
            "duty_cycle": self.sweep.duty_cycle,
            "duty_cycle_included": False,
            "seeds": [1, self.sweep.samples],
            "curves": plain(self.curves.to_dict("records")),
            "files": [path.name for path in self.files],
        }

    def tables(self) -> list[Table]:
        """Without noise, at its worst, and what is guaranteed."""
        duty, rows = self.sweep.duty_cycle, []
        for (noise, matrix, schedule), part in self.curves.groupby(["noise", "matrix", "schedule"], sort=False):
            first, means = part.iloc[0], part["mean"]
            rows.append(
                (
                    str(noise),
                    str(matrix),
                    str(schedule),
                    float(means.iloc[0]),
                    float(means.iloc[0] * duty),
                    float(means.iloc[-1]),
                    float(means.min()),
                    float(means.min() * duty),
                    float(part["least"].min()),
                    float(first["consistency"]),
                    float(first["robustness"]),
                )
            )
        low, high = self.curves["deviation"].min(), self.curves["deviation"].max()
        columns = (
            "noise",
            "matrix",
            "gamma",
            f"mean at {low:g}",
            f"x {duty:g}",
            f"mean at {high:g}",
            "least mean",
            f"x {duty:g}",
            "least sample",
            "consistency",
            "robustness",
        )
        notes = (
            f"Multi-hop throughput of {self.sweep.samples} samples by standard deviation of the noise, without the "
            f"duty cycle; the columns x {duty:g} include it.",
            f"{self.points} points, {self.reused} of them reused",
            *(f"file: {path}" for path in self.files),
        )
        return [Table(f"Schedules for wrong predictions: {self.sweep.experiment}", columns, tuple(rows), notes)]


def noise_experiment(sweep: NoiseSweep, config: ScheduleConfig, run_dir: Path) -> NoiseResult:
    """Run a sweep and draw it; of `config` counts what ``ScheduleConfig`` says."""
    _check(sweep, config)
    samples, reused = _samples(config, sweep)
    curves = _curves(samples, sweep, config.k)
    points = len(list(_points(sweep)))
    return NoiseResult(sweep, curves, reused, points, _write(sweep, samples, curves, run_dir))


def demand_of(matrix: str, sweep: NoiseSweep, degree: int, seed: int) -> DemandMatrix:
    """The true matrix of a sample; `seed` draws the random one and the permutation of the skewed one."""
    made: Mapping[str, Callable[[], DemandMatrix]] = {
        "ring": lambda: ring(sweep.nodes, degree),
        "all_to_all": lambda: all_to_all(sweep.nodes, degree),
        "random": lambda: random_hose(sweep.nodes, degree, seed),
        "skew": lambda: skewed_ring(sweep.nodes, degree, sweep.skew, seed),
        "chessboard": lambda: chessboard(sweep.nodes, degree),
    }
    return made[matrix]()


def _check(sweep: NoiseSweep, config: ScheduleConfig) -> None:
    for name in ("matrices", "noise", "deviations"):
        values = getattr(sweep, name)
        if not values or len(set(values)) < len(values):
            raise ForetailError(f"sweep.{name} is empty or holds a value twice: give different values")
    for least in sweep.uniform_from:
        if least > config.k:
            raise ForetailError(f"sweep.uniform_from = {least} is more than k = {config.k}: choose at most k")


def _points(sweep: NoiseSweep) -> Iterator[Point]:
    for noise in sweep.noise:
        for matrix in sweep.matrices:
            for deviation in sorted(sweep.deviations):
                yield Point(matrix, noise, deviation)


def _samples(config: ScheduleConfig, sweep: NoiseSweep) -> tuple[pd.DataFrame, int]:
    """Measure every point that the store lacks; one row per sample and trust factor, and how many points it had."""
    store, code, points = Store(config.store_dir), code_digest("features", "sim_bridge"), list(_points(sweep))
    waiting = iter(enumerate(points))
    found: dict[int, pd.DataFrame] = {}
    reused: list[Point] = []

    def work(report: Report) -> None:
        for place, point in waiting:  # shared by all jobs

            def so_far(seed: int, point: Point = point) -> None:
                now = f"{point.matrix} {point.noise} {point.deviation:g}, sample {seed} of {sweep.samples}"
                report(len(found) / len(points), f"{len(found):,} of {len(points):,} points, now {now}")

            key = Key(
                POINT,
                {
                    **asdict(point),
                    "nodes": sweep.nodes,
                    "degree": config.degree,
                    "skew": sweep.skew,
                    "samples": sweep.samples,
                    "trust": config.k,
                    "diagonal": config.diagonal,
                    "code": code,
                },
            )
            entry = store.get_or_build(key, _measured(point, sweep, config, so_far))
            if entry.reused:
                reused.append(point)
            theta = json.loads((entry.path / POINT_FILE).read_text(encoding="ascii"))
            found[place] = pd.DataFrame(
                [
                    {**asdict(point), "seed": seed, "gamma": trust, "theta": value}
                    for seed, values in enumerate(theta, 1)
                    for trust, value in enumerate(values, 1)
                ]
            )

    jobs = min(config.jobs, len(points))
    run_jobs({f"{sweep.experiment} {job + 1} of {jobs}": work for job in range(jobs)}, jobs)
    return pd.concat([found[place] for place in range(len(points))], ignore_index=True), len(reused)


def _measured(
    point: Point, sweep: NoiseSweep, config: ScheduleConfig, so_far: Callable[[int], None]
) -> Callable[[Path], None]:
    """Write the throughput on the true matrix: [sample][gamma - 1]."""

    def build(folder: Path) -> None:
        theta = []
        for seed in range(1, sweep.samples + 1):
            so_far(seed)
            demand = demand_of(point.matrix, sweep, config.degree, seed)
            predicted = noisy(demand, point.deviation, cast(Noise, point.noise), NOISE_SEED + seed)
            theta.append(
                [
                    multi_hop(demand, _capacity(predicted, config, trust, 2 * NOISE_SEED + seed)).theta
                    for trust in range(1, config.k + 1)
                ]
            )
        (folder / POINT_FILE).write_text(json.dumps(theta) + "\n", encoding="ascii")

    return build


def _capacity(predicted: DemandMatrix, config: ScheduleConfig, trust: int, seed: int) -> Any:
    """Capacity of the schedule for a prediction; one of no demand at all, which has no shape, is not looked at."""
    looked_at = trust if predicted.largest_sum > 0 else 1
    diagonal = cast(Diagonal, config.diagonal)
    made = vermilion(predicted, config.degree, looked_at, seed=seed, diagonal=diagonal)
    return made.capacity


def _curves(samples: pd.DataFrame, sweep: NoiseSweep, largest: int) -> pd.DataFrame:
    """Mean, least and largest throughput over the samples; a drawn k counts with its expectation in every sample."""
    curves: list[pd.DataFrame] = []
    if sweep.uniform_from:
        for least in sweep.uniform_from:
            for most in range(least, largest + 1):
                share = 1 / (most - least + 1)
                mass = [0.0] * (least - 1) + [share] * (most - least + 1)
                drawn = samples[samples["gamma"].between(least, most)]
                expected = drawn.groupby(["noise", "matrix", "deviation", "seed"], sort=False, as_index=False)
                curves.append(
                    _over_samples(pd.DataFrame(expected["theta"].mean())).assign(
                        schedule=f"{least} to {most}",
                        uniform_from=least,
                        gamma=most,
                        consistency=randomised_consistency(mass),
                        robustness=randomised_robustness(mass),
                    )
                )
    else:
        for trust in range(1, largest + 1):
            curves.append(
                _over_samples(samples[samples["gamma"] == trust]).assign(
                    schedule=str(trust),
                    uniform_from=trust,
                    gamma=trust,
                    consistency=consistency(trust),
                    robustness=robustness(trust),
                )
            )
    return pd.concat(curves, ignore_index=True)


def _over_samples(samples: pd.DataFrame) -> pd.DataFrame:
    by = samples.groupby(["noise", "matrix", "deviation"], sort=False)["theta"]
    return by.agg(mean="mean", least="min", largest="max", samples="size").reset_index()


def _write(sweep: NoiseSweep, samples: pd.DataFrame, curves: pd.DataFrame, run_dir: Path) -> tuple[Path, ...]:
    """Write curves, samples and the figure into the run folder; a file appears whole."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".schedule.", dir=run_dir) as staging:
        stem = Path(staging) / sweep.experiment
        curves.to_csv(stem.with_suffix(".csv"), index=False)
        samples.to_parquet(stem.with_suffix(".parquet"), index=False)
        figure = draw(curves)
        figure.savefig(stem.with_suffix(".pdf"))
        figure.savefig(stem.with_suffix(".png"), dpi=150)
        return tuple(path.rename(run_dir / path.name) for path in sorted(Path(staging).iterdir()))
