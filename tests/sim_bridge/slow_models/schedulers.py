"""A network of ports with schedulers, slow and obvious: at every nanosecond that matters, every port looks at all."""

from __future__ import annotations

import numpy as np

from foretail.sim_bridge.schedulers.network import Packets, PortNetwork


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
