"""Forests of scikit-learn behind the drop predictor interface; a random forest is the paper's predictor (section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.core.settings import setting
from foretail.models.drop.predictor import TreePredictor
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.frontends import from_sklearn


@dataclass(eq=False)
class _Forest(TreePredictor):
    """Drop probability is the mean over trees of the share of drops in a leaf (a soft vote)."""

    classifier: ClassVar[str]
    threads_change_the_model = False
    trees: int = setting(4, at_least=1, at_most=4096)
    depth: int = setting(4, at_least=1, at_most=32)
    min_leaf_rows: int = setting(1, at_least=1)
    features_per_split: int | None = setting(None, at_least=1)
    bootstrap: bool = setting(True)
    seed: int = setting(1, at_least=0, at_most=2**32 - 1)
    jobs: int = setting(1, at_least=1)

    def _fit(self, x: npt.NDArray[np.int32], y: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64]) -> None:
        from sklearn import ensemble

        if self.features_per_split is not None and self.features_per_split > x.shape[1]:
            raise ForetailError(
                f"predictor.features_per_split is {self.features_per_split}: set it to at most the "
                f"{x.shape[1]} features of the model"
            )
        self.forest_ = getattr(ensemble, self.classifier)(
            n_estimators=self.trees,
            max_depth=self.depth,
            min_samples_leaf=self.min_leaf_rows,
            max_features=self.features_per_split or "sqrt",
            bootstrap=self.bootstrap,
            random_state=self.seed,
            n_jobs=self.jobs,
        ).fit(x, y, sample_weight=weight)
        self.forest_.n_jobs = 1  # threads would sum the trees in an order of their own

    def _probability(self, x: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
        probability: npt.NDArray[np.float64] = self.forest_.predict_proba(x)[:, 1]
        return probability

    def _ensemble(self, features: Sequence[FeatureInput]) -> Ensemble:
        return from_sklearn(self.forest_, features, self.origin())


class RandomForest(_Forest):
    """scikit-learn's random forest classifier.

    Parameters
    ----------
    trees : number of trees
    depth : largest depth of a tree: the number of comparisons a packet costs per tree
    min_leaf_rows : fewest training rows in a leaf
    features_per_split : features tried at each split; None tries the rounded-down square root of their number
    bootstrap : bool
        Whether every tree sees its own draw of the rows. Without it a row of weight n counts as n such rows exactly.
    seed : same seed and rows, same forest
    jobs : threads that train; they do not change the result

    Attributes
    ----------
    forest_ : the trained forest

    Examples
    --------
    >>> from foretail.testing import synthetic_arrivals
    >>> x, y = synthetic_arrivals(rows=2000, seed=1)
    >>> RandomForest(trees=2, depth=3, seed=1).fit(x, y).probability(x).shape
    (2000,)
    """

    classifier = "RandomForestClassifier"


@dataclass(eq=False)
class ExtraTrees(_Forest):
    """scikit-learn's extremely randomised trees: each split tries one random cut per feature (Geurts et al., 2006).

    Parameters and attributes are those of :class:`RandomForest`; every tree sees all rows by default.

    Examples
    --------
    >>> from foretail.testing import synthetic_arrivals
    >>> x, y = synthetic_arrivals(rows=2000, seed=1)
    >>> ExtraTrees(trees=2, depth=3).fit(x, y).probability(x).dtype
    dtype('float64')
    """

    classifier = "ExtraTreesClassifier"

    bootstrap: bool = setting(False)
