"""Scores, against scikit-learn and by hand at the corners."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from sklearn import metrics as sklearn_metrics

from foretail.core.errors import ForetailError
from foretail.models.ensemble.cells import Cells, distinct_rows
from foretail.models.scoring import operating_point
from foretail.models.scoring.metrics import Confusion, rank, scores
from foretail.models.scoring.operating_point import choose_network_threshold, choose_operating_point
from tests.examples import draws
from tests.forests import Trained, forests, stumps

PAIRS = st.integers(1, 60).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.bool_, n), hnp.arrays(np.bool_, n), hnp.arrays(np.int64, n, elements=st.integers(0, 9))
    )
)


@given(PAIRS)
def test_scores_agree_with_scikit_learn(rows: tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64]]) -> None:
    truth, predicted, score = rows
    confusion = Confusion.count(truth, predicted)
    tn, fp, fn, tp = sklearn_metrics.confusion_matrix(truth, predicted, labels=[False, True]).ravel()
    assert confusion == Confusion(tp, fp, tn, fn)
    assert confusion.accuracy == pytest.approx(sklearn_metrics.accuracy_score(truth, predicted))
    if tp + fp:
        assert confusion.precision == pytest.approx(sklearn_metrics.precision_score(truth, predicted))
    if tp + fn:
        assert confusion.recall == pytest.approx(sklearn_metrics.recall_score(truth, predicted))
        expected = sklearn_metrics.average_precision_score(truth, score)
        assert rank(truth, score).average_precision == pytest.approx(expected)
        assert rank(truth, score / 7).average_precision == pytest.approx(expected)
    else:
        assert rank(truth, score).average_precision is None
    if tp + fp + fn:
        assert confusion.f1 == pytest.approx(sklearn_metrics.f1_score(truth, predicted))
    if fp + tn:
        assert confusion.false_positive_rate == pytest.approx(fp / (fp + tn))


@given(PAIRS)
def test_a_ranking_counts_every_threshold(rows: tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64]]) -> None:
    truth, _, score = rows
    ranking = rank(truth, score)
    assert ranking.score.tolist() == sorted(set(score.tolist()), reverse=True)
    for value, tp, fp in zip(ranking.score, ranking.tp, ranking.fp, strict=True):
        confusion = Confusion.count(truth, score >= value)
        assert (confusion.tp, confusion.fp) == (tp, fp)


@given(PAIRS, st.integers(1, 20))
def test_a_ranking_does_not_depend_on_how_many_rows_are_sorted_at_a_time(
    rows: tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64]], chunk_rows: int
) -> None:
    truth, _, score = rows
    score %= 3  # few distinct scores, or all rows are sorted together
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foretail.models.scoring.metrics.CHUNK_ROWS", chunk_rows)
        chunked = rank(truth, score / 7)
    whole = rank(truth, score / 7)
    for name in ("score", "tp", "fp"):
        assert np.array_equal(getattr(chunked, name), getattr(whole, name))


@pytest.mark.parametrize(
    ("confusion", "ports", "eta"),
    [
        (Confusion(tp=0, fp=0, tn=100, fn=0), 20, 1.0),
        (Confusion(tp=5, fp=10, tn=90, fn=0), 20, 100 / 90),
        (Confusion(tp=5, fp=0, tn=100, fn=1), 20, 100 / 81),
        (Confusion(tp=5, fp=0, tn=100, fn=1), 1, 1.0),
        (Confusion(tp=0, fp=0, tn=19, fn=1), 20, None),
        (Confusion(tp=0, fp=0, tn=18, fn=1), 20, None),
        (Confusion(tp=0, fp=4, tn=0, fn=0), 20, None),
        (Confusion(tp=3, fp=0, tn=0, fn=0), 20, None),
    ],
)
def test_the_closed_form_at_its_corners(confusion: Confusion, ports: int, eta: float | None) -> None:
    assert confusion.closed_form_eta(ports) == (None if eta is None else pytest.approx(eta))


def test_undefined_scores_are_null_in_json() -> None:
    nothing = np.zeros(0, np.bool_)
    found = scores(nothing, nothing, ports=8, score=np.zeros(0), asked=nothing)
    for region in ("whole", "asked"):
        counts = {name: value for name, value in found[region].items() if value is not None}
        assert counts == dict.fromkeys(
            ("rows", "true_positives", "false_positives", "true_negatives", "false_negatives"), 0
        )
    assert json.loads(json.dumps(found, allow_nan=False))["whole"]["f1"] is None


def test_the_asked_region_counts_only_its_rows() -> None:
    truth = np.array([True, True, False, False])
    predicted = np.array([True, False, True, False])
    asked = np.array([True, True, False, False])
    found = scores(truth, predicted, ports=4, score=predicted.astype(np.int64), asked=asked)
    assert found["whole"]["f1"] == 0.5
    assert found["asked"]["rows"] == 2
    assert found["asked"]["precision"] == 1.0
    assert found["asked"]["recall"] == 0.5
    assert found["asked"]["false_positive_rate"] is None
    assert found["asked"]["average_precision"] == 1.0
    assert "asked" not in scores(truth, predicted, ports=4)
    assert "average_precision" not in scores(truth, predicted, ports=4)["whole"]


BOOLS = np.array([True, False])


@pytest.mark.parametrize(
    "call",
    [
        lambda: Confusion.count(BOOLS.astype(int), BOOLS),
        lambda: Confusion.count(BOOLS, BOOLS[:1]),
        lambda: Confusion.count(BOOLS, BOOLS).closed_form_eta(0),
        lambda: rank(BOOLS, np.array([1.0, np.nan])),
        lambda: rank(BOOLS, np.array(["a", "b"])),
        lambda: rank(BOOLS, np.array([1.0])),
        lambda: scores(BOOLS, BOOLS, ports=2, asked=np.array([1, 0])),
        lambda: scores(BOOLS, BOOLS, ports=2, score=np.array([1.0])),
    ],
)
def test_malformed_rows_are_refused(call: Any) -> None:
    with pytest.raises(ForetailError):
        call()


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


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2)), min_size=1))
def test_distinct_rows_are_sorted_and_complete(rows: list[tuple[int, int]]) -> None:
    keys = np.array(rows, np.int64)
    first, place = distinct_rows(keys)
    assert keys[first].tolist() == [list(row) for row in sorted(set(rows))]
    assert np.array_equal(keys[first][place], keys)
    assert all(rows.index(rows[i]) == i for i in first.tolist())


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
