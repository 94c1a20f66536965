"""Training for what is sent: a predictor that decides by itself, on the states to which its own decisions lead.

``objective.name=sent`` searches an adaptive threshold for every workload by the packets that it sends there. The
predictor learns on each workload the decisions of that workload's threshold, so it has to tell workloads apart. Rounds
of dataset aggregation (Ross, Gordon and Bagnell, AISTATS 2011) add the states that the predictor reaches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.training import Objective
from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES, FLOW_FEATURES
from foretail.features.rows.splits import Side
from foretail.models.drop.predictor import TreePredictor
from foretail.models.drop.thresholds.adaptive_threshold import Searched, mean_log_sent, search_threshold, starting_rule
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.scorers import POLICY, scorer_of
from foretail.models.scoring.operating_point import ThresholdWorth, at_probability
from foretail.pipelines.exporting.network import NetworkInC, asked_model, decider_of
from foretail.pipelines.runs.store import Store
from foretail.sim_bridge._native import Scorer
from foretail.sim_bridge.open_loop.baselines import ALPHAS
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail.sim_bridge.open_loop.replay import bytes_sent
from foretail.sim_bridge.open_loop.scores import Decider

if TYPE_CHECKING:
    from foretail.models.drop.network import Network


def _require_runs(side: Side, setting: str) -> None:
    """Raise ForetailError unless a side holds whole traces, which alone can be replayed."""
    for selection in side:
        if selection.where is not None or not selection.dataset.is_trace:
            what = "here are rows of a run alone" if selection.where is not None else "the dataset is no trace"
            raise ForetailError(
                f"{setting} replays whole runs, and {what} ({selection.dataset.path}): give three runs or more and "
                "split them by run, or leave the setting out"
            )


def sent_with(model: Ensemble | Network, side: Side, store: Store) -> ThresholdWorth:
    """Return the data bytes that Credence sends of a side while a model decides, by the model's threshold.

    ForetailError unless `side` holds whole traces, and the model can decide in a replay.
    """
    setting = "operating_point.maximise=recovered_loss"
    _require_runs(side, setting)
    predictor = asked_model(model, store)

    def decider(threshold: Fraction) -> Decider:
        if isinstance(predictor, Ensemble):
            return decider_of(predictor.with_threshold(threshold))
        if isinstance(predictor, NetworkInC):
            return Decider(decider_of(predictor).policy, predictor.scorer(float(threshold)))
        return decider_of(predictor.with_threshold(float(threshold)))

    def worth(thresholds: Sequence[Fraction]) -> list[float]:
        deciders = [decider(threshold) for threshold in thresholds]
        if any(one.scorer is None for one in deciders):
            unknown = ", ".join(item.name for item in predictor.features)
            raise ForetailError(f"{setting} lets the predictor decide in a replay, which does not compute {unknown}")
        contenders = [(one.policy, None, one.scorer) for one in deciders]
        sent = [bytes_sent(selection.dataset, contenders) for selection in side]
        return [float(sum(of_one)) for of_one in zip(*sent, strict=True)]

    return worth


SENT = "objective.name=sent"
LOGITS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)
"""Logits of the probabilities that are tried as threshold on the validation runs."""
OCTAVE = 8 * 256
"""One octave of a rule's margin."""
LEAST_WEIGHT = 0.02
_SEARCHED: dict[tuple[Any, ...], Searched] = {}
"""By training runs of a workload, effort and seed: a process searches once, whatever learns the rule."""


class NothingToLearn(ForetailError):
    """One decision is the best about all packets."""


@dataclass(frozen=True)
class SendingRound:
    """One training and what it sends."""

    predictor: TreePredictor
    model: Ensemble  #: at its threshold
    probability: float  #: that threshold
    worth: float  #: mean log of what is sent on the validation runs over what LQD sends
    rows: int  #: rows that trained it


