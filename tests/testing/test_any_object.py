"""Every contract names the rule that fails for whatever object it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from foretail import testing


class FitsAndScores:
    def fit(self, x: Any, y: Any) -> None: ...

    def score(self, x: Any) -> None: ...


def check_reader(given: Any) -> None:
    testing.check_reader(given, "slot", "slot,ttl", "ttl")


CHECKS = [check_reader if name == "check_reader" else getattr(testing, name) for name in testing.__all__]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "given", [FitsAndScores, FitsAndScores(), None, 7, object, lambda: None, lambda one: one, "no"]
)
def test_any_object_fails_by_a_rule(check: Callable[[Any], None], given: Any) -> None:
    with pytest.raises(AssertionError, match=" must be ") as failure:
        check(given)
    assert "Attribute" not in str(failure.value)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(
        AssertionError, match=r"^a predictor must be a DropPredictor: FitsAndScores is none, and lacks .*fit_batches"
    ):
        testing.check_predictor(FitsAndScores)  # type: ignore[arg-type]
    with pytest.raises(
        AssertionError, match=r"^a target must be a Target: FitsAndScores is none, and lacks load, name"
    ):
        testing.check_target(FitsAndScores)  # type: ignore[arg-type]
