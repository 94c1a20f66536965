"""The stage that lets this machine's kernel send the flows of a scenario."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from foretail.configs.schema.fields import SIZES, experiment_of_size, part, require_seeds, setting
from foretail.configs.schema.policies import Policy, require_known, require_policies, takes_alpha
from foretail.configs.schema.racks import MOST_HOSTS, VoqExperiment
from foretail.configs.schema.scenario import Scenario
from foretail.configs.schema.stage import Stage
from foretail.configs.schema.tracking import Tracking
from foretail.core.errors import ForetailError

IN_NS3 = {"reno": "newreno"}
"""Congestion controls that have another name in ns-3 than in Linux."""
ON_LOSSES = ("cubic", "reno")
"""Those that ns-3 has too and that need no marks, which racks with circuits do not set."""
LEAST_RTO_NS = 1_000_000
DAY_NS = 86_400 * 10**9


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

    def check(self, where: str) -> None:
        """Raise ForetailError on what is no congestion control's name."""
        for name, control in self.controls(where).items():
            if not re.fullmatch("[a-z0-9_]{1,15}", control):
                raise ForetailError(f"{name} = {control} is no name of a congestion control: give one, such as cubic")

    def controls(self, where: str) -> dict[str, str]:
        """The congestion controls by the settings that name them."""
        settings = self.settings()
        return {f"{where}.{name}": str(settings[name]) for name in ("control", "background_control")}

    def require_real_time(self, where: str, min_rto_ns: int, longest_ns: int) -> None:
        """Raise ForetailError on a timeout that is too short for Linux, or a run that is longer than a day."""
        if min_rto_ns * self.factor < LEAST_RTO_NS:
            raise ForetailError(
                f"{where}.min_rto_ns times emulation.factor is {min_rto_ns * self.factor} ns, and Linux takes no less "
                "than 1 ms: raise one of them"
            )
        if longest_ns * self.factor > DAY_NS:
            raise ForetailError(
                f"{where} takes {longest_ns} ns, which times emulation.factor is more than a day: lower one of them"
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


def require_emulated(scenario: Scenario, policies: Mapping[str, Policy], emulation: Emulation) -> None:
    """Raise ForetailError on what only ns-3 has."""
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
            f"{where}.transport.background_name is ns-3's: set it to null, and emulation.background_control instead"
        )
    if transport.delayed_ack_segments > 2:
        raise ForetailError(
            f"{where}.transport.delayed_ack_segments = {transport.delayed_ack_segments} is not what Linux does: set it "
            "to 1 or 2"
        )
    for named, control in emulation.controls("emulation").items():
        if control == "dctcp" and transport.mark_bytes == 0:
            raise ForetailError(f"{named} is dctcp, which lives on marks: set {where}.transport.mark_bytes above 0")
        if control == "retcp":
            raise ForetailError(f"{named} is retcp, which lives on circuits: give voqs=..., or choose another")
    for name, policy in policies.items():
        if takes_alpha(policy.name) and policy.predictor == "library":
            raise ForetailError(f"policy.{name} predicts alphas, which the emulator does not: set its predictor=accept")
    longest_ns = max(scenario.traffic_ns, scenario.drain_ns, scenario.incast.connect_ahead_ns)
    emulation.require_real_time(f"{where}.transport", transport.min_rto_ns, 0)
    emulation.require_real_time(where, LEAST_RTO_NS, longest_ns)


