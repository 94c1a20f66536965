"""What a search simulated, so that searches can be compared at equal budgets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from foretail.configs.schema.scenario import Scenario
from foretail.pipelines.experiments.sharing.plan import Condition, SharingCase


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
