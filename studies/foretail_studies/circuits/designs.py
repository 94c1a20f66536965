"""Designs of periodic networks on matrices that they know: Figures 8.7 and 8.8 of the thesis.

A point is one matrix on one number of nodes with one seed, under every design and k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.fields import LARGEST_DEGREE, LARGEST_TRUST, setting
from foretail.configs.schema.network.circuits import require_scheduler
from foretail.core.errors import ForetailError
from foretail.pipelines.experiment.cases import axes
from foretail.pipelines.experiment.declaration import Drawn, PointExperiment, Shown
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Cell, Table
from foretail.sim_bridge.circuits.schedules import SCHEDULER_KINDS, next_period_factor, single_hop_guarantee
from foretail_studies.circuits.figures import designs_of, draw_designs, draw_sizes
from foretail_studies.engines.circuits import DESIGNS, evaluation_matrix, outcomes_of

MULTI_HOP_NODES = 64
_SLACK = 1e-9
"""Relative; a throughput that misses its guarantee by so little has met it."""

CASE = ["nodes", "matrix"]
DESIGN = ["design", "routing", "k"]


@dataclass
class DesignSettings(PointSettings):
    """Designs of periodic networks side by side: every matrix on every number of nodes with every seed is a point."""

    degree: int = setting(
        MISSING, "Number of uplinks of a node; k times n is a multiple of it.", at_least=1, at_most=LARGEST_DEGREE
    )
    duty_cycle: float = setting(
        0.99, "Share of a slot that carries data; figures without it are shown as well.", above=0, at_most=1
    )
    nodes: list[int] = setting(
        MISSING, "Number n of nodes; k times n is a multiple of the degree.", at_least=2, at_most=1024
    )
    matrices: list[str] = setting(
        MISSING,
        "Demand matrices: names from foretail_studies.engines.circuits, or skew-A, a share A of a "
        "permutation and else uniform.",
    )
    trusts: list[int] = setting(MISSING, "Values of k, with l = 1.", at_least=2, at_most=LARGEST_TRUST)
    designs: list[str] = setting(
        MISSING,
        "Designs to compare: vermilion; optimum, the best single-hop schedules of its period; oblivious, opera "
        "and expander, up to 64 nodes; mars; or the scheduler of a package.",
    )
    seeds: list[int] = setting(
        MISSING, "Seeds of random matrices and of circuits left over.", at_least=1, at_most=2**31 - 1
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on a design that nobody offers."""
        super().check(where)
        for name in self.designs:
            require_scheduler("designs", name, tuple(DESIGNS))


@dataclass(frozen=True)
class DesignCase:
    """A matrix on some nodes, drawn with a seed."""

    nodes: int
    matrix: str
    seed: int


def design_experiment(
    table: Callable[[pd.DataFrame, float], Table], draw: Callable[[pd.DataFrame], Drawn]
) -> PointExperiment[DesignSettings, DesignCase]:
    """The experiment that shows these points in its own way."""
    return PointExperiment(
        settings=DesignSettings,
        kind="schedule_designs",
        cases=_cases,
        name=lambda case: f"{case.matrix} on {case.nodes} nodes, seed {case.seed}",
        measure=_outcomes,
        rows=lambda case, outcomes, settings: outcomes,
        show=partial(show, table=table, draw=draw),
        code=("features", "sim_bridge"),
        varied=("nodes", "matrices", "seeds", "duty_cycle"),
        depends_on=lambda case, settings: SCHEDULER_KINDS.sources(
            name for name in settings.designs if name not in DESIGNS
        ),
    )


