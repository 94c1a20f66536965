"""Networks of links whose schedulers know slack or priorities: LSTF, UPS's replays and RC3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log2
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path

from foretail_studies import _native

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


@dataclass(frozen=True, eq=False)
class Exits:
    """Times at which packets left the network, and how many busy ports they met."""

    exit_ns: Int64  #: int64[packets], when the last bit left; -1 where the packet was dropped
    congested: NDArray[np.uint8]  #: uint8[packets], ports that were busy when the packet came to them


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
    """
    bands = bands or Bands()
    values = np.zeros(len(packets.arrival_ns), np.int64) if values is None else values
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


def fat_tree(degree: int, *, rate_bps: int, delay_ns: int = 1000) -> HostNetwork:
    """A fat-tree of switches with `degree` ports, all at one rate: degree^3 / 4 hosts, (degree / 2)^2 routes a pair."""
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


SECOND_NS = 1_000_000_000
SEGMENT_BYTES = 1460


def completion_slack(packets: Packets) -> Int64:
    """Slack for a small mean flow completion time: packets of the flow times a time above all queueing, as SJF."""
    return np.asarray(-(-packets.flow_bytes // SEGMENT_BYTES) * SECOND_NS, np.int64)


def tail_slack(packets: Packets) -> Int64:
    """Slack for small tails of delay, the same for all: FIFO+."""
    return np.full(len(packets.flow), SECOND_NS, np.int64)


@dataclass(frozen=True)
class Replay:
    """How a replay compares with what it replays."""

    overdue: float  #: share of packets that come out later, 0 to 1
    overdue_by_more: float  #: share of packets that come out later by more than a threshold
    lateness_ns: Int64  #: int64[packets], later by so much; below 0 earlier


def slack_ns(network: PortNetwork, packets: Packets, exit_ns: Int64) -> Int64:
    """How long packets may wait in all and come out at `exit_ns`: int64[packets].

    It is the wanted exit, less the arrival, less the time through an empty network.
    """
    return np.asarray(exit_ns - packets.arrival_ns - network.least_ns(packets), np.int64)


def replay(
    network: PortNetwork,
    packets: Packets,
    original: Exits | Int64,
    *,
    scheduler: Scheduler = "lstf",
    late_ns: int = 0,
    preemptive: bool = False,
    bands: Bands | None = None,
) -> Replay:
    """Replay a schedule under another scheduler.

    Parameters
    ----------
    original
        What came out when, or int64[packets] of these times in ns.
    scheduler
        ``lstf`` and ``bands`` go by slack; ``edf`` and ``priority`` go by the time of exit.
    late_ns
        Threshold of `Replay.overdue_by_more`, in the thesis the time of a packet on the bottleneck.
    """
    exit_ns = original.exit_ns if isinstance(original, Exits) else np.asarray(original, np.int64)
    slack = slack_ns(network, packets, exit_ns)
    values = exit_ns if scheduler in ("edf", "priority") else slack
    again = run(network, packets, scheduler, values, preemptive=preemptive, bands=bands)
    late = again.exit_ns - exit_ns
    return Replay(float((late > 0).mean()), float((late > late_ns).mean()), late)


EDGES: dict[Literal["text", "kernel"], list[int]] = {
    "text": [40, 440, 4_440, 44_440],
    "kernel": [40, 400, 4_000, 40_000],
}
"""Packets from a flow's end up to which priorities 1, 2, 3 and 4 go, by section 2.1.1 and by section 2.3.1.

The text gives 400 packets priority 2, the rule of the kernel 360.
"""


@dataclass(frozen=True, eq=False)
class Completions:
    """Completion times of flows, with counts of packets and timeouts."""

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
    """
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
    rest = packets / available_packets
    windows = min(packets, available_packets) / first_window
    rounds = max(1.0, ceil(log2(windows + 1)) if whole else log2(windows))
    return 100 * (1 - (1 + rest) / (rounds + rest))
