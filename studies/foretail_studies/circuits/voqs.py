"""What long flows make of their circuits, in the emulator: Etalon's experiments, and VOQs that share a buffer.

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

from foretail.core.files import staged_folder
from foretail.pipelines.data.emulation import Emulator
from foretail.pipelines.data.racks import SharedVoqs, circuit_schedule, rack_document
from foretail.pipelines.data.simulation import Ns3, reporting
from foretail.pipelines.evaluating import asked_predictor
from foretail.pipelines.experiment.declaration import Drawn, FunctionExperiment, Run, Shown
from foretail.pipelines.runs.jobs import Report, run_jobs
from foretail.pipelines.runs.notes import say
from foretail.pipelines.runs.result import Table
from foretail.sim_bridge.circuits.schedules import Schedule
from foretail.sim_bridge.emulator.emulator import LATENESS_KINDS, EmulatorRun, run_emulator
from foretail.sim_bridge.imports.etalon.circuit_use import CircuitUse, circuit_use
from foretail.sim_bridge.imports.etalon.log import EtalonLog
from foretail.sim_bridge.imports.etalon.records import Reading
from foretail.sim_bridge.ns3.driver import DriverRun, run_driver
from foretail.sim_bridge.packets.simulation import PacketRun, etalon_log
from foretail_studies.circuits.voq_figures import draw_sharing, draw_voqs
from foretail_studies.circuits.voq_settings import PublishedUse, VoqSettings

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
    """What became of its flows."""

    use: CircuitUse
    dropped: int  #: packets, at the VOQs
    timeouts: int  #: of TCP, all flows together

    def columns(self) -> dict[str, Any]:
        """Every figure by its name in files."""
        return {**asdict(self.use), "dropped": self.dropped, "timeouts": self.timeouts}


@dataclass(frozen=True)
class VoqRun:
    """What became of one."""

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


def _whole(part: pd.DataFrame) -> pd.DataFrame:
    """Runs with capacities as whole numbers, of which other runs have none."""
    return part.astype({name: int for name in ("voq_packets", "shared_packets") if part[name].notna().all()})


def _conclusion(runs: Sequence[VoqRun], settings: VoqSettings) -> list[str]:
    """What growing is worth against the same small VOQ that stays."""
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
