"""Circuits and their demand: experiments on schedules, and the stages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from foretail.configs.schema.fields import (
    FASTEST_BPS,
    LARGEST_DEGREE,
    LARGEST_TRUST,
    LONGEST_NS,
    SIZES,
    Experiment,
    experiment_of_size,
    part,
    require_distinct,
    setting,
)
from foretail.configs.schema.scenario import FlowSizes
from foretail.configs.schema.stage import Stage
from foretail.configs.schema.targets import CircuitEntries, EtalonSchedule
from foretail.configs.schema.tracking import Launcher, Tracking
from foretail.configs.schema.training import Split
from foretail.core.errors import ForetailError
from foretail.core.plugins import SCHEDULER_GROUP, offered

SCHEDULERS = ("vermilion", "round_robin", "mars")
"""Foretail's own; packages offer others."""

DESIGNS = ("vermilion", "optimum", "oblivious", "mars")
"""Foretail's own of `DesignExperiment`; the schedulers of packages are designs too."""


def require_scheduler(where: str, name: str, ours: tuple[str, ...] = SCHEDULERS) -> None:
    """Raise ForetailError unless a name is one of `ours`, or a scheduler that an installed package offers."""
    others = offered(SCHEDULER_GROUP, {*SCHEDULERS, *DESIGNS})
    if name not in ours and name not in others:
        raise ForetailError(f"{where} = {name} is unknown: choose from {', '.join((*ours, *others))}")


@dataclass
class ThroughputExperiment(Experiment):
    """Throughput of schedules, without the times of cells."""

    duty_cycle: float = setting(
        0.99, "share of a slot that carries data, beside figures without it", above=0, at_most=1
    )


@dataclass
class NoiseExperiment(ThroughputExperiment):
    """Schedules for wrong predictions: every matrix, noise and deviation is a point, with all samples and gammas."""

    experiment: str = setting(
        MISSING,
        "figure of the thesis: 9.5 and 9.6 for every gamma, 9.7 and 9.8 for a drawn k",
        one_of=("vermilion_fig9_5", "vermilion_fig9_6", "vermilion_fig9_7", "vermilion_fig9_8"),
    )
    nodes: int = setting(8, "n", at_least=2, at_most=64)
    matrices: list[str] = setting(MISSING, "true demand", one_of=("ring", "all_to_all", "random", "skew", "chessboard"))
    skew: float = setting(0.5, "skew: share of a permutation, the rest is a ring", at_least=0, at_most=1)
    noise: list[str] = setting(MISSING, "kinds of noise", one_of=("additive", "multiplicative"))
    deviations: list[float] = setting(MISSING, "standard deviations of the noise; largest entry 10", at_least=0)
    samples: int = setting(MISSING, "predictions per point, of seeds 1 to this", at_least=1, at_most=10_000)
    uniform_from: list[int] = setting(
        [],
        "k is drawn uniformly from this to each gamma; empty: gamma itself, for each",
        at_least=1,
        at_most=LARGEST_TRUST,
    )


@dataclass
class DesignExperiment(ThroughputExperiment):
    """Designs of periodic networks side by side: every matrix on every number of nodes with every seed is a point."""

    experiment: str = setting(
        MISSING,
        "figure of the thesis: 8.7 by matrix, 8.8 by k and nodes",
        one_of=("vermilion_fig8_7", "vermilion_fig8_8"),
    )
    nodes: list[int] = setting(MISSING, "n; k n is a multiple of the degree", at_least=2, at_most=1024)
    matrices: list[str] = setting(
        MISSING,
        "names from foretail.sim_bridge.circuits.throughput, or skew-A: a share A of a permutation, else uniform",
    )
    trusts: list[int] = setting(MISSING, "values of k, with l = 1", at_least=2, at_most=LARGEST_TRUST)
    designs: list[str] = setting(
        MISSING,
        "what is compared: vermilion; optimum, the best single-hop schedules of its period; oblivious, up to 64 nodes; "
        "mars; or the scheduler of a package",
    )
    seeds: list[int] = setting(MISSING, "of random matrices, and left-over circuits", at_least=1, at_most=2**31 - 1)

    def check(self, where: str) -> None:
        """Raise ForetailError on a design that nobody offers."""
        super().check(where)
        for name in self.designs:
            require_scheduler(f"{where}.designs", name, DESIGNS)


