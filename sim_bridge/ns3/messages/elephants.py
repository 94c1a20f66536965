"""Elephants: a few connections per server that send long bursts, with or without pauses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretail.sim_bridge.ns3.messages.message import Message


def elephants(
    peers: Sequence[Sequence[int]],
    flows_per_server: int,
    burst_bytes: int,
    idle_ns: int,
    *,
    link_bps: int,
    traffic_ns: int,
    seed: int,
) -> list[Message]:
    """Return the bursts of all connections; each has as many as an idle network could deliver during the traffic.

    Parameters
    ----------
    peers : for every server those that it may send to; one is drawn twice only when there are too few
    flows_per_server : connections that every server sends on
    burst_bytes : mean of the exponential size of a burst, at least 1
    idle_ns : mean of the exponential pause from the delivery of a burst to the next; 0: none
    link_bps : rate of a server's link
    traffic_ns : bursts start during this time
    seed : of the draws; every server has its own
    """
    ns_per_byte = 8e9 / link_bps
    messages: list[Message] = []
    connection = 0
    for server, reachable in enumerate(peers):
        draw = np.random.default_rng([seed, server])
        for peer in draw.choice(reachable, flows_per_server, replace=flows_per_server > len(reachable)).tolist():
            start_ns = min(int(draw.exponential(idle_ns + burst_bytes * ns_per_byte)), traffic_ns - 1)
            after: list[int] = []
            gap_ns = 0
            while start_ns < traffic_ns:
                size_bytes = max(1, round(draw.exponential(burst_bytes)))
                messages.append(Message(start_ns, traffic_ns - 1, size_bytes, server, peer, connection, after, gap_ns))
                after, gap_ns = [len(messages) - 1], int(draw.exponential(idle_ns))
                start_ns += int(size_bytes * ns_per_byte) + gap_ns + 1
            connection += 1
    return messages
