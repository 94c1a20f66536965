"""Families of conditions with their scenarios, policies with their settings, and the measurement of one simulation."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.families import Family
from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.configs.schema.policies import Policy, policy_name
from foretail.configs.schema.scenario import Scenario
from foretail.core.errors import ForetailError
from foretail.pipelines.comparison import cost, statistics
from foretail.pipelines.comparison.policy_runs import flows_sha256
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.data.simulation import Simulates, Simulator, counters, scratch_run, simulators_of
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.store import file_digest
from foretail.pipelines.settings.compose import compose_policies, compose_settings

DEFAULT = "default"
"""The setting with which the literature, or the user's model, comes."""


@dataclass(frozen=True, order=True)
class Rule:
    """A policy with a setting."""

    policy: str
    setting: str  #: as ``alpha=8``; ``default`` for a policy as it comes

    def __str__(self) -> str:
        return self.policy if self.setting == DEFAULT else f"{self.policy} {self.setting}"


@dataclass(frozen=True, order=True)
class Condition:
    """A condition of a family."""

    family: str
    condition: str

    def __str__(self) -> str:
        return f"{self.family} {self.condition}"


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
        composed = {
            Condition(name, condition): compose_settings(
                EvaluateConfig,
                [config.network.override, "policy=lqd", *shared, *family.overrides(condition)],
                f"families.{name}.conditions.{condition}",
            )
            for name, family in families.items()
            for condition in family.conditions
        }
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
        return driver_config(
            self.scenarios[case.where],
            policy,
            case.seed,
            trace=False,
            library=self.library,
        )

    def depends_on(self, case: SharingCase) -> dict[str, Any]:
        """Everything that the measurement depends on."""
        return {
            **self.simulators[case.where].depends_on(self.document(case)),
            "code": self.code,
        }

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
