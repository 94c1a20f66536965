"""Datasets of a stage: simulated, drawn or imported unless the store has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.core.files import write_file
from foretail.features.dataset.reader import Dataset
from foretail.pipelines.data.emulation import emulate_dataset, emulated_settings
from foretail.pipelines.data.imports import import_key, import_log
from foretail.pipelines.data.racks import simulate_rack_dataset, traced_racks
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.data.simulation import (
    Ns3,
    counters,
    packets_per_cpu_second,
    settings_that_matter,
    simulate_dataset,
)
from foretail.pipelines.data.slotted_traffic import slotted_key, write_slotted
from foretail.pipelines.runs.jobs import Report, run_jobs
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Entry, Key, Store
from foretail.sim_bridge.emulator.emulator import emulator_digest, run_emulator
from foretail.sim_bridge.ns3.collection import collect_dataset
from foretail.sim_bridge.packets.simulation import PacketRun

DATASET = "dataset"


FIGURES_FILE = "figures.json"
"""What was found while a dataset was made without ns-3, beside it."""


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
    cpu_seconds: float | None  #: CPU time of ns-3, trace writing included; None without ns-3
    packets_per_cpu_second: float | None  #: data packets that arrived at leaves, per CPU second; None without ns-3
    imported: Mapping[str, Any] | None = None  #: of an import the log, its hash and what was found in it


def collect_runs(
    scenario: Scenario, policy: Policy, seeds: Sequence[int], store: Store, ns3: Ns3, jobs: int
) -> tuple[CollectedRun, ...]:
    """The datasets of `seeds`, in that order; what the store does not have is simulated, `jobs` at a time."""

    def task(seed: int, report: Report) -> CollectedRun:
        document = driver_config(scenario, policy, seed, trace=True)
        code = [ns3.driver_sha256, code_digest(collect_dataset)]
        key = Key(DATASET, {"driver": settings_that_matter(document), "ns3": ns3.version, "code": code})
        entry = store.get_or_build(
            key, lambda folder: simulate_dataset(document, scenario, folder / DATASET, ns3, report)
        )
        return _collected(seed, entry)

    tasks = {f"seed {seed}": lambda report, seed=seed: task(seed, report) for seed in seeds}
    return tuple(run_jobs(tasks, jobs).values())


def emulated_runs(config: CollectConfig, store: Store) -> tuple[CollectedRun, ...]:
    """The datasets of the seeds, in that order; what the store does not have is emulated, one after the other.

    Two emulations of one seed differ, as two runs of a program on a machine do; the store keeps the first.
    """
    ((_, policy),) = config.policy.items()

    def task(seed: int, report: Report) -> CollectedRun:
        document = emulated_settings(config.scenario, policy, seed, config.emulation, trace=True)
        code = [emulator_digest(), code_digest(collect_dataset, run_emulator)]
        key = Key(DATASET, {"emulator": settings_that_matter(document), "code": code})
        entry = store.get_or_build(
            key, lambda folder: emulate_dataset(document, config.scenario, folder / DATASET, report)
        )
        return _collected(seed, entry)

    tasks = {f"seed {seed}": lambda report, seed=seed: task(seed, report) for seed in config.seeds}
    return tuple(run_jobs(tasks, 1).values())


def rack_runs(config: CollectConfig, store: Store) -> tuple[CollectedRun, ...]:
    """The datasets of racks with circuits, in order of the seeds; what the store does not have is simulated."""
    ns3 = Ns3(config.ns3_prefix)

    def task(seed: int, report: Report) -> CollectedRun:
        document = traced_racks(config.racks, seed)
        code = [ns3.driver_sha256, code_digest(collect_dataset)]
        key = Key(DATASET, {"racks": document, "ns3": ns3.version, "code": code})
        entry = store.get_or_build(key, lambda folder: simulate_rack_dataset(document, folder / DATASET, ns3, report))
        return _collected(seed, entry)

    tasks = {f"seed {seed}": lambda report, seed=seed: task(seed, report) for seed in config.seeds}
    return tuple(run_jobs(tasks, config.jobs).values())


def slotted_runs(config: CollectConfig, store: Store) -> tuple[CollectedRun, ...]:
    """The datasets of the seeds, in that order; what the store does not have is drawn, `jobs` at a time.

    ForetailError if a seed draws nothing, or two the same.
    """

    def task(seed: int, report: Report) -> CollectedRun:
        key = Key(DATASET, slotted_key(config.slotted, seed))

        def draw(dataset: Path) -> dict[str, Any]:
            return {"counters": write_slotted(config.slotted, seed, dataset, report)}

        return _made(seed, store.get_or_build(key, lambda folder: _make(draw, folder)))

    tasks = {f"seed {seed}": lambda report, seed=seed: task(seed, report) for seed in config.seeds}
    runs = tuple(run_jobs(tasks, config.jobs).values())
    seeds: dict[str, int] = {}
    for run in runs:
        if run.content_sha256 in seeds:
            raise ForetailError(
                f"slotted.workload = {config.slotted.workload} has the same packets with seeds "
                f"{seeds[run.content_sha256]} and {run.seed}, which would count twice: give one of them"
            )
        seeds[run.content_sha256] = run.seed
    return runs


def import_runs(config: CollectConfig, store: Store) -> tuple[CollectedRun, ...]:
    """The datasets of the logs, in that order; what the store does not have is imported, `jobs` at a time."""

    def task(log: Path | None, seed: int, report: Report) -> CollectedRun:
        key = Key(DATASET, import_key(config, log, seed))

        def read(dataset: Path) -> dict[str, Any]:
            return import_log(config, key, log, dataset, report)

        return _made(seed, store.get_or_build(key, lambda folder: _make(read, folder)))

    logs: list[Path | None] = [Path(log) for log in config.logs] or [None]
    tasks = {
        f"{log or 'captures'}, number {seed}": lambda report, log=log, seed=seed: task(log, seed, report)
        for log, seed in zip(logs, config.seeds, strict=True)
    }
    return tuple(run_jobs(tasks, config.jobs).values())


def dataset_table(runs: Sequence[CollectedRun]) -> Table:
    """Rows, drops and speed of each run."""
    return Table(
        "Datasets",
        ("seed", "rows", "drops", "drop %", "packets per CPU s", "seconds", "dataset"),
        tuple(
            (
                str(run.seed),
                run.rows,
                run.drops,
                100 * run.drops / run.rows if run.rows else None,
                run.packets_per_cpu_second,
                run.seconds,
                f"{run.path}{' (reused)' if run.reused else ''}",
            )
            for run in runs
        ),
        tuple(note for run in runs if run.imported is not None for note in _notes(run.imported, run.seed)),
    )


def _notes(imported: Mapping[str, Any], seed: int) -> list[str]:
    """What a reader of an import's labels has to know."""
    found = imported["survey"]
    if not found:
        return [f"{seed}: rows in the order of their fates, for training and scores only"]
    notes = [
        f"{seed}: labels of an open-loop replay, to which no sender reacted; docs/guide/imports.md says what is missing"
    ]
    if found.get("without_ip"):
        notes.append(f"{seed}: {found['without_ip']:,} frames without IP, such as ARP, were left out")
    if found.get("active_ports") == 1:
        notes.append(f"{seed}: one port was active, so nothing is shared and LQD is a tail drop")
    if "active_voqs" in found and found["active_voqs"] <= found["racks"]:
        notes.append(f"{seed}: {found['active_voqs']} VOQs were active among {found['racks']} racks: little is shared")
    return notes


