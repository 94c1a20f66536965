"""Buffer policies and their parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import MISSING

from foretail.configs.schema.fields import setting
from foretail.features.errors import ForetailError

BUFFER_POLICIES = (
    "cs",
    "cp",
    "dt",
    "harmonic",
    "abm",
    "reverie",
    "lqd",
    "followlqd",
    "credence",
    "credence_artifact",
)


ASKING = ("credence", "credence_artifact")
"""Policies that ask a predictor."""
ONE_QUEUE = ("lqd", "followlqd", *ASKING)
"""Policies that know one queue per port."""


@dataclass
class Policy:
    """One buffer policy with its parameters; parameters of other policies are ignored by it."""

    name: str = setting(MISSING, "the policy", one_of=BUFFER_POLICIES)
    alpha: float = setting(0.5, "DT, ABM and Reverie: threshold = alpha * free buffer", above=0)
    incast_alpha: float | None = setting(
        None,
        "incast packets have a queue of their own at each port, with this alpha; null: one queue per port",
        above=0,
    )
    first_rtt_alpha: float = setting(64.0, "ABM: alpha for packets of a flow's first RTT", above=0)
    low_pass_ns: int = setting(524_288, "Reverie: time constant of the averaged queue lengths", at_least=1)
    virtual_lqd: str = setting(
        "exact", "FollowLQD and Credence: packet-exact thresholds or fluid counters", one_of=("exact", "fluid")
    )
    fluid_slack_bytes: int = setting(0, "fluid counters: a queue may exceed its threshold by this much", at_least=0)
    predictor: str = setting(
        "accept", "Credence: always accept, or ask a compiled predictor", one_of=("accept", "library")
    )
    library: str | None = setting(None, "Credence: path of the compiled predictor; null = the stage's exported model")
    tau: int | None = setting(None, "Credence: drop iff score > tau; null = the predictor's own")
    flip_probability: float = setting(0.0, "Credence: share of predictions that are inverted", at_least=0, at_most=1)

    @property
    def asks_exported_model(self) -> bool:
        """Whether the policy needs the stage's exported model, having no library of its own."""
        return self.name in ASKING and self.predictor == "library" and self.library is None

    def check(self, where: str) -> None:
        """Raise ForetailError on parameters that the policy does not know."""
        asks = self.name in ASKING and self.predictor == "library"
        if not asks and (self.library is not None or self.predictor == "library"):
            raise ForetailError(f"{where} names a predictor, but only credence with predictor=library asks one")
        if self.incast_alpha is not None and self.name in ONE_QUEUE:
            raise ForetailError(
                f"{where}.incast_alpha gives incast a queue of its own, which {self.name} cannot: set it to null"
            )
        if self.library is not None and not Path(self.library).is_file():
            raise ForetailError(f"{where}.library: there is no file {self.library}")


def require_policies(where: str, policies: Mapping[str, Policy]) -> None:
    """Raise ForetailError unless there are policies."""
    if not policies:
        raise ForetailError(f"{where} is empty: choose at least one policy, such as {where}=lqd")


def require_baselines(baselines: Sequence[str], policies: Mapping[str, Policy]) -> None:
    """Raise ForetailError on a baseline that does not run."""
    for name in baselines:
        if name not in policies:
            raise ForetailError(
                f"baselines names {name!r}, which is not among the policies ({', '.join(policies)}): add it to "
                "policy=[...] or take it out of baselines"
            )


def require_one_policy(where: str, policies: Mapping[str, Policy]) -> None:
    """Raise ForetailError unless there is one policy, which moves the packets of a trace."""
    require_policies(where, policies)
    if len(policies) != 1:
        raise ForetailError(f"{where} names {', '.join(policies)}: a trace comes from exactly one policy")
    for name, policy in policies.items():
        if policy.asks_exported_model:
            raise ForetailError(f"{where}.{name} asks a predictor and there is none: give {where}.{name}.library=PATH")


@dataclass
class PolicyParameters:
    """Parameters of the policies where arrivals are known beforehand; every policy takes what it knows."""

    alpha: list[float] = setting([0.5], "DT, ABM and Reverie: share of the free buffer, one per priority", above=0)
    first_rtt_alpha: float = setting(64.0, "ABM: alpha for packets of a flow's first RTT", above=0)
    rtt_slots: int = setting(
        25, "arrivals: ABM and Reverie count congested queues once in so many slots", at_least=1, at_most=2**40
    )
    low_pass_slots: int = setting(
        1024, "arrivals: Reverie's average moves to the queue's length by 1 / this per slot", at_least=1, at_most=2**40
    )
    average_shift: int = setting(
        5, "arrivals: averaged features of the model run over 2^this slots", at_least=0, at_most=24
    )
