"""The framework's own rounding: where it decides otherwise than the exact sum, and how far it can be off."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.rounding import arithmetic, framework_drops, framework_sum, rounding_bound
from tests.forests import stump

X = np.array([[0], [200]])


def _three(values: tuple[float, float, float], dtype: str) -> Ensemble:
    """Sum to these values, in order, at both inputs."""
    return Ensemble(
        (FeatureInput("a", "", 8),),
        tuple(stump([value, value]) for value in values),
        Fraction(0),
        output="logit",
        origin={"arithmetic": dtype},
    )


@pytest.mark.parametrize(("dtype", "tiny"), [("float64", 2.0**-60), ("float32", 2.0**-30)])
def test_what_the_framework_rounds_away_is_within_the_bound(dtype: str, tiny: float) -> None:
    lost, kept = _three((tiny, 1.0, -1.0), dtype), _three((1.0, -1.0, tiny), dtype)
    assert framework_sum(lost, X).tolist() == [0.0, 0.0]
    assert framework_sum(kept, X).tolist() == [tiny, tiny]
    assert not framework_drops(lost, X).any()
    assert framework_drops(kept, X).all()
    for ensemble in (lost, kept):
        assert ensemble.exceeds(X).all()
        assert tiny <= rounding_bound(ensemble) < 2.0**20 * tiny


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_logits_whose_probability_rounds_to_a_half_are_within_the_bound(dtype: str) -> None:
    one = np.dtype(dtype).type(1)
    halves = [logit for logit in one * 2.0 ** -np.arange(1, 60) if one / (one + np.exp(-logit)) == 0.5]
    assert 0 < halves[0] <= rounding_bound(_three((0.0, 0.0, 0.0), dtype))
    assert rounding_bound(replace(_three((0.0, 0.0, 0.0), dtype), output="mean_probability")) == 0


def test_a_forest_compares_its_mean() -> None:
    forest = Ensemble((FeatureInput("a", "", 8),), (stump([0.25, 0.75]), stump([0.25, 0.5])), Fraction(1))
    assert framework_drops(forest, X).tolist() == [False, True]


def test_files_that_name_no_arithmetic_add_as_they_always_did() -> None:
    boosted = replace(_three((1.0, 2.0, 3.0), ""), origin={})
    assert arithmetic(boosted) == np.float32
    assert arithmetic(replace(boosted, output="mean_probability")) == np.float64


def test_logits_are_compared_without_a_division() -> None:
    candidates = 1.5 + np.arange(64) / 128
    above_all = np.nextafter(candidates, 2)
    # what a forest of three trees would compare is equal
    threshold, above = next((t, a) for t, a in zip(candidates, above_all, strict=True) if a / 3 == t / 3)
    ensemble = replace(_three((float(above), 0.0, 0.0), "float64"), threshold=Fraction(float(threshold)))
    assert framework_drops(ensemble, X).all()
    assert not framework_drops(replace(ensemble, output="mean_probability"), X).any()
