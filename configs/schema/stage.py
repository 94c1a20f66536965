"""Settings that every stage has, and those of every stage that simulates flows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foretail.configs.schema.networks import Network
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
