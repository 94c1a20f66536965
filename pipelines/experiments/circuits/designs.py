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

from foretail.configs.schema.circuit_experiments import DesignExperiment
from foretail.configs.schema.circuit_stages import ScheduleConfig
from foretail.features.errors import ForetailError
from foretail.pipelines.experiments.circuits.figures import designs_of, draw_designs, draw_sizes
from foretail.pipelines.runs.points import Point, SoFar, measure_points, write_files
from foretail.pipelines.runs.result import Cell, Table, plain
from foretail.pipelines.runs.store import Key, Store, code_digest
from foretail.sim_bridge.circuits.schedules.vermilion import next_period_factor, single_hop_guarantee
from foretail.sim_bridge.circuits.throughput.evaluation import DESIGNS, evaluation_matrix

POINT = "schedule_designs"
MULTI_HOP_NODES = 64
_SLACK = 1e-9
"""Relative; a throughput that misses its guarantee by so little has met it."""

CASE = ["nodes", "matrix"]
DESIGN = ["design", "routing", "k"]


@dataclass(frozen=True)
class Case:
    """A matrix of ``DesignExperiment.matrices`` on some nodes, drawn with a seed."""

    nodes: int
    matrix: str
    seed: int


@dataclass(frozen=True, eq=False)
class DesignResult:
    """A finished sweep.

    Attributes
    ----------
    sweep : its settings
    samples : one row per case, design and k: throughput, and what Theorem 22 guarantees (0 for other designs)
    gap : one row per case and k: Vermilion's throughput over the best of its period; empty unless both are measured
    violations : samples below their guarantee
    reused, points : how many of the points were in the store
    files : tables, figure, and the matrices of violations
    """

    sweep: DesignExperiment
    samples: pd.DataFrame
    gap: pd.DataFrame
    violations: pd.DataFrame
    reused: int
    points: int
    files: tuple[Path, ...]

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        return {
            "experiment": self.sweep.experiment,
            "duty_cycle": self.sweep.duty_cycle,
            "duty_cycle_included": False,
            "seeds": self.sweep.seeds,
            "curves": plain(over_seeds(self.samples).to_dict("records")),
            "rounding_gap": plain(self.gap.to_dict("records")),
            "violations": plain(self.violations.to_dict("records")),
            "files": [path.name for path in self.files],
        }

    def tables(self) -> list[Table]:
        """Throughput by design, then the price of rounding."""
        by = _by_size if self.sweep.experiment == "vermilion_fig8_8" else _by_matrix
        tables = [by(self.samples, self.sweep.duty_cycle)]
        if len(self.gap):
            tables.append(_of_rounding(self.gap))
        last = tables[-1]
        below = len(self.violations)
        notes = (
            f"Seeds {', '.join(map(str, self.sweep.seeds))}; {self.points} points, {self.reused} of them reused",
            f"{below} throughputs are below Theorem 22"
            + (": violation_*.parquet has their matrices." if below else "."),
        )
        return [*tables[:-1], Table(last.title, last.columns, last.rows, (*last.notes, *notes))]


def design_experiment(sweep: DesignExperiment, config: ScheduleConfig, run_dir: Path) -> DesignResult:
    """Run a sweep and draw it; of `config` counts what ``ScheduleConfig`` says."""
    _check(sweep, config.degree)
    code, cases = code_digest("features", "sim_bridge"), list(_cases(sweep))
    settings = {
        "degree": config.degree,
        "trusts": sorted(sweep.trusts),
        "designs": sorted(sweep.designs),
        "code": code,
    }
    points = [
        Point(
            f"{case.matrix} on {case.nodes} nodes, seed {case.seed}",
            Key(POINT, {**asdict(case), **settings}),
            partial(_outcomes, case, sweep, config.degree),
        )
        for case in cases
    ]
    measured = measure_points(sweep.experiment, points, Store(config.store_dir), config.jobs, config.launcher)
    samples = pd.DataFrame(
        [
            {**asdict(case), **outcome}
            for case, measurement in zip(cases, measured, strict=True)
            for outcome in measurement.found
        ]
    )
    guaranteed = [
        single_hop_guarantee(k) if design == "vermilion" else 0.0
        for design, k in zip(samples["design"], samples["k"], strict=True)
    ]
    samples = samples.assign(guarantee=guaranteed)
    violations = samples[samples["theta"] < samples["guarantee"] * (1 - _SLACK)].reset_index(drop=True)
    gap = _gap(samples)
    figure = draw_sizes(samples) if sweep.experiment == "vermilion_fig8_8" else draw_designs(over_seeds(samples))
    stem = sweep.experiment
    files: dict[str, pd.DataFrame | Figure] = {
        f"{stem}.csv": over_seeds(samples).assign(mean_with_duty_cycle=lambda rows: rows["mean"] * sweep.duty_cycle),
        f"{stem}.parquet": samples,
        f"{stem}.pdf": figure,
        f"{stem}.png": figure,
    }
    if len(gap):
        files[f"{stem}_rounding.csv"] = gap
    for place, row in enumerate(violations.to_dict("records")):
        demand = evaluation_matrix(row["matrix"], row["nodes"], config.degree, row["seed"])
        files[f"violation_{place}.parquet"] = pd.DataFrame(demand.demand).rename(columns=str)
    reused = sum(measurement.entry.reused for measurement in measured)
    return DesignResult(sweep, samples, gap, violations, reused, len(cases), write_files(run_dir, files))


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


def _cases(sweep: DesignExperiment) -> Iterator[Case]:
    for nodes in sweep.nodes:
        for matrix in sweep.matrices:
            for seed in sweep.seeds:
                yield Case(nodes, matrix, seed)


def _outcomes(case: Case, sweep: DesignExperiment, degree: int, so_far: SoFar) -> list[dict[str, Any]]:
    demand = evaluation_matrix(case.matrix, case.nodes, degree, case.seed)
    outcomes = []
    for design in sorted(sweep.designs):
        so_far(design)
        outcomes += [asdict(outcome) for outcome in DESIGNS[design](demand, degree, sorted(sweep.trusts), case.seed)]
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
