"""A sharing rule of four numbers as one decision tree, so that a switch holds it as any other predictor.

The policy ``learned`` asks it about every data packet. It keeps the last packets of every message, whose loss costs a
timeout; the others leave a part of the buffer free, and their queue stays below a multiple of the free buffer, as under
Dynamic Thresholds (Choudhury and Hahne, 1998), which is another for packets of a first round trip (ABM, SIGCOMM'22).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from foretail.features.catalog import feature
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.nested import Node, nested_tree

FEATURES = ("message_left", "fill", "first_rtt", "pressure")
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
        inputs = (FeatureInput(item.name, item.params(cell_bytes, 0), item.bits) for item in map(feature, FEATURES))
        return Ensemble(
            tuple(inputs), (nested_tree(self._tests(), FEATURES),), Fraction(1, 2), origin={"kind": "sharing_rule"}
        )

    def _tests(self) -> Node:
        def limit(pressure: int) -> Node:
            return ("pressure", pressure, False, True) if pressure < HIGHEST else False

        tests = limit(self.pressure)
        if self.first_rtt_pressure != self.pressure:
            tests = ("first_rtt", 0, tests, limit(self.first_rtt_pressure))
        if self.fill < HIGHEST:
            tests = ("fill", self.fill, tests, True)
        return ("message_left", self.message_left, False, tests) if self.message_left >= 0 else tests
