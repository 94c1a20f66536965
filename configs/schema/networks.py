"""The networks in which packets move: each has the settings that mean something there."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar

from omegaconf import MISSING

from foretail.configs.schema.emulation import Emulation, require_emulated, require_real_time
from foretail.configs.schema.network.transport import LOSS_BASED, RDMA
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.scenario import Scenario
from foretail.core.errors import ForetailError
from foretail.core.settings import setting
from foretail.sim_bridge.policies import SEE_INGRESS

LARGEST_RC3_BYTES = 2**30


@dataclass
class Network:
    """A network, as a setting has it."""

    name: str = setting(MISSING, "Network in which packets move.", one_of=("ns3", "native", "emulator"))

    runs_side_by_side: ClassVar[bool] = True
    """True if several runs go on at the same time."""
    simulates: ClassVar[bool] = True
    """True if hosts are simulated."""

    @property
    def override(self) -> str:
        """The override of a command that chooses it."""
        return f"network={self.name}"

    def uses_ns3(self) -> bool:
        """True if ns-3 simulates anything."""
        return True

    def trains(self) -> list[str]:
        """The overrides with which a predictor is trained first; none where it is not."""
        return []

    def require_runs(self, scenario: Scenario, policies: Mapping[str, Policy]) -> None:
        """Raise ForetailError on a scenario or a policy that does not run here."""

    def require_prefix(self, ns3_prefix: str | None) -> None:
        """Raise ForetailError on an ns-3 that nothing uses."""
        if ns3_prefix is not None and not self.uses_ns3():
            raise ForetailError(
                f"ns3_prefix names an ns-3, which network={self.name} does not use: leave it out, or give network=ns3"
            )

    def require_jobs(self, jobs: int | None) -> None:
        """Raise ForetailError on runs at the same time where each has the machine's clock to itself."""
        if jobs not in (None, 1) and not self.runs_side_by_side:
            raise ForetailError(
                f"jobs = {jobs} asks for runs at the same time, and network={self.name} has the machine's clock to "
                "itself in each: leave jobs out"
            )

    def require_simulator(self) -> None:
        """Raise ForetailError unless hosts are simulated."""
        if not self.simulates:
            raise ForetailError(f"network={self.name} is for collect and evaluate: use network=native or network=ns3")


def require_rc3_fits(scenario: Scenario) -> None:
    """Raise ForetailError on a scenario in which the second loop of RC3 cannot send."""
    transport, queues, bursts, exchange = scenario.transport, scenario.queues, scenario.elephants, scenario.collective
    sizes = scenario.background.size_bytes
    priorities = len(transport.rc3.edges)
    for name, value, suits, instead in (
        ("transport.name", transport.name, transport.name in LOSS_BASED, "newreno or cubic"),
        ("transport.background_name", transport.background_name, transport.background_name not in RDMA, "null"),
        ("transport.recovery", transport.recovery, transport.recovery == "ns3", "ns3"),
        (
            "transport.mark_bytes",
            transport.mark_bytes,
            transport.mark_bytes == 0,
            "0, for low priorities would mark TCP",
        ),
        ("queues.count", queues.count, queues.count > priorities, f"{priorities + 1}, one for each priority"),
        ("queues.scheduler", queues.scheduler, queues.scheduler == "strict", "strict"),
        ("queues.background", queues.background, queues.background == 0, "0, the queue of TCP"),
        ("queues.incast", queues.incast, queues.incast == 0, "0, the queue of TCP"),
        ("queues.control", queues.control, queues.control == 0, "0, the queue of TCP"),
        ("queues.lossless", queues.lossless, not queues.lossless, "[]"),
        ("elephants.flows_per_server", bursts.flows_per_server, not bursts.flows_per_server, "0"),
        ("collective.kind", exchange.kind, exchange.kind is None, "null"),
        ("incast.connections", scenario.incast.connections, scenario.incast.connections == "new", "new"),
        ("background.size_bytes", sizes, sizes[-1] <= LARGEST_RC3_BYTES, f"at most {LARGEST_RC3_BYTES}"),
    ):
        if priorities and not suits:
            raise ForetailError(
                f"scenario.{name} = {value} does not go with scenario.transport.rc3.edges: set it to {instead}"
            )


