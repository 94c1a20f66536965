"""The stage that lets this machine's kernel send the flows of a scenario."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from foretail.configs.schema.fields import SIZES, experiment_of_size, part, require_seeds, setting
from foretail.configs.schema.policies import Policy, require_known, require_policies
from foretail.configs.schema.racks import VoqExperiment
from foretail.configs.schema.scenario import Scenario
from foretail.configs.schema.stage import Stage
from foretail.configs.schema.tracking import Tracking
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
            if self.against_ns3 and self.emulation.control not in ON_LOSSES:
                raise ForetailError(
                    f"against_ns3 compares Linux's {self.emulation.control} with ns-3's, which has none for racks: set "
                    f"emulation.control to {' or '.join(ON_LOSSES)}"
                )
            return
        require_policies("policy", self.policy)
        require_known("policy", self.policy, self.scenario)
        require_seeds("seeds", self.seeds)
        require_emulated("scenario", self.scenario)
        if self.against_ns3 and self.emulation.in_ns3 != self.scenario.transport.name:
            raise ForetailError(
                f"against_ns3 compares Linux's {self.emulation.control} with ns-3's {self.scenario.transport.name}: "
                f"set scenario.transport.name={self.emulation.in_ns3}, or another emulation.control"
            )
        if self.command and self.against_ns3:
            raise ForetailError("against_ns3 compares flows of the plan, and command sends its own: leave one out")
        if self.command and shutil.which(self.command[0]) is None:
            raise ForetailError(f"command = {self.command[0]} is no program on PATH: name one that this machine has")

    def _check_predictor(self) -> None:
        for name in self.asking:
            if self.model is None and not self.train:
                other = "the policy credence_accept" if self.voqs else f"policy.{name}.library=PATH"
                raise ForetailError(
                    f"policy {name} asks a predictor and there is none: give model=FILE, train=[...] or {other}"
                )
        if self.model is not None and self.train and (self.asking or not self.voqs):
            raise ForetailError("model and train are both given: leave one of the two out")
