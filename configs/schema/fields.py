"""Fields of config nodes: documentation, unit in the name, range in the metadata."""

from __future__ import annotations

import dataclasses
from typing import Any


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
    doc : one sentence; the unit is in the field's name
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


SIZES = ("small", "medium", "full")
