"""Settings that every stage has, and those of every stage that learns from labelled runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omegaconf import MISSING

from foretail.configs.schema.networks import Network
from foretail.configs.schema.policies import Policy, require_known, require_one_policy
from foretail.configs.schema.scenario import Scenario
from foretail.configs.schema.switch_config import OF_CONFIG
from foretail.configs.schema.training import Split
from foretail.core.settings import part, setting

SIZES = ("small", "medium", "full")


@dataclass
class Figures:
    """How figures look."""

    style: str = setting(
        "screen",
        "Place where figures are shown, which chooses the size of letters and lines.",
        one_of=("screen", "paper", "slides"),
    )
    width_mm: float | None = setting(
        None,
        "Width of every figure; null means one column of 84 with style=paper, and what fits the panels otherwise.",
        at_least=40,
        at_most=2000,
    )


@dataclass
class Stage:
    """Settings of every stage."""

    store_dir: str = setting("outputs/store", "Folder of datasets, models and runs, addressed by content.")
    ns3_prefix: str | None = setting(
        None, "Folder of an ns-3 installation, 3.44 or newer; null means the Python package ns3."
    )

    figures: Figures = part(Figures, "Figures of the run.")

    def check(self, where: str) -> None:
        """Raise ForetailError on settings that only together cannot work; ranges are checked before."""

    def unused(self) -> Mapping[str, str]:
        """Settings that mean nothing beside the others, with what makes them so: giving one is refused."""
        return {}


@dataclass
class SimulatingStage(Stage):
    """A stage that simulates flows of a scenario."""

    network: Network = part(Network, "Network that simulates flows: native or ns3.")

    def check(self, where: str) -> None:
        """Raise ForetailError unless hosts are simulated."""
        self.network.require_simulator()


@dataclass
class LearningStage(SimulatingStage):
    """A stage that learns from labelled runs: datasets that are given, or those of a scenario."""

    scenario: Scenario = part(Scenario, "Scenario whose seeds the split names.")
    policy: dict[str, Policy] = setting(MISSING, "Policy of the training runs; exactly one.")
    datasets: list[str] = setting(
        [],
        "Datasets, or runs or sweeps of foretail collect; an empty list means the scenario's runs, "
        "simulated when missing.",
    )
    split: Split = part(Split, "Training, validation and test rows.")
    jobs: int = setting(
        1, "Number of simulations at the same time, for datasets that are not in the store.", at_least=1, at_most=1024
    )

    def check(self, where: str) -> None:
        """Raise ForetailError unless one policy moves the packets, in a network that simulates the scenario."""
        super().check(where)
        require_one_policy("policy", self.policy)
        if not self.datasets:
            require_known("policy", self.policy, self.scenario)
            self.network.require_runs(self.scenario, self.policy)
            self.network.require_prefix(self.ns3_prefix)

    def unused(self) -> Mapping[str, str]:
        """Settings that given datasets make meaningless."""
        of_runs = ("scenario", "policy", "network", "ns3_prefix", *OF_CONFIG)
        return dict.fromkeys(of_runs, "datasets=[...]") if self.datasets else {}
