"""Models in MLflow: trees or a network saved with a run, and their versions in the registry."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.store import settled

if TYPE_CHECKING:
    from foretail.models.drop.network import Network

ENSEMBLE_FILE, NETWORK_FILE = "ensemble.json", "model.onnx"
OUTCOME_FILE = "outcome.json"
MODEL_NAME = "model"
MODEL_SHA256 = "foretail_sha256"
"""Key of the model's hash in the metadata of MLflow's copy."""
EMPTY: Mapping[str, str] = MappingProxyType({})

_LOADER = "foretail.models.mlflow.ensemble_flavor"


@dataclass(frozen=True)
class RegisteredModel:
    """A version in the model registry, and the alias that points at it now."""

    name: str
    version: str
    alias: str
    before: str | None = None  #: the version that the alias pointed at before, if any; `version` itself when it stayed

    def sentence(self) -> str:
        """Say where the alias points, and whether it moved."""
        was = {None: "", self.version: ", as before"}.get(self.before, f"; before: version {self.before}")
        return f"models:/{self.name}@{self.alias} is version {self.version} now{was}"


def save_model(model: Ensemble | Network, file: Path) -> str:
    """Save a model, which `file` holds, with the active run as an MLflow model, and return its id."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

    signature = ModelSignature(
        inputs=Schema([ColSpec(DataType.long, feature.name) for feature in model.features]),
        outputs=Schema([ColSpec(DataType.boolean)]),
    )
    with warnings.catch_warnings():
        # MLflow, on the type hints of its own chat types, and on examples, without which a signature will do.
        warnings.simplefilter("ignore", UserWarning)
        import mlflow.pyfunc

        return str(
            mlflow.pyfunc.log_model(
                name=MODEL_NAME,
                loader_module=_LOADER,
                data_path=str(file),
                signature=signature,
                metadata={MODEL_SHA256: model.sha256},
                pip_requirements=[f"foretail=={metadata.version('foretail')}"],
            ).model_id
        )


def point_alias(client: Any, name: str, alias: str, version: str) -> RegisteredModel:
    """Point an alias at a version: the one place where aliases move. ``latest`` is MLflow's own, the newest version."""
    if alias.lower() == "latest":
        return RegisteredModel(name, version, alias)
    before = client.get_registered_model(name).aliases.get(alias)
    if before is None or str(before) != version:
        settled(client.set_registered_model_alias, name, alias, version)
    return RegisteredModel(name, version, alias, None if before is None else str(before))


def create_version(
    client: Any, name: str, run_id: str, model_id: str, description: str | None = None, tags: Mapping[str, str] = EMPTY
) -> str:
    """Make a logged model a new version of a registered one, which is created when missing; return the version."""
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)  # log_model could, but announces it on stderr
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":  # asking first would race with other jobs of a sweep
            raise
    address = f"models:/{model_id}"
    return str(
        settled(
            *(client.create_model_version, name, address, run_id),
            tags=dict(tags),
            description=description,
            await_creation_for=0,
            model_id=model_id,
        ).version
    )