def require_simulated(scenario: Scenario, policies: Mapping[str, Policy], network: Network) -> None:
    """Raise ForetailError on what only the native network simulates."""
    transport, topology = scenario.transport, scenario.topology
    for name, is_set, instead in (
        ("transport.name", transport.name in RDMA, "a TCP"),
        ("transport.background_name", transport.background_name in RDMA, "null"),
        ("transport.recovery", transport.recovery != "ns3" and network.simulates, "ns3"),
        ("transport.rc3.edges", transport.rc3.edges, "[]"),
        ("balancing.name", scenario.balancing.name != "ecmp", "ecmp"),
        ("topology.slow_spines", topology.slow_spines, "0"),
        ("topology.erasure_probability", topology.erasure_probability, "0"),
        ("queues.lossless", scenario.queues.lossless, "[]"),
    ):
        if is_set:
            raise ForetailError(
                f"scenario.{name} = {attrgetter(name)(scenario)} is not there with {network.override}: use "
                f"network=native, or set it to {instead}"
            )
    for name, policy in policies.items():
        if policy.name in SEE_INGRESS:
            raise ForetailError(
                f"policy {name} has to know where packets came in, which switches of {network.override} do not: use "
                "network=native"
            )


@dataclass
class Ns3Network(Network):
    """Simulated hosts and TCP."""

    name: str = setting("ns3", "Network in which packets move: ns-3.")

    def require_runs(self, scenario: Scenario, policies: Mapping[str, Policy]) -> None:
        """Raise ForetailError on what only the native network simulates."""
        require_simulated(scenario, policies, self)


@dataclass
class NativeNetwork(Network):
    """Simulated hosts with Foretail's own TCP, which sends what ns-3's sends, in a fraction of its time."""

    name: str = setting("native", "Network in which packets move: the native one.")

    def uses_ns3(self) -> bool:
        """ns-3 simulates nothing."""
        return False

    def require_runs(self, scenario: Scenario, policies: Mapping[str, Policy]) -> None:
        """Raise ForetailError on senders of RC3 that cannot fill their links."""
        require_rc3_fits(scenario)


@dataclass
class EmulatorNetwork(Emulation, Network):
    """This machine's TCP in namespaces, in real time: one run after the other."""

    name: str = setting("emulator", "Network in which packets move: the emulator.")
    train: list[str] = setting(
        [], "With model=null, overrides of foretail train, which trains the model that policies ask."
    )
    command: list[str] = setting(
        [], "Program and arguments that every host runs instead of the scenario's flows; on the command line after --."
    )
    command_seconds: int = setting(
        600, "Time of this machine's clock within which the command ends on host 0.", at_least=1, at_most=86_400
    )
    against_ns3: bool = setting(False, "Simulate the same run in ns-3, and compare flow by flow.")

    runs_side_by_side: ClassVar[bool] = False
    simulates: ClassVar[bool] = False

    def uses_ns3(self) -> bool:
        """True if ns-3 simulates beside the emulator, or may train."""
        return self.against_ns3 or bool(self.train)

    def trains(self) -> list[str]:
        """The overrides with which a predictor is trained first."""
        return self.train

    def require_runs(self, scenario: Scenario, policies: Mapping[str, Policy]) -> None:
        """Raise ForetailError on what is not emulated, or what ns-3 sends with another transport."""
        require_simulated(scenario, policies, self)
        require_emulated(scenario, self, "network")
        require_real_time(policies)
        if self.against_ns3 and self.in_ns3 != scenario.transport.name:
            raise ForetailError(
                f"network.against_ns3 compares Linux's {self.control} with ns-3's {scenario.transport.name}: set "
                f"scenario.transport.name={self.in_ns3}, or another network.control"
            )

    def require_no_comparison(self) -> None:
        """Raise ForetailError on what only a comparison of policies has."""
        for name in ("train", "command", "against_ns3"):
            if getattr(self, name):
                raise ForetailError(f"network.{name} is for evaluate: leave it out")

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
