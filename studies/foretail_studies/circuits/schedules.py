"""Schedules of circuits: completion times and link utilisation cell by cell, and throughput by matrix and size.

Figures 8.5 and 8.6 of the thesis: Poisson flows of a permutation of racks cross the same slots under every design. A
point is one design under one load with one seed, which draws the permutation, the flows and what is random in the
design.

Figures 8.7 and 8.8: designs of periodic networks on matrices that they know. A point is one matrix on one number of
nodes with one seed, under every design and k.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.network.circuits import require_scheduler
from foretail.configs.schema.network.messages import FlowSizes
from foretail.core.errors import ForetailError
from foretail.core.settings import LARGEST_DEGREE, LARGEST_TRUST, part, seed_setting, setting
from foretail.features.demand.matrix import DemandMatrix
from foretail.pipelines.comparison.statistics import PairedDifference, interval_text, mean_interval
from foretail.pipelines.experiment.declaration import Drawn, PointExperiment, Shown, axes
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Cell, Table
from foretail.sim_bridge.circuits.demand import permutation
from foretail.sim_bridge.circuits.schedules import SCHEDULER_KINDS, Schedule, next_period_factor, single_hop_guarantee
from foretail.sim_bridge.packets.cost import LONG_FROM_BYTES, SHORT_BELOW_BYTES
from foretail_studies.engines.cells import (
    CellCounts,
    CellFabric,
    CellFlows,
    CompletionTimes,
    CountedSlots,
    Graph,
    MultiHopFabric,
    Routing,
    SlotTime,
    cell_trial,
    poisson_flows,
)
from foretail_studies.engines.circuits import DESIGNS, DUTY_CYCLE, evaluation_matrix, outcomes_of
from foretail_studies.figures import draw_lines

FLOW_SEED = 2**32
"""Added to a seed for the flows, which must not be the random numbers that made the permutation."""
COMPLETION = ("short_p50_us", "short_p99_us", "long_mean_us", "long_p99_us")
UTILISED = ("delivered", "utilisation", "raw_utilisation")
CLASSES = ("short", "long")
PAIRED = "Means over the seeds; ratios are geometric means, paired by seed, with 95 % intervals."


SEVERAL_HOPS: Mapping[str, Graph] = {"shortest_paths": "period", "detour": "valiant", "current_paths": "slot"}
"""Routings over several hops, and the graph of each."""

SLOT = SlotTime(uplink_bps=25_000_000_000, day_ns=4_500, night_ns=500)
OPERA_LONG_BYTES = 15_000_000
"""Flows from this size on wait for a direct circuit, as in Opera (NSDI'20)."""


@dataclass
class CellDesign:
    """A schedule of circuits, and how cells go over it."""

    schedule: str = setting(
        MISSING,
        "Schedule: vermilion for the permutation; round_robin, every rack in turn; mars; expander; opera; or the "
        "scheduler of a package.",
    )
    routing: str = setting(
        MISSING,
        "Routing, by its name in foretail_studies.engines.cells, or over several hops: shortest_paths, "
        "of the circuits of a period; detour, the same to a random rack first, for mars; current_paths, for opera, of "
        "the circuits of a slot, where flows of 15 MB or more wait for a circuit of their own.",
        one_of=("direct", "two_hop", "valiant", *SEVERAL_HOPS),
    )
    k: int = setting(
        3, "Vermilion: k, with l = 1; k times racks is a multiple of the degree.", at_least=2, at_most=LARGEST_TRUST
    )
    hold_slots: int = setting(
        1,
        "Number of slots that every matching stays; with two_hop, a rack takes cells to relay up to this number.",
        at_least=1,
        at_most=2**20,
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on a scheduler that nobody offers."""
        require_scheduler(f"{where}.schedule", self.schedule)


@dataclass
class CellSettings(PointSettings):
    """Flows over designs, cell by cell: every design under every load with every seed is a point."""

    degree: int = setting(
        MISSING, "Number of uplinks of a node; k times n is a multiple of it.", at_least=1, at_most=LARGEST_DEGREE
    )
    racks: int = setting(MISSING, "Number n of racks.", at_least=3, at_most=1024)
    loads: list[float] = setting(
        MISSING, "Offered loads, relative to the rate of a rack's uplinks.", above=0, at_most=2
    )
    seeds: list[int] = seed_setting(MISSING, "Seeds of permutations and flows.")
    designs: dict[str, CellDesign] = setting(MISSING, "Designs to compare; the others are compared to the first one.")
    flow_sizes: FlowSizes = part(FlowSizes, "Distribution of the sizes of flows.")
    warm_up_slots: int = setting(
        MISSING, "Slots before the start of the flows that are measured.", at_least=0, at_most=2**40
    )
    slots: int = setting(MISSING, "Slots in which the measured flows start.", at_least=1, at_most=2**40)
    drain_slots: int = setting(
        MISSING, "Slots after that, under the same load, in which they can finish.", at_least=0, at_most=2**40
    )

    def check(self, where: str) -> None:
        """Raise ForetailError without a design."""
        super().check(where)
        if not self.designs:
            raise ForetailError("designs is empty: give at least one design")


@dataclass(frozen=True)
class CellCase:
    """A design under one load with one seed."""

    design: str
    load: float
    seed: int


def cell_experiment(
    tables: Callable[[_Tables], list[Table]], metrics: Mapping[str, str], caption: str, **look: Any
) -> PointExperiment[CellSettings, CellCase]:
    """The experiment that shows these points in its own way: tables, and a figure of metrics with their titles."""

    def shown(samples: pd.DataFrame, settings: CellSettings) -> Shown:
        """Tables and figure, with the curves behind them.

        Curves have one row per design, load and metric: mean with its 95 % interval, least and largest over the seeds,
        and the geometric mean of the first design's value over this one, paired by seed, with its 95 % interval. With
        unfinished flows a completion time is a lower bound.
        """
        curves = _curves(samples, next(iter(settings.designs)))
        drawn = curves.assign(title=curves["metric"].map(metrics), percent=100 * curves["load"]).dropna(subset="title")
        axis = "load in % of the uplinks' rate"
        figure = draw_lines(drawn, "title", "design", "percent", band=("least", "largest"), xlabel=axis, **look)
        return Shown(
            samples,
            tables(_Tables(settings, samples, curves)),
            {"": Drawn(figure, caption, curves)},
            notes=(f"Seeds {', '.join(map(str, settings.seeds))}",),
        )

    return PointExperiment(
        settings=CellSettings,
        kind="schedule_fabric",
        cases=_cell_cases,
        name=lambda case: f"{case.design} at {100 * case.load:.12g} %, seed {case.seed}",
        measure=_measured,
        rows=_row,
        show=shown,
        code=("features", "sim_bridge"),
        varied=("loads", "seeds", "designs"),
        depends_on=lambda case, settings: {
            "design": asdict(settings.designs[case.design]),
            "classes": [SHORT_BELOW_BYTES, LONG_FROM_BYTES],
            **SCHEDULER_KINDS.sources([settings.designs[case.design].schedule]),
        },
    )


def _cell_cases(settings: CellSettings) -> Iterator[CellCase]:
    for design in settings.designs.values():  # what does not fit is said before anything has run
        scheduled(design, permutation(settings.racks, settings.degree), settings.degree, 1)
    for load in sorted(settings.loads):
        for seed in settings.seeds:
            for name in settings.designs:
                yield CellCase(name, load, seed)


@dataclass(frozen=True)
class _Tables:
    """The tables of one run of the experiment."""

    settings: CellSettings
    samples: pd.DataFrame
    curves: pd.DataFrame

    def completion_times(self, of: str) -> Table:
        first, *others = self.settings.designs
        metrics = [name for name in COMPLETION if name.startswith(of)]
        rows: list[tuple[Cell, ...]] = []
        for load, design, values in self._lines():
            group = self.samples[(self.samples["load"] == load) & (self.samples["design"] == design)]
            share = float(group[f"{of}_unfinished"].sum() / group[f"{of}_flows"].sum())
            row: list[Cell] = [f"{100 * load:g} %", design, self.settings.designs[design].routing]
            for metric in metrics:
                row += [values[metric]["mean"], _ratio(values[metric]) if design in others else None]
            rows.append((*row, int(group[f"{of}_flows"].sum()), f"{100 * share:.1f} %"))
        limit = f"below {SHORT_BELOW_BYTES:,} bytes" if of == "short" else f"of {LONG_FROM_BYTES:,} bytes and more"
        titles = [column for metric in metrics for column in (metric.split("_")[1], f"{first} / this")]
        return Table(
            f"Completion times of {of} flows in microseconds",
            ("load", "design", "routing", *titles, "flows", "unfinished"),
            tuple(rows),
            (
                f"Flows {limit}; in whole slots, nights included. {PAIRED}",
                "Unfinished flows count with their age at the end: where there are any, figures are lower bounds.",
            ),
        )

    def utilisation(self) -> Table:
        first, *others = self.settings.designs
        rows: list[tuple[Cell, ...]] = []
        for load, design, values in self._lines():
            ratio = _ratio(values["delivered"]) if design in others else None
            means = [values[metric]["mean"] for metric in UTILISED]
            rows.append(
                (f"{100 * load:g} %", design, self.settings.designs[design].routing, means[0], ratio, *means[1:])
            )
        duty = SLOT.duty_cycle
        return Table(
            "Link utilisation",
            ("load", "design", "routing", "delivered", f"{first} / this", "of circuits", "with first hops"),
            tuple(rows),
            (
                "Delivered: cells that reached their destination, relative to the rate of all uplinks, with the duty "
                f"cycle of {duty:g}; of circuits: relative to the circuits that were up; with first hops: and cells "
                f"that went to a relay. {PAIRED}",
            ),
        )

    def _lines(self) -> Iterator[tuple[float, str, dict[Any, Any]]]:
        """Each load and design, with its curves by metric."""
        for (load, design), rows in self.curves.groupby(["load", "design"], sort=False):
            yield float(str(load)), str(design), rows.set_index("metric").to_dict("index")


def scheduled(design: CellDesign, demand: DemandMatrix, degree: int, seed: int) -> Schedule:
    """The circuits of a design, `seed` draws those that demand leaves over."""
    settings = {"k": design.k} if design.schedule == "vermilion" else {}
    made = SCHEDULER_KINDS.make(design.schedule, settings).schedule(demand, degree, seed)
    return Schedule(np.repeat(made.matchings, design.hold_slots, axis=0))


def fabric_of(
    design: CellDesign, schedule: Schedule, flows: CellFlows, time: SlotTime, seed: int, room: int | None = None
) -> CellFabric | MultiHopFabric:
    """The fabric of a design.

    Over several hops `room` is how many cells from others a rack holds, and of its own for random racks: two an uplink
    if it is None, where those from others have no bound.
    """
    if design.routing not in SEVERAL_HOPS:
        return CellFabric(schedule, flows, cast(Routing, design.routing), design.hold_slots, seed)
    long_cells = math.ceil(OPERA_LONG_BYTES / time.cell_bytes)
    graph = SEVERAL_HOPS[design.routing]
    long_from = long_cells if graph == "slot" else None
    return MultiHopFabric(schedule, flows, graph, long_from, seed, room or 2 * schedule.degree, room)


def _measured(case: CellCase, so_far: SoFar, settings: CellSettings) -> dict[str, Any]:
    """The trial of a point."""
    design, end = settings.designs[case.design], settings.warm_up_slots + settings.slots
    window = CountedSlots(settings.warm_up_slots, end, end + settings.drain_slots)
    demand = permutation(settings.racks, settings.degree, case.seed)
    flows, size_bytes = poisson_flows(
        demand,
        case.load,
        window.last,
        SLOT,
        settings.flow_sizes.size_bytes,
        settings.flow_sizes.cumulative,
        FLOW_SEED + case.seed,
    )
    made = scheduled(design, demand, settings.degree, case.seed)
    fabric = fabric_of(design, made, flows, SLOT, case.seed)
    classes = {"short": size_bytes < SHORT_BELOW_BYTES, "long": size_bytes >= LONG_FROM_BYTES}
    trial = cell_trial(fabric, flows, classes, window, lambda slot: so_far(f"slot {slot:,} of {window.last:,}"))
    return asdict(trial)


def _row(case: CellCase, trial: Mapping[str, Any], settings: CellSettings) -> dict[str, Any]:
    """Every metric of a point; NaN where no flow of a class started."""
    time, carried = SLOT, CellCounts(**trial["carried"])
    row: dict[str, Any] = {
        "delivered": carried.delivered / (carried.slots * settings.racks * settings.degree) * time.duty_cycle,
        "utilisation": carried.utilisation,
        "raw_utilisation": carried.raw_utilisation,
        "backlog_cells": trial["backlog"],
    }
    for name in CLASSES:
        times = CompletionTimes(**trial["classes"][name])
        row |= {f"{name}_flows": times.flows, f"{name}_unfinished": times.unfinished}
        for statistic in ("mean", "p50", "p99"):
            slots = getattr(times, statistic)
            row[f"{name}_{statistic}_us"] = np.nan if slots is None else slots * time.slot_ns / 1e3
    return row


def _curves(samples: pd.DataFrame, first: str) -> pd.DataFrame:
    """Every metric by design and load over the seeds, and the first design's over it, seed by seed."""
    rows = []
    for metric in (*COMPLETION, *UTILISED):
        counted = f"{metric.split('_')[0]}_unfinished" if metric in COMPLETION else None
        for load, of_load in samples.groupby("load"):
            by_seed = of_load.pivot(index="seed", columns="design", values=metric)
            for design in dict.fromkeys(of_load["design"]):
                values = by_seed[design]
                with np.errstate(divide="ignore"):  # a ratio with 0 has no mean and is not a pair
                    mean, ratio = _interval(values), _interval(np.log(by_seed[first] / values))
                rows.append(
                    {"design": design, "load": load, "metric": metric}
                    | {"mean": mean.mean, "low": mean.low, "high": mean.high, "seeds": mean.pairs}
                    | {"least": values.min(), "largest": values.max(), "over": first, "pairs": ratio.pairs}
                    | {"unfinished": int(of_load[of_load["design"] == design][counted].sum()) if counted else 0}
                    | ratio.columns("ratio", lambda log: float(np.exp(log)))
                )
    return pd.DataFrame(rows)


def _interval(values: pd.Series[float]) -> PairedDifference:
    return mean_interval(values[np.isfinite(values)].tolist())


def _ratio(row: Mapping[str, Any]) -> str:
    """The ratio with its interval, which needs two seeds."""
    return interval_text(PairedDifference.of_columns(row, "ratio"), "")


COMPLETION_TIMES = cell_experiment(
    lambda tables: [tables.completion_times(of) for of in CLASSES],
    {"short_p99_us": "short flows, p99, us", "long_mean_us": "long flows, mean, us", "long_p99_us": "long, p99, us"},
    "Completion times of flows by load, a line per design; less is better. Bands reach from the least seed to the "
    "largest.",
    yscale="log",
)
UTILISATION = cell_experiment(
    lambda tables: [tables.utilisation()],
    {"delivered": "delivered, of the uplinks' rate", "raw_utilisation": "carrying any cell, of circuits up"},
    "Use of the links by load, a line per design. Bands reach from the least seed to the largest.",
)


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
        "Designs to compare: vermilion; optimum, the best single-hop schedules of its period; oblivious, up "
        "to 64 nodes; mars; or the scheduler of a package.",
    )
    seeds: list[int] = seed_setting(MISSING, "Seeds of random matrices and of circuits left over.")

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
    table: Callable[[pd.DataFrame], Table], draw: Callable[[pd.DataFrame], Figure], caption: str
) -> PointExperiment[DesignSettings, DesignCase]:
    """The experiment that shows these points in its own way."""

    def show(rows: pd.DataFrame, settings: DesignSettings) -> Shown:
        """Throughputs, what Vermilion's rounding costs, and which throughputs are below their guarantee."""
        guaranteed = [
            single_hop_guarantee(k) if design == "vermilion" else 0.0
            for design, k in zip(rows["design"], rows["k"], strict=True)
        ]
        samples = rows.assign(guarantee=guaranteed)
        violations = samples[samples["theta"] < samples["guarantee"] * (1 - _SLACK)].reset_index(drop=True)
        curves, gap, stem = over_seeds(samples), _gap(samples), settings.experiment
        frames = {f"{stem}.csv": curves.assign(mean_with_duty_cycle=curves["mean"] * DUTY_CYCLE)}
        tables = [table(samples)]
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
            {"": Drawn(draw(samples), caption)},
            frames,
            notes=(
                f"Seeds {', '.join(map(str, settings.seeds))}",
                f"{len(violations)} throughputs are below Theorem 22{where}",
            ),
            verdict=[f"Of {len(samples):,} throughputs {len(violations)} are below what Theorem 22 guarantees."],
        )

    return PointExperiment(
        settings=DesignSettings,
        kind="schedule_designs",
        cases=_design_cases,
        name=lambda case: f"{case.matrix} on {case.nodes} nodes, seed {case.seed}",
        measure=_outcomes,
        show=show,
        code=("features", "sim_bridge"),
        varied=("nodes", "matrices", "seeds"),
        depends_on=lambda case, settings: SCHEDULER_KINDS.sources(
            name for name in settings.designs if name not in DESIGNS
        ),
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
        if "oblivious" in settings.designs and nodes > MULTI_HOP_NODES:
            raise ForetailError(
                f"the multi-hop throughput of the oblivious design on {nodes} nodes takes minutes: choose at most "
                f"{MULTI_HOP_NODES}, or leave oblivious out of designs"
            )
        for k in settings.trusts:
            if k * nodes % degree:
                raise ForetailError(
                    f"k n = {k} x {nodes} matchings do not fill {degree} uplinks evenly: choose "
                    f"k = {next_period_factor(nodes, degree, k)}"
                )
        for matrix in settings.matrices:
            evaluation_matrix(matrix, nodes, degree)


def _design_cases(settings: DesignSettings) -> Iterator[DesignCase]:
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


def designs_of(curves: pd.DataFrame) -> list[tuple[str, str, int]]:
    """Design, routing and k in the order of the table: Vermilion first, k rising."""
    designs = dict.fromkeys(curves[DESIGN].itertuples(index=False, name=None))
    return sorted(sorted(designs, key=lambda design: int(design[2])), key=lambda design: str(design[0]), reverse=True)


def _by_matrix(samples: pd.DataFrame) -> Table:
    """A column per design; Vermilion's once more with the duty cycle."""
    curves = over_seeds(samples[samples["design"] != "robust optimum"])  # rarely differs: see the table of rounding
    columns: dict[str, tuple[tuple[str, str, int], float]] = {}
    for design, routing, k in designs_of(curves):
        name = f"{design}{f' {k}' if k else ''}"
        columns[f"{name} {routing}"] = (design, routing, k), 1.0
        if design == "vermilion":
            columns[f"{name} x {DUTY_CYCLE:g}"] = (design, routing, k), DUTY_CYCLE
    rows: list[tuple[Cell, ...]] = []
    for _, group in curves.groupby(CASE, sort=False):
        means = group.set_index(DESIGN)["mean"].to_dict()
        first = group.iloc[0]
        rows.append(
            (int(first["nodes"]), str(first["matrix"]), *(float(means[of]) * factor for of, factor in columns.values()))
        )
    return Table(
        "Throughput of designs by matrix",
        ("nodes", "matrix", *columns),
        tuple(rows),
        (
            f"Means over the seeds, without the duty cycle; columns x {DUTY_CYCLE:g} include it. The number is k. "
            "Multi-hop is ideal; the optimum is the best single-hop schedule of Vermilion's period.",
        ),
    )


def _by_size(samples: pd.DataFrame) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for _, group in samples.groupby(["nodes", "design", "k"], sort=False):
        first, mean, worst = group.iloc[0], float(group["theta"].mean()), _least(group, "theta")
        guarantee = float(first["guarantee"]) or None
        rows.append(
            (int(first["nodes"]), str(first["design"]), int(first["k"]), *worst, mean, mean * DUTY_CYCLE, guarantee)
        )
    return Table(
        "Single-hop throughput by k and nodes",
        ("nodes", "design", "k", "least", "on", "mean", f"mean x {DUTY_CYCLE:g}", "(k-1)/k"),
        tuple(rows),
        (f"Over all matrices and seeds, without the duty cycle; the column x {DUTY_CYCLE:g} includes it.",),
    )


def _of_rounding(gap: pd.DataFrame) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for _, group in gap.groupby(["nodes", "k"], sort=False):
        robust, best = "over_robust_optimum", "over_optimum"
        rows.append(
            (
                int(group["nodes"].iloc[0]),
                int(group["k"].iloc[0]),
                *_least(group, robust),
                float(group[robust].mean()),
                float(group[robust].max()),
                *_least(group, best),
                float(group[best].mean()),
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


def _least(group: pd.DataFrame, column: str) -> tuple[float, str]:
    """The least value, and its matrix."""
    row = group.iloc[int(group[column].to_numpy().argmin())]
    return float(row[column]), str(row["matrix"])


def _draw_matrices(samples: pd.DataFrame) -> Figure:
    curves = over_seeds(samples[samples["design"] != "robust optimum"])
    names = [
        f"{design} {k}, {routing}" if k else f"{design}, {routing}" for design, routing, k in curves[DESIGN].values
    ]
    axis = "throughput, without duty cycle"
    drawn = curves.assign(design=names, nodes=curves["nodes"].map("{} nodes".format))
    return draw_lines(drawn, "nodes", "design", "matrix", linestyle="", ylabel=axis)


def _draw_sizes(samples: pd.DataFrame) -> Figure:
    made = samples[samples["design"] == "vermilion"]
    made = pd.concat([made, made.assign(nodes="(k - 1) / k", theta=made["guarantee"])])
    curves = made.groupby(["design", "nodes", "k"], sort=False)["theta"].agg(["mean", "min"]).reset_index()
    return draw_lines(curves, "design", "nodes", "k", band=("min", "mean"), xlabel="k", ylabel="single-hop throughput")


BY_MATRIX = design_experiment(
    _by_matrix,
    _draw_matrices,
    "Mean throughput by matrix, a panel per number of nodes, a marker per design, k and routing.",
)
BY_SIZE = design_experiment(
    _by_size,
    _draw_sizes,
    "Throughput of Vermilion by k, without the duty cycle, a line per number of nodes: mean over matrices, and a band "
    "down to the least.",
)
