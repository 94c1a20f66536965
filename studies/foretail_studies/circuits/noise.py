"""Schedules that are made for noisy predictions: Figures 9.5 to 9.8 of the thesis.

A point is one matrix under one deviation of the noise, with all its samples and trust factors: the randomised
schedules reuse the deterministic ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.fields import LARGEST_DEGREE, LARGEST_TRUST, setting
from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix
from foretail.models.demand.scores import matrix_error
from foretail.pipelines.experiment.cases import axes
from foretail.pipelines.experiment.declaration import Drawn, PointExperiment, Shown
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Cell, Table
from foretail.sim_bridge.circuits.demand import all_to_all, chessboard, random_hose, ring, skewed_ring
from foretail.sim_bridge.circuits.schedules import (
    Diagonal,
    consistency,
    randomised_consistency,
    randomised_robustness,
    robustness,
    vermilion,
)
from foretail.sim_bridge.circuits.throughput import multi_hop
from foretail_studies.circuits.figures import draw_noise, draw_smoothness
from foretail_studies.circuits.smoothness import smoothness, smoothness_table
from foretail_studies.engines.circuits import Noise, noisy

CASE = ["noise", "matrix", "deviation"]
SCHEDULE = ["schedule", "uniform_from", "gamma"]
FITTED_BY = ["noise", "matrix", "schedule"]
NOISE_SEED = 2**32
"""Added to a sample's seed for the noise, which must not be the random numbers that made its matrix."""


@dataclass
class TrustedSettings(PointSettings):
    """Schedules with every trust in a prediction, up to the largest."""

    degree: int = setting(
        MISSING, "Number of uplinks of a node; k times n is a multiple of it.", at_least=1, at_most=LARGEST_DEGREE
    )
    k: int = setting(
        MISSING,
        "Largest number of circuits per node and period, in units of n; all numbers up to it are tried.",
        at_least=1,
        at_most=LARGEST_TRUST,
    )
    diagonal: str = setting(
        "idle",
        "What circuits of a node to itself do: they idle, as the theorems assume, or serve as circuits left over.",
        one_of=("idle", "reuse"),
    )


