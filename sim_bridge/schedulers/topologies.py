"""Networks of ports: ten routers across the United States with edge switches, a star, and a fat-tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path

from foretail.core.errors import ForetailError
from foretail.sim_bridge.schedulers.network import Int32, Int64, PortNetwork

LINKS_KM = {
    ("Seattle", "Salt Lake City"): 1130,
    ("Seattle", "Los Angeles"): 1540,
    ("Seattle", "Chicago"): 2790,
    ("Los Angeles", "Salt Lake City"): 930,
    ("Los Angeles", "Houston"): 2200,
    ("Salt Lake City", "Kansas City"): 1480,
    ("Kansas City", "Houston"): 1040,
    ("Kansas City", "Chicago"): 660,
    ("Houston", "Atlanta"): 1130,
    ("Chicago", "Atlanta"): 950,
    ("Chicago", "Cleveland"): 500,
    ("Chicago", "New York"): 1150,
    ("Cleveland", "New York"): 650,
    ("Cleveland", "Washington"): 490,
    ("Atlanta", "Washington"): 870,
    ("Washington", "New York"): 330,
}
"""Ten routers and 16 links after public maps of Internet2, with the distance as the crow flies.

Theses that simulate "a simplified Internet2 with 10 switches and 16 links" do not print theirs.
"""

NS_PER_KM = 5000
"""Propagation in fibre."""


@dataclass(frozen=True, eq=False)
class HostNetwork:
    """A network with hosts, and a route for each pair of them."""

    network: PortNetwork
    #: int32[hosts, hosts, choices], routes of each pair, among which flows choose; -1 to itself
    routes: Int32
    core: NDArray[np.bool_]  #: bool[ports], those between routers, in a fat-tree between switches

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return len(self.routes)

    def round_trip_ns(self, source: Int32, destination: Int32) -> Int64:
        """Propagation from hosts to others and back, of the first choice of route: int64[pairs]."""
        network = self.network
        total = np.zeros(len(source), np.int64)
        for route in (self.routes[source, destination, 0], self.routes[destination, source, 0]):
            delays = np.concatenate(([0], np.cumsum(network.delay_ns[network.route_ports])))
            total += delays[network.route_begin[route + 1] - 1] - delays[network.route_begin[route]]
        return total

    def load_of(self, pairs: NDArray[np.integer], size_bytes: NDArray[np.integer]) -> NDArray[np.float64]:
        """Bits that flows with these routes bring to each port: float64[ports]."""
        network = self.network
        bits = np.zeros(len(network.rate_bps))
        hops = np.diff(network.route_begin)
        for hop in range(int(hops.max())):
            there = hops[pairs] > hop
            port = network.route_ports[network.route_begin[pairs[there]] + hop]
            bits += np.bincount(port, 8.0 * size_bytes[there], minlength=len(bits))
        return bits


class _Ports:
    """Ports in the making."""

    def __init__(self) -> None:
        self.rate_bps: list[int] = []
        self.delay_ns: list[int] = []
        self.owner: list[int] = []

    def add(self, owner: int, rate_bps: int, delay_ns: int = 0) -> int:
        self.owner.append(owner)
        self.rate_bps.append(rate_bps)
        self.delay_ns.append(delay_ns)
        return len(self.owner) - 1

    def joined(
        self, hosts: int, choices: int, route: Callable[[int, int, int], list[int]]
    ) -> tuple[PortNetwork, Int32]:
        """The network, and int32[hosts, hosts, choices] of its routes, of which `route` returns the ports."""
        keys = [(a, b, choice) for a in range(hosts) for b in range(hosts) if a != b for choice in range(choices)]
        routes = np.full((hosts, hosts, choices), -1, np.int32)
        routes[*np.array(keys).T] = np.arange(len(keys))
        ports = [route(*key) for key in keys]
        network = PortNetwork(
            np.array(self.rate_bps, np.int64),
            np.array(self.delay_ns, np.int64),
            np.array(self.owner, np.int32),
            np.cumsum([0, *map(len, ports)], dtype=np.int64),
            np.concatenate(ports).astype(np.int32),
        )
        return network, routes


def _path(before: NDArray[np.integer], here: int, there: int) -> list[int]:
    path = [there]
    while path[-1] != here:
        path.append(int(before[here, path[-1]]))
    return path[::-1]


def internet2(
    edges_per_router: int,
    *,
    edge_bps: int,
    host_bps: int,
    provisioned_bps: int | None = None,
    with_host_ports: bool = False,
    mean_round_trip_ns: int | None = None,
) -> HostNetwork:
    """Ten routers, each with edge switches of one host; routes are the shortest by distance.

    Parameters
    ----------
    edge_bps, host_bps
        Rates between routers and edge switches, and between edge switches and hosts.
    provisioned_bps
        A link between routers carries what it gets, in whole Gbit/s or those of an edge link if that is slower, when
        each edge switch sends at this rate to all others evenly; None: at `edge_bps`. So even traffic loads all links
        alike.
    with_host_ports
        Whether routes begin at ports of hosts, as where senders react, or at edge switches.
    mean_round_trip_ns
        Propagation there and back, as a mean over pairs of hosts at different routers; delays are scaled to it.
        Without it, light in fibre sets them.
    """
    if edges_per_router < 1:
        raise ForetailError(f"edges_per_router = {edges_per_router}: each router needs at least one edge switch")
    names = sorted({name for link in LINKS_KM for name in link})
    n = len(names)
    km = np.zeros((n, n))
    for (one, other), length in LINKS_KM.items():
        km[names.index(one), names.index(other)] = km[names.index(other), names.index(one)] = length
    distance, before = shortest_path(csr_matrix(km), return_predecessors=True)
    scale = float(NS_PER_KM)
    if mean_round_trip_ns is not None:
        scale = mean_round_trip_ns / (2 * distance.sum() / (n * (n - 1)))
    ports, hosts = _Ports(), n * edges_per_router
    paths = {(here, there): _path(before, here, there) for here in range(n) for there in range(n)}
    crossing = Counter(link for path in paths.values() for link in pairwise(path))
    provisioned, unit_bps = provisioned_bps or edge_bps, min(edge_bps, 1_000_000_000)
    core = {
        (one, other): ports.add(
            one,
            unit_bps * ceil(crossing[one, other] * edges_per_router**2 * provisioned / (hosts - 1) / unit_bps),
            round(km[one, other] * scale),
        )
        for one, other in crossing
    }
    up = [ports.add(n + host, edge_bps) for host in range(hosts)]
    down = [ports.add(host // edges_per_router, edge_bps) for host in range(hosts)]
    out = [ports.add(n + host, host_bps) for host in range(hosts)]
    first = [ports.add(n + hosts + host, host_bps) for host in range(hosts)] if with_host_ports else []

    def route(source: int, destination: int, _: int) -> list[int]:
        path = paths[source // edges_per_router, destination // edges_per_router]
        middle = [core[link] for link in pairwise(path)]
        return [*first[source : source + 1], up[source], *middle, down[destination], out[destination]]

    network, routes = ports.joined(hosts, 1, route)
    return HostNetwork(network, routes, np.arange(len(network.owner)) < len(core))


def star(hosts: int, *, rate_bps: int, round_trip_ns: int) -> HostNetwork:
    """Hosts at one switch, all at one rate; routes begin at ports of hosts, and `core` has the ports of the switch."""
    if hosts < 2:
        raise ForetailError(f"hosts = {hosts}: a star needs at least two")
    ports = _Ports()
    first = [ports.add(1 + host, rate_bps, round_trip_ns // 2) for host in range(hosts)]
    out = [ports.add(0, rate_bps) for _ in range(hosts)]
    network, routes = ports.joined(hosts, 1, lambda source, destination, _: [first[source], out[destination]])
    return HostNetwork(network, routes, network.owner == 0)


def fat_tree(degree: int, *, rate_bps: int, delay_ns: int = 1000) -> HostNetwork:
    """A fat-tree of switches with `degree` ports, all at one rate: degree^3 / 4 hosts, (degree / 2)^2 routes a pair."""
    if degree < 2 or degree % 2:
        raise ForetailError(f"degree = {degree}: a fat-tree needs switches with an even number of ports, at least 2")
    half = degree // 2
    ports, hosts = _Ports(), degree * half * half
    edges = degree * half
    edge_up = [[ports.add(edge, rate_bps, delay_ns) for _ in range(half)] for edge in range(edges)]
    pod_up = [[ports.add(edges + one, rate_bps, delay_ns) for _ in range(half)] for one in range(edges)]
    core_down = [[ports.add(2 * edges + one, rate_bps, delay_ns) for _ in range(degree)] for one in range(half * half)]
    pod_down = [[ports.add(edges + one, rate_bps, delay_ns) for _ in range(half)] for one in range(edges)]
    out = [ports.add(host // half, rate_bps) for host in range(hosts)]

    def route(source: int, destination: int, choice: int) -> list[int]:
        edge, last = source // half, destination // half
        pod, last_pod = edge // half, last // half
        middle, core = divmod(choice, half)
        if edge == last:
            return [out[destination]]
        if pod == last_pod:
            return [edge_up[edge][middle], pod_down[pod * half + middle][last % half], out[destination]]
        return [
            edge_up[edge][middle],
            pod_up[pod * half + middle][core],
            core_down[choice][last_pod],
            pod_down[last_pod * half + middle][last % half],
            out[destination],
        ]

    network, routes = ports.joined(hosts, half * half, route)
    return HostNetwork(network, routes, network.delay_ns > 0)
