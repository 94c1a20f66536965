"""CatBoost's oblivious trees as a drop predictor of Foretail: trained, tracked, scored and exported as its own are."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import catboost
import numpy as np
import numpy.typing as npt

from foretail.core.settings import setting
from foretail.models.drop.predictor import TreePredictor
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.tree import Tree


@dataclass(eq=False)
class CatBoost(TreePredictor):
    """Boosted trees that ask the same question at all nodes of a depth.

    Attributes
    ----------
    trees, depth : so many trees, each of so many questions
    learning_rate : what each tree adds
    l2 : shrinks the values of leaves
    seed : int
    """

    trees: int = setting(8, at_least=1, at_most=1000)
    depth: int = setting(3, at_least=1, at_most=10)
    learning_rate: float = setting(0.3, at_least=1e-6, at_most=1)
    l2: float = setting(1.0, at_least=0)
    seed: int = setting(1, at_least=0, at_most=2**31 - 1)

    packages: ClassVar[tuple[str, ...]] = ("catboost",)  # another version may train other trees

    def _fit(self, x: npt.NDArray[np.int32], y: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64]) -> None:
        self.model_ = catboost.CatBoost(
            {
                "loss_function": "Logloss",
                "iterations": self.trees,
                "depth": self.depth,
                "learning_rate": self.learning_rate,
                "l2_leaf_reg": self.l2,
                "random_seed": self.seed,
                "thread_count": 1,
                "allow_writing_files": False,
                "logging_level": "Silent",
            }
        ).fit(catboost.Pool(x.astype(np.float32), y.astype(np.int8), weight=weight.astype(np.float32)))

    def _probability(self, x: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
        found = self.model_.predict(x.astype(np.float32), prediction_type="Probability", thread_count=1)
        return np.ascontiguousarray(found[:, 1], np.float64)

    def _ensemble(self, features: Sequence[FeatureInput]) -> Ensemble:
        with tempfile.TemporaryDirectory() as folder:
            self.model_.save_model(str(Path(folder) / "model.json"), format="json")
            document = json.loads((Path(folder) / "model.json").read_text())
        scale, base = self.model_.get_scale_and_bias()
        if scale != 1:
            raise ValueError(f"the model is scaled by {scale}")
        values, first, trees = self.model_.get_leaf_values(), 0, []
        for tree in document["oblivious_trees"]:
            leaves = 1 << len(tree["splits"])
            trees.append(_tree(tree["splits"], values[first : first + leaves]))
            first += leaves
        origin = self.origin() | {"arithmetic": "float64"}  # in which CatBoost adds, tree by tree
        return Ensemble(tuple(features), tuple(trees), Fraction(0), float(base), "logit", origin=origin)


def _tree(splits: Sequence[dict[str, Any]], values: npt.NDArray[np.float64]) -> Tree:
    """A complete binary tree, level by level: question k of CatBoost is bit k of a leaf's number."""
    depth = len(splits)
    inner = (1 << depth) - 1
    feature, cut = np.full(2 * inner + 1, -1, np.int32), np.zeros(2 * inner + 1, np.int64)
    left, right = np.full_like(feature, -1), np.full_like(feature, -1)
    value = np.zeros(2 * inner + 1)
    for node in range(inner):
        split = splits[(node + 1).bit_length() - 1]
        feature[node], cut[node] = split["float_feature_index"], math.floor(split["border"])  # right iff x > border
        left[node], right[node] = 2 * node + 1, 2 * node + 2
    for leaf in range(inner + 1):  # its bits are the answers, the first the highest
        value[inner + leaf] = values[int(format(leaf, f"0{depth}b")[::-1], 2) if depth else 0]
    return Tree(feature, cut, left, right, value)
