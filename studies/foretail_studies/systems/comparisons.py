"""Systems of the literature, and published changes that the native network measures.

Published changes from one policy or transport to another, each measured in the native network.

Networks are smaller than those of the sources: size medium has 32 servers and tens of milliseconds of traffic.

Reverie and IRN: claims of the experiments on lossless traffic, in their networks.

Reverie is compared over loads alone, with 50 ms of traffic; ``foretail run reverie_a`` has bursts and 100 ms too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.configs.schema.sweep import Claim, SweepSettings
from foretail.pipelines.comparison.policy_runs import policy_run
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.data.simulation import Native, scratch_run
from foretail.pipelines.experiment.catalog import listed, settings_of
from foretail.pipelines.experiment.declaration import Run
from foretail.pipelines.experiment.sweep import Sweep, SweepCase, measured
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.packets.cost import kinds_of, slowdowns
from foretail.sim_bridge.packets.simulation import PacketRun
from foretail_studies.flows.experiment import CLAIMS, FlowSettings, find, judge
from foretail_studies.networks.comparison import LOSSLESS_METRICS


@dataclass(frozen=True)
class Published:
    """A figure that a source prints."""

    quantity: str  #: what it is, with its unit
    value: float  #: as printed
    source: str  #: where it is printed, such as "Table 2.1"
    change: bool = False  #: whether it is a change in %, whose sign matters; otherwise a number above 0


def published(source: str, values: Mapping[str, float], *, change: bool = False) -> tuple[Published, ...]:
    """Return the figures that one place of a source prints, by quantity."""
    return tuple(Published(quantity, value, source, change) for quantity, value in values.items())


@dataclass(frozen=True)
class System:
    """A system of the literature."""

    name: str  #: as its authors write it
    source: str  #: the paper or thesis
    published: tuple[Published, ...]
    #: Values by quantity, for a size ("small" or "medium") and a seed. A quantity that it leaves out in a size was not
    #: run; one that is not among `published` is a figure of ours alone.
    measure: Callable[[str, int, SoFar], Mapping[str, float]]
    seeds: Mapping[str, tuple[int, ...]]  #: by size; one seed where nothing is drawn


ONCE = {"small": (1,), "medium": (1,)}
"""Seeds of a system whose figures are computed."""


def change_percent(of: float, against: float) -> float:
    """Return by how much a value is more than another, in %; below 0 it is less."""
    return 100 * (of / against - 1)


@contextmanager
def native_run(overrides: Sequence[str], seed: int, so_far: SoFar) -> Iterator[PacketRun]:
    """Simulate with overrides of ``foretail evaluate`` that choose one policy; the run is gone when the block ends."""
    composed = compose_settings(EvaluateConfig, ["model=any", "baselines=[]", *overrides], "a system's network")
    ((_, policy),) = composed.policy.items()
    with scratch_run(driver_config(composed.scenario, policy, seed, trace=False), Native(), so_far) as run:
        yield run


def completion_times_us(overrides: Sequence[str], seed: int, so_far: SoFar) -> NDArray[np.float64]:
    """Return the completion time of every flow of a run in µs, with what is unfinished at the end as old as it is.

    `overrides` are those of ``foretail evaluate``; the buffer is shared completely, so that little is lost.
    """
    with native_run(["policy=cs", *overrides], seed, so_far) as run:
        flows, end_ns = run.flows(), run.summary["end_ns"]
    ends = np.where(flows["fct_ns"] >= 0, flows["fct_ns"], end_ns - flows["start_ns"])
    return np.asarray(ends / 1000, dtype=np.float64)


Overrides = tuple[str, ...]

SEEDS = {"small": (101, 102), "medium": tuple(range(101, 109))}


def changes(
    claims: Iterable[Claim], conditions: Iterable[str], figures: Callable[[str, str], Mapping[str, float]]
) -> dict[str, float]:
    """Return the change in % that each claim is about, as a mean over its conditions.

    `figures` returns those of a run under a condition with a variant, and is asked once about each. A condition does
    not count if a figure is NaN or that of the baseline is 0, and a claim for which none counts is left out.
    """
    of = cache(figures)
    measured = {}
    for claim in claims:
        percents = []
        for condition in conditions:
            if condition.startswith(claim.where):
                value, other = (of(condition, one)[claim.metric] for one in (claim.of, claim.against))
                if value == other or other > 0:
                    percents.append(0.0 if value == other else change_percent(value, other))
        if percents:
            measured[claim.words] = float(np.mean(percents))
    return measured


def system_of(
    name: str, source: str, where: str, claims: Sequence[Claim], measure: Callable[[str, int, SoFar], dict[str, float]]
) -> System:
    """Return claims that all stand at one place of a source as a system of the table."""
    figures = {claim.words: float(claim.says) for claim in claims}
    return System(name, source, published(where, figures, change=True), measure, SEEDS)


@dataclass(frozen=True)
class Comparison:
    """Claims about variants of one network."""

    shared: Mapping[str, Overrides]  #: by size
    conditions: Mapping[str, Overrides]
    variants: Mapping[str, Overrides]
    claims: Sequence[Claim]

    def measure(self, size: str, seed: int, so_far: SoFar) -> dict[str, float]:
        """Simulate what the claims need once, and return their changes."""

        def figures(condition: str, variant: str) -> dict[str, float]:
            overrides = (*self.shared[size], *self.conditions[condition], *self.variants[variant])
            with native_run(overrides, seed, so_far) as run:
                return figures_of(run, seed)

        return changes(self.claims, self.conditions, figures)

    def system(self, name: str, source: str, where: str) -> System:
        """The comparison as a system of the table."""
        return system_of(name, source, where, self.claims, self.measure)


def figures_of(run: PacketRun, seed: int) -> dict[str, float]:
    """Figures of a run in which lower is better: slowdowns, round trips, what is in buffers.

    A round trip is that of one switch: twice two links, and the longest queue wherever a sample sees one. A figure of
    no flow or sample is NaN.
    """
    flows, topology, occupancy = run.flows(), run.settings()["topology"], run.occupancy()
    slowdown = slowdowns(flows, run.summary["end_ns"])
    of_medium = (flows["query"] < 0) & (flows["size_bytes"] >= 100_000) & (flows["size_bytes"] < 1_000_000)
    longest = occupancy["longest_bytes"][occupancy["longest_bytes"] > 0]
    round_trip_us = 4 * topology["link_delay_ns"] / 1000 + 8e6 * longest / topology["server_link_bps"]
    figures = {
        **policy_run("", seed, run).metrics(),
        "short_p99.9": _percentile(slowdown[kinds_of(flows)["short"]], 99.9),
        "medium_p99.9": _percentile(slowdown[of_medium], 99.9),
        "round_trip_us": float(round_trip_us.mean()) if len(longest) else np.nan,
        "round_trip_p99_us": _percentile(round_trip_us, 99),
    }
    return {name: np.nan if value is None else value for name, value in figures.items()}


def _percentile(values: NDArray[np.float64], percent: float) -> float:
    return float(np.percentile(values, percent)) if len(values) else np.nan


LEAF_SPINE = ("scenario=leafspine_small", "scenario.traffic_ns=60_000_000")
TINY = ("scenario=tiny",)
LOADS: dict[str, Overrides] = {f"load {load}": (f"scenario.background.load={load / 100}",) for load in (20, 40, 60, 80)}
BURST = "bursts of 12.5 %"
CUBIC = ("scenario.transport.name=cubic", "scenario.transport.mark_bytes=0")
WITHOUT_QUERIES = ("scenario.incast.queries_per_second_per_server=0", "policy=dt", "policy.dt.alpha=1")


def _abm(words: str, conditions: str, metric: str, baseline: str, percent: float) -> Claim:
    against = {"dt": "DT", "cs": "Complete Sharing"}[baseline]
    return Claim(f"{words}, ABM against {against}", conditions, metric, "abm", baseline, percent)


ABM = Comparison(
    shared={
        "medium": (*LEAF_SPINE, "scenario.incast.queries_per_second_per_server=60", *CUBIC),
        "small": (*TINY, *CUBIC),
    },
    conditions={name: (*load, "scenario.incast.burst_fraction=0.3") for name, load in LOADS.items()}
    | {BURST: (*LOADS["load 40"], "scenario.incast.burst_fraction=0.125")},
    variants={
        "abm": ("policy=abm", "policy.abm.alpha=0.5"),
        "dt": ("policy=dt", "policy.dt.alpha=0.5"),
        "cs": ("policy=cs",),
    },
    claims=(
        _abm("incast p99 at 20 % load", "load 20", "slowdown.incast.p99", "dt", -12.6),
        _abm("incast p99 at 40 % load", "load 40", "slowdown.incast.p99", "dt", -90.12),
        _abm("incast p99 at 80 % load", "load 80", "slowdown.incast.p99", "dt", -94.0),
        _abm("incast p99, bursts of 12.5 %", BURST, "slowdown.incast.p99", "dt", -39.0),
        _abm("incast p99, bursts of 12.5 %", BURST, "slowdown.incast.p99", "cs", -54.0),
        _abm("buffer p99", "load", "occupancy_percent.p99", "dt", -54.2),
        _abm("buffer p99", "load", "occupancy_percent.p99", "cs", -68.9),
    ),
).system("ABM", "Addanki's thesis", "section 4.4")


def _powertcp(kind: str, load: int, baseline: str, percent: float, variant: str = "powertcp") -> Claim:
    names = {"powertcp": "PowerTCP", "theta": "theta-PowerTCP", "timely": "TIMELY", "dcqcn": "DCQCN"}
    words = f"{kind} p99.9 at {load} % load, {names[variant]} against {names[baseline]}"
    return Claim(words, f"load {load}", f"{kind}_p99.9", variant, baseline, percent)


POWERTCP = Comparison(
    shared={
        "medium": (*LEAF_SPINE, *WITHOUT_QUERIES),
        "small": (*TINY, "scenario.traffic_ns=60_000_000", *WITHOUT_QUERIES),
    },
    conditions=LOADS,
    variants={
        "powertcp": ("scenario.transport.name=powertcp",),
        "theta": ("scenario.transport.name=theta_powertcp",),
        "timely": ("scenario.transport.name=timely",),
        "dcqcn": (
            "scenario.transport={name: roce, mark_bytes: 40_000, mark_full_bytes: 160_000, mark_probability: 0.2}",
            "scenario.transport.rdma.control=dcqcn",
            "scenario.queues.lossless=[0]",
        ),
    },
    claims=(
        _powertcp("short", 20, "timely", -80.0),
        _powertcp("short", 20, "dcqcn", -80.0),
        _powertcp("short", 60, "timely", -74.0),
        _powertcp("short", 60, "dcqcn", -74.0),
        _powertcp("medium", 20, "timely", -62.0),
        _powertcp("medium", 20, "dcqcn", -50.0),
        _powertcp("short", 60, "timely", -82.0, "theta"),
    ),
).system("PowerTCP", "Addanki's thesis", "section 2.4")

_INCAST = "of an incast, TIMELY against DCTCP"
TIMELY = Comparison(
    shared={
        "medium": ("scenario.incast.queries_per_second_per_server=5", "scenario.traffic_ns=100_000_000"),
        "small": ("scenario.incast.queries_per_second_per_server=100", "scenario.traffic_ns=4_000_000"),
    },
    conditions={
        "ten to one": (
            "scenario=star",
            "scenario.topology.servers_per_leaf=11",
            "scenario.background.load=0",
            "scenario.incast.fan_in=10",
            "scenario.incast.burst_fraction=20",
            "policy=cs",
        )
    },
    variants={
        "timely": ("scenario.transport.name=timely", "scenario.transport.mark_bytes=0"),
        "dctcp": ("scenario.transport.mark_bytes=80_000", "scenario.transport.slow_start=true"),
    },
    claims=(
        Claim(f"mean round trip {_INCAST}", "", "round_trip_us", "timely", "dctcp", -89.8),
        Claim(f"p99 round trip {_INCAST}", "", "round_trip_p99_us", "timely", "dctcp", -92.2),
    ),
).system("TIMELY", "Mittal's thesis", "Table 3.1")


@dataclass(frozen=True)
class LosslessClaims:
    """Claims of an experiment that give a percentage."""

    experiment: str
    conditions: tuple[str, ...]  #: how the names of conditions begin
    variants: frozenset[str]  #: that are compared
    medium: tuple[str, ...] = ()  #: further overrides of size medium

    def settings(self, size: str) -> SweepSettings:
        """The settings of a size, for these conditions and variants alone."""
        settings = settings_of(self.experiment, size, SweepSettings)
        return replace(
            settings,
            shared=[*settings.shared, *(self.medium if size == "medium" else ())],
            conditions={name: one for name, one in settings.conditions.items() if name.startswith(self.conditions)},
            variants={name: one for name, one in settings.variants.items() if name in self.variants},
        )

    @property
    def claims(self) -> list[Claim]:
        """Those about these conditions and variants that give a number."""
        every = [Claim(**one) for one in listed(self.experiment).document["claims"]]
        return [
            one
            for one in every
            if not isinstance(one.says, str) and one.where in self.conditions and {one.of, one.against} <= self.variants
        ]

    def measure(self, size: str, seed: int, so_far: SoFar) -> dict[str, float]:
        """The changes in % on a seed, over the conditions that the size has."""
        settings = self.settings(size)
        sweep = Sweep.of(settings, LOSSLESS_METRICS)

        def figures(condition: str, variant: str) -> dict[str, float]:
            found = measured(SweepCase(condition, variant, "", seed), so_far, sweep)
            return {name: np.nan if value is None else value for name, value in found.items()}

        return changes(self.claims, settings.conditions, figures)

    def system(self, name: str, source: str, where: str) -> System:
        """The claims as a system of the table."""
        return system_of(name, source, where, self.claims, self.measure)


REVERIE = LosslessClaims(
    "reverie_a", ("load",), frozenset(["reverie", "sonic", "sonic_abm"]), ("scenario.traffic_ns=50_000_000",)
).system("Reverie", "Addanki's thesis", "section 5.3")
IRN = LosslessClaims("irn", ("none", "timely", "dcqcn"), frozenset(["irn", "roce_pfc", "irn_pfc"])).system(
    "IRN", "Mittal's thesis", "Table 4.2"
)


EXPERIMENT, MODEL = "credence_fig6", "paper"
POLICIES = ["lqd", "dt", "abm"]
FIGURES = [claim for claim in CLAIMS[EXPERIMENT] if not isinstance(claim.says, str)]


def _settings(size: str, seed: int, folder: str) -> FlowSettings:
    settings = settings_of(EXPERIMENT, size, FlowSettings)
    models = {MODEL: settings.models[MODEL]}
    tracking = replace(settings.tracking, enabled=False)
    return replace(
        settings, seeds=[seed], policies=POLICIES, models=models, jobs=1, store_dir=folder, tracking=tracking
    )


def _measure(size: str, seed: int, so_far: SoFar) -> dict[str, float]:
    with TemporaryDirectory() as folder:
        found = find(_settings(size, seed, folder), Run(Path(folder), Store(folder), None))
    changes = {claim.words: judge(claim, found.conditions, MODEL)[0] for claim in FIGURES}
    return {words: change.mean for words, change in changes.items() if change is not None and change.mean is not None}


CREDENCE = System(
    "Credence",
    "Credence (NSDI'24)",
    tuple(Published(claim.words, float(claim.says), "section 4.2, Figure 6", change=True) for claim in FIGURES),
    _measure,
    {size: seeds[:5] for size, seeds in SEEDS.items()},
)
