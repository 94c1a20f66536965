"""The numbers of a sharing rule, by its cost J or its regret.

Every trial is simulated on one seed that all trials share: in the first condition of each training family, or in all of
them, one after the other, until it cannot be the best any more. The best of them run in all conditions of the training
families, on more seeds. Held-out families are never simulated here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from itertools import groupby, zip_longest
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import MISSING
from optuna.distributions import IntDistribution
from optuna.samplers import TPESampler

from foretail.configs.schema.experiment import SimulatedPointSettings
from foretail.configs.schema.families import Families
from foretail.configs.schema.fields import setting
from foretail.configs.schema.policies import RULE_DEFAULTS, RULE_NUMBERS, require_tunable
from foretail.core.errors import ForetailError
from foretail.models.drop.sharing_rule import SharingRule
from foretail.models.mlflow.tracking import TrackedRun
from foretail.pipelines.comparison.statistics import PairedDifference, percent_change
from foretail.pipelines.experiment.declaration import FunctionExperiment, Learned, Run, Shown
from foretail.pipelines.families.conditions import Condition, Rule, SharingCase, SharingPlan
from foretail.pipelines.families.costs import CS, POINT
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Key
from foretail.pipelines.settings.rules import LEARNED, rule_of
from foretail.studies.search.budget import cost_in_switch, log_traffic
from foretail.studies.search.settings import TrialSettings
from foretail.studies.search.simulations import Simulations
from foretail.studies.search.trials import Trial, Trials, open_trials

COST, REGRET = "cost", "regret"
LOSSES = "losses"
"""What a trial lost in each condition that it was simulated in: log J, or regret."""


@dataclass
class RuleSettings(SimulatedPointSettings, Families, TrialSettings):
    """Sharing rules drawn from ranges, by their cost J under the training families.

    Every trial runs on the first seed; the best of them run on all.
    """

    ranges: dict[str, list[int]] = setting(
        MISSING,
        "First and last value of each number, equal to fix it: message_left in cells (-1 spares no packet for "
        "that), fill in 255ths of the buffer, pressure in eighths of octaves, first_rtt_more added to the "
        "pressure in a first round trip, last_pressure of the spared packets, far in cells, after which "
        "far_less lowers the pressure.",
    )
    score: str = setting(
        "cost",
        "Score of a rule: cost is the geometric mean of J; regret is the mean over conditions of J over the "
        "least J of against, less 1, at least 0.",
        one_of=("cost", "regret"),
    )
    against: dict[str, dict[str, list[float]]] = setting(
        {},
        "Policies with values of their parameters, as in sharing_map, over whose least J the regret is computed.",
    )
    conditions: str = setting(
        "first",
        "Conditions of each family for a trial; all runs them in turn until the rule cannot beat the best "
        "trial any more.",
        one_of=("first", "all"),
    )
    first: list[dict[str, int]] = setting([], "Rules to try first.")
    finalists: int = setting(4, "Number of best trials that run everywhere.", at_least=1, at_most=1000)
    seeds: list[int] = setting(MISSING, "Seeds of the finalists; the first is that of all trials.", at_least=1)

    def check(self, where: str) -> None:
        """Raise ForetailError on a number that no rule has, or outside its range."""
        super().check(where)
        if (self.score == "regret") != bool(self.against):
            raise ForetailError(
                f"against = {sorted(self.against)} with score={self.score}: regret needs some, cost none"
            )
        for name, values in self.against.items():
            require_tunable("against", name, values)
        for name, known in RULE_NUMBERS.items():
            given = self.ranges.get(name, [RULE_DEFAULTS[name]] * 2 if name in RULE_DEFAULTS else [])
            if len(given) != 2 or not known[0] <= given[0] <= given[1] <= known[1]:
                raise ForetailError(f"ranges.{name} = {given}: give two values in order, from {known[0]} to {known[1]}")
        for name in self.ranges:
            if name not in RULE_NUMBERS:
                raise ForetailError(f"ranges.{name} is unknown: choose from {', '.join(RULE_NUMBERS)}")
        for position, rule in enumerate(self.first):
            for name in {*self.ranges, *rule}:
                low, high = self.ranges.get(name, (1, 0))
                if not low <= rule.get(name, low - 1) <= high:
                    raise ForetailError(f"first[{position}] needs {name} within ranges.{name}, and nothing else")


@dataclass(frozen=True)
class Finalist:
    """A rule in all conditions of the training families."""

    trial: int  #: its number
    rule: SharingRule
    cost: float  #: J, geometric mean over conditions and seeds
    regret: float | None  #: over the policies of the search, mean over conditions; None in a search by cost
    less_first: PairedDifference  #: log J less that of the first finalist, mean over conditions, paired by seed


def show(settings: RuleSettings, run: Run) -> Shown:
    """Draw and judge rules until there are as many as wanted, those of earlier runs included; then the finalists."""
    known = settings.against or {CS.policy: {}}
    plan = SharingPlan.of(settings, settings.shared, settings.training(), known)
    simulations = Simulations.of(settings, plan, list(plan.scenarios), run.store)
    conditions = _in_turn(plan) if settings.conditions == "all" else _in_turn(plan)[: len(_families(plan))]
    searched = _searched(settings, plan, conditions)
    ranges = {number: IntDistribution(low, high) for number, (low, high) in settings.ranges.items()}
    with open_trials(
        settings, "rules", run.store, searched, ranges, {settings.score: "minimize"}, TPESampler, settings.first
    ) as trials:
        finished = _all_trials(settings, trials, simulations, conditions)
        simulations.cases.update(_cases_of(settings, finished, conditions))  # those of earlier commands too
        finalists = _finalists(settings, finished, simulations)
    best, frame = finalists[0], _frame(finished, settings.score)
    ensemble = best.rule.ensemble(simulations.cell_bytes)
    switch, in_switch = cost_in_switch(ensemble, "the best as a tree")
    rule = ", ".join(f"{number.replace('_', ' ')} {value}" for number, value in asdict(best.rule).items())
    regret = "" if best.regret is None else f", mean regret {100 * best.regret:.3g} %"
    return Shown(
        frame.assign(losses=pd.Series([_losses_of(trial) for trial in finished])),
        [_table(finalists)],
        frames={"trials.csv": frame},
        notes=(
            simulations.costs.note,
            simulations.budget.sentence(),
            in_switch,
            trials.sentence(),
        ),
        verdict=(
            f"Trial {best.trial} is the best of {len(finished)} rules on the training families: {rule}; "
            f"J {best.cost:.3g}{regret}.",
        ),
        details={
            "name": trials.name,
            "score": settings.score,
            "file": trials.file,
            "finalists": [asdict(one) for one in finalists],
            "switch": asdict(switch),
            "budget": asdict(simulations.budget),
        },
        learned=Learned(
            ensemble,
            f"Sharing rule of policy learned, by {settings.score} over {len(plan.scenarios)} conditions of the "
            f"training families, size {settings.size}, seeds {', '.join(map(str, settings.seeds))}: J {best.cost:.3g}.",
            {"finalist/cost": best.cost},
            lambda logged: _log(logged, settings, plan, finished),
        ),
    )


RULES = FunctionExperiment(RuleSettings, show)


def _table(finalists: Sequence[Finalist]) -> Table:
    """The finalists."""
    rows = [
        {
            "trial": one.trial,
            **{name.replace("_", " "): number for name, number in asdict(one.rule).items()},
            "J": one.cost,
            **({} if one.regret is None else {"mean regret, %": 100 * one.regret}),
            "against the first, %": percent_change(one.less_first.mean),
            "low": percent_change(one.less_first.low),
            "high": percent_change(one.less_first.high),
        }
        for one in finalists
    ]
    return Table.of_rows("Sharing rules in all conditions of the training families", rows)


def _log(run: TrackedRun, settings: RuleSettings, plan: SharingPlan, trials: Sequence[Trial]) -> None:
    """Every trial as a run inside, and the traffic that was simulated: there are no rows."""
    for trial in trials:
        run.log_nested(f"trial {trial.number}", trial.values, {settings.score: _score_of(trial, settings.score)})
    log_traffic(run, {str(where): scenario for where, scenario in plan.scenarios.items()}, settings.seeds, "train")


def level(
    simulations: Simulations, rules: Sequence[SharingRule], wheres: Sequence[Condition], seeds: Sequence[int]
) -> list[float]:
    """Return the mean of log J over conditions and seeds of each rule, and simulate what is not known."""
    levels = simulations.levels({_name(rule): rule.ensemble(simulations.cell_bytes) for rule in rules}, wheres, seeds)
    return [levels[_name(rule)] for rule in rules]


def losses_in(
    simulations: Simulations,
    score: str,
    rules: Sequence[SharingRule],
    wheres: Sequence[Condition],
    seeds: Sequence[int],
) -> list[list[float]]:
    """What each rule loses in each condition: log J, or, by regret, J over the least of the plan's, less 1."""
    level(simulations, rules, wheres, seeds)
    if score == REGRET:
        simulations.levels(dict.fromkeys(simulations.plan.rules), wheres, seeds)
    found = []
    for rule in rules:
        levels = [simulations.costs.level(where, _name(rule), seeds) for where in wheres]
        if score == REGRET:
            least = [
                min(simulations.costs.level(where, known, seeds) for known in simulations.plan.rules)
                for where in wheres
            ]
            levels = [max(0.0, math.expm1(one - best)) for one, best in zip(levels, least, strict=True)]
        found.append(levels)
    return found


