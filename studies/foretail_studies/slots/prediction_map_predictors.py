"""What predictors send of a cell of the prediction map: one that is told LQD's drops, and an adaptive threshold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foretail.models.drop.thresholds.adaptive_threshold import mean_log_sent, search_threshold, starting_rule
from foretail.sim_bridge.open_loop.baselines import ALPHAS
from foretail_studies.slots.prediction_map_traffic import Traffic

POLICY = "learned"
"""Which asks a learned predictor about every packet."""
SEED = 1
"""Of the search."""


@dataclass(frozen=True)
class Learning:
    """On what predictors learn, and how long."""

    train_seeds: Sequence[int]
    trials: int  #: adaptive thresholds that are tried


Sent = Callable[[int], int]
"""What a predictor sends on a seed."""
Predictor = Callable[[Traffic, Learning], Sent]
"""Learns on a cell."""


def told(traffic: Traffic, learning: Learning) -> Sent:
    """Credence that is told which packets LQD drops."""
    return traffic.told


def learned(traffic: Traffic, learning: Learning) -> Sent:
    """The adaptive threshold to which a search leads from the best alpha."""
    runs = [traffic.run(seed) for seed in learning.train_seeds]
    alpha = max(ALPHAS, key=lambda one: mean_log_sent(runs, "dt", None, alpha=[one]))
    start = starting_rule(runs, POLICY, alpha, SEED)
    scorer = search_threshold(runs, start, policy=POLICY, trials=learning.trials, seed=SEED).rule.scorer()
    return lambda seed: traffic.run(seed).sent(POLICY, scorer)


PREDICTORS: dict[str, Predictor] = {"told": told, "predictor": learned}
"""What is measured of each cell beside policies without a predictor, by name."""
