"""The operating point, and the cells its threshold is placed between."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.models.ensemble.cells import Cells, distinct_rows, distinct_sums
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.scoring import operating_point
from foretail.models.scoring.metrics import Confusion
from foretail.models.scoring.operating_point import choose_network_threshold, choose_operating_point
from tests.examples import draws
from tests.forests import Trained, forests, paper_forest, stumps


def _f1(confusion: Confusion) -> Fraction:
    return Fraction(2 * confusion.tp, 2 * confusion.tp + confusion.fp + confusion.fn)


@settings(max_examples=draws(40))
@given(forests(), st.integers(0, 2**32 - 1))
def test_no_threshold_has_a_higher_f1_and_no_lower_one_the_same(trained: Trained, seed: int) -> None:
    labels = np.random.default_rng(seed).random(len(trained.rows)) < 0.3
    labels[0] = True
    chosen = choose_operating_point(trained.ensemble, trained.rows, labels)
    unit = 1 << trained.ensemble.scale_bits
    sums = sorted({Fraction(s, unit) for s in trained.ensemble.exact_sum(trained.rows).tolist()})
    tried = {}
    for threshold in [sums[0] - 1, *((a + b) / 2 for a, b in pairwise(sums))]:
        drops = trained.ensemble.with_threshold(threshold).exceeds(trained.rows)
        tried[threshold] = _f1(Confusion.count(labels, drops))
    drops = trained.ensemble.with_threshold(chosen.threshold).exceeds(trained.rows)
    assert chosen.confusion == Confusion.count(labels, drops)
    assert _f1(chosen.confusion) == max(tried.values())
    best = min(t for t, f1 in tried.items() if f1 == max(tried.values()))
    assert np.array_equal(drops, trained.ensemble.with_threshold(best).exceeds(trained.rows))


def test_the_threshold_lies_strictly_between_consecutive_attainable_sums_in_the_widest_gap() -> None:
    # Attainable sums 0, 1/8, 1/4, 3/8, 1, ...; validation sees only 0 and 1.
    ensemble = stumps([0.0, 1.0], [0.0, 0.25], [0.0, 0.125])
    x = np.array([[0, 0, 0], [255, 0, 0]])
    chosen = choose_operating_point(ensemble, x, np.array([False, True]))
    assert chosen.threshold == Fraction(11, 16)
    assert chosen.probability == pytest.approx(11 / 48)
    assert chosen.attainable == "cells"


def test_dropping_everything_stays_above_the_next_attainable_sum() -> None:
    ensemble = stumps([0.0, 1.0], [0.0, 0.5])
    both = np.array([[255, 0], [255, 255]])
    assert choose_operating_point(ensemble, both, np.array([True, True])).threshold == Fraction(3, 4)
    lowest = choose_operating_point(ensemble, np.array([[0, 0]]), np.array([True]))
    assert lowest.threshold == Fraction(-1, 2)


def test_many_cells_fall_back_to_the_sums_of_the_rows_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operating_point, "MAX_CELLS", 3)
    chosen = choose_operating_point(
        stumps([0.0, 1.0], [0.0, 0.25]), np.array([[0, 0], [255, 0]]), np.array([False, True])
    )
    assert chosen.attainable == "rows"
    assert chosen.threshold == Fraction(1, 2)


def test_only_the_region_counts() -> None:
    ensemble = stumps([0.0, 1.0], [0.0, 0.5])
    x = np.array([[0, 0], [0, 255], [255, 0], [255, 255]])
    labels = np.array([False, True, False, True])
    region = np.array([False, False, True, True])
    chosen = choose_operating_point(ensemble, x, labels, region)
    assert chosen.confusion == Confusion(tp=1, fp=0, tn=1, fn=0)
    assert 1 < chosen.threshold < Fraction(3, 2)
    with pytest.raises(ForetailError, match=r"hold no drop.*incast\.burst_fraction"):
        choose_operating_point(ensemble, x, labels, np.array([True, False, True, False]))


@settings(max_examples=draws(20))
@given(
    forests(max_trees=2, max_depth=2, max_features=2).filter(lambda t: max(f.bits for f in t.ensemble.features) <= 6)
)
def test_one_point_per_cell_meets_every_leaf_combination_of_every_input(trained: Trained) -> None:
    ensemble = trained.ensemble

    def reached(points: np.ndarray) -> set[tuple[int, ...]]:
        return set(zip(*(tree.leaf(points).tolist() for tree in ensemble.trees), strict=True))

    everything = np.array(list(product(*(range(1 << f.bits) for f in ensemble.features))))
    cells = Cells.of(ensemble)
    points = np.concatenate(list(cells.batches(rows=7)))
    assert len(points) == cells.count == len(np.unique(points, axis=0))
    assert reached(points) == reached(everything)


def test_cells_use_both_ends_of_the_range_and_ignore_boundaries_outside_it() -> None:
    ensemble = stumps([0.0, 1.0], [0.0, 1.0])
    cells = Cells.of(ensemble, {0: [-1, 5, 254, 255, 1000]})
    assert [axis.tolist() for axis in cells.axes] == [[0, 10, 254, 255], [0, 255]]


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2)), min_size=1))
def test_distinct_rows_are_sorted_and_complete(rows: list[tuple[int, int]]) -> None:
    keys = np.array(rows, np.int64)
    first, place = distinct_rows(keys)
    assert keys[first].tolist() == [list(row) for row in sorted(set(rows))]
    assert np.array_equal(keys[first][place], keys)
    assert all(rows.index(rows[i]) == i for i in first.tolist())


def test_distinct_sums_name_a_cell_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble: Ensemble = paper_forest(trees=2, depth=3).ensemble
    cells = Cells.of(ensemble)
    keys, index = distinct_sums(ensemble, cells)
    assert np.array_equal(ensemble.exact_key(cells.points(index)), keys)
    every = np.concatenate([ensemble.exact_sum(p) for p in cells.batches()])
    assert len(keys) == len(set(every.tolist()))


@settings(max_examples=draws(40))
@given(forests(), st.integers(0, 2**32 - 1))
def test_another_worth_is_maximised_over_the_thresholds_that_are_tried(trained: Trained, seed: int) -> None:
    random = np.random.default_rng(seed)
    labels = random.random(len(trained.rows)) < 0.3
    labels[0] = True
    tried: dict[Fraction, float] = {}

    def worth(thresholds: Sequence[Fraction]) -> list[float]:
        assert list(thresholds) == sorted(set(thresholds))
        values = [float(random.integers(0, 5)) for _ in thresholds]
        for threshold, value in zip(thresholds, values, strict=True):
            assert threshold not in tried
            claimed = int(np.count_nonzero(trained.ensemble.with_threshold(threshold).exceeds(trained.rows)))
            tried[threshold] = value
            worths[claimed] = value
        return values

    worths: dict[int, float] = {}
    chosen = choose_operating_point(trained.ensemble, trained.rows, labels, worth=worth)
    drops = trained.ensemble.with_threshold(chosen.threshold).exceeds(trained.rows)
    assert chosen.confusion == Confusion.count(labels, drops)
    assert worths[int(np.count_nonzero(drops))] == max(worths.values())
    assert 0 in worths  # never to drop is among them
    assert len(tried) <= operating_point.TRIED_THRESHOLDS + 1


def test_few_thresholds_are_all_tried() -> None:
    ensemble = stumps([0.0, 1.0], [0.0, 0.5])
    x = np.array([[0, 0], [0, 255], [255, 0], [255, 255]])
    labels = np.array([False, True, False, True])
    probability = np.array([0.1, 0.3, 0.3, 0.9])
    for wanted in range(5):

        def worth(thresholds: Sequence[Fraction], wanted: int = wanted) -> list[float]:
            drops = (ensemble.with_threshold(threshold).exceeds(x) for threshold in thresholds)
            return [float(np.count_nonzero(of_one) == wanted) for of_one in drops]

        chosen = choose_operating_point(ensemble, x, labels, worth=worth)
        assert np.count_nonzero(ensemble.with_threshold(chosen.threshold).exceeds(x)) == wanted

        def network_worth(thresholds: Sequence[Fraction], wanted: int = wanted) -> list[float]:
            return [float(np.count_nonzero(probability > float(one)) == wanted) for one in thresholds]

        network = choose_network_threshold(probability, labels, worth=network_worth)
        if wanted != 2:  # two rows share a probability
            assert np.count_nonzero(probability > network.probability) == wanted
