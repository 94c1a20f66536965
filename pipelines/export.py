"""``foretail export``: turn a trained ensemble into C, proven equivalent."""

from __future__ import annotations

import os
import platform
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig

from foretail.configs.schema import ExportConfig, Tracking, register
from foretail.export.build import find_compiler
from foretail.export.c import export_c
from foretail.export.equivalence import Certificate
from foretail.features.errors import ForetailError
from foretail.models.ensemble import Ensemble
from foretail.models.tracking import load_ensemble
from foretail.pipelines import cli, stage
from foretail.pipelines.result import Table
from foretail.pipelines.store import Key, Store, code_digest

register()

EXPORT = "export"
NAME = "drop_predictor"
ENSEMBLE_FILE = "ensemble.json"


@dataclass(frozen=True)
class ExportedPredictor:
    """A proven C predictor on disk.

    Attributes
    ----------
    folder : holds <name>.h, <name>.c, the library, certificate.json and ensemble.json
    library : the shared object for the simulators
    certificate : what was proven
    trees, leaves : size of the ensemble
    reused : it was in the store
    seconds : wall time of export and proof, now or earlier
    """

    folder: Path
    library: Path
    certificate: Certificate
    trees: int
    leaves: int
    reused: bool
    seconds: float


@dataclass(frozen=True)
class ExportResult:
    """What ``export`` wrote."""

    predictor: ExportedPredictor

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        return {"export": asdict(self.predictor)}

    def tables(self) -> list[Table]:
        """Size and proof."""
        return [export_table(self.predictor)]


def export(config: ExportConfig, run_dir: Path) -> ExportResult:
    """Export, compile and prove `config.model` into `config.out`, or into the folder ``c`` of the run."""
    ensemble = load_model(config.model, config.tracking, Store(config.store_dir))
    out = Path(config.out) if config.out is not None else run_dir / config.target
    started = time.monotonic()
    export_c(ensemble, out, NAME)
    return ExportResult(_described(out, ensemble, False, time.monotonic() - started))


def export_to_store(ensemble: Ensemble, store: Store) -> ExportedPredictor:
    """The C predictor of `ensemble` from the store, exported now when it is not there."""
    key = Key(
        EXPORT,
        {
            "ensemble": ensemble.sha256,
            "compiler": find_compiler(),
            "machine": platform.machine(),
            "system": platform.system(),
            "code": code_digest("export", "models"),
        },
    )
    entry = store.get_or_build(key, lambda folder: _export_into(ensemble, folder / EXPORT))
    return _described(entry.path / EXPORT, ensemble, entry.reused, entry.seconds)


def load_model(model: str, tracking: Tracking, store: Store) -> Ensemble:
    """The ensemble of a JSON file, of a folder that holds ``ensemble.json``, or of a ``models:/`` address in MLflow."""
    if model.startswith("models:/"):
        return load_ensemble(model, tracking_uri(tracking, store))
    path = Path(model)
    if path.is_dir():
        path = path / ENSEMBLE_FILE
    if not path.is_file():
        raise ForetailError(
            f"there is no model {path}: give an ensemble's JSON file, a train run's folder or models:/NAME@ALIAS"
        )
    return Ensemble.load(path)


def tracking_uri(tracking: Tracking, store: Store) -> str:
    """The configured tracking server, else ``MLFLOW_TRACKING_URI``, else an SQLite file beside the store."""
    beside_store = f"sqlite:///{store.folder.parent / 'mlflow.db'}"
    return tracking.uri or os.environ.get("MLFLOW_TRACKING_URI") or beside_store


def export_table(predictor: ExportedPredictor) -> Table:
    """Size and proof of an exported predictor."""
    certificate = predictor.certificate
    covers = "any tau" if certificate.order else f"tau in {certificate.taus}"
    return Table(
        "C predictor",
        ("trees", "leaves", "cells proven", "covers", "vote bits", "float differs on", "seconds", "folder"),
        (
            (
                predictor.trees,
                predictor.leaves,
                certificate.cells,
                covers,
                certificate.vote_bits,
                certificate.float_decides_otherwise,
                predictor.seconds,
                f"{predictor.folder}{' (reused)' if predictor.reused else ''}",
            ),
        ),
    )


def _export_into(ensemble: Ensemble, folder: Path) -> None:
    export_c(ensemble, folder, NAME)


def _described(folder: Path, ensemble: Ensemble, reused: bool, seconds: float) -> ExportedPredictor:
    return ExportedPredictor(
        folder=folder,
        library=folder / f"{NAME}.so",
        certificate=Certificate.load(folder / "certificate.json"),
        trees=len(ensemble.trees),
        leaves=sum(len(tree.leaves) for tree in ensemble.trees),
        reused=reused,
        seconds=seconds,
    )


@hydra.main(version_base="1.3", config_path="pkg://foretail.configs", config_name="export")
def main(cfg: DictConfig) -> None:
    """Compose the settings and run the stage."""
    stage.run(cfg, ExportConfig, export)


if __name__ == "__main__":
    sys.exit(cli.main(["export", *sys.argv[1:]]))
