"""Use of circuits by long flows, in the emulator: Etalon's experiments, and VOQs that share a buffer.

A run is one capacity of their virtual output queues, one time before the circuit at which these grow, or one policy
over a buffer that they share. All runs are emulated with Linux's TCP, one after the other, and on request
simulated in ns-3; their figures come from logs in Etalon's format, and stand beside Etalon's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.emulation import ON_LOSSES, Emulation
from foretail.configs.schema.experiment import ExperimentSettings
from foretail.configs.schema.network.racks import MOST_HOSTS, MOST_VOQ_PACKETS, SHARED_POLICIES, RackTraffic
from foretail.core.errors import ForetailError
from foretail.core.files import staged_folder
from foretail.core.settings import part, seed_setting, setting
from foretail.pipelines.data.collecting import SharedVoqs, circuit_schedule, rack_document
from foretail.pipelines.data.emulation import emulator_simulator
from foretail.pipelines.data.simulation import Simulator, ns3_simulator, reporting
from foretail.pipelines.evaluating import asked_predictor
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown
from foretail.pipelines.runs.notes import say
from foretail.pipelines.runs.points import Report, run_jobs
from foretail.pipelines.runs.result import Table
from foretail.sim_bridge.circuits.schedules import Schedule
from foretail.sim_bridge.emulator.emulator import LATENESS_KINDS, EmulatorRun, run_emulator
from foretail.sim_bridge.imports.etalon.log import EtalonLog
from foretail.sim_bridge.imports.etalon.records import Reading
from foretail.sim_bridge.ns3.driver import DriverRun, run_driver
from foretail.sim_bridge.packets.simulation import PacketRun, etalon_log
from foretail_studies.circuits.circuit_use import circuit_use

SMALL_PACKETS, RESIZED_PACKETS = 16, 50
"""Capacities of a VOQ that grows: without a circuit, and shortly before and during its circuit."""


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


OVER_PAIRS: Mapping[str, Callable[[Iterable[Any]], Any]] = {
    "weeks": min,
    "utilisation_percent": fmean,
    "least_percent": min,
    "most_percent": max,
    "packet_gbps": sum,
    "p50_us": max,
    "p99_us": max,
    "longest_voq": max,
}
"""Figures of several pairs of racks together: latencies are those of the pair where they are worst."""
METRICS = {"utilisation_percent": "use %", "p50_us": "p50 us", "p99_us": "p99 us"}


@dataclass(frozen=True)
class VoqCase:
    """One run."""

    voq_packets: int | None = None  #: capacity; None: they share a buffer
    ahead_ns: int | None = None  #: it grows so long before its circuit; None: it stays
    policy: str | None = None  #: of the shared buffer
    shared_packets: int | None = None  #: size of that buffer

    @property
    def name(self) -> str:
        if self.policy is not None:
            return f"{self.policy}_{self.shared_packets}"
        return f"static_{self.voq_packets}" if self.ahead_ns is None else f"resize_{self.ahead_ns}ns"


def show(settings: VoqSettings, run: Run) -> Shown:
    """Emulate every case, and on request simulate it in ns-3.

    ForetailError on a schedule that does not fit, or where this machine cannot emulate or lacks ns-3.
    """
    schedule = circuit_schedule(settings.fabric)
    library = asked_predictor(settings, run.folder).library if settings.asks else None
    sharing = product(sorted(settings.shared_packets), settings.policies)
    cases = [
        *(VoqCase(packets) for packets in sorted(settings.static_packets)),
        *(VoqCase(SMALL_PACKETS, ahead) for ahead in sorted(settings.ahead_ns)),
        *(VoqCase(policy=policy, shared_packets=size) for size, policy in sharing),
    ]

    def document(case: VoqCase, weeks: int) -> dict[str, Any]:
        shared = None
        if case.policy is not None and case.shared_packets is not None:
            shared = SharedVoqs(case.policy, case.shared_packets, settings.alpha, library)
        return rack_document(
            settings,
            schedule,
            transport=settings.emulation.in_ns3,
            weeks=weeks,
            seed=settings.seed,
            voq_packets=case.voq_packets,
            resize=None if case.ahead_ns is None else (RESIZED_PACKETS, case.ahead_ns),
            shared=shared,
        ) | {"emulation": settings.emulation.settings()}

    emulated = {case.name: document(case, settings.weeks) for case in cases}
    for one in emulated.values():
        settings.emulation.require_within_a_day("emulation", "the time of all weeks in ns", one["traffic_ns"])
    ns3, simulations = ns3_simulator(settings.ns3_prefix), dict[str, Callable[[Report], dict[str, Any]]]()
    if settings.against_ns3:  # first, since it says soon what is missing
        weeks, folder = settings.ns3_weeks or settings.weeks, run.folder / "runs_in_ns3"
        simulations = {
            case.name: partial(_simulated, document(case, weeks), settings, folder / case.name, ns3) for case in cases
        }
    simulated = run_jobs(simulations, 1)
    emulations = {name: partial(_emulated, one, settings, run.folder / "runs" / name) for name, one in emulated.items()}
    measured = run_jobs(emulations, 1)
    for name, one in measured.items():
        if reason := one.pop("why_invalid"):
            say(f"{name} is invalid: {reason}; give the machine less to do, or raise emulation.factor")
    rows = pd.DataFrame(
        {
            "run": case.name,
            **asdict(case),
            **measured[case.name],
            **{f"published_{name}": getattr(settings.published.get(case.name), name, None) for name in METRICS},
            **{f"ns3_{name}": value for name, value in simulated.get(case.name, {}).items()},
        }
        for case in cases
    )
    late = int((~rows["valid"].astype(bool)).sum())
    lateness = f"{late} of {len(rows)} runs were late, and say nothing." if late else "All runs were in time."
    return Shown(
        rows,
        _tables(rows, settings, schedule),
        frames={f"{settings.experiment}.csv": rows},
        verdict=[lateness],
    )


VOQS = FunctionExperiment(VoqSettings, show)


def _simulated(
    document: dict[str, Any], settings: VoqSettings, target: Path, ns3: Simulator, report: Report
) -> dict[str, Any]:
    executable = ns3.driver(report)
    with staged_folder(target, replace=True) as staging:
        run_driver(document, staging, reporting(report), executable=executable)
    return _traffic(DriverRun.open(target), settings)


def _emulated(document: dict[str, Any], settings: VoqSettings, target: Path, report: Report) -> dict[str, Any]:
    executable = emulator_simulator().driver(report)
    for _ in range(settings.attempts):
        with staged_folder(target, replace=True) as staging:
            run_emulator(document, staging, reporting(report), executable=executable)
        run = EmulatorRun.open(target)
        if run.is_valid:
            break
    lateness = {f"{kind}_p99_ns": late.p99_ns for kind, late in run.lateness.items()}
    return {**_traffic(run, settings), **lateness, "valid": run.is_valid, "why_invalid": run.why_invalid}


def _traffic(run: PacketRun, settings: VoqSettings) -> dict[str, Any]:
    """Use of the circuits by the flows of a run, packets dropped at the VOQs, and timeouts of all flows together."""
    fabric = settings.fabric
    reading = Reading(
        racks=fabric.racks,
        packet_delay_ns=2 * fabric.packet_delay_ns,
        circuit_delay_ns=fabric.circuit_delay_ns,
        day_ns=fabric.day_ns,
    )
    log = EtalonLog.open(etalon_log(run.folder), reading)
    uses = [
        circuit_use(
            log,
            settings.source_rack,
            destination,
            circuit_bps=fabric.circuit_bps,
            skipped_weeks=settings.skipped_weeks,
        )
        for destination in settings.destination_racks
    ]
    return {
        **{name: of(getattr(use, name) for use in uses) for name, of in OVER_PAIRS.items()},
        "dropped": sum(voq["dropped"] for voq in run.summary["voqs"] if voq["source"] == settings.source_rack - 1),
        "timeouts": int(run.flows()["timeouts"].sum()),
    }


def _tables(rows: pd.DataFrame, settings: VoqSettings, schedule: Schedule) -> list[Table]:
    """Static capacities, resized ones, shared buffers, as far as there are any; beside ns-3; how late each run was."""
    emulation, fabric = settings.emulation, settings.fabric
    several = " each" if len(settings.destination_racks) > 1 else ""
    notes = [
        f"{settings.flows} flows from rack {settings.source_rack} of {fabric.racks} to rack "
        f"{', '.join(map(str, settings.destination_racks))}{several} with this machine's {emulation.control}, "
        f"{emulation.factor} times slower than the network; "
        f"{rows['weeks'].iloc[0]} weeks of {schedule.period * (fabric.day_ns + fabric.night_ns) / 1e6:g} ms",
        "Use: bytes of data packets that came by the circuit, over what it carries while it is up. Latency: from the "
        "VOQ to the other rack's switch, of data packets by either network.",
    ]
    if settings.published:
        notes.append(f"Published: {settings.published_by}")
    if several:
        notes.append("Use is the mean over the racks; latency is that to the rack where it is worst.")
    kinds, simulated = rows.assign(valid=rows["valid"].map({True: "yes", False: "no"})), "ns3_weeks" in rows
    shares, grows = kinds["policy"].notna(), kinds["ahead_ns"].notna()
    beside = {"": "", "published_": "published "} if settings.published and not simulated else {"": ""}
    columns = {**_interleaved(beside), "dropped": "drops", "timeouts": "timeouts", "valid": "valid"}
    growing = f"VOQs that grow from {SMALL_PACKETS} to {RESIZED_PACKETS} packets before their circuit"
    before = kinds[grows].astype({"ahead_ns": float})
    before = before.assign(before_us=before["ahead_ns"] / 1000)
    shared = {"policy": "policy", "shared_packets": "packets", **columns}
    tables = [
        Table.of_frame("VOQs of one capacity", _whole(kinds[~shares & ~grows]), {"voq_packets": "packets", **columns}),
        Table.of_frame(growing, before, {"before_us": "us before", **columns}),
        Table.of_frame("VOQs of a rack that share a buffer", _whole(kinds[shares]), shared),
    ]
    if simulated:
        others = {"published_": "published "} if settings.published else {}
        tables.append(
            Table.of_frame(
                "This machine's TCP beside ns-3's",
                rows,
                {"run": "run", **_interleaved({"": "", "ns3_": "ns-3 ", **others})},
                f"ns-3: {emulation.in_ns3}, the same documents, {rows['ns3_weeks'].iloc[0]} weeks",
            )
        )
    first, *more = (table for table in tables if table.rows)
    late = kinds.assign(**{kind: kinds[f"{kind}_p99_ns"] / 1000 for kind in LATENESS_KINDS})
    lateness = {name: name for name in ("run", *LATENESS_KINDS, "valid")}
    title = "Lateness, 99th percentile in us of the network"
    return [replace(first, notes=tuple(notes)), *more, Table.of_frame(title, late, lateness)]


def _interleaved(whose: Mapping[str, str]) -> dict[str, str]:
    """Columns of use and latencies with their titles, each of them for everybody: by what both begin with."""
    return {f"{one}{name}": f"{words}{title}" for name, title in METRICS.items() for one, words in whose.items()}


def _whole(group: pd.DataFrame) -> pd.DataFrame:
    """Runs with capacities as whole numbers, of which other runs have none."""
    return group.astype({name: int for name in ("voq_packets", "shared_packets") if group[name].notna().all()})
