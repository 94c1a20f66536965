"""LightGBM's boosted trees as a drop predictor of Foretail: trained, tracked, scored and exported as its own are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import lightgbm
import numpy as np
import numpy.typing as npt
import treelite

from foretail.core.settings import setting
from foretail.models.drop.predictor import TreePredictor
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.frontends import from_treelite


@dataclass(eq=False)
class LightGbm(TreePredictor):
    """Boosted trees that grow leaf by leaf.

    Attributes
    ----------
    trees, leaves : int
        So many trees, each with at most so many leaves.
    learning_rate : float
        What each tree adds.
    l2 : float
        Shrinks the values of leaves.
    seed : int
    """

    trees: int = setting(8, at_least=1, at_most=1000)
    leaves: int = setting(8, at_least=2, at_most=1024)
    learning_rate: float = setting(0.3, at_least=1e-6, at_most=1)
    l2: float = setting(1.0, at_least=0)
    seed: int = setting(1, at_least=0, at_most=2**31 - 1)

    packages: ClassVar[tuple[str, ...]] = ("lightgbm",)  # another version may train other trees

    def _fit(self, x: npt.NDArray[np.int32], y: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64]) -> None:
        settings = {
            "objective": "binary",
            "num_leaves": self.leaves,
            "learning_rate": self.learning_rate,
            "lambda_l2": self.l2,
            "min_data_in_leaf": 1,
            "max_bin": 1023,
            "seed": self.seed,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
            "verbosity": -1,
        }
        rows = lightgbm.Dataset(x.astype(np.float64), y, weight=weight)
        self.booster_ = lightgbm.train(settings, rows, num_boost_round=self.trees)

    def _probability(self, x: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
        return np.asarray(self.booster_.predict(x.astype(np.float64), num_threads=1), np.float64)

    def _ensemble(self, features: Sequence[FeatureInput]) -> Ensemble:
        return from_treelite(treelite.frontend.from_lightgbm(self.booster_), features, self.origin())
