"""Where a stage's model comes from: a file, a run folder, or MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foretail.configs.schema.tracking import Tracking
from foretail.features.errors import ForetailError
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.model_files import DEFAULT_LIMITS, Limits, load_model_file
from foretail.models.mlflow.registry import load_ensemble
from foretail.models.mlflow.store import tracking_uri
from foretail.models.scoring.operating_point import constant_decision
from foretail.pipelines.data.inputs import refuse_window
from foretail.pipelines.runs.notes import use_model
from foretail.pipelines.runs.store import Store
from foretail.pipelines.runs.zeros import say_if_constant
from foretail.pipelines.tracking.identity import identify

if TYPE_CHECKING:
    from foretail.models.drop.network import Network


ENSEMBLE_FILE, NETWORK_FILE = "ensemble.json", "model.onnx"


def load_model(
    model: str,
    tracking: Tracking,
    store: Store,
    inputs: Sequence[FeatureInput] | None = None,
    allow_pickle: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> Ensemble:
    """The ensemble of a file, of a folder that holds ``ensemble.json``, or of an address in MLflow.

    `inputs` describes the columns of a model that another framework trained, and `limits` what reading it may take, see
    :func:`foretail.models.ensemble.model_files.load_model_file`.
    """
    if model.startswith(("models:/", "runs:/")):
        ensemble = load_ensemble(model, tracking_uri(tracking.uri, store.folder.parent), inputs, allow_pickle, limits)
        refuse_window(ensemble.features, model)
        return _used(ensemble, model, tracking, store)
    path = Path(model)
    if path.is_dir():
        if (path / NETWORK_FILE).is_file() and not (path / ENSEMBLE_FILE).is_file():
            raise ForetailError(f"{path} holds a neural network, not trees: run foretail distill model={path} first")
        path = path / ENSEMBLE_FILE
    if not path.is_file():
        raise ForetailError(
            f"there is no model {path}: give the file of a model, a train run's folder or models:/NAME@ALIAS"
        )
    ensemble = load_model_file(path, inputs, allow_pickle, limits)
    refuse_window(ensemble.features, str(path))
    return _used(ensemble, model, tracking, store)


def _used(ensemble: Ensemble, address: str, tracking: Tracking, store: Store) -> Ensemble:
    identity = identify(ensemble, address, tracking, store)
    use_model(identity.document(), identity.sentence())
    say_if_constant(f"model {address}", "the threshold", constant_decision(ensemble))
    return ensemble


def load_network(path: Path) -> Network:
    """The network in a file; loads what runs it only now."""
    from foretail.models.drop.network import Network

    return Network.load(path)