@dataclass(frozen=True)
class Sending:
    """All rounds, and where they started."""

    rounds: Sequence[SendingRound]
    started_from: dict[str, Any]  #: the tuned alpha and the searched rules, JSON-like

    @property
    def best(self) -> SendingRound:
        """The round that sends most on the validation runs, of equals the first."""
        return max(self.rounds, key=lambda one: one.worth)

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like; shares are geometric means in % of LQD."""
        return self.started_from | {
            "rounds": [{"sent_percent_of_lqd": percent(one.worth), "rows": one.rows} for one in self.rounds],
        }


def percent(worth: float) -> float:
    """Return a mean logarithm as a geometric mean in %."""
    return 100 * math.exp(worth)


def train_for_sending(
    objective: Objective,
    untrained: Callable[[], Any],
    train: Side,
    validation: Side,
    inputs: Sequence[FeatureInput],
    *,
    seed: int = 1,
    jobs: int = 1,
    report: Callable[[float, str], None] = lambda share, words: None,
) -> Sending:
    """Train predictors in rounds; the caller takes the best.

    ForetailError unless the sides are whole runs, the inputs are features that a switch computes while it runs, and the
    predictor is trees.

    Parameters
    ----------
    objective : the policy that asks the predictor, rounds, rows, trials
    untrained : returns a predictor with its settings
    train, validation : whole traces
    inputs : features of the predictor, in order
    seed, jobs, report : of draws, threads, called with the share done and words on it
    """
    for side in (train, validation):
        _require_runs(side, SENT)
    known = {feature.name for feature in FEATURES} - set(FLOW_FEATURES)
    for one in inputs:
        if one.name not in known:
            raise ForetailError(
                f"{SENT} lets the predictor decide in a running switch, which has no {one.name}: take it out of "
                "features.names"
            )
    if not isinstance(untrained(), TreePredictor):
        raise ForetailError(f"{SENT} lets trees decide in a running switch: choose a predictor of trees")
    runs, judges = ([KnownRun.of(selection.dataset) for selection in side] for side in (train, validation))
    rows = tuple(selection.dataset.manifest.content_sha256 for selection in train)
    return train_on_runs(objective, untrained, runs, judges, inputs, rows=rows, seed=seed, jobs=jobs, report=report)


def train_on_runs(
    objective: Objective,
    untrained: Callable[[], Any],
    runs: Sequence[KnownRun],
    judges: Sequence[KnownRun],
    inputs: Sequence[FeatureInput],
    *,
    rows: tuple[str, ...],
    seed: int = 1,
    jobs: int = 1,
    report: Callable[[float, str], None] = lambda share, words: None,
) -> Sending:
    """Train predictors on runs in memory, which `rows` identify in this process; else as :func:`train_for_sending`."""
    known = [feature.name for feature in FEATURES]
    columns = [known.index(one.name) for one in inputs]
    policy = objective.policy
    alpha, worth = _tuned_alpha(runs)
    rules = search_each(
        objective, runs, rows, seed=seed, jobs=jobs, report=lambda share, words: report(0.8 * share, words)
    )
    started = {
        "alpha": alpha,
        "alpha_sends_percent_of_lqd": percent(worth),
        "rules": [_rule_document(searched, condition, judges, policy) for condition, searched in rules.items()],
    }
    teachers = {condition: searched.rule.scorer() for condition, searched in rules.items()}
    deciding = teachers
    rounds: list[SendingRound] = []
    batches: list[tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.float64]]] = []
    for number in range(objective.rounds):
        report(0.8 + 0.2 * number / objective.rounds, f"round {number + 1} of {objective.rounds}")
        batches += _labelled(runs, objective, deciding, teachers, columns, seed + number)
        x, drops, weights = (np.concatenate(part) for part in zip(*batches, strict=True))
        if drops.all() or not drops.any():
            raise NothingToLearn(
                f"{SENT} finds no packet of the training runs that is better "
                f"{'accepted' if drops.all() else 'dropped'} than not: train on other traffic"
            )
        predictor = untrained()
        predictor.fit(x, drops, weights)
        trained = _at_best_threshold(predictor, inputs, policy, judges, x)
        rounds.append(trained)
        deciding = dict.fromkeys(deciding, scorer_of(trained.model))
    return Sending(rounds, started)


def _tuned_alpha(runs: Sequence[KnownRun]) -> tuple[float, float]:
    """The alpha of Dynamic Thresholds that sends most on these runs, and its worth."""
    worths = {alpha: mean_log_sent(runs, "dt", None, alpha=[alpha]) for alpha in ALPHAS}
    return max(worths.items(), key=lambda one: one[1])


def search_each(
    objective: Objective,
    runs: Sequence[KnownRun],
    rows: Sequence[str],
    *,
    seed: int = 1,
    jobs: int = 1,
    report: Callable[[float, str], None] = lambda share, words: None,
) -> dict[str, Searched]:
    """Return a threshold for every workload, by the condition of its runs: found on these runs alone.

    Parameters
    ----------
    objective : the policy that asks the predictor, and trials
    runs, rows : runs of any workloads, and what identifies each of them in this process
    seed, jobs, report : of draws, threads, called with the share done and words on it
    """
    by_condition: dict[str, list[int]] = {}
    for place, run in enumerate(runs):
        by_condition.setdefault(run.condition, []).append(place)
    rules = {}
    for number, (condition, places) in enumerate(by_condition.items()):

        def report_workload(share: float, words: str, done: int = number) -> None:
            report((done + share) / len(by_condition), f"workload {done + 1} of {len(by_condition)}: {words}")

        policy, trials = objective.policy, objective.trials
        key = (tuple(rows[place] for place in places), policy, trials, seed)
        if key not in _SEARCHED:
            own = [runs[place] for place in places]
            start = starting_rule(own, policy, _tuned_alpha(own)[0], seed)
            _SEARCHED[key] = search_threshold(
                own, start, policy=policy, trials=trials, seed=seed, jobs=jobs, report=report_workload
            )
        rules[condition] = _SEARCHED[key]
    return rules


def _rule_document(searched: Searched, condition: str, judges: Sequence[KnownRun], policy: str) -> dict[str, Any]:
    """A searched rule and what it sends, JSON-like; null on validation runs where the condition has none."""
    own = [run for run in judges if run.condition == condition]
    return {
        "condition": condition,
        "numbers": list(searched.rule.numbers),
        "centres": list(searched.rule.centres),
        "trials": searched.trials,
        "start_sends_percent_of_lqd": percent(searched.start),
        "sends_percent_of_lqd": percent(searched.worth),
        "sends_percent_of_lqd_on_validation": percent(mean_log_sent(own, policy, searched.rule.scorer()))
        if own
        else None,
    }


def _labelled(
    runs: Sequence[KnownRun],
    objective: Objective,
    deciding: Mapping[str, Scorer],
    teachers: Mapping[str, Scorer],
    columns: Sequence[int],
    seed: int,
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.float64]]]:
    """Rows of every run: what the predictor sees, whether to drop, how much that matters; scorers by condition."""
    conditions = [run.condition for run in runs]
    features = [FEATURES[column].name for column in columns]
    for run in runs:
        seen = run.visited(
            objective.policy,
            deciding[run.condition],
            teacher=teachers[run.condition],
            rows=objective.rows,
            seed=seed,
            features=features,
        )
        if len(seen.features):
            weights = np.clip(np.abs(seen.value) / OCTAVE, LEAST_WEIGHT, 1.0)
            scale = objective.rows / (len(seen.features) * conditions.count(run.condition))
            yield np.ascontiguousarray(seen.features[:, columns]), seen.value > 0, weights * scale


def _at_best_threshold(
    predictor: TreePredictor,
    inputs: Sequence[FeatureInput],
    policy: str,
    judges: Sequence[KnownRun],
    x: NDArray[np.int32],
) -> SendingRound:
    ensemble = predictor.to_ensemble(inputs)
    predictor.check_ensemble(ensemble, x)
    ensemble = replace(ensemble, origin={**ensemble.origin, POLICY: policy})
    tried = []
    for logit in LOGITS:
        probability = 1 / (1 + math.exp(-logit))
        model = at_probability(ensemble, probability)
        tried.append((mean_log_sent(judges, policy, scorer_of(model)), probability, model))
    worth, probability, model = max(tried, key=lambda one: one[0])
    return SendingRound(predictor, model, probability, worth, len(x))