def _collected(seed: int, entry: Entry) -> CollectedRun:
    run = PacketRun.open(entry.path / DATASET / "run")
    return replace(
        _dataset(seed, entry, counters(run)),
        cpu_seconds=run.summary["simulation_cpu_seconds"],
        packets_per_cpu_second=packets_per_cpu_second(run),
    )


def _make(make: Callable[[Path], dict[str, Any]], folder: Path) -> None:
    """Make the dataset of `folder` and keep the figures beside it."""
    figures = make(folder / DATASET)
    write_file(folder / FIGURES_FILE, json.dumps(figures, indent=1) + "\n")


def _made(seed: int, entry: Entry) -> CollectedRun:
    figures = entry.document(FIGURES_FILE)
    return replace(_dataset(seed, entry, figures["counters"]), imported=figures if "log" in figures else None)


def _dataset(seed: int, entry: Entry, outcomes: Mapping[str, int]) -> CollectedRun:
    dataset = Dataset.open(entry.path / DATASET)
    manifest = dataset.manifest
    return CollectedRun(
        seed=seed,
        path=dataset.path,
        content_sha256=manifest.content_sha256,
        rows=manifest.rows,
        drops=manifest.drops,
        control_rows=manifest.control_rows,
        reused=entry.reused,
        seconds=entry.seconds,
        counters=outcomes,
        cpu_seconds=None,
        packets_per_cpu_second=None,
    )
