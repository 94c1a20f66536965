"""Rules of the policy ``learned``, each as trees, simulated under conditions of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from foretail.configs.schema.experiment import JobSettings
from foretail.core.errors import ForetailError
from foretail.models.ensemble.ensemble import Ensemble
from foretail.pipelines.exporting.predictor import export_to_store
from foretail.pipelines.families.conditions import Condition, Rule, SharingCase, SharingPlan
from foretail.pipelines.families.costs import Costs, measure_rules
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_policy
from foretail.pipelines.settings.rules import LEARNED
from foretail_studies.search.budget import Budget


@dataclass
class Simulations:
    """Rules, each as trees, under conditions of a plan."""

    settings: JobSettings  #: how many at the same time, and where they run
    plan: SharingPlan
    store: Store
    costs: Costs
    cell_bytes: int
    cases: set[SharingCase] = field(default_factory=set)  #: all that were wanted

    @property
    def budget(self) -> Budget:
        """Of all that were wanted."""
        return Budget.of_cases(self.cases, self.plan.scenarios)

    @classmethod
    def of(cls, config: JobSettings, plan: SharingPlan, wheres: Sequence[Condition], store: Store) -> Simulations:
        """Of a plan, as long as its conditions have cells of one size."""
        cells = {plan.scenarios[where].features.cell_bytes for where in wheres}
        if len(cells) > 1:
            raise ForetailError(
                f"families has cells of {sorted(cells)} bytes, and a rule has one unit: give all the same"
            )
        return cls(config, plan, store, Costs(), cells.pop())

    def levels(
        self, trees: Mapping[Rule, Ensemble | None], wheres: Sequence[Condition], seeds: Sequence[int]
    ) -> dict[Rule, float]:
        """The same of each rule of the policy ``learned`` that asks an ensemble, or, without one, of the plan."""
        policy = compose_policy(LEARNED, LEARNED)
        asking = {
            rule: policy.ask(export_to_store(tree, self.store).library)
            for rule, tree in trees.items()
            if tree is not None
        }
        plan = replace(self.plan, rules={**self.plan.rules, **asking})
        self.cases.update(
            SharingCase(where.family, where.condition, rule.policy, rule.setting, seed)
            for where in wheres
            for rule in trees
            for seed in seeds
        )
        measure_rules("search", self.settings, plan, self.costs, {where: list(trees) for where in wheres}, seeds)
        return {rule: float(np.mean([self.costs.level(where, rule, seeds) for where in wheres])) for rule in trees}
