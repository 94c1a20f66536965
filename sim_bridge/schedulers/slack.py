"""Slack that serves a goal without a known schedule, and what its use tells at the edge (Mittal's thesis, 5.2, 5.3)."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass
class EdgeCoDel:
    """Edge-CoDel of a flow: drops by the time that packets waited in the whole network.

    A packet is dropped if it waited longer than the target and the last drop, or the time at which packets began to
    wait so long, is an interval ago. The interval shrinks with the square root of the drops. It starts again when a
    packet waited less than the target, or was sent much later than the one before it.
    """

    target_ns: int = 5_000_000
    interval_ns: int = 100_000_000
    refresh_ns: int = 20_000_000  #: gap between sent packets, more than the target
    drops: int = 0  #: since the interval started again
    _since_ns: int | None = None
    _last_sent_ns: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.target_ns < self.refresh_ns:
            raise ForetailError(
                f"refresh_ns = {self.refresh_ns} must be more than the target of {self.target_ns}: "
                "choose 2 to 4 times it"
            )

    def drops_packet(self, now_ns: int, sent_ns: int, used_slack_ns: int) -> bool:
        """Whether the edge drops a packet that arrives now, was sent then, and waited so long."""
        late = self._last_sent_ns is not None and sent_ns - self._last_sent_ns > self.refresh_ns
        self._last_sent_ns = sent_ns
        if used_slack_ns < self.target_ns or late:
            self.drops, self._since_ns = 0, None
        if used_slack_ns <= self.target_ns:
            return False
        if self._since_ns is None:
            self._since_ns = now_ns
            return False
        if now_ns - self._since_ns <= self.interval_ns / max(self.drops, 1) ** 0.5:
            return False
        self.drops += 1
        self._since_ns = now_ns
        return True
