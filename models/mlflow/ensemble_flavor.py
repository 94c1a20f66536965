"""The loader of Foretail's models for ``mlflow.pyfunc``: an ensemble's JSON or a network's ONNX, never a pickle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from foretail.models.ensemble.ensemble import Ensemble

if TYPE_CHECKING:
    from foretail.models.drop.network import Network


class DropModel:
    """What ``mlflow.pyfunc.load_model`` wraps."""

    def __init__(self, model: Ensemble | Network) -> None:
        self.model = model

    def predict(self, frame: pd.DataFrame) -> npt.NDArray[np.bool_]:
        """Return whether LQD would drop each row: bool[rows]; a column of integers per feature, found by name."""
        return self.model.exceeds(frame[[item.name for item in self.model.features]].to_numpy(np.int64))


def _load_pyfunc(path: str) -> DropModel:  # the name is MLflow's
    if not path.endswith(".onnx"):
        return DropModel(Ensemble.load(Path(path)))
    from foretail.models.drop.network import Network  # its packages are an extra

    return DropModel(Network.load(Path(path)))
