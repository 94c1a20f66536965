"""A sharing rule of a few numbers as one or two decision trees, so that a switch holds it as any other predictor.

The policy ``learned`` asks it about every data packet. It keeps the last packets of every message, whose loss costs a
timeout; the others leave a part of the buffer free, and their queue stays below a multiple of the free buffer, as under
Dynamic Thresholds (Choudhury and Hahne, 1998), which is another for packets of a first round trip (ABM, SIGCOMM'22).
Packets that are far from the end of their message can have less of it, and the last packets a limit of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from foretail.core.errors import ForetailError
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.nested import Rule, tree_of_rule

FEATURES = ("message_left", "fill", "first_rtt", "pressure")
TRACKED = ("message_left", "first_rtt", "pressure_tracked")
HIGHEST = 255
"""A limit that no value of 8 bits is above."""


@dataclass(frozen=True)
class SharingRule:
    """Drop unless ``message_left`` is within its limit, and if ``fill`` or ``pressure`` is above theirs."""

    message_left: int  #: packets with at most so many cells of their message after them are its last; -1: none is
    fill: int  #: others are dropped above this occupancy in 255ths of the buffer; 255: never for that
    pressure: int  #: and above this length of their queue over the free buffer; 128: alpha 1, 8 more for each double
    first_rtt_pressure: int  #: the same for packets of a first round trip
    last_pressure: int = HIGHEST  #: the same for the last packets of a message
    far: int = HIGHEST  #: packets with more cells after them than that are far from the end of their message
    far_less: int = 0  #: those have so much less ``pressure``, in a first round trip too

    def drops(self, message_left: int, fill: int, first_rtt: int, pressure: int) -> bool:
        """True if a packet with these features is dropped, each in its range of the catalog."""
        if message_left <= self.message_left:
            return pressure > self.last_pressure
        near, far = self._limits(bool(first_rtt))
        return fill > self.fill or pressure > (far if message_left > self.far else near)

    def ensemble(self, cell_bytes: int) -> Ensemble:
        """The rule as one or two trees of depth 4 or less; `cell_bytes` is the unit of ``message_left``."""
        return rule_ensemble(self._trees(), FEATURES, cell_bytes)

    def tracked(self, cell_bytes: int) -> Ensemble:
        """The same on what Tofino's ingress knows; ForetailError with a limit of ``fill``, which it does not know."""
        if self.fill < HIGHEST:
            raise ForetailError(f"no ingress of Tofino knows the fill of the buffer: set fill to {HIGHEST}")
        return rule_ensemble(self._trees(TRACKED[-1]), TRACKED, cell_bytes)

    def _limits(self, first_rtt: bool) -> tuple[int, int]:
        """The limits of ``pressure`` near the end of a message and far from it."""
        near = self.first_rtt_pressure if first_rtt else self.pressure
        return near, max(0, near - self.far_less)

    def _trees(self, pressure: str = FEATURES[-1]) -> list[Rule]:
        """A packet is dropped where one of the trees says so."""

        def limit(highest: int) -> Rule:
            return (pressure, highest, False, True) if highest < HIGHEST else False

        def either(later: int, first: int) -> Rule:
            return limit(later) if first == later else ("first_rtt", 0, limit(later), limit(first))

        def with_last_packets(others: Rule) -> Rule:
            return ("message_left", self.message_left, limit(self.last_pressure), others) if has_last else others

        has_last = self.message_left >= 0
        above_fill = self.fill < HIGHEST
        (near, far), (near_first, far_first) = self._limits(False), self._limits(True)
        if self.far >= HIGHEST or (near, near_first) == (far, far_first):
            others = either(near, near_first)
        elif self.far <= self.message_left:
            others = either(far, far_first)
        else:
            tests = with_last_packets(("message_left", self.far, either(near, near_first), either(far, far_first)))
            full: Rule = ("fill", self.fill, False, True)
            others = ("message_left", self.message_left, False, full) if has_last else full
            return [tests, others] if above_fill else [tests]
        return [with_last_packets(("fill", self.fill, others, True) if above_fill else others)]


def rule_ensemble(trees: list[Rule], names: tuple[str, ...], cell_bytes: int) -> Ensemble:
    """Trees over features of the catalog that drop a packet where one of them says so.

    `cell_bytes` is the unit of features in cells.
    """
    nested = tuple(tree_of_rule(tests, names) for tests in trees)
    inputs = tuple(FeatureInput.of(name, cell_bytes) for name in names)
    return Ensemble(inputs, nested, Fraction(1, 2), origin={"kind": "sharing_rule"})
