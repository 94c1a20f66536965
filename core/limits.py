"""The limits of a setting, and the one check of a value against them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from foretail.core.errors import ForetailError

MOST_PORTS = 32_768
"""Ports of a switch."""


def require_within(where: str, value: Any, limits: Mapping[str, Any]) -> None:
    """Raise ForetailError unless a value is finite and within the limits of a setting.

    Parameters
    ----------
    where : the setting, as it is written on the command line
    value : a number or a name; of anything else only `one_of` is asked
    limits : any of ``at_least``, ``above``, ``at_most`` (numbers), ``one_of`` (names) and ``power_of_two``
    """
    allowed = limits.get("one_of")
    if allowed is not None and value not in allowed:
        raise ForetailError(f"{where} = {value} is unknown: choose from {', '.join(allowed)}")
    if isinstance(value, bool) or not isinstance(value, Real):
        return
    if not isinstance(value, Integral) and not math.isfinite(value):
        raise ForetailError(f"{where} = {value} is not a finite number")
    low, above, high = limits.get("at_least"), limits.get("above"), limits.get("at_most")
    if low is not None and value < low:
        raise ForetailError(f"{where} = {value} is out of range: it must be at least {low}")
    if above is not None and value <= above:
        raise ForetailError(f"{where} = {value} is out of range: it must be above {above}")
    if high is not None and value > high:
        raise ForetailError(f"{where} = {value} is out of range: it must be at most {high}")
    if limits.get("power_of_two") and isinstance(value, Integral) and int(value) & (int(value) - 1):
        raise ForetailError(f"{where} = {value} is not a power of two")
