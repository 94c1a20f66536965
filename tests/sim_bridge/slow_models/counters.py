"""The counters of an interval once more, slow and obvious: every interval is looked at from its first packet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretail.features.catalog import COUNTERS


@dataclass(frozen=True)
class Packet:
    """A data packet, as it came to a queue."""

    time: int
    queue: int
    size: int
    dropped: bool
    marked: bool
    first_rtt: bool
    flow_hash: int
    length: int  #: of its queue after the decision
    occupancy: int


def of_interval(packets: Sequence[Packet], held: str, can_send: int, capacity: int) -> list[int | None]:
    """Six counters of one interval alone; None for a share of nothing."""
    came = sum(packet.size for packet in packets)

    def share(what: str) -> int | None:
        return sum(packet.size for packet in packets if getattr(packet, what)) * 255 // came if came else None

    return [
        max((getattr(packet, held) for packet in packets), default=0) * 255 // capacity,
        min(came * 64 // can_send, 255),
        share("dropped"),
        share("marked"),
        share("first_rtt"),
        len({(packet.flow_hash * 2654435769 % 2**32) >> 26 for packet in packets}),
    ]


def counters_before(
    packets: Sequence[Packet],
    queue: int,
    end: int,
    capacity: int,
    rates_bps: Sequence[int],
    priorities: int,
    every: int,
) -> list[int]:
    """The counters of a queue after the last interval that had ended by `end`."""
    kept = [0] * len(COUNTERS)
    sends = [max(int(every * (bps / 8e9)), 1) for bps in rates_bps]
    queues = len(rates_bps) * priorities
    for first in range(0, end // every * every, every):
        inside = [packet for packet in packets if first <= packet.time < first + every]
        own = [packet for packet in inside if packet.queue == queue]
        found = [
            *of_interval(own, "length", sends[queue // priorities], capacity),
            *of_interval(inside, "occupancy", sum(sends), capacity),
            len({packet.queue for packet in inside}) * 255 // queues,
        ]
        kept = [old if new is None else old + ((256 * new - old) >> 3) for old, new in zip(kept, found, strict=True)]
    return [(value + 128) >> 8 for value in kept]
