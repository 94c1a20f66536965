"""Models in MLflow: an ensemble saved with a run, and its versions in the registry."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from foretail.features.errors import ForetailError
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.store import first_line

ENSEMBLE_FILE = "ensemble.json"
MODEL_NAME = "model"

_LOADER = "foretail.models.mlflow.ensemble_flavor"


@dataclass(frozen=True)
class RegisteredModel:
    """A version in the model registry: `name`, `version`, and the alias that now points at it."""

    name: str
    version: str
    alias: str


def save_model(ensemble: Ensemble) -> str:
    """Save an ensemble with the active run as an MLflow model, and return its id."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

    signature = ModelSignature(
        inputs=Schema([ColSpec(DataType.long, feature.name) for feature in ensemble.features]),
        outputs=Schema([ColSpec(DataType.boolean)]),
    )
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # MLflow, on the type hints of its own chat types, and on examples, without which a signature will do.
        warnings.simplefilter("ignore", UserWarning)
        import mlflow.pyfunc

        ensemble.save(Path(folder) / ENSEMBLE_FILE)
        return str(
            mlflow.pyfunc.log_model(
                name=MODEL_NAME,
                loader_module=_LOADER,
                data_path=str(Path(folder) / ENSEMBLE_FILE),
                signature=signature,
                pip_requirements=[f"foretail=={metadata.version('foretail')}"],
            ).model_id
        )


def register(client: Any, name: str, alias: str, run_id: str, model_id: str) -> RegisteredModel:
    """Make a logged model the newest version of a registered one and point an alias at it.

    Raises
    ------
    ForetailError
        When the registry refuses the name or the alias.
    """
    from mlflow.exceptions import MlflowException

    try:
        version = create_version(client, name, run_id, model_id)
        if alias.lower() != "latest":
            client.set_registered_model_alias(name, alias, version)
    except MlflowException as error:
        raise ForetailError(
            f"MLflow refuses to register {name!r} as {alias!r} ({first_line(error)}): "
            f"choose another tracking.registered_model or tracking.alias"
        ) from error
    return RegisteredModel(name, version, alias)


def create_version(client: Any, name: str, run_id: str, model_id: str) -> str:
    """Make a logged model a new version of a registered one, which is created when missing; return the version."""
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)  # log_model could, but announces it on stderr
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":  # asking first would race with other jobs of a sweep
            raise
    address = f"models:/{model_id}"
    return str(client.create_model_version(name, address, run_id, await_creation_for=0, model_id=model_id).version)
