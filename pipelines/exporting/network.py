"""``foretail export model=RUN target=c`` of a network: C in integers, with a proven error."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretail.configs.schema.model_stages import ExportConfig
from foretail.features.dataset.reader import Dataset
from foretail.features.errors import ForetailError
from foretail.pipelines.data.inputs import refuse_window
from foretail.pipelines.exporting.predictor import NAME, model_rows
from foretail.pipelines.runs.result import Table
from foretail.pipelines.tracking.loading import ENSEMBLE_FILE, NETWORK_FILE, load_network

if TYPE_CHECKING:
    from foretail.export.network import NetworkCertificate


@dataclass(frozen=True)
class NetworkExport:
    """What was written.

    Attributes
    ----------
    folder : holds the C files, the library, model.onnx and certificate.json
    certificate : what is known about them
    seconds : wall time
    """

    folder: Path
    certificate: NetworkCertificate
    seconds: float

    def document(self) -> dict[str, Any]:
        return {"export": asdict(self)}

    def tables(self) -> list[Table]:
        """The error that is proven and what the code costs, then the rows of the dataset."""
        found = self.certificate
        ends = sorted({top.bit_length() for top in found.largest.values()})
        proof = Table(
            "Network in C, in integers",
            ("error in logits", "in probability", "inputs of bits", "multiplications", "bytes", "seconds"),
            (
                (
                    found.error_logit,
                    found.error_probability,
                    ", ".join(map(str, ends)),
                    found.multiplications,
                    found.table_bytes,
                    self.seconds,
                ),
            ),
            (
                "error: proven for every input of so many bits, against the float32 network in exact arithmetic",
                f"folder: {self.folder}",
            ),
        )
        if found.on_rows is None:
            return [proof]
        on_rows = asdict(found.on_rows)
        columns = ("rows", "decide_otherwise", "out_of_range", "probability_difference", "f1", "network_f1")
        names = ("rows", "decide otherwise", "out of range", "probability differs by", "F1 in C", "F1 of the network")
        return [proof, Table("On the dataset", names, (tuple(on_rows[column] for column in columns),))]


def is_network(model: str) -> bool:
    """Whether `model` is a network's file, or a run's folder that holds one and no trees."""
    path = Path(model)
    if path.is_dir():
        return (path / NETWORK_FILE).is_file() and not (path / ENSEMBLE_FILE).is_file()
    return path.suffix == ".onnx" and path.is_file()


def export_network_predictor(config: ExportConfig, run_dir: Path) -> NetworkExport:
    """Export `config.model` into `config.out`, or into a folder of the target's name in the run."""
    given = {
        "inputs": config.inputs,
        "columns": config.columns,
        "c.tune": config.c.tune,
        "c.shape": config.c.shape != "auto",
        "c.batch": config.c.batch != "auto",
    }
    for setting, value in given.items():
        if value:
            raise ForetailError(f"{setting} is for trees and {config.model} is a network: leave it out")
    started = time.monotonic()
    path = Path(config.model)
    network = load_network(path / NETWORK_FILE if path.is_dir() else path)
    refuse_window(network.features, config.model)
    from foretail.export.network import export_network  # its packages are an extra

    rows = None if config.dataset is None else model_rows(network.features, Dataset.open(Path(config.dataset)))
    out = Path(config.out) if config.out is not None else run_dir / config.target
    certificate = export_network(network, out, config.name or NAME, input_bits=config.c.input_bits, rows=rows)
    return NetworkExport(out, certificate, time.monotonic() - started)
