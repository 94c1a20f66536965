"""Consistency against robustness of schedules, proven and measured: Figures 9.1 and 9.4 of the thesis.

A point is one true matrix with one seed: for every gamma the throughput of the schedules for the right prediction and
for wrong ones. Measured consistency is the throughput when the prediction is right, measured robustness
when it is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.fields import setting
from foretail.features.demand.matrix import DemandMatrix
from foretail.pipelines.experiment.cases import axes
from foretail.pipelines.experiment.declaration import Drawn, PointExperiment, Shown
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Table
from foretail.sim_bridge.circuits.demand import random_hose
from foretail.sim_bridge.circuits.schedules import (
    Diagonal,
    consistency,
    randomised_consistency,
    randomised_robustness,
    robustness,
    single_hop_guarantee,
    vermilion,
)
from foretail.sim_bridge.circuits.throughput import multi_hop, single_hop
from foretail_studies.circuits.figures import draw_tradeoff
from foretail_studies.circuits.noise import TrustedSettings, error_of_shape
from foretail_studies.engines.circuits import best_distribution, elsewhere, evaluation_matrix, placed, worst_prediction

RIGHT = "right"
WRONG_SEED = 2**32
"""Added to a point's seed for the wrong predictions, which must not be the random numbers that made its matrix."""
_TOLERANCE = 1e-6
"""Of the linear program."""


@dataclass
class TrustSettings(TrustedSettings):
    """Consistency against robustness: every matrix with every seed is a point, with all gammas and predictions."""

    nodes: int = setting(8, "Number n of racks.", at_least=4, at_most=64)
    matrices: list[str] = setting(
        MISSING, "True demand, and wrong predictions of the others, named as in ``DesignSettings``."
    )
    seeds: list[int] = setting(MISSING, "Seeds of random matrices and of the search.", at_least=1, at_most=2**31 - 1)
    tries: int = setting(
        40, "Number of predictions that the search for the worst one tries.", at_least=1, at_most=10**6
    )
    hulls: list[int] = setting([3, 5, 100], "Gammas whose distributions are drawn in theory.", at_least=3, at_most=1000)
    floors: list[float] = setting(
        [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5],
        "Robustness for which the distribution of k is optimised.",
        at_least=0,
        at_most=0.5,
    )


@dataclass(frozen=True)
class TrustCase:
    """A true matrix, drawn with a seed."""

    matrix: str
    seed: int


def show(everything: pd.DataFrame, settings: TrustSettings) -> Shown:
    """What is proven and measured for every gamma, the best distributions of k, and what is below its bound."""
    below = everything[everything["theta"] < everything["bound"] - _TOLERANCE].reset_index(drop=True)
    predicted = everything.get("matrix_predicted")  # the rows that a run keeps lack it
    samples, violations = (frame.drop(columns="matrix_predicted", errors="ignore") for frame in (everything, below))
    curves = _curves(samples, settings.k)
    optimised = _optimised(curves, settings)
    frames = {f"{settings.experiment}_optimised.csv": optimised}
    for place, row in enumerate(below.to_dict("records") if predicted is not None else ()):
        true = evaluation_matrix(row["matrix"], settings.nodes, settings.degree, row["seed"])
        frames[f"violation_{place}_demand.parquet"] = pd.DataFrame(true.demand).rename(columns=str)
        frames[f"violation_{place}_prediction.parquet"] = pd.DataFrame(row["matrix_predicted"]).rename(columns=str)
    where = ": violation_*.parquet has their matrices" if len(below) else ""
    caption = (
        "Consistency (prediction right) over robustness (prediction wrong): left as proven, then as measured, with "
        "several circuits in a row and with one. A number is gamma, the trust in the prediction."
    )
    return Shown(
        samples,
        [*_by_routing(curves, settings.tries), _distributions(optimised)],
        {"": Drawn(draw_tradeoff(curves, optimised, sorted(settings.hulls)), caption, curves)},
        frames,
        notes=(
            f"Seeds {', '.join(map(str, settings.seeds))}",
            f"{len(below)} throughputs are below Theorems 22, 24 and 25{where}",
        ),
        verdict=(f"Of {len(samples):,} throughputs {len(below)} are below what Theorems 22, 24 and 25 guarantee.",),
        details={
            "duty_cycle_included": False,
            "seeds": settings.seeds,
            "curves": curves.to_dict("records"),
            "optimised": optimised.to_dict("records"),
            "violations": violations.to_dict("records"),
        },
    )


def _by_routing(curves: pd.DataFrame, tries: int) -> list[Table]:
    """What is proven and measured for every gamma."""
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
    degree, seed, diagonal = settings.degree, case.seed, cast(Diagonal, settings.diagonal)
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
            return multi_hop(demand, vermilion(predicted, degree, gamma, 1, seed, diagonal).capacity).theta

        worst = worst_prediction(demand, of_prediction, settings.tries, WRONG_SEED + seed)
        for name, predicted in {**predictions, "worst found": worst.prediction}.items():
            capacity = vermilion(predicted, degree, gamma, 1, seed, diagonal).capacity
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


def _curves(samples: pd.DataFrame, largest: int) -> pd.DataFrame:
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
    for floor in sorted(settings.floors):
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
    rows=lambda case, rows, settings: rows,
    show=show,
    code=("features", "models", "sim_bridge"),
    varied=("seeds", "hulls", "floors"),
)
