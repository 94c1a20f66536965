"""Verdicts on figures that a source prints, by one rule."""

from __future__ import annotations

from foretail.pipelines.comparison.statistics import PairedDifference

CLOSE_PERCENT = 5.0
"""Two figures are close when they differ by no more."""
ROUGHLY_PERCENT = 10.0
WEAK_SHARE = 0.5
"""A change that is surely there is weaker than the claimed one below this share of it."""
REPRODUCED, IN_SHAPE, WEAKER, NOT, UNKNOWN = "reproduced", "in shape", "weaker", "not", "not run"
VERDICTS = (REPRODUCED, IN_SHAPE, WEAKER, NOT, UNKNOWN)
CLOSE, WORSE = "close", "worse"


def verdict_of(says: float | str, change: PairedDifference) -> str:
    """The verdict on a change in percent where a paper says a number, that it is close, or that it is worse."""
    if change.mean is None or change.low is None or change.high is None:
        return UNKNOWN
    if says == CLOSE:
        if max(-change.low, change.high) <= CLOSE_PERCENT:
            return REPRODUCED
        return IN_SHAPE if abs(change.mean) <= ROUGHLY_PERCENT else NOT
    if says == WORSE:
        if change.low > CLOSE_PERCENT:
            return REPRODUCED
        return IN_SHAPE if change.mean > CLOSE_PERCENT else NOT
    percent = float(says)
    if change.low <= 0 if percent > 0 else change.high >= 0:
        return NOT
    near = change.low <= percent <= change.high or abs(change.mean - percent) <= CLOSE_PERCENT
    if near:
        return REPRODUCED
    return IN_SHAPE if change.mean / percent >= WEAK_SHARE else WEAKER


CLOSE_RATIO, SHAPE_RATIO = 1.05, 2.0


def verdict_of_value(says: float, ours: PairedDifference) -> str:
    """The verdict on a number above 0 that a source prints.

    It is reproduced where the interval has it or the mean is within 5 %, and in shape within a factor of two.
    """
    if ours.mean is None:
        return UNKNOWN
    if ours.low is not None and ours.high is not None and ours.low <= says <= ours.high:
        return REPRODUCED
    if min(says, ours.mean) <= 0:
        return REPRODUCED if says == ours.mean else NOT
    ratio = max(says / ours.mean, ours.mean / says)
    if ratio <= CLOSE_RATIO:
        return REPRODUCED
    return IN_SHAPE if ratio <= SHAPE_RATIO else NOT
