"""``foretail schedule experiment=vermilion_fig9_1``: consistency against robustness, proven and measured.

A point is one true matrix with one seed: for every gamma the throughput of the schedules for the right prediction and
for wrong ones. Measured consistency is the throughput when the prediction is right, measured robustness
when it is wrong.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from foretail.configs.schema.circuits import ScheduleConfig, TradeoffExperiment
from foretail.core.code import code_digest
from foretail.features.demand.matrix import DemandMatrix
from foretail.models.demand.scores import matrix_error
from foretail.pipelines.experiments.circuits.figures import draw_tradeoff
from foretail.pipelines.experiments.frame import ExperimentResult, figure_files, measure_cases
from foretail.pipelines.runs.points import SoFar, write_files
from foretail.pipelines.runs.result import Table, plain
from foretail.sim_bridge.circuits.demand.matrices import random_hose
from foretail.sim_bridge.circuits.schedules.vermilion import (
    Diagonal,
    consistency,
    randomised_consistency,
    randomised_robustness,
    robustness,
    single_hop_guarantee,
    vermilion,
)
from foretail.sim_bridge.circuits.throughput.adversary import elsewhere, worst_prediction
from foretail.sim_bridge.circuits.throughput.evaluation import evaluation_matrix, placed
from foretail.sim_bridge.circuits.throughput.throughput import multi_hop, single_hop
from foretail.sim_bridge.circuits.throughput.tradeoff import best_distribution

POINT = "schedule_tradeoff"
RIGHT = "right"
WRONG_SEED = 2**32
"""Added to a point's seed for the wrong predictions, which must not be the random numbers that made its matrix."""
_TOLERANCE = 1e-6
"""Of the linear program."""


@dataclass(frozen=True)
class TradeoffCase:
    """A true matrix, drawn with a seed."""

    matrix: str
    seed: int


