"""How much a training row counts: the cost of a wrong prediction times the rows that it stands for."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from foretail.features.errors import ForetailError
from foretail.models.predictor import checked_weights

__all__ = ["DropWeight", "checked_drop_weight", "row_weights"]

DropWeight = float | Literal["balanced", "cost"]
"""What a drop counts, when another row counts 1."""


def row_weights(
    lqd_drop: npt.NDArray[np.bool_], drop_weight: DropWeight, ports: int, weight: npt.ArrayLike | None = None
) -> npt.NDArray[np.float64]:
    """Return the weights of rows for ``DropPredictor.fit``: float64[rows], positive.

    Parameters
    ----------
    lqd_drop : bool[rows]
        The label.
    drop_weight : float > 0, 'balanced' or 'cost'
        What a drop counts. ``cost`` is N - 1, the most false positives that a false negative is worth (Credence,
        NSDI'24, Definition 1); ``balanced`` makes all drops together count as much as all others.
    ports : int
        N, ports that share the buffer.
    weight : float array [rows], optional
        How many rows each stands for, such as those that sampling left out; 1 without it.

    Raises
    ------
    ForetailError
        On another `drop_weight`, fewer than two ports with ``cost``, malformed weights, or with ``balanced`` labels of
        one class.
    """
    weights = np.ones(len(lqd_drop)) if weight is None else checked_weights(weight, len(lqd_drop))
    factor = _factor(lqd_drop, checked_drop_weight(drop_weight), ports, weights)
    return np.where(lqd_drop, factor, 1.0) * weights


def checked_drop_weight(value: object) -> DropWeight:
    """Return `value`; raise ForetailError on anything but a positive number, 'balanced' or 'cost'."""
    if value == "balanced" or value == "cost":
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (math.isfinite(value) and value > 0):
        raise ForetailError(f"drop_weight is {value}: set it to a positive number, balanced or cost")
    return float(value)


def _factor(
    lqd_drop: npt.NDArray[np.bool_], drop_weight: DropWeight, ports: int, weights: npt.NDArray[np.float64]
) -> float:
    if drop_weight == "cost":
        if ports < 2:
            raise ForetailError(f"drop_weight=cost is N - 1, and a switch of {ports} ports has none: give a number")
        return ports - 1.0
    if drop_weight == "balanced":
        drops = float(weights[lqd_drop].sum())
        others = float(weights.sum()) - drops
        if not (drops > 0 and others > 0):
            raise ForetailError(
                "drop_weight=balanced needs drops and other rows, and there are none of one: give a number"
            )
        return others / drops
    return drop_weight
