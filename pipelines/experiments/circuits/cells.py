"""``foretail schedule experiment=vermilion_fig8_5`` and ``8_6``: completion times and link utilisation, cell by cell.

Poisson flows of a permutation of racks cross the same slots under every design. A point is one design under one load
with one seed, which draws the permutation, the flows and what is random in the design.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from foretail.configs.schema.circuits import CellDesign, CellExperiment, ScheduleConfig
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix
from foretail.pipelines.comparison.statistics import LONG_FROM_BYTES, SHORT_BELOW_BYTES, PairedDifference, mean_interval
from foretail.pipelines.experiments.circuits.figures import draw_completion_times, draw_utilisation
from foretail.pipelines.experiments.frame import ExperimentResult, figure_files, measure_cases
from foretail.pipelines.runs.points import SoFar, write_files
from foretail.pipelines.runs.result import Cell, Table, plain
from foretail.sim_bridge.circuits.cells.cell_fabric import CellCounts, CellFabric, Routing
from foretail.sim_bridge.circuits.cells.cell_trial import CompletionTimes, CountedSlots, cell_trial
from foretail.sim_bridge.circuits.cells.flow_arrivals import SlotTime, poisson_flows
from foretail.sim_bridge.circuits.demand.matrices import permutation
from foretail.sim_bridge.circuits.schedules.schedule import Schedule
from foretail.sim_bridge.circuits.schedules.scheduler import SCHEDULER_KINDS

POINT = "schedule_fabric"
FLOW_SEED = 2**32
"""Added to a seed for the flows, which must not be the random numbers that made the permutation."""
COMPLETION = ("short_p50_us", "short_p99_us", "long_mean_us", "long_p99_us")
UTILISATION = ("delivered", "utilisation", "raw_utilisation")
CLASSES = ("short", "long")
PAIRED = "Means over the seeds; ratios are geometric means, paired by seed, with 95 % intervals."


@dataclass(frozen=True)
class CellCase:
    """A design of ``CellExperiment.designs`` under one load with one seed."""

    design: str
    load: float
    seed: int


def cell_experiment(sweep: CellExperiment, config: ScheduleConfig, run_dir: Path) -> ExperimentResult:
    """Run the experiment and draw it; of `config` counts what ``ScheduleConfig.unused`` leaves.

    Its curves have one row per design, load and metric: mean with its 95 % interval, least and largest over the seeds,
    and the geometric mean of the first design's value over this one, paired by seed, with its 95 % interval. With
    unfinished flows a completion time is a lower bound.
    """
    if not sweep.designs:
        raise ForetailError(f"cells.{config.size}.designs is empty: give at least one design")
    for design in sweep.designs.values():  # what does not fit is said before anything has run
        scheduled(design, permutation(sweep.racks, config.degree), config.degree, 1)
    varied = ("experiment", "loads", "seeds", "designs")
    settings = {name: value for name, value in asdict(sweep).items() if name not in varied}
    settings |= {"degree": config.degree, "classes": [SHORT_BELOW_BYTES, LONG_FROM_BYTES]}
    settings |= {"code": code_digest("features", "sim_bridge")}
    measured = measure_cases(
        sweep.experiment,
        POINT,
        [
            CellCase(design, load, seed)
            for load in sorted(sweep.loads)
            for seed in sweep.seeds
            for design in sweep.designs
        ],
        config,
        name=lambda case: f"{case.design} at {100 * case.load:.12g} %, seed {case.seed}",
        depends_on=lambda case: {
            **asdict(case),
            "design": asdict(sweep.designs[case.design]),
            **SCHEDULER_KINDS.sources([sweep.designs[case.design].schedule]),
            **settings,
        },
        measure=partial(_measured, sweep=sweep, degree=config.degree),
    )
    samples = measured.rows(lambda case, found: _row(found, sweep, config.degree))
    curves, stem = _curves(samples, next(iter(sweep.designs))), sweep.experiment
    tables = _Tables(sweep, samples, curves)
    if sweep.experiment == "vermilion_fig8_5":
        figure, shown = draw_completion_times(curves), [tables.completion_times(of) for of in CLASSES]
    else:
        figure, shown = draw_utilisation(curves), [tables.utilisation()]
    drawn = figure_files(stem, figure, ("pdf", "png", "svg"))
    return ExperimentResult(
        sweep.experiment,
        {
            "routing": {name: design.routing for name, design in sweep.designs.items()},
            "duty_cycle": slot_time(sweep).duty_cycle,
            "duty_cycle_included": {"completion times": True, "delivered": True, "utilisation": False},
            "seeds": sweep.seeds,
            "curves": plain(curves.to_dict("records")),
            "points": plain(samples.to_dict("records")),
        },
        shown,
        write_files(run_dir, {f"{stem}.csv": curves, f"{stem}.parquet": samples, **drawn}),
        (f"Seeds {', '.join(map(str, sweep.seeds))}; {measured.note}",),
        captions={
            stem: "Completion times of flows by load, a line per design; less is better. Hollow: at least so long."
            if sweep.experiment == "vermilion_fig8_5"
            else "Use of the links by load, a line per design. Bands reach from the least seed to the largest."
        },
    )


@dataclass(frozen=True)
class _Tables:
    """The tables of one run of the experiment."""

    sweep: CellExperiment
    samples: pd.DataFrame
    curves: pd.DataFrame

    def completion_times(self, of: str) -> Table:
        first, *others = self.sweep.designs
        metrics = [name for name in COMPLETION if name.startswith(of)]
        rows: list[tuple[Cell, ...]] = []
        for load, design in self._lines():
            part = self.samples[(self.samples["load"] == load) & (self.samples["design"] == design)]
            share = float(part[f"{of}_unfinished"].sum() / part[f"{of}_flows"].sum())
            row: list[Cell] = [f"{100 * load:g} %", design, self.sweep.designs[design].routing]
            for metric in metrics:
                found = self._found(load, design, metric)
                row += [found["mean"], _ratio(found) if design in others else None]
            rows.append((*row, int(part[f"{of}_flows"].sum()), f"{100 * share:.1f} %"))
        limit = f"below {SHORT_BELOW_BYTES:,} bytes" if of == "short" else f"of {LONG_FROM_BYTES:,} bytes and more"
        titles = [column for metric in metrics for column in (_title(metric), f"{first} / this")]
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
        first, *others = self.sweep.designs
        rows: list[tuple[Cell, ...]] = []
        for load, design in self._lines():
            found = {metric: self._found(load, design, metric) for metric in UTILISATION}
            ratio = _ratio(found["delivered"]) if design in others else None
            means = [found[metric]["mean"] for metric in UTILISATION]
            rows.append((f"{100 * load:g} %", design, self.sweep.designs[design].routing, means[0], ratio, *means[1:]))
        duty = slot_time(self.sweep).duty_cycle
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

    def _lines(self) -> Iterator[tuple[float, str]]:
        for load in sorted(self.sweep.loads):
            for design in self.sweep.designs:
                yield load, design

    def _found(self, load: float, design: str, metric: str) -> dict[str, Any]:
        curves = self.curves
        row = curves[(curves["load"] == load) & (curves["design"] == design) & (curves["metric"] == metric)]
        return {str(name): value for name, value in row.iloc[0].items()}


def slot_time(sweep: CellExperiment) -> SlotTime:
    """The slot of a sweep."""
    return SlotTime(sweep.uplink_bps, sweep.day_ns, sweep.night_ns)


def scheduled(design: CellDesign, demand: DemandMatrix, degree: int, seed: int) -> Schedule:
    """The circuits of a design, `seed` draws those that demand leaves over."""
    settings = {"k": design.k} if design.schedule == "vermilion" else {}
    made = SCHEDULER_KINDS.make(design.schedule, settings).schedule(demand, degree, seed)
    return Schedule(np.repeat(made.matchings, design.hold_slots, axis=0))


def _measured(case: CellCase, so_far: SoFar, sweep: CellExperiment, degree: int) -> dict[str, Any]:
    """The trial of a point."""
    design, end = sweep.designs[case.design], sweep.warm_up_slots + sweep.slots
    window = CountedSlots(sweep.warm_up_slots, end, end + sweep.drain_slots)
    demand = permutation(sweep.racks, degree, case.seed)
    flows, size_bytes = poisson_flows(
        demand,
        case.load,
        window.last,
        slot_time(sweep),
        sweep.sizes.size_bytes,
        sweep.sizes.cumulative,
        FLOW_SEED + case.seed,
    )
    made = scheduled(design, demand, degree, case.seed)
    fabric = CellFabric(made, flows, cast(Routing, design.routing), design.hold_slots, case.seed)
    classes = {"short": size_bytes < SHORT_BELOW_BYTES, "long": size_bytes >= LONG_FROM_BYTES}
    trial = cell_trial(fabric, flows, classes, window, lambda slot: so_far(f"slot {slot:,} of {window.last:,}"))
    return asdict(trial)


def _row(found: Mapping[str, Any], sweep: CellExperiment, degree: int) -> dict[str, Any]:
    """Every metric of a point; NaN where no flow of a class started."""
    time, carried = slot_time(sweep), CellCounts(**found["carried"])
    row: dict[str, Any] = {
        "delivered": carried.delivered / (carried.slots * sweep.racks * degree) * time.duty_cycle,
        "utilisation": carried.utilisation,
        "raw_utilisation": carried.raw_utilisation,
        "backlog_cells": found["backlog"],
    }
    for name in CLASSES:
        times = CompletionTimes(**found["classes"][name])
        row |= {f"{name}_flows": times.flows, f"{name}_unfinished": times.unfinished}
        for statistic in ("mean", "p50", "p99"):
            slots = getattr(times, statistic)
            row[f"{name}_{statistic}_us"] = np.nan if slots is None else slots * time.slot_ns / 1e3
    return row


def _curves(samples: pd.DataFrame, first: str) -> pd.DataFrame:
    """Every metric by design and load over the seeds, and the first design's over it, seed by seed."""
    rows = []
    for metric in (*COMPLETION, *UTILISATION):
        counted = f"{metric.split('_')[0]}_unfinished" if metric in COMPLETION else None
        for load, of_load in samples.groupby("load"):
            by_seed = of_load.pivot(index="seed", columns="design", values=metric)
            for design in dict.fromkeys(of_load["design"]):
                values = by_seed[design]
                with np.errstate(divide="ignore"):  # a ratio with 0 has no mean and is no pair
                    mean, ratio = _interval(values), _interval(np.log(by_seed[first] / values))
                rows.append(
                    {"design": design, "load": load, "metric": metric}
                    | {"mean": mean.mean, "low": mean.low, "high": mean.high, "seeds": mean.pairs}
                    | {"least": values.min(), "largest": values.max(), "over": first, "pairs": ratio.pairs}
                    | {"unfinished": int(of_load[of_load["design"] == design][counted].sum()) if counted else 0}
                    | {"ratio": _exp(ratio.mean), "ratio_low": _exp(ratio.low), "ratio_high": _exp(ratio.high)}
                )
    return pd.DataFrame(rows)


def _exp(log: float | None) -> float:
    return np.nan if log is None else float(np.exp(log))


def _interval(values: pd.Series[float]) -> PairedDifference:
    return mean_interval(values[np.isfinite(values)].tolist())


def _ratio(found: Mapping[str, Any]) -> str:
    """The ratio with its interval, which needs two seeds."""
    if not np.isfinite(found["ratio"]):
        return "-"
    if not np.isfinite(found["ratio_low"]):
        return f"{found['ratio']:.3g}"
    return f"{found['ratio']:.3g} [{found['ratio_low']:.3g}, {found['ratio_high']:.3g}]"


def _title(metric: str) -> str:
    _, statistic, _ = metric.split("_")
    return statistic
