"""A tree ensemble as a scorer: the same decisions in the process of a simulator, without a compiled library."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES
from foretail.models.ensemble.ensemble import Ensemble
from foretail.sim_bridge._native import Scorer, voting_trees

_BITS = 62
"""Of a sum of votes."""


def scorer_of(ensemble: Ensemble) -> Scorer:
    """Return the ensemble as votes in units of ``2**-scale_bits``, so that it decides as the exact sums do.

    ForetailError on inputs that a switch does not compute, or leaves whose exact sum does not fit 62 bits.

    Examples
    --------
    >>> from foretail.models.drop.sharing_rule import SharingRule
    >>> from foretail.models.ensemble.scorers import scorer_of
    >>> scorer_of(SharingRule(-1, 255, 160, 160).ensemble(cell_bytes=256))
    <foretail.sim_bridge._native.Scorer object at ...>
    """
    known = {item.name for item in FEATURES}
    for item in ensemble.features:
        if item.name not in known:
            raise ForetailError(f"no switch computes {item.name}: give a model on features of the catalog")
    unit = 1 << ensemble.scale_bits
    largest = sum(float(np.abs(tree.value).max()) for tree in ensemble.trees) + abs(ensemble.base)
    if largest * unit >= 2.0**_BITS:
        raise ForetailError(
            f"the exact sums of the trees take more than {_BITS} bits: export the model to C and give its library"
        )
    first = np.cumsum([0, *(len(tree.feature) for tree in ensemble.trees)])
    left, right = (
        np.concatenate(
            [
                np.where(tree.feature < 0, -1, getattr(tree, side) + start)
                for tree, start in zip(ensemble.trees, first[:-1], strict=True)
            ]
        ).astype(np.int32)
        for side in ("left", "right")
    )
    votes = [int(Fraction(value) * unit) for tree in ensemble.trees for value in tree.value.tolist()]
    return voting_trees(
        [item.name for item in ensemble.features],
        np.concatenate([tree.feature for tree in ensemble.trees]),
        np.concatenate([tree.cut for tree in ensemble.trees]),
        left,
        right,
        np.array(votes, np.int64),
        first[:-1].astype(np.int64),
        ((ensemble.threshold - Fraction(ensemble.base)) * unit).__floor__(),
    )
