"""``foretail collect``: simulate or emulate a scenario, draw a workload or import logs: a labelled dataset per seed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.pipelines.data.collecting import (
    CollectedRun,
    collect_runs,
    dataset_table,
    emulated_runs,
    import_runs,
    rack_runs,
    slotted_runs,
)
from foretail.pipelines.data.simulation import Ns3
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Store
from foretail.pipelines.runs.zeros import say_if_no_drops


@dataclass(frozen=True)
class CollectResult:
    """What ``collect`` made, one run per seed."""

    runs: tuple[CollectedRun, ...]

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        return {"runs": [asdict(run) for run in self.runs]}

    def verdict(self) -> list[str]:
        """How many packets there are, and what a model that learns nothing is right on."""
        rows, drops = sum(run.rows for run in self.runs), sum(run.drops for run in self.runs)
        many = f"{len(self.runs)} dataset{'s' if len(self.runs) > 1 else ''}"
        if not rows or not drops:
            return [f"LQD drops none of the {rows:,} packets of {many}, so there is nothing to learn."]
        return [
            f"LQD drops {drops:,} of {rows:,} packets, {100 * drops / rows:.3g} %, in {many}.",
            f"A predictor that never drops is right on {100 - 100 * drops / rows:.6g} % of them: judge one by F1.",
        ]

    def tables(self) -> list[Table]:
        """One row per dataset."""
        return [dataset_table(self.runs)]


def collect(config: CollectConfig, run_dir: Path) -> CollectResult:
    """One labelled dataset per seed, from the store, or made now."""
    runs = _runs(config, Store(config.store_dir))
    say_if_no_drops({run.seed: (run.rows, run.drops) for run in runs})
    return CollectResult(runs)


def _runs(config: CollectConfig, store: Store) -> tuple[CollectedRun, ...]:
    if config.source == "slotted":
        return slotted_runs(config, store)
    if config.source == "emulator":
        return emulated_runs(config, store)
    if config.source == "racks":
        return rack_runs(config, store)
    if config.source != "ns3":
        return import_runs(config, store)
    ((_, policy),) = config.policy.items()
    return collect_runs(config.scenario, policy, config.seeds, store, Ns3(config.ns3_prefix), config.jobs)
