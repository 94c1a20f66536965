"""Architectures that the P4 text is written for: what their pipelines can match, add and compare.

The software switch BMv2 runs ``v1model``; Tofino's chips run ``tna``, the Tofino Native Architecture (p4lang/p4c,
``backends/tofino``). A profile names its architecture; see :mod:`foretail.export.p4.planning.profile`.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretail.core.errors import ForetailError
from foretail.export.p4.planning.prefixes import KINDS, Kind
from foretail.features.feature import VALUE_BITS

INPUT_BITS = VALUE_BITS
"""Of a feature as the control takes it."""


@dataclass(frozen=True)
class Architecture:
    """The forms that a text may use."""

    name: str  #: of a file of P4's core library, without ``.p4``
    kinds: tuple[Kind, ...]  #: of the keys of feature tables
    #: whether inputs are cut off above the largest cut before they are matched; else tables match all 24 bits
    saturates: bool
    #: whether one assignment may hold several operations, assignments may follow each other, a key may be a
    #: concatenation, integers are compared, and words of any width are set in one step. Else every operation is the
    #: action of a table, because a compiler puts what follows each other into one step; and a word fills a container,
    #: because two tables of one stage cannot set parts of one.
    expressions: bool
    integer_bits: tuple[int, ...]  #: widths that can be added, increasing
    #: how many votes are variables of their own; the tables of further ones add to these, one stage after the other
    accumulators: int | None

    def width(self, bits: int) -> int:
        """Return the narrowest integer of at least `bits` bits, or where there is none the next multiple of 8."""
        return next((width for width in self.integer_bits if width >= bits), -(-bits // 8) * 8)

    def word_width(self, bits: int) -> int:
        """Return the width of a code word of `bits` bits."""
        return bits if self.expressions else self.width(bits)


V1MODEL = Architecture("v1model", KINDS, True, True, tuple(range(8, 65, 8)), None)

TNA = Architecture(
    "tna",
    # A stage compares at most 20 bits with a range, and an lpm table is a ternary one whose order is known.
    ("ternary", "exact"),
    False,  # a comparison of 24 bits takes a stage, the 24 bits of a key none: a row of TCAM has 44
    False,
    (8, 16, 32),  # of a container of the packet header vector
    8,  # of 16 containers that one adder reaches, also those of their sums
)

ARCHITECTURES = {architecture.name: architecture for architecture in (V1MODEL, TNA)}


def architecture(name: str) -> Architecture:
    """Return an architecture by its name; ForetailError when there is none."""
    if name not in ARCHITECTURES:
        raise ForetailError(f"there is no P4 architecture {name!r}: choose {' or '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name]
