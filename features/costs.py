"""What features cost a switch: registers and operations beyond those of Credence.

Costs are of what a switch under Credence must add: the queue lengths and the longest of them, the thresholds T, their
sum and the largest of them are there anyway. Registers are as wide as in a pipeline: averages 24 bits and 8 fractional
ones, times 48 bits. Operations are the additions, subtractions, comparisons and shifts for one packet, its arrival and
departure together; the position of the highest bit counts as one, access to registers as none.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Registers:
    """State that features read; two that read the same object share it."""

    queue_bits: int = 0  #: bits for every queue
    switch_bits: int = 0  #: once for the switch
    operations: int = 0  #: per packet, to keep it up to date


@dataclass(frozen=True)
class FeatureCost:
    """What a feature alone costs beyond Credence; as :class:`Registers`, operations of reading it included."""

    queue_bits: int
    switch_bits: int
    operations: int
    operations_per_queue: int = 0  #: further operations per packet for each queue of the switch


@dataclass(frozen=True)
class SelectionCost:
    """What features together cost on one switch beyond Credence: register bits, and operations per packet."""

    register_bits: int
    operations: int
