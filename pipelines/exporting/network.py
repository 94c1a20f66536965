"""Networks as C in integers, with a proven error, and predictors of every kind as they decide in a simulated switch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from foretail.configs.schema.model_stages import ExportConfig
from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.features.catalog import feature, training_columns
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.scorers import NobodyDecides, asking_policy, decides_in_replay, scorer_of
from foretail.models.mlflow.tracking import NETWORK_TAG
from foretail.pipelines.data.inputs import open_dataset
from foretail.pipelines.runs.notes import say
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Store
from foretail.sim_bridge._native import Scorer, function_scorer, library_scorer
from foretail.sim_bridge.open_loop.live import CheckedPredictor
from foretail.sim_bridge.open_loop.scores import Decider
from foretail.sim_bridge.python_policies import PythonPolicy

if TYPE_CHECKING:
    from foretail.export.network import NetworkCertificate
    from foretail.models.drop.network import Network
    from foretail.pipelines.exporting.predictor import ExportedPredictor


@dataclass(frozen=True, repr=False)
class NetworkExport(Summarised):
    """Files of an exported network."""

    folder: Path  #: holds the C files, the library, model.onnx and certificate.json
    name: str  #: prefix of the files
    certificate: NetworkCertificate  #: what is known about them
    reused: bool  #: it was in the store
    seconds: float  #: wall time, now or earlier

    @property
    def library(self) -> Path:
        """The shared object for the simulators."""
        return self.folder / f"{self.name}.so"

    @property
    def made_of(self) -> tuple[str, str]:
        """Tag and hash under which MLflow knows the network."""
        return NETWORK_TAG, self.certificate.network_sha256

    def sentence(self, otherwise: int | None = None, rows: int | None = None) -> str:
        """Comparison of the C with its network; on how many rows it decides otherwise, where that was counted."""
        proof = self.certificate
        counted = (
            "on how many packets it decides otherwise, foretail replay datasets=[...] with this model counts"
            if otherwise is None
            else f"on {otherwise:,} of {rows:,} packets it decides otherwise"
        )
        return (
            f"the C of network {proof.network_sha256[:12]} is a quantised form: its probabilities are proven to be off "
            f"by at most {proof.error_probability}, its logits by {proof.error_logit}; {counted}"
        )

    def document(self) -> dict[str, Any]:
        return {"export": asdict(self)}

    def verdict(self) -> list[str]:
        """How far the C is from the network, and on how many rows of a dataset it decides otherwise."""
        proof = self.certificate
        first = (
            f"The C is a quantised form: for every input its probability is proven to be within "
            f"{proof.error_probability} of the network's, its logit within {proof.error_logit}."
        )
        if proof.on_rows is None:
            return [first, "On how many packets it decides otherwise is not known: dataset=FOLDER counts."]
        rows = proof.on_rows
        return [first, f"It decides otherwise on {rows.decide_otherwise:,} of the {rows.rows:,} rows of the dataset."]

    def tables(self) -> list[Table]:
        """The error that is proven and what the code costs, then the rows of the dataset."""
        proof = self.certificate
        ends = sorted({top.bit_length() for top in proof.largest.values()})
        row = {
            "error in logits": proof.error_logit,
            "in probability": proof.error_probability,
            "inputs of bits": ", ".join(map(str, ends)),
            "multiplications": proof.multiplications,
            "bytes": proof.table_bytes,
            "seconds": self.seconds,
        }
        note = "error: proven for every input of so many bits, against the float32 network in exact arithmetic"
        table = Table.of_rows("Network in C, in integers", [row], note, f"folder: {self.folder}")
        if proof.on_rows is None:
            return [table]
        counted = {
            "rows": proof.on_rows.rows,
            "decide otherwise": proof.on_rows.decide_otherwise,
            "out of range": proof.on_rows.out_of_range,
            "probability differs by": proof.on_rows.probability_difference,
            "F1 in C": proof.on_rows.f1,
            "F1 of the network": proof.on_rows.network_f1,
        }
        return [table, Table.of_rows("On the dataset", [counted])]


class NetworkInC:
    """A network as its C decides, which counts where the network itself decides otherwise."""

    def __init__(self, network: Network, exported: NetworkExport) -> None:
        self.features, self.sha256 = network.features, network.sha256  #: of the network
        self.rows = self.otherwise = 0  #: decided so far, and on how many of them otherwise
        self.exported = exported
        from foretail.export.c.build import PredictorLibrary

        self._network, self._library = network, PredictorLibrary(exported.library)

    def exceeds(self, x: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return whether each row of integers [rows, features] is predicted to drop: bool[rows]."""
        drops = self._library.score(x) > self._library.default_tau
        self.rows += len(drops)
        self.otherwise += int(np.count_nonzero(drops != self._network.exceeds(x)))
        return drops

    def probability(self, x: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the drop probability of each row as the score has it: float64[rows]."""
        from scipy.special import expit

        logit = np.ldexp(self._library.score(x).astype(np.float64), -self.exported.certificate.score_bits)
        probability: npt.NDArray[np.float64] = expit(logit)
        return probability

    def scorer(self, threshold: float | None = None) -> Scorer:
        """Return the C as a simulator asks it, with the network's threshold or another probability."""
        if threshold is None:
            return library_scorer(str(self.exported.library), self._library.default_tau)
        from foretail.export.network.fixed_point import threshold_in_units  # its packages are an extra

        tau = threshold_in_units(threshold, self.exported.certificate.score_bits)
        return library_scorer(str(self.exported.library), tau)

    def say_difference(self) -> None:
        """Say at the end of the command what the C is, and on how many rows it decided otherwise."""
        say(self.exported.sentence(self.otherwise, self.rows))


def export_network_predictor(network: Network, config: ExportConfig, run_dir: Path) -> NetworkExport:
    """Export `config.model`, a network, into `config.out`, or into a folder of the target's name in the run."""
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
    from foretail.export.network import export_network  # its packages are an extra
    from foretail.pipelines.exporting.predictor import NAME, model_rows

    rows = None if config.dataset is None else model_rows(network.features, open_dataset(config.dataset))
    out = Path(config.out) if config.out is not None else run_dir / config.target
    name = config.name or NAME
    proof = export_network(network, out, name, input_bits=config.c.input_bits, rows=rows)
    return NetworkExport(out, name, proof, False, time.monotonic() - started)


def predictor_to_store(model: Ensemble | Network, store: Store) -> ExportedPredictor | NetworkExport:
    """The C of a drop predictor from the store, exported now when it is not there: exact of trees, else quantised."""
    from foretail.export.folder import CERTIFICATE
    from foretail.pipelines.exporting.predictor import EXPORT, NAME, export_to_store, library_key

    if isinstance(model, Ensemble):
        return export_to_store(model, store)
    from foretail.export.network import NetworkCertificate, export_network  # its packages are an extra

    key = library_key("network", model.sha256)
    entry = store.get_or_build(key, lambda folder: export_network(model, folder / EXPORT, NAME))
    folder = entry.path / EXPORT
    return NetworkExport(folder, NAME, NetworkCertificate.load(folder / CERTIFICATE), entry.reused, entry.seconds)


class FunctionPredictor:
    """A function in Python, a PyTorch module or an estimator that decides in this process, packet by packet."""

    def __init__(self, predictor: Any, features: Sequence[str], threshold: float | None = None) -> None:
        names = training_columns(features, own_queues=True)
        self.features = tuple(FeatureInput(name, "", feature(name).bits) for name in names)
        self._ask = CheckedPredictor(predictor, threshold)

    @classmethod
    def of_file(cls, policy: PythonPolicy) -> FunctionPredictor:
        """Return the function of a file."""
        return cls(policy.decide, policy.features)

    def exceeds(self, x: NDArray[Any]) -> NDArray[np.bool_]:
        """Return whether each row of integers [rows, features] is predicted to drop: bool[rows]."""
        return self._ask(np.ascontiguousarray(x, np.int32))

    def probability(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Return 1 for each row that is predicted to drop, else 0: float64[rows]."""
        return self.exceeds(x).astype(np.float64)


AskedModel: TypeAlias = "Ensemble | NetworkInC | Network | FunctionPredictor"
"""A predictor as it decides: trees, the C of a network, the graph of a network that cannot be C, or a function."""


def asked_model(model: Ensemble | Network, store: Store) -> Ensemble | NetworkInC | Network:
    """Return a predictor as it decides; the C of a network is in the store, or made now."""
    if isinstance(model, Ensemble):
        return model
    try:
        exported = predictor_to_store(model, store)
    except ForetailError:
        return model
    assert isinstance(exported, NetworkExport)
    return NetworkInC(model, exported)


def check_inputs(model: AskedModel, cell_bytes: int, average_shift: int, given_by: str) -> None:
    """Refuse a model whose features have another arithmetic than those of `given_by`."""
    if isinstance(model, FunctionPredictor):  # it takes features as they come
        return
    for item in model.features:
        params = feature(item.name).params(cell_bytes, average_shift)
        if item.params != params:
            raise ForetailError(
                f"the model reads feature {item.name} with {item.params or 'no constants'}, and {given_by} it with "
                f"{params or 'no constants'}: "
                + (
                    "export it with dataset=FOLDER, which fills them in"
                    if not item.params
                    else "train on such features"
                )
            )


def decider_of(predictor: AskedModel, policy: str | None = None) -> Decider:
    """Return a predictor as it decides in a replay, under `policy` or the one for which it was made.

    A function decides by itself unless `policy` says otherwise. NobodyDecides when a predictor cannot decide in a
    replay, and its answers would change what it reads.
    """
    policy = policy or ("learned" if isinstance(predictor, FunctionPredictor) else asking_policy(predictor))
    if not decides_in_replay(predictor.features):
        return Decider(policy)
    if isinstance(predictor, Ensemble):
        return Decider(policy, scorer_of(predictor))
    if isinstance(predictor, NetworkInC):
        return Decider(policy, predictor.scorer())
    return Decider(
        policy, function_scorer([item.name for item in predictor.features], lambda row: predictor.exceeds(row)[0])
    )


def decider_if_any(model: Ensemble | Network, store: Store) -> Decider | None:
    """Return :func:`decider_of` a predictor; None, with a sentence at the end of the command, where nobody decides."""
    try:
        return decider_of(asked_model(model, store))
    except NobodyDecides as reason:
        say(str(reason))
        return None