def tradeoff_experiment(sweep: TradeoffExperiment, config: ScheduleConfig, run_dir: Path) -> ExperimentResult:
    """Run the experiment and draw it; of `config` counts what ``ScheduleConfig.unused`` leaves."""
    for matrix in sweep.matrices:  # what does not fit is said before anything has run
        for gamma in (1, config.trust):
            vermilion(evaluation_matrix(matrix, sweep.nodes, config.degree), config.degree, gamma)
    settings = {
        "nodes": sweep.nodes,
        "matrices": sorted(sweep.matrices),
        "tries": sweep.tries,
        "degree": config.degree,
        "trust": config.trust,
        "diagonal": config.diagonal,
        "code": code_digest("features", "models", "sim_bridge"),
    }
    measured = measure_cases(
        sweep.experiment,
        POINT,
        [TradeoffCase(matrix, seed) for matrix in sweep.matrices for seed in sweep.seeds],
        config,
        name=lambda case: f"{case.matrix}, seed {case.seed}",
        depends_on=lambda case: {**asdict(case), **settings},
        measure=partial(_throughputs, sweep=sweep, config=config),
    )
    everything = measured.rows(lambda case, rows: rows)
    below = everything[everything["theta"] < everything["bound"] - _TOLERANCE].reset_index(drop=True)
    samples, violations = (frame.drop(columns="matrix_predicted") for frame in (everything, below))
    curves, stem = _curves(samples, config.trust), sweep.experiment
    optimised = _optimised(curves, sweep, config.trust)
    files: dict[str, pd.DataFrame | Figure] = {
        f"{stem}.csv": curves,
        f"{stem}.parquet": samples,
        **figure_files(stem, draw_tradeoff(curves, optimised, sorted(sweep.hulls))),
        f"{stem}_optimised.csv": optimised,
    }
    for place, row in enumerate(below.to_dict("records")):
        true = evaluation_matrix(row["matrix"], sweep.nodes, config.degree, row["seed"])
        files[f"violation_{place}_demand.parquet"] = pd.DataFrame(true.demand).rename(columns=str)
        files[f"violation_{place}_prediction.parquet"] = pd.DataFrame(row["matrix_predicted"]).rename(columns=str)
    where = ": violation_*.parquet has their matrices" if len(below) else ""
    return ExperimentResult(
        sweep.experiment,
        {
            "duty_cycle_included": False,
            "seeds": sweep.seeds,
            "curves": plain(curves.to_dict("records")),
            "optimised": plain(optimised.to_dict("records")),
            "violations": plain(violations.to_dict("records")),
        },
        [*_by_routing(curves, sweep.tries), _distributions(optimised)],
        write_files(run_dir, files),
        (
            f"Seeds {', '.join(map(str, sweep.seeds))}; {measured.note}",
            f"{len(below)} throughputs are below Theorems 22, 24 and 25{where}",
        ),
        conclusion=(f"Of {len(samples):,} throughputs {len(below)} are below what Theorems 22, 24 and 25 guarantee.",),
        captions={
            stem: "Consistency (prediction right) over robustness (prediction wrong): left as proven, then as "
            "measured, with several circuits in a row and with one. A number is gamma, the trust in the prediction."
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
    return [
        Table(
            f"Consistency against robustness, {routing} throughput without the duty cycle",
            tuple(columns.values()),
            tuple(part[list(columns)].itertuples(index=False, name=None)),
            (
                "Measured consistency: of the schedule for the right prediction; measured robustness: for wrong "
                f"ones, the worst of a search with {tries} tries among them.",
            ),
        )
        for routing, part in curves.astype({"gamma": object}).groupby("routing", sort=False)
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
    return Table(
        "Best distributions of k, multi-hop throughput without the duty cycle",
        tuple(columns.values()),
        tuple(optimised[list(columns)].itertuples(index=False, name=None)),
        ("Measured: expectations of the least throughputs of every k, so every matrix gets at least that.",),
    )


def _throughputs(
    case: TradeoffCase, so_far: SoFar, sweep: TradeoffExperiment, config: ScheduleConfig
) -> list[dict[str, Any]]:
    """One row per gamma, prediction and routing."""
    degree, seed, diagonal = config.degree, case.seed, cast(Diagonal, config.diagonal)
    demand = evaluation_matrix(case.matrix, sweep.nodes, degree, seed)
    predictions = {
        RIGHT: demand,
        "the same, placed otherwise": placed(demand, WRONG_SEED + seed),
        "random": random_hose(sweep.nodes, degree, WRONG_SEED + seed),
        "elsewhere": elsewhere(demand),
        **{
            other: evaluation_matrix(other, sweep.nodes, degree, WRONG_SEED + seed)
            for other in sorted(sweep.matrices)
            if other != case.matrix
        },
    }
    rows = []
    for gamma in range(1, config.trust + 1):

        def of_prediction(predicted: DemandMatrix, gamma: int = gamma) -> float:
            so_far(f"gamma {gamma} of {config.trust}")
            return multi_hop(demand, vermilion(predicted, degree, gamma, 1, seed, diagonal).capacity).theta

        worst = worst_prediction(demand, of_prediction, sweep.tries, WRONG_SEED + seed)
        for name, predicted in {**predictions, "worst found": worst.prediction}.items():
            capacity = vermilion(predicted, degree, gamma, 1, seed, diagonal).capacity
            error = matrix_error(demand.demand[np.newaxis], predicted.demand[np.newaxis]).shape
            single = 1 / (gamma * sweep.nodes)  # a circuit for every pair
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


def _optimised(curves: pd.DataFrame, sweep: TradeoffExperiment, largest: int) -> pd.DataFrame:
    """The best distribution of k for every floor: an expectation is the mean of what each k gives."""
    measured = curves[curves["routing"] == "multi-hop"].sort_values("gamma")
    rows = []
    for floor in sorted(sweep.floors):
        mass = best_distribution(largest, floor)
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
