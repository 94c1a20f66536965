"""Datasets of a stage: simulated, drawn or imported unless the store has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from foretail.configs.schema.networks import EmulatorNetwork
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.core.files import write_file
from foretail.core.reading import Reading, telling
from foretail.features.dataset.reader import Dataset
from foretail.pipelines.data.emulation import emulate_dataset, emulated_settings
from foretail.pipelines.data.imports import import_key, import_log
from foretail.pipelines.data.racks import simulate_rack_dataset, traced_racks
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.data.simulation import (
    KeepsRuns,
    Simulates,
    Simulator,
    counters,
    packets_per_cpu_second,
    settings_that_matter,
    simulate_dataset,
    simulator_of,
)
from foretail.pipelines.data.slotted_traffic import slotted_key, write_slotted
from foretail.pipelines.runs.jobs import Report, run_jobs
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Entry, Key, Store
from foretail.sim_bridge.emulator.emulator import EMULATOR, run_emulator
from foretail.sim_bridge.native.driver import collect_dataset
from foretail.sim_bridge.packets.simulation import PacketRun

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
        depends_on = {"driver": settings_that_matter(document), **simulator.identity, "code": code}
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
    depends_on = {"racks": document, **simulator.identity, "code": code}
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
