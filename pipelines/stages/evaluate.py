"""``foretail evaluate``: buffer policies on the same flows in a network, paired by traffic seed."""

from __future__ import annotations

from pathlib import Path

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.pipelines import stage
from foretail.pipelines.evaluating import evaluate_in_network


def evaluate(config: EvaluateConfig, run_dir: Path) -> stage.StageResult:
    """Compare policies in a simulator or in the emulator."""
    return evaluate_in_network(config, run_dir)
