"""Trees on measured costs: regression of what a drop gains, as an ensemble that drops where it gains enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.models.drop.predictor import checked_features
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.frontends import import_xgboost, regressor_from_xgboost


def fit_cost_trees(
    x: npt.ArrayLike,
    gain: npt.ArrayLike,
    features: Sequence[FeatureInput],
    *,
    trees: int,
    depth: int,
    learning_rate: float,
    fewest_rows: int,
    seed: int,
) -> Ensemble:
    """Return boosted trees whose exact sum is the gain of dropping; a packet is dropped where it is above 0.

    ForetailError without XGBoost, or on rows or gains of another shape or range.

    Parameters
    ----------
    x : integer array [rows, features], in ``[0, 2**24)``
    gain : float array [rows], finite: how much less a run costs when the packet is dropped
    features : the columns of `x`, in order
    trees, depth, learning_rate : number of trees, comparisons in each, what of a tree counts
    fewest_rows : least rows in a leaf
    seed : same seed and rows, same trees
    """
    columns = checked_features(x)
    gains = np.asarray(gain, np.float64)
    if gains.shape != (len(columns),) or not np.isfinite(gains).all():
        raise ForetailError(f"the gains have shape {gains.shape}: pass {len(columns)} finite numbers, one for each row")
    xgboost = import_xgboost()
    unit = 2.0 ** np.ceil(
        np.log2(max(np.abs(gains).max(), 2.0**-60))
    )  # a power of two, so that the leaves scale exactly
    booster = xgboost.train(
        {
            "objective": "reg:squarederror",
            "base_score": 0.0,
            "tree_method": "exact",
            "max_depth": depth,
            "learning_rate": learning_rate,
            "min_child_weight": fewest_rows,
            "lambda": 1.0,
            "seed": seed,
            "nthread": 1,  # more would add in an order of their own
        },
        xgboost.DMatrix(columns.astype(np.float32), label=gains / unit, nthread=1),
        trees,
    )
    read = regressor_from_xgboost(booster, features)
    grown = tuple(replace(tree, value=tree.value * unit) for tree in read.trees)
    origin = {**read.origin, "predictor": "cost_trees", "rows": len(columns), "arithmetic": "float32"}
    return replace(read, trees=grown, base=read.base * unit, threshold=Fraction(0), origin=origin)
