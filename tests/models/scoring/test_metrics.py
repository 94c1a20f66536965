"""Scores, against scikit-learn and by hand at the corners."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.models.scoring.metrics import Confusion, rank, scores

PAIRS = st.integers(1, 60).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.bool_, n), hnp.arrays(np.bool_, n), hnp.arrays(np.int64, n, elements=st.integers(0, 9))
    )
)


@given(PAIRS)
def test_scores_agree_with_scikit_learn(rows: tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64]]) -> None:
    from sklearn import metrics as sklearn_metrics

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


def test_the_best_assignment_is_scored_beside_the_labels() -> None:
    truth = np.array([True, False, False, True])
    predicted, asked = np.array([False, True, False, True]), np.array([True, True, False, False])
    best = np.array([False, True, False, True])
    found = scores(truth, predicted, ports=4, asked=asked, best_assignment=best)
    assert (found["whole"]["f1"], found["whole"]["f1_best_assignment"]) == (0.5, 1)
    assert (found["asked"]["recall"], found["asked"]["recall_best_assignment"]) == (0, 1)
    assert found["asked"]["precision_best_assignment"] == 1
    assert "f1_best_assignment" not in scores(truth, predicted, ports=4)["whole"]
    with pytest.raises(ForetailError, match="4 labels meet predictions of shape"):
        scores(truth, predicted, ports=4, best_assignment=best[:3])
