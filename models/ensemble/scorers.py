"""Predictors that decide in the process of a simulator, and what judging them needs to know of their features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES, FLOW_FEATURES, REAL_FEATURES
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.sim_bridge._native import Scorer, voting_trees
from foretail.sim_bridge.policies import ASKING

POLICY = "policy"
"""Entry of an ensemble's origin: for which policy it was trained to decide while that runs."""

REPLAYED = frozenset(item.name for item in FEATURES) - frozenset(FLOW_FEATURES)
"""Features that a switch of a replay, or of slots, computes itself."""

_BITS = 61
"""Bits of a sum of votes without its sign, so that the difference of two sums is an int64."""


class RowPredictor(Protocol):
    """Trees, a network, or the C of a network: whatever answers to rows of features."""

    @property
    def features(self) -> tuple[FeatureInput, ...]:
        """Inputs in column order."""

    def exceeds(self, x: npt.NDArray[Any], /) -> npt.NDArray[np.bool_]:
        """Return whether each row of integers [rows, features] is predicted to drop: bool[rows]."""

    def probability(self, x: npt.NDArray[Any], /) -> npt.NDArray[np.float64]:
        """Return the drop probability of each row: float64[rows]."""


class NobodyDecides(ForetailError):
    """A predictor cannot decide in a replay, and its answers would change what it reads."""


def asking_policy(model: object) -> str:
    """Return the policy that asks a model: the one for which trees were trained to decide, Credence for all others.

    ForetailError unless it is one of Foretail's own: a file that says so must not choose what is compiled and run.
    """
    policy = model.origin.get(POLICY, "credence") if isinstance(model, Ensemble) else "credence"
    if policy not in ASKING:
        raise ForetailError(
            f"the model's origin names policy {policy!r}, which asks no predictor: train it for one of "
            f"{', '.join(ASKING)}"
        )
    return str(policy)


def decides_in_replay(inputs: Sequence[FeatureInput]) -> bool:
    """Return whether a predictor with these inputs can decide in a replay.

    False means that its answers to recorded rows are those that it gives in a switch, because no answer changes them:
    the virtual LQD, arrivals and tags of packets are the same under every policy. NobodyDecides when it reads queues of
    the switch, which its answers change, beside something that no replay computes.
    """
    unknown = [item.name for item in inputs if item.name not in REPLAYED]
    changed = [item.name for item in inputs if item.name in REAL_FEATURES]
    if unknown and changed:
        raise NobodyDecides(
            f"the model reads {changed[0]}, which its own answers change, and {unknown[0]}, which no replay computes, "
            f"so that nobody can say what it sends: leave one of the two out, or evaluate it in a network"
        )
    return not unknown


def scorer_of(ensemble: Ensemble) -> Scorer:
    """Return the ensemble as votes in units of ``2**-scale_bits``, so that it decides as the exact sums do.

    Where such sums do not fit 62 bits, as those of a forest's float64 leaves, each leaf is rounded to the smallest unit
    in which they do; then only rows whose exact sum is that close to the threshold may be decided otherwise. A
    threshold beyond all sums is moved next to them. ForetailError on inputs that a switch does not compute.

    Examples
    --------
    >>> from foretail.models.drop.sharing_rule import SharingRule
    >>> from foretail.models.ensemble.scorers import scorer_of
    >>> type(scorer_of(SharingRule(-1, 255, 160, 160).ensemble(cell_bytes=256))).__name__
    'Scorer'
    """
    known = {item.name for item in FEATURES}
    for item in ensemble.features:
        if item.name not in known:
            raise ForetailError(f"no switch computes {item.name}: give a model on features of the catalog")
    largest = sum(Fraction(float(np.abs(tree.value).max())) for tree in ensemble.trees)
    unit = Fraction(2) ** min(ensemble.scale_bits, _BITS - math.floor(largest).bit_length())
    sizes = [len(tree.feature) for tree in ensemble.trees]
    first = np.cumsum([0, *sizes])[:-1]
    feature, cut, *sides = (
        np.concatenate([getattr(tree, name) for tree in ensemble.trees]) for name in ("feature", "cut", "left", "right")
    )
    left, right = (np.where(feature < 0, -1, side + np.repeat(first, sizes)).astype(np.int32) for side in sides)
    votes = [np.array([round(Fraction(value) * unit) for value in tree.value.tolist()]) for tree in ensemble.trees]
    of_leaves = [of_tree[tree.leaves] for of_tree, tree in zip(votes, ensemble.trees, strict=True)]
    lowest, highest = sum(int(one.min()) for one in of_leaves), sum(int(one.max()) for one in of_leaves)
    tau = math.floor((ensemble.threshold - Fraction(ensemble.base)) * unit)
    return voting_trees(
        [item.name for item in ensemble.features],
        feature,
        cut,
        left,
        right,
        np.concatenate(votes).astype(np.int64),
        first.astype(np.int64),
        min(max(tau, lowest - 1), highest),
    )
