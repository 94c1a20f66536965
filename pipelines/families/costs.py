"""Costs of rules under conditions, seed by seed, and how much less they are than those of others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from foretail.core.errors import ForetailError
from foretail.pipelines.comparison.statistics import PairedDifference, mean_interval, paired_difference
from foretail.pipelines.data.simulation import KeepsRuns
from foretail.pipelines.experiment.cases import measure_cases
from foretail.pipelines.families.conditions import DEFAULT, Condition, Rule, SharingCase, SharingPlan, simulated_cost
from foretail.pipelines.tracking.seen import seen_seeds

POINT = "sharing_cost"
LQD, CS = Rule("lqd", DEFAULT), Rule("cs", DEFAULT)


@dataclass
class Costs:
    """Measured costs."""

    #: by condition, rule and seed
    runs: dict[Condition, dict[Rule, dict[int, Mapping[str, Any]]]] = field(default_factory=dict)
    points: int = 0
    reused: int = 0

    @property
    def note(self) -> str:
        """How much was simulated, for a note below a table."""
        return f"{self.points:,} simulations, {self.reused:,} of them in the store"

    def add(self, case: SharingCase, figures: Mapping[str, Any]) -> None:
        """Take down a run; ForetailError when another rule was offered other flows on its seed."""
        rules = self.runs.setdefault(case.where, {})
        for rule, seeds in rules.items():
            if case.seed in seeds and seeds[case.seed]["flows_sha256"] != figures["flows_sha256"]:
                raise ForetailError(
                    f"{rule} and {case.rule} were offered different flows in {case.where} on seed {case.seed}: the "
                    "driver is broken, nothing can be compared"
                )
        rules.setdefault(case.rule, {})[case.seed] = figures

    def logs(self, where: Condition, rule: Rule) -> dict[int, float]:
        """log J by seed."""
        return {seed: math.log(figures["cost"]) for seed, figures in self.runs[where][rule].items()}

    def level(self, where: Condition, rule: Rule, seeds: Sequence[int]) -> float:
        """Mean of log J on some seeds; infinite when one is missing."""
        logs = self.logs(where, rule)
        return float(np.mean([logs.get(seed, math.inf) for seed in seeds]))

    def difference(self, where: Condition, rule: Rule, other: Rule) -> PairedDifference:
        """log J of a rule less that of another, paired by seed."""
        return paired_difference(self.logs(where, rule), self.logs(where, other))

    def family_difference(self, conditions: Sequence[Condition], rule: Rule, other: Rule) -> PairedDifference:
        """The same as a mean over conditions, on the seeds that all of them have."""
        return self.difference_to(conditions, rule, dict.fromkeys(conditions, other))

    def difference_to(
        self, conditions: Sequence[Condition], rule: Rule, others: Mapping[Condition, Rule]
    ) -> PairedDifference:
        """The same, with another rule to compare with in each condition."""
        pairs = [(self.logs(where, rule), self.logs(where, others[where])) for where in conditions]
        seeds = set.intersection(*(logs.keys() & other.keys() for logs, other in pairs))
        return mean_interval(
            [float(np.mean([logs[seed] - other[seed] for logs, other in pairs])) for seed in sorted(seeds)]
        )

    def best(self, where: Condition, rules: Iterable[Rule], seeds: Sequence[int]) -> Rule:
        """The rule with the least cost on some seeds."""
        return min(rules, key=lambda rule: self.level(where, rule, seeds))

    def regret(self, where: Condition, rule: Rule, rules: Sequence[Rule]) -> PairedDifference:
        """log J of a rule less that of the best of `rules`, cross-fitted.

        On each seed the best is the one that costs least on all other seeds. So chance favours nobody, and the regret
        of the best rule is 0 in the mean. Seeds that the rule lacks are left out. Without a second seed there is none.
        """
        own = self.logs(where, rule)
        fitted = self._fitted(where, rules)
        return mean_interval([own[seed] - self.logs(where, best)[seed] for seed, best in fitted if seed in own])

    def noise_floor(self, where: Condition, rules: Sequence[Rule]) -> float | None:
        """Apparent regret of the best of `rules` if it is chosen on the seeds that judge; None with one seed.

        It is the mean of log J over seeds of the rule chosen on the other seeds, less that of the rule with the least.
        """
        fitted = self._fitted(where, rules)
        if not fitted:
            return None
        seeds = [seed for seed, _ in fitted]
        least = min(self.level(where, rule, seeds) for rule in rules)
        return float(np.mean([self.logs(where, best)[seed] for seed, best in fitted])) - least

    def _fitted(self, where: Condition, rules: Sequence[Rule]) -> list[tuple[int, Rule]]:
        """Every seed that all rules have, with the best rule on the others."""
        seeds = sorted(set.intersection(*(set(self.runs[where][rule]) for rule in rules)))
        others = [(seed, [one for one in seeds if one != seed]) for seed in seeds]
        return [(seed, self.best(where, rules, rest)) for seed, rest in others if rest]


def measure_rules(
    title: str,
    config: KeepsRuns,
    plan: SharingPlan,
    costs: Costs,
    rules: Mapping[Condition, Sequence[Rule]],
    seeds: Sequence[int],
) -> None:
    """Add the costs of rules under conditions on seeds, as far as `costs` lacks them; `title` is for the progress."""
    cases = [
        SharingCase(where.family, where.condition, rule.policy, rule.setting, seed)
        for seed in seeds
        for where, of_condition in rules.items()
        for rule in of_condition
        if seed not in costs.runs.get(where, {}).get(rule, {})
    ]
    if not cases:
        return
    if plan.library is not None:
        for where in rules:
            seen_seeds(plan.scenarios[where], seeds, str(where))
    measured = measure_cases(
        title,
        POINT,
        cases,
        config,
        name=lambda case: f"{case.where}: {case.rule}, seed {case.seed}",
        depends_on=plan.depends_on,
        measure=partial(simulated_cost, plan=plan),
    )
    for case, one in zip(measured.cases, measured.measurements, strict=True):
        costs.add(case, one)
    costs.points += len(cases)
    costs.reused += measured.reused
