"""The vote pass: narrowest integer votes that decide as the exact sums on every cell."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.export.passes import with_votes
from foretail.export.proof import Relation, relate, relate_by_boxes
from foretail.models.ensemble.cells import Cells
from foretail.models.ensemble.ensemble import Ensemble, votes_of
from foretail.models.ensemble.rounding import rounding_bound
from tests.examples import draws
from tests.forests import Trained, forests, paper_forest, stumps


def _all_points(ensemble: Ensemble) -> NDArray[np.int64]:
    return np.concatenate(list(Cells.of(ensemble).batches()))


def _relation(voted: Ensemble) -> Relation:
    return relate(voted, voted, Cells.of(voted))


def _orders(ensemble: Ensemble, bits: int) -> bool:
    """Slow and obvious: over all cells, the order of the vote sums is the order of the exact sums."""
    points = _all_points(ensemble)
    score = np.sum([votes_of(tree.value, bits)[tree.leaf(points)] for tree in ensemble.trees], axis=0)
    by_sum: dict[int, set[int]] = {}
    for total, votes in zip(ensemble.exact_sum(points).tolist(), score.tolist(), strict=True):
        by_sum.setdefault(total, set()).add(votes)
    groups = [by_sum[total] for total in sorted(by_sum)]
    return all(len(g) == 1 for g in groups) and all(max(a) < min(b) for a, b in pairwise(groups))


@settings(max_examples=draws(30))
@given(forests())
def test_votes_decide_as_exact_sums_on_training_extreme_and_unseen_rows(trained: Trained) -> None:
    voted = with_votes(trained.ensemble)
    assert voted.default_tau is not None
    assert np.array_equal(voted.score(trained.rows) > voted.default_tau, trained.ensemble.exceeds(trained.rows))
    assert voted.threshold == trained.ensemble.threshold


@settings(max_examples=draws(30))
@given(forests(max_trees=3, max_depth=3))
def test_the_width_is_the_smallest_that_orders_all_cells(trained: Trained) -> None:
    voted = with_votes(trained.ensemble)
    assert voted.vote_bits is not None
    if _relation(voted).order:
        assert _orders(trained.ensemble, voted.vote_bits)
        assert not any(_orders(trained.ensemble, bits) for bits in range(1, voted.vote_bits))
    else:
        assert not any(_orders(trained.ensemble, bits) for bits in range(1, 59))


def test_sums_that_differ_in_their_last_bits_get_a_width_for_their_threshold_only() -> None:
    tiny = 2.0**-70
    ensemble = stumps([0.0, 1.0], [0.0, tiny], threshold=Fraction(1, 2))
    voted = with_votes(ensemble)
    assert not _relation(voted).order
    assert _relation(voted).default
    with pytest.raises(ForetailError, match="no vote width up to 58 bits"):
        with_votes(ensemble.with_threshold(Fraction(1)))
    with pytest.raises(ForetailError, match="values of the leaves are too large for votes"):
        with_votes(stumps([0.0, 2.0**80], [0.0, 1.0], threshold=Fraction(1, 2)))


def test_equal_sums_of_different_leaves_must_get_equal_scores() -> None:
    # 3 x 1/512 = 3/512 exactly, but 1/512 rounds to 0 and 3/512 to 2 at 8 bits.
    voted = with_votes(stumps([0.0, 1 / 512], [0.0, 1 / 512], [0.0, 1 / 512], [0.0, 3 / 512]))
    assert voted.vote_bits == 9
    assert _relation(voted).order


@pytest.mark.parametrize("threshold", [Fraction(-1), Fraction(0), Fraction(3, 2), Fraction(2), Fraction(100)])
def test_thresholds_at_and_beyond_both_ends(threshold: Fraction) -> None:
    voted = with_votes(stumps([0.0, 1.0], [0.0, 0.5], threshold=threshold))
    assert voted.default_tau is not None
    points = _all_points(voted)
    assert np.array_equal(voted.score(points) > voted.default_tau, voted.exceeds(points))


def test_negative_values_and_a_base() -> None:
    base = stumps([-1.75, 2.5], [0.125, -3.0], threshold=Fraction(0))
    ensemble = Ensemble(base.features, base.trees, Fraction(-1, 4), base=-0.875, output="logit")
    voted = with_votes(ensemble)
    points = _all_points(voted)
    assert voted.default_tau is not None
    assert np.array_equal(voted.score(points) > voted.default_tau, ensemble.exceeds(points))
    assert 0 < ensemble.exceeds(points).sum() < len(points)


def test_above_the_limit_votes_are_exact_where_they_fit() -> None:
    ensemble = stumps(*([0.0, k / 64] for k in range(1, 28)), threshold=Fraction(3))
    assert Cells.of(ensemble).count > 2**20
    voted = with_votes(ensemble, max_cells=1000)
    assert voted.vote_bits == 6
    assert relate_by_boxes(ensemble, voted) == Relation(order=True, default=True)


def test_above_the_limit_a_base_counts_with_its_sign() -> None:
    plain = stumps(*([0.0, k / 64] for k in range(1, 28)), threshold=Fraction(3))
    ensemble = Ensemble(plain.features, plain.trees, Fraction(9, 4), base=-0.75, output="logit")
    voted = with_votes(ensemble, max_cells=1000)
    assert relate_by_boxes(ensemble, voted) == Relation(order=True, default=True)
    rounded = replace(plain, trees=tuple(replace(tree, value=tree.value / 3) for tree in plain.trees))
    for base in (-0.75, 0.75):
        moved = replace(ensemble, trees=rounded.trees, threshold=1 + Fraction(base), base=base)
        narrow = replace(
            moved,
            trees=tuple(replace(tree, votes=votes_of(tree.value, 4)) for tree in moved.trees),
            vote_bits=4,
            default_tau=int((moved.threshold - Fraction(base)) * 16),
        )
        points = np.random.default_rng(1).integers(0, 21, (4000, len(moved.features)))
        far = [abs(Fraction(s) - moved.threshold) for s in moved.float_sum(points).tolist()]
        wrong = (narrow.score(points) > narrow.require_votes()[1]) != moved.exceeds(points)
        bound = relate_by_boxes(moved, narrow).rounding
        assert wrong.any()
        assert max(distance for distance, differs in zip(far, wrong, strict=True) if differs) <= bound
        assert bound <= Fraction(27, 32) + Fraction(1, 16)  # half a vote for each tree, and one between two scores


@pytest.mark.parametrize("largest", [1.0, 0.75, 3.0, 2.0**-40, 2.0**30])
def test_the_widest_votes_fill_64_bits_and_no_wider_ones_fit(largest: float) -> None:
    ensemble = stumps([0.0, largest], [0.0, largest], [0.0, largest])

    def fits(bits: int) -> bool:
        return 3 * Fraction(largest) * Fraction(2) ** bits + 3 < 2**63

    assert fits(ensemble.max_vote_bits)
    assert ensemble.max_vote_bits == 58 or not fits(ensemble.max_vote_bits + 1)


def test_above_the_limit_votes_that_do_not_fit_round_no_more_than_the_framework() -> None:
    trained = paper_forest(trees=16)
    voted = with_votes(trained.ensemble, max_cells=1000)
    relation = relate_by_boxes(trained.ensemble, voted)
    assert not relation.order
    assert 0 < relation.rounding <= rounding_bound(trained.ensemble)
    assert voted.default_tau is not None
    sums = np.array([Fraction(int(s), 1 << voted.scale_bits) for s in voted.exact_sum(trained.rows)])
    clear = np.abs(sums - trained.ensemble.threshold) > relation.rounding
    decided = voted.score(trained.rows) > voted.default_tau
    assert np.array_equal(decided[clear], trained.ensemble.exceeds(trained.rows)[clear])
    assert decided.sum() > 0
