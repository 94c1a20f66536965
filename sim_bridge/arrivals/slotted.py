"""Arrivals of unit packets in slots: the type that generators yield, files are read into and policies are run on.

Where features are in bytes and nanoseconds, a packet has `PACKET_BYTES` and a slot `SLOT_NS`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PACKET_BYTES = 1024
SLOT_NS = 1024
"""So averages over ``2**(10 + s)`` ns are those over ``2**s`` slots, and the features' unit of time is a slot."""
AVERAGE_SHIFT = 15
"""Averages of features run over 2 to this ns by default, 32 slots."""


def slots_shift(average_shift: int) -> int:
    """Return s where averages run over 2**s slots, of those over 2**average_shift ns; below 0 over less than one."""
    return average_shift - SLOT_NS.bit_length() + 1


@dataclass(frozen=True, eq=False)
class Slotted:
    """A batch of unit packets in order of arrival."""

    #: int64[n], slot of each packet, from 0, never decreasing, also from one batch to the next. Slots without arrivals
    #: drain.
    slot: NDArray[np.int64]
    port: NDArray[np.int32]  #: int32[n], output port, from 0
    prediction: NDArray[np.uint8] | None = None  #: uint8[n] or None, 1 where a predictor says drop
    #: uint8[n] or None, 1 for packets of a flow's first round trip, which ABM treats better
    first_rtt: NDArray[np.uint8] | None = None
    #: uint8[n] or None, queue of its port for each packet, from 0; a policy that knows one queue per port ignores it
    priority: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.slot)
