"""Arrivals for the slotted simulator, made as they are needed: random, of proofs, of collectives."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from foretail.features.errors import ForetailError
from foretail.sim_bridge.arrivals.workloads.collectives import AllToAll, Ring
from foretail.sim_bridge.arrivals.workloads.lower_bounds import (
    CompleteSharingLowerBound,
    DtLowerBound,
    FalseNegative,
    FollowLqdLowerBound,
    LqdLowerBound,
)
from foretail.sim_bridge.arrivals.workloads.random_traffic import Incast, OnOff, Permutation, PoissonBursts, Uniform
from foretail.sim_bridge.arrivals.workloads.workload import Workload

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
    "workload_of",
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


_STRICT = ConfigDict(strict=True)


def workload_of(name: str, parameters: Mapping[str, Any]) -> Workload:
    """Make the workload of a name; parameters that are not given keep their defaults.

    Raises
    ------
    ForetailError
        On an unknown name or parameter, and on a value of another type or out of range.
    """
    if name not in WORKLOADS:
        raise ForetailError(f"workload {name} is unknown: choose from {', '.join(WORKLOADS)}")
    kinds = typing.get_type_hints(WORKLOADS[name])
    values = {}
    for parameter, value in parameters.items():
        if parameter not in kinds:
            raise ForetailError(f"{name} has no parameter {parameter}: it takes {', '.join(kinds) or 'none'}")
        try:
            values[parameter] = TypeAdapter(kinds[parameter], config=_STRICT).validate_python(value)
        except ValidationError as error:
            said = error.errors(include_url=False)[0]["msg"]
            raise ForetailError(f"{parameter} of {name} must not be {value!r}: {said.lower()}") from None
    return WORKLOADS[name](**values)
