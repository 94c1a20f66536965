"""Flows of TCP and of RC3, which fills the capacity that TCP leaves idle (Mittal's thesis, chapter 2).

This is RC3 at the level of packets, in the networks of this room, such as that of the thesis; the setting
``scenario.transport.rc3`` gives it to the native TCP in a star or a leaf-spine network. The sender of TCP here has slow
start without a threshold, one halving per round of losses, a retransmission of what was not acknowledged when three
packets sent later were, and a timeout. An acknowledgement tells of the packet that it answers and of all up to the
first one that is missing. A flow ends when its sender knows that all has arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.sim_bridge import _native
from foretail.sim_bridge.schedulers.network import Int64, Scheduler, topology_of
from foretail.sim_bridge.schedulers.topologies import HostNetwork
from foretail.sim_bridge.schedulers.traffic import Flows

SEGMENT_BYTES = 1460

EDGES: dict[Literal["text", "kernel"], list[int]] = {
    "text": [40, 440, 4_440, 44_440],
    "kernel": [40, 400, 4_000, 40_000],
}
"""Packets from a flow's end up to which priorities 1, 2, 3 and 4 go, by section 2.1.1 and by section 2.3.1.

The text gives 400 packets priority 2, the rule of the kernel 360.
"""


@dataclass(frozen=True, eq=False)
class Completions:
    """What became of flows."""

    fct_ns: Int64  #: int64[flows], until the sender knew that all had arrived; -1: never
    sent: Int64  #: int64[8], data packets by priority, from 0
    dropped: Int64  #: int64[8], likewise
    timeouts: int

    def mean_s(self, size_bytes: Int64 | None = None) -> float:
        """Mean completion time of flows that ended, in s, by bytes where sizes are given."""
        ended = self.fct_ns >= 0
        return float(np.average(self.fct_ns[ended] / 1e9, weights=None if size_bytes is None else size_bytes[ended]))


def run_flows(
    hosts: HostNetwork,
    flows: Flows,
    *,
    fills: bool | NDArray[np.bool_],
    buffer_ns: int,
    edges: Sequence[int] = EDGES["text"],
    first_window: int = 4,
    growth: float = 1.0,
    timeout_ns: int = 1_000_000_000,
    handshake: bool = True,
    fifo: NDArray[np.bool_] | None = None,
) -> Completions:
    """Run flows in a network whose routes begin at ports of hosts.

    Ports serve the strict priorities of RC3. A port drops the packet that it would serve last.

    Parameters
    ----------
    fills
        Whether flows use RC3, or bool[flows].
    buffer_ns
        Buffer of a port, as the time to send it: a round trip for the product of bandwidth and delay.
    edges
        Packets from a flow's end up to which priorities 1, 2, ... go, increasing, at most 6.
    first_window
        Initial window of TCP in packets.
    growth
        Packets by which the window grows in slow start per packet that is acknowledged: 1 doubles it every round trip;
        0.5 is that of a receiver that acknowledges every other packet, as ns-3 does by default.
    timeout_ns
        First retransmission timeout, doubled with each one in a row.
    handshake
        Whether a flow begins to send a round trip of propagation after its start.
    fifo
        bool[ports], which ports serve first in first out instead; None: none.

    ForetailError on edges that do not increase or a value out of range.
    """
    if len(edges) > 6 or any(one < 1 for one in edges):
        raise ForetailError(f"edges = {list(edges)}: choose at most 6 numbers of packets above 0")
    network = hosts.network
    ports = len(network.rate_bps)
    fifo = np.zeros(ports, bool) if fifo is None else fifo
    schedulers: list[Scheduler] = ["fifo" if one else "priority" for one in fifo]
    # Each port has a buffer of its own, those of hosts without end.
    own = np.maximum(network.rate_bps.astype(np.float64) * buffer_ns / 8e9, 3000).astype(np.int64)
    own[network.route_ports[network.route_begin[:-1]]] = 1 << 60
    alone = type(network)(
        network.rate_bps, network.delay_ns, np.arange(ports, dtype=np.int32), network.route_begin, network.route_ports
    )
    end_ns, counts, timeouts = _native.run_flows(
        topology_of(alone, schedulers, own),
        flows.start_ns + handshake * hosts.round_trip_ns(flows.source, flows.destination),
        flows.size_bytes,
        flows.route,
        np.ascontiguousarray(hosts.routes[flows.destination, flows.source, 0]),
        np.ascontiguousarray(np.broadcast_to(np.asarray(fills, bool), len(flows.start_ns))),
        edges=list(edges),
        first_window=first_window,
        growth=growth,
        timeout_ns=timeout_ns,
    )
    fct_ns = np.where(end_ns < 0, -1, end_ns - flows.start_ns)
    return Completions(fct_ns, counts[0], counts[1], timeouts)


def expected_reduction(packets: int, *, available_packets: float, first_window: int = 4, whole: bool = False) -> float:
    """By how many percent RC3 should shorten a flow, after the model of section 2.2.

    TCP takes log2(min(N, A RTT) / i) round trips until its window carries what is available, RC3 one. Both then take
    N / A more. The thesis does not print the base of the logarithm; a window doubles each round trip. With N below 2 i
    that is less than one round trip, where no flow can be faster: here TCP takes at least one.

    Parameters
    ----------
    packets
        Size N of the flow, at least 1.
    available_packets
        A RTT, the packets that the bottleneck has room for in a round trip, above 0.
    first_window
        i.
    whole
        Whether round trips of slow start are counted whole, until the windows i, 2 i, 4 i, ... together hold the
        packets: log2(min(N, A RTT) / i + 1) of them, rounded up.
    """
    if packets < 1 or available_packets <= 0 or first_window < 1:
        raise ForetailError("packets, available_packets and first_window must be above 0")
    rest = packets / available_packets
    windows = min(packets, available_packets) / first_window
    rounds = max(1.0, ceil(log2(windows + 1)) if whole else log2(windows))
    return 100 * (1 - (1 + rest) / (rounds + rest))
