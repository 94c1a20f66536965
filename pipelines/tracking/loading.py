"""Models of stages: from a file, a run folder, or MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.tracking import Tracking
from foretail.core.errors import ForetailError
from foretail.core.impostors import refuse_impostor
from foretail.models import zoo
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.model_files import DEFAULT_LIMITS, Limits, load_model_file
from foretail.models.mlflow.registry import load_drop_predictor, not_trees
from foretail.models.mlflow.store import tracking_uri
from foretail.models.mlflow.tracking import ENSEMBLE_FILE, NETWORK_FILE
from foretail.models.scoring.operating_point import constant_decision
from foretail.pipelines.data.inputs import refuse_window
from foretail.pipelines.runs.notes import use_lineage, use_model
from foretail.pipelines.runs.store import Store
from foretail.pipelines.runs.zeros import say_if_constant
from foretail.pipelines.tracking.identity import identify
from foretail.sim_bridge.python_policies import is_function

if TYPE_CHECKING:
    from foretail.models.drop.network import Network


def load_model(model: str, tracking: Tracking, store: Store, **reading: Any) -> Ensemble:
    """The trees of :func:`load_predictor`, with the same `reading`; ForetailError when there is a network."""
    predictor = load_predictor(model, tracking, store, **reading)
    if not isinstance(predictor, Ensemble):
        raise not_trees(model)
    return predictor


def is_predictor(model: str) -> bool:
    """True if it names a predictor, in a file, a folder, MLflow or the zoo, and not a policy."""
    return model.startswith(("models:/", "runs:/", zoo.PREFIX)) or Path(model).exists()


def load_predictor(
    model: str,
    tracking: Tracking,
    store: Store,
    inputs: Sequence[FeatureInput] | None = None,
    allow_pickle: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    rows: NDArray[np.int64] | None = None,
) -> Ensemble | Network:
    """The drop predictor of a file, of a train run's folder, of an address in MLflow, or zoo:NAME.

    `inputs` describes the columns of a model that another framework trained, `limits` what reading it may take, and
    `rows` are data on which it is tried, see :func:`foretail.models.ensemble.model_files.load_model_file`.
    """
    predictor: Ensemble | Network
    if model.startswith(("models:/", "runs:/")):
        uri = tracking_uri(tracking.uri, store.folder.parent)
        predictor = load_drop_predictor(model, uri, inputs, allow_pickle, limits)
    elif model.startswith(zoo.PREFIX):
        predictor = zoo.ensemble(model.removeprefix(zoo.PREFIX))
    else:
        path = Path(model)
        if path.is_dir():
            path /= ENSEMBLE_FILE if (path / ENSEMBLE_FILE).is_file() else NETWORK_FILE
            path = path if path.is_file() else path.with_name(ENSEMBLE_FILE)
        if is_function(model):
            raise ForetailError(
                f"{model} is a function in Python, which replay, evaluate, benchmark and judge ask: give trees or a "
                "network here"
            )
        if not path.is_file():
            raise ForetailError(
                f"there is no model {path}: give the file of a model, a train run's folder, zoo:NAME or "
                "models:/NAME@ALIAS"
            )
        network = path.suffix == Path(NETWORK_FILE).suffix
        predictor = load_network(path) if network else load_model_file(path, inputs, allow_pickle, limits, rows)
    refuse_window(predictor.features, model)
    identity = identify(predictor, model, tracking, store)
    use_model(identity.document(), identity.sentence())
    use_lineage(identity.lineage)
    if isinstance(predictor, Ensemble) and predictor.output != "value":
        say_if_constant(f"model {model}", "the threshold", constant_decision(predictor))
    return predictor


def load_network(path: Path) -> Network:
    """The network in a file; loads what runs it only now."""
    from foretail.models.drop.network import Network

    refuse_impostor(path)
    return Network.load(path)
