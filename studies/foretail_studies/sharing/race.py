"""Which simulations are made: all settings on the first seeds, and further seeds where a comparison is open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from omegaconf import MISSING

from foretail.configs.schema.experiment import SimulatedPointSettings
from foretail.configs.schema.families import Families
from foretail.configs.schema.fields import setting
from foretail.configs.schema.policies import ASKING, DT_PREDICTED, limits, require_tunable
from foretail.core.errors import ForetailError
from foretail.core.limits import require_within
from foretail.pipelines.comparison.statistics import PairedDifference
from foretail.pipelines.families.conditions import DEFAULT, Condition, Rule, SharingPlan
from foretail.pipelines.families.costs import CS, LQD, Costs, measure_rules


@dataclass
class MapSettings(SimulatedPointSettings, Families):
    """Policies with many settings under families of conditions, judged by their cost J.

    Settings are chosen on the training families and frozen; the others only judge them.
    """

    policies: dict[str, dict[str, list[float]]] = setting(
        MISSING, "Values of each parameter by policy; all their combinations are tried beside the policy's defaults."
    )
    model: str | None = setting(None, "Model, as in export, that the policies in asking ask; null asks no model.")
    asking: list[str] = setting(["credence"], "With model, the policies that ask it.", one_of=(*ASKING, DT_PREDICTED))
    seeds: list[int] = setting(MISSING, "Traffic seeds of every setting.", at_least=1, at_most=2**30)
    most_seeds: int = setting(
        30, "Most seeds: further ones follow while a comparison with LQD or CS is undecided.", at_least=1, at_most=1000
    )
    width_percent: float = setting(
        5.0,
        "Half width of a 95 % interval, in percent, below which a comparison is decided; one with a "
        "single sign is decided too.",
        above=0,
        at_most=100,
    )
    give_up_ratio: float = setting(
        2.0,
        "Ratio of a setting's J to the best J of its policy above which it gets no further seeds.",
        above=1,
        at_most=100,
    )
    close_percent: float = setting(
        5.0, "Difference of costs, in percent, below which settings count as equally good.", above=0, at_most=100
    )

    judges: ClassVar[bool] = True
    """Whether held-out families judge the settings."""

    def check(self, where: str) -> None:
        """Raise ForetailError on families, policies or seeds that cannot be compared."""
        super().check(where)
        if not self.training():
            raise ForetailError("families has none with held_out=false, on which settings are chosen: add one")
        if self.judges and not self.held_out():
            raise ForetailError("families has none with held_out=true, which judge the settings: add one")
        for needed in ("lqd", "cs"):
            if needed not in self.policies:
                raise ForetailError(f"policies lacks {needed}, to which all are compared: add {needed}: {{}}")
        for name, values in self.policies.items():
            require_tunable("policies", name, values)
            for parameter, numbers in values.items():
                for number in numbers:
                    require_within(f"policies.{name}.{parameter}", number, limits(parameter))
        if self.most_seeds < len(self.seeds):
            raise ForetailError(f"most_seeds = {self.most_seeds} is less than the {len(self.seeds)} seeds: raise it")


@dataclass(frozen=True)
class Race:
    """A finished race."""

    settings: MapSettings
    plan: SharingPlan
    costs: Costs
    frozen: Mapping[str, Rule]  #: by policy: its best setting over the training families
    contenders: Mapping[Condition, Sequence[Rule]]  #: those with further seeds, all with the same

    def training(self) -> list[Condition]:
        """The conditions of the training families."""
        return [where for where in self.plan.scenarios if where.family in self.settings.training()]

    def seeds(self, where: Condition) -> list[int]:
        """The seeds of the contenders."""
        return sorted(self.costs.runs[where][LQD])

    def hindsight(self, where: Condition, policy: str) -> Rule:
        """The policy's best setting in this very condition, of those that ran on all first seeds."""
        return self.costs.best(where, self.plan.settings_of(policy), self.settings.seeds)


def race(settings: MapSettings, plan: SharingPlan) -> Race:
    """Measure what the store lacks, first seeds first."""
    costs, seeds = Costs(), settings.seeds

    def measure(rules: Mapping[Condition, Sequence[Rule]], seed: int) -> None:
        measure_rules(f"{settings.experiment}, seed {seed}", settings, plan, costs, rules, [seed])

    for seed in seeds:
        measure({where: still_running(settings, plan, costs, where) for where in plan.scenarios}, seed)
    frozen = frozen_settings(settings, plan, costs)
    contenders = {where: _contenders(settings, plan, costs, where, frozen) for where in plan.scenarios}
    for seed in seeds:  # a frozen setting was given up in some conditions
        measure(contenders, seed)
    for seed in range(max(seeds) + 1, max(seeds) + 1 + settings.most_seeds - len(seeds)):
        undecided = {
            where: rules
            for where, rules in contenders.items()
            if any(
                _is_open(settings, costs.difference(where, rule, to))
                for to in (LQD, CS)
                for rule in rules
                if rule != to
            )
        }
        if not settings.judges or not undecided:
            break
        measure(undecided, seed)
    return Race(settings, plan, costs, frozen, contenders)


def still_running(settings: MapSettings, plan: SharingPlan, costs: Costs, where: Condition) -> list[Rule]:
    """The rules but those that cost far more than another setting of their policy; a default always runs."""
    if where not in costs.runs:
        return list(plan.rules)
    ran = list(next(iter(costs.runs[where].values())))
    running = []
    for policy in plan.policies:
        rules = [rule for rule in plan.settings_of(policy) if len(costs.runs[where][rule]) == len(ran)]
        least = min(costs.level(where, rule, ran) for rule in rules)
        far = least + math.log(settings.give_up_ratio)
        running += [rule for rule in rules if rule.setting == DEFAULT or costs.level(where, rule, ran) <= far]
    return running


def frozen_settings(settings: MapSettings, plan: SharingPlan, costs: Costs) -> dict[str, Rule]:
    """By policy, the setting with the least mean of log J against LQD over the conditions of the training families."""
    training = [where for where in plan.scenarios if where.family in settings.training()]

    def against_lqd(rule: Rule) -> float:
        """On the seeds that the rule has: one that was given up in a condition is not out of the others."""
        return float(np.mean([costs.difference(where, rule, LQD).mean for where in training]))

    return {policy: min(plan.settings_of(policy), key=against_lqd) for policy in plan.policies}


def _contenders(
    settings: MapSettings, plan: SharingPlan, costs: Costs, where: Condition, frozen: Mapping[str, Rule]
) -> list[Rule]:
    """Of every policy the default, the frozen setting and the best in hindsight."""
    found: list[Rule] = []
    for policy in plan.policies:
        rules = plan.settings_of(policy)
        found += [rules[0], frozen[policy], costs.best(where, rules, settings.seeds)]
    return list(dict.fromkeys(found))


def _is_open(settings: MapSettings, difference: PairedDifference) -> bool:
    if difference.low is None or difference.high is None:
        return True
    narrow = (difference.high - difference.low) / 2 <= math.log1p(settings.width_percent / 100)
    return not narrow and difference.low <= 0 <= difference.high
