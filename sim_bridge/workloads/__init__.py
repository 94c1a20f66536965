"""Arrivals for the slotted simulator, made as they are needed: random, of proofs, of collectives."""

from __future__ import annotations

from types import MappingProxyType

from foretail.sim_bridge.workloads.collectives import AllToAll, Ring
from foretail.sim_bridge.workloads.lower_bounds import (
    CompleteSharingLowerBound,
    DtLowerBound,
    FalseNegative,
    FollowLqdLowerBound,
    LqdLowerBound,
)
from foretail.sim_bridge.workloads.random_traffic import Incast, OnOff, Permutation, PoissonBursts, Uniform
from foretail.sim_bridge.workloads.workload import Workload

__all__ = [
    "WORKLOADS",
    "AllToAll",
    "CompleteSharingLowerBound",
    "DtLowerBound",
    "FalseNegative",
    "FollowLqdLowerBound",
    "Incast",
    "LqdLowerBound",
    "OnOff",
    "Permutation",
    "PoissonBursts",
    "Ring",
    "Uniform",
    "Workload",
]

WORKLOADS: MappingProxyType[str, type[Workload]] = MappingProxyType(
    {
        "poisson_bursts": PoissonBursts,
        "on_off": OnOff,
        "incast": Incast,
        "permutation": Permutation,
        "uniform": Uniform,
        "lqd_lower_bound": LqdLowerBound,
        "dt_lower_bound": DtLowerBound,
        "followlqd_lower_bound": FollowLqdLowerBound,
        "complete_sharing_lower_bound": CompleteSharingLowerBound,
        "false_negative": FalseNegative,
        "all_to_all": AllToAll,
        "ring": Ring,
    }
)
"""The workloads by name; the parameters of each are the fields of its class."""
