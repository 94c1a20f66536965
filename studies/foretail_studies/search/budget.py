"""What a search simulated, so that searches can be compared at equal budgets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from foretail.configs.schema.scenario import Scenario
from foretail.export.p4.profile import load_profile
from foretail.features.dataset.schema import traffic_sha256_of
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.tracking import TrackedRun
from foretail.pipelines.families.conditions import Condition, SharingCase
from foretail.pipelines.runs.result import plain
from foretail_studies.search.switch_cost import SwitchCost, switch_cost

SWITCH_PORTS = 32
"""Of the switch in which what was learned is costed."""


@dataclass(frozen=True)
class Budget:
    """What was simulated, or taken from the store instead: a search that is repeated has spent as much."""

    simulations: int = 0  #: runs from their beginning
    branches: int = 0  #: runs that began at a decision of another one
    #: simulated time in which traffic comes, without what drains afterwards; a branch counts as much as a whole run,
    #: which is the most that it simulates
    traffic_ns: int = 0

    def __add__(self, other: Budget) -> Budget:
        """Both together."""
        return Budget(
            self.simulations + other.simulations, self.branches + other.branches, self.traffic_ns + other.traffic_ns
        )

    @classmethod
    def of_cases(cls, cases: Iterable[SharingCase], scenarios: Mapping[Condition, Scenario]) -> Budget:
        """The budget of simulations, each counted once."""
        once = set(cases)
        return cls(len(once), 0, sum(scenarios[case.where].traffic_ns for case in once))

    def sentence(self) -> str:
        """For a note below a table."""
        branches = f" and {self.branches:,} branches" if self.branches else ""
        return (
            f"budget: {self.simulations:,} simulations{branches}, {self.traffic_ns / 1e9:.3g} simulated seconds of "
            "traffic at most, those in the store too"
        )


def log_traffic(run: TrackedRun, scenarios: Mapping[str, Scenario], seeds: Sequence[int], context: str) -> None:
    """Log the traffic of conditions as what a run was given: there are no rows, only simulations."""
    for name, scenario in scenarios.items():
        for seed in seeds:
            traffic = traffic_sha256_of(plain(asdict(scenario)), seed)
            run.log_dataset(f"{name}-{seed}", traffic, traffic, "simulated", 0, 0, context)


def cost_in_switch(ensemble: Ensemble, whose: str) -> tuple[SwitchCost, str]:
    """What trees cost a switch, and that as a note below a table."""
    cost = switch_cost(ensemble, SWITCH_PORTS, load_profile("v1model"))
    resources = f"{cost.table_entries} P4 table entries, {cost.tcam_bits} TCAM bits"
    return cost, f"{whose}: {resources}, {cost.feature_bits} bits of registers"
