"""``foretail export``: turn a trained ensemble into C, P4 or ONNX, proven equal; a network or a demand predictor."""

from __future__ import annotations

from pathlib import Path

from foretail.configs.schema.model_stages import ExportConfig
from foretail.core.errors import ForetailError
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.registry import not_trees
from foretail.pipelines.exporting.demand import DemandExport, export_demand_predictor, is_demand_predictor
from foretail.pipelines.exporting.network import NetworkExport, export_network_predictor
from foretail.pipelines.exporting.predictor import ExportResult, export_drop_predictor, given_model


def export(config: ExportConfig, run_dir: Path) -> ExportResult | NetworkExport | DemandExport:
    """Export a drop predictor or a demand predictor; a network goes to C alone."""
    if is_demand_predictor(config.model):
        return export_demand_predictor(config, run_dir)
    model = given_model(config)
    if isinstance(model, Ensemble):
        return export_drop_predictor(config, run_dir, model)
    if config.target == "onnx":
        raise ForetailError(f"{config.model} is a network, and its ONNX file is the export: take that file")
    if config.target != "c":
        raise not_trees(config.model)
    return export_network_predictor(model, config, run_dir)