@dataclass
class EmulateConfig(Stage):
    """``foretail emulate``: policies on the flows that ns-3 would send, sent by this machine's TCP in namespaces.

    With ``voqs``, racks around a circuit switch instead; settings that mean nothing there are refused: see ``unused``.
    """

    scenario: Scenario = part(Scenario, "what is emulated; its transport is ns-3's, all but sizes, timeout and marks")
    policy: dict[str, Policy] = setting(MISSING, "policies to compare, by the name they have in the table")
    seeds: list[int] = setting([101], "traffic seeds; each runs under every policy", at_least=1, at_most=2**31 - 1)
    emulation: Emulation = part(Emulation, "the emulator")
    model: str | None = setting(None, "as in export; for policies that ask and have no library of their own")
    train: list[str] = setting(
        [], "overrides of foretail train, which trains in ns-3 what policies ask; for model=null"
    )
    command: list[str] = setting(
        [], "program and arguments that every host runs, instead of the scenario's flows; on the command line behind --"
    )
    command_seconds: int = setting(
        600, "of this machine's clock, within which the command ends on host 0", at_least=1, at_most=86_400
    )
    against_ns3: bool = setting(
        False, "simulate the same in ns-3, and compare flow by flow; of an experiment, use and latencies"
    )
    tracking: Tracking = part(Tracking, "MLflow, for a training and for registered models")
    voqs: dict[str, VoqExperiment] = setting(
        {}, "experiment on virtual output queues of racks with circuits, by size; empty = none"
    )
    size: str = setting("full", "of the experiment", one_of=SIZES)

    @property
    def asking(self) -> list[str]:
        """The policies that ask the stage's exported model."""
        if not self.voqs:
            return [name for name, policy in self.policy.items() if policy.asks_exported_model]
        return [name for name in experiment_of_size("voqs", self.voqs, self.size).policies if name == "credence"]

    def unused(self) -> Mapping[str, str]:
        """What means nothing to racks with circuits, which have policies of their own and draw no traffic."""
        if not self.voqs:
            return {}
        names = ["scenario", "policy", "flow_sizes", "seeds", "command", "command_seconds"]
        if not self.asking:
            names += ["model", "train", "tracking", "store_dir", *(() if self.against_ns3 else ("ns3_prefix",))]
        return dict.fromkeys(names, "voqs=...")

    def check(self, where: str) -> None:
        """Raise ForetailError on policies that cannot be compared, or that ask what there is not."""
        if self.against_ns3 and self.emulation.background_control not in (None, self.emulation.control):
            raise ForetailError("against_ns3 compares one transport: leave emulation.background_control out")
        self._check_predictor()
        if self.voqs:
            self._check_racks()
            if self.against_ns3 and self.emulation.control not in ON_LOSSES:
                raise ForetailError(
                    f"against_ns3 compares Linux's {self.emulation.control} with ns-3's, which has none for racks: set "
                    f"emulation.control to {' or '.join(ON_LOSSES)}"
                )
            return
        require_policies("policy", self.policy)
        require_known("policy", self.policy, self.scenario)
        require_seeds("seeds", self.seeds)
        require_emulated(self.scenario, self.policy, self.emulation)
        if self.against_ns3 and self.emulation.in_ns3 != self.scenario.transport.name:
            raise ForetailError(
                f"against_ns3 compares Linux's {self.emulation.control} with ns-3's {self.scenario.transport.name}: "
                f"set scenario.transport.name={self.emulation.in_ns3}, or another emulation.control"
            )
        if self.command and self.against_ns3:
            raise ForetailError("against_ns3 compares flows of the plan, and command sends its own: leave one out")
        if self.command and shutil.which(self.command[0]) is None:
            raise ForetailError(f"command = {self.command[0]} is no program on PATH: name one that this machine has")

    def _check_racks(self) -> None:
        for name, control in self.emulation.controls("emulation").items():
            if control == "dctcp":
                raise ForetailError(f"{name} is dctcp, and switches of racks do not mark: choose another")

    def _check_predictor(self) -> None:
        for name in self.asking:
            if self.model is None and not self.train:
                other = "the policy credence_accept" if self.voqs else f"policy.{name}.library=PATH"
                raise ForetailError(
                    f"policy {name} asks a predictor and there is none: give model=FILE, train=[...] or {other}"
                )
        if self.model is not None and self.train and (self.asking or not self.voqs):
            raise ForetailError("model and train are both given: leave one of the two out")
