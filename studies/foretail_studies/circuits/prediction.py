"""Schedules that are made for predictions: noise and its smoothness, trust, and what predictors forecast.

Figures 9.5 to 9.8 of the thesis: schedules that are made for noisy predictions. A point is one matrix under one
deviation of the noise, with all its samples and trust factors: the randomised schedules reuse the deterministic ones.

Figures 9.1 and 9.4: consistency against robustness of schedules, proven and measured. A point is one true matrix with
one seed: for every gamma the throughput of the schedules for the right prediction and for wrong ones. Measured
consistency is the throughput when the prediction is right, measured robustness when it is wrong.

Predictors of the demand, as ``foretail demand`` compares them; a row per workload and predictor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from omegaconf import MISSING

from foretail.configs.schema.experiment import ExperimentSettings, PointSettings
from foretail.configs.schema.network.circuits import DemandConfig
from foretail.core.errors import ForetailError
from foretail.core.settings import LARGEST_DEGREE, LARGEST_TRUST, seed_setting, setting, share_setting
from foretail.features.demand.matrix import DemandMatrix
from foretail.models.demand.scores import matrix_error
from foretail.pipelines.demand import compare_predictors, worth_of
from foretail.pipelines.experiment.declaration import Drawn, FunctionExperiment, PointExperiment, Run, Shown, axes
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Cell, Table
from foretail.sim_bridge.circuits.demand import all_to_all, chessboard, random_hose, ring, skewed_ring
from foretail.sim_bridge.circuits.schedules import (
    consistency,
    randomised_consistency,
    randomised_robustness,
    robustness,
    single_hop_guarantee,
    vermilion,
)
from foretail.sim_bridge.circuits.throughput import multi_hop, single_hop
from foretail_studies.circuits.smoothness import smoothness, smoothness_table
from foretail_studies.engines.circuits import (
    DUTY_CYCLE,
    Noise,
    best_distribution,
    elsewhere,
    evaluation_matrix,
    noisy,
    placed,
    worst_prediction,
)
from foretail_studies.figures import draw_lines

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


@dataclass
class NoiseSettings(TrustedSettings):
    """Schedules for wrong predictions: every matrix, noise and deviation is a point, with all samples and gammas."""

    nodes: int = setting(8, "Number n of racks.", at_least=2, at_most=64)
    matrices: list[str] = setting(
        MISSING, "True demand.", one_of=("ring", "all_to_all", "random", "skew", "chessboard")
    )
    skew: float = share_setting(0.5, "Skew: the share of a permutation; the rest is a ring.")
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


def show_noise(samples: pd.DataFrame, settings: NoiseSettings) -> Shown:
    """Curves by deviation, and how smoothly throughput falls with the error of a prediction."""
    by_schedule = _by_schedule(samples, settings)
    looking = by_schedule[by_schedule["gamma"] > 1]  # k = 1 does not see the prediction
    curves, fits = _noise_curves(by_schedule), smoothness(looking, FITTED_BY)
    drawn = curves.assign(panel=curves["matrix"] + ", " + curves["noise"])
    axis, of = "standard deviation of the noise", "multi-hop throughput"
    figure = draw_lines(drawn, "panel", "schedule", "deviation", xlabel=axis, ylabel=of)
    caption = (
        "Mean throughput, without the duty cycle, by the deviation of the noise in the prediction, a panel per matrix "
        "and noise, a line per gamma or range of k."
    )
    return Shown(
        samples,
        [smoothness_table(fits, FITTED_BY, "multi-hop"), _table(curves, settings)],
        {"": Drawn(figure, caption, curves)},
        {f"{settings.experiment}_smoothness.csv": fits},
    )


def _table(curves: pd.DataFrame, settings: NoiseSettings) -> Table:
    """Without noise, at its worst, and what is guaranteed."""
    duty = DUTY_CYCLE
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
    made = vermilion(predicted, settings.degree, looked_at, seed=seed)
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


def _noise_curves(by_schedule: pd.DataFrame) -> pd.DataFrame:
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
    show=show_noise,
    code=("features", "sim_bridge"),
    varied=("noise", "matrices", "deviations", "uniform_from"),
)


RIGHT = "right"
WRONG_SEED = 2**32
"""Added to a point's seed for the wrong predictions, which must not be the random numbers that made its matrix."""
_TOLERANCE = 1e-6
"""Tolerance of the linear program."""
FLOORS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
"""Robustness for which the distribution of k is optimised."""


@dataclass
class TrustSettings(TrustedSettings):
    """Consistency against robustness: every matrix with every seed is a point, with all gammas and predictions."""

    nodes: int = setting(8, "Number n of racks.", at_least=4, at_most=64)
    matrices: list[str] = setting(
        MISSING, "True demand, and wrong predictions of the others, named as in ``DesignSettings``."
    )
    seeds: list[int] = seed_setting(MISSING, "Seeds of random matrices and of the search.")
    tries: int = setting(
        40, "Number of predictions that the search for the worst one tries.", at_least=1, at_most=10**6
    )


