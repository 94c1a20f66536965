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

from foretail.configs.schema.circuits import NoiseExperiment, ScheduleConfig
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix
from foretail.models.demand.scores import matrix_error
from foretail.pipelines.experiments.circuits.figures import draw_noise, draw_smoothness
from foretail.pipelines.experiments.circuits.smoothness import smoothness, smoothness_table
from foretail.pipelines.experiments.frame import ExperimentResult, figure_files, measure_cases
from foretail.pipelines.runs.points import SoFar, write_files
from foretail.pipelines.runs.result import Cell, Table, plain
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
class NoiseCase:
    """One matrix under one deviation of the noise."""

    matrix: str  #: name in ``NoiseExperiment.matrices``
    noise: str  #: additive or multiplicative
    deviation: float  #: its standard deviation, where the largest entry of the matrix is 10 (additive) or every entry 1


def noise_experiment(sweep: NoiseExperiment, config: ScheduleConfig, run_dir: Path) -> ExperimentResult:
    """Run the experiment and draw it; of `config` counts what ``ScheduleConfig.unused`` leaves."""
    for least in sweep.uniform_from:
        if least > config.trust:
            raise ForetailError(f"uniform_from = {least} is more than k = {config.trust}: choose at most k")
    settings = {
        "nodes": sweep.nodes,
        "degree": config.degree,
        "skew": sweep.skew,
        "samples": sweep.samples,
        "trust": config.trust,
        "diagonal": config.diagonal,
        "code": code_digest("features", "sim_bridge"),
    }
    measured = measure_cases(
        sweep.experiment,
        POINT,
        list(_cases(sweep)),
        config,
        name=lambda case: f"{case.matrix} {case.noise} {case.deviation:.12g}",
        depends_on=lambda case: {**asdict(case), **settings},
        measure=partial(_throughput, sweep=sweep, config=config),
    )
    errors = _errors(measured.cases, sweep, config.degree)
    samples = measured.rows(
        lambda case, found: [
            {"seed": seed, "error_of_shape": errors[case, seed], "gamma": trust, "theta": theta}
            for seed, of_sample in enumerate(found, 1)
            for trust, theta in enumerate(of_sample, 1)
        ]
    )
    by_schedule = _by_schedule(samples, sweep, config.trust)
    looking = by_schedule[by_schedule["gamma"] > 1]  # k = 1 does not see the prediction
    curves, fits, stem = _curves(by_schedule), smoothness(looking, FITTED_BY), sweep.experiment
    files: dict[str, pd.DataFrame | Figure] = {
        f"{stem}.csv": curves,
        f"{stem}.parquet": samples,
        **figure_files(stem, draw_noise(curves)),
        f"{stem}_smoothness.csv": fits,
        **figure_files(f"{stem}_smoothness", draw_smoothness(by_schedule, fits)),
    }
    captions = {
        stem: "Mean throughput by the deviation of the noise in the prediction, a panel per noise and matrix, a line "
        "per gamma. The band goes down to the least sample at the largest gamma.",
        f"{stem}_smoothness": "Throughput of every sample by the error of the predicted shape, with its fit.",
    }
    return ExperimentResult(
        sweep.experiment,
        {
            "routing": "multi-hop",
            "duty_cycle": sweep.duty_cycle,
            "duty_cycle_included": False,
            "seeds": [1, sweep.samples],
            "curves": plain(curves.to_dict("records")),
            "smoothness": plain(fits.to_dict("records")),
        },
        [smoothness_table(fits, FITTED_BY, "multi-hop"), _table(curves, sweep)],
        write_files(run_dir, files),
        (measured.note,),
        captions=captions,
    )


def _table(curves: pd.DataFrame, sweep: NoiseExperiment) -> Table:
    """Without noise, at its worst, and what is guaranteed."""
    duty = sweep.duty_cycle
    rows: list[tuple[Cell, ...]] = []
    for (noise, matrix, schedule), part in curves.groupby(["noise", "matrix", "schedule"], sort=False):
        first, means, worst = part.iloc[0], part["mean"], float(part["least"].min())
        at_low, at_high, least = float(means.iloc[0]), float(means.iloc[-1]), float(means.min())
        measured = (at_low, at_low * duty, at_high, least, least * duty, worst)
        bounds = (float(first["consistency"]), float(first["robustness"]))
        rows.append((str(noise), str(matrix), str(schedule), *measured, *bounds))
    low, high = curves["deviation"].min(), curves["deviation"].max()
    means_at = (f"mean at {low:g}", f"x {duty:g}", f"mean at {high:g}", "least mean", f"x {duty:g}", "least sample")
    return Table(
        f"Schedules for wrong predictions: {sweep.experiment}",
        ("noise", "matrix", "gamma", *means_at, "consistency", "robustness"),
        tuple(rows),
        (
            f"Multi-hop throughput of {sweep.samples} samples by standard deviation of the noise, without the duty "
            f"cycle; the columns x {duty:g} include it.",
        ),
    )


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


def _cases(sweep: NoiseExperiment) -> Iterator[NoiseCase]:
    for noise in sweep.noise:
        for matrix in sweep.matrices:
            for deviation in sorted(sweep.deviations):
                yield NoiseCase(matrix, noise, deviation)


def _throughput(case: NoiseCase, so_far: SoFar, sweep: NoiseExperiment, config: ScheduleConfig) -> list[list[float]]:
    """Throughput on the true matrix: [sample][gamma - 1]."""
    theta = []
    for seed in range(1, sweep.samples + 1):
        so_far(f"sample {seed} of {sweep.samples}")
        demand, predicted = _matrices(case, sweep, config.degree, seed)
        theta.append(
            [
                multi_hop(demand, _capacity(predicted, config, trust, 2 * NOISE_SEED + seed)).theta
                for trust in range(1, config.trust + 1)
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


def _errors(cases: Sequence[NoiseCase], sweep: NoiseExperiment, degree: int) -> dict[tuple[NoiseCase, int], float]:
    """Error of shape of every prediction, by case and seed."""
    errors = {}
    for case in cases:
        for seed in range(1, sweep.samples + 1):
            demand, predicted = _matrices(case, sweep, degree, seed)
            error = matrix_error(demand.demand[np.newaxis], predicted.demand[np.newaxis])
            errors[case, seed] = error.shape
    return errors


def _matrices(case: NoiseCase, sweep: NoiseExperiment, degree: int, seed: int) -> tuple[DemandMatrix, DemandMatrix]:
    """True and predicted demand of a sample."""
    demand = demand_of(case.matrix, sweep, degree, seed)
    return demand, noisy(demand, case.deviation, cast(Noise, case.noise), NOISE_SEED + seed)
