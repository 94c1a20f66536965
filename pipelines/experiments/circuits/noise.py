"""``foretail schedule experiment=vermilion_fig9_5`` to ``9_8``: schedules that are made for noisy predictions.

A point is one matrix under one deviation of the noise, with all its samples and trust factors: the randomised
schedules reuse the deterministic ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from foretail.configs.schema.circuit_experiments import NoiseExperiment
from foretail.configs.schema.circuit_stages import ScheduleConfig
from foretail.features.demand.matrix import DemandMatrix
from foretail.features.errors import ForetailError
from foretail.models.demand.scores import matrix_error
from foretail.pipelines.experiments.circuits.figures import draw_noise, draw_smoothness
from foretail.pipelines.experiments.circuits.smoothness import smoothness, smoothness_table
from foretail.pipelines.runs.points import Point, SoFar, measure_points, write_files
from foretail.pipelines.runs.result import Table, plain
from foretail.pipelines.runs.store import Key, Store, code_digest
from foretail.sim_bridge.circuits.demand.matrices import all_to_all, chessboard, random_hose, ring, skewed_ring
from foretail.sim_bridge.circuits.schedules.vermilion import (
    Diagonal,
    consistency,
    randomised_consistency,
    randomised_robustness,
    robustness,
    vermilion,
)
from foretail.sim_bridge.circuits.throughput.throughput import multi_hop
from foretail.sim_bridge.circuits.throughput.tradeoff import Noise, noisy

POINT = "schedule_noise"
CASE = ["noise", "matrix", "deviation"]
SCHEDULE = ["schedule", "uniform_from", "gamma"]
FITTED_BY = ["noise", "matrix", "schedule"]
NOISE_SEED = 2**32
"""Added to a sample's seed for the noise, which must not be the random numbers that made its matrix."""


@dataclass(frozen=True)
class Case:
    """One matrix under one deviation of the noise.

    Attributes
    ----------
    matrix : name in ``NoiseExperiment.matrices``
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
    fits : one row per matrix, noise and schedule: throughput by the error of the predicted shape, fitted
    reused, points : how many of the points were in the store
    files : curves, samples and figure
    """

    sweep: NoiseExperiment
    curves: pd.DataFrame
    fits: pd.DataFrame
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
            "smoothness": plain(self.fits.to_dict("records")),
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
        )
        return [
            smoothness_table(self.fits, FITTED_BY, "multi-hop"),
            Table(f"Schedules for wrong predictions: {self.sweep.experiment}", columns, tuple(rows), notes),
        ]


def noise_experiment(sweep: NoiseExperiment, config: ScheduleConfig, run_dir: Path) -> NoiseResult:
    """Run a sweep and draw it; of `config` counts what ``ScheduleConfig`` says."""
    for least in sweep.uniform_from:
        if least > config.k:
            raise ForetailError(f"uniform_from = {least} is more than k = {config.k}: choose at most k")
    samples, reused = _samples(config, sweep)
    by_schedule = _by_schedule(samples, sweep, config.k)
    looking = by_schedule[by_schedule["gamma"] > 1]  # k = 1 does not see the prediction
    curves, fits = _curves(by_schedule), smoothness(looking, FITTED_BY)
    figure, fitted, stem = draw_noise(curves), draw_smoothness(by_schedule, fits), sweep.experiment
    files: dict[str, pd.DataFrame | Figure] = {
        f"{stem}.csv": curves,
        f"{stem}.parquet": samples,
        f"{stem}.pdf": figure,
        f"{stem}.png": figure,
        f"{stem}_smoothness.csv": fits,
        f"{stem}_smoothness.pdf": fitted,
        f"{stem}_smoothness.png": fitted,
    }
    return NoiseResult(sweep, curves, fits, reused, len(list(_cases(sweep))), write_files(run_dir, files))


def demand_of(matrix: str, sweep: NoiseExperiment, degree: int, seed: int) -> DemandMatrix:
    """The true matrix of a sample; `seed` draws the random one and the permutation of the skewed one."""
    made: Mapping[str, Callable[[], DemandMatrix]] = {
        "ring": lambda: ring(sweep.nodes, degree),
        "all_to_all": lambda: all_to_all(sweep.nodes, degree),
        "random": lambda: random_hose(sweep.nodes, degree, seed),
        "skew": lambda: skewed_ring(sweep.nodes, degree, sweep.skew, seed),
        "chessboard": lambda: chessboard(sweep.nodes, degree),
    }
    return made[matrix]()


def _cases(sweep: NoiseExperiment) -> Iterator[Case]:
    for noise in sweep.noise:
        for matrix in sweep.matrices:
            for deviation in sorted(sweep.deviations):
                yield Case(matrix, noise, deviation)