@dataclass(frozen=True)
class TrustCase:
    """A true matrix, drawn with a seed."""

    matrix: str
    seed: int


def show_trust(everything: pd.DataFrame, settings: TrustSettings) -> Shown:
    """Proofs and measurements for every gamma, the best distributions of k, and what is below its bound."""
    below = everything[everything["theta"] < everything["bound"] - _TOLERANCE].reset_index(drop=True)
    predicted = everything.get("matrix_predicted")  # the rows that a run keeps lack it
    samples = everything.drop(columns="matrix_predicted", errors="ignore")
    curves = _trust_curves(samples, settings.k)
    optimised = _optimised(curves, settings)
    frames = {f"{settings.experiment}_optimised.csv": optimised}
    for place, row in enumerate(below.to_dict("records") if predicted is not None else ()):
        true = evaluation_matrix(row["matrix"], settings.nodes, settings.degree, row["seed"])
        frames[f"violation_{place}_demand.parquet"] = pd.DataFrame(true.demand).rename(columns=str)
        frames[f"violation_{place}_prediction.parquet"] = pd.DataFrame(row["matrix_predicted"]).rename(columns=str)
    where = ": violation_*.parquet has their matrices" if len(below) else ""
    caption = (
        "Consistency (prediction right) over robustness (prediction wrong), without the duty cycle, a point for each "
        "gamma, with several circuits in a row and with one."
    )
    return Shown(
        samples,
        [*_by_routing(curves, settings.tries), _distributions(optimised)],
        {"": Drawn(_draw_tradeoff(curves, optimised), caption, curves)},
        frames,
        notes=(
            f"Seeds {', '.join(map(str, settings.seeds))}",
            f"{len(below)} throughputs are below Theorems 22, 24 and 25{where}",
        ),
        verdict=(f"Of {len(samples):,} throughputs {len(below)} are below what Theorems 22, 24 and 25 guarantee.",),
    )


def _draw_tradeoff(curves: pd.DataFrame, optimised: pd.DataFrame) -> Figure:
    best = optimised.assign(routing="multi-hop")
    lines = {
        "proven, k = gamma": (curves, "robustness", "consistency"),
        "proven, k uniform": (curves, "uniform_robustness", "uniform_consistency"),
        "measured, least": (curves, "least_wrong", "least_right"),
        "measured, mean": (curves, "mean_wrong", "mean_right"),
        "proven, best for a floor": (best, "robustness", "consistency"),
        "measured, best for a floor": (best, "least_wrong", "least_right"),
    }
    rows = pd.concat(
        pd.DataFrame(
            {"routing": of["routing"], "throughput": words, "robustness": of[x], "consistency": of[y]}
        ).dropna()
        for words, (of, x, y) in lines.items()
    )
    x, y = "robustness", "consistency"
    return draw_lines(rows, "routing", "throughput", x, y, xlabel=x, ylabel=y)


def _by_routing(curves: pd.DataFrame, tries: int) -> list[Table]:
    """Return tables of the proven and the measured throughput for every gamma, one per routing."""
    columns = {
        "gamma": "gamma",
        "consistency": "consistency",
        "least_right": "measured least",
        "mean_right": "mean",
        "robustness": "robustness",
        "least_wrong": "measured least",
        "with": "predicted",
        "mean_wrong": "mean",
        "uniform_consistency": "uniform: consistency",
        "uniform_robustness": "robustness",
    }
    note = (
        "Measured consistency: of the schedule for the right prediction; measured robustness: for wrong ones, the "
        f"worst of a search with {tries} tries among them."
    )
    title = "Consistency against robustness, {} throughput without the duty cycle"
    return [
        Table.of_frame(title.format(routing), part, columns, note)
        for routing, part in curves.groupby("routing", sort=False)
    ]


def _distributions(optimised: pd.DataFrame) -> Table:
    columns = {
        "floor": "robustness at least",
        "distribution": "distribution of k",
        "consistency": "consistency",
        "robustness": "robustness",
        "least_right": "measured least",
        "least_wrong": "least wrong",
    }
    note = "Measured: expectations of the least throughputs of every k, so every matrix gets at least that."
    title = "Best distributions of k, multi-hop throughput without the duty cycle"
    return Table.of_frame(title, optimised, columns, note)


def _cases(settings: TrustSettings) -> Iterator[TrustCase]:
    for matrix in settings.matrices:  # what does not fit is said before anything has run
        for gamma in (1, settings.k):
            vermilion(evaluation_matrix(matrix, settings.nodes, settings.degree), settings.degree, gamma)
    return axes(TrustCase, settings.matrices, settings.seeds)


