"""``foretail export``: turn a trained ensemble into C, P4 or ONNX, proven equal; a network or a demand predictor."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from foretail.configs.schema.model_stages import ExportConfig
from foretail.core.errors import ForetailError
from foretail.export.demand import DemandCertificate, export_demand
from foretail.models.demand.predictor_file import SCHEMA, load
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.registry import not_trees
from foretail.pipelines.exporting.network import NetworkExport, export_network_predictor
from foretail.pipelines.exporting.predictor import ExportResult, export_drop_predictor, given_model
from foretail.pipelines.runs.result import Cell, Table

NAME = "demand_predictor"


@dataclass(frozen=True)
class DemandExport:
    """Files of an exported demand predictor."""

    folder: Path  #: holds the target's files, predictor.json and certificate.json
    certificate: DemandCertificate  #: what is known about them
    seconds: float  #: wall time

    def document(self) -> dict[str, Any]:
        return {"export": asdict(self)}

    def verdict(self) -> list[str]:
        """How far the code is from the predictor."""
        proof = self.certificate
        if proof.target == "c":
            reach = (
                "any history" if proof.largest_uplinks is None else f"histories up to {proof.largest_uplinks} uplinks"
            )
            return [
                f"No entry that the C predicts is farther than {proof.error_uplinks} uplinks from the predictor's.",
                f"That is proven for {reach}, before the projection into the hose model.",
            ]
        return [
            f"On random histories no entry of the ONNX graph differs by more than {proof.relative_difference:.3g}, "
            "relative to the largest value.",
            f"That is a check, no proof; {proof.tolerance:.3g} is allowed.",
        ]

    def tables(self) -> list[Table]:
        """The error that is proven, or the difference that was met."""
        proof = self.certificate
        if proof.target == "c":
            reach = "any history" if proof.largest_uplinks is None else f"histories up to {proof.largest_uplinks}"
            row: dict[str, Cell] = {"error in uplinks": proof.error_uplinks, "holds for": reach}
            row |= {"fraction bits": proof.fraction_bits}
            note = "error: proven, of every entry, before the projection into the hose model"
        else:
            row = {"relative difference": proof.relative_difference, "allowed": proof.tolerance}
            note = "difference: the largest met on random histories, before the projection into the hose model"
        title = f"Demand predictor in {'C' if proof.target == 'c' else 'ONNX'}"
        whole = {"predictor": proof.kind, **row, "seconds": self.seconds}
        return [Table.of_rows(title, [whole], note, f"folder: {self.folder}")]


def export_demand_predictor(config: ExportConfig, run_dir: Path) -> DemandExport:
    """Export `config.model` into `config.out`, or into a folder of the target's name in the run."""
    given = {"inputs": config.inputs, "columns": config.columns, "dataset": config.dataset, "c.tune": config.c.tune}
    for setting, value in given.items():
        if value:
            raise ForetailError(f"{setting} is for drop predictors and {config.model} predicts demand: leave it out")
    started = time.monotonic()
    out = Path(config.out) if config.out is not None else run_dir / config.target
    proof = export_demand(
        load(Path(config.model)),
        config.target,
        out,
        config.name or NAME,
        max_error_uplinks=config.demand.max_error_uplinks,
        largest_uplinks=config.demand.largest_uplinks,
    )
    return DemandExport(out, proof, time.monotonic() - started)


def export(config: ExportConfig, run_dir: Path) -> ExportResult | NetworkExport | DemandExport:
    """Export a drop predictor or a demand predictor; a network goes to C alone."""
    path = Path(config.model)
    if path.is_file() and f'"{SCHEMA}"'.encode() in path.read_bytes():
        return export_demand_predictor(config, run_dir)
    model = given_model(config)
    if isinstance(model, Ensemble):
        return export_drop_predictor(config, run_dir, model)
    if config.target == "onnx":
        raise ForetailError(f"{config.model} is a network, and its ONNX file is the export: take that file")
    if config.target != "c":
        raise not_trees(config.model)
    return export_network_predictor(model, config, run_dir)
