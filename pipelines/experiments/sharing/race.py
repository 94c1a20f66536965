"""Which simulations are made: all settings on the first seeds, and further seeds where a comparison is open."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.core.errors import ForetailError
from foretail.pipelines.comparison.statistics import PairedDifference, mean_interval, paired_difference
from foretail.pipelines.experiments.frame import RunsPoints, measure_cases
from foretail.pipelines.experiments.sharing.plan import DEFAULT, Condition, Rule, SharingCase, SharingPlan, measured

POINT = "sharing_cost"
LQD, CS = Rule("lqd", DEFAULT), Rule("cs", DEFAULT)


@dataclass
class Costs:
    """What was measured."""

    #: by condition, rule and seed
    runs: dict[Condition, dict[Rule, dict[int, Mapping[str, Any]]]] = field(default_factory=dict)
    points: int = 0
    reused: int = 0

    def add(self, case: SharingCase, found: Mapping[str, Any]) -> None:
        """Take down a run; ForetailError when another rule was offered other flows on its seed."""
        rules = self.runs.setdefault(case.where, {})
        for rule, seeds in rules.items():
            if case.seed in seeds and seeds[case.seed]["flows_sha256"] != found["flows_sha256"]:
                raise ForetailError(
                    f"{rule} and {case.rule} were offered different flows in {case.where} on seed {case.seed}: the "
                    "driver is broken, nothing can be compared"
                )
        rules.setdefault(case.rule, {})[case.seed] = found

    def logs(self, where: Condition, rule: Rule) -> dict[int, float]:
        """log J by seed."""
        return {seed: math.log(found["cost"]) for seed, found in self.runs[where][rule].items()}

    def level(self, where: Condition, rule: Rule, seeds: Sequence[int]) -> float:
        """Mean of log J on some seeds; infinite when one is missing."""
        logs = self.logs(where, rule)
        return float(np.mean([logs.get(seed, math.inf) for seed in seeds]))

    def difference(self, where: Condition, rule: Rule, other: Rule) -> PairedDifference:
        """log J of a rule less that of another, paired by seed."""
        return paired_difference(self.logs(where, rule), self.logs(where, other))

    def family_difference(self, wheres: Sequence[Condition], rule: Rule, other: Rule) -> PairedDifference:
        """The same as a mean over conditions, on the seeds that all of them have."""
        pairs = [(self.logs(where, rule), self.logs(where, other)) for where in wheres]
        seeds = set.intersection(*(logs.keys() & others.keys() for logs, others in pairs))
        return mean_interval(
            [float(np.mean([logs[seed] - others[seed] for logs, others in pairs])) for seed in sorted(seeds)]
        )

    def best(self, where: Condition, rules: Iterable[Rule], seeds: Sequence[int]) -> Rule:
        """The rule with the least cost on some seeds."""
        return min(rules, key=lambda rule: self.level(where, rule, seeds))


@dataclass(frozen=True)
class Race:
    """A finished race."""

    plan: SharingPlan
    costs: Costs
    frozen: Mapping[str, Rule]  #: by policy: its best setting over the training families
    contenders: Mapping[Condition, Sequence[Rule]]  #: those with further seeds, all with the same

    def seeds(self, where: Condition) -> list[int]:
        """The seeds of the contenders."""
        return sorted(self.costs.runs[where][LQD])

    def hindsight(self, where: Condition, policy: str) -> Rule:
        """The policy's best setting in this very condition, of those that ran on all first seeds."""
        return self.costs.best(where, self.plan.settings_of(policy), self.plan.sweep.seeds)

    def best(self, where: Condition) -> Rule:
        """The contender with the least cost."""
        return self.costs.best(where, self.contenders[where], self.seeds(where))


