"""How this machine's kernel sends the flows of a scenario, in namespaces and in real time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foretail.configs.schema.fields import setting
from foretail.configs.schema.scenario import Scenario
from foretail.core.errors import ForetailError

IN_NS3 = {"reno": "newreno"}
"""Congestion controls that have another name in ns-3 than in Linux."""
ON_LOSSES = ("cubic", "reno")
"""Those that ns-3 has too and that need no marks, which racks with circuits do not set."""


@dataclass
class Emulation:
    """How a network is emulated in real time: by how much slower, and with which TCP."""

    factor: int = setting(
        1000,
        "ns of this machine's clock per ns of the network: more is slower and less late",
        at_least=1,
        at_most=10**6,
    )
    control: str = setting(
        "cubic", "congestion control: one of this machine's kernel, such as cubic or bbr, or our own dctcp or retcp"
    )
    background_control: str | None = setting(None, "the same of background flows; null: as control")
    tail_loss_probes: bool = setting(
        True, "Linux asks for what was lost at the end of a flow before a timeout does (RFC 8985), which ns-3 does not"
    )
    lateness_share: float = setting(
        0.1,
        "of the base round trip: a run whose 99th percentile of lateness is above it is invalid",
        above=0,
        at_most=1,
    )

    @property
    def in_ns3(self) -> str:
        """The name that ns-3 has for the congestion control, if it has it."""
        return IN_NS3.get(self.control, self.control)

    def settings(self) -> dict[str, Any]:
        """The group ``emulation`` of the emulator's document."""
        return {
            "factor": self.factor,
            "control": self.control,
            "background_control": self.control if self.background_control is None else self.background_control,
            "tail_loss_probes": self.tail_loss_probes,
            "lateness_share": self.lateness_share,
        }


def require_emulated(where: str, scenario: Scenario) -> None:
    """Raise ForetailError on traffic that the emulator does not send."""
    if scenario.elephants.flows_per_server > 0 or scenario.collective.kind is not None:
        raise ForetailError(f"{where} has elephants or a collective, which are not emulated: choose another scenario")
    if scenario.incast.connections != "new":
        raise ForetailError(f"{where}.incast.connections = {scenario.incast.connections} is not emulated: choose new")
