"""Arrivals for the slotted simulator, made as they are needed: random, of proofs, of collectives."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import MappingProxyType
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from foretail.features.errors import ForetailError
from foretail.features.plugins import WORKLOAD_GROUP, loaded, offered, package_of
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
    "workload_kind",
    "workload_name",
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


def workload_kind(name: str) -> type[Workload]:
    """Return the class of a name: one of `WORKLOADS`, or what an installed package offers.

    ForetailError when there is none, or it is no workload whose parameters all have defaults.
    """
    if name in WORKLOADS:
        return WORKLOADS[name]
    others = offered(WORKLOAD_GROUP, WORKLOADS)
    if name not in others:
        raise ForetailError(f"workload {name} is unknown: choose from {', '.join((*WORKLOADS, *others))}")
    kind = loaded(others[name])
    if not (isinstance(kind, type) and issubclass(kind, Workload) and is_dataclass(kind)):
        raise ForetailError(
            f"{name} of the package {package_of(others[name])} is no Workload: subclass it, a dataclass"
        )
    bare = [field.name for field in fields(kind) if field.default is MISSING]
    if bare:
        raise ForetailError(f"{name} of the package {package_of(others[name])} has no default for {bare[0]}: give one")
    return kind


def workload_name(workload: Workload) -> str:
    """Return the name under which a workload is known."""
    names = (*WORKLOADS, *offered(WORKLOAD_GROUP, WORKLOADS))
    return next(name for name in names if type(workload) is workload_kind(name))


def workload_of(name: str, parameters: Mapping[str, Any]) -> Workload:
    """Make the workload of a name; parameters that are not given keep their defaults.

    Raises
    ------
    ForetailError
        On an unknown name or parameter, and on a value of another type or out of range.
    """
    kind = workload_kind(name)
    kinds = {field.name: typing.get_type_hints(kind)[field.name] for field in fields(kind)}
    values = {}
    for parameter, value in parameters.items():
        if parameter not in kinds:
            raise ForetailError(f"{name} has no parameter {parameter}: it takes {', '.join(kinds) or 'none'}")
        try:
            values[parameter] = TypeAdapter(kinds[parameter], config=_STRICT).validate_python(value)
        except ValidationError as error:
            said = error.errors(include_url=False)[0]["msg"]
            raise ForetailError(f"{parameter} of {name} must not be {value!r}: {said.lower()}") from None
    return kind(**values)
