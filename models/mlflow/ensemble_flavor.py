"""The loader of Foretail's models for ``mlflow.pyfunc``: an ensemble's JSON or a network's ONNX, never a pickle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from foretail.core.errors import ForetailError
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.tracking import MODEL_SHA256

if TYPE_CHECKING:
    from foretail.models.drop.network import Network


class DropModel:
    """Model that ``mlflow.pyfunc.load_model`` wraps."""

    def __init__(self, model: Ensemble | Network) -> None:
        self.model = model

    def predict(self, frame: pd.DataFrame) -> npt.NDArray[np.bool_]:
        """Return whether LQD would drop each row: bool[rows]; a column of integers per feature, found by name."""
        return self.model.exceeds(frame[[item.name for item in self.model.features]].to_numpy(np.int64))


def _load_pyfunc(path: str) -> DropModel:  # the name is MLflow's
    """Load what a run logged; ForetailError where its hash is not the one that MLflow's copy states."""
    from mlflow.models import Model

    file = Path(path)
    if file.suffix == ".onnx":
        from foretail.models.drop.network import Network  # its packages are an extra

        model: Ensemble | Network = Network.load(file)
    else:
        model = Ensemble.load(file)
    folder = next(parent for parent in file.parents if (parent / "MLmodel").is_file())
    stated = (Model.load(str(folder)).metadata or {}).get(MODEL_SHA256, model.sha256)
    if stated != model.sha256:
        raise ForetailError(f"{file} was altered or damaged since its run: log the model again")
    return DropModel(model)
