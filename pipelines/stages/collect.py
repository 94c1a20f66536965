"""``foretail collect``: simulate or emulate a scenario, draw a workload or import logs: a labelled dataset per seed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.core.summary import Summarised
from foretail.pipelines.data.collecting import CollectedRun, dataset_table, made_runs
from foretail.pipelines.runs.notes import say_if_no_drops
from foretail.pipelines.runs.result import Table


@dataclass(frozen=True, repr=False)
class CollectResult(Summarised):
    """Result of ``collect``, one run per seed."""

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
            *(["No network in use loses so much: lower the load, or send smaller bursts."] if 3 * drops > rows else []),
        ]

    def tables(self) -> list[Table]:
        """One row per dataset."""
        return [dataset_table(self.runs)]


def collect(config: CollectConfig, run_dir: Path) -> CollectResult:
    """One labelled dataset per seed, from the store, or made now."""
    runs = made_runs(config)
    say_if_no_drops({run.seed: (run.rows, run.drops) for run in runs})
    return CollectResult(runs)