def _name(rule: SharingRule) -> Rule:
    return Rule(LEARNED, " ".join(map(str, astuple(rule))))


def _families(plan: SharingPlan) -> list[list[Condition]]:
    return [list(one) for _, one in groupby(plan.scenarios, key=lambda condition: condition.family)]


def _in_turn(plan: SharingPlan) -> list[Condition]:
    """The first condition of each family, then the second of each, and so on."""
    return [one for ones in zip_longest(*_families(plan)) for one in ones if one is not None]


def _searched(settings: RuleSettings, plan: SharingPlan, conditions: Sequence[Condition]) -> dict[str, Any]:
    """Everything that decides the trials."""
    seed = settings.seeds[0]
    cases = [
        SharingCase(where.family, where.condition, rule.policy, rule.setting, seed)
        for where in conditions
        for rule in plan.rules
    ]
    return {
        "ranges": settings.ranges,
        "first": settings.first,
        "score": settings.score,
        "conditions_of_a_trial": settings.conditions,
        "batch": settings.batch,
        "seed": settings.seed,
        "traffic_seed": seed,
        "conditions": {f"{case.where} {case.rule}": Key(POINT, plan.depends_on(case)).digest for case in cases},
    }


def _all_trials(
    settings: RuleSettings, trials: Trials, simulations: Simulations, conditions: Sequence[Condition]
) -> list[Trial]:
    while batch := trials.batch(settings.trials):
        rules = {drawn.number: rule_of(drawn.values) for drawn in batch}
        best = _best(settings, trials.finished(), len(conditions)) if settings.conditions == "all" else None
        losses = _raced(settings, simulations, rules, conditions, best)
        scores = {number: {settings.score: _score(settings, one, best), LOSSES: one} for number, one in losses.items()}
        trials.keep([Trial(drawn.number, drawn.values, scores[drawn.number], None) for drawn in batch])
    return trials.finished()[: settings.trials]


