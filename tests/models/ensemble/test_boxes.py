"""Boxes against enumeration: on small inputs every claim is checked point by point."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.models.ensemble.boxes import Boxes, difference, leaf_boxes, overlap
from foretail.models.ensemble.ensemble import FeatureInput
from foretail.models.ensemble.tree import Tree
from tests.examples import draws
from tests.forests import Trained, forests

SIZE = 4


@st.composite
def boxes(draw: st.DrawFn, inputs: int = 2, max_rows: int = 5) -> Boxes:
    rows = draw(st.integers(0, max_rows))
    ends = np.array(
        [[sorted((draw(st.integers(0, SIZE - 1)), draw(st.integers(0, SIZE - 1)))) for _ in range(inputs)]]
        if rows == 1
        else [
            [sorted((draw(st.integers(0, SIZE - 1)), draw(st.integers(0, SIZE - 1)))) for _ in range(inputs)]
            for _ in range(rows)
        ]
    ).reshape(rows, inputs, 2)
    votes = np.array([draw(st.integers(0, 2)) for _ in range(rows)], np.int64)
    return Boxes(ends[:, :, 0], ends[:, :, 1], votes, draw(st.sampled_from([None, 0, 1])))


def _holds(function: Boxes, point: tuple[int, ...]) -> NDArray[np.int64]:
    return np.flatnonzero(np.all((function.low <= point) & (function.high >= point), axis=1))


@settings(max_examples=draws(200))
@given(boxes())
def test_overlap_finds_an_input_in_two_boxes(function: Boxes) -> None:
    at = overlap(function)
    crowded = [p for p in product(range(SIZE), repeat=2) if len(_holds(function, p)) > 1]
    assert (at is None) == (not crowded)
    if at is not None:
        assert tuple(at.tolist()) in crowded


@settings(max_examples=draws(400))
@given(boxes(), boxes())
def test_difference_finds_an_input_with_another_value(model: Boxes, other: Boxes) -> None:
    if overlap(other) is not None:
        return
    at = difference(model, other)

    def differs(point: tuple[int, ...]) -> bool:
        found = _holds(other, point)
        value = other.votes[found[0]] if len(found) else other.default
        return any(model.votes[row] != value for row in _holds(model, point))

    wrong = [p for p in product(range(SIZE), repeat=2) if differs(p)]
    assert (at is None) == (not wrong)
    if at is not None:
        assert tuple(at.tolist()) in wrong


@settings(max_examples=draws(30))
@given(forests())
def test_the_boxes_of_a_tree_are_where_its_leaves_are_reached(trained: Trained) -> None:
    for tree in trained.ensemble.trees:
        found = leaf_boxes(tree, trained.ensemble.features, np.arange(len(tree.feature)))
        assert overlap(found) is None
        assert difference(found, found) is None
        corners = np.concatenate([found.low, found.high])
        assert np.array_equal(tree.leaf(corners), np.tile(found.votes, 2))


def test_a_leaf_that_no_input_reaches_has_no_box() -> None:
    tree = Tree(
        np.array([0, 0, -1, -1, -1], np.int32),
        np.array([5, 9, 0, 0, 0]),
        np.array([1, 2, -1, -1, -1], np.int32),
        np.array([4, 3, -1, -1, -1], np.int32),
        np.array([0, 0, 1.0, 2.0, 3.0]),
    )
    found = leaf_boxes(tree, [FeatureInput("f", "", 8)], np.arange(5))
    assert found.votes.tolist() == [2, 4]


def test_empty_and_malformed_boxes_are_refused() -> None:
    with pytest.raises(ForetailError, match="a box is empty"):
        Boxes(np.array([[2]]), np.array([[1]]), np.array([0]))
    with pytest.raises(ForetailError, match="one bound per box and input"):
        Boxes(np.array([[2]]), np.array([[3]]), np.array([0, 1]))


def test_the_default_vote_counts_where_no_box_is() -> None:
    model = Boxes(np.array([[0]]), np.array([[3]]), np.array([7]))
    half = Boxes(np.array([[0]]), np.array([[1]]), np.array([7]), default=7)
    assert difference(model, half) is None
    assert difference(model, Boxes(half.low, half.high, half.votes, default=6)) is not None
