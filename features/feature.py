"""One feature of an arrival: what is known of it, and the units and widths that all features share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from foretail.core.errors import ForetailError
from foretail.features.costs import FeatureCost, Registers

VALUE_BITS = 24
"""Widest feature: every integer below 2**24 is a float32."""

TICK_NS = 1024
"""Time unit of time-valued features, in ns."""

SLOW_SHIFT = 7
"""Slow rates fade over an interval 2**SLOW_SHIFT times as long as that of the averages."""

REPORTED_EVERY = 8
"""Egress tells ingress of a queue's departures with every packet of this number, for the tracked features."""

FLOW_ENTRY_BITS = 32
"""Bits of an entry of the table in which a switch counts flows: 24 of bytes, 8 of time."""

LARGEST_CELL_BYTES = 1 << 16
"""Largest unit of lengths."""

SHADOW_PREFIX = "shadow_"
"""Columns with this prefix hold a real feature as a shadow Credence, driven by the true labels, would see it."""

State = Literal["real", "virtual", "traffic", "packet"]
Unit = Literal["cells", "queues", "us", "flag", "octaves", "share"]


@dataclass(frozen=True)
class Feature:
    """One feature of an arrival."""

    name: str  #: column name in datasets, models and the predictor ABI
    #: ``real``: read from the policy's own queues. ``virtual``: read from the virtual LQD, hence the same under every
    #: policy on one arrival sequence. ``traffic``: what arrives, whatever the policy does with it, so the same under
    #: every policy too. ``packet``: said by the packet itself, by when and where it comes, or by those of its flow
    #: that came before.
    state: State
    #: ``us`` is a time unit of 1024 ns; a flag is 0 or 1; ``octaves`` are eighths of powers of two, ``share`` 255ths
    unit: Unit
    bits: int  #: values are integers in ``[0, 2**bits)``, ``bits <= 24``
    description: str  #: one sentence; it is in the bytes of every dataset, so another text is another content hash
    averaged: bool = False  #: whether the value comes from shift-weighted averages and so depends on ``average_shift``
    tracked: bool = False  #: whether the value comes from queues as an ingress without queue depths tracks them
    study_only: bool = False  #: no switch can know it: for upper bounds, refused by every export
    registers: tuple[Registers, ...] = ()  #: state that it reads beyond Credence's own
    operations: int = 0  #: per packet to read it
    operations_per_queue: int = 0  #: per packet besides, for each queue of the switch

    @property
    def cost(self) -> FeatureCost:
        """What the feature alone costs; raise :class:`ForetailError` if no switch can know it."""
        if self.study_only:
            raise ForetailError(f"feature {self.name!r} has no cost, no switch can know it: it is for studies only")
        return FeatureCost(
            sum(kept.queue_bits for kept in self.registers),
            sum(kept.switch_bits for kept in self.registers),
            self.operations + sum(kept.operations for kept in self.registers),
            self.operations_per_queue,
        )

    def params(self, cell_bytes: int, average_shift: int) -> str:
        """Return the constants of this feature's arithmetic, as the predictor ABI carries them.

        Cells have a power of two of bytes; averages run over ``2**average_shift`` ns. Returns ``key=value`` pairs
        joined by commas; empty when the feature has no constant.
        """
        if self.unit == "us":
            return f"tick_ns={TICK_NS}"
        constants = {
            f"cell_bytes={cell_bytes}": self.unit == "cells",
            f"average_shift={average_shift}": self.averaged,
            f"reported_every={REPORTED_EVERY}": self.tracked,
        }
        return ",".join(constant for constant, counts in constants.items() if counts)
