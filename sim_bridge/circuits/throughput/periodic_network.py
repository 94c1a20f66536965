"""What a periodic network of a degree needs: throughput, delay and buffer by the formulas of the Mars chapter.

They hold for Valiant routing on a worst-case permutation over a de Bruijn graph, and take its diameter as the real
number ``log_d n``; real diameters are whole, so throughput falls between two degrees where it does not change. Neither
counts self loops or the time of reconfiguration.

Source: Addanki, thesis, Theorems 15 to 19. Theorem 19 lacks the capacity in its condition, and the proof of Theorem 18
has k above -1/e, which it is not; degrees are rounded down, as the statements say.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import e, floor, log

import numpy as np
from scipy.special import lambertw

from foretail.core.errors import ForetailError


@dataclass(frozen=True)
class PeriodicNetwork:
    """Racks joined by rotating circuits. ForetailError on fewer than 2 nodes, or numbers that are not positive."""

    nodes: int  #: racks, at least 2
    uplinks: int  #: of a rack, at least 1
    uplink_bps: int  #: of one, positive
    slot_ns: int  #: with its reconfiguration, positive
    whole_hops: bool = False  #: whether the diameter is rounded up, as that of a real graph is

    def __post_init__(self) -> None:
        if self.nodes < 2 or min(self.uplinks, self.uplink_bps, self.slot_ns) < 1:
            raise ForetailError(f"{self} is no network: give 2 nodes or more, and positive numbers")

    def diameter(self, degree: int) -> float:
        """Hops of a shortest path, at most; ForetailError on a degree outside 2 to `nodes`."""
        if not 2 <= degree <= self.nodes:
            raise ForetailError(f"degree is {degree}: give 2 to {self.nodes} for {self.nodes} nodes")
        hops = log(self.nodes) / log(degree)
        return float(np.ceil(hops - 1e-9)) if self.whole_hops else hops

    def throughput(self, degree: int, buffer_bytes: float = np.inf) -> float:
        """Return the throughput, in proportion less where a rack has less buffer than it needs (Theorems 16, 17)."""
        needed = self.buffer_bytes(degree)
        return min(1.0, buffer_bytes / needed if needed else 1.0) / (2 * self.diameter(degree))

    def delay_ns(self, degree: int) -> float:
        """Return the longest delay: a period for every hop (Theorem 15); 0 for a static graph."""
        if degree == self.uplinks:
            return 0.0
        return 2 * self.diameter(degree) * degree * self.slot_ns / self.uplinks

    def buffer_bytes(self, degree: int) -> float:
        """Return the buffer that a rack needs: a slot's data of each circuit of a period (16); 0 for a static graph."""
        return 0.0 if degree == self.uplinks else degree * self._slot_bytes

    @property
    def least_delay_ns(self) -> float:
        """The least delay that any degree but a static graph's has, the degree a real number (Theorem 18)."""
        return 2 * e * log(self.nodes) * self.slot_ns / self.uplinks

    def degree_for_delay(self, delay_ns: float) -> int:
        """Return the largest degree within a delay (18), with real diameters; ForetailError where there is none."""
        if delay_ns < self.least_delay_ns:
            raise ForetailError(
                f"a delay of {delay_ns:g} ns is less than any degree has: give {self.least_delay_ns:g} or more, or "
                "take a static graph"
            )
        k = -2 * log(self.nodes) * self.slot_ns / (self.uplinks * delay_ns)
        return min(self.nodes, floor(float(np.exp(-lambertw(k, -1).real)) + 1e-9))

    def degree_for_buffer(self, buffer_bytes: float) -> int:
        """Return the largest degree within a buffer of a rack (19); ForetailError where there is none."""
        degree = min(self.nodes, floor(buffer_bytes / self._slot_bytes + 1e-9))
        if degree < 2:
            raise ForetailError(f"a buffer of {buffer_bytes:g} bytes is too small: give {2 * self._slot_bytes:g}")
        return degree

    @property
    def _slot_bytes(self) -> float:
        return self.uplink_bps * self.slot_ns / 8e9
