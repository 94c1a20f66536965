"""Buffer policies and their parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from foretail.configs.schema.fields import setting
from foretail.sim_bridge import policies

BUFFER_POLICIES = tuple(policies.POLICIES)


def _heeded(parameter: policies.Parameter, *, listed: bool = False) -> Any:
    """A parameter of policies, whose titles begin its documentation; `listed`: one number per priority."""
    heeding = ", ".join(policy.title for policy in policies.POLICIES.values() if parameter in policy.parameters)
    doc = f"{heeding}: {parameter.meaning}" if heeding else parameter.meaning
    if listed:
        return setting([parameter.default], f"{doc}, one per priority", **parameter.bounds)
    return setting(parameter.default, doc, **parameter.bounds)


@dataclass
class Policy:
    """One buffer policy with its parameters; parameters of other policies are ignored by it."""

    name: str = setting(MISSING, "the policy", one_of=BUFFER_POLICIES)
    alpha: float = _heeded(policies.ALPHA)
    incast_alpha: float | None = _heeded(policies.INCAST_ALPHA)
    first_rtt_alpha: float = _heeded(policies.FIRST_RTT_ALPHA)
    low_pass_ns: int = _heeded(policies.LOW_PASS_NS)
    virtual_lqd: str = _heeded(policies.VIRTUAL_LQD)
    fluid_slack_bytes: int = _heeded(policies.FLUID_SLACK_BYTES)
    predictor: str = _heeded(policies.PREDICTOR)
    library: str | None = _heeded(policies.LIBRARY)
    tau: int | None = _heeded(policies.TAU)
    flip_probability: float = _heeded(policies.FLIP_PROBABILITY)


@dataclass
class PolicyParameters:
    """Parameters of the policies where arrivals are known beforehand; every policy takes what it knows."""

    alpha: list[float] = _heeded(policies.ALPHA, listed=True)
    first_rtt_alpha: float = _heeded(policies.FIRST_RTT_ALPHA)
    rtt_slots: int = _heeded(policies.RTT_SLOTS)
    low_pass_slots: int = _heeded(policies.LOW_PASS_SLOTS)
    average_shift: int = setting(
        5, "arrivals: averaged features of the model run over 2^this slots", at_least=0, at_most=24
    )
