"""Published changes from one policy or transport to another, each measured in the native network.

Networks are smaller than those of the sources: size medium has 32 servers and tens of milliseconds of traffic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from foretail.pipelines.comparison.policy_runs import policy_run
from foretail.pipelines.runs.points import SoFar
from foretail.sim_bridge.packets.cost import kinds_of, slowdowns, slowdowns_by_kind
from foretail.sim_bridge.packets.simulation import PacketRun
from foretail.studies.systems.native_run import native_run
from foretail.studies.systems.system import Published, System

Overrides = tuple[str, ...]

SEEDS = {"small": (101, 102), "medium": tuple(range(101, 109))}


@dataclass(frozen=True)
class Change:
    """A published change in %, as a mean over conditions."""

    published: Published
    figure: str  #: a name of `figures_of`
    variant: str
    baseline: str
    conditions: Sequence[str]


@dataclass(frozen=True)
class Comparison:
    """Changes between variants of one network."""

    shared: Mapping[str, Overrides]  #: by size
    conditions: Mapping[str, Overrides]
    variants: Mapping[str, Overrides]
    changes: Sequence[Change]
    only: Mapping[str, frozenset[str]] = field(default_factory=dict)  #: conditions of a size; all where it has none

    def measure(self, size: str, seed: int, so_far: SoFar) -> dict[str, float]:
        """Simulate what the changes need once, and return them; those to a figure of 0 are left out."""
        figures: dict[tuple[str, str], dict[str, float]] = {}
        ran = self.only.get(size, frozenset(self.conditions))
        measured = {}
        for change in self.changes:
            percents = []
            for condition in (one for one in change.conditions if one in ran):
                for variant in (change.variant, change.baseline):
                    if (condition, variant) not in figures:
                        overrides = (*self.shared[size], *self.conditions[condition], *self.variants[variant])
                        with native_run(overrides, seed, so_far) as run:
                            figures[condition, variant] = figures_of(run, seed)
                value, other = (figures[condition, one][change.figure] for one in (change.variant, change.baseline))
                if value == other or other > 0:
                    percents.append(0.0 if value == other else 100 * (value / other - 1))
            if percents:
                measured[change.published.quantity] = float(np.mean(percents))
        return measured

    def system(self, name: str, source: str) -> System:
        """The comparison as a system of the table."""
        published = tuple(change.published for change in self.changes)
        return System(name, source, published, self.measure, SEEDS)


def figures_of(run: PacketRun, seed: int) -> dict[str, float]:
    """Figures of a run in which lower is better: slowdowns, times, what is in buffers, pauses.

    A round trip is that of one switch: twice two links, and the longest queue wherever a sample sees one.
    """
    flows, end_ns, document = run.flows(), run.summary["end_ns"], run.settings()
    slowdown = slowdowns(flows, end_ns)
    fct_us = slowdown * flows["ideal_fct_ns"] / 1000
    short = slowdown[kinds_of(flows)["short"]]
    medium = slowdown[(flows["query"] < 0) & (flows["size_bytes"] >= 100_000) & (flows["size_bytes"] < 1_000_000)]
    queries = slowdowns_by_kind(flows, end_ns, document)["query"]
    occupancy = run.occupancy()
    longest = occupancy["longest_bytes"][occupancy["longest_bytes"] > 0]
    topology = document["topology"]
    round_trip_us = 4 * topology["link_delay_ns"] / 1000 + 8e6 * longest / topology["server_link_bps"]
    figures: dict[str, float | None] = {
        **policy_run("", seed, run).metrics(),
        "slowdown": float(slowdown.mean()),
        "fct_us": float(fct_us.mean()),
        "fct_p99_us": float(np.percentile(fct_us, 99)),
        "incast": float(queries.mean()) if len(queries) else None,
        "short_p99.9": float(np.percentile(short, 99.9)) if len(short) else None,
        "medium_p99.9": float(np.percentile(medium, 99.9)) if len(medium) else None,
        "round_trip_us": float(round_trip_us.mean()) if len(longest) else None,
        "round_trip_p99_us": float(np.percentile(round_trip_us, 99)) if len(longest) else None,
    }
    return {name: value for name, value in figures.items() if value is not None}


def _change(
    quantity: str, percent: float, source: str, figure: str, variant: str, baseline: str, conditions: Sequence[str]
) -> Change:
    return Change(Published(quantity, percent, source, change=True), figure, variant, baseline, conditions)


LEAF_SPINE = (
    "scenario=leafspine_small",
    "scenario.incast.queries_per_second_per_server=60",
    "scenario.traffic_ns=60_000_000",
)
TINY = ("scenario=tiny",)
LOADS: dict[str, Overrides] = {f"load {load}": (f"scenario.background.load={load / 100}",) for load in (20, 40, 60, 80)}

_abm = partial(_change, source="section 4.4", variant="abm")
ABM = Comparison(
    shared={
        "medium": (*LEAF_SPINE, "scenario.transport.name=cubic", "scenario.transport.mark_bytes=0"),
        "small": (*TINY, "scenario.transport.name=cubic", "scenario.transport.mark_bytes=0"),
    },
    conditions={name: (*load, "scenario.incast.burst_fraction=0.3") for name, load in LOADS.items()}
    | {"load 40, burst 12.5": (*LOADS["load 40"], "scenario.incast.burst_fraction=0.125")},
    variants={
        "abm": ("policy=abm", "policy.abm.alpha=0.5"),
        "dt": ("policy=dt", "policy.dt.alpha=0.5"),
        "cs": ("policy=cs",),
    },
    changes=(
        *(
            _abm(
                f"incast p99 at {load} % load, ABM against DT",
                percent,
                figure="slowdown.incast.p99",
                baseline="dt",
                conditions=[f"load {load}"],
            )
            for load, percent in ((20, -12.6), (40, -90.12), (80, -94.0))
        ),
        *(
            _abm(
                f"incast p99, bursts of 12.5 %, ABM against {words}",
                percent,
                figure="slowdown.incast.p99",
                baseline=baseline,
                conditions=["load 40, burst 12.5"],
            )
            for words, baseline, percent in (("DT", "dt", -39.0), ("Complete Sharing", "cs", -54.0))
        ),
        *(
            _abm(
                f"buffer p99, ABM against {words}",
                percent,
                figure="occupancy_percent.p99",
                baseline=baseline,
                conditions=list(LOADS),
            )
            for words, baseline, percent in (("DT", "dt", -54.2), ("Complete Sharing", "cs", -68.9))
        ),
    ),
    only={"small": frozenset(["load 40", "load 40, burst 12.5"])},
).system("ABM", "Addanki's thesis")

_powertcp = partial(_change, source="section 2.4", variant="powertcp")
POWERTCP = Comparison(
    shared={
        "medium": (
            "scenario=leafspine_small",
            "scenario.incast.queries_per_second_per_server=0",
            "scenario.traffic_ns=60_000_000",
            "policy=dt",
            "policy.dt.alpha=1",
        ),
        "small": (*TINY, "scenario.incast.queries_per_second_per_server=0", "policy=dt", "policy.dt.alpha=1"),
    },
    conditions=LOADS,
    variants={
        "powertcp": ("scenario.transport.name=powertcp",),
        "theta": ("scenario.transport.name=theta_powertcp",),
        "timely": ("scenario.transport.name=timely",),
        "dcqcn": (
            "scenario.transport.name=roce",
            "scenario.transport.rdma.control=dcqcn",
            "scenario.transport.mark_bytes=40_000",
            "scenario.transport.mark_full_bytes=160_000",
            "scenario.transport.mark_probability=0.2",
            "scenario.queues.lossless=[0]",
        ),
    },
    changes=(
        *(
            _powertcp(
                f"short p99.9 at {load} % load, PowerTCP against {words}",
                percent,
                figure="short_p99.9",
                baseline=baseline,
                conditions=[f"load {load}"],
            )
            for load, percent in ((20, -80.0), (60, -74.0))
            for words, baseline in (("TIMELY", "timely"), ("DCQCN", "dcqcn"))
        ),
        *(
            _powertcp(
                f"medium p99.9 at 20 % load, PowerTCP against {words}",
                percent,
                figure="medium_p99.9",
                baseline=baseline,
                conditions=["load 20"],
            )
            for words, baseline, percent in (("TIMELY", "timely", -62.0), ("DCQCN", "dcqcn", -50.0))
        ),
        _change(
            "short p99.9 at 60 % load, theta-PowerTCP against TIMELY",
            -82.0,
            "section 2.4",
            "short_p99.9",
            "theta",
            "timely",
            ["load 60"],
        ),
    ),
    only={"small": frozenset(["load 60"])},
).system("PowerTCP", "Addanki's thesis")

_timely = partial(_change, source="Table 3.1", variant="timely", baseline="dctcp", conditions=["ten to one"])
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
    changes=(
        _timely("mean round trip of an incast, TIMELY against DCTCP", -89.8, figure="round_trip_us"),
        _timely("p99 round trip of an incast, TIMELY against DCTCP", -92.2, figure="round_trip_p99_us"),
    ),
).system("TIMELY", "Mittal's thesis")
