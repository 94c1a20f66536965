"""Packets over a path of links, one of which loses packets, with or without a block code on it: an event simulation.

Time is in packet times: a link takes 1 for a packet, first come first served, and its far end has it `latency` later.
The lossy link is in the middle. What it loses and the code does not restore, its sender sends again a round trip later,
as after three duplicate acknowledgements. The decoder passes data packets on as they come, and restored ones when the
k-th packet of their block is there. Source of the setting: Pit-Claudel, thesis, section 3.4.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from foretail.core.errors import ForetailError
from foretail.sim_bridge.erasure_codes.goodput import CodedLink

DUPLICATE_ACKS = 3
"""After so many TCP takes a packet for lost."""


@dataclass(frozen=True)
class LossyPath:
    """A path and its senders. ForetailError on a number out of range."""

    link: CodedLink
    other_links: int = 4  #: beside the lossy one, at least 0
    latency: float = 1000.0  #: of every link, in packet times, at least 0
    load: float = 0.5  #: of a link by new packets, above 0 and below 1
    senders: int = 2  #: each has the same share of the packets, at least 1

    def __post_init__(self) -> None:
        if self.other_links < 0 or self.latency < 0 or not 0 < self.load < 1 or self.senders < 1:
            raise ForetailError(f"{self} is no path: give a load between 0 and 1, a sender, and nothing below 0")
        if self.load / (1 - self.link.residual_loss) * self.link.n / self.link.k >= 1:
            raise ForetailError(f"the lossy link cannot carry load {self.load} with {self.link}: lower the load or n")

    @property
    def round_trip(self) -> float:
        """Packet times there and back of a packet that meets no other."""
        return 2 * (self.other_links + 1) * (self.latency + 1)


@dataclass(frozen=True)
class PathCounts:
    """What happened to the packets of a run."""

    mean_delay: float  #: from the first time that a packet is sent until it is there, in packet times
    residual_loss: float  #: share of transmissions that were lost and not restored
    lossy_load: float  #: packets on the lossy link over new packets
    other_load: float  #: packets on a link before the lossy one over new packets
    restored: int  #: packets that the code restored
    #: Of these, packets that come after three later ones of their sender. A receiver that acknowledges these as TCP
    #: does makes the sender send them again.
    overtaken: int


def run_path(path: LossyPath, packets: int, seed: int) -> PathCounts:
    """Simulate a path until all of `packets`, at least one, are there; a last block that is not full gets no code."""
    if packets < 1:
        raise ForetailError(f"packets is {packets}: give at least 1")
    random = np.random.default_rng(seed)
    run = _Run(path, random)
    created = np.cumsum(random.exponential(1 / path.load, packets)).tolist()
    senders = random.integers(path.senders, size=packets).tolist()
    for packet, time in enumerate(created):
        heappush(run.events, (time, 0, packet))
    run.play(senders)
    delays = [run.arrived[packet] - created[packet] for packet in range(packets)]
    return PathCounts(
        float(np.mean(delays)),
        run.lost / (packets + run.lost),
        run.on_lossy / packets,
        (packets + run.lost) / packets,
        run.restored,
        run.overtaken,
    )


class _Run:
    """The state of a run. A packet's event is its arrival at a link, or behind the last one."""

    def __init__(self, path: LossyPath, random: np.random.Generator) -> None:
        self.path, self.random = path, random
        self.events: list[tuple[float, int, int]] = []  # time, link, packet
        self.free = [0.0] * (path.other_links + 1)
        self.arrived: dict[int, float] = {}
        self.block: list[tuple[int, float, bool]] = []  # packet, when it is behind the lossy link, whether it is lost
        self.lost = self.on_lossy = self.restored = self.overtaken = 0

    def play(self, senders: list[int]) -> None:
        links, lossy = self.path.other_links + 1, self.path.other_links // 2
        while self.events or self.block:
            if not self.events:  # the last block, which nothing more will fill
                self._send_again(0.0, lossy)
                continue
            time, link, packet = heappop(self.events)
            if link == links:
                self.arrived[packet] = time
                continue
            behind = self._sent(time, link)
            if link != lossy:
                heappush(self.events, (behind, link + 1, packet))
                continue
            lost = self._is_lost()
            self.block.append((packet, behind, lost))
            if not lost:
                heappush(self.events, (behind, link + 1, packet))
            if len(self.block) == self.path.link.k:
                self._close(time, lossy, senders)

    def _sent(self, time: float, link: int) -> float:
        """Send a packet over a link, and return when it is behind it."""
        self.free[link] = max(time, self.free[link]) + 1
        return self.free[link] + self.path.latency

    def _is_lost(self) -> bool:
        self.on_lossy += 1
        return bool(self.random.random() < self.path.link.erasure)

    def _close(self, time: float, lossy: int, senders: list[int]) -> None:
        """Send the coded packets of a full block, and restore what is lost or have it sent again."""
        k, n = self.path.link.k, self.path.link.n
        coded = [(self._sent(time, lossy), self._is_lost()) for _ in range(n - k)]
        received = [at for _, at, lost in self.block if not lost] + [at for at, lost in coded if not lost]
        if len(received) < k:
            self._send_again(time, lossy)
            return
        for place, (packet, _, lost) in enumerate(self.block):
            if lost:
                heappush(self.events, (received[k - 1], lossy + 1, packet))
                later = sum(
                    not gone and senders[other] == senders[packet] for other, _, gone in self.block[place + 1 :]
                )
                self.restored += 1
                self.overtaken += later >= DUPLICATE_ACKS
        self.block.clear()

    def _send_again(self, time: float, lossy: int) -> None:
        """A sender knows of a loss when the acknowledgements of packets behind the lost one are back."""
        links = self.path.other_links + 1
        back = (links - lossy - 1) * (self.path.latency + 1) + links * (self.path.latency + 1)
        for packet, behind, lost in self.block:
            if lost:
                self.lost += 1
                heappush(self.events, (max(time, behind + back), 0, packet))
        self.block.clear()
