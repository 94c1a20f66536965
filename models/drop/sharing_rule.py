"""A sharing rule of four numbers as one decision tree, so that a switch holds it as any other predictor.

The policy ``learned`` asks it about every data packet. It keeps the last packets of every message, whose loss costs a
timeout; the others leave a part of the buffer free, and their queue stays below a multiple of the free buffer, as under
Dynamic Thresholds (Choudhury and Hahne, 1998), which is another for packets of a first round trip (ABM, SIGCOMM'22).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from foretail.features.catalog import feature
from foretail.features.errors import ForetailError
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.nested import Node, nested_tree

FEATURES = ("message_left", "fill", "first_rtt", "pressure")
TRACKED = ("message_left", "first_rtt", "pressure_tracked")
HIGHEST = 255
"""A limit that no value of 8 bits is above."""


@dataclass(frozen=True)
class SharingRule:
    """Drop unless ``message_left`` is within its limit, and if ``fill`` or ``pressure`` is above theirs."""

    message_left: int  #: packets with at most so many cells of their message after them are kept; -1: none is
    fill: int  #: others are dropped above this occupancy in 255ths of the buffer; 255: never for that
    pressure: int  #: and above this length of their queue over the free buffer; 128: alpha 1, 8 more for each double
    first_rtt_pressure: int  #: the same for packets of a first round trip

    def drops(self, message_left: int, fill: int, first_rtt: int, pressure: int) -> bool:
        """Whether a packet with these features is dropped, each in its range of the catalog."""
        limit = self.first_rtt_pressure if first_rtt else self.pressure
        return message_left > self.message_left and (fill > self.fill or pressure > limit)

    def ensemble(self, cell_bytes: int) -> Ensemble:
        """The rule as a tree of depth 4 or less; `cell_bytes` is the unit of ``message_left``."""
        return _ensemble(self._tests(), FEATURES, cell_bytes)

    def tracked(self, cell_bytes: int) -> Ensemble:
        """The same on what Tofino's ingress knows; ForetailError with a limit of ``fill``, which it does not know."""
        if self.fill < HIGHEST:
            raise ForetailError(f"no ingress of Tofino knows the fill of the buffer: set fill to {HIGHEST}")
        return _ensemble(self._tests(TRACKED[-1]), TRACKED, cell_bytes)

    def _tests(self, pressure: str = FEATURES[-1]) -> Node:
        def limit(highest: int) -> Node:
            return (pressure, highest, False, True) if highest < HIGHEST else False

        tests = limit(self.pressure)
        if self.first_rtt_pressure != self.pressure:
            tests = ("first_rtt", 0, tests, limit(self.first_rtt_pressure))
        if self.fill < HIGHEST:
            tests = ("fill", self.fill, tests, True)
        return ("message_left", self.message_left, False, tests) if self.message_left >= 0 else tests


def _ensemble(tests: Node, names: tuple[str, ...], cell_bytes: int) -> Ensemble:
    inputs = (FeatureInput(item.name, item.params(cell_bytes, 0), item.bits) for item in map(feature, names))
    return Ensemble(tuple(inputs), (nested_tree(tests, names),), Fraction(1, 2), origin={"kind": "sharing_rule"})
