"""Networks of ports with schedulers against a slow one, and the theorems of universal packet scheduling."""

from __future__ import annotations

from dataclasses import replace
from math import log2
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail_studies.engines.schedulers import (
    EDGES,
    SEGMENT_BYTES,
    Bands,
    Flows,
    HostNetwork,
    Packets,
    PortNetwork,
    Scheduler,
    _Ports,
    completion_slack,
    expected_reduction,
    internet2,
    poisson_flows,
    replay,
    run,
    run_flows,
    slack_ns,
    tail_slack,
)
from tests.refusals import refusing


def slow_run(
    network: PortNetwork, packets: Packets, scheduler: str, values: list[int], *, preemptive: bool = False
) -> list[int]:
    """When the last bit of each packet leaves: O(n^2), for fifo, lifo, priority, lstf and edf."""
    n = len(packets.arrival_ns)
    routes = [network.route_ports[slice(*network.route_begin[route : route + 2])].tolist() for route in packets.route]
    hop, here_ns, waited = [0] * n, packets.arrival_ns.tolist(), [0] * n
    left = [0] * n  # of a transmission that has begun
    exits = [-1] * n
    serving: dict[int, tuple[int, int]] = {}  # packet and since when, by port

    def send_ns(packet: int, port: int) -> int:
        return -(-int(packets.size_bytes[packet]) * 8_000_000_000 // int(network.rate_bps[port]))

    def rest_ns(packet: int) -> int:
        route = routes[packet][hop[packet] :]
        return sum(send_ns(packet, port) for port in route) + int(network.delay_ns[route[:-1]].sum())

    def order(packet: int, now: int) -> tuple[int, int, int]:
        port = routes[packet][hop[packet]]
        key = {
            "fifo": 0,
            "lifo": -here_ns[packet],
            "priority": values[packet],
            # Slack of the last bit, from the definition: wanted exit less now, less the rest of the way, plus this hop.
            "lstf": values[packet] - waited[packet] - (now - here_ns[packet]) + send_ns(packet, port),
            "edf": values[packet] - rest_ns(packet) + send_ns(packet, port),
        }[scheduler]
        return key, here_ns[packet], packet

    now = 0
    while min(exits) < 0:
        for port, (packet, since) in list(serving.items()):
            if since + left[packet] == now:
                del serving[port]
                waited[packet] += now - here_ns[packet] - send_ns(packet, port)
                hop[packet] += 1
                left[packet] = 0
                here_ns[packet] = now + int(network.delay_ns[port])
                if hop[packet] == len(routes[packet]):
                    exits[packet] = now
        for port in range(len(network.rate_bps)):
            there = [p for p in range(n) if exits[p] < 0 and routes[p][hop[p]] == port and here_ns[p] <= now]
            if not there:
                continue
            best = min(there, key=lambda packet: order(packet, now))
            if port in serving:
                if not preemptive or best == serving[port][0]:
                    continue
                packet, since = serving[port]
                left[packet] -= now - since
            if left[best] == 0:
                left[best] = send_ns(best, port)
            serving[port] = best, now
        events = [since + left[packet] for packet, since in serving.values()]
        events += [here_ns[p] for p in range(n) if exits[p] < 0 and here_ns[p] > now]
        if events:
            now = min(events)
    return exits


def chain(ports: int, rates: list[int], delays: list[int], routes: list[list[int]]) -> PortNetwork:
    """A network of ports of switches of their own."""
    return PortNetwork(
        np.array(rates, np.int64),
        np.array(delays, np.int64),
        np.arange(ports, dtype=np.int32),
        np.cumsum([0, *map(len, routes)], dtype=np.int64),
        np.array([port for route in routes for port in route], np.int32),
    )


def slow_band(slack_ns: int, count: int, shift: int) -> int:
    """The strict priority of a packet with so much slack."""
    return min(count - 1, max(0, slack_ns >> shift).bit_length())


SERVED: tuple[Scheduler, ...] = ("fifo", "lifo", "priority", "lstf", "edf")
BYTE_NS = 8_000_000_000  # rate in bit/s of a byte per ns


@st.composite
def networks(draw: st.DrawFn, *, most_hops: int = 4, most_ports: int = 5) -> tuple[PortNetwork, Packets]:
    """Small networks, whose ports send a byte in 1 to 3 ns, and packets that meet in them."""
    ports = draw(st.integers(1, most_ports))
    rates = [BYTE_NS // draw(st.sampled_from([1, 2, 3])) for _ in range(ports)]
    delays = [draw(st.integers(0, 4)) for _ in range(ports)]
    hops = st.lists(st.integers(0, ports - 1), min_size=1, max_size=min(most_hops, ports), unique=True)
    routes = draw(st.lists(hops, min_size=1, max_size=4))
    return chain(ports, rates, delays, routes), draw(packets_on(len(routes)))


@st.composite
def packets_on(draw: st.DrawFn, routes: int) -> Packets:
    n = draw(st.integers(1, 12))
    column = st.lists(st.integers(0, 25), min_size=n, max_size=n)
    sizes = draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
    flow = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    route = draw(st.lists(st.integers(0, routes - 1), min_size=n, max_size=n))
    return Packets(*(np.array(one) for one in (draw(column), sizes, flow, route)))


@given(networks(), st.sampled_from(SERVED), st.booleans(), st.data())
def test_every_scheduler_serves_what_the_slow_network_serves(
    drawn: tuple[PortNetwork, Packets], scheduler: Scheduler, preemptive: bool, data: st.DataObject
) -> None:
    network, packets = drawn
    n = len(packets.flow)
    values = data.draw(st.lists(st.integers(-20, 60), min_size=n, max_size=n))
    fast = run(network, packets, scheduler, np.array(values), preemptive=preemptive)
    assert fast.exit_ns.tolist() == slow_run(network, packets, scheduler, values, preemptive=preemptive)


@given(networks(), st.sampled_from(["fifo", "lifo", "random", "fair"]), st.booleans())
def test_least_slack_and_edf_are_the_same(
    drawn: tuple[PortNetwork, Packets], original: Scheduler, preemptive: bool
) -> None:
    network, packets = drawn
    exits = run(network, packets, original, seed=5)
    replays = [
        replay(network, packets, exits, scheduler=one, preemptive=preemptive).lateness_ns for one in ("lstf", "edf")
    ]
    assert replays[0].tolist() == replays[1].tolist()


@given(st.data(), st.sampled_from(["lifo", "random", "fair"]))
def test_two_congestion_points_are_replayed(data: st.DataObject, original: Scheduler) -> None:
    network, packets = data.draw(networks(most_hops=2))
    exits = run(network, packets, original, seed=data.draw(st.integers(0, 9)))
    assert replay(network, packets, exits, preemptive=True).overdue == 0


@given(st.data(), st.sampled_from(["lifo", "random", "fair"]))
def test_one_congestion_point_is_replayed_by_static_priorities(data: st.DataObject, original: Scheduler) -> None:
    network, packets = data.draw(networks(most_hops=1))
    exits = run(network, packets, original, seed=data.draw(st.integers(0, 9)))
    assert replay(network, packets, exits, scheduler="priority", preemptive=True).overdue == 0


def test_three_congestion_points_are_not() -> None:
    """Figure A.3 of Mittal's thesis, in units of 10 ns, with one port for each congestion point."""
    network = chain(3, [BYTE_NS] * 3, [0] * 3, [[0, 1, 2], [0], [1], [2]])
    a, b, c, d = 0, 1, 2, 3
    route = [a, b, c, c, d, d]
    arrival = np.array([0, 0, 20, 30, 20, 30])
    packets = Packets(arrival, np.full(6, 10), np.array(route), np.array(route))
    wanted = np.array([50, 20, 30, 40, 30, 40])  # a first at each of its ports, but behind both of d
    assert slack_ns(network, packets, wanted).tolist() == [20, 10, 0, 0, 0, 0]
    assert (replay(network, packets, wanted).lateness_ns > 0).any()


def test_fair_queueing_gives_flows_the_same() -> None:
    network = chain(1, [BYTE_NS], [0], [[0]])
    flow = np.repeat([0, 1], [8, 4])
    packets = Packets(np.zeros(12), np.full(12, 10), flow, np.zeros(12))  # type: ignore[arg-type]
    exits = run(network, packets, "fair").exit_ns
    assert sorted(exits[flow == 1].tolist()) == [20, 40, 60, 80]
    assert run(network, packets, "fifo").exit_ns[flow == 1].tolist() == [90, 100, 110, 120]


def test_push_out_rules() -> None:
    """A switch of two ports and room for three packets of 10 bytes; the one being sent is safe."""
    network = PortNetwork(
        np.full(2, BYTE_NS), np.zeros(2, np.int64), np.zeros(2, np.int32), np.arange(3), np.array([0, 1], np.int32)
    )
    # Port 0 gets three packets, then port 1 gets one.
    packets = Packets(np.array([0, 1, 2, 3]), np.full(4, 10), np.zeros(4), np.array([0, 0, 0, 1]))  # type: ignore[arg-type]
    slack = np.array([90, 80, 10, 50])

    def lost(scheduler: Scheduler, drop: Any) -> list[int]:
        exits = run(network, packets, scheduler, slack, buffer_bytes=30, drop=drop)
        return np.flatnonzero(exits.exit_ns < 0).tolist()

    assert lost("fifo", "arrival") == [3]
    assert lost("fifo", "longest_queue") == [2]
    assert lost("lstf", "longest_queue") == [1]
    assert lost("lstf", "largest_key") == [1]
    assert run(network, packets, "lstf", slack, buffer_bytes=40).exit_ns.min() >= 0


@given(st.integers(1, 12), st.integers(0, 12), st.lists(st.integers(-(2**40), 2**40), min_size=1))
def test_packets_leave_by_band(count: int, shift: int, slack: list[int]) -> None:
    """Packets that come together leave by band, and in a band by number."""
    bands = Bands(count, shift)
    slow = [slow_band(one, count, shift) for one in slack]
    n = len(slack)
    packets = Packets(np.zeros(n), np.full(n, 1), np.zeros(n), np.zeros(n))  # type: ignore[arg-type]
    exits = run(chain(1, [BYTE_NS], [0], [[0]]), packets, "bands", np.array(slack), bands=bands).exit_ns
    assert np.argsort(exits).tolist() == sorted(range(n), key=lambda packet: (slow[packet], packet))


def test_slack_for_goals() -> None:
    packets = Packets(
        np.array([0, 500, 2_000, 90_000]),
        np.full(4, 1_500),
        np.array([0, 0, 0, 1]),
        np.zeros(4),  # type: ignore[arg-type]
    )
    assert completion_slack(packets).tolist() == [4 * 10**9] * 3 + [2 * 10**9]
    assert tail_slack(packets).tolist() == [10**9] * 4


unknown: Any = "sorted"


RATE_BPS, ROUND_TRIP_NS = 10**9, 4_000_000
PACKET_NS, ANSWER_NS = 12_000, 320  # of 1,500 and 40 bytes
LEAST_NS = ROUND_TRIP_NS + PACKET_NS + 2 * ANSWER_NS  # from the end of a packet's transmission to its acknowledgement


def star(hosts: int, *, rate_bps: int, round_trip_ns: int) -> HostNetwork:
    """Hosts at one switch, all at one rate; routes begin at ports of hosts, and `core` has the ports of the switch."""
    ports = _Ports()
    first = [ports.add(1 + host, rate_bps, round_trip_ns // 2) for host in range(hosts)]
    out = [ports.add(0, rate_bps) for _ in range(hosts)]
    network, routes = ports.joined(hosts, 1, lambda source, destination, _: [first[source], out[destination]])
    return HostNetwork(network, routes, network.owner == 0)


def switch() -> HostNetwork:
    return star(4, rate_bps=RATE_BPS, round_trip_ns=ROUND_TRIP_NS)


def flows(hosts: HostNetwork, *drawn: tuple[int, int, int, int]) -> Flows:
    """Flows of so many packets: start in ns, packets, source and destination."""
    start, packets, source, destination = np.array(drawn).T
    return Flows(
        start,
        packets * SEGMENT_BYTES,
        source.astype(np.int32),
        destination.astype(np.int32),
        np.ascontiguousarray(hosts.routes[source, destination, 0]),
    )


def slow_tcp_ns(packets: int, window: int, growth: float) -> int:
    """Completion time of a flow of TCP that is alone: every acknowledgement opens the window of slow start."""
    sent = free = answered = 0
    size = float(window)
    answers: list[int] = []
    now = 0
    while answered < packets:
        while sent < packets and sent - answered < int(size):
            free = max(free, now) + PACKET_NS
            answers.append(free + LEAST_NS)
            sent += 1
        now = answers[answered]
        answered += 1
        size += growth
    return now


@given(st.integers(1, 900), st.integers(1, 20), st.sampled_from([1.0, 0.5]))
def test_tcp_alone_is_the_slow_one(packets: int, window: int, growth: float) -> None:
    hosts = switch()
    run = run_flows(
        hosts,
        flows(hosts, (5, packets, 0, 1)),
        fills=False,
        buffer_ns=10**9,
        first_window=window,
        growth=growth,
        handshake=False,
    )
    assert run.fct_ns.tolist() == [slow_tcp_ns(packets, window, growth)]
    assert run.sent.tolist() == [packets, *[0] * 7]


@given(st.integers(5, 300), st.sampled_from(["text", "kernel"]))
def test_rc3_alone_takes_a_round_trip_and_its_own_time(packets: int, edges: Any) -> None:
    """While nothing is acknowledged, four packets go from the front and all others from the end, each once."""
    hosts = switch()
    one = flows(hosts, (0, packets, 0, 1))
    run = run_flows(hosts, one, fills=True, buffer_ns=10**9, edges=EDGES[edges], handshake=False)
    assert run.fct_ns.tolist() == [packets * PACKET_NS + LEAST_NS]
    first = min(packets - 4, 40)
    assert run.sent.tolist()[1:3] == [first, packets - 4 - first]
    assert run.sent[0] >= 4, "with what the first loop sends when its acknowledgements come before the others"
    later = run_flows(hosts, one, fills=True, buffer_ns=10**9)
    assert (later.fct_ns - run.fct_ns).tolist() == [ROUND_TRIP_NS], "the handshake"


def test_the_example_of_the_thesis() -> None:
    """Section 2.1.2: 66 packets where a round trip holds 50; the second loop sends while the first one waits."""
    hosts = star(2, rate_bps=RATE_BPS, round_trip_ns=50 * PACKET_NS)
    run = run_flows(hosts, flows(hosts, (0, 66, 0, 1)), fills=True, buffer_ns=10**9, handshake=False)
    assert run.sent[1] == 40
    assert run.sent[0] + run.sent[2] >= 26
    assert 66 * PACKET_NS < run.fct_ns[0] < 2 * 66 * PACKET_NS
    long = star(2, rate_bps=RATE_BPS, round_trip_ns=10**9)
    one = flows(long, (0, 460, 0, 1))
    text, kernel = (run_flows(long, one, fills=True, buffer_ns=10**9, edges=edges).sent for edges in EDGES.values())
    assert text[1:4].tolist() == [40, 400, 16]
    assert kernel[1:4].tolist() == [40, 360, 56]


@given(st.integers(0, 2**31), st.integers(1, 40))
def test_what_rc3_fills_does_not_delay_tcp(seed: int, buffer_packets: int) -> None:
    """A flow of TCP beside one of RC3 waits at most for one packet of it at each of two ports, each time it sends."""
    hosts = switch()
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 60, 2)
    pair = flows(hosts, (0, int(sizes[0]), 0, 2), (int(random.integers(0, 10**6)), int(sizes[1]), 1, 3))
    beside = replace(pair, destination=pair.destination, route=np.ascontiguousarray(hosts.routes[[0, 1], [2, 2], 0]))
    fills = np.array([False, True])
    buffer_ns = buffer_packets * PACKET_NS + 30 * 60 * PACKET_NS
    alone = run_flows(hosts, pair, fills=fills, buffer_ns=buffer_ns).fct_ns
    crossed = run_flows(
        hosts, replace(beside, destination=np.array([2, 2], np.int32)), fills=fills, buffer_ns=buffer_ns, first_window=1
    )
    same = run_flows(hosts, pair, fills=fills, buffer_ns=buffer_ns, first_window=1).fct_ns
    assert alone[0] <= same[0]
    rounds = int(sizes[0])  # every round sends at least a packet
    own_first_loop = int(crossed.sent[0]) - int(sizes[0])
    assert crossed.fct_ns[0] - same[0] <= (rounds + own_first_loop) * PACKET_NS + rounds * ANSWER_NS


@pytest.mark.parametrize("fills", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_flow_ends_whatever_is_lost(fills: bool, seed: int) -> None:
    """Buffers of five packets under twice the load."""
    hosts = internet2(1, edge_bps=10**8, host_bps=10**8, with_host_ports=True, mean_round_trip_ns=4_000_000)
    drawn = poisson_flows(hosts, load=0.8, flows=150, seed=seed, loaded_ports=hosts.core, most_bytes=300_000)
    run = run_flows(hosts, drawn, fills=fills, buffer_ns=5 * 120_000)
    assert run.fct_ns.min() > 0
    assert run.dropped.sum() > 0
    assert run.sent.sum() - run.dropped.sum() >= (-(-drawn.size_bytes // SEGMENT_BYTES)).sum()


def test_expected_reduction() -> None:
    """With i = 4 and room for 256 packets: 64 packets take 4 round trips and N / A of one, RC3 one and N / A."""
    assert expected_reduction(64, available_packets=256) == pytest.approx(100 * (1 - 1.25 / 4.25))
    assert expected_reduction(4, available_packets=256) == 0
    assert expected_reduction(4, available_packets=256, whole=True) == 0
    for packets, rounds in ((12, 2), (13, 3), (28, 3), (60, 4)):  # windows of 4, 8, 16 and 32
        own = packets / 256
        expected = 100 * (1 - (1 + own) / (rounds + own))
        assert expected_reduction(packets, available_packets=256, whole=True) == pytest.approx(expected)
    long = 100_000
    approximate = 100 * log2(256 / 4) * 256 / long  # the rule for long flows of section 2.2
    assert expected_reduction(long, available_packets=256) == pytest.approx(approximate, rel=0.2)


def one_flow(**settings: Any) -> Any:
    return run_flows(switch(), flows(switch(), (0, 1, 0, 1)), fills=True, buffer_ns=1, **settings)


PORT = chain(1, [BYTE_NS], [0], [[0]])
PAIR = Packets(*(np.array([value] * 2) for value in (0, 10, 0, 0)))
test_what_cannot_be_is_refused = refusing(
    (lambda: run(PORT, PAIR, unknown), "unknown scheduler 'sorted'"),
    (lambda: run(PORT, PAIR, "random", drop="largest_key"), "choose drop=arrival"),
    (lambda: run(PORT, Packets(PAIR.arrival_ns, PAIR.size_bytes, PAIR.flow, PAIR.route + 9), "fifo"), "route is 9"),
    (lambda: one_flow(edges=[40, 30]), "not in increasing order"),
    (lambda: one_flow(first_window=0), "first_window is 0"),
    (lambda: one_flow(growth=0.0), "growth must be above 0"),
    (lambda: one_flow(timeout_ns=0), "timeout_ns is 0"),
)
