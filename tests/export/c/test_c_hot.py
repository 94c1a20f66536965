"""The hot box and the cost model against slow, obvious ones; together they cost some seconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings

from foretail.core.errors import ForetailError
from foretail.export.c.forms import MISPREDICTION, NODE, UNCOUNTED, expected_cycles
from foretail.export.c.shapes import Bitvectors, HotBox, Trees
from foretail.export.c.target import render_c
from foretail.export.passes import with_votes
from foretail.models.ensemble.boxes import leaf_boxes
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.tree import cuts_of
from tests.examples import draws
from tests.forests import Trained, forests, stump, stumps


def _constant(ensemble: Ensemble, low: np.ndarray, high: np.ndarray) -> bool:
    """Return whether every tree has one vote in a box, by its leaves."""
    parts = [leaf_boxes(tree, ensemble.features) for tree in ensemble.trees]
    return all(len(set(p.votes[np.all((p.low <= high) & (low <= p.high), axis=1)].tolist())) == 1 for p in parts)


@settings(max_examples=draws(40))
@given(trained=forests(max_trees=6, max_depth=5))
def test_every_tree_is_constant_in_the_hot_box_and_in_none_that_is_larger(trained: Trained) -> None:
    voted = with_votes(trained.ensemble, any_tau=False, max_cells=0)
    box = HotBox.of(voted)
    assume(box is not None)
    assert box is not None
    assert _constant(voted, box.low, box.high)
    random = np.random.default_rng(0)
    points = np.concatenate([random.integers(box.low, box.high + 1, (50, len(box.low))), [box.low, box.high]])
    assert set(voted.score(points).tolist()) == {box.score}
    for feature, item in enumerate(voted.features):
        for bounds, end, step in ((box.low, 0, -1), (box.high, (1 << item.bits) - 1, 1)):
            if bounds[feature] != end:
                moved = bounds.copy()
                moved[feature] += step
                low, high = (moved, box.high) if step < 0 else (box.low, moved)
                assert not _constant(voted, low, high)
                assert feature in cuts_of(voted.trees)


@settings(max_examples=draws(40))
@given(trained=forests(max_trees=4, max_depth=5))
def test_as_many_rows_are_in_the_hot_box_as_it_says_at_least_and_exactly_those_of_one_tree(trained: Trained) -> None:
    voted = with_votes(trained.ensemble, any_tau=False, max_cells=0).with_visits([trained.rows])
    for ensemble in (voted, replace(voted, trees=voted.trees[:1])):
        box = HotBox.of(ensemble)
        if box is None:
            continue
        inside = np.mean(np.all((box.low <= trained.rows) & (trained.rows <= box.high), axis=1))
        assert 0 <= box.inside <= inside + 1e-12
        assert all(np.isclose(share.sum(), 1 - box.inside) and np.all(share >= -1e-12) for share in box.rest(ensemble))
        if len(ensemble.trees) == 1 and len(set(Trees.of(ensemble).votes)) == len(ensemble.trees[0].leaves):
            assert box.inside == pytest.approx(inside)


@settings(max_examples=draws(20))
@given(trained=forests(max_trees=3, max_depth=5))
def test_branches_cost_the_nodes_of_the_rows_and_their_rarer_sides(trained: Trained) -> None:
    rows = trained.rows[:200]
    voted = with_votes(trained.ensemble, any_tau=False, max_cells=0).with_visits([rows])
    box = HotBox.of(voted)
    assume(box is not None)
    assert box is not None
    cycles = 0.0
    for tree in voted.trees:
        sides: dict[int, list[bool]] = {}
        for row in rows:
            node = 0
            while tree.feature[node] >= 0:
                left = bool(row[tree.feature[node]] <= tree.cut[node])
                sides.setdefault(node, []).append(left)
                node = int(tree.left[node] if left else tree.right[node])
        for taken in sides.values():
            cycles += NODE * len(taken) + MISPREDICTION * min(sum(taken), len(taken) - sum(taken))
    found = expected_cycles(voted, None, box)
    assert set(found) == {"hot_branches", "branches"}
    assert found["branches"] == pytest.approx(cycles / len(rows), abs=0.051)


def test_the_form_follows_the_visits_and_the_header_says_why() -> None:
    six, random = stumps(*[[0.0, 1.0]] * 6), np.random.default_rng(1)
    alike = replace(stumps([0.0, 1.0]), trees=tuple(stump([0.0, 1.0], cut=10 + index) for index in range(12)))
    even = random.integers(0, 22, (500, 6))
    hot = np.where(np.arange(500)[:, np.newaxis] < 490, 0, even)
    for model, rows, form in ((six, even, "bitvector"), (six, hot, "branches"), (alike, hot[:, :1], "hot_bitvector")):
        counted = with_votes(model).with_visits([rows])
        box = HotBox.of(counted)
        assert box is not None
        cycles = expected_cycles(counted, Bitvectors.of(counted), box)
        assert min(cycles, key=cycles.__getitem__) == form
        shown = ", ".join(f"{name} {spent}" for name, spent in cycles.items())
        reason = "the cheapest by the visits of training rows, in cycles beside the call"
        assert f"* One prediction: {form}, {reason}: {shown}.\n" in render_c(counted)["drop_predictor.h"]


def test_without_visits_bitvectors_are_taken_and_no_hot_box_is_known() -> None:
    voted = with_votes(stumps([0.0, 1.0], [0.0, 1.0]))
    assert f"* One prediction: bitvector, {UNCOUNTED}." in render_c(voted)["drop_predictor.h"]
    unvisited = voted.with_visits([])
    assert f"* One prediction: bitvector, {UNCOUNTED}." in render_c(unvisited)["drop_predictor.h"]
    with pytest.raises(ForetailError, match="how often its leaves were visited: leave out shape=hot_branches"):
        render_c(voted, shape="hot_branches")
    with pytest.raises(ForetailError, match="set shape=hot_bitvector"):
        render_c(voted, batch="hot_lanes")


def test_blocks_of_rows_skip_the_lanes_where_these_are_long() -> None:
    short, rows = stumps([0.0, 1.0], [0.0, 1.0]), np.zeros((100, 2), np.int64)
    long = replace(short, trees=tuple(stump([0.0, 1.0], cut=10 + index // 4) for index in range(300)))
    for model, batch in ((short, "lanes"), (long, "hot_lanes")):
        counted = with_votes(model, any_tau=False).with_visits([rows])
        assert f"\n * Many: {batch}. " in render_c(counted)["drop_predictor.h"]