def _throughputs(case: TrustCase, so_far: SoFar, settings: TrustSettings) -> list[dict[str, Any]]:
    """One row per gamma, prediction and routing."""
    degree, seed = settings.degree, case.seed
    demand = evaluation_matrix(case.matrix, settings.nodes, degree, seed)
    predictions = {
        RIGHT: demand,
        "the same, placed otherwise": placed(demand, WRONG_SEED + seed),
        "random": random_hose(settings.nodes, degree, WRONG_SEED + seed),
        "elsewhere": elsewhere(demand),
        **{
            other: evaluation_matrix(other, settings.nodes, degree, WRONG_SEED + seed)
            for other in sorted(settings.matrices)
            if other != case.matrix
        },
    }
    rows = []
    for gamma in range(1, settings.k + 1):

        def of_prediction(predicted: DemandMatrix, gamma: int = gamma) -> float:
            so_far(f"gamma {gamma} of {settings.k}")
            return multi_hop(demand, vermilion(predicted, degree, gamma, 1, seed).capacity).theta

        worst = worst_prediction(demand, of_prediction, settings.tries, WRONG_SEED + seed)
        for name, predicted in {**predictions, "worst found": worst.prediction}.items():
            capacity = vermilion(predicted, degree, gamma, 1, seed).capacity
            error = error_of_shape(demand, predicted)
            single = 1 / (gamma * settings.nodes)  # a circuit for every pair
            if name == RIGHT:
                bounds = (consistency(gamma), max(single, single_hop_guarantee(gamma)))
            else:
                bounds = (robustness(gamma), single)
            thetas = (multi_hop(demand, capacity).theta, single_hop(demand, capacity))
            rows += [
                {
                    "gamma": gamma,
                    "prediction": name,
                    "error_of_shape": error,
                    "routing": routing,
                    "theta": theta,
                    "bound": bound,
                    "matrix_predicted": predicted.demand.tolist(),
                }
                for routing, theta, bound in zip(("multi-hop", "single-hop"), thetas, bounds, strict=True)
            ]
    return rows


def _trust_curves(samples: pd.DataFrame, largest: int) -> pd.DataFrame:
    rows = []
    for routing, of_routing in samples.groupby("routing", sort=False):
        for gamma in range(1, largest + 1):
            part = of_routing[of_routing["gamma"] == gamma]
            right, wrong = part[part["prediction"] == RIGHT], part[part["prediction"] != RIGHT]
            uniform = [1 / gamma] * gamma
            worst = wrong.iloc[int(wrong["theta"].to_numpy().argmin())]
            rows.append(
                {
                    "routing": routing,
                    "gamma": gamma,
                    "consistency": float(right["bound"].iloc[0]),
                    "robustness": float(wrong["bound"].iloc[0]),
                    "uniform_consistency": randomised_consistency(uniform) if routing == "multi-hop" else None,
                    "uniform_robustness": randomised_robustness(uniform) if routing == "multi-hop" else None,
                    "least_right": float(right["theta"].min()),
                    "mean_right": float(right["theta"].mean()),
                    "least_wrong": float(worst["theta"]),
                    "with": f"{worst['prediction']} for {worst['matrix']}",
                    "mean_wrong": float(wrong["theta"].mean()),
                }
            )
    return pd.DataFrame(rows)


def _optimised(curves: pd.DataFrame, settings: TrustSettings) -> pd.DataFrame:
    """The best distribution of k for every floor: an expectation is the mean of what each k gives."""
    measured = curves[curves["routing"] == "multi-hop"].sort_values("gamma")
    rows = []
    for floor in FLOORS:
        mass = best_distribution(settings.k, floor)
        rows.append(
            {
                "floor": floor,
                "distribution": ", ".join(f"{k}: {share:.2g}" for k, share in enumerate(mass, 1) if share > 1e-9),
                "consistency": randomised_consistency(mass.tolist()),
                "robustness": randomised_robustness(mass.tolist()),
                **{
                    name: float(mass @ measured[name].to_numpy())
                    for name in ("least_right", "least_wrong", "mean_right", "mean_wrong")
                },
            }
        )
    return pd.DataFrame(rows)


TRUST = PointExperiment(
    settings=TrustSettings,
    kind="schedule_tradeoff",
    cases=_cases,
    name=lambda case: f"{case.matrix}, seed {case.seed}",
    measure=_throughputs,
    show=show_trust,
    code=("features", "models", "sim_bridge"),
    varied=("seeds",),
)


@dataclass
class PredictionSettings(ExperimentSettings, DemandConfig):
    """Demand predictors on workloads."""

    check = DemandConfig.check


def show_prediction(settings: PredictionSettings, run: Run) -> Shown:
    """Compare as the stage does."""
    result = compare_predictors(replace(settings, tracking=run.inside(settings.tracking)), run.folder)
    rows = [
        {
            "workload": compared.workload,
            "predictor": name,
            "k": evaluation.trust,
            **{f"error_{figure}": value for figure, value in asdict(evaluation.test.error).items()},
            "theta": worth_of(evaluation).predicted,
            "theta_of_truth": worth_of(evaluation).true,
        }
        for compared in result.comparisons
        for name, evaluation in compared.evaluations.items()
    ]
    return Shown.of_stage(result, pd.DataFrame(rows), run.folder)


PREDICTION = FunctionExperiment(PredictionSettings, show_prediction)