def race(config: EvaluateConfig, plan: SharingPlan) -> Race:
    """Measure what the store lacks, first seeds first."""
    costs, sweep = Costs(), plan.sweep
    for seed in sweep.seeds:
        measure_rules(config, plan, costs, {where: still_running(plan, costs, where) for where in plan.scenarios}, seed)
    frozen = frozen_settings(plan, costs)
    contenders = {where: _contenders(plan, costs, where, frozen) for where in plan.scenarios}
    for seed in sweep.seeds:  # a frozen setting was given up in some conditions
        measure_rules(config, plan, costs, contenders, seed)
    for seed in range(max(sweep.seeds) + 1, max(sweep.seeds) + 1 + sweep.most_seeds - len(sweep.seeds)):
        undecided = {
            where: rules
            for where, rules in contenders.items()
            if any(
                _is_open(costs.difference(where, rule, to), plan) for to in (LQD, CS) for rule in rules if rule != to
            )
        }
        if sweep.experiment == "tune" or not undecided:
            break
        measure_rules(config, plan, costs, undecided, seed)
    return Race(plan, costs, frozen, contenders)


def still_running(plan: SharingPlan, costs: Costs, where: Condition) -> list[Rule]:
    """The rules but those that cost far more than another setting of their policy; a default always runs."""
    if where not in costs.runs:
        return list(plan.rules)
    ran = list(next(iter(costs.runs[where].values())))
    running = []
    for policy in plan.policies:
        rules = [rule for rule in plan.settings_of(policy) if len(costs.runs[where][rule]) == len(ran)]
        least = min(costs.level(where, rule, ran) for rule in rules)
        far = least + math.log(plan.sweep.give_up_ratio)
        running += [rule for rule in rules if rule.setting == DEFAULT or costs.level(where, rule, ran) <= far]
    return running


def frozen_settings(plan: SharingPlan, costs: Costs) -> dict[str, Rule]:
    """By policy, the setting with the least mean of log J against LQD over the conditions of the training families."""
    families = plan.sweep.families
    training = [where for where in plan.scenarios if not families[where.family].held_out]

    def against_lqd(rule: Rule) -> float:
        """On the seeds that the rule has: one that was given up in a condition is not out of the others."""
        return float(np.mean([costs.difference(where, rule, LQD).mean for where in training]))

    return {policy: min(plan.settings_of(policy), key=against_lqd) for policy in plan.policies}


def _contenders(plan: SharingPlan, costs: Costs, where: Condition, frozen: Mapping[str, Rule]) -> list[Rule]:
    """Of every policy the default, the frozen setting and the best in hindsight."""
    found: list[Rule] = []
    for policy in plan.policies:
        rules = plan.settings_of(policy)
        found += [rules[0], frozen[policy], costs.best(where, rules, plan.sweep.seeds)]
    return list(dict.fromkeys(found))


def _is_open(difference: PairedDifference, plan: SharingPlan) -> bool:
    if difference.low is None or difference.high is None:
        return True
    narrow = (difference.high - difference.low) / 2 <= math.log1p(plan.sweep.width_percent / 100)
    return not narrow and difference.low <= 0 <= difference.high


def measure_rules(
    config: RunsPoints, plan: SharingPlan, costs: Costs, rules: Mapping[Condition, Sequence[Rule]], seed: int
) -> None:
    """Add the costs of rules under conditions on a seed, as far as `costs` lacks them."""
    cases = [
        SharingCase(where.family, where.condition, rule.policy, rule.setting, seed)
        for where, of_condition in rules.items()
        for rule in of_condition
        if seed not in costs.runs.get(where, {}).get(rule, {})
    ]
    if not cases:
        return
    found = measure_cases(
        f"{plan.sweep.experiment}, seed {seed}",
        POINT,
        cases,
        config,
        name=lambda case: f"{case.where}: {case.rule}, seed {case.seed}",
        depends_on=plan.depends_on,
        measure=partial(measured, plan=plan),
    )
    for case, one in zip(found.cases, found.found, strict=True):
        costs.add(case, one)
    costs.points += len(cases)
    costs.reused += sum(entry.reused for entry in found.entries)