def show(
    rows: pd.DataFrame,
    settings: DesignSettings,
    table: Callable[[pd.DataFrame, float], Table],
    draw: Callable[[pd.DataFrame], Drawn],
) -> Shown:
    """Throughputs, what Vermilion's rounding costs, and which throughputs are below their guarantee."""
    guaranteed = [
        single_hop_guarantee(k) if design == "vermilion" else 0.0
        for design, k in zip(rows["design"], rows["k"], strict=True)
    ]
    samples = rows.assign(guarantee=guaranteed)
    violations = samples[samples["theta"] < samples["guarantee"] * (1 - _SLACK)].reset_index(drop=True)
    curves, gap, stem = over_seeds(samples), _gap(samples), settings.experiment
    frames = {f"{stem}.csv": curves.assign(mean_with_duty_cycle=curves["mean"] * settings.duty_cycle)}
    tables = [table(samples, settings.duty_cycle)]
    if len(gap):
        frames[f"{stem}_rounding.csv"] = gap
        tables.append(_of_rounding(gap))
    for place, row in enumerate(violations.to_dict("records")):
        demand = evaluation_matrix(row["matrix"], row["nodes"], settings.degree, row["seed"])
        frames[f"violation_{place}.parquet"] = pd.DataFrame(demand.demand).rename(columns=str)
    where = ": violation_*.parquet has their matrices." if len(violations) else "."
    return Shown(
        samples,
        tables,
        {"": draw(samples)},
        frames,
        notes=(
            f"Seeds {', '.join(map(str, settings.seeds))}",
            f"{len(violations)} throughputs are below Theorem 22{where}",
        ),
        verdict=(
            f"Of {len(samples):,} throughputs {len(violations)} are below what Theorem 22 guarantees for Vermilion.",
        ),
        details={
            "duty_cycle": settings.duty_cycle,
            "duty_cycle_included": False,
            "seeds": settings.seeds,
            "curves": curves.to_dict("records"),
            "rounding_gap": gap.to_dict("records"),
            "violations": violations.to_dict("records"),
        },
    )


def over_seeds(samples: pd.DataFrame) -> pd.DataFrame:
    """Mean and least throughput over the seeds: one row per nodes, matrix, design, routing and k."""
    by = samples.groupby([*CASE, *DESIGN], sort=False)
    return by.agg(
        mean=("theta", "mean"), least=("theta", "min"), samples=("theta", "size"), guarantee=("guarantee", "first")
    ).reset_index()


def _check(settings: DesignSettings) -> None:
    """Raise ForetailError on whatever a point could stumble over, before any is measured."""
    degree = settings.degree
    for nodes in settings.nodes:
        most = nodes - 1 if "oblivious" in settings.designs else nodes
        if degree > most:
            raise ForetailError(f"degree = {degree} is too much for {nodes} nodes: choose at most {most}")
        for design in ("oblivious", "opera", "expander"):
            if design in settings.designs and nodes > MULTI_HOP_NODES:
                raise ForetailError(
                    f"the multi-hop throughput of the {design} design on {nodes} nodes takes minutes: choose at most "
                    f"{MULTI_HOP_NODES}, or leave {design} out of designs"
                )
        for k in settings.trusts:
            if k * nodes % degree:
                raise ForetailError(
                    f"k n = {k} x {nodes} matchings do not fill {degree} uplinks evenly: choose "
                    f"k = {next_period_factor(nodes, degree, k)}"
                )
        for matrix in settings.matrices:
            evaluation_matrix(matrix, nodes, degree)


def _cases(settings: DesignSettings) -> Iterator[DesignCase]:
    _check(settings)
    return axes(DesignCase, settings.nodes, settings.matrices, settings.seeds)


def _outcomes(case: DesignCase, so_far: SoFar, settings: DesignSettings) -> list[dict[str, Any]]:
    demand = evaluation_matrix(case.matrix, case.nodes, settings.degree, case.seed)
    outcomes = []
    for design in sorted(settings.designs):
        so_far(design)
        made = outcomes_of(design, demand, settings.degree, sorted(settings.trusts), case.seed)
        outcomes += [asdict(outcome) for outcome in made]
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


BY_MATRIX = design_experiment(
    _by_matrix,
    lambda samples: Drawn(
        draw_designs(over_seeds(samples)),
        "Mean throughput by matrix, a panel per number of nodes, a marker per design, routing and k.",
    ),
)
BY_SIZE = design_experiment(
    _by_size,
    lambda samples: Drawn(
        draw_sizes(samples), "Throughput of Vermilion by k and by the number of nodes: mean over matrices, and least."
    ),
)
