"""``foretail emulate experiment=etalon``: what long flows make of their circuit, by the capacity of their VOQ.

A run is one capacity, or one time before the circuit at which the VOQ grows. All runs are emulated with this machine's
TCP, one after the other; their figures come from a log in Etalon's format, and stand beside Etalon's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from foretail.configs.schema.emulation import EmulateConfig, Emulation
from foretail.configs.schema.racks import PublishedUse, VoqExperiment
from foretail.features.staging import staged_folder
from foretail.pipelines.data.emulation import emulator_for
from foretail.pipelines.data.racks import circuit_schedule, rack_document
from foretail.pipelines.data.simulation import reporting
from foretail.pipelines.experiments.circuits.voq_figures import draw_voqs
from foretail.pipelines.experiments.frame import ExperimentResult, figure_files
from foretail.pipelines.runs.jobs import Report, run_jobs
from foretail.pipelines.runs.notes import say
from foretail.pipelines.runs.points import write_files
from foretail.pipelines.runs.result import Table, plain
from foretail.sim_bridge.circuits.schedules.schedule import Schedule
from foretail.sim_bridge.emulator.emulator import LATENESS_KINDS, EmulatorRun, etalon_log, run_emulator
from foretail.sim_bridge.imports.etalon.circuit_use import CircuitUse, circuit_use
from foretail.sim_bridge.imports.etalon.log import EtalonLog
from foretail.sim_bridge.imports.etalon.records import Reading


@dataclass(frozen=True)
class VoqCase:
    """One run."""

    voq_packets: int  #: capacity
    ahead_ns: int | None  #: it grows so long before its circuit; None: it stays

    @property
    def name(self) -> str:
        return f"static_{self.voq_packets}" if self.ahead_ns is None else f"resize_{self.ahead_ns}ns"


@dataclass(frozen=True)
class VoqRun:
    """What became of one."""

    case: VoqCase
    use: CircuitUse
    dropped: int  #: packets, at the VOQ
    timeouts: int  #: of TCP, all flows together
    lateness_p99_ns: dict[str, int]  #: by kind, virtual
    why_invalid: str  #: empty when it is valid


def voq_experiment(sweep: VoqExperiment, config: EmulateConfig, run_dir: Path) -> ExperimentResult:
    """Run the experiment and draw it; of `config` count the emulation and the size.

    ForetailError on a schedule that does not fit, or where this machine cannot emulate.
    """
    schedule = circuit_schedule(sweep.fabric)
    cases = [
        *(VoqCase(packets, None) for packets in sorted(sweep.static_packets)),
        *(VoqCase(sweep.small_packets, ahead) for ahead in sorted(sweep.ahead_ns)),
    ]
    documents = {case: rack_document(sweep, schedule, *_of(case), config.emulation) for case in cases}  # before any run
    tasks = {case.name: partial(_emulated, case, documents[case], sweep, run_dir / "runs") for case in cases}
    runs = list(run_jobs(tasks, 1).values())
    for run in runs:
        if run.why_invalid:
            say(
                f"{run.case.name} is invalid: {run.why_invalid}; give the machine less to do, or raise emulation.factor"
            )
    rows = pd.DataFrame([_row(run, sweep.published) for run in runs])
    stem = sweep.experiment
    files: dict[str, pd.DataFrame | Figure] = {
        f"{stem}.csv": rows,
        **figure_files(stem, draw_voqs(rows, sweep.published_by), ("pdf", "png", "svg")),
    }
    return ExperimentResult(
        stem,
        {
            "runs": plain(rows.to_dict("records")),
            "emulation": asdict(config.emulation),
            "period_slots": schedule.period,
        },
        _tables(runs, sweep, schedule, config.emulation),
        write_files(run_dir, files),
        conclusion=_conclusion(runs, sweep),
        captions={
            stem: "Use of the circuit, and latency of data packets, by the capacity of the VOQ and by how long before "
            "its circuit it grows. Solid: this machine's TCP; dashed: published. Hollow: late, so worth nothing."
        },
    )


def _of(case: VoqCase) -> tuple[int, int | None]:
    return case.voq_packets, case.ahead_ns


def _emulated(case: VoqCase, document: dict[str, Any], sweep: VoqExperiment, folder: Path, report: Report) -> VoqRun:
    executable = emulator_for("cs", report)
    target = folder / case.name
    with staged_folder(target) as staging:
        run_emulator(document, staging, reporting(report), executable=executable)
    run, fabric = EmulatorRun.open(target), sweep.fabric
    reading = Reading(
        racks=fabric.racks,
        packet_delay_ns=2 * fabric.packet_delay_ns,
        circuit_delay_ns=fabric.circuit_delay_ns,
        day_ns=fabric.day_ns,
        voq_packets=max(case.voq_packets, sweep.resized_packets),
    )
    use = circuit_use(
        EtalonLog.open(etalon_log(run.folder), reading),
        sweep.source_rack,
        sweep.destination_rack,
        circuit_bps=fabric.circuit_bps,
        skipped_weeks=sweep.skipped_weeks,
    )
    (dropped,) = (
        voq["dropped"]
        for voq in run.summary["voqs"]
        if (voq["source"], voq["destination"]) == (sweep.source_rack - 1, sweep.destination_rack - 1)
    )
    return VoqRun(
        case=case,
        use=use,
        dropped=dropped,
        timeouts=int(run.flows()["timeouts"].sum()),
        lateness_p99_ns={kind: late.p99_ns for kind, late in run.lateness.items()},
        why_invalid=run.why_invalid,
    )


def _row(run: VoqRun, published: dict[str, PublishedUse]) -> dict[str, Any]:
    theirs = published.get(run.case.name)
    return {
        "run": run.case.name,
        **asdict(run.case),
        **asdict(run.use),
        "dropped": run.dropped,
        "timeouts": run.timeouts,
        **{f"{kind}_p99_ns": late for kind, late in run.lateness_p99_ns.items()},
        "valid": not run.why_invalid,
        "published_utilisation_percent": None if theirs is None else theirs.utilisation_percent,
        "published_p50_us": None if theirs is None else theirs.p50_us,
        "published_p99_us": None if theirs is None else theirs.p99_us,
    }


def _tables(runs: Sequence[VoqRun], sweep: VoqExperiment, schedule: Schedule, emulation: Emulation) -> list[Table]:
    """Static capacities, then resized ones, then how late each run was."""
    columns = ("use %", "published", "p50 us", "published", "p99 us", "published", "drops", "timeouts", "valid")
    fabric = sweep.fabric

    def cells(run: VoqRun) -> tuple[Any, ...]:
        theirs = sweep.published.get(run.case.name)
        beside = (None, None, None) if theirs is None else (theirs.utilisation_percent, theirs.p50_us, theirs.p99_us)
        ours = (run.use.utilisation_percent, run.use.p50_us, run.use.p99_us)
        pairs = [cell for both in zip(ours, beside, strict=True) for cell in both]
        return (*pairs, run.dropped, run.timeouts, "no" if run.why_invalid else "yes")

    notes: tuple[str, ...] = (
        f"{sweep.flows} flows from rack {sweep.source_rack} to rack {sweep.destination_rack} of {fabric.racks} with "
        f"this machine's {emulation.control}, {emulation.factor} times slower than the network; "
        f"{runs[0].use.weeks} weeks of {schedule.period * (fabric.day_ns + fabric.night_ns) / 1e6:g} ms",
        "Use: bytes of data packets that came by the circuit, over what it carries while it is up. Latency: from the "
        "VOQ to the other rack's switch, of data packets by either network.",
    )
    if sweep.published:
        notes = (*notes, f"Published: {sweep.published_by}")
    static = [run for run in runs if run.case.ahead_ns is None]
    resized = [run for run in runs if run.case.ahead_ns is not None]
    return [
        Table(
            "VOQs of one capacity",
            ("packets", *columns),
            tuple((run.case.voq_packets, *cells(run)) for run in static),
            notes,
        ),
        Table(
            f"VOQs that grow from {sweep.small_packets} to {sweep.resized_packets} packets before their circuit",
            ("us before", *columns),
            tuple(((run.case.ahead_ns or 0) / 1000, *cells(run)) for run in resized),
        ),
        Table(
            "Lateness, 99th percentile in us of the network",
            ("run", *LATENESS_KINDS, "valid"),
            tuple(
                (
                    run.case.name,
                    *(run.lateness_p99_ns[kind] / 1000 for kind in LATENESS_KINDS),
                    "no" if run.why_invalid else "yes",
                )
                for run in runs
            ),
        ),
    ]


def _conclusion(runs: Sequence[VoqRun], sweep: VoqExperiment) -> list[str]:
    """What growing is worth against the same small VOQ that stays."""
    late = sum(bool(run.why_invalid) for run in runs)
    said = f"{late} of {len(runs)} runs were late, and say nothing." if late else "All runs were in time."
    valid = [run for run in runs if not run.why_invalid]
    small = [run for run in valid if _of(run.case) == (sweep.small_packets, None)]
    grown = [run for run in valid if run.case.ahead_ns is not None]
    if not small or not grown:
        return [said]
    best = max(grown, key=lambda run: run.use.utilisation_percent)
    assert best.case.ahead_ns is not None
    return [
        f"A VOQ of {sweep.small_packets} packets lets {sweep.flows} flows use {small[0].use.utilisation_percent:.3g} % "
        f"of their circuit; growing to {sweep.resized_packets} packets {best.case.ahead_ns / 1000:g} us before it, "
        f"{best.use.utilisation_percent:.3g} %.",
        said,
    ]
