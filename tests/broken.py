"""Classes that break a rule of a contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def broken(base: type, **methods: Callable[..., Any]) -> Any:
    """`base` with other methods, each given its usual self before what it is asked."""

    def method(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, *asked, **named: change(getattr(super(made, self), name), *asked, **named)

    made = type("Broken", (base,), {"__module__": __name__} | {name: method(name, methods[name]) for name in methods})
    return made
