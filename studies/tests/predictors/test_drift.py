"""Distances between distributions, against slow definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail_studies.predictors.label_study import kolmogorov_smirnov, population_stability_index

VALUES = st.lists(st.integers(0, 20), min_size=1, max_size=50)


@given(VALUES, VALUES)
def test_kolmogorov_smirnov_is_the_largest_gap(expected: list[int], actual: list[int]) -> None:
    gaps = [abs(np.mean(np.array(expected) <= v) - np.mean(np.array(actual) <= v)) for v in range(21)]
    found = kolmogorov_smirnov(np.array(expected, np.int32), np.array(actual, np.int32))
    assert found == pytest.approx(max(gaps))


@given(VALUES, VALUES)
def test_stability_is_zero_for_the_same_and_positive_else(expected: list[int], actual: list[int]) -> None:
    a, b = np.array(expected, np.int32), np.array(actual, np.int32)
    assert population_stability_index(a, np.concatenate([a])) == 0
    assert population_stability_index(a, b) >= 0


def test_stability_by_hand() -> None:
    """Two bins, up to 5 and above: 5 and 5 against 2 and 8, each plus a half."""
    expected, actual = np.arange(1, 11, dtype=np.int32), np.repeat([0, 9], [2, 8]).astype(np.int32)
    e, a = (5.5 / 11, 5.5 / 11), (2.5 / 11, 8.5 / 11)
    by_hand = sum((y - x) * math.log(y / x) for x, y in zip(e, a, strict=True))
    assert population_stability_index(expected, actual, bins=2) == pytest.approx(by_hand)


def test_nothing_has_no_distribution() -> None:
    none, one = np.empty(0, np.int32), np.zeros(1, np.int32)
    for distance in (kolmogorov_smirnov, population_stability_index):
        with pytest.raises(ForetailError, match="1 rows cannot be compared with 0: collect longer runs"):
            distance(one, none)
