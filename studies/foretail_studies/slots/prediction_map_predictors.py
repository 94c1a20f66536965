"""What predictors send of a cell of the prediction map: one that is told LQD's drops, and the best that was learned."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from foretail.configs.schema.training import Objective
from foretail.features.catalog import FEATURE_GROUPS, feature
from foretail.models.drop.boosted import BoostedTrees
from foretail.models.drop.thresholds.adaptive_threshold import mean_log_sent, search_threshold, starting_rule
from foretail.models.drop.thresholds.threshold_gradient import climb_threshold
from foretail.models.ensemble.ensemble import FeatureInput
from foretail.models.ensemble.scorers import scorer_of
from foretail.pipelines.training.sending import NothingToLearn, train_on_runs
from foretail.sim_bridge._native import Scorer
from foretail.sim_bridge.arrivals.files import AVERAGE_SHIFT
from foretail.sim_bridge.open_loop.baselines import ALPHAS
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail_studies.slots.prediction_map_traffic import CELL_BYTES, Traffic

POLICY = "learned"
"""Which asks a learned predictor about every packet."""
SEED = 1
"""Of the search and of the trees."""
ROWS_OF_STEP = 300
"""Of each run in a step of the policy gradient, about."""
HORIZON = 5000
"""Arrivals after which branches of a run are compared at the latest."""


@dataclass(frozen=True)
class Learning:
    """On what predictors learn, and how long."""

    train_seeds: Sequence[int]
    validation_seeds: Sequence[int]  #: on which one of several is chosen
    least_left: float  #: what an alpha has to leave, in % of LQD's packets, so that trees are trained
    steps: int  #: of the policy gradient
    trials: int  #: adaptive thresholds that are tried
    trees: int  #: of the large model; 0 leaves it out
    depth: int  #: of its trees
    rounds: int  #: of its training
    rows: int  #: of a run in a round, about


@dataclass(frozen=True)
class Learned:
    """A predictor of a cell."""

    sent: Callable[[int], int]  #: what it sends on a seed
    setting: str = ""  #: which of several it is


Predictor = Callable[[Traffic, Learning], Learned]
"""Learns on a cell."""


def told(traffic: Traffic, learning: Learning) -> Learned:
    """Credence that is told which packets LQD drops."""
    return Learned(traffic.told)


def learned(traffic: Traffic, learning: Learning) -> Learned:
    """An adaptive threshold, or a large model of trees if that sends more on the validation seeds.

    Trees are trained where the best alpha leaves a gap.
    """
    runs = [traffic.run(seed) for seed in learning.train_seeds]
    judges = [traffic.run(seed) for seed in learning.validation_seeds]
    worths = {alpha: mean_log_sent(runs, "dt", None, alpha=[alpha]) for alpha in ALPHAS}
    alpha = max(worths, key=lambda one: worths[one])
    scorers = {"threshold": adaptive_threshold(runs, alpha, learning)}
    if learning.trees and math.exp(worths[alpha]) <= 1 - learning.least_left / 100:
        with suppress(NothingToLearn):
            scorers["trees"] = trees(runs, judges, learning)
    best = max(scorers, key=lambda name: mean_log_sent(judges, POLICY, scorers[name]))
    return Learned(partial(_sent, traffic, scorers[best]), best)


def _sent(traffic: Traffic, scorer: Scorer, seed: int) -> int:
    return traffic.run(seed).sent(POLICY, scorer)


def adaptive_threshold(runs: Sequence[KnownRun], alpha: float, learning: Learning) -> Scorer:
    """The adaptive threshold to which the policy gradient leads from an alpha, and then a search."""
    start = starting_rule(runs, POLICY, alpha, SEED)
    climbed = climb_threshold(
        runs, start, policy=POLICY, steps=learning.steps, rows=ROWS_OF_STEP, horizon=HORIZON, seed=SEED
    )
    return search_threshold(runs, climbed.rule, policy=POLICY, trials=learning.trials, seed=SEED).rule.scorer()


def trees(runs: Sequence[KnownRun], judges: Sequence[KnownRun], learning: Learning) -> Scorer:
    """Boosted trees on the advantage of accepting, over the features that a switch can hold."""
    names = FEATURE_GROUPS["threshold"]
    sending = train_on_runs(
        Objective(name="advantage", rounds=learning.rounds, rows=learning.rows, horizon=HORIZON),
        lambda: BoostedTrees(trees=learning.trees, depth=learning.depth, seed=SEED),
        runs,
        judges,
        [FeatureInput(name, feature(name).params(CELL_BYTES, AVERAGE_SHIFT), feature(name).bits) for name in names],
        rows=(),
        seed=SEED,
    )
    return scorer_of(sending.best.model)


PREDICTORS: dict[str, Predictor] = {"told": told, "predictor": learned}
"""What is measured of each cell beside policies without a predictor, by name."""
