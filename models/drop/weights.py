"""How much a training row counts: the cost of a wrong prediction times the rows that it stands for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.features.rows.labelled_rows import Rows
from foretail.models.drop.predictor import checked_weights

DropWeight = float | Literal["balanced", "cost"]
"""Weight of a drop, when another row counts 1."""


def drop_factor(drop_weight: DropWeight, ports: int, batches: Iterable[Rows]) -> float:
    """Return what a drop counts, when another row counts 1.

    ForetailError on another `drop_weight`, fewer than two ports with ``cost``, malformed weights, or with ``balanced``
    labels of one class.

    Parameters
    ----------
    drop_weight : float > 0, 'balanced' or 'cost'
        ``cost`` is N - 1, the most false positives that a false negative is worth (Credence, NSDI'24, Definition 1);
        ``balanced`` makes all drops together count as much as all others.
    ports : N, ports that share the buffer
    batches : all rows; only ``balanced`` looks at them
    """
    factor = checked_drop_weight(drop_weight)
    if factor == "cost":
        if ports < 2:
            raise ForetailError(f"drop_weight=cost is N - 1, and a switch of {ports} ports has none: give a number")
        return ports - 1.0
    if factor == "balanced":
        drops = total = 0.0
        for rows in batches:
            weights = row_weights(rows)
            drops += float(weights[rows.lqd_drop].sum())
            total += float(weights.sum())
        if not 0 < drops < total:
            raise ForetailError(
                "drop_weight=balanced needs drops and other rows, and there are none of one: give a number"
            )
        return (total - drops) / drops
    return factor


def row_weights(rows: Rows, factor: float = 1.0) -> npt.NDArray[np.float64]:
    """Return the weights of rows for ``DropPredictor.fit``: float64[rows], positive.

    A row's own weight, 1 without, says how many rows it stands for; `factor` is what a drop counts besides, see
    :func:`drop_factor`. ForetailError on malformed weights.
    """
    weights = np.ones(len(rows)) if rows.weight is None else checked_weights(rows.weight, len(rows))
    return np.where(rows.lqd_drop, factor * weights, weights)


def checked_drop_weight(value: object) -> DropWeight:
    """Return `value`; raise ForetailError on anything but a positive number, 'balanced' or 'cost'."""
    if value == "balanced" or value == "cost":
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (math.isfinite(value) and value > 0):
        raise ForetailError(f"drop_weight is {value}: set it to a positive number, balanced or cost")
    return float(value)
