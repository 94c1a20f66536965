"""Passes: the same function, fewer leaves, and a changed function is caught."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from foretail.core.errors import ForetailError
from foretail.export.passes import (
    PASSES,
    drop_redundant_thresholds,
    lower,
    merge_equal_subtrees,
    prune_dead_branches,
    simplify,
    with_votes,
)
from foretail.export.proof import ProofError, relate
from foretail.models.ensemble.cells import Cells
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.tree import Tree
from tests.examples import draws
from tests.forests import Trained, forests, paper_forest


def _tree(*nodes: tuple[int, int, int, int] | float) -> Tree:
    """Return a tree of (feature, cut, left, right) and leaf values."""
    inner = [n if isinstance(n, tuple) else (-1, 0, -1, -1) for n in nodes]
    feature, cut, left, right = (np.array(column) for column in zip(*inner, strict=True))
    return Tree(feature, cut, left, right, np.array([0.0 if isinstance(n, tuple) else n for n in nodes]))


def _ensemble(tree: Tree, inputs: int = 2) -> Ensemble:
    return Ensemble(tuple(FeatureInput(f"f{i}", "", 8) for i in range(inputs)), (tree,), Fraction(1, 2))


def test_what_no_switch_can_know_is_never_exported() -> None:
    study = replace(_ensemble(_tree((0, 0, 1, 2), 0.0, 1.0), 1), features=(FeatureInput("incast", "", 1),))
    for model in (study, with_votes(study)):
        with pytest.raises(ForetailError, match=r"^the model reads feature 'incast', which no switch can know"):
            lower(model)


@settings(max_examples=draws(20))
@given(forests(max_depth=6))
def test_every_pass_keeps_the_visits(trained: Trained) -> None:
    before = trained.ensemble.with_visits([trained.rows])
    for step in PASSES:
        after = step(before)
        recounted = after.with_visits([trained.rows])
        for tree, counted in zip(after.trees, recounted.trees, strict=True):
            assert tree.visits is not None
            assert counted.visits is not None
            assert tree.visits.sum() == len(trained.rows)
            if step is prune_dead_branches:  # whose leaves keep their inputs
                assert np.array_equal(tree.visits, counted.visits)
        before = recounted


def test_a_leaf_that_goes_leaves_its_visits_to_those_that_its_inputs_reach() -> None:
    tree = _tree((0, 5, 1, 2), 1.0, (1, 7, 3, 6), (0, 20, 4, 5), 1.0, 0.0, (0, 30, 7, 8), 1.0, 0.0)
    counted = replace(_ensemble(tree), trees=(replace(tree, visits=np.array([0, 7, 0, 0, 10, 20, 0, 30, 40])),))
    (after,) = drop_redundant_thresholds(counted).trees
    assert after.visits is not None
    assert after.visits[after.leaves].tolist() == [10 + 4, 20, 30 + 3, 40]
    same = _ensemble(_tree((0, 5, 1, 4), (1, 7, 2, 3), 0.0, 1.0, (1, 7, 5, 6), 0.0, 1.0))
    visited = replace(same.trees[0], visits=np.array([0, 0, 1, 2, 0, 30, 40]))
    (after,) = merge_equal_subtrees(replace(same, trees=(visited,))).trees
    assert after.visits is not None
    assert after.visits.tolist() == [0, 31, 42]
    box = _ensemble(_tree((0, 5, 1, 2), 1.0, (1, 7, 3, 4), 1.0, 1.0))
    odd = replace(box.trees[0], visits=np.array([0, 7, 0, 2, 3]))
    (after,) = merge_equal_subtrees(replace(box, trees=(odd,))).trees
    assert after.visits is not None
    assert after.visits.tolist() == [12]


@settings(max_examples=draws(40))
@given(forests(max_depth=6))
def test_every_pass_keeps_every_exact_sum(trained: Trained) -> None:
    model = trained.ensemble
    points = next(Cells.of(model).batches())
    for step in PASSES:
        after = step(model)
        finer = model.scale_bits - after.scale_bits
        assert np.array_equal(after.exact_sum(points) * (1 << finer), model.exact_sum(points))
        assert sum(len(t.leaves) for t in after.trees) <= sum(len(t.leaves) for t in model.trees)
        model = after


@settings(max_examples=draws(20))
@given(forests())
def test_what_is_emitted_decides_as_the_model_on_every_cell(trained: Trained) -> None:
    voted = lower(trained.ensemble).ensemble
    boundaries = {
        i: {int(c) for tree in trained.ensemble.trees for c in tree.cut[tree.feature == i]}
        for i in range(len(voted.features))
    }
    assert relate(trained.ensemble, voted, Cells.of(voted, boundaries)).default


def test_a_branch_that_no_input_takes_is_dropped() -> None:
    model = _ensemble(_tree((0, 5, 1, 4), (0, 9, 2, 3), 0.25, 0.5, 1.0))
    assert prune_dead_branches(model).trees[0].value.tolist() == [0.0, 0.25, 1.0]


def test_a_test_with_equal_sides_is_dropped() -> None:
    model = _ensemble(_tree((0, 5, 1, 4), (1, 9, 2, 3), 0.25, 0.5, (1, 9, 5, 6), 0.25, 0.5))
    assert merge_equal_subtrees(model).trees[0].feature.tolist() == [1, -1, -1]


def test_a_test_whose_other_side_knows_the_answer_is_dropped() -> None:
    # right of f0 <= 5, the tree asks f1 <= 9; left of it the answer is always that of f1 <= 9 as f0 > 5 is not needed
    model = _ensemble(_tree((0, 5, 1, 2), 0.25, (0, 7, 3, 4), 0.25, 1.0))
    assert merge_equal_subtrees(model) == model
    assert drop_redundant_thresholds(model).trees[0].cut.tolist() == [7, 0, 0]


def test_leaves_with_equal_votes_are_merged() -> None:
    model = _ensemble(_tree((0, 5, 1, 2), 0.25, (1, 7, 3, 4), 1.0, 1.0 + 2.0**-40))
    lowered = lower(model, any_tau=False)
    emitted, reports = lowered.ensemble, lowered.passes
    assert emitted.vote_bits == 1
    assert [r.leaves_after for r in reports] == [3] * len(PASSES) + [3, 2, 2]
    assert reports[0].leaves_before == 3
    assert sum(len(t.leaves) for t in lower(model).ensemble.trees) == 3  # any tau must tell the two apart


def test_a_pass_that_changes_the_function_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(ensemble: Ensemble) -> Ensemble:
        first = ensemble.trees[0]
        value = np.where(first.feature < 0, first.value + 0.5, 0)
        return replace(ensemble, trees=(replace(first, value=value), *ensemble.trees[1:]))

    monkeypatch.setattr("foretail.export.passes.PASSES", (wrong,))
    with pytest.raises(ProofError, match="the pass wrong changes tree 0 at the input"):
        simplify(paper_forest().ensemble)
