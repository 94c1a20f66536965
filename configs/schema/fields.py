"""Fields of config nodes: documentation, unit in the name, range in the metadata."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from foretail.core.errors import ForetailError

LONGEST_NS = 2**60
"""36 years: a few such times add up to what 64 bits hold."""

LARGEST_BUFFER_BYTES = 2**30
"""Largest buffer of one switch; a replay takes no larger one."""

FASTEST_BPS = 10**15
LARGEST_FLOW_BYTES = 2**40
STYLES = ("screen", "paper", "slides")
"""Styles of figures."""
PEERS = ("next_leaf", "other_leaves", "other_servers")
"""Places of the other end of a flow."""

LARGEST_TRUST = LARGEST_DEGREE = 2**16


def setting(
    default: Any,
    doc: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    one_of: tuple[str, ...] | None = None,
    power_of_two: bool = False,
) -> Any:
    """A dataclass field with its documentation and its range in the metadata.

    Parameters
    ----------
    default : value, list or dict, or ``MISSING`` for a mandatory field
    doc : a sentence that begins with a capital letter and ends with a full stop; the unit is in the field's name
    at_least, above, at_most : bounds of a number (of every number, when the field is a list)
    one_of : the allowed names of a string (of every string, when the field is a list)
    power_of_two : the integer must be a power of two
    """
    metadata = {
        "doc": doc,
        "at_least": at_least,
        "above": above,
        "at_most": at_most,
        "one_of": one_of,
        "power_of_two": power_of_two,
    }
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def part(kind: type[Any], doc: str) -> Any:
    """A dataclass field that holds another config node."""
    return dataclasses.field(default_factory=kind, metadata={"doc": doc})


Chosen = TypeVar("Chosen")

SIZES = ("small", "medium", "full")


def experiment_of_size(where: str, experiments: Mapping[str, Chosen], size: str) -> Chosen:
    """The experiment of a size; raises ForetailError when there is none."""
    if size not in experiments:
        raise ForetailError(f"{where} has no size {size}: choose from {', '.join(experiments)}, or give {where}.{size}")
    return experiments[size]


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
