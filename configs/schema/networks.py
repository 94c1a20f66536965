"""The networks in which ``foretail evaluate`` runs policies: each has the settings that mean something there."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from omegaconf import MISSING

from foretail.configs.schema.emulation import Emulation, require_emulated, require_no_alphas
from foretail.configs.schema.fields import setting
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario
from foretail.core.errors import ForetailError

NATIVE_TRANSPORTS = ("dctcp", "cubic", "newreno")


@dataclass
class Network:
    """A network, as a setting has it."""

    name: str = setting(MISSING, "Network in which packets move.", one_of=("ns3", "native", "emulator"))

    runs_side_by_side: ClassVar[bool] = True
    """Whether several runs go on at the same time."""

    def uses_ns3(self) -> bool:
        """Whether ns-3 simulates anything."""
        return True

    def trains(self) -> list[str]:
        """The overrides with which a predictor is trained first; none where it is not."""
        return []

    def require_runs(self, scenario: Scenario, policies: Mapping[str, Policy]) -> None:
        """Raise ForetailError on a scenario or a policy that does not run here."""


@dataclass
class Ns3Network(Network):
    """Simulated hosts and TCP."""

    name: str = setting("ns3", "Network in which packets move: ns-3.")


@dataclass
class NativeNetwork(Network):
    """Simulated hosts with Foretail's own TCP, which sends what ns-3's sends, in a fraction of its time."""

    name: str = setting("native", "Network in which packets move: the native one.")

    def uses_ns3(self) -> bool:
        """ns-3 simulates nothing."""
        return False

    def require_runs(self, scenario: Scenario, policies: Mapping[str, Policy]) -> None:
        """Raise ForetailError on what only ns-3 simulates."""
        transport = scenario.transport.name
        if transport not in NATIVE_TRANSPORTS:
            raise ForetailError(
                f"scenario.transport.name = {transport} is not simulated by the native network: choose one of "
                f"{', '.join(NATIVE_TRANSPORTS)}, or network=ns3"
            )


@dataclass
class EmulatorNetwork(Emulation, Network):
    """This machine's TCP in namespaces, in real time: one run after the other."""

    name: str = setting("emulator", "Network in which packets move: the emulator.")
    train: list[str] = setting(
        [], "With model=null, overrides of foretail train, which trains in ns-3 the model that policies ask."
    )
    command: list[str] = setting(
        [], "Program and arguments that every host runs instead of the scenario's flows; on the command line after --."
    )
    command_seconds: int = setting(
        600, "Time of this machine's clock within which the command ends on host 0.", at_least=1, at_most=86_400
    )
    against_ns3: bool = setting(False, "Simulate the same run in ns-3, and compare flow by flow.")

    runs_side_by_side: ClassVar[bool] = False

    def uses_ns3(self) -> bool:
        """Whether ns-3 trains or simulates beside the emulator."""
        return self.against_ns3 or bool(self.train)

    def trains(self) -> list[str]:
        """The overrides with which a predictor is trained first."""
        return self.train

    def require_runs(self, scenario: Scenario, policies: Mapping[str, Policy]) -> None:
        """Raise ForetailError on what is not emulated, or what ns-3 sends with another transport."""
        require_emulated(scenario, self, "network")
        require_no_alphas(policies)
        if self.against_ns3 and self.in_ns3 != scenario.transport.name:
            raise ForetailError(
                f"network.against_ns3 compares Linux's {self.control} with ns-3's {scenario.transport.name}: set "
                f"scenario.transport.name={self.in_ns3}, or another network.control"
            )

    def check(self, where: str) -> None:
        """Raise ForetailError on a comparison or a command that cannot be."""
        Emulation.check(self, where)
        if self.against_ns3 and self.background_control not in (None, self.control):
            raise ForetailError(f"{where}.against_ns3 compares one transport: leave {where}.background_control out")
        if self.command and self.against_ns3:
            raise ForetailError(
                f"{where}.against_ns3 compares flows of the plan, and {where}.command sends its own: leave one out"
            )
        if self.command and shutil.which(self.command[0]) is None:
            raise ForetailError(
                f"{where}.command = {self.command[0]} is not a program on PATH: name one that this machine has"
            )