def _samples(config: ScheduleConfig, sweep: NoiseExperiment) -> tuple[pd.DataFrame, int]:
    """One row per sample and trust factor, and how many points were in the store."""
    code, cases = code_digest("features", "sim_bridge"), list(_cases(sweep))
    settings = {
        "nodes": sweep.nodes,
        "degree": config.degree,
        "skew": sweep.skew,
        "samples": sweep.samples,
        "trust": config.k,
        "diagonal": config.diagonal,
        "code": code,
    }
    points = [
        Point(
            f"{case.matrix} {case.noise} {case.deviation:.12g}",
            Key(POINT, {**asdict(case), **settings}),
            partial(_throughput, case, sweep, config),
        )
        for case in cases
    ]
    measured = measure_points(sweep.experiment, points, Store(config.store_dir), config.jobs, config.launcher)
    errors = _errors(cases, sweep, config.degree)
    rows = [
        {**asdict(case), "seed": seed, "error_of_shape": errors[case, seed], "gamma": trust, "theta": theta}
        for case, measurement in zip(cases, measured, strict=True)
        for seed, of_sample in enumerate(measurement.found, 1)
        for trust, theta in enumerate(of_sample, 1)
    ]
    return pd.DataFrame(rows), sum(measurement.entry.reused for measurement in measured)


def _throughput(case: Case, sweep: NoiseExperiment, config: ScheduleConfig, so_far: SoFar) -> list[list[float]]:
    """Throughput on the true matrix: [sample][gamma - 1]."""
    theta = []
    for seed in range(1, sweep.samples + 1):
        so_far(f"sample {seed} of {sweep.samples}")
        demand, predicted = _matrices(case, sweep, config.degree, seed)
        theta.append(
            [
                multi_hop(demand, _capacity(predicted, config, trust, 2 * NOISE_SEED + seed)).theta
                for trust in range(1, config.k + 1)
            ]
        )
    return theta


def _capacity(predicted: DemandMatrix, config: ScheduleConfig, trust: int, seed: int) -> Any:
    """Capacity of the schedule for a prediction; one of no demand at all, which has no shape, is not looked at."""
    looked_at = trust if predicted.largest_sum > 0 else 1
    diagonal = cast(Diagonal, config.diagonal)
    made = vermilion(predicted, config.degree, looked_at, seed=seed, diagonal=diagonal)
    return made.capacity


def _by_schedule(samples: pd.DataFrame, sweep: NoiseExperiment, largest: int) -> pd.DataFrame:
    """One row per sample and schedule; a drawn k has its expectation in every sample."""
    if not sweep.uniform_from:
        ordered = samples.sort_values("gamma", kind="stable", ignore_index=True)
        return ordered.assign(
            schedule=ordered["gamma"].astype(str),
            uniform_from=ordered["gamma"],
            consistency=ordered["gamma"].map(consistency),
            robustness=ordered["gamma"].map(robustness),
        )
    drawn: list[pd.DataFrame] = []
    for least in sweep.uniform_from:
        for most in range(least, largest + 1):
            share = 1 / (most - least + 1)
            mass = [0.0] * (least - 1) + [share] * (most - least + 1)
            of_range = samples[samples["gamma"].between(least, most)]
            expected = of_range.groupby([*CASE, "seed"], sort=False, as_index=False)
            drawn.append(
                expected.agg(error_of_shape=("error_of_shape", "first"), theta=("theta", "mean")).assign(
                    schedule=f"{least} to {most}",
                    uniform_from=least,
                    gamma=most,
                    consistency=randomised_consistency(mass),
                    robustness=randomised_robustness(mass),
                )
            )
    return pd.concat(drawn, ignore_index=True)


def _curves(by_schedule: pd.DataFrame) -> pd.DataFrame:
    """Mean, least and largest throughput over the samples, and their mean error."""
    by = by_schedule.groupby([*SCHEDULE, *CASE], sort=False)
    return by.agg(
        error_of_shape=("error_of_shape", "mean"),
        mean=("theta", "mean"),
        least=("theta", "min"),
        largest=("theta", "max"),
        samples=("theta", "size"),
        consistency=("consistency", "first"),
        robustness=("robustness", "first"),
    ).reset_index()


def _errors(cases: Sequence[Case], sweep: NoiseExperiment, degree: int) -> dict[tuple[Case, int], float]:
    """Error of shape of every prediction, by case and seed."""
    errors = {}
    for case in cases:
        for seed in range(1, sweep.samples + 1):
            demand, predicted = _matrices(case, sweep, degree, seed)
            error = matrix_error(demand.demand[np.newaxis], predicted.demand[np.newaxis])
            errors[case, seed] = error.shape
    return errors


def _matrices(case: Case, sweep: NoiseExperiment, degree: int, seed: int) -> tuple[DemandMatrix, DemandMatrix]:
    """True and predicted demand of a sample."""
    demand = demand_of(case.matrix, sweep, degree, seed)
    return demand, noisy(demand, case.deviation, cast(Noise, case.noise), NOISE_SEED + seed)
