"""The loader of Foretail's models for ``mlflow.pyfunc``: the data is the ensemble's JSON, nothing is unpickled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from foretail.models.ensemble.ensemble import Ensemble


class EnsembleModel:
    """What ``mlflow.pyfunc.load_model`` wraps."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble

    def predict(self, frame: pd.DataFrame) -> npt.NDArray[np.bool_]:
        """Return whether LQD would drop each row: bool[rows]; a column of integers per feature, found by name."""
        return self.ensemble.exceeds(frame[[item.name for item in self.ensemble.features]].to_numpy(np.int64))


def _load_pyfunc(path: str) -> EnsembleModel:  # the name is MLflow's
    return EnsembleModel(Ensemble.load(Path(path)))
