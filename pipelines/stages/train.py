"""``foretail train``: fit a drop predictor, choose its operating point, score it, track it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from foretail.configs.schema.model_stages import TrainConfig
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.tracking import ENSEMBLE_FILE, NETWORK_FILE
from foretail.pipelines.training.fitting import TrainResult, register, say_zeros, train_model


def train(config: TrainConfig, run_dir: Path) -> TrainResult:
    """Train on the configured datasets; ``ensemble.json`` or ``model.onnx`` goes to the run folder as well."""
    result = train_model(config)
    say_zeros(result.model, result.outcome["scores"])
    run_dir.mkdir(parents=True, exist_ok=True)
    result.model.save(run_dir / (ENSEMBLE_FILE if isinstance(result.model, Ensemble) else NETWORK_FILE))
    return replace(result, registered=register(config, result))