@dataclass
class CellDesign:
    """A schedule of circuits, and how cells go over it."""

    schedule: str = setting(
        MISSING, "vermilion, for the permutation; round_robin, every rack in turn; mars; or the scheduler of a package"
    )
    routing: str = setting(
        MISSING, "as in foretail.sim_bridge.circuits.cells.cell_fabric", one_of=("direct", "two_hop", "valiant")
    )
    k: int = setting(
        3, "vermilion: k, with l = 1; k times racks is a multiple of the degree", at_least=2, at_most=LARGEST_TRUST
    )
    hold_slots: int = setting(
        1, "slots that every matching stays; two_hop: a rack takes cells to relay up to this", at_least=1, at_most=2**20
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on a scheduler that nobody offers."""
        require_scheduler(f"{where}.schedule", self.schedule)


@dataclass
class CellExperiment(Experiment):
    """Flows over designs, cell by cell: every design under every load with every seed is a point."""

    experiment: str = setting(
        MISSING,
        "figure of the thesis: 8.5 completion times, 8.6 link utilisation, of the same points",
        one_of=("vermilion_fig8_5", "vermilion_fig8_6"),
    )
    racks: int = setting(MISSING, "n", at_least=3, at_most=1024)
    loads: list[float] = setting(MISSING, "offered, relative to the rate of a rack's uplinks", above=0, at_most=2)
    seeds: list[int] = setting(MISSING, "of permutations and flows", at_least=1, at_most=2**31 - 1)
    designs: dict[str, CellDesign] = setting(MISSING, "what is compared; the first is compared to the others")
    sizes: FlowSizes = part(FlowSizes, "flow sizes")
    uplink_bps: int = setting(25_000_000_000, "rate of an uplink", at_least=1, at_most=10**13)
    day_ns: int = setting(4_500, "time of a slot in which circuits are up: one cell", at_least=1, at_most=10**12)
    night_ns: int = setting(500, "time of a slot in which they are changed", at_least=0, at_most=10**12)
    warm_up_slots: int = setting(MISSING, "slots before the flows that are measured start", at_least=0, at_most=2**40)
    slots: int = setting(MISSING, "slots in which they start", at_least=1, at_most=2**40)
    drain_slots: int = setting(
        MISSING, "slots after that, under the same load, in which they can finish", at_least=0, at_most=2**40
    )


@dataclass
class TradeoffExperiment(Experiment):
    """Consistency against robustness: every matrix with every seed is a point, with all gammas and predictions."""

    experiment: str = setting(
        "vermilion_fig9_1", "figure of the thesis; 9.4 is its first panel", one_of=("vermilion_fig9_1",)
    )
    nodes: int = setting(8, "n", at_least=4, at_most=64)
    matrices: list[str] = setting(
        MISSING, "true demand, and wrong predictions of the others, named as in ``DesignExperiment``"
    )
    seeds: list[int] = setting(MISSING, "of random matrices and the search", at_least=1, at_most=2**31 - 1)
    tries: int = setting(40, "predictions that the search for the worst one tries", at_least=1, at_most=10**6)
    hulls: list[int] = setting([3, 5, 100], "gammas whose distributions are drawn in theory", at_least=3, at_most=1000)
    floors: list[float] = setting(
        [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5],
        "robustness for which the distribution of k is optimised",
        at_least=0,
        at_most=0.5,
    )


@dataclass
class ScheduleConfig(Stage):
    """``foretail schedule``: a periodic schedule of circuits for a demand matrix, and its throughput.

    With an experiment, settings of a single schedule are refused: see ``unused``.
    """

    demand: str = setting(MISSING, "CSV, NPY or Parquet file: row = source, in capacities of one uplink")
    degree: int = setting(MISSING, "uplinks of a node; k n is a multiple of it", at_least=1, at_most=LARGEST_DEGREE)
    scheduler: str = setting("vermilion", "what makes the schedule: vermilion, round_robin, mars, or one of a package")
    scheduler_settings: Any = setting(
        None, "settings of another scheduler than vermilion, as {NAME: VALUE}; the others keep their defaults"
    )
    k: int | None = setting(
        None,
        "vermilion: circuits per node and period, in n: the larger, the closer to the demand",
        at_least=1,
        at_most=LARGEST_TRUST,
    )
    l: int = setting(  # noqa: E741
        1,
        "vermilion: of these, circuits between every pair whatever the demand; k / l is the trust",
        at_least=1,
        at_most=LARGEST_TRUST,
    )
    seed: int = setting(1, "of the circuits that demand leaves over", at_least=0, at_most=2**32 - 1)
    diagonal: str = setting(
        "idle",
        "vermilion: circuits of a node to itself: idle, as the theorems count, or left over",
        one_of=("idle", "reuse"),
    )
    scale: bool = setting(False, "scale a demand beyond the hose model into it, instead of refusing it")
    multi_hop: str = setting(
        "auto", "compute the multi-hop throughput, a linear program; auto: up to 64 nodes", one_of=("auto", "yes", "no")
    )
    prediction: str | None = setting(
        None, "file of the matrix to schedule for; null: `demand`, on which throughput is always taken"
    )
    outputs: list[str] = setting(
        ["json"],
        "files: JSON, a C table, P4 entries of each rack, the Etalon emulator's string",
        one_of=("json", "c", "p4", "etalon"),
    )
    p4: CircuitEntries = part(CircuitEntries, "outputs=[p4]")
    etalon: EtalonSchedule = part(EtalonSchedule, "outputs=[etalon]")
    noise: dict[str, NoiseExperiment] = setting(
        {}, "experiment on noisy predictions, by size: full and small; empty = none"
    )
    designs: dict[str, DesignExperiment] = setting({}, "experiment on designs, by size: full and small; empty = none")
    tradeoff: dict[str, TradeoffExperiment] = setting({}, "experiment on trust, by size: full and small; empty = none")
    cells: dict[str, CellExperiment] = setting({}, "experiment on cells, by size: full and small; empty = none")
    size: str = setting("full", "which size of an experiment", one_of=SIZES)
    jobs: int = setting(2, "experiments: points at the same time", at_least=1, at_most=1024)
    launcher: Launcher = part(Launcher, "experiments: where points are measured")

    @property
    def experiments(self) -> dict[str, dict[str, Any]]:
        """The experiments that are given, by their setting: of each its sizes."""
        return {name: found for name in ("noise", "designs", "tradeoff", "cells") if (found := getattr(self, name))}

    @property
    def trust(self) -> int:
        """``k``; ForetailError when it is missing."""
        if self.k is None:
            raise ForetailError("the setting k is missing: give k=...")
        return self.k

    def check(self, where: str) -> None:
        """Raise ForetailError on several experiments, one without the wanted size, or a missing k."""
        if len(self.experiments) > 1:
            raise ForetailError(
                f"{' and '.join(self.experiments)} are experiments of their own: run one after the other"
            )
        for name, sizes in self.experiments.items():
            experiment_of_size(name, sizes, self.size)
        require_scheduler("scheduler", self.scheduler)
        if "k" not in self.unused():
            _ = self.trust
        self.launcher.require_points([self.experiments])

    def unused(self) -> Mapping[str, str]:
        """What this experiment, or this scheduler, does not read."""
        if not self.experiments:
            of_vermilion = self.scheduler == "vermilion"
            others = ("scheduler_settings",) if of_vermilion else ("k", "l", "diagonal")
            return dict.fromkeys(("jobs", "launcher"), "a single schedule") | dict.fromkeys(
                others, f"scheduler={self.scheduler}"
            )
        (name,) = self.experiments
        names = {"demand", "l", "seed", "scale", "multi_hop", "prediction", "outputs", "p4", "etalon"}
        names |= {"scheduler", "scheduler_settings"}
        names |= {"k", "diagonal"} if name in ("designs", "cells") else set()
        return dict.fromkeys(names, f"the experiment {name}")


@dataclass
class DemandConfig(Stage):
    """``foretail demand``: train demand predictors on runs, and score the schedules of what they predict on others."""

    demand_predictor: dict[str, dict[str, Any]] = setting(
        MISSING, "predictors to compare, by the name they have in the table; the last value is always beside them"
    )
    collectives: list[str] = setting(
        ["hybrid_parallel"],
        "generated demand: names from foretail.sim_bridge.circuits.demand.sequences; A+B swings between two and back",
    )
    nodes: int = setting(8, "collectives: n", at_least=2, at_most=1024)
    noise: float = setting(0.2, "collectives: standard deviation of an entry, relative", at_least=0, at_most=10)
    placed_at_random: bool = setting(True, "collectives: every run has an order of nodes and a first step of its own")
    mixture_period_steps: float = setting(12.0, "collectives: from A over B to A in A+B", at_least=2, at_most=10**9)
    job_seed: int = setting(1, "collectives: of a job's matrices, the same in all runs", at_least=0, at_most=2**32 - 1)
    datasets: list[str] = setting(
        [], "instead of collectives: ns-3 runs or imported packet logs of Etalon, split by their seeds"
    )
    interval_ns: int | None = setting(None, "datasets, logs: time of a step", at_least=1, at_most=LONGEST_NS)
    demand: str = setting(
        "offered",
        "datasets: what flows want to send, or data packets that reached the uplinks",
        one_of=("offered", "carried"),
    )
    logs: list[str] = setting(
        [], "instead: NPY, CSV, Parquet or TXT files of demand matrices, whose runs are numbered from 1 for the split"
    )
    uplink_bps: int | None = setting(
        None, "logs in bytes, and Etalon: rate of an uplink", at_least=1, at_most=FASTEST_BPS
    )
    steps: int | None = setting(
        None, "matrices of a run; null: 24 generated ones, else all that there are", at_least=3, at_most=10**6
    )
    warm_up: int = setting(6, "first step that is predicted and scored", at_least=1, at_most=10**6)
    degree: int = setting(4, "uplinks of a node; k n is a multiple of it", at_least=1, at_most=LARGEST_DEGREE)
    trusts: list[int] = setting(
        [2, 3, 5],
        "values of k, with l = 1, to choose from on the validation runs",
        at_least=1,
        at_most=LARGEST_TRUST,
    )
    routing: str = setting(
        "single_hop", "of the throughput that counts; multi_hop is slower", one_of=("single_hop", "multi_hop")
    )
    seed: int = setting(1, "of the circuits that demand leaves over", at_least=0, at_most=2**32 - 1)
    split: Split = part(Split, "seeds of the runs to train on, to choose the trust by, and to score")
    tracking: Tracking = part(Tracking, "MLflow")

    def check(self, where: str) -> None:
        """Raise ForetailError unless there is one source of demand, and predictors to score on it."""
        if self.split.name == "by_time":
            raise ForetailError("demand is split by run: use split=by_run or split=drawn")
        for name in ("demand_predictor", "trusts"):
            if not getattr(self, name):
                raise ForetailError(f"{name} is empty: give at least one")
        for name in self.demand_predictor:
            if not re.fullmatch(r"\w[\w.-]*", name):
                raise ForetailError(f"demand_predictor {name!r} names a file: use letters, digits and _.- only")
        require_distinct("trusts", self.trusts, "name every k once")
        require_distinct("collectives", self.collectives, "name every one once")
        if self.steps is not None and self.warm_up >= self.steps:
            raise ForetailError(f"warm_up = {self.warm_up} leaves none of steps = {self.steps} to score: lower it")
        if self.datasets and self.logs:
            raise ForetailError("datasets and logs are both given: score one after the other")
        if self.datasets and self.interval_ns is None:
            raise ForetailError("datasets are cut into steps: give interval_ns=..., the time of one")
        if self.datasets or self.logs:
            return
        for name in ("interval_ns", "uplink_bps"):
            if getattr(self, name) is not None:
                raise ForetailError(f"{name} is for datasets=[...] and logs=[...], and none is given: leave it out")
        if not self.collectives:
            raise ForetailError(
                "there are no sequences of demand: give collectives=[...], datasets=[...] or logs=[...]"
            )

    def unused(self) -> Mapping[str, str]:
        """What generated demand alone has, where demand is given."""
        generated = ("collectives", "nodes", "noise", "placed_at_random", "mixture_period_steps", "job_seed")
        given = "datasets" if self.datasets else "logs" if self.logs else None
        return {} if given is None else dict.fromkeys(generated, f"{given}=[...]")
