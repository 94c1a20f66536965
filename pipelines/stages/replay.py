"""``foretail replay``: buffer policies on given arrivals, open loop: slotted ones in a file, or recorded datasets."""

from __future__ import annotations

from pathlib import Path

from foretail.configs.schema.packet_stages import ReplayConfig
from foretail.pipelines import stage
from foretail.pipelines.comparison.arrivals import replay_arrivals
from foretail.pipelines.comparison.datasets import replay_datasets


def replay(config: ReplayConfig, run_dir: Path) -> stage.StageResult:
    """Compare policies on the file of arrivals, or else on the datasets."""
    return replay_arrivals(config) if config.arrivals is not None else replay_datasets(config)
