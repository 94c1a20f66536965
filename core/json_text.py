"""JSON: one way to read it from outside that no text can bring down, and nested mappings as dotted names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

LARGEST_BYTES = 1 << 30
"""Largest size of a text; what is read takes several times its memory."""

MOST_LEVELS = 100
"""Most levels of lists and objects inside each other: whatever walks through a document has room for so many calls."""


def _finite(text: str) -> float:
    raise ValueError(f"the number {text} is not finite")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise ValueError(f"it has {ascii(key)[:100]} twice in one object")
        made[key] = value
    return made


def parse_json(text: str | bytes, parse_float: Callable[[str], Any] = float, *, distinct_keys: bool = False) -> Any:
    """Return the document of a JSON text; raise ValueError, a few words on one line, for any text that has none.

    Bytes are UTF-8, UTF-16 or UTF-32. `parse_float` makes the value of a number that is not an integer; it may raise
    ValueError. With `distinct_keys` a key that an object has twice is refused, else the last one counts.
    """
    if len(text) > LARGEST_BYTES:
        raise ValueError(f"it is larger than {LARGEST_BYTES:,} bytes")
    hook = _distinct if distinct_keys else None
    try:
        document = json.loads(text, parse_float=parse_float, parse_constant=_finite, object_pairs_hook=hook)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    containers = [document] if isinstance(document, (dict, list)) else []
    for _ in range(MOST_LEVELS):
        containers = [
            inner
            for outer in containers
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not containers:
            return document
    raise ValueError("it is nested too deeply")


def flat(settings: Mapping[str, Any], prefix: str = "", between: str = ".") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings by dotted name, or with another sign between; an empty mapping is a value."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}{between}", between)
        else:
            yield f"{prefix}{key}", value
