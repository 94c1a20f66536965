"""An adaptive threshold that follows the policy gradient of packets sent.

The policy drops a packet with a probability: the logistic function of the threshold's margin. The gradient of what it
sends is the mean over packets of the gradient of that probability times the advantage of accepting (Sutton et al.,
*Policy Gradient Methods for Reinforcement Learning with Function Approximation*, NIPS 1999). An advantage is measured
by branching the run, so it needs no estimate of a value. States and later decisions are those of the likelier action,
which is how the threshold is used in the end. Cuts have no gradient and stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from foretail.features.catalog import FEATURES
from foretail.models.drop.thresholds.adaptive_threshold import (
    SETS,
    SPREAD,
    TERMS,
    TESTS,
    AdaptiveThreshold,
    Searched,
    mean_log_sent,
)
from foretail.sim_bridge.open_loop.known import KnownRun, Visits

TEMPERATURE = 8.0
"""Eighths of octaves in which the odds of a drop change by a factor of e."""
MOST_ADVANTAGE = 8
"""Units of data that an advantage counts at most."""
STEP = 0.1
"""Length of a step of Adam (Kingma and Ba, ICLR 2015), in spreads."""
_PLACES = [[feature.name for feature in FEATURES].index(name) for name in (*(name for name, _ in TERMS), *TESTS)]


def climb_threshold(
    runs: Sequence[KnownRun],
    start: AdaptiveThreshold,
    *,
    policy: str,
    steps: int,
    rows: int,
    horizon: int,
    seed: int,
    report: Callable[[float, str], None] = lambda share, words: None,
) -> Searched:
    """Follow the gradient from `start`, and return the best of all thresholds on the way.

    Parameters
    ----------
    runs, start, policy : as of :func:`~foretail.models.drop.thresholds.adaptive_threshold.search_threshold`
    steps : of the gradient
    rows : advantages that are measured on each run in a step, about
    horizon : arrivals after which a comparison of two branches ends at the latest
    seed, report : of the draws, called with the share done and words on it
    """
    best = start
    worth = first = mean_log_sent(runs, policy, start.scorer())
    rule, mean, square = start, np.zeros(SETS * len(SPREAD)), np.zeros(SETS * len(SPREAD))
    for step in range(1, steps + 1):
        gradient = np.mean([_of_run(run, rule, policy, rows, horizon, seed + step) for run in runs], axis=0)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
        ahead = mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.99**step)) + 1e-12)
        count = len(ahead)
        moved = np.array(rule.numbers[:count]) + STEP * np.tile(SPREAD, SETS) * ahead
        rule = AdaptiveThreshold((*moved.tolist(), *rule.numbers[count:]), rule.centres)
        found = mean_log_sent(runs, policy, rule.scorer())
        if found > worth:
            worth, best = found, rule
        report(step / steps, f"step {step}, the best threshold sends {100 * math.exp(worth):.3f} % of LQD")
    return Searched(best, worth, first, steps)


def _of_run(
    run: KnownRun, rule: AdaptiveThreshold, policy: str, rows: int, horizon: int, seed: int
) -> NDArray[np.float64]:
    """The gradient of the mean advantage on a run, in spreads: float64[sets * (1 + terms)]."""
    scorer = rule.scorer()
    seen = run.advantages(policy, scorer, rows=rows, horizon=horizon, seed=seed)
    inputs, of_set = _inputs(seen, rule)
    margin = scorer.margins(seen.features) / 256
    drop = 1 / (1 + np.exp(-np.clip(margin / TEMPERATURE, -30, 30)))
    unit = max(1, int(np.abs(seen.value).max(initial=1)) // 1500)  # of bytes; 1 of packets
    advantage = np.clip(seen.value / unit, -MOST_ADVANTAGE, MOST_ADVANTAGE)
    per_row = -(advantage * drop * (1 - drop) / TEMPERATURE)[:, None] * inputs * SPREAD
    return np.concatenate([per_row[of_set == number].sum(axis=0) for number in range(SETS)]) / max(1, len(inputs))


def _inputs(seen: Visits, rule: AdaptiveThreshold) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """What the bound and each weight multiply, [rows, 1 + terms], and the set of each row."""
    values = seen.features[:, _PLACES].astype(np.float64)
    terms = values[:, : len(TERMS)]
    logarithm = np.array([logarithm for _, logarithm in TERMS])
    terms = np.where(logarithm, 8 * np.log2(1 + terms), terms) - np.array(rule.centres)
    first, second = (values[:, len(TERMS) + place] <= 2 ** rule.numbers[place - len(TESTS)] for place in range(2))
    asked = values[:, :1] > 0  # no packet for an empty queue is dropped
    inputs = np.concatenate([-np.ones((len(terms), 1)), terms], axis=1) * asked
    return inputs, np.where(first, 0, np.where(second, 1, 2))
