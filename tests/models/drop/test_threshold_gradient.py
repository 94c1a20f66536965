"""An adaptive threshold that follows the policy gradient: it sends more, and the same draws give the same. 5 s."""

from __future__ import annotations

import numpy as np
import pytest

from foretail.models.drop.thresholds.adaptive_threshold import (
    SPREAD,
    AdaptiveThreshold,
    Searched,
    mean_log_sent,
    starting_rule,
)
from foretail.models.drop.thresholds.threshold_gradient import _of_run, climb_threshold
from foretail.sim_bridge.arrivals.workloads import PoissonBursts
from foretail.sim_bridge.open_loop.known import KnownRun

pytestmark = pytest.mark.slow

PORTS, BUFFER, SLOTS = 16, 320, 4000


@pytest.fixture(scope="module")
def runs() -> list[KnownRun]:
    bursts = PoissonBursts(load=0.4)
    return [
        KnownRun.in_slots(bursts.batches(PORTS, BUFFER, SLOTS, seed), PORTS, BUFFER, condition="bursts")
        for seed in (1, 2)
    ]


@pytest.fixture(scope="module")
def start(runs: list[KnownRun]) -> AdaptiveThreshold:
    return starting_rule(runs, "learned", 8.0, 1)


def test_it_sends_more_than_where_it_started(runs: list[KnownRun], start: AdaptiveThreshold) -> None:
    told: list[float] = []

    def climb() -> Searched:
        return climb_threshold(
            runs,
            start,
            policy="learned",
            steps=15,
            rows=200,
            horizon=2000,
            seed=1,
            report=lambda share, words: told.append(share),
        )

    found = climb()
    assert found.start == mean_log_sent(runs, "learned", start.scorer())
    assert found.worth == mean_log_sent(runs, "learned", found.rule.scorer())
    assert found.worth > found.start + 0.01
    assert (found.trials, told[-1]) == (15, 1.0)
    assert found.rule.numbers[-2:] == start.numbers[-2:]  # cuts have no gradient
    assert climb() == found


def test_the_gradient_of_the_bound_has_the_sign_of_what_another_bound_sends(
    runs: list[KnownRun], start: AdaptiveThreshold
) -> None:
    """Of a threshold that drops far too much, and of each set alone."""
    numbers = np.array(start.numbers)
    count = len(SPREAD)
    numbers[: 3 * count : count] -= 48  # alpha 1/8
    low = AdaptiveThreshold(tuple(numbers.tolist()), start.centres)
    gradient = np.mean([_of_run(run, low, "learned", 2000, 2000, 1) for run in runs], axis=0)
    for place in range(0, 3 * count, count):
        if gradient[place] == 0:  # no packet of this set met the threshold
            continue
        higher = numbers.copy()
        higher[place] += 16
        rule = AdaptiveThreshold(tuple(higher.tolist()), start.centres)
        gain = mean_log_sent(runs, "learned", rule.scorer()) - mean_log_sent(runs, "learned", low.scorer())
        assert np.sign(gradient[place]) == np.sign(gain)
    assert np.count_nonzero(gradient[: 3 * count : count]) >= 2
