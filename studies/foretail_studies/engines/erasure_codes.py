"""Savings of a block code on a lossy link: packets that are sent again, load of the links, goodput and delay.

A code (k, n) sends k packets as they come and n - k coded ones after them. Any k of these n restore the block. A block
with fewer loses its missing packets, and their senders send them again. Losses are independent. Delay is that of
propagation: queues and the wait for coded packets do not count.

Source: Pit-Claudel, thesis, section 3.3.2. Its equation 3.6 has sums from 0 on, and its goodput counts hosts for links;
both are meant as here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt
from scipy.stats import binom


@dataclass(frozen=True)
class CodedLink:
    """A link that loses packets, and the code on it."""

    erasure: float  #: probability that a packet is lost, from 0 to below 1
    k: int = 1  #: packets of a block, at least 1
    n: int = 1  #: packets that are sent for it, at least k; n = k is a link without a code

    @property
    def residual_loss(self) -> float:
        """Share of transmissions that the code does not restore (equation 3.1)."""
        return float(_residual_loss(self.erasure, self.k, np.array([self.n]))[0])

    def lossy_load(self, rates: Sequence[float]) -> float:
        """Packets per second on the lossy link, for new packets per second of every sender (3.2, and 3.4 if n = k)."""
        return self.n * sum(rates) / (self.k * (1 - self.residual_loss))

    def other_load(self, rates: Sequence[float], other_links: Sequence[int]) -> float:
        """Packets per second on all other links together, which every sender has so many of (3.3, and 3.5 if n = k)."""
        return sum(rate * links for rate, links in zip(rates, other_links, strict=True)) / (1 - self.residual_loss)

    def goodput_ratio(self, rates: Sequence[float], other_links: Sequence[int]) -> float:
        """Goodput over that of the same link without a code (3.6)."""
        plain = CodedLink(self.erasure)
        return (plain.lossy_load(rates) + plain.other_load(rates, other_links)) / (
            self.lossy_load(rates) + self.other_load(rates, other_links)
        )

    @property
    def mean_delay(self) -> float:
        """Mean delay in round trips: half of one, and a whole one for each time that a packet is sent again."""
        residual = self.residual_loss
        return 0.5 + residual / (1 - residual)


def best_code(erasure: float, mean_other_links: float, least_k: int, largest_k: int) -> CodedLink:
    """Return the code of highest goodput with k in these bounds; of equal ones the one with the smallest k, then n.

    Without a bound k would grow for ever, because the wait for a block costs nothing here. `mean_other_links` is the
    mean over the senders' packets.
    """
    best, best_ratio = CodedLink(erasure, least_k, least_k), 1.0
    for k in range(least_k, largest_k + 1):
        # a code with this many packets is worse than none, even if it restores all
        most = int(k * ((mean_other_links + 1) / (1 - erasure) - mean_other_links))
        n = np.arange(k, most + 1)
        ratio = (1 - _residual_loss(erasure, k, n)) / (1 - erasure)
        ratio *= (mean_other_links + 1) / (mean_other_links + n / k)
        if ratio.max(initial=0) > best_ratio * (1 + 1e-12):
            best, best_ratio = CodedLink(erasure, k, int(n[ratio.argmax()])), float(ratio.max())
    return best


def _residual_loss(erasure: float, k: int, n: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """A packet of a block is not restored if it and at least n - k of the n - 1 others are lost: float64[len(n)]."""
    residual: npt.NDArray[np.float64] = erasure * binom.sf(n - k - 1, n - 1, erasure)
    return residual


DUPLICATE_ACKS = 3
"""After so many TCP takes a packet for lost."""


@dataclass(frozen=True)
class LossyPath:
    """A path and its senders."""

    link: CodedLink
    other_links: int = 4  #: beside the lossy one, at least 0
    latency: float = 1000.0  #: of every link, in packet times, at least 0
    load: float = 0.5  #: of a link by new packets, above 0 and below 1
    senders: int = 2  #: each has the same share of the packets, at least 1


@dataclass(frozen=True)
class PathCounts:
    """Delay, loss and load of the packets of a run."""

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
