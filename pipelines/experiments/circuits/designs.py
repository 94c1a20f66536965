"""``foretail schedule experiment=vermilion_fig8_7`` and ``8_8``: designs of periodic networks on matrices they know.

A point is one matrix on one number of nodes with one seed, under every design and k.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from foretail.configs.schema.circuits import DesignExperiment, ScheduleConfig
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.pipelines.experiments.circuits.figures import designs_of, draw_designs, draw_sizes
from foretail.pipelines.experiments.frame import ExperimentResult, figure_files, measure_cases
from foretail.pipelines.runs.points import SoFar, write_files
from foretail.pipelines.runs.result import Cell, Table, plain
from foretail.sim_bridge.circuits.schedules.scheduler import SCHEDULER_KINDS
from foretail.sim_bridge.circuits.schedules.vermilion import next_period_factor, single_hop_guarantee
from foretail.sim_bridge.circuits.throughput.evaluation import DESIGNS, evaluation_matrix, outcomes_of

POINT = "schedule_designs"
MULTI_HOP_NODES = 64
_SLACK = 1e-9
"""Relative; a throughput that misses its guarantee by so little has met it."""

CASE = ["nodes", "matrix"]
DESIGN = ["design", "routing", "k"]


@dataclass(frozen=True)
class DesignCase:
    """A matrix of ``DesignExperiment.matrices`` on some nodes, drawn with a seed."""

    nodes: int
    matrix: str
    seed: int


def design_experiment(sweep: DesignExperiment, config: ScheduleConfig, run_dir: Path) -> ExperimentResult:
    """Run the experiment and draw it; of `config` counts what ``ScheduleConfig.unused`` leaves."""
    _check(sweep, config.degree)
    settings = {"degree": config.degree, "trusts": sorted(sweep.trusts), "designs": sorted(sweep.designs)}
    settings |= {"code": code_digest("features", "sim_bridge")}
    settings |= SCHEDULER_KINDS.sources(name for name in sweep.designs if name not in DESIGNS)
    measured = measure_cases(
        sweep.experiment,
        POINT,
        list(_cases(sweep)),
        config,
        name=lambda case: f"{case.matrix} on {case.nodes} nodes, seed {case.seed}",
        depends_on=lambda case: {**asdict(case), **settings},
        measure=partial(_outcomes, sweep=sweep, degree=config.degree),
    )
    samples = measured.rows(lambda case, outcomes: outcomes)
    guaranteed = [
        single_hop_guarantee(k) if design == "vermilion" else 0.0
        for design, k in zip(samples["design"], samples["k"], strict=True)
    ]
    samples = samples.assign(guarantee=guaranteed)
    violations = samples[samples["theta"] < samples["guarantee"] * (1 - _SLACK)].reset_index(drop=True)
    curves, gap, stem = over_seeds(samples), _gap(samples), sweep.experiment
    by_size = sweep.experiment == "vermilion_fig8_8"
    files: dict[str, pd.DataFrame | Figure] = {
        f"{stem}.csv": curves.assign(mean_with_duty_cycle=curves["mean"] * sweep.duty_cycle),
        f"{stem}.parquet": samples,
        **figure_files(stem, draw_sizes(samples) if by_size else draw_designs(curves)),
    }
    tables = [(_by_size if by_size else _by_matrix)(samples, sweep.duty_cycle)]
    if len(gap):
        files[f"{stem}_rounding.csv"] = gap
        tables.append(_of_rounding(gap))
    for place, row in enumerate(violations.to_dict("records")):
        demand = evaluation_matrix(row["matrix"], row["nodes"], config.degree, row["seed"])
        files[f"violation_{place}.parquet"] = pd.DataFrame(demand.demand).rename(columns=str)
    where = ": violation_*.parquet has their matrices." if len(violations) else "."
    return ExperimentResult(
        sweep.experiment,
        {
            "duty_cycle": sweep.duty_cycle,
            "duty_cycle_included": False,
            "seeds": sweep.seeds,
            "curves": plain(curves.to_dict("records")),
            "rounding_gap": plain(gap.to_dict("records")),
            "violations": plain(violations.to_dict("records")),
        },
        tables,
        write_files(run_dir, files),
        (
            f"Seeds {', '.join(map(str, sweep.seeds))}; {measured.note}",
            f"{len(violations)} throughputs are below Theorem 22{where}",
        ),
        conclusion=(
            f"Of {len(samples):,} throughputs {len(violations)} are below what Theorem 22 guarantees for Vermilion.",
        ),
        captions={
            stem: "Throughput of Vermilion by k and by the number of nodes: mean over matrices, and least."
            if by_size
            else "Mean throughput by matrix, a panel per number of nodes, a marker per design, routing and k."
        },
    )


def over_seeds(samples: pd.DataFrame) -> pd.DataFrame:
    """Mean and least throughput over the seeds: one row per nodes, matrix, design, routing and k."""
    by = samples.groupby([*CASE, *DESIGN], sort=False)
    return by.agg(
        mean=("theta", "mean"), least=("theta", "min"), samples=("theta", "size"), guarantee=("guarantee", "first")
    ).reset_index()


def _check(sweep: DesignExperiment, degree: int) -> None:
    """Whatever a point could stumble over, before any is measured."""
    for nodes in sweep.nodes:
        most = nodes - 1 if "oblivious" in sweep.designs else nodes
        if degree > most:
            raise ForetailError(f"degree = {degree} is too much for {nodes} nodes: choose at most {most}")
        if "oblivious" in sweep.designs and nodes > MULTI_HOP_NODES:
            raise ForetailError(
                f"the multi-hop throughput of the oblivious design on {nodes} nodes takes minutes: choose at most "
                f"{MULTI_HOP_NODES}, or leave oblivious out of designs"
            )
        for k in sweep.trusts:
            if k * nodes % degree:
                raise ForetailError(
                    f"k n = {k} x {nodes} matchings do not fill {degree} uplinks evenly: choose "
                    f"k = {next_period_factor(nodes, degree, k)}"
                )
        for matrix in sweep.matrices:
            evaluation_matrix(matrix, nodes, degree)


def _cases(sweep: DesignExperiment) -> Iterator[DesignCase]:
    for nodes in sweep.nodes:
        for matrix in sweep.matrices:
            for seed in sweep.seeds:
                yield DesignCase(nodes, matrix, seed)


def _outcomes(case: DesignCase, so_far: SoFar, sweep: DesignExperiment, degree: int) -> list[dict[str, Any]]:
    demand = evaluation_matrix(case.matrix, case.nodes, degree, case.seed)
    outcomes = []
    for design in sorted(sweep.designs):
        so_far(design)
        found = outcomes_of(design, demand, degree, sorted(sweep.trusts), case.seed)
        outcomes += [asdict(outcome) for outcome in found]
    return outcomes


def _gap(samples: pd.DataFrame) -> pd.DataFrame:
    """Vermilion beside the best schedules of its period, and their ratios."""
    if not {"vermilion", "optimum"} <= set(samples["design"]):
        return pd.DataFrame()
    of_period = samples[samples["k"] > 0]
    wide = of_period.pivot_table(index=[*CASE, "seed", "k"], columns="design", values="theta", sort=False).reset_index()
    wide.columns.name = None
    wide = wide.rename(columns={"robust optimum": "robust_optimum"})
    return wide.assign(
        over_robust_optimum=wide["vermilion"] / wide["robust_optimum"], over_optimum=wide["vermilion"] / wide["optimum"]
    )


def _by_matrix(samples: pd.DataFrame, duty_cycle: float) -> Table:
    """A column per design; Vermilion's once more with the duty cycle."""
    curves = over_seeds(samples[samples["design"] != "robust optimum"])  # rarely differs: see the table of rounding
    columns: dict[str, tuple[tuple[str, str, int], float]] = {}
    for design, routing, k in designs_of(curves):
        name = f"{design}{f' {k}' if k else ''}"
        columns[f"{name} {routing}"] = (design, routing, k), 1.0
        if design == "vermilion":
            columns[f"{name} x {duty_cycle:g}"] = (design, routing, k), duty_cycle
    rows: list[tuple[Cell, ...]] = []
    for _, part in curves.groupby(CASE, sort=False):
        means = part.set_index(DESIGN)["mean"].to_dict()
        first = part.iloc[0]
        rows.append(
            (int(first["nodes"]), str(first["matrix"]), *(float(means[of]) * factor for of, factor in columns.values()))
        )
    return Table(
        "Throughput of designs by matrix",
        ("nodes", "matrix", *columns),
        tuple(rows),
        (
            f"Means over the seeds, without the duty cycle; columns x {duty_cycle:g} include it. The number is k. "
            "Multi-hop is ideal; the optimum is the best single-hop schedule of Vermilion's period.",
        ),
    )


