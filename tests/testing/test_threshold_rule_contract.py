"""The contract of threshold rules: Foretail's own keep it, and broken ones are told which rule they break."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema import training
from foretail.models.scoring.threshold_rules import F1, THRESHOLD_RULES, ThresholdCounts, ThresholdRule
from foretail.testing import check_threshold_rule


@pytest.mark.parametrize("name", THRESHOLD_RULES)
def test_threshold_rules_keep_the_contract(name: str) -> None:
    check_threshold_rule(THRESHOLD_RULES[name])


def test_settings_know_our_own_names() -> None:
    assert {*THRESHOLD_RULES, "recovered_loss"} == {*training.THRESHOLDS}


@dataclass(frozen=True)
class _NaN(F1):
    def worth(self, counts: ThresholdCounts) -> Any:
        with np.errstate(invalid="ignore"):
            return counts.tp / (counts.tp + counts.fp)


class _Whole(F1):
    def worth(self, counts: ThresholdCounts) -> Any:
        return counts.tp


class _Scalar(F1):
    def worth(self, counts: ThresholdCounts) -> Any:
        return 1.0


class _Draws(F1):
    def worth(self, counts: ThresholdCounts) -> Any:
        return np.random.default_rng().random(len(counts.tp))


class _Writes(F1):
    def worth(self, counts: ThresholdCounts) -> Any:
        counts.fp[:] += 1
        return super().worth(counts)


class _Crashes(F1):
    def worth(self, counts: ThresholdCounts) -> Any:
        raise ZeroDivisionError("no drop")


@pytest.mark.parametrize(
    ("broken", "clause"),
    [
        (_NaN, "worth must be finite, not nan"),
        (_Whole, "worth must be float64 or float32, not int64"),
        (_Scalar, r"worth must give one number per threshold, shape \(1,\), not a float"),
        (_Draws, "the same counts must have the same worth"),
        (_Writes, "worth must not change the fp"),
        (_Crashes, "worth must answer for any counts: .*_Crashes fails in worth: ZeroDivisionError: no drop"),
    ],
)
def test_the_contract_catches_rules_that_break_it(broken: type[ThresholdRule], clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        check_threshold_rule(broken)
