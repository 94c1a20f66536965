"""What a switch counts over an interval, for settings that are predicted once per interval.

A counter of a queue describes the data packets that came to it, one of the switch those that came to any queue. Values
are integers in ``[0, 2**8)``: averages over the last intervals, in which the newest counts an eighth, in fixed point
with 8 fractional bits. A share of what arrived stays as it is through intervals in which nothing does.
``interval_counters.hpp`` in ``sim_bridge/buffer/counters/`` computes them and lists the same names in the same order.

Switches export these or what they follow from: watermarks, bytes in, dropped and marked, and flow tables or samples.
The first round trip is said by the sender's tag. A cost is register bits for the open interval; operations are
additions and comparisons per packet, and all else happens once per interval.
"""

from __future__ import annotations

from dataclasses import dataclass

COUNTER_BITS = 8
"""Of every counter."""

_BYTES, _FLOWS = 48, 64


@dataclass(frozen=True)
class Counter:
    """One counter of an interval."""

    name: str  #: column name in records, models and the predictor ABI
    description: str  #: one sentence
    register_bits: int  #: per queue, or once per switch
    operations: int  #: per data packet


COUNTERS = (
    Counter("queue_longest", "largest length that an arrival left its queue with, 255ths of the buffer", _BYTES, 1),
    Counter("queue_load", "bytes that came, 64ths of what the port can send in an interval, at most 255", _BYTES, 1),
    Counter("queue_dropped", "share of these bytes that was dropped, 255ths", _BYTES, 1),
    Counter("queue_marked", "share of these bytes that got an ECN mark, 255ths", _BYTES, 1),
    Counter("queue_first_rtt", "share of these bytes from the first round trip of a flow, 255ths", _BYTES, 1),
    Counter("queue_flows", "bits set of 64, of which each flow sets one by its hash", _FLOWS, 2),
    Counter("buffer_fullest", "largest occupancy that an arrival left the buffer with, 255ths", _BYTES, 1),
    Counter("switch_load", "bytes that came, 64ths of what all ports can send in an interval, at most 255", _BYTES, 1),
    Counter("switch_dropped", "share of these bytes that was dropped, 255ths", _BYTES, 1),
    Counter("switch_marked", "share of these bytes that got an ECN mark, 255ths", _BYTES, 1),
    Counter("switch_first_rtt", "share of these bytes from the first round trip of a flow, 255ths", _BYTES, 1),
    Counter("switch_flows", "bits set of 64, of which each flow through the switch sets one", _FLOWS, 2),
    Counter("switch_active", "queues to which something came, 255ths of all", 0, 0),
)
"""All counters, in the order of their columns."""


def counter_params(interval_ns: int) -> str:
    """The constants of the counters' arithmetic, as the predictor ABI carries them."""
    return f"interval_ns={interval_ns}"
