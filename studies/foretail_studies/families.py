"""Families of conditions, of which some are trained on and the others judge, and what policies cost under them.

The cost of a run is J; a policy is judged with all its settings.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import MISSING

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.configs.schema.policies import Policy, policy_name
from foretail.configs.schema.scenario import Scenario
from foretail.core.digest import file_digest
from foretail.core.errors import ForetailError
from foretail.core.settings import setting
from foretail.pipelines.comparison import cost, statistics
from foretail.pipelines.comparison.policy_runs import flows_sha256
from foretail.pipelines.comparison.statistics import PairedDifference, mean_interval, paired_difference
from foretail.pipelines.data.simulation import (
    KeepsRuns,
    Simulates,
    Simulator,
    counters,
    driver_config,
    scratch_run,
    simulators_of,
)
from foretail.pipelines.experiment.declaration import measure_cases
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.settings.compose import compose_policies, compose_settings
from foretail.pipelines.settings.validation import StageConfig
from foretail.pipelines.tracking.runs import seen_seeds


@dataclass
class Family:
    """Conditions that resemble each other."""

    held_out: bool = setting(MISSING, "Never choose settings of policies on this family.")
    shared: list[str] = setting([], "Overrides that its conditions share.")
    conditions: dict[str, list[str]] = setting(MISSING, "Overrides of each condition, by its name.")
    last: dict[str, list[str]] = setting({}, "Overrides of a condition that follow all others, by its name.")

    def check(self, where: str) -> None:
        """Raise ForetailError when there is no condition, or last names one that is not there."""
        if not self.conditions:
            raise ForetailError(f"{where}.conditions is empty: name at least one")
        if unknown := sorted(self.last.keys() - self.conditions.keys()):
            raise ForetailError(
                f"{where}.last.{unknown[0]} names no condition: name one of {', '.join(self.conditions)}"
            )

    def overrides(self, condition: str) -> list[str]:
        """The overrides of a condition in their order."""
        return [*self.shared, *self.conditions[condition], *self.last.get(condition, [])]


@dataclass
class Families:
    """Families by name."""

    shared: list[str] = setting(MISSING, "Overrides that all conditions share.")
    families: dict[str, Family] = setting(
        MISSING, "Families by name; which of them are held out is drawn before anything is tried."
    )

    def training(self) -> dict[str, Family]:
        """The families on which settings may be chosen."""
        return {name: family for name, family in self.families.items() if not family.held_out}

    def held_out(self) -> dict[str, Family]:
        """The families that only judge."""
        return {name: family for name, family in self.families.items() if family.held_out}

    def require_both_sides(self) -> None:
        """Raise ForetailError without a family that trains or one that judges."""
        if not self.training() or not self.held_out():
            raise ForetailError("families needs one with held_out=false and one with held_out=true")


def require_apart(**roles: Iterable[int]) -> None:
    """Raise ForetailError on a seed that has two roles."""
    for (one, seeds), (other, others) in itertools.combinations(roles.items(), 2):
        if both := sorted({*seeds} & {*others}):
            raise ForetailError(f"seed {both[0]} is among {one} and {other}: give each seed one role")


DEFAULT = "default"
"""The setting with which the literature, or the user's model, comes."""


@dataclass(frozen=True, order=True)
class Rule:
    """A policy with a setting."""

    policy: str
    setting: str  #: as ``alpha=8``; ``default`` for a policy as it comes

    @classmethod
    def of(cls, policy: str) -> Rule:
        """A policy as it comes, by its option."""
        return cls(policy_name(policy), DEFAULT)

    def __str__(self) -> str:
        return self.policy if self.setting == DEFAULT else f"{self.policy} {self.setting}"


@dataclass(frozen=True, order=True)
class Condition:
    """A condition of a family."""

    family: str
    condition: str

    def __str__(self) -> str:
        return f"{self.family} {self.condition}"


def composed_conditions(
    schema: type[StageConfig], families: Mapping[str, Family], overrides: Sequence[str]
) -> dict[Condition, StageConfig]:
    """The settings of every condition: these overrides, and its own after them."""
    return {
        Condition(name, condition): compose_settings(
            schema, [*overrides, *family.overrides(condition)], f"families.{name}.conditions.{condition}"
        )
        for name, family in families.items()
        for condition in family.conditions
    }


@dataclass(frozen=True)
class SharingCase:
    """A simulation."""

    family: str
    condition: str
    policy: str
    setting: str
    seed: int

    @property
    def where(self) -> Condition:
        return Condition(self.family, self.condition)

    @property
    def rule(self) -> Rule:
        return Rule(self.policy, self.setting)


