"""Slack that serves a goal without a known schedule, and what its use tells at the edge (Mittal's thesis, 5.2, 5.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.sim_bridge.schedulers.network import Int64, Packets

SECOND_NS = 1_000_000_000


def completion_slack(packets: Packets, *, segment_bytes: int = 1460, unit_ns: int = SECOND_NS) -> Int64:
    """Slack for a small mean flow completion time: packets of the flow times a time above all queueing, as SJF."""
    return np.asarray(-(-packets.flow_bytes // segment_bytes) * unit_ns, np.int64)


def tail_slack(packets: Packets, *, slack_ns: int = SECOND_NS) -> Int64:
    """Slack for small tails of delay, the same for all: FIFO+."""
    return np.full(len(packets.flow), slack_ns, np.int64)


def fair_slack(packets: Packets, rate_bps: int) -> Int64:
    """Slack for fairness: what a packet would wait for those before it at a rate that is at most the fair one.

    The first packet of a flow has none. Each other has that of the packet before it, plus the time of its own bits at
    `rate_bps`, less the time since that packet came, at least 0. Packets of a flow are taken in order of arrival.
    """
    if rate_bps < 1:
        raise ForetailError(f"rate_bps = {rate_bps}: the rate of a flow must be above 0")
    order = np.lexsort((np.arange(len(packets.flow)), packets.arrival_ns, packets.flow))
    flow, arrival = packets.flow[order].tolist(), packets.arrival_ns[order].tolist()
    own_ns = (packets.size_bytes[order].astype(np.int64) * 8 * SECOND_NS // rate_bps).tolist()
    slack = [0] * len(flow)
    for i in range(1, len(flow)):
        if flow[i] == flow[i - 1]:
            slack[i] = max(0, slack[i - 1] + own_ns[i] - (arrival[i] - arrival[i - 1]))
    result = np.empty(len(flow), np.int64)
    result[order] = slack
    return result


def edge_ecn(used_slack_ns: Int64, packet_ns: int, packets: int = 15) -> NDArray[np.bool_]:
    """Edge-ECN: which packets are marked, because they waited longer than so many packets take: bool[packets]."""
    return np.asarray(used_slack_ns > packets * packet_ns)


def edge_codel(
    arrival_ns: Int64,
    sent_ns: Int64,
    used_slack_ns: Int64,
    *,
    target_ns: int = 5_000_000,
    interval_ns: int = 100_000_000,
    refresh_ns: int = 20_000_000,
) -> NDArray[np.bool_]:
    """Edge-CoDel of a flow: which packets, in order of arrival, the edge drops by their wait: bool[packets].

    A packet is dropped if it waited longer than the target and the last drop, or the time at which packets began to
    wait so long, is an interval ago. The interval shrinks with the square root of the drops. It starts again when a
    packet waited less than the target, or was sent later than `refresh_ns` after the one before it. ForetailError where
    that is not more than the target.
    """
    if not 0 < target_ns < refresh_ns:
        raise ForetailError(
            f"refresh_ns = {refresh_ns} must be more than the target of {target_ns}: choose 2 to 4 times it"
        )
    restarts = (used_slack_ns < target_ns) | (np.diff(sent_ns, prepend=sent_ns[:1]) > refresh_ns)
    dropped = np.zeros(len(arrival_ns), bool)
    drops, since_ns = 0, -1
    for i, now_ns in enumerate(arrival_ns.tolist()):
        if restarts[i]:
            drops, since_ns = 0, -1
        if used_slack_ns[i] <= target_ns:
            continue
        if since_ns < 0:
            since_ns = now_ns
        elif now_ns - since_ns > interval_ns / max(drops, 1) ** 0.5:
            dropped[i], drops, since_ns = True, drops + 1, now_ns
    return dropped
