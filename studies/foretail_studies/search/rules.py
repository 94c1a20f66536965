"""Search for a sharing rule by its cost J against a reference rule, under the training families of the benchmark.

All trials share a seed, so they meet the same flows. A trial runs in one condition after another, and it stops where
its mean cost is clearly above that of the best trial in the same conditions. The best trials run everywhere on more
seeds. Held-out families are never simulated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace

import numpy as np
import pandas as pd
from omegaconf import MISSING
from optuna.distributions import BaseDistribution, IntDistribution

from foretail.configs.schema.experiment import SimulatedPointSettings
from foretail.configs.schema.policies import RULE_DEFAULTS, RULE_NUMBERS
from foretail.core.errors import ForetailError
from foretail.core.settings import setting
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.tracking import TrackedRun
from foretail.pipelines.comparison.statistics import PairedDifference, percent_change
from foretail.pipelines.experiment.declaration import FunctionExperiment, Learned, Run, Shown
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Key
from foretail.pipelines.settings.predictors import LEARNED, rule_of
from foretail_studies.families import POINT, Families, Rule, SharingCase, SharingPlan
from foretail_studies.search.trials import (
    Simulations,
    Trial,
    Trials,
    TrialSettings,
    cost_in_switch,
    log_traffic,
    open_trials,
)

SCORE, LOSSES = "score", "losses"
"""Figures of a trial: J against the reference in %, and the difference of log J in each condition that it ran in."""


@dataclass
class RuleSettings(SimulatedPointSettings, Families, TrialSettings):
    """Sharing rules of seven numbers, drawn and judged by their cost J under the training families.

    Every trial runs on the first seed; the best of them run on all.
    """

    ranges: dict[str, list[int]] = setting(
        MISSING,
        "First and last value of each number, equal to fix it: message_left in cells (-1 spares no packet for "
        "that), fill in 255ths of the buffer, pressure in eighths of octaves, first_rtt_more added to the "
        "pressure in a first round trip, last_pressure of the spared packets, far in cells, after which "
        "far_less lowers the pressure.",
    )
    first_numbers: list[dict[str, int]] = setting([], "Numbers to try first.")
    most_entries: int = setting(32, "Most table entries of a rule in a P4 switch.", at_least=1, at_most=4096)
    reference: str = setting("lqd_last", "Policy against whose J all scores are taken.")
    baselines: list[str] = setting([], "Policies that stand beside the finalists.")
    stop_percent: float = setting(
        20.0,
        "A trial stops where its J is by so much above that of the best trial in the same conditions, in percent.",
        above=0,
        at_most=1000,
    )
    finalists: int = setting(4, "Number of best trials that run on all seeds.", at_least=1, at_most=1000)
    seeds: list[int] = setting(MISSING, "Seeds of the finalists; the first is that of all trials.", at_least=1)

    def check(self, where: str) -> None:
        """Raise ForetailError on a number that no rule has or outside its range, and on an unknown test."""
        super().check(where)
        for name, known in RULE_NUMBERS.items():
            given = self.ranges.get(name, [RULE_DEFAULTS[name]] * 2 if name in RULE_DEFAULTS else [])
            if len(given) != 2 or not known[0] <= given[0] <= given[1] <= known[1]:
                raise ForetailError(f"ranges.{name} = {given}: give two values in order, from {known[0]} to {known[1]}")
        for name in self.ranges:
            if name not in RULE_NUMBERS:
                raise ForetailError(f"ranges.{name} is unknown: choose from {', '.join(RULE_NUMBERS)}")
        for position, rule in enumerate(self.first_numbers):
            for name in {*self.ranges, *rule}:
                low, high = self.ranges.get(name, (1, 0))
                if not low <= rule.get(name, low - 1) <= high:
                    raise ForetailError(
                        f"first_numbers[{position}] needs {name} within ranges.{name}, and nothing else"
                    )

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """An integer for every number of a :class:`~foretail.models.drop.sharing_rule.SharingRule`."""
        return {name: IntDistribution(low, high) for name, (low, high) in self.ranges.items()}


@dataclass(frozen=True)
class Finalist:
    """A rule in all conditions of the training families, on all seeds."""

    trial: int | None  #: its number; None of a policy
    rule: str
    against: PairedDifference  #: log J less that of the reference, mean over conditions, paired by seed


def show(settings: RuleSettings, run: Run) -> Shown:
    """Draw and judge rules until there are as many as wanted, those of earlier runs included; then the finalists."""
    names = dict.fromkeys([settings.reference, *settings.baselines])
    plan = SharingPlan.of(settings, settings.shared, settings.training(), {name: {} for name in names})
    simulations = Simulations(settings, plan, run.store)
    trials, file = _search(settings, simulations, run)
    finalists = _finalists(settings, simulations, trials)
    best = next(one for one in finalists if one.trial is not None)
    ensemble = rule_of(trials[best.trial or 0].values).ensemble(simulations.cell_bytes)
    frame = _frame(plan, trials)
    _, in_switch = cost_in_switch(ensemble, "the best as a tree")
    change = percent_change(best.against.mean)
    return Shown(
        frame,
        [_table(finalists, settings.reference)],
        frames={"trials.csv": frame.drop(columns=LOSSES)},
        notes=(
            simulations.costs.note,
            in_switch,
            f"search in {file}",
        ),
        verdict=(
            f"Trial {best.trial} is the best of {len(frame)} rules on the training families: "
            f"{best.rule}; J is {change:+.3g} % against {settings.reference}.",
        ),
        details={
            "finalists": [asdict(one) for one in finalists],
        },
        learned=Learned(
            ensemble,
            f"Sharing rule of policy learned from {len(plan.scenarios)} conditions of the training families, size "
            f"{settings.size}, seeds {', '.join(map(str, settings.seeds))}: J {change:+.3g} % against "
            f"{settings.reference}.",
            {} if change is None else {"finalist/against_reference_percent": change},
            lambda logged: _log(logged, settings, plan, trials),
        ),
    )


RULES = FunctionExperiment(RuleSettings, show)


def _search(settings: RuleSettings, simulations: Simulations, run: Run) -> tuple[list[Trial], str]:
    """The trials, those of earlier commands included, and their file."""
    plan, distributions = simulations.plan, settings.distributions
    seed, reference = settings.seeds[0], Rule.of(settings.reference)
    cases = [
        SharingCase(where.family, where.condition, reference.policy, reference.setting, seed)
        for where in plan.scenarios
    ]
    searched = {
        "draws": {drawn: str(one) for drawn, one in distributions.items()},
        "first": [dict(one) for one in settings.first_numbers],
        "most_entries": settings.most_entries,
        "stop_percent": settings.stop_percent,
        "batch": settings.batch,
        "seed": settings.seed,
        "traffic_seed": seed,
        "conditions": {str(case.where): Key(POINT, plan.depends_on(case)).digest for case in cases},
    }
    with open_trials(settings, run.store, searched, distributions, SCORE, settings.first_numbers) as trials:
        finished = _all_trials(settings, trials, simulations)
        file = str(trials.file)
    return finished, file


def _all_trials(settings: RuleSettings, trials: Trials, simulations: Simulations) -> list[Trial]:
    while batch := trials.batch(settings.trials):
        drawn = {one.number: rule_of(one.values).ensemble(simulations.cell_bytes) for one in batch}
        entries = {number: cost_in_switch(tree, "")[0] for number, tree in drawn.items()}
        small = [one for one in batch if entries[one.number] <= settings.most_entries]
        begun = batch[0].number - batch[0].number % settings.batch
        best = _best(trials.finished()[:begun], len(simulations.plan.scenarios))
        losses = _raced(
            settings,
            simulations,
            {one.number: (Rule(LEARNED, _text(one)), drawn[one.number]) for one in small},
            best,
        )
        trials.keep(
            [
                replace(one, figures={SCORE: _score(losses[one.number], best), LOSSES: losses[one.number]})
                if one.number in losses
                else replace(one, failed=f"it takes {entries[one.number]} table entries")
                for one in batch
            ]
        )
    return trials.finished()[: settings.trials]


def _best(trials: Sequence[Trial], conditions: int) -> list[float] | None:
    """Return the losses, by condition, of the best trial that ran in all conditions."""
    whole = [losses for trial in trials if len(losses := _losses(trial)) == conditions]
    return min(whole, key=sum) if whole else None


def _raced(
    settings: RuleSettings,
    simulations: Simulations,
    rules: Mapping[int, tuple[Rule, Ensemble]],
    best: Sequence[float] | None,
) -> dict[int, list[float]]:
    """Return the losses of each rule to the reference, by condition, up to where it stops."""
    losses: dict[int, list[float]] = {number: [] for number in rules}
    seeds, reference = settings.seeds[:1], Rule.of(settings.reference)
    for where in simulations.plan.scenarios:
        running = {number: rules[number] for number, lost in losses.items() if _runs_on(settings, lost, best)}
        if not running:
            break
        simulations.levels({reference: None, **dict(running.values())}, [where], seeds)
        for number, (rule, _) in running.items():
            losses[number].append(
                simulations.costs.level(where, rule, seeds) - simulations.costs.level(where, reference, seeds)
            )
    return losses


def _runs_on(settings: RuleSettings, lost: Sequence[float], best: Sequence[float] | None) -> bool:
    """Return True if a trial is not clearly worse than the best one in the conditions so far."""
    if best is None or not lost:
        return True
    return float(np.mean(lost)) - float(np.mean(best[: len(lost)])) <= math.log1p(settings.stop_percent / 100)


def _score(losses: Sequence[float], best: Sequence[float] | None) -> float:
    """J against the reference, %; of a stopped trial that of the best, and what it lost to it so far."""
    if best is None or len(losses) == len(best):
        return 100 * math.expm1(float(np.mean(losses)))
    return 100 * math.expm1(float(np.mean(best) + np.mean(losses) - np.mean(best[: len(losses)])))


def _finalists(settings: RuleSettings, simulations: Simulations, trials: Sequence[Trial]) -> list[Finalist]:
    """The rules of the best trials and the baselines, the best first."""
    trees: dict[Rule, Ensemble | None] = {Rule.of(name): None for name in (settings.reference, *settings.baselines)}
    chosen: dict[Rule, Trial] = {}
    for trial in sorted((trial for trial in trials if trial.figures), key=_score_of):
        if len(chosen) < settings.finalists:
            chosen.setdefault(Rule(LEARNED, _text(trial)), trial)
    trees |= {rule: rule_of(trial.values).ensemble(simulations.cell_bytes) for rule, trial in chosen.items()}
    conditions = list(simulations.plan.scenarios)
    simulations.levels(trees, conditions, settings.seeds)
    reference = Rule.of(settings.reference)
    judged = [
        Finalist(
            chosen[rule].number if rule in chosen else None,
            rule.setting if rule in chosen else str(rule),
            simulations.costs.family_difference(conditions, rule, reference),
        )
        for rule in trees
    ]
    return sorted(judged, key=lambda one: one.against.mean or 0.0)


def _table(finalists: Sequence[Finalist], reference: str) -> Table:
    rows = [
        {
            "trial": one.trial,
            "rule or policy": one.rule,
            f"J against {reference}, %": percent_change(one.against.mean),
            "low": percent_change(one.against.low),
            "high": percent_change(one.against.high),
        }
        for one in finalists
    ]
    return Table.of_rows("Sharing rules in all conditions of the training families", rows)


def _frame(plan: SharingPlan, trials: Sequence[Trial]) -> pd.DataFrame:
    """One row per trial, with the traffic that was simulated up to it and the best score so far."""
    traffic_s = np.cumsum([0.0, *(scenario.traffic_ns / 1e9 for scenario in plan.scenarios.values())])
    spent_s, best, rows = 0.0, math.inf, []
    for trial in trials:
        losses = _losses(trial)
        spent_s += float(traffic_s[len(losses)])
        score = _score_of(trial) if trial.figures else None
        if score is not None and len(losses) == len(plan.scenarios):
            best = min(best, score)
        rows.append(
            {
                "trial": trial.number,
                "rule": _text(trial),
                SCORE: score,
                "conditions": len(losses),
                "simulated_s": spent_s,
                "best": best if math.isfinite(best) else None,
                LOSSES: losses,
            }
        )
    return pd.DataFrame(rows)


def _log(run: TrackedRun, settings: RuleSettings, plan: SharingPlan, trials: Sequence[Trial]) -> None:
    """Every trial as a run inside, and the traffic that was simulated: there are no rows."""
    for trial in (trial for trial in trials if trial.figures):
        run.log_nested(f"trial {trial.number}", trial.values, {SCORE: _score_of(trial)})
    log_traffic(run, {str(where): scenario for where, scenario in plan.scenarios.items()}, settings.seeds, "train")


def _text(trial: Trial) -> str:
    """The numbers in the order of the rule."""
    return " ".join(map(str, astuple(rule_of(trial.values))))


def _losses(trial: Trial) -> list[float]:
    return list((trial.figures or {}).get(LOSSES, []))


def _score_of(trial: Trial) -> float:
    return float((trial.figures or {})[SCORE])
