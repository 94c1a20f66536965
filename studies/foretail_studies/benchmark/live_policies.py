"""What a policy in Python costs on the benchmark: it decides live, in all conditions of a seed at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from foretail.configs.schema.experiment import SimulatedPointSettings
from foretail.configs.schema.policies import Policy
from foretail.core.errors import ForetailError
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.data.simulation import Native
from foretail.pipelines.experiment.cases import measure_cases
from foretail.pipelines.families.conditions import DEFAULT, SharingCase, SharingPlan, cost_document
from foretail.pipelines.families.costs import Costs
from foretail.pipelines.runs.points import SoFar
from foretail.sim_bridge.native.network import run_live_native
from foretail.sim_bridge.python_policies import PythonPolicy


@dataclass(frozen=True)
class LiveCase:
    """All conditions on a seed: they wait together, so that the policy gets a batch."""

    seed: int


@dataclass(frozen=True)
class LivePlan:
    """Who decides, for whom, and where."""

    policy: PythonPolicy
    asking: Policy  #: the policy of the switch that asks it
    plan: SharingPlan

    def __post_init__(self) -> None:
        """Raise ForetailError unless all conditions are of the native network."""
        if not all(isinstance(simulator, Native) for simulator in self.plan.simulators.values()):
            raise ForetailError(
                f"{self.policy.name} decides in Python, which only the native network asks: set network=native"
            )

    def cases(self, seed: int) -> list[SharingCase]:
        """The simulations of a seed."""
        return [
            SharingCase(where.family, where.condition, self.policy.name, DEFAULT, seed) for where in self.plan.scenarios
        ]

    def documents(self, seed: int) -> list[dict[str, Any]]:
        """Their documents of the driver."""
        return [driver_config(scenario, self.asking, seed, trace=False) for scenario in self.plan.scenarios.values()]

    def depends_on(self, case: LiveCase) -> dict[str, Any]:
        """Everything that the measurement depends on."""
        simulators = self.plan.simulators.values()
        return {
            "runs": [
                simulator.depends_on(document)
                for simulator, document in zip(simulators, self.documents(case.seed), strict=True)
            ],
            "policy": [self.policy.sha256, self.policy.function],
            "code": self.plan.code,
        }


def measure_live(
    title: str, settings: SimulatedPointSettings, live: LivePlan, costs: Costs, seeds: Sequence[int]
) -> None:
    """Add what the policy costs in every condition."""
    measured = measure_cases(
        title,
        "live_cost",
        [LiveCase(seed) for seed in seeds],
        settings,
        name=lambda case: f"{live.policy.name} in {len(live.plan.scenarios)} conditions, seed {case.seed}",
        depends_on=live.depends_on,
        measure=partial(_costs, live=live),
    )
    for case, found in zip(measured.cases, measured.measurements, strict=True):
        for one, cost in zip(live.cases(case.seed), found, strict=True):
            costs.add(one, cost)
        costs.points += len(found)
    costs.reused += measured.reused * len(live.plan.scenarios)


def _costs(case: LiveCase, so_far: SoFar, live: LivePlan) -> list[Mapping[str, Any]]:
    """Costs on a seed, in the order of the conditions."""
    so_far("")
    documents = live.documents(case.seed)
    runs = run_live_native(documents, live.policy.fresh().decide, live.policy.features)
    return [
        cost_document(one, run.flows, run.summary["end_ns"], document)
        for one, run, document in zip(live.cases(case.seed), runs, documents, strict=True)
    ]
