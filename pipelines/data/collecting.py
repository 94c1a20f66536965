"""Datasets of a stage: simulated, drawn in slots, traced in racks or imported, unless the store has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from foretail.configs.schema.network.racks import LARGEST_PACKET_BYTES, RackFabric, RackTraces, RackTraffic
from foretail.configs.schema.network.sources import SlottedTraffic
from foretail.configs.schema.networks import EmulatorNetwork
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError, readable
from foretail.core.files import write_file
from foretail.core.plugins import source_sha256
from foretail.core.reading import Reading, telling
from foretail.core.settings import LARGEST_BUFFER_BYTES
from foretail.export.schedule import read_json
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Run
from foretail.pipelines.data.emulation import emulate_dataset, emulated_settings
from foretail.pipelines.data.imports import import_key, import_log
from foretail.pipelines.data.simulation import (
    DRIVER_FORMAT,
    KeepsRuns,
    Simulates,
    Simulator,
    counters,
    driver_config,
    packets_per_cpu_second,
    reporting,
    settings_that_matter,
    simulate_dataset,
    simulator_of,
)
from foretail.pipelines.runs.points import Report, run_jobs
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Entry, Key, Store
from foretail.sim_bridge.arrivals.files import AVERAGE_SHIFT, Slotted
from foretail.sim_bridge.arrivals.workloads import Workload, workload_of
from foretail.sim_bridge.circuits.schedules import Schedule, round_robin
from foretail.sim_bridge.emulator.emulator import EMULATOR, run_emulator
from foretail.sim_bridge.native.driver import collect_dataset
from foretail.sim_bridge.open_loop.dataset import arrivals_in_bytes, slotted_run, write_open_loop_dataset
from foretail.sim_bridge.packets.cost import HEADER_BYTES
from foretail.sim_bridge.packets.simulation import PacketRun


def circuit_schedule(fabric: RackFabric) -> Schedule:
    """The schedule of a fabric; ForetailError when it cannot be read, or is one of other racks or of several uplinks.

    Without a file it is the round robin over all racks.
    """
    if fabric.schedule is None:
        return round_robin(fabric.racks, 1)
    with readable(f"the schedule {fabric.schedule}", "name a schedule.json"):
        schedule = read_json(Path(fabric.schedule).read_text(encoding="utf-8"))
    if schedule.nodes != fabric.racks:
        raise ForetailError(
            f"the schedule {fabric.schedule} is one of {schedule.nodes} nodes, and the fabric has {fabric.racks} "
            "racks: set racks to its number, or schedule for as many"
        )
    if schedule.degree != 1:
        raise ForetailError(
            f"the schedule {fabric.schedule} has degree {schedule.degree}, and a rack has one circuit at a time: make "
            "it with degree=1"
        )
    return schedule


def period_ns(fabric: RackFabric, schedule: Schedule) -> int:
    """Time in which a schedule passes once."""
    return schedule.period * (fabric.day_ns + fabric.night_ns)


@dataclass(frozen=True)
class SharedVoqs:
    """A buffer that all VOQs of a rack share."""

    policy: str  #: of ``SHARED_POLICIES``
    packets: int  #: its size, in full ones
    alpha: float  #: of dt
    library: Path | None = None  #: what ``credence`` asks
    trace: bool = False  #: whether there is a trace of all arrivals

    def settings(self, packet_bytes: int) -> dict[str, Any]:
        """The group ``buffer`` of a document."""
        return {
            "policy": self.policy.removesuffix("_accept"),
            "bytes": self.packets * packet_bytes,
            "alpha": self.alpha,
            "library": str(self.library.absolute()) if self.library is not None and self.policy == "credence" else None,
            "tau": None,
            "trace": self.trace,
        }


def rack_document(
    traffic: RackTraffic,
    schedule: Schedule,
    *,
    transport: str,
    weeks: int,
    seed: int,
    voq_packets: int | None = None,
    resize: tuple[int, int] | None = None,
    shared: SharedVoqs | None = None,
) -> dict[str, Any]:
    """The document of one run; ForetailError when it could say nothing about the circuits of its flows.

    Parameters
    ----------
    transport : congestion control of simulated hosts
    weeks : length, in periods of the schedule
    seed : of the starts of flows
    voq_packets : capacity of a VOQ; None: they share a buffer
    resize : it grows to so many packets so many ns before its circuit; None: it stays
    """
    fabric = traffic.fabric
    source, destinations = traffic.source_rack - 1, [rack - 1 for rack in traffic.destination_racks]
    period = period_ns(fabric, schedule)
    for destination in destinations:
        if not schedule.edges[source, destination]:
            raise ForetailError(
                f"the schedule never gives rack {source + 1} a circuit to rack {destination + 1}: choose other racks "
                "or another schedule"
            )
    if resize is not None and resize[1] >= period:
        raise ForetailError(
            f"a VOQ cannot grow {resize[1]} ns before its circuit, for the schedule comes round in {period} ns: lower "
            "ahead_ns"
        )
    if shared is not None:
        _require_fits(fabric, shared.packets * traffic.packet_bytes)
    racks = {name: value for name, value in asdict(fabric).items() if name != "schedule"}
    return {
        "format": DRIVER_FORMAT,
        "racks": racks
        | {
            "matchings": schedule.matchings[:, 0].tolist(),
            "voq_packets": voq_packets,
            "buffer": None if shared is None else shared.settings(traffic.packet_bytes),
            "resize": None if resize is None else {"packets": resize[0], "ahead_ns": resize[1]},
        },
        "flows": {
            "source": [source] * len(destinations),
            "destination": destinations,
            "flows_per_pair": traffic.flows,
            "start_within_ns": traffic.start_within_ns,
            "seed": seed,
        },
        "transport": {
            "name": transport,
            "segment_bytes": traffic.packet_bytes - HEADER_BYTES,
            "initial_window_segments": traffic.initial_window_segments,
            "min_rto_ns": traffic.min_rto_ns,
            "delayed_ack_segments": traffic.delayed_ack_segments,
        },
        "traffic_ns": weeks * period,
    }


def _require_fits(fabric: RackFabric, buffer_bytes: int) -> None:
    """Raise ForetailError unless a shared buffer, and a day of a circuit, have room for the largest packet."""
    if not LARGEST_PACKET_BYTES <= buffer_bytes <= LARGEST_BUFFER_BYTES:
        raise ForetailError(
            f"a shared buffer has {buffer_bytes} bytes, and a switch {LARGEST_PACKET_BYTES} to {LARGEST_BUFFER_BYTES}: "
            "change shared_packets or packet_bytes"
        )
    if fabric.day_ns * fabric.circuit_bps < LARGEST_PACKET_BYTES * 8 * 10**9:  # it might wait for ever
        raise ForetailError(
            f"a circuit of {fabric.circuit_bps} bit/s cannot send a packet of {LARGEST_PACKET_BYTES} bytes in a day of "
            f"{fabric.day_ns} ns: raise fabric.day_ns"
        )


def traced_racks(traces: RackTraces, seed: int) -> dict[str, Any]:
    """The document of a run with a trace; ForetailError as :func:`rack_document`."""
    return rack_document(
        traces,
        circuit_schedule(traces.fabric),
        transport=traces.transport,
        weeks=traces.weeks,
        seed=seed,
        shared=SharedVoqs(traces.policy, traces.shared_packets, traces.alpha, trace=True),
    )


def simulate_rack_dataset(document: Mapping[str, Any], folder: Path, simulator: Simulator, report: Report) -> None:
    """Simulate it and write the labelled dataset to `folder`."""
    own = ("voq_packets", "buffer", "resize")  # what switches do with packets, not which are offered
    flows = document["flows"]
    scenario = {
        "name": "racks",
        "racks": {name: value for name, value in document["racks"].items() if name not in own},
        "racks_with_hosts": sorted({*flows["source"], *flows["destination"]}),
        "flows": {name: value for name, value in flows.items() if name != "seed"},
        "transport": document["transport"],
        "traffic_ns": document["traffic_ns"],
        "topology": {"wire_overhead_bytes": 0},
    }
    collect_dataset(
        document,
        folder,
        scenario=scenario,
        progress=reporting(report),
        executable=simulator.driver(report),
        simulate=simulator.run,
    )


def slotted_key(settings: SlottedTraffic, seed: int) -> dict[str, Any]:
    """Everything that the dataset of a seed depends on."""
    code = code_digest("sim_bridge.arrivals", write_open_loop_dataset, slotted_run)
    document = {"run": asdict(replace(run_in(settings, seed), versions={})), "code": code}
    source = source_sha256(type(workload_in(settings)))
    return document if source is None else {**document, "plugin": source}


def write_slotted(settings: SlottedTraffic, seed: int, dataset: Path, report: Report) -> dict[str, int]:
    """Write the workload's packets as `dataset`; return them by outcome.

    ForetailError if there is no packet.
    """
    workload = workload_in(settings)
    batches = workload.batches(settings.ports, settings.ports * settings.buffer_per_port, settings.slots, seed)
    first = next(batches, None)
    if first is None:
        raise ForetailError(
            f"slotted.workload = {settings.workload} sends no packet in {settings.slots} slots with seed {seed}: raise "
            "slotted.slots or its load"
        )

    def reported() -> Iterator[Slotted]:
        for batch in chain([first], batches):
            last = int(batch.slot[-1]) + 1
            report(last / settings.slots, f"{last:,} of {settings.slots:,} slots")
            yield batch

    return write_open_loop_dataset(dataset, run_in(settings, seed), arrivals_in_bytes(reported()))


def workload_in(settings: SlottedTraffic) -> Workload:
    """The workload that settings name."""
    return workload_of(settings.workload, settings.settings)


def run_in(settings: SlottedTraffic, seed: int) -> Run:
    """The description of the run of a seed."""
    shift = settings.features.average_shift
    return slotted_run(
        workload_in(settings),
        settings.ports,
        settings.buffer_per_port,
        settings.slots,
        seed,
        cell_bytes=settings.features.cell_bytes,
        average_shift=AVERAGE_SHIFT if shift is None else shift,
    )


DATASET = "dataset"
FIGURES_FILE = "figures.json"
"""File beside a dataset, with the figures that making it gave without a run of packets."""
READINGS_FILE = "readings.json"
"""File beside a dataset, with what its inputs have and it does not use."""


@dataclass(frozen=True)
class CollectedRun:
    """One dataset of the store."""

    seed: int  #: of the run
    path: Path  #: dataset folder
    content_sha256: str  #: hash of its content
    rows: int  #: labelled rows
    drops: int  #: drops among them
    control_rows: int  #: packets without a label
    reused: bool  #: it was in the store
    seconds: float  #: wall time of making it, now or earlier
    counters: Mapping[str, int]  #: drops by reason and other counters, over all switches
    cpu_seconds: float | None  #: CPU time of the simulator, trace writing included; None without one
    packets_per_cpu_second: float | None  #: data packets that arrived at leaves, per CPU second; None as well
    imported: Mapping[str, Any] | None = None  #: of an import the log, its hash and what was found in it


Make = Callable[[Path, Report], dict[str, Any] | None]
"""Makes a dataset in a folder; returns its figures where there is no run of packets beside it."""


def collect_runs(
    config: Simulates, scenario: Scenario, policy: Policy, seeds: Sequence[int]
) -> tuple[CollectedRun, ...]:
    """The datasets of `seeds`, in that order; what the store does not have is simulated in the network of `config`."""
    simulator = simulator_of(config)

    def dataset_of(seed: int) -> tuple[dict[str, Any], Make]:
        document = driver_config(scenario, policy, seed, trace=True)
        code = [simulator.driver_sha256, code_digest(collect_dataset)]
        depends_on = {"driver": settings_that_matter(document), **simulator.program.identity, "code": code}
        return depends_on, lambda folder, report: simulate_dataset(document, scenario, folder, simulator, report)

    return _collected({f"seed {seed}": seed for seed in seeds}, dataset_of, config, config.jobs or 1)


def made_runs(config: CollectConfig) -> tuple[CollectedRun, ...]:
    """The datasets of the seeds or logs of a source, in that order, from the store or made now."""
    names = {f"seed {seed}": seed for seed in config.seeds}
    if config.source == "scenario":
        ((_, policy),) = config.policy.items()
        if isinstance(config.network, EmulatorNetwork):
            return _collected(names, partial(_emulated, config.scenario, policy, config.network), config, config.jobs)
        return collect_runs(config, config.scenario, policy, config.seeds)
    if config.source == "racks":
        return _collected(names, partial(_racks, config, simulator_of(config)), config, config.jobs)
    if config.source == "slotted":
        return _different(_collected(names, partial(_slotted, config), config, config.jobs), config)
    logs: list[Path | None] = [Path(log) for log in config.logs] or [None]
    log_of = dict(zip(config.seeds, logs, strict=True))
    names = {f"{log or 'captures'}, number {seed}": seed for seed, log in log_of.items()}
    return _collected(names, lambda seed: _imported(config, log_of[seed], seed), config, config.jobs)


def _collected(
    names: Mapping[str, int], dataset_of: Callable[[int], tuple[dict[str, Any], Make]], config: KeepsRuns, jobs: int
) -> tuple[CollectedRun, ...]:
    """The datasets of seeds, by their names for the progress; what the store does not have is made.

    `dataset_of` says of a seed what its dataset depends on, and how it is made.
    """
    store = Store(config.store_dir)

    def task(seed: int, report: Report) -> CollectedRun:
        depends_on, make = dataset_of(seed)

        def build(folder: Path) -> None:
            with telling() as readings:  # stored, so that a reused dataset has them too
                figures = make(folder / DATASET, report)
            if figures is not None:
                write_file(folder / FIGURES_FILE, json.dumps(figures, indent=1) + "\n")
            if readings:
                write_file(folder / READINGS_FILE, json.dumps([asdict(reading) for reading in readings]) + "\n")

        return _described(seed, store.get_or_build(Key(DATASET, depends_on), build))

    tasks = {name: lambda report, seed=seed: task(seed, report) for name, seed in names.items()}
    return tuple(run_jobs(tasks, jobs).values())


def _emulated(scenario: Scenario, policy: Policy, network: EmulatorNetwork, seed: int) -> tuple[dict[str, Any], Make]:
    """Two emulations of one seed differ, as two runs of a program on a machine do; the store keeps the first."""
    document = emulated_settings(scenario, policy, seed, network, trace=True)
    code = [EMULATOR.digest(), code_digest(collect_dataset, run_emulator)]
    return {"emulator": settings_that_matter(document), "code": code}, lambda folder, report: emulate_dataset(
        document, scenario, folder, report
    )


def _racks(config: CollectConfig, simulator: Simulator, seed: int) -> tuple[dict[str, Any], Make]:
    document = traced_racks(config.racks, seed)
    code = [simulator.driver_sha256, code_digest(collect_dataset)]
    depends_on = {"racks": document, **simulator.program.identity, "code": code}
    return depends_on, lambda folder, report: simulate_rack_dataset(document, folder, simulator, report)


def _slotted(config: CollectConfig, seed: int) -> tuple[dict[str, Any], Make]:
    return slotted_key(config.slotted, seed), lambda folder, report: {
        "counters": write_slotted(config.slotted, seed, folder, report)
    }


def _imported(config: CollectConfig, log: Path | None, seed: int) -> tuple[dict[str, Any], Make]:
    depends_on = import_key(config, log, seed)
    return depends_on, lambda folder, report: import_log(config, depends_on, log, folder, report)


def _different(runs: tuple[CollectedRun, ...], config: CollectConfig) -> tuple[CollectedRun, ...]:
    """The datasets of a workload; ForetailError when two seeds draw the same."""
    seeds: dict[str, int] = {}
    for run in runs:
        if run.content_sha256 in seeds:
            raise ForetailError(
                f"slotted.workload = {config.slotted.workload} has the same packets with seeds "
                f"{seeds[run.content_sha256]} and {run.seed}, which would count twice: give one of them"
            )
        seeds[run.content_sha256] = run.seed
    return runs


def dataset_table(runs: Sequence[CollectedRun]) -> Table:
    """Rows, drops and speed of each run, and its folder, seen from the present one where it lies below that."""
    here = f"{Path.cwd()}/"
    rows = [
        {
            "seed": str(run.seed),
            "rows": run.rows,
            "drops": run.drops,
            "drop %": 100 * run.drops / run.rows if run.rows else None,
            "packets per CPU s": run.packets_per_cpu_second,
            "seconds": run.seconds,
            "dataset": f"{str(run.path).removeprefix(here)}{' (reused)' if run.reused else ''}",
        }
        for run in runs
    ]
    notes = (note for run in runs if run.imported is not None for note in _notes(run.imported, run.seed))
    return Table.of_rows("Datasets", rows, *notes)


def _notes(imported: Mapping[str, Any], seed: int) -> list[str]:
    """Notes for a reader of an import's labels."""
    survey = imported["survey"]
    if not survey:
        return [f"{seed}: rows in the order of their fates, for training and scores only"]
    notes = [
        f"{seed}: labels of an open-loop replay, to which no sender reacted; docs/guide/data.md says what is missing"
    ]
    if survey.get("active_ports") == 1:
        notes.append(f"{seed}: one port was active, so nothing is shared and LQD is a tail drop")
    if "active_voqs" in survey and survey["active_voqs"] <= survey["racks"]:
        notes.append(
            f"{seed}: {survey['active_voqs']} VOQs were active among {survey['racks']} racks: little is shared"
        )
    return notes


def _described(seed: int, entry: Entry) -> CollectedRun:
    dataset = Dataset.open(entry.path / DATASET)
    manifest = dataset.manifest
    figures: dict[str, Any] = entry.document(FIGURES_FILE) if (entry.path / FIGURES_FILE).exists() else {}
    run = None if figures else PacketRun.open(dataset.path / "run")
    for reading in entry.document(READINGS_FILE) if (entry.path / READINGS_FILE).exists() else ():
        Reading(**reading).tell()
    return CollectedRun(
        seed=seed,
        path=dataset.path,
        content_sha256=manifest.content_sha256,
        rows=manifest.rows,
        drops=manifest.drops,
        control_rows=manifest.control_rows,
        reused=entry.reused,
        seconds=entry.seconds,
        counters=figures["counters"] if run is None else counters(run),
        cpu_seconds=None if run is None else run.summary["simulation_cpu_seconds"],
        packets_per_cpu_second=None if run is None else packets_per_cpu_second(run),
        imported=figures if "log" in figures else None,
    )
