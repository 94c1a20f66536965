"""Settings: dataclass fields that are declared with a meaning and a range, and the one check of a value."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from foretail.core.errors import ForetailError

MOST_PORTS = 32_768
"""Ports of a switch."""

LONGEST_NS = 2**60
"""36 years: a few such times add up to what 64 bits hold."""

LARGEST_BUFFER_BYTES = 2**30
"""Largest buffer of one switch; a replay takes no larger one."""

FASTEST_BPS = 10**15
LARGEST_FLOW_BYTES = 2**40
LARGEST_TRUST = LARGEST_DEGREE = 2**16

_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", Any: "any value"}
_BOUNDS = {"at_least": "at least", "above": "above", "at_most": "at most"}


def setting(
    default: Any,
    doc: str = "",
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    one_of: tuple[str, ...] | None = None,
    power_of_two: bool = False,
    **more: Any,
) -> Any:
    """A dataclass field with its documentation and its range in the metadata.

    Parameters
    ----------
    default : value, list or dict, or ``MISSING`` for a mandatory field
    doc : a sentence that begins with a capital letter and ends with a full stop; the unit is in the field's name
    at_least, above, at_most : bounds of a number (of every number, when the field is a list)
    one_of : the allowed names of a string (of every string, when the field is a list)
    power_of_two : the integer must be a power of two
    **more : metadata that other code reads
    """
    metadata = {
        "doc": doc,
        "at_least": at_least,
        "above": above,
        "at_most": at_most,
        "one_of": one_of,
        "power_of_two": power_of_two,
        **more,
    }
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


time_setting = partial(setting, at_least=0, at_most=LONGEST_NS)
rate_setting = partial(setting, at_least=1, at_most=FASTEST_BPS)
seed_setting = partial(setting, at_least=1, at_most=2**31 - 1)
share_setting = partial(setting, at_least=0, at_most=1)
positive_share = partial(setting, above=0, at_most=1)
"""Settings of kinds that recur, with their ranges; another bound takes the place of that one."""


def part(kind: type[Any], doc: str) -> Any:
    """A dataclass field that holds another config node."""
    return dataclasses.field(default_factory=kind, metadata={"doc": doc})


def limits_of(kind: type[Any]) -> dict[str, Mapping[str, Any]]:
    """The limits of the settings of a dataclass, which are the fields to construct it, with the type of each."""
    declared = {field.name: field.metadata for field in dataclasses.fields(kind) if field.init}
    types: dict[str, Any] = {}
    for base in reversed(kind.__mro__):  # other annotations may name what only a type checker imports
        own = {name: one for name, one in vars(base).get("__annotations__", {}).items() if name in declared}
        types |= get_type_hints(type("Own", (), {"__annotations__": own, "__module__": base.__module__}))
    return {name: {**metadata, "kind": types[name]} for name, metadata in declared.items()}


def require_settings(node: Any, prefix: str = "") -> None:
    """Raise ForetailError on a setting of a dataclass that is out of its range."""
    for name, limits in limits_of(type(node)).items():
        require_within(prefix + name, getattr(node, name), limits)


def require_given(given: Mapping[str, Any], limits: Mapping[str, Mapping[str, Any]], whose: str, prefix: str) -> None:
    """Raise ForetailError on a value that is out of its range, or of no setting; `whose` settings they are."""
    for name, value in given.items():
        if name not in limits:
            raise ForetailError(f"{prefix}{name} is unknown: {whose} takes {', '.join(limits) or 'nothing'}")
        require_within(prefix + name, value, limits[name])


def require_within(where: str, value: Any, limits: Mapping[str, Any]) -> None:
    """Raise ForetailError unless a value, or every item of a list, is of the type of a setting and within its limits.

    Parameters
    ----------
    where : the setting, as it is written on the command line
    value : of what is neither a number nor a list only `one_of` and `kind` are asked
    limits : any of ``at_least``, ``above``, ``at_most`` (numbers), ``one_of`` (names), ``power_of_two`` and ``kind``
    """
    allowed, typed = limits.get("one_of"), _is_of(value, limits.get("kind", Any))
    for item in value if typed and isinstance(value, list) else [value]:
        if allowed is not None and item is not None and item not in allowed:
            raise ForetailError(f"{where} = {item} is unknown: choose from {', '.join(allowed)}")
        number = type(item) in (int, float) or (isinstance(item, Real) and not isinstance(item, bool))
        if number and type(item) is not int and not math.isfinite(item):
            raise ForetailError(f"{where} = {item} is not a finite number")
        if not typed or (number and not _is_within(item, limits)):
            raise ForetailError(f"{where} = {item} is out of range: it must be {range_in_words(limits)}")


def range_in_words(limits: Mapping[str, Any]) -> str:
    """The values that limits allow, such as ``a whole number, at least 1, at most 8, or null``."""
    kind = limits.get("kind")
    words = [_kind_in_words(one) for one in _options(kind) if one is not NoneType] if kind else []
    words = [" or ".join(words)] if words else []
    words += [f"{word} {limits[key]:,}" for key, word in _BOUNDS.items() if limits.get(key) is not None]
    words += ["a power of two"] if limits.get("power_of_two") else []
    words += ["one of " + ", ".join(limits["one_of"])] if limits.get("one_of") else []
    return ", ".join(words + ["or null"] * (NoneType in _options(kind)))


def _options(kind: Any) -> tuple[Any, ...]:
    """The types of a union; of any other, itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _kind_in_words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    return _KINDS.get(kind) or (str(kind) if get_origin(kind) else f"a {kind.__name__}")


def _is_of(value: Any, kind: Any) -> bool:
    if type(value) is kind:  # the usual case, without the classes of numbers
        return True
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_is_of(value, one) for one in args)
    if origin is Literal:
        return value in args
    if origin in (list, tuple):
        return isinstance(value, (list, tuple)) and all(_is_of(item, args[0]) for item in value)
    if kind is Any or isinstance(value, bool):
        return kind in (Any, bool)
    return isinstance(value, {int: Integral, float: Real}.get(kind, origin or kind))


def _is_within(number: Any, limits: Mapping[str, Any]) -> bool:
    low, above, high = (limits.get(key) for key in _BOUNDS)
    return (
        (low is None or number >= low)
        and (above is None or number > above)
        and (high is None or number <= high)
        and not (limits.get("power_of_two") and isinstance(number, Integral) and int(number) & (int(number) - 1))
    )


def require_distinct(where: str, values: Sequence[Any], why: str) -> None:
    """Raise ForetailError on a value that is there twice; `why` says what values are for."""
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ForetailError(f"{where} {'names' if isinstance(value, str) else 'holds'} {value} twice: {why}")


def require_seeds(where: str, seeds: Sequence[int]) -> None:
    """Raise ForetailError unless there are seeds, none of them twice."""
    if not seeds:
        raise ForetailError(f"{where} is empty: give at least one seed, such as {where}=[1]")
    require_distinct(where, seeds, "every seed is a run of its own")
