"""Calibrated probabilities and their errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.models.scoring.calibration import Calibration, calibration_scores
from foretail.models.scoring.metrics import brier_score, expected_calibration_error, rank


def test_a_map_finds_the_share_of_drops_again() -> None:
    random = np.random.default_rng(1)
    truth = random.random(40_000) ** 3
    drop = random.random(40_000) < truth
    says = np.sqrt(truth)  # far too sure
    map_ = Calibration.fit(says[:20_000], drop[:20_000])
    assert np.abs(map_(says) - truth).mean() < 0.02
    scores = calibration_scores(map_, drop[20_000:], says[20_000:])
    before, after = scores["raw_expected_calibration_error"], scores["calibrated_expected_calibration_error"]
    assert before is not None
    assert after is not None
    assert before > 0.1
    assert after < 0.02
    assert scores["calibrated_brier_score"] < scores["raw_brier_score"]  # type: ignore[operator]


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), st.booleans()), min_size=1, max_size=30))
def test_a_map_never_falls_and_stays_within_bounds(rows: list[tuple[float, bool]]) -> None:
    probability, drop = np.array([p for p, _ in rows]), np.array([d for _, d in rows])
    calibration = Calibration.fit(probability, drop)
    found = calibration(np.linspace(0, 1, 101))
    assert np.all((found >= 0) & (found <= 1))
    assert np.all(np.diff(found) >= 0)
    assert calibration.points()[0][0] == probability.min()
    assert brier_score(drop, calibration(probability)) <= brier_score(drop, probability) + 1e-12  # type: ignore[operator]


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40))
def test_errors_are_those_of_slow_counting(rows: list[tuple[float, bool]]) -> None:
    from sklearn.metrics import brier_score_loss

    probability, drop = np.array([p for p, _ in rows]), np.array([d for _, d in rows])
    assert brier_score(drop, probability) == pytest.approx(
        brier_score_loss(drop, probability, labels=[False, True]), abs=1e-12
    )
    total = 0.0
    for bin_ in range(10):
        mine = [(p, d) for p, d in rows if min(int(p * 10), 9) == bin_]
        total += abs(sum(p for p, _ in mine) - sum(d for _, d in mine))
    assert expected_calibration_error(drop, probability) == pytest.approx(total / len(rows), abs=1e-12)


def test_no_rows_have_no_error_and_no_map() -> None:
    nothing = np.empty(0, np.bool_)
    assert brier_score(nothing, np.empty(0)) is None
    assert expected_calibration_error(nothing, np.empty(0)) is None
    with pytest.raises(ForetailError, match="at least one"):
        Calibration.fit(np.empty(0), nothing)


def test_the_order_of_arrivals_stays() -> None:
    random = np.random.default_rng(2)
    probability = random.random(500)
    drop = random.random(500) < probability
    calibration = Calibration.fit(probability, drop)
    raw, calibrated = rank(drop, probability), rank(drop, calibration(probability))
    cuts = {(int(t), int(f)) for t, f in zip(raw.tp, raw.fp, strict=True)}
    assert {(int(t), int(f)) for t, f in zip(calibrated.tp, calibrated.fp, strict=True)} <= cuts
