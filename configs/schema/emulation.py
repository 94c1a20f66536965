"""How this machine's kernel sends the flows of a scenario, in namespaces and in real time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foretail.configs.schema.network.racks import MOST_HOSTS
from foretail.configs.schema.policies import TAKE_RULES, Policy, takes_alpha
from foretail.configs.schema.scenario import Scenario
from foretail.core.errors import ForetailError
from foretail.core.settings import positive_share, setting

IN_NS3 = {"reno": "newreno"}
"""Congestion controls that have another name in ns-3 than in Linux."""
ON_LOSSES = ("cubic", "reno")
"""Congestion controls that ns-3 has too and that need no marks, which racks with circuits do not set."""
LEAST_RTO_NS = 1_000_000
DAY_NS = 86_400 * 10**9


@dataclass
class Emulation:
    """How a network is emulated in real time: by how much slower, and with which TCP."""

    factor: int = setting(
        1000,
        "Nanoseconds of this machine's clock per nanosecond of the network; a larger factor is slower and less late.",
        at_least=1,
        at_most=10**6,
    )
    control: str = setting(
        "cubic",
        "Congestion control, one that this machine's kernel offers, such as cubic or bbr.",
    )
    background_control: str | None = setting(
        None, "Congestion control of background flows; null means the same as control."
    )
    tail_loss_probes: bool = setting(
        True, "Let Linux ask for losses at the end of a flow before a timeout does (RFC 8985), which ns-3 does not."
    )
    lateness_share: float = positive_share(
        0.1, "Largest 99th percentile of lateness, as a share of the base round trip; a run above it is invalid."
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on what is not a congestion control's name."""
        for name, control in self.controls(where).items():
            if not re.fullmatch("[a-z0-9_]{1,15}", control):
                raise ForetailError(
                    f"{name} = {control} is not a name of a congestion control: give one, such as cubic"
                )

    def controls(self, where: str) -> dict[str, str]:
        """The congestion controls by the settings that name them."""
        settings = self.settings()
        return {f"{where}.{name}": str(settings[name]) for name in ("control", "background_control")}

    def require_timeout(self, at: str, where: str, min_rto_ns: int) -> None:
        """Raise ForetailError on a retransmission timeout that is too short for Linux."""
        if min_rto_ns * self.factor < LEAST_RTO_NS:
            raise ForetailError(
                f"{where} times {at}.factor is {min_rto_ns * self.factor} ns, and Linux takes no less than 1 ms: raise "
                "one of them"
            )

    def require_within_a_day(self, at: str, where: str, length_ns: int) -> None:
        """Raise ForetailError on a run that takes longer than a day of the clock."""
        if length_ns * self.factor > DAY_NS:
            raise ForetailError(f"{where} = {length_ns} times {at}.factor is more than a day: lower one of them")

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


def require_emulated(scenario: Scenario, emulation: Emulation, at: str) -> None:
    """Raise ForetailError on what only ns-3 has; `at` names the settings of the emulation."""
    where, transport = "scenario", scenario.transport
    if scenario.elephants.flows_per_server > 0 or scenario.collective.kind is not None:
        raise ForetailError(f"{where} has elephants or a collective, which are not emulated: choose another scenario")
    if scenario.incast.connections != "new":
        raise ForetailError(f"{where}.incast.connections = {scenario.incast.connections} is not emulated: choose new")
    servers = scenario.topology.leaves * scenario.topology.servers_per_leaf
    if servers > MOST_HOSTS:
        raise ForetailError(
            f"{where}.topology has {servers} servers, and a process each: lower it to at most {MOST_HOSTS}"
        )
    if transport.background_name is not None:
        raise ForetailError(
            f"{where}.transport.background_name is ns-3's: set it to null, and {at}.background_control instead"
        )
    if transport.delayed_ack_segments > 2:
        raise ForetailError(
            f"{where}.transport.delayed_ack_segments = {transport.delayed_ack_segments} is not what Linux does: set it "
            "to 1 or 2"
        )
    for named, control in emulation.controls(at).items():
        if control == "dctcp" and transport.mark_bytes == 0:
            raise ForetailError(f"{named} is dctcp, which lives on marks: set {where}.transport.mark_bytes above 0")
    emulation.require_timeout(at, f"{where}.transport.min_rto_ns", transport.min_rto_ns)
    for length, length_ns in (
        ("traffic_ns", scenario.traffic_ns),
        ("drain_ns", scenario.drain_ns),
        ("incast.connect_ahead_ns", scenario.incast.connect_ahead_ns),
    ):
        emulation.require_within_a_day(at, f"{where}.{length}", length_ns)


def require_real_time(policies: Mapping[str, Policy]) -> None:
    """Raise ForetailError on policies whose alphas are predicted, or whose rule changes."""
    for name, policy in policies.items():
        if takes_alpha(policy.name) and policy.predictor == "library":
            raise ForetailError(f"policy.{name} predicts alphas, which the emulator does not: set its predictor=accept")
        if policy.name in TAKE_RULES:
            raise ForetailError(
                f"policy.{name} replays windows before the next packet, and packets of the emulator do not wait: use "
                "network=native"
            )
