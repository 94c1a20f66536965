"""The catalog of features: what a switch can know about an arrival, in integer arithmetic.

Every feature is read after the threshold update and before the decision, the arrival not yet counted in its queue or
in the shared buffer. Values are integers in ``[0, 2**bits)`` with ``bits <= 24``, so float32 trainers see them exactly.
``cells = bytes >> log2(cell_bytes)``; averages run in fixed point with 8 fractional bits over an interval of
``2**average_shift`` ns (design section 4). ``sim_bridge/buffer/features.hpp`` computes them and lists the same names
in the same order.

Source: Credence (NSDI'24) section 5 for the four paper features; the rest come at the price of the virtual LQD
counters that Credence already keeps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from foretail.features.errors import ForetailError

VALUE_BITS = 24
"""Widest feature: every integer below 2**24 is a float32."""

TICK_NS = 1024
"""Time unit of time-valued features, in ns."""

SHADOW_PREFIX = "shadow_"
"""Columns with this prefix hold a real feature as a shadow Credence, driven by the true labels, would see it."""

State = Literal["real", "virtual"]
Unit = Literal["cells", "queues", "us"]


@dataclass(frozen=True)
class Feature:
    """One feature of an arrival.

    Attributes
    ----------
    name : str
        Column name in datasets, models and the predictor ABI.
    state : {'real', 'virtual'}
        ``real``: read from the policy's own queues. ``virtual``: read from the virtual LQD, hence the same under every
        policy on one arrival sequence.
    unit : {'cells', 'queues', 'us'}
        ``us`` is a time unit of 1024 ns.
    bits : int
        Values are integers in ``[0, 2**bits)``, ``bits <= 24``.
    description : str
        One sentence.
    averaged : bool
        Whether the value is a shift-weighted average and so depends on ``average_shift``.
    """

    name: str
    state: State
    unit: Unit
    bits: int
    description: str
    averaged: bool = False

    def params(self, cell_bytes: int, average_shift: int) -> str:
        """Return the constants of this feature's arithmetic, as the predictor ABI carries them.

        Parameters
        ----------
        cell_bytes : int
            Bytes per buffer cell, a power of two.
        average_shift : int
            Averages run over ``2**average_shift`` ns.

        Returns
        -------
        str
            ``key=value`` pairs joined by commas; empty when the feature has no constant.
        """
        if self.unit == "us":
            return f"tick_ns={TICK_NS}"
        if self.unit == "queues":
            return ""
        return f"cell_bytes={cell_bytes}" + (f",average_shift={average_shift}" if self.averaged else "")


def _with_average(name: str, state: State, description: str) -> tuple[Feature, Feature]:
    return (
        Feature(name, state, "cells", VALUE_BITS, f"{description}."),
        Feature(f"{name}_average", state, "cells", VALUE_BITS, f"Shift average of: {description}.", averaged=True),
    )


FEATURES: tuple[Feature, ...] = (
    *_with_average("queue", "real", "Length of the arriving packet's queue before it is added"),
    *_with_average("occupancy", "real", "Occupancy of the shared buffer before the packet is added"),
    *_with_average("threshold", "virtual", "Virtual LQD length of the packet's queue after the threshold update"),
    *_with_average("thresholds_sum", "virtual", "Sum of the virtual LQD lengths of all queues"),
    Feature("threshold_max", "virtual", "cells", VALUE_BITS, "Largest virtual LQD length of any queue."),
    Feature("queues_over_share", "virtual", "queues", 16, "Queues whose virtual LQD length exceeds buffer / ports."),
    Feature(
        "since_push_out",
        "virtual",
        "us",
        VALUE_BITS,
        "Time since the virtual LQD last pushed a packet out of this queue; the largest value also means never.",
    ),
)
"""Every feature, in the order of the ``features`` array of an arrival record."""

PAPER_FEATURES: tuple[str, ...] = tuple(f.name for f in FEATURES if f.state == "real")
"""The four features of the paper."""

VIRTUAL_FEATURES: tuple[str, ...] = tuple(f.name for f in FEATURES if f.state == "virtual")

SHADOW_COLUMNS: tuple[str, ...] = tuple(SHADOW_PREFIX + name for name in PAPER_FEATURES)
"""Dataset columns of the real features seen by the shadow Credence, in catalog order."""

_BY_NAME = {feature.name: feature for feature in FEATURES}


def feature(name: str) -> Feature:
    """Return the feature called `name`; raise :class:`ForetailError` naming it and the known ones otherwise."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise ForetailError(f"unknown feature {name!r}: choose from {', '.join(_BY_NAME)}") from None


def training_columns(names: Iterable[str], own_queues: bool) -> tuple[str, ...]:
    """Map feature names to the dataset columns a model is trained on, in the given order.

    Parameters
    ----------
    names : iterable of str
        Feature names of the catalog, each at most once, at least one.
    own_queues : bool
        True takes real features from the run's own queues (what the paper does: under LQD, q = T and Q = Gamma);
        False takes them from the shadow Credence, which is what a deployed predictor sees.

    Raises
    ------
    ForetailError
        On an unknown or repeated name, or none at all.
    """
    chosen = [feature(name) for name in names]
    if not chosen:
        raise ForetailError(f"no features chosen: choose some of {', '.join(_BY_NAME)}")
    repeated = sorted({f.name for f in chosen if chosen.count(f) > 1})
    if repeated:
        raise ForetailError(f"feature {repeated[0]!r} is chosen more than once: name every feature once")
    return tuple(SHADOW_PREFIX + f.name if f.state == "real" and not own_queues else f.name for f in chosen)
