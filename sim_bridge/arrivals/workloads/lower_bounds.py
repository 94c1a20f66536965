"""The arrivals by which proofs show how much a policy can lose against the offline optimum OPT.

No chance in them: the seed is ignored. All but `DtLowerBound(at_once=True)` keep to the model's N packets a slot; a
burst of the proof is then spread over consecutive slots, N a slot, and `fill` adds what leaves while it lasts.
The ratios are those of the repeated part; the first filling and the last draining cost a constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.sim_bridge.arrivals.slotted import Slotted
from foretail.sim_bridge.arrivals.workloads.workload import Workload, at_least, periodic, upto


def fill_slots(ports: int, length: int) -> int:
    """Return in how many slots N packets a slot bring an empty queue to `length` (after the arrivals of the last)."""
    return 1 if length <= ports else -(-(length - 1) // (ports - 1))


def fill(ports: int, length: int) -> NDArray[np.int64]:
    """Return the slots of the packets that do so, just as many as fit: one leaves in every slot but the last."""
    slots = fill_slots(ports, length)
    return np.arange(length + slots - 1, dtype=np.int64) // ports


def all_to(port: int, count: int) -> NDArray[np.int32]:
    """Return `count` times `port`."""
    return np.full(count, port, np.int32)


@dataclass(frozen=True)
class LowerBound(Workload):
    """A sequence of a proof; it needs two ports and at least one packet of buffer per port."""

    def check(self, ports: int, buffer: int) -> None:
        """Refuse switches that are too small."""
        at_least(2, ports=ports)
        if buffer < ports:
            raise ForetailError(f"buffer must have at least one packet per port, {ports}, for this sequence: {buffer}")


@dataclass(frozen=True)
class CompleteSharingLowerBound(LowerBound):
    """Complete Sharing sends 1 packet where OPT sends N.

    Port 0 is filled to B. Then every slot has one packet for port 0, which takes the one place that is free, and one
    for every other port, for which none is left. OPT keeps port 0 short and sends all N in every slot.

    N is all that can be shown in this model, although the literature's bound is N + 1: up to the last drop before it
    runs empty, Complete Sharing sends at least 1 packet in every slot in which OPT sends at most N; at that drop its
    buffer holds B packets, OPT's at most B, and whatever comes later it accepts.
    """

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        """Yield the filling, then one slot again and again."""
        yield from filled_then_all(ports, buffer, slots, others=ports - 1)


def filled_then_all(ports: int, buffer: int, slots: int, others: int) -> Iterator[Slotted]:
    """Fill port 0, then send in every slot one packet to it and then one to each of `others` other ports."""
    filling = fill(ports, buffer)
    yield upto(slots, filling, all_to(0, len(filling)))
    each = np.arange(others + 1, dtype=np.int32)
    yield from periodic(fill_slots(ports, buffer), 1, np.zeros(len(each), np.int64), each, slots)


@dataclass(frozen=True)
class FalseNegative(LowerBound):
    """A few wrong predictions that cost who blindly trusts them a packet each in every slot, for ever.

    Section 2 of Credence (NSDI'24). Port 0 is filled to B; then every slot has one packet for port 0 and one for each
    of k other ports. LQD pushes exactly k packets out of port 0, in the first of these slots, and loses nothing after
    that. The predictions, which come with the packets, say "accept" for every one: they are wrong for those k and right
    for all others. Complete Sharing, which is what trusting them comes to, sends 1 packet a slot where LQD and OPT send
    k + 1; Credence and FollowLQD notice that their queue is above its threshold and lose a constant.
    """

    count: int = 1  #: k, 1 to N - 1. The paper's text has 1

    def __post_init__(self) -> None:
        """Check the range."""
        at_least(1, count=self.count)

    def check(self, ports: int, buffer: int) -> None:
        """Refuse switches that are too small."""
        super().check(ports, buffer)
        if self.count >= ports:
            raise ForetailError(f"count must be below the number of ports, {ports}, not {self.count}")

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        """Yield the filling, then one slot again and again, with predictions."""
        for chunk in filled_then_all(ports, buffer, slots, others=self.count):
            yield Slotted(chunk.slot, chunk.port, np.zeros(len(chunk), np.uint8))


@dataclass(frozen=True)
class FollowLqdLowerBound(LowerBound):
    """FollowLQD sends 2 packets where LQD and OPT send N + 1: Observation 1 of Credence (NSDI'24).

    Port 0 is filled to B. Then periods of two slots: one packet to every port, port 0 first, and N packets to port 0.
    In the first slot LQD makes room by pushing out of port 0, FollowLQD cannot; in the second LQD's port 0 is back at
    B, which lets FollowLQD accept a single packet. Both end the period as they began it, FollowLQD having sent 2
    packets from port 0, LQD these and one from every other port. More is not possible: in two slots port 0 sends at
    most 2, and the others get one packet each.
    """

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        """Yield the filling, then the period again and again."""
        filling = fill(ports, buffer)
        yield upto(slots, filling, all_to(0, len(filling)))
        port = np.concatenate((np.arange(ports, dtype=np.int32), all_to(0, ports)))
        yield from periodic(fill_slots(ports, buffer), 2, np.repeat(np.arange(2), ports), port, slots)


@dataclass(frozen=True)
class LqdLowerBound(LowerBound):
    """LQD shares the buffer equally where OPT would not: the ratio approaches sqrt(2) for many ports.

    The bound is that of Hahne, Kesselman and Mansour (SPAA 2001); the sequence is ours. k = N/2 ports are hot: they get
    one packet a slot, after a first filling of the whole buffer, so under LQD they stay as long as anybody. The other
    M = N - k ports take turns: one of them gets M packets a slot for R slots, then the next, so each gets M R packets
    every M R slots, just what it can send. OPT keeps the hot ports at one packet and gives the buffer to the others,
    whose lengths at the end of a turn are (M - 1) R + 1, (M - 2) R + 1, ..., 1, and all N ports send in every slot. R
    is the largest for which that fits in B, at least 1; for B below N + M (M - 1) / 2 the ratio is smaller.

    LQD cuts the growing queue off at about the length L R of the hot ones. For many ports k L + L^2 / 2 = M^2 / 2, as
    both buffers are full, so LQD sends k + L = sqrt(k^2 + M^2) packets a slot, and k = M gives 2 M / (sqrt(2) M). It
    comes near slowly: with B = 200 N, OPT / LQD is 1.20 for N = 4, 1.26 for 8, 1.33 for 16, 1.37 for 64.
    """

    def check(self, ports: int, buffer: int) -> None:
        """Refuse switches that are too small."""
        at_least(4, ports=ports)
        super().check(ports, buffer)

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        """Yield the filling, then the turns of all cold ports again and again."""
        hot = ports // 2
        cold = ports - hot
        turn = max(1, (buffer - ports) // (cold * (cold - 1) // 2))
        filling = -(-buffer // cold) + 1
        slot = np.repeat(np.arange(filling), ports)
        yield upto(slots, slot, (np.arange(len(slot)) % hot).astype(np.int32))
        # a slot of the repeated part: one packet to every hot port, then M to the cold port whose turn it is
        port = np.empty((cold * turn, ports), np.int32)
        port[:, :hot] = np.arange(hot)
        port[:, hot:] = np.repeat(np.arange(hot, ports), turn)[:, None]
        yield from periodic(filling, len(port), np.repeat(np.arange(len(port)), ports), port.ravel(), slots)


@dataclass(frozen=True)
class DtLowerBound(LowerBound):
    """Dynamic Thresholds keep buffer free that nobody will need.

    Within the model: port 0 is filled to B by N packets a slot, sends all of it, is filled again. DT stops at
    alpha / (1 + alpha) B, and both send a packet in every slot of the filling: with s such slots, the ratio is
    (B + s - 1) / (alpha / (1 + alpha) B + s - 1), near (1 + alpha) / alpha for many ports.

    With `at_once`: periods of P slots. In the first slot of each, k = sqrt(N) hot ports get B / k packets each, then
    the M = N - k others get P = (B - k) / M packets each; in the other slots every hot port gets one. OPT keeps one
    packet per hot port and all of the others': N in every slot. DT's hot queues leave B / (1 + k alpha) free, so it
    sends at most about k P + B / (1 + k alpha): the ratio is near N / (k + M / (1 + k alpha)) and grows as sqrt(N).
    The bound in the literature is Omega(sqrt(N / log N)).
    """

    at_once: bool = False  #: bursts come in one slot, more than N packets, beyond the paper's model

    def chunks(self, ports: int, buffer: int, slots: int, draw: np.random.Generator) -> Iterator[Slotted]:
        """Yield the period again and again."""
        if not self.at_once:
            filling = fill(ports, buffer)
            period = fill_slots(ports, buffer) + buffer - 1
            yield from periodic(0, period, filling, all_to(0, len(filling)), slots)
            return
        hot = max(1, math.isqrt(ports))
        cold = ports - hot
        period = max(1, (buffer - hot) // cold)
        first = np.concatenate(
            (np.tile(np.arange(hot), -(-buffer // hot)), np.tile(np.arange(hot, ports), period))
        )  # each round robin
        slot = np.concatenate((np.zeros(len(first), np.int64), np.repeat(np.arange(1, period), hot)))
        port = np.concatenate((first, np.tile(np.arange(hot), period - 1))).astype(np.int32)
        yield from periodic(0, period, slot, port, slots)
