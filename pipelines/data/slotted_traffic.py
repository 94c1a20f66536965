"""Workloads of the slotted model as datasets of the store, behind ``foretail collect source=slotted``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

from foretail.configs.schema.network.sources import SlottedTraffic
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.core.plugins import source_sha256
from foretail.features.dataset.schema import Run
from foretail.pipelines.runs.jobs import Report
from foretail.sim_bridge.arrivals.files import AVERAGE_SHIFT, Slotted
from foretail.sim_bridge.arrivals.workloads import Workload, workload_of
from foretail.sim_bridge.open_loop.dataset import arrivals_in_bytes, slotted_run, write_open_loop_dataset


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
