"""Flows of heavy-tailed sizes that come at random, and the packets of those that do not react."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.sim_bridge.schedulers.network import Int32, Int64, Packets
from foretail.sim_bridge.schedulers.topologies import HostNetwork

PACKET_BYTES = 1500


@dataclass(frozen=True, eq=False)
class Flows:
    """Flows in order of their start."""

    start_ns: Int64  #: int64[flows]
    size_bytes: Int64  #: int64[flows]
    source: Int32  #: int32[flows], host
    destination: Int32  #: int32[flows], another host
    route: Int32  #: int32[flows], route of the network


def pareto_bytes(count: int, random: np.random.Generator, *, shape: float, least_bytes: int, most_bytes: int) -> Int64:
    """Flow sizes of a Pareto distribution that is cut at both ends: int64[count]."""
    high = (least_bytes / most_bytes) ** shape
    sizes = least_bytes * (1 - random.random(count) * (1 - high)) ** (-1 / shape)
    return np.asarray(np.clip(sizes, least_bytes, most_bytes), np.int64)


def poisson_flows(
    hosts: HostNetwork,
    *,
    load: float,
    flows: int,
    seed: int,
    loaded_ports: NDArray[np.bool_],
    shape: float = 1.1,
    least_bytes: int = PACKET_BYTES,
    most_bytes: int = 3_000_000,
) -> Flows:
    """Flows between random hosts, as a Poisson process.

    Parameters
    ----------
    load
        Mean utilisation of `loaded_ports` over the time in which flows begin, above 0.
    loaded_ports
        bool[ports].
    shape, least_bytes, most_bytes
        Of flow sizes, see :func:`pareto_bytes`.
    """
    if load <= 0 or flows < 1:
        raise ForetailError(f"load = {load} and flows = {flows}: both must be above 0")
    random = np.random.default_rng(seed)
    source = random.integers(hosts.hosts, size=flows)
    destination = (source + random.integers(1, hosts.hosts, size=flows)) % hosts.hosts
    route = hosts.routes[source, destination, random.integers(hosts.routes.shape[2], size=flows)]
    size = pareto_bytes(flows, random, shape=shape, least_bytes=least_bytes, most_bytes=most_bytes)
    bits = hosts.load_of(route, size)[loaded_ports]
    end_ns = 1e9 * float((bits / hosts.network.rate_bps[loaded_ports]).mean()) / load
    start = np.sort(random.random(flows) * end_ns).astype(np.int64)
    return Flows(start, size, source.astype(np.int32), destination.astype(np.int32), route.astype(np.int32))


def udp_packets(flows: Flows, host_bps: int) -> Packets:
    """Packets of flows that send all they have at once, each host first in first out at its rate.

    The arrival is when the last bit of a packet has left its host.
    """
    counts = -(-flows.size_bytes // PACKET_BYTES)
    flow = np.repeat(np.arange(len(counts)), counts)
    size = np.full(len(flow), PACKET_BYTES, np.int64)
    size[np.cumsum(counts) - 1] = flows.size_bytes - (counts - 1) * PACKET_BYTES
    arrival = np.empty(len(flow), np.int64)
    for host in range(int(flows.source.max()) + 1):
        own = np.flatnonzero(flows.source[flow] == host)
        busy = np.cumsum(-(-size[own] * 8_000_000_000 // host_bps))
        before = np.concatenate(([0], busy[:-1]))
        arrival[own] = busy + np.maximum.accumulate(flows.start_ns[flow[own]] - before)
    return Packets(arrival, size.astype(np.int32), flow.astype(np.int32), flows.route[flow])
