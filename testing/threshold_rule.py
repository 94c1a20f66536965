"""The contract of threshold rules."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from foretail.models.drop.parameters_contract import holds, made_of
from foretail.models.scoring.threshold_rules import ThresholdCounts, ThresholdRule


def check_threshold_rule(rule: ThresholdRule | Callable[[], ThresholdRule]) -> None:
    """Run the contract of :class:`foretail.models.scoring.threshold_rules.ThresholdRule` on one, or on what makes one.

    AssertionError with the rule that does not hold.
    """
    made: ThresholdRule = made_of(rule, ThresholdRule, "a threshold rule")  # type: ignore[type-abstract]
    draw = np.random.default_rng(7)
    for thresholds, drops, others in ((1, 1, 0), (2, 1, 1), (2, 5, 0), (40, 30, 900), (300, 2, 10**6)):
        with holds("worth must answer for any counts"):
            counts = ThresholdCounts.of(_falling(draw, thresholds, drops), _falling(draw, thresholds, others))
            worths, again = made.values(counts), made.values(counts)
        assert worths.shape == (thresholds,), "worth must give one number per threshold"
        assert worths.dtype == np.float64, "worth must be float64"
        assert np.isfinite(worths).all(), "worth must be finite"
        assert np.array_equal(worths, again), "the same counts must have the same worth"


def _falling(draw: np.random.Generator, thresholds: int, rows: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Rows above each of some thresholds: all at the first, none at the last of several."""
    inner = np.sort(draw.integers(0, rows, max(0, thresholds - 2), endpoint=True))[::-1]
    return np.concatenate([[rows], inner, [0]])[:thresholds].astype(np.int64)
