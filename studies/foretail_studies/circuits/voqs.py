"""Use of circuits by long flows, in the emulator: Etalon's experiments, and VOQs that share a buffer.

A run is one capacity of their virtual output queues, one time before the circuit at which these grow, or one policy
over a buffer that they share. All runs are emulated with Linux's TCP, one after the other, and on request
simulated in ns-3; their figures come from logs in Etalon's format, and stand beside Etalon's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from omegaconf import MISSING

from foretail.configs.schema.emulation import ON_LOSSES, Emulation
from foretail.configs.schema.experiment import ExperimentSettings
from foretail.configs.schema.network.racks import MOST_HOSTS, MOST_VOQ_PACKETS, SHARED_POLICIES, RackTraffic
from foretail.core.errors import ForetailError
from foretail.core.files import staged_folder
from foretail.core.settings import part, seed_setting, setting
from foretail.models.scoring.figure_style import panels, styled, with_legend
from foretail.pipelines.data.collecting import SharedVoqs, circuit_schedule, rack_document
from foretail.pipelines.data.emulation import Emulator
from foretail.pipelines.data.simulation import Ns3, reporting
from foretail.pipelines.evaluating import asked_predictor
from foretail.pipelines.experiment.declaration import Drawn, FunctionExperiment, Run, Shown
from foretail.pipelines.runs.notes import say
from foretail.pipelines.runs.points import Report, run_jobs
from foretail.pipelines.runs.result import Table
from foretail.sim_bridge.circuits.schedules import Schedule
from foretail.sim_bridge.emulator.emulator import LATENESS_KINDS, EmulatorRun, run_emulator
from foretail.sim_bridge.imports.etalon.log import EtalonLog
from foretail.sim_bridge.imports.etalon.records import Reading
from foretail.sim_bridge.ns3.driver import DriverRun, run_driver
from foretail.sim_bridge.packets.simulation import PacketRun, etalon_log
from foretail_studies.circuits.circuit_use import CircuitUse, circuit_use


@dataclass
class PublishedUse:
    """Use of a circuit and latencies that others published."""

    utilisation_percent: float = setting(MISSING, "Use of the circuit.", at_least=0, at_most=100)
    p50_us: float = setting(MISSING, "Median latency of data packets.", at_least=0)
    p99_us: float = setting(MISSING, "99th percentile of the latency of data packets.", at_least=0)


@dataclass
class VoqSettings(ExperimentSettings, RackTraffic):
    """Long flows from one rack to others: every capacity of VOQs, way to resize them, and shared buffer is a run."""

    emulation: Emulation = part(Emulation, "Settings of the emulator.")
    against_ns3: bool = setting(False, "Simulate the same in ns-3, and compare use and latencies.")
    model: str | None = setting(None, "Model, as in export, that the policy credence asks.")
    train: list[str] = setting(
        [],
        "With model=null, overrides of foretail train, which trains the model that the policy credence asks.",
    )
    seed: int = seed_setting(1, "Seed of the flows' starts.")
    static_packets: list[int] = setting(
        [], "Capacities of a VOQ that stays as it is.", at_least=1, at_most=MOST_VOQ_PACKETS
    )
    small_packets: int = setting(
        16, "Resizing: capacity of a VOQ without a circuit.", at_least=1, at_most=MOST_VOQ_PACKETS
    )
    resized_packets: int = setting(
        50, "Resizing: capacity of a VOQ shortly before and during the circuit.", at_least=1, at_most=MOST_VOQ_PACKETS
    )
    ahead_ns: list[int] = setting(
        [], "Resizing: time before the circuit at which the capacity grows.", at_least=0, at_most=10**12
    )
    policies: list[str] = setting(
        [], "Policies over a buffer that the VOQs of a rack share, instead of capacities.", one_of=SHARED_POLICIES
    )
    shared_packets: list[int] = setting(
        [], "Policies: sizes of that buffer, in full packets.", at_least=1, at_most=MOST_VOQ_PACKETS
    )
    alpha: float = setting(1.0, "Policies: alpha of dt.", above=0, at_most=1024)
    attempts: int = setting(3, "Number of times that a run that was late is tried in all.", at_least=1, at_most=100)
    weeks: int = setting(MISSING, "Length of a run, in periods of the schedule.", at_least=2, at_most=10_000)
    ns3_weeks: int | None = setting(
        None,
        "With against_ns3, the length of a run in ns-3, which is fast; null means weeks.",
        at_least=2,
        at_most=10_000,
    )
    skipped_weeks: int = setting(1, "Number of weeks at either end that do not count.", at_least=0, at_most=1000)
    published: dict[str, PublishedUse] = setting(
        {}, "Published figures by the name of the run, such as static_16 or resize_300000ns."
    )
    published_by: str = setting("", "Source of the published figures.")

    def check(self, where: str) -> None:
        """Raise ForetailError on flows that go nowhere, a resize that is none, and runs that are too short."""
        ExperimentSettings.check(self, where)
        RackTraffic.check(self, where)
        self._check_emulation()
        hosts = self.fabric.hosts_per_rack * (1 + len(self.destination_racks))
        if hosts > MOST_HOSTS:
            raise ForetailError(
                f"the experiment has {hosts} hosts, and a process each: lower fabric.hosts_per_rack or name fewer "
                f"racks, for at most {MOST_HOSTS}"
            )
        if not (self.static_packets or self.ahead_ns or self.policies):
            raise ForetailError("the experiment compares nothing: give static_packets, ahead_ns or policies")
        if bool(self.policies) != bool(self.shared_packets):
            raise ForetailError("policies and shared_packets go together: give both, or neither of them")
        if self.resized_packets < self.small_packets:
            raise ForetailError(
                f"resized_packets = {self.resized_packets} is less than small_packets = "
                f"{self.small_packets}: a VOQ grows for its circuit"
            )
        for name, weeks in (("weeks", self.weeks), ("ns3_weeks", self.ns3_weeks)):
            if weeks is not None and weeks <= 2 * self.skipped_weeks + 1:
                raise ForetailError(
                    f"{name} = {weeks} leaves none to count without skipped_weeks = "
                    f"{self.skipped_weeks} at either end: raise {name} to {2 * self.skipped_weeks + 2} or more"
                )
        if self.published and not self.published_by:
            raise ForetailError("published has figures of nobody: say whose in published_by")

    @property
    def asks(self) -> bool:
        """True if a policy asks a predictor."""
        return "credence" in self.policies

    def _check_emulation(self) -> None:
        """Raise ForetailError on a comparison that cannot be, and on a predictor that nobody asks."""
        self.emulation.require_timeout("emulation", "min_rto_ns", self.min_rto_ns)
        for name, control in self.emulation.controls("emulation").items():
            if control == "dctcp":
                raise ForetailError(f"{name} is dctcp, and switches of racks do not mark: choose another")
        if self.against_ns3 and self.emulation.background_control not in (None, self.emulation.control):
            raise ForetailError("against_ns3 compares one transport: leave emulation.background_control out")
        if self.against_ns3 and self.emulation.control not in ON_LOSSES:
            raise ForetailError(
                f"against_ns3 compares Linux's {self.emulation.control} with ns-3's, which has none for racks: set "
                f"emulation.control to {' or '.join(ON_LOSSES)}"
            )
        if self.asks and self.model is None and not self.train:
            raise ForetailError(
                "policy credence asks a predictor and there is none: give model=FILE, train=[...] or the policy "
                "credence_accept"
            )
        if not self.asks and (self.model is not None or self.train):
            raise ForetailError("model and train are for the policy credence, which does not run: leave them out")
        if self.model is not None and self.train:
            raise ForetailError("model and train are both given: leave one of the two out")
        if self.ns3_prefix is not None and not (self.against_ns3 or self.train):
            raise ForetailError("ns3_prefix names an ns-3, which nothing here uses: leave it out")


METRICS = {"utilisation_percent": "use of the circuit, %", "p50_us": "median latency, us", "p99_us": "p99 latency, us"}


@styled
def draw_voqs(rows: pd.DataFrame, published_by: str) -> Figure:
    """A row of panels for static capacities and one for resized VOQs, a panel per metric.

    Parameters
    ----------
    rows : one per run, with ``voq_packets``, ``ahead_ns`` (missing for a static one), ``valid``, the metrics, and each
        as ``published_METRIC``, with ns-3 also as ``ns3_METRIC``
    published_by : whose the published figures are; empty when there are none
    """
    figure, grid = panels(len(METRICS), 2, inches=(3.3 * len(METRICS), 6.0))
    is_static = rows["ahead_ns"].isna()
    for line, group, by, label in (
        (grid[: len(METRICS)], rows[is_static], "voq_packets", "capacity, packets"),
        (grid[len(METRICS) :], rows[~is_static], "ahead_ns", "grows before, us"),
    ):
        x = group[by].astype(float) / (1 if by == "voq_packets" else 1000)
        for axes, (metric, title) in zip(line, METRICS.items(), strict=True):
            _draw(axes, x, group, metric, published_by.split(":")[0])
            if by == "voq_packets":
                axes.set_xscale("log", base=2)
            axes.set(xlabel=label, ylabel=title)
            axes.set_ylim(0, 1.08 * axes.dataLim.ymax)
    return with_legend(figure, grid[0], "upper center", ncols=3)


@styled
def draw_sharing(rows: pd.DataFrame) -> Figure:
    """A bar per run with a mark for ns-3's, in the order of the rows; a panel per metric.

    `rows` are those of :func:`draw_voqs`, with ``run``.
    """
    inches = (3.3 * len(METRICS) + 0.8, 0.35 * len(rows) + 1.2)
    figure, row = panels(len(METRICS), inches=inches, grid="x", sharey=True)
    colours = ["C0" if valid else "white" for valid in rows["valid"]]
    for axes, (metric, title) in zip(row, METRICS.items(), strict=True):
        axes.barh(rows["run"].str.replace("_", " "), rows[metric], color=colours, edgecolor="C0")
        if f"ns3_{metric}" in rows:
            axes.plot(rows[f"ns3_{metric}"], range(len(rows)), "|", color="C2", markersize=12, label="ns-3's TCP")
        axes.set_xlabel(title)
    row[0].invert_yaxis()
    return with_legend(figure, row[0], "upper center")


def _draw(axes: Axes, x: pd.Series[float], group: pd.DataFrame, metric: str, published_by: str) -> None:
    axes.plot(x, group[metric], "o-", label="Linux's TCP", color="C0")
    for valid, chosen in group.groupby("valid"):
        fill: dict[str, Any] = (
            {"markerfacecolor": "C0"} if valid else {"markerfacecolor": "white", "label": "a run that is not valid"}
        )
        axes.plot(x[chosen.index], chosen[metric], "o", color="C0", **fill)
    published = group[f"published_{metric}"].astype(float)
    if published.notna().any():
        axes.plot(x, published, "--s", label=published_by, color="C1")
    if f"ns3_{metric}" in group:
        axes.plot(x, group[f"ns3_{metric}"], ":^", label="ns-3's TCP", color="C2")


SHARED_CAPTION = (
    "Use of the circuits, and latency of data packets to the rack where it is worst, by what may wait in the VOQs. "
    "Hollow: late, so worth nothing."
)
CAPTION = (
    "Use of the circuit, and latency of data packets, by the capacity of the VOQ and by how long before its circuit it "
    "grows. Solid: Linux's TCP; dashed: published; dotted: ns-3's TCP. Hollow: late, so worth nothing."
)


@dataclass(frozen=True)
class VoqCase:
    """One run."""

    voq_packets: int | None = None  #: capacity; None: they share a buffer
    ahead_ns: int | None = None  #: it grows so long before its circuit; None: it stays
    shared: tuple[str, int] | None = None  #: policy and size of the shared buffer in full packets

    @property
    def name(self) -> str:
        if self.shared is not None:
            return f"{self.shared[0]}_{self.shared[1]}"
        return f"static_{self.voq_packets}" if self.ahead_ns is None else f"resize_{self.ahead_ns}ns"


@dataclass(frozen=True)
class VoqTraffic:
    """Use of the circuits by the flows of a run, with drops and timeouts."""

    use: CircuitUse
    dropped: int  #: packets, at the VOQs
    timeouts: int  #: of TCP, all flows together

    def columns(self) -> dict[str, Any]:
        """Every figure by its name in files."""
        return {**asdict(self.use), "dropped": self.dropped, "timeouts": self.timeouts}


@dataclass(frozen=True)
class VoqRun:
    """Result of one run."""

    case: VoqCase
    emulated: VoqTraffic
    simulated: VoqTraffic | None  #: the same in ns-3
    lateness_p99_ns: dict[str, int]  #: by kind, virtual
    why_invalid: str  #: empty when it is valid


def show(settings: VoqSettings, run: Run) -> Shown:
    """Emulate every case, and on request simulate it in ns-3.

    ForetailError on a schedule that does not fit, or where this machine cannot emulate or lacks ns-3.
    """
    schedule = circuit_schedule(settings.fabric)
    library = asked_predictor(settings, run.folder).library if settings.asks else None
    cases = [
        *(VoqCase(voq_packets=packets) for packets in sorted(settings.static_packets)),
        *(VoqCase(voq_packets=settings.small_packets, ahead_ns=ahead) for ahead in sorted(settings.ahead_ns)),
        *(VoqCase(shared=(policy, size)) for size in sorted(settings.shared_packets) for policy in settings.policies),
    ]

    def documents(weeks: int) -> dict[VoqCase, dict[str, Any]]:
        return {
            case: rack_document(
                settings,
                schedule,
                transport=settings.emulation.in_ns3,
                weeks=weeks,
                seed=settings.seed,
                voq_packets=case.voq_packets,
                resize=None if case.ahead_ns is None else (settings.resized_packets, case.ahead_ns),
                shared=None if case.shared is None else SharedVoqs(*case.shared, settings.alpha, library),
            )
            | {"emulation": settings.emulation.settings()}
            for case in cases
        }

    emulated, simulated = documents(settings.weeks), dict[str, VoqTraffic]()
    for document in emulated.values():
        settings.emulation.require_within_a_day("emulation", "the time of all weeks in ns", document["traffic_ns"])
    if settings.against_ns3:  # first, since it says soon what is missing
        ns3, folder = Ns3(settings.ns3_prefix), run.folder / "runs_in_ns3"
        simulated = run_jobs(
            {
                case.name: partial(_simulated, document, settings, folder / case.name, ns3)
                for case, document in documents(settings.ns3_weeks or settings.weeks).items()
            },
            1,
        )
    tasks = {
        case.name: partial(_emulated, case, document, settings, run.folder / "runs", simulated.get(case.name))
        for case, document in emulated.items()
    }
    runs = list(run_jobs(tasks, 1).values())
    for one in runs:
        if one.why_invalid:
            say(
                f"{one.case.name} is invalid: {one.why_invalid}; give the machine less to do, or raise emulation.factor"
            )
    rows = pd.DataFrame([_row(one, settings.published) for one in runs])
    if settings.policies:
        drawn = Drawn(draw_sharing(rows), SHARED_CAPTION, rows)
    else:
        drawn = Drawn(draw_voqs(rows, settings.published_by), CAPTION, rows)
    return Shown(
        rows,
        _tables(rows, runs, settings, schedule),
        {"": drawn},
        verdict=_conclusion(runs, settings),
        details={"emulation": asdict(settings.emulation), "period_slots": schedule.period},
    )


VOQS = FunctionExperiment(VoqSettings, show)


def _simulated(document: dict[str, Any], settings: VoqSettings, target: Path, ns3: Ns3, report: Report) -> VoqTraffic:
    executable = ns3.driver(report)
    with staged_folder(target, replace=True) as staging:
        run_driver(document, staging, reporting(report), executable=executable)
    return _traffic(DriverRun.open(target), settings)


def _emulated(
    case: VoqCase,
    document: dict[str, Any],
    settings: VoqSettings,
    folder: Path,
    simulated: VoqTraffic | None,
    report: Report,
) -> VoqRun:
    executable, target = Emulator().driver(report), folder / case.name
    for _ in range(settings.attempts):
        with staged_folder(target, replace=True) as staging:
            run_emulator(document, staging, reporting(report), executable=executable)
        run = EmulatorRun.open(target)
        if run.is_valid:
            break
    return VoqRun(
        case=case,
        emulated=_traffic(run, settings),
        simulated=simulated,
        lateness_p99_ns={kind: late.p99_ns for kind, late in run.lateness.items()},
        why_invalid=run.why_invalid,
    )


def _traffic(run: PacketRun, settings: VoqSettings) -> VoqTraffic:
    fabric = settings.fabric
    reading = Reading(
        racks=fabric.racks,
        packet_delay_ns=2 * fabric.packet_delay_ns,
        circuit_delay_ns=fabric.circuit_delay_ns,
        day_ns=fabric.day_ns,
    )
    log = EtalonLog.open(etalon_log(run.folder), reading)
    return VoqTraffic(
        use=_over_pairs(
            [
                circuit_use(
                    log,
                    settings.source_rack,
                    destination,
                    circuit_bps=fabric.circuit_bps,
                    skipped_weeks=settings.skipped_weeks,
                )
                for destination in settings.destination_racks
            ]
        ),
        dropped=sum(voq["dropped"] for voq in run.summary["voqs"] if voq["source"] == settings.source_rack - 1),
        timeouts=int(run.flows()["timeouts"].sum()),
    )


def _over_pairs(uses: Sequence[CircuitUse]) -> CircuitUse:
    """Means of use, the sum of what went by the packet network, and latencies of the pair where they are worst."""
    return CircuitUse(
        weeks=min(use.weeks for use in uses),
        utilisation_percent=fmean(use.utilisation_percent for use in uses),
        least_percent=min(use.least_percent for use in uses),
        most_percent=max(use.most_percent for use in uses),
        packet_gbps=sum(use.packet_gbps for use in uses),
        p50_us=max(use.p50_us for use in uses),
        p99_us=max(use.p99_us for use in uses),
        longest_voq=max(use.longest_voq for use in uses),
    )


def _row(run: VoqRun, published: dict[str, PublishedUse]) -> dict[str, Any]:
    theirs = published.get(run.case.name)
    return {
        "run": run.case.name,
        "voq_packets": run.case.voq_packets,
        "ahead_ns": run.case.ahead_ns,
        "policy": None if run.case.shared is None else run.case.shared[0],
        "shared_packets": None if run.case.shared is None else run.case.shared[1],
        **run.emulated.columns(),
        **{f"{kind}_p99_ns": late for kind, late in run.lateness_p99_ns.items()},
        "valid": not run.why_invalid,
        "published_utilisation_percent": None if theirs is None else theirs.utilisation_percent,
        "published_p50_us": None if theirs is None else theirs.p50_us,
        "published_p99_us": None if theirs is None else theirs.p99_us,
        **{f"ns3_{name}": value for name, value in ({} if run.simulated is None else run.simulated.columns()).items()},
    }


def _tables(rows: pd.DataFrame, runs: Sequence[VoqRun], settings: VoqSettings, schedule: Schedule) -> list[Table]:
    """Static capacities, resized ones, shared buffers, as far as there are any; beside ns-3; how late each run was."""
    emulation, fabric = settings.emulation, settings.fabric
    several = " each" if len(settings.destination_racks) > 1 else ""
    notes = [
        f"{settings.flows} flows from rack {settings.source_rack} of {fabric.racks} to rack "
        f"{', '.join(map(str, settings.destination_racks))}{several} with this machine's {emulation.control}, "
        f"{emulation.factor} times slower than the network; "
        f"{runs[0].emulated.use.weeks} weeks of {schedule.period * (fabric.day_ns + fabric.night_ns) / 1e6:g} ms",
        "Use: bytes of data packets that came by the circuit, over what it carries while it is up. Latency: from the "
        "VOQ to the other rack's switch, of data packets by either network.",
    ]
    if settings.published:
        notes.append(f"Published: {settings.published_by}")
    if several:
        notes.append("Use is the mean over the racks; latency is that to the rack where it is worst.")
    kinds, simulated = rows.assign(valid=rows["valid"].map({True: "yes", False: "no"})), runs[0].simulated
    shares, grows = kinds["policy"].notna(), kinds["ahead_ns"].notna()
    beside = {"": "", "published_": "published "} if settings.published and simulated is None else {"": ""}
    columns = {**_interleaved(beside), "dropped": "drops", "timeouts": "timeouts", "valid": "valid"}
    growing = f"VOQs that grow from {settings.small_packets} to {settings.resized_packets} packets before their circuit"
    before = kinds[grows].astype({"ahead_ns": float})
    before = before.assign(before_us=before["ahead_ns"] / 1000)
    shared = {"policy": "policy", "shared_packets": "packets", **columns}
    tables = [
        Table.of_frame("VOQs of one capacity", _whole(kinds[~shares & ~grows]), {"voq_packets": "packets", **columns}),
        Table.of_frame(growing, before, {"before_us": "us before", **columns}),
        Table.of_frame("VOQs of a rack that share a buffer", _whole(kinds[shares]), shared),
    ]
    if simulated is not None:
        others = {"published_": "published "} if settings.published else {}
        tables.append(
            Table.of_frame(
                "This machine's TCP beside ns-3's",
                rows,
                {"run": "run", **_interleaved({"": "", "ns3_": "ns-3 ", **others})},
                f"ns-3: {emulation.in_ns3}, the same documents, {simulated.use.weeks} weeks",
            )
        )
    first, *more = (table for table in tables if table.rows)
    late = kinds.assign(**{kind: kinds[f"{kind}_p99_ns"] / 1000 for kind in LATENESS_KINDS})
    lateness = {name: name for name in ("run", *LATENESS_KINDS, "valid")}
    title = "Lateness, 99th percentile in us of the network"
    return [replace(first, notes=tuple(notes)), *more, Table.of_frame(title, late, lateness)]


def _interleaved(whose: Mapping[str, str]) -> dict[str, str]:
    """Columns of use and latencies with their titles, each of them for everybody: by what both begin with."""
    measures = {"utilisation_percent": "use %", "p50_us": "p50 us", "p99_us": "p99 us"}
    return {f"{one}{name}": f"{words}{title}" for name, title in measures.items() for one, words in whose.items()}


def _whole(group: pd.DataFrame) -> pd.DataFrame:
    """Runs with capacities as whole numbers, of which other runs have none."""
    return group.astype({name: int for name in ("voq_packets", "shared_packets") if group[name].notna().all()})


def _conclusion(runs: Sequence[VoqRun], settings: VoqSettings) -> list[str]:
    """Return sentences that compare VOQs that grow with the same small VOQ that does not."""
    late = sum(bool(run.why_invalid) for run in runs)
    lateness = f"{late} of {len(runs)} runs were late, and say nothing." if late else "All runs were in time."
    valid = [run for run in runs if not run.why_invalid]
    small = [run for run in valid if run.case == VoqCase(voq_packets=settings.small_packets)]
    grown = [run for run in valid if run.case.ahead_ns is not None]
    if not small or not grown:
        return [lateness]
    best = max(grown, key=lambda run: run.emulated.use.utilisation_percent)
    assert best.case.ahead_ns is not None
    used = small[0].emulated.use.utilisation_percent
    return [
        f"VOQs of {settings.small_packets} packets let their flows use {used:.3g} % of a circuit; "
        f"growing to {settings.resized_packets} packets {best.case.ahead_ns / 1000:g} us before it, "
        f"{best.emulated.use.utilisation_percent:.3g} %.",
        lateness,
    ]