def _by_size(samples: pd.DataFrame, duty_cycle: float) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for _, part in samples.groupby(["nodes", "design", "k"], sort=False):
        first, mean, worst = part.iloc[0], float(part["theta"].mean()), _least(part, "theta")
        guarantee = float(first["guarantee"]) or None
        rows.append(
            (int(first["nodes"]), str(first["design"]), int(first["k"]), *worst, mean, mean * duty_cycle, guarantee)
        )
    return Table(
        "Single-hop throughput by k and nodes",
        ("nodes", "design", "k", "least", "on", "mean", f"mean x {duty_cycle:g}", "(k-1)/k"),
        tuple(rows),
        (f"Over all matrices and seeds, without the duty cycle; the column x {duty_cycle:g} includes it.",),
    )


def _of_rounding(gap: pd.DataFrame) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for _, part in gap.groupby(["nodes", "k"], sort=False):
        robust, best = "over_robust_optimum", "over_optimum"
        rows.append(
            (
                int(part["nodes"].iloc[0]),
                int(part["k"].iloc[0]),
                *_least(part, robust),
                float(part[robust].mean()),
                float(part[robust].max()),
                *_least(part, best),
                float(part[best].mean()),
            )
        )
    return Table(
        "Vermilion's rounding against the best single-hop schedule of its period",
        ("nodes", "k", "of robust: least", "on", "mean", "most", "of all: least", "on", "mean"),
        tuple(rows),
        (
            "Ratios of single-hop throughputs over all matrices and seeds; the duty cycle cancels out. Robust: with "
            "one circuit for every pair, as Vermilion has; of all: without.",
        ),
    )


def _least(part: pd.DataFrame, column: str) -> tuple[float, str]:
    """The least value, and its matrix."""
    row = part.iloc[int(part[column].to_numpy().argmin())]
    return float(row[column]), str(row["matrix"])
