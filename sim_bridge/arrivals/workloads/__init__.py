"""Arrivals for the slotted simulator, made as they are needed: random, of proofs, of collectives."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from foretail.core.plugins import WORKLOAD_GROUP, Kinds
from foretail.sim_bridge.arrivals.workloads.collectives import AllToAll, Ring
from foretail.sim_bridge.arrivals.workloads.lower_bounds import (
    CompleteSharingLowerBound,
    DtLowerBound,
    FalseNegative,
    FollowLqdLowerBound,
    LqdLowerBound,
)
from foretail.sim_bridge.arrivals.workloads.random_traffic import (
    Incast,
    OnOff,
    Permutation,
    PoissonBursts,
    Uniform,
    ZipfBursts,
    ZipfOnOff,
)
from foretail.sim_bridge.arrivals.workloads.workload import Workload

__all__ = [
    "WORKLOADS",
    "WORKLOAD_KINDS",
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
    "ZipfBursts",
    "ZipfOnOff",
    "workload_of",
]

WORKLOADS: MappingProxyType[str, type[Workload]] = MappingProxyType(
    {
        "poisson_bursts": PoissonBursts,
        "on_off": OnOff,
        "incast": Incast,
        "permutation": Permutation,
        "uniform": Uniform,
        "zipf_bursts": ZipfBursts,
        "zipf_on_off": ZipfOnOff,
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

WORKLOAD_KINDS = Kinds(WORKLOAD_GROUP, Workload, "workload", WORKLOADS)  # type: ignore[type-abstract] # a base, not made
"""Those, and what installed packages offer."""


def workload_of(name: str, parameters: Mapping[str, Any] | None) -> Workload:
    """Make the workload of a name; parameters that are not given keep their defaults.

    ForetailError on an unknown name or parameter, and on a value of another type or out of range.
    """
    return WORKLOAD_KINDS.make(name, parameters)
