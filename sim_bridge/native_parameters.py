"""The parameters of policies as native runs take them, which call `native_parameters` with what they are given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal

from foretail.core.errors import ForetailError
from foretail.core.limits import require_within
from foretail.sim_bridge.policies import SEE_INGRESS
from foretail.sim_bridge.policy_settings import (
    IN_INTERVALS,
    NetworkParameters,
    SlotParameters,
    heeded_settings,
    parameter,
)


@dataclass
class _InBytes(NetworkParameters):
    """What a native run in bytes takes; in ns-3 the round trip is that of the network."""

    rtt_ns: int = parameter(IN_INTERVALS, 2**15, "as rtt_slots, in nanoseconds", at_least=1, at_most=2**40)
    artifact_cut_bytes: int = parameter(
        ("credence_artifact",), 1500, "what the largest threshold loses at a time", at_least=1, at_most=2**40
    )


@dataclass
class _InSlots(SlotParameters):
    """What a native run in slots takes."""

    artifact_cut_packets: int = parameter(
        ("credence_artifact",), 1, "what the largest threshold loses at a time", at_least=1, at_most=2**40
    )


Units = Literal["bytes", "slots"]
NATIVE: dict[Units, dict[str, Field[Any]]] = {
    "bytes": {one.name: one for one in fields(_InBytes)},
    "slots": {one.name: one for one in fields(_InSlots) if "heeding" in one.metadata},
}
"""The parameters that a native run takes, by name."""

_MOST_NATIVE_QUEUES = 64  # of a port, in slots and in replays
_UNIT = re.compile(r"_(ns|slots|bytes|packets)$")


def without_unit(name: str) -> str:
    """The name of a parameter in C++, where times and sizes have no unit."""
    return _UNIT.sub("", name)


def _default(parameter: Field[Any]) -> Any:
    default = parameter.default if parameter.default_factory is MISSING else parameter.default_factory()
    return [default] if parameter.name == "alpha" and not isinstance(default, list) else default


_DEFAULTS = {
    units: {without_unit(name): _default(parameter) for name, parameter in table.items()}
    for units, table in NATIVE.items()
}


def native_parameters(units: Units, given: Mapping[str, Any]) -> dict[str, list[float] | float]:
    """The parameters of all policies as a native run takes them: those given, and the defaults of the others.

    ForetailError naming one that is unknown, no number, or out of its bounds.
    """
    table, values = NATIVE[units], dict(_DEFAULTS[units])
    for name, value in given.items():
        if name not in table:
            raise ForetailError(f"a run in {units} has no setting {name}: choose from {', '.join(table)}")
        numbers = list(value) if isinstance(value, (list, tuple)) and name == "alpha" else [value]
        if not 1 <= len(numbers) <= _MOST_NATIVE_QUEUES:
            raise ForetailError(f"alpha must hold one number per queue of a port, 1 to {_MOST_NATIVE_QUEUES}")
        for one in numbers:
            if not isinstance(one, Integral if table[name].type == "int" else Real):
                raise ForetailError(
                    f"{name} = {one!r} is not a {'whole ' * (table[name].type == 'int')}number: give one"
                )
            require_within(name, one, table[name].metadata)
        values[without_unit(name)] = numbers if name == "alpha" else value
    return values


def native_names(policy: str) -> list[str]:
    """The names that the parameters of a policy have in C++."""
    names = {
        without_unit(name)
        for table in NATIVE.values()
        for name, one in table.items()
        if policy in one.metadata["heeding"]
    }
    if policy in SEE_INGRESS:  # which only networks run, where incast_alpha is one of the alphas
        names |= {without_unit(name) for name in heeded_settings(policy) if name != "incast_alpha"}
    return sorted(names)
