"""Systems of the literature, and published changes that the native network measures.

Networks are smaller than those of the sources: size medium has 32 servers and a second of traffic at most.

Reverie is compared over loads alone, with 500 ms of traffic; ``foretail run reverie_a`` has 100 ms, and bursts too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.configs.schema.sweep import Claim, SweepSettings
from foretail.pipelines.data.simulation import driver_config, native_simulator, scratch_run
from foretail.pipelines.experiment.catalog import listed, settings_of
from foretail.pipelines.experiment.declaration import Run
from foretail.pipelines.experiment.sweep import MeasuredRun, Sweep, SweepCase, SweepExperiment, measured, paired
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.packets.cost import slowdowns
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
    #: Values by quantity, for a size of `seeds` and a seed. A quantity that it leaves out in a size was not run; one
    #: that is not among `published` is a figure of ours alone.
    measure: Callable[[str, int, SoFar], Mapping[str, float]]
    #: by size, small and medium; full where the network of the source can be had; one seed where nothing is drawn
    seeds: Mapping[str, tuple[int, ...]]


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
    with scratch_run(driver_config(composed.scenario, policy, seed, trace=False), native_simulator(), so_far) as run:
        yield run


def completion_times_us(overrides: Sequence[str], seed: int, so_far: SoFar) -> NDArray[np.float64]:
    """Return the completion time of every flow of a run in µs, with what is unfinished at the end as old as it is.

    `overrides` are those of ``foretail evaluate``; the buffer is shared completely, so that little is lost.
    """
    with native_run(["policy=cs", *overrides], seed, so_far) as run:
        flows, end_ns = run.flows(), run.summary["end_ns"]
    ends = np.where(flows["fct_ns"] >= 0, flows["fct_ns"], end_ns - flows["start_ns"])
    return np.asarray(ends / 1000, dtype=np.float64)


SEEDS = {"small": (101, 102), "medium": tuple(range(101, 109))}


def short_p999_us(one: MeasuredRun) -> float | None:
    """The 99.9th percentile of completion times of background flows below 10 KB; None without any."""
    return _p999_us(one, 0, 10_000)


def medium_p999_us(one: MeasuredRun) -> float | None:
    """The same of background flows of 100 KB to 1 MB."""
    return _p999_us(one, 100_000, 1_000_000)


def _p999_us(one: MeasuredRun, least_bytes: int, below_bytes: int) -> float | None:
    flows = one.run.flows()
    of_size = (flows["query"] < 0) & (flows["size_bytes"] >= least_bytes) & (flows["size_bytes"] < below_bytes)
    times_us = slowdowns(flows, one.run.summary["end_ns"]) * flows["ideal_fct_ns"] / 1000
    return _percentile(times_us[of_size], 99.9)


def round_trip_us(one: MeasuredRun) -> float | None:
    """The mean round trip through one switch, twice two links and the longest queue wherever a sample sees one."""
    round_trips = _round_trips_us(one)
    return float(round_trips.mean()) if len(round_trips) else None


def round_trip_p99_us(one: MeasuredRun) -> float | None:
    """Its 99th percentile."""
    return _percentile(_round_trips_us(one), 99)


def _round_trips_us(one: MeasuredRun) -> NDArray[np.float64]:
    topology, longest = one.document["topology"], one.run.occupancy()["longest_bytes"]
    queues_us = 8e6 * longest[longest > 0] / topology["server_link_bps"]
    return np.asarray(4 * topology["link_delay_ns"] / 1000 + queues_us, np.float64)


def _percentile(values: NDArray[np.float64], percent: float) -> float | None:
    return float(np.percentile(values, percent)) if len(values) else None


METRICS = {
    **LOSSLESS_METRICS,
    "short_p999_us": short_p999_us,
    "medium_p999_us": medium_p999_us,
    "round_trip_us": round_trip_us,
    "round_trip_p99_us": round_trip_p99_us,
}
COMPARISONS = SweepExperiment(METRICS)


@dataclass(frozen=True)
class Changed:
    """Claims that are measured again with one thing changed, as figures of ours."""

    words: str  #: behind those of a claim
    claims: str  #: pattern of the words of the claims
    overrides: tuple[str, ...] = ()

    def of(self, claim: Claim) -> Claim:
        """The same claim about what is changed."""
        return replace(claim, words=f"{claim.words}, {self.words}")


@dataclass(frozen=True)
class SweepClaims:
    """Claims of a sweep that give a percentage."""

    experiment: str
    where: tuple[str, ...] = ()  #: those of these conditions alone
    variants: frozenset[str] = frozenset()  #: those about these variants alone
    medium: tuple[str, ...] = ()  #: further overrides of size medium
    changed: tuple[Changed, ...] = ()

    @property
    def claims(self) -> list[Claim]:
        """Claims that are measured."""
        every = [Claim(**one) for one in listed(self.experiment).document["claims"]]
        return [
            one
            for one in every
            if not isinstance(one.says, str)
            and (not self.where or one.where in self.where)
            and (not self.variants or {one.of, one.against} <= self.variants)
        ]

    def measure(self, size: str, seed: int, so_far: SoFar) -> dict[str, float]:
        """The changes in % on a seed, over the conditions that the size has."""
        settings, claims = settings_of(self.experiment, size, SweepSettings), self.claims
        settings = replace(settings, shared=[*settings.shared, *(self.medium if size == "medium" else ())])
        measured_changes = _changes(settings, claims, seed, so_far)
        for one in self.changed if size != "full" else ():
            again = [one.of(claim) for claim in claims if fnmatchcase(claim.words, one.claims)]
            last = replace(settings, ways={"": [*one.overrides]})
            measured_changes |= _changes(last, again, seed, so_far)
        return measured_changes

    def system(self, name: str, source: str, where: str, seeds: int = 8, full_seeds: int = 0) -> System:
        """The claims, all at one place of a source, as a system of the table; `full_seeds` are at their size."""
        figures = {claim.words: float(claim.says) for claim in self.claims}
        by_size = {size: of_size[:seeds] for size, of_size in SEEDS.items()}
        if full_seeds:
            by_size["full"] = SEEDS["medium"][:full_seeds]
        return System(name, source, published(where, figures, change=True), self.measure, by_size)


def _changes(settings: SweepSettings, claims: Sequence[Claim], seed: int, so_far: SoFar) -> dict[str, float]:
    under = {claim.words: [name for name in settings.conditions if name.startswith(claim.where)] for claim in claims}
    cases = dict.fromkeys(
        SweepCase(condition, variant, "", seed)
        for claim in claims
        for condition in under[claim.words]
        for variant in (claim.of, claim.against)
    )
    conditions = {case.condition: settings.conditions[case.condition] for case in cases}
    variants = {case.variant: settings.variants[case.variant] for case in cases}
    sweep = Sweep.of(replace(settings, conditions=conditions, variants=variants), METRICS)
    rows = pd.DataFrame([{**asdict(case), **measured(case, so_far, sweep)} for case in cases])
    changes = {
        claim.words: paired(rows, under[claim.words], claim.metric, (claim.of, claim.against)).mean
        for claim in claims
        if under[claim.words]
    }
    return {words: change for words, change in changes.items() if change is not None}


ABM = SweepClaims("abm").system("ABM", "Addanki's thesis", "section 4.4")
POWERTCP = SweepClaims(
    "powertcp",
    changed=(
        # 0.03 to 0.875 were tried
        Changed("alpha of 0.03", "short*TIMELY", ("scenario.transport.timely.gradient_weight=0.03",)),
        # 1 to 100 flows, and 0 and 5 increases, were tried
        Changed(
            "HPCC that always scales",
            "*HPCC",
            ("scenario.transport.hpcc.expected_flows=10", "scenario.transport.hpcc.most_increases=0"),
        ),
    ),
).system("PowerTCP", "Addanki's thesis", "section 2.4", full_seeds=3)
TIMELY = SweepClaims("timely").system("TIMELY", "Mittal's thesis", "Table 3.1")
REVERIE = SweepClaims(
    "reverie_a", ("load",), frozenset(["reverie", "sonic", "sonic_abm"]), ("scenario.traffic_ns=500_000_000",)
).system("Reverie", "Addanki's thesis", "section 5.3", full_seeds=5)
IRN = SweepClaims(
    "irn",
    variants=frozenset(["irn", "roce_pfc", "irn_pfc"]),
    medium=("scenario.traffic_ns=100_000_000",),
    # 0.1 and 0.875 were tried
    changed=(Changed("alpha of 0.1", "timely: p99*", ("scenario.transport.timely.gradient_weight=0.1",)),),
).system("IRN", "Mittal's thesis", "Table 4.2", seeds=3)


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
    longer = [replace(one, words=f"{one.words}, bursts of 75 %") for one in FIGURES if one.words == AGAINST_ABM]
    figures: dict[str, float] = {}
    with TemporaryDirectory() as folder:
        settings, run = _settings(size, seed, folder), Run(Path(folder), Store(folder), None)
        again = replace(settings, policies=["lqd", "abm"], shared=[*settings.shared, *LONGER_BURSTS])
        for given, claims in ((settings, FIGURES), (again, longer)):
            conditions = find(given, run).conditions
            changes = {claim.words: judge(claim, conditions, MODEL)[0] for claim in claims}
            figures |= {words: one.mean for words, one in changes.items() if one is not None and one.mean is not None}
    return figures


AGAINST_ABM = "incast, Credence against ABM"
LONGER_BURSTS = ["scenario.incast.burst_fraction=0.75"]  # 0.5, 0.75 and 1 were tried


CREDENCE = System(
    "Credence",
    "Credence (NSDI'24)",
    tuple(Published(claim.words, float(claim.says), "section 4.2, Figure 6", change=True) for claim in FIGURES),
    _measure,
    {size: seeds[:5] for size, seeds in SEEDS.items()},
)