def _best(settings: RuleSettings, trials: Sequence[Trial], conditions: int) -> list[float] | None:
    """What the best trial that ran in all conditions lost in each."""
    whole = [losses for trial in trials if len(losses := _losses_of(trial)) == conditions]
    return min(whole, key=sum) if whole else None


def _raced(
    settings: RuleSettings,
    simulations: Simulations,
    rules: Mapping[int, SharingRule],
    conditions: Sequence[Condition],
    best: Sequence[float] | None,
) -> dict[int, list[float]]:
    """What each rule loses in the conditions, up to where it has lost more than the best trial in all of them.

    Losses are at least 0, so that it cannot be the best any more.
    """
    losses: dict[int, list[float]] = {number: [] for number in rules}
    if best is None:
        found = losses_in(simulations, settings.score, list(rules.values()), conditions, settings.seeds[:1])
        return dict(zip(losses, found, strict=True))
    for where in conditions:
        running = [number for number, lost in losses.items() if sum(lost) <= sum(best)]
        if not running:
            break
        found = losses_in(simulations, settings.score, [rules[one] for one in running], [where], settings.seeds[:1])
        for number, (lost,) in zip(running, found, strict=True):
            losses[number].append(lost)
    return losses


def _score(settings: RuleSettings, losses: Sequence[float], best: Sequence[float] | None) -> float:
    """Of a trial; where it was stopped it takes the best trial's losses, so that its score is above that one's."""
    whole = [*losses, *([] if best is None else best[len(losses) :])]
    mean = float(np.mean(whole))
    return math.exp(mean) if settings.score == COST else 100 * mean


def _cases_of(
    settings: RuleSettings, trials: Sequence[Trial], conditions: Sequence[Condition]
) -> Iterator[SharingCase]:
    for trial in trials:
        rule = _name(rule_of(trial.values))
        for where, _ in zip(conditions, _losses_of(trial), strict=False):
            yield SharingCase(where.family, where.condition, rule.policy, rule.setting, settings.seeds[0])


def _finalists(settings: RuleSettings, trials: Sequence[Trial], simulations: Simulations) -> tuple[Finalist, ...]:
    """The rules of the best trials in all conditions, the best first."""
    chosen: dict[SharingRule, int] = {}
    for trial in sorted(trials, key=lambda one: _score_of(one, settings.score)):
        if len(chosen) < settings.finalists:
            chosen.setdefault(rule_of(trial.values), trial.number)
    conditions = list(simulations.plan.scenarios)
    losses = losses_in(simulations, settings.score, list(chosen), conditions, settings.seeds)
    levels = level(simulations, list(chosen), conditions, settings.seeds)
    ranked = sorted(zip(losses, levels, chosen.items(), strict=True), key=lambda one: sum(one[0]))
    first = _name(ranked[0][2][0])
    return tuple(
        Finalist(
            number,
            rule,
            math.exp(level),
            None if settings.score == COST else float(np.mean(lost)),
            simulations.costs.family_difference(conditions, _name(rule), first),
        )
        for lost, level, (rule, number) in ranked
    )


def _losses_of(trial: Trial) -> list[float]:
    return list((trial.found or {})[LOSSES])


def _score_of(trial: Trial, score: str) -> float:
    return float((trial.found or {})[score])


def _frame(trials: Sequence[Trial], score: str) -> pd.DataFrame:
    """One row per trial."""
    return pd.DataFrame(
        [
            {"trial": one.number, **one.values, score: _score_of(one, score), "conditions": len(_losses_of(one))}
            for one in trials
        ]
    )