@dataclass
class NoiseSettings(TrustedSettings):
    """Schedules for wrong predictions: every matrix, noise and deviation is a point, with all samples and gammas."""

    duty_cycle: float = setting(
        0.99, "Share of a slot that carries data; figures without it are shown as well.", above=0, at_most=1
    )
    nodes: int = setting(8, "Number n of racks.", at_least=2, at_most=64)
    matrices: list[str] = setting(
        MISSING, "True demand.", one_of=("ring", "all_to_all", "random", "skew", "chessboard")
    )
    skew: float = setting(0.5, "Skew: the share of a permutation; the rest is a ring.", at_least=0, at_most=1)
    noise: list[str] = setting(MISSING, "Kinds of noise.", one_of=("additive", "multiplicative"))
    deviations: list[float] = setting(
        MISSING, "Standard deviations of the noise, for a largest entry of 10.", at_least=0
    )
    samples: int = setting(MISSING, "Number of predictions per point, with seeds from 1.", at_least=1, at_most=10_000)
    uniform_from: list[int] = setting(
        [],
        "Smallest k of a uniform draw up to each gamma; an empty list means gamma itself for each.",
        at_least=1,
        at_most=LARGEST_TRUST,
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on a k that is drawn from beyond the largest."""
        super().check(where)
        for least in self.uniform_from:
            if least > self.k:
                raise ForetailError(f"uniform_from = {least} is more than k = {self.k}: choose at most k")


@dataclass(frozen=True)
class NoiseCase:
    """One matrix under one deviation of the noise."""

    noise: str  #: additive or multiplicative
    matrix: str  #: name in ``NoiseSettings.matrices``
    deviation: float  #: its standard deviation, where the largest entry of the matrix is 10 (additive) or every entry 1


def show(samples: pd.DataFrame, settings: NoiseSettings) -> Shown:
    """Curves by deviation, and how smoothly throughput falls with the error of a prediction."""
    by_schedule = _by_schedule(samples, settings)
    looking = by_schedule[by_schedule["gamma"] > 1]  # k = 1 does not see the prediction
    curves, fits = _curves(by_schedule), smoothness(looking, FITTED_BY)
    return Shown(
        samples,
        [smoothness_table(fits, FITTED_BY, "multi-hop"), _table(curves, settings)],
        {
            "": Drawn(
                draw_noise(curves),
                "Mean throughput by the deviation of the noise in the prediction, a panel per noise and matrix, a line "
                "per gamma. The band goes down to the least sample at the largest gamma.",
                curves,
            ),
            "smoothness": Drawn(
                draw_smoothness(by_schedule, fits),
                "Throughput of every sample by the error of the predicted shape, with its fit.",
                fits,
            ),
        },
        details={
            "routing": "multi-hop",
            "duty_cycle": settings.duty_cycle,
            "duty_cycle_included": False,
            "seeds": [1, settings.samples],
            "curves": curves.to_dict("records"),
            "smoothness": fits.to_dict("records"),
        },
    )


def _table(curves: pd.DataFrame, settings: NoiseSettings) -> Table:
    """Without noise, at its worst, and what is guaranteed."""
    duty = settings.duty_cycle
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
        f"Schedules for wrong predictions: {settings.experiment}",
        ("noise", "matrix", "gamma", *means_at, "consistency", "robustness"),
        tuple(rows),
        (
            f"Multi-hop throughput of {settings.samples} samples by standard deviation of the noise, without the duty "
            f"cycle; the columns x {duty:g} include it.",
        ),
    )


def demand_of(matrix: str, settings: NoiseSettings, seed: int) -> DemandMatrix:
    """The true matrix of a sample; `seed` draws the random one and the permutation of the skewed one."""
    made: Mapping[str, Callable[[], DemandMatrix]] = {
        "ring": lambda: ring(settings.nodes, settings.degree),
        "all_to_all": lambda: all_to_all(settings.nodes, settings.degree),
        "random": lambda: random_hose(settings.nodes, settings.degree, seed),
        "skew": lambda: skewed_ring(settings.nodes, settings.degree, settings.skew, seed),
        "chessboard": lambda: chessboard(settings.nodes, settings.degree),
    }
    return made[matrix]()


def error_of_shape(demand: DemandMatrix, predicted: DemandMatrix) -> float:
    """How far the shape of a prediction is from that of the demand."""
    return matrix_error(demand.demand[np.newaxis], predicted.demand[np.newaxis]).shape


def _throughput(case: NoiseCase, so_far: SoFar, settings: NoiseSettings) -> list[list[float]]:
    """Throughput on the true matrix: [sample][gamma - 1]."""
    theta = []
    for seed in range(1, settings.samples + 1):
        so_far(f"sample {seed} of {settings.samples}")
        demand, predicted = _matrices(case, settings, seed)
        theta.append(
            [
                multi_hop(demand, _capacity(predicted, settings, trust, 2 * NOISE_SEED + seed)).theta
                for trust in range(1, settings.k + 1)
            ]
        )
    return theta


def _capacity(predicted: DemandMatrix, settings: NoiseSettings, trust: int, seed: int) -> Any:
    """Capacity of the schedule for a prediction; one of no demand at all, which has no shape, is not looked at."""
    looked_at = trust if predicted.largest_sum > 0 else 1
    made = vermilion(predicted, settings.degree, looked_at, seed=seed, diagonal=cast(Diagonal, settings.diagonal))
    return made.capacity


def _samples(case: NoiseCase, thetas: list[list[float]], settings: NoiseSettings) -> Iterator[dict[str, Any]]:
    """A row per sample and gamma, with the error of shape of the prediction."""
    for seed, of_sample in enumerate(thetas, 1):
        demand, predicted = _matrices(case, settings, seed)
        error = error_of_shape(demand, predicted)
        for gamma, theta in enumerate(of_sample, 1):
            yield {"seed": seed, "error_of_shape": error, "gamma": gamma, "theta": theta}


def _by_schedule(samples: pd.DataFrame, settings: NoiseSettings) -> pd.DataFrame:
    """One row per sample and schedule; a drawn k has its expectation in every sample."""
    if not settings.uniform_from:
        ordered = samples.sort_values("gamma", kind="stable", ignore_index=True)
        return ordered.assign(
            schedule=ordered["gamma"].astype(str),
            uniform_from=ordered["gamma"],
            consistency=ordered["gamma"].map(consistency),
            robustness=ordered["gamma"].map(robustness),
        )
    drawn: list[pd.DataFrame] = []
    for least in settings.uniform_from:
        for most in range(least, settings.k + 1):
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


def _matrices(case: NoiseCase, settings: NoiseSettings, seed: int) -> tuple[DemandMatrix, DemandMatrix]:
    """True and predicted demand of a sample."""
    demand = demand_of(case.matrix, settings, seed)
    return demand, noisy(demand, case.deviation, cast(Noise, case.noise), NOISE_SEED + seed)


NOISE = PointExperiment(
    settings=NoiseSettings,
    kind="schedule_noise",
    cases=lambda settings: axes(NoiseCase, settings.noise, settings.matrices, sorted(settings.deviations)),
    name=lambda case: f"{case.matrix} {case.noise} {case.deviation:.12g}",
    measure=_throughput,
    rows=_samples,
    show=show,
    code=("features", "sim_bridge"),
    varied=("noise", "matrices", "deviations", "uniform_from", "duty_cycle"),
)
