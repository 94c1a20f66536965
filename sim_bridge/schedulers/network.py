"""Packets through ports with schedulers: store and forward, queues at outputs, any topology.

A packet comes to the first port of its route when its last bit is there, and leaves the network when its last bit
leaves the last port. A port serves the packet of the least key; of equal keys the one that came first.

=============  ========================================================  ==========================================
scheduler      key                                                       `values` of packets
=============  ========================================================  ==========================================
``fifo``       none                                                      unused
``lifo``       minus the time of arrival                                 unused
``random``     drawn among those that wait, each time                    unused
``priority``   the value                                                 a priority, the least first (flow sizes: SJF)
``fair``       finish tag of self-clocked fair queueing                  unused
``lstf``       slack left, plus arrival, plus transmission time          slack in ns; all 0: FIFO+
``edf``        deadline at this port, from the wanted exit               wanted exit in ns
``bands``      number of bits of the slack left, see :class:`Bands`      slack in ns
=============  ========================================================  ==========================================

``lstf`` is Mittal's thesis, section 5.4: the slack left counts to the last bit. ``edf`` is section A.4. Both serve the
same packet, at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.sim_bridge import _native

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
Scheduler = Literal["fifo", "lifo", "random", "priority", "fair", "lstf", "edf", "bands"]
Drop = Literal["arrival", "largest_key", "longest_queue"]

UNLIMITED_BYTES = 1 << 60


@dataclass(frozen=True, eq=False)
class PortNetwork:
    """Ports of switches, and the routes through them."""

    rate_bps: Int64  #: int64[ports]
    delay_ns: Int64  #: int64[ports], propagation to the next port
    owner: Int32  #: int32[ports], the switch whose buffer a port shares
    #: int64[routes + 1], where each route begins in `route_ports`
    route_begin: Int64
    route_ports: Int32  #: int32, ports of all routes, 1 to 64 each

    @property
    def switches(self) -> int:
        """Number of switches."""
        return int(self.owner.max()) + 1

    def transmission_ns(self, size_bytes: NDArray[np.integer], port: NDArray[np.integer] | int) -> Int64:
        """Time to send packets on ports, rounded up: int64[packets]."""
        bits = np.asarray(size_bytes, np.int64) * 8_000_000_000
        return np.asarray(-(-bits // self.rate_bps[port]), np.int64)

    def least_ns(self, packets: Packets) -> Int64:
        """Time from the first port to the exit of packets that never wait, t_min: int64[packets]."""
        hops = np.diff(self.route_begin)[packets.route]
        begin = self.route_begin[packets.route]
        least = np.zeros(len(packets.route), np.int64)
        for hop in range(int(hops.max(initial=0))):
            there = hops > hop
            port = self.route_ports[begin[there] + hop]
            least[there] += self.transmission_ns(packets.size_bytes[there], port)
            least[there] += np.where(hops[there] > hop + 1, self.delay_ns[port], 0)
        return least


@dataclass(frozen=True, eq=False)
class Packets:
    """Packets that come to the first port of their routes at known times."""

    arrival_ns: Int64  #: int64[packets], at least 0, in any order
    size_bytes: Int32  #: int32[packets], 1 to 2**20
    flow: Int32  #: int32[packets], for fair queueing
    route: Int32  #: int32[packets], a route of the network

    def __post_init__(self) -> None:
        for name, kind in (("arrival_ns", np.int64), ("size_bytes", np.int32), ("flow", np.int32), ("route", np.int32)):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), kind))

    @property
    def flow_bytes(self) -> Int64:
        """Bytes of the flow of each packet, the priority of shortest job first: int64[packets]."""
        return np.bincount(self.flow, self.size_bytes).astype(np.int64)[self.flow]


@dataclass(frozen=True)
class Bands:
    """Strict priorities by slack, as a switch without sorted queues can have them.

    A packet that may still wait w ns goes to the band with the number of bits of w >> `shift`, at most `count` - 1; one
    that is late goes to band 0. So a band is twice as wide as the one before it, but for the first two.
    """

    count: int = 8  #: 1 to 64
    shift: int = 10  #: the first band is 2**shift ns wide, 0 to 46

    def __post_init__(self) -> None:
        if not 1 <= self.count <= 64:
            raise ForetailError(f"count = {self.count}: choose 1 to 64 bands")
        if not 0 <= self.shift <= 46:
            raise ForetailError(f"shift = {self.shift}: slack has 48 bits, choose a first band of 0 to 46")


@dataclass(frozen=True, eq=False)
class Exits:
    """Where packets came out."""

    exit_ns: Int64  #: int64[packets], when the last bit left; -1 where the packet was dropped
    congested: NDArray[np.uint8]  #: uint8[packets], ports that were busy when the packet came to them

    @property
    def dropped(self) -> int:
        """Number of packets that were dropped."""
        return int((self.exit_ns < 0).sum())


def topology_of(
    network: PortNetwork, scheduler: Scheduler | Sequence[Scheduler], buffer_bytes: int | Int64
) -> _native.ScheduledTopology:
    """The native form of a network whose ports have one scheduler, or one each."""
    ports = len(network.rate_bps)
    schedulers = [scheduler] * ports if isinstance(scheduler, str) else list(scheduler)
    buffers = np.broadcast_to(np.asarray(buffer_bytes, np.int64), network.switches)
    return _native.ScheduledTopology(
        np.ascontiguousarray(network.rate_bps, np.int64),
        np.ascontiguousarray(network.delay_ns, np.int64),
        np.ascontiguousarray(network.owner, np.int32),
        schedulers,
        np.ascontiguousarray(buffers),
        np.ascontiguousarray(network.route_begin, np.int64),
        np.ascontiguousarray(network.route_ports, np.int32),
    )


def run(
    network: PortNetwork,
    packets: Packets,
    scheduler: Scheduler | Sequence[Scheduler],
    values: Int64 | None = None,
    *,
    buffer_bytes: int | Int64 = UNLIMITED_BYTES,
    drop: Drop = "arrival",
    preemptive: bool = False,
    bands: Bands | None = None,
    seed: int = 0,
) -> Exits:
    """Send packets through a network, with no sender that reacts.

    Parameters
    ----------
    scheduler
        That of all ports, or a sequence with one per port.
    values
        int64[packets], what the scheduler goes by; 0 where nothing is given.
    buffer_bytes
        Of each switch, or int64[switches]; its ports share it.
    drop
        Which packet goes when a buffer is full: ``arrival``; ``largest_key``, the one of the switch that would be
        served last, with ``lstf`` that of the largest slack (Mittal's thesis, section 5.2); ``longest_queue``, the last
        one of the longest queue (LQD).
    preemptive
        Whether an arrival with a lesser key interrupts a transmission, which goes on later.
    seed
        Of the scheduler ``random``.

    ForetailError on an unknown scheduler or rule, or a value out of range.
    """
    bands = bands or Bands()
    values = np.zeros(len(packets.arrival_ns), np.int64) if values is None else values
    if len(packets.arrival_ns) != len(values):
        raise ForetailError(f"there are {len(packets.arrival_ns)} packets and {len(values)} values: give one each")
    exit_ns, congested = _native.run_packets(
        topology_of(network, scheduler, buffer_bytes),
        packets.arrival_ns,
        packets.size_bytes,
        packets.flow,
        packets.route,
        np.ascontiguousarray(values, np.int64),
        drop=drop,
        preemptive=preemptive,
        bands=bands.count,
        band_shift=bands.shift,
        seed=seed,
    )
    return Exits(exit_ns, congested)
