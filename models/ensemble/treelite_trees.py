"""Trees of treelite as trees on integers, their nodes in preorder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.models.ensemble.ensemble import FLOAT32_BITS, MAX_BITS, FeatureInput
from foretail.models.ensemble.tree import MAX_VISITS, Tree

_LE, _LT = 3, 2  # treelite's Operator codes of a node's `cmp`
CATEGORICAL = "the model has categorical splits, which are not supported: train it on integer features only"


def read_tree(accessor: Any, classes: int, features: Sequence[FeatureInput], *, rounds: bool) -> Tree:
    """Return the tree of a treelite accessor; ForetailError when it is malformed or of another kind.

    Parameters
    ----------
    classes : 2 for leaves that are probabilities of two classes, 1 for leaves of one number
    features : the model's columns in training order
    rounds : whether the framework compares inputs as float32
    """
    if np.any(accessor.get_field("has_categorical_split")):
        raise ForetailError(CATEGORICAL)
    left, right = (accessor.get_field(name).astype(np.int64) for name in ("cleft", "cright"))
    feature = accessor.get_field("split_index").astype(np.int64)
    threshold = accessor.get_field("threshold").astype(np.float64)
    operator = accessor.get_field("cmp")
    arrays = [left, right, feature, threshold, operator]
    if not len(left) or any(len(array) != len(left) for array in arrays) or np.any((left < 0) != (right < 0)):
        raise _malformed()
    inner = np.flatnonzero(left >= 0)
    if np.any(feature[inner] < 0) or np.any(feature[inner] >= len(features)):
        raise _malformed()
    if not np.all(np.isin(operator[inner], (_LE, _LT))):
        raise ForetailError("the model has splits other than x < t and x <= t: use a random forest or boosted trees")
    if not np.all(np.isfinite(threshold[inner])):
        raise ForetailError("the model has a split at a threshold that is not finite: train it without missing values")
    value = _leaf_values(accessor, classes, left < 0)
    if not np.all(np.isfinite(value)):
        raise ForetailError("the model has a leaf that is not finite: lower its learning rate or train it again")
    # On integers x <= t is x <= floor(t), and x < t is x <= ceil(t) - 1; clipped to where a cut changes something.
    threshold = np.clip(threshold, -1, 1 << MAX_BITS)
    cut = np.where(operator == _LE, np.floor(threshold), np.ceil(threshold) - 1)
    if rounds:
        cut = np.where(cut < 1 << FLOAT32_BITS, cut, _cuts_of_float32(threshold, operator == _LE))
    cut = np.where(left >= 0, np.maximum(cut, -1), 0).astype(np.int64)
    visits = _visits(accessor, left < 0)
    return _in_preorder(feature, cut, left, right, value, visits, [(1 << f.bits) - 1 for f in features])


def _cuts_of_float32(threshold: npt.NDArray[np.float64], at_most: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return the largest integer whose float32 is at most, or else below, each threshold from 2**24 on."""
    last = threshold.astype(np.float32)
    beyond = np.where(at_most, last > threshold, last >= threshold)
    last = np.where(beyond, np.nextafter(last, np.float32(-np.inf)), last)
    # Integers round to the nearer float32; one in the middle to the float32 whose last bit is 0.
    middle = (last.astype(np.float64) + np.nextafter(last, np.float32(np.inf))) / 2
    cuts: npt.NDArray[np.float64] = np.where(middle.astype(np.float32) == last, np.floor(middle), np.ceil(middle) - 1)
    return cuts


def _leaf_values(accessor: Any, classes: int, leaf: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    value = np.zeros(len(leaf))
    if classes == 1:
        given = accessor.get_field("leaf_value").astype(np.float64)
        if len(given) != len(leaf):
            raise _malformed()
        value[leaf] = given[leaf]
        return value
    vector, begin = (accessor.get_field(name) for name in ("leaf_vector", "leaf_vector_begin"))
    if len(begin) != len(leaf) or np.any(begin[leaf] + 1 >= len(vector)):
        raise _malformed()
    value[leaf] = vector[begin[leaf].astype(np.int64) + 1]
    return value


def _visits(accessor: Any, leaf: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64] | None:
    """Return how many training rows reached each leaf, as its framework has counted them; None where it has not."""
    count, present = (accessor.get_field(name) for name in ("data_count", "data_count_present"))
    if len(count) != len(leaf) or len(present) != len(leaf) or not np.all(present[leaf]) or count.max() >= MAX_VISITS:
        return None
    return np.where(leaf, count.astype(np.int64), 0)


def _in_preorder(
    feature: npt.NDArray[np.int64],
    cut: npt.NDArray[np.int64],
    left: npt.NDArray[np.int64],
    right: npt.NDArray[np.int64],
    value: npt.NDArray[np.float64],
    visits: npt.NDArray[np.int64] | None,
    largest: Sequence[int],
) -> Tree:
    """Number the nodes that inputs in [0, largest] reach in preorder, the canonical order: equal trees, equal files."""
    order: list[int] = []
    children: list[list[int]] = []
    stack, seen = [(0, -1, 0)], np.zeros(len(left), np.bool_)
    while stack:
        node, parent, side = stack.pop()
        while True:
            if node >= len(left) or seen[node]:  # no child, or one of two parents
                raise _malformed()
            seen[node] = True
            if left[node] < 0 or 0 <= cut[node] < largest[feature[node]]:
                break
            node = int(right[node] if cut[node] < 0 else left[node])
        if parent >= 0:
            children[parent][side] = len(order)
        if left[node] >= 0:
            stack += [(int(right[node]), len(order), 1), (int(left[node]), len(order), 0)]
        order.append(node)
        children.append([-1, -1])
    ordered = np.array(order)
    pairs = np.array(children)
    tested = np.where(left[ordered] >= 0, feature[ordered], -1).astype(np.int32)
    below, above = (side.astype(np.int32) for side in pairs.T)
    counts = None if visits is None else visits[ordered]
    return Tree(tested, cut[ordered], below, above, value[ordered], visits=counts)


def _malformed() -> ForetailError:
    return ForetailError("the model has a malformed tree: its file is damaged, save the model again")