@dataclass(frozen=True)
class SharingPlan:
    """Everything that is composed and checked before the first simulation."""

    scenarios: Mapping[Condition, Scenario]
    simulators: Mapping[Condition, Simulator]
    rules: Mapping[Rule, Policy]  #: the default of every policy is its first
    library: Path | None  #: of the model, if there is one
    code: Sequence[str]  #: digests of what computes costs

    @classmethod
    def of(
        cls,
        config: Simulates,
        shared: Sequence[str],
        families: Mapping[str, Family],
        policies: Mapping[str, Mapping[str, Sequence[float]]],
    ) -> SharingPlan:
        """Compose conditions, and policies with their settings: without a model.

        Parameters
        ----------
        config : settings that name the network of all conditions whose overrides name none
        shared : overrides that all conditions share
        policies : by name, values of each parameter, all of whose combinations are rules beside the default
        """
        first = [config.network.override, "policy=lqd", *shared]
        composed = composed_conditions(EvaluateConfig, families, first)
        for one in composed.values():
            one.network.require_simulator()
        scenarios = {where: one.scenario for where, one in composed.items()}
        simulators = simulators_of(config, {where: one.network for where, one in composed.items()})
        values_of = {policy_name(name): values for name, values in policies.items()}
        rules: dict[Rule, Policy] = {}
        for name, policy in compose_policies(list(policies), "policies").items():
            tried = values_of[name]
            rules[Rule(name, DEFAULT)] = policy
            for values in itertools.product(*tried.values()):
                changed = dict(zip(tried, values, strict=True))
                known: dict[str, Any] = {
                    parameter: int(value) if isinstance(getattr(policy, parameter), int) else value
                    for parameter, value in changed.items()
                }
                if replace(policy, **known) not in rules.values():
                    text = ", ".join(f"{parameter}={value:g}" for parameter, value in changed.items())
                    rules[Rule(name, text)] = replace(policy, **known)
        code = [file_digest(Path(module.__file__ or "")) for module in (cost, statistics)]
        return cls(scenarios, simulators, rules, None, code)

    def with_model(self, asking: Sequence[str], library: Path) -> SharingPlan:
        """The plan with the policies that ask a model, which is a compiled library."""
        policies = compose_policies(asking, "asking")
        added = {Rule(name, DEFAULT): policy for name, policy in policies.items()}
        return replace(self, rules={**self.rules, **added}, library=library)

    def document(self, case: SharingCase) -> dict[str, Any]:
        """The driver's document of a simulation."""
        policy = self.rules[case.rule]
        return driver_config(self.scenarios[case.where], policy, case.seed, trace=False, library=self.library)

    def depends_on(self, case: SharingCase) -> dict[str, Any]:
        """Everything that the measurement depends on."""
        return {**self.simulators[case.where].depends_on(self.document(case)), "code": self.code}

    @property
    def cell_bytes(self) -> int:
        """The unit of features that count bytes; ForetailError unless all conditions share it, for trees have one."""
        cells = {scenario.features.cell_bytes for scenario in self.scenarios.values()}
        if len(cells) > 1:
            raise ForetailError(
                f"families has cells of {sorted(cells)} bytes, and trees have one unit: give all the same"
            )
        return cells.pop()

    def settings_of(self, policy: str) -> list[Rule]:
        """The policy's rules, the default first."""
        return [rule for rule in self.rules if rule.policy == policy]

    @property
    def policies(self) -> list[str]:
        return list(dict.fromkeys(rule.policy for rule in self.rules))


def simulated_cost(case: SharingCase, so_far: SoFar, plan: SharingPlan) -> dict[str, Any]:
    """Simulate a case and return its cost, a hash of what was offered, and what was asked."""
    document = plan.document(case)
    with scratch_run(document, plan.simulators[case.where], so_far) as run:
        switches = counters(run)
        return {
            **cost_document(case, run.flows(), run.summary["end_ns"], document),
            "asked": switches["asked"],
            "predicted_drops": switches["data_drops.predicted"],
            "drops": sum(value for reason, value in switches.items() if reason.startswith("data_drops.")),
            "cpu_seconds": run.summary["simulation_cpu_seconds"],
        }


def cost_document(
    case: SharingCase, flows: NDArray[np.void], end_ns: int, document: Mapping[str, Any]
) -> dict[str, Any]:
    """The cost of a run that ended, and a hash of what was offered; ForetailError if nothing was that costs."""
    run_cost = cost.run_cost(flows, end_ns, document)
    if run_cost.cost is None:
        raise ForetailError(f"{case.where} has no queries, no short and no long flows on seed {case.seed}: lengthen it")
    return {**asdict(run_cost), "flows_sha256": flows_sha256(flows, document)}


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
        pairs = [(self.logs(where, rule), self.logs(where, other)) for where in conditions]
        seeds = set.intersection(*(logs.keys() & others.keys() for logs, others in pairs))
        return mean_interval(
            [float(np.mean([logs[seed] - others[seed] for logs, others in pairs])) for seed in sorted(seeds)]
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
