"""Traffic that a run's settings name message by message: bursts of elephants, collectives."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from foretail.core.errors import ForetailError


class Message(NamedTuple):
    """Bytes that one server sends another over a connection; times in ns, from the start of the traffic."""

    start_ns: int  #: of the earliest start
    latest_ns: int  #: of the latest; when it is ready later, it is never sent
    size_bytes: int  #: at least 1
    source: int  #: server
    destination: int  #: another server
    connection: int  #: messages with the same number share one, and its ends
    after: Sequence[int] = ()  #: places in the list, before its own, of messages that must be delivered first
    gap_ns: int = 0  #: from the last of these deliveries to the start
    round: int = -1  #: of a collective, to which it belongs; -1: none. The driver does not ask
    spine: int = -1  #: that its packets pass, as the first message of its connection says; -1: a hash chooses


def joined(*lists: Sequence[Message]) -> list[Message]:
    """Return the messages of all lists, with numbers of their own for connections and rounds."""
    merged: list[Message] = []
    connections = rounds = 0
    for messages in lists:
        first = len(merged)
        merged += [
            message._replace(
                connection=message.connection + connections,
                after=[other + first for other in message.after],
                round=message.round + rounds if message.round >= 0 else -1,
            )
            for message in messages
        ]
        connections += 1 + max((message.connection for message in messages), default=-1)
        rounds += 1 + max((message.round for message in messages), default=-1)
    return merged


def columns(messages: Iterable[Message]) -> dict[str, list[Any]]:
    """Return the driver's form of messages: a list per field, that of spines only where a message has one."""
    rows = list(messages)
    columns = {name: [getattr(row, name) for row in rows] for name in Message._fields}
    if not any(row.spine >= 0 for row in rows):
        del columns["spine"]
    return columns


# Collective communication, step by step: a server sends what a step asks for when it has received what it needs.
#
# ``foretail.sim_bridge.arrivals.workloads`` has the patterns as one slotted switch sees them, where all
# servers start a step together. Here every server goes on by itself, so its steps are other ones.

NO_LIMIT_NS = 2**60


class Transfer(NamedTuple):
    """One message of a round, between members of a group."""

    source: int  #: member
    destination: int  #: member
    size_bytes: int
    after: Sequence[int] = ()  #: places of transfers of the round that must be delivered first


def ring_all_reduce(members: int, size_bytes: int) -> list[Transfer]:
    """Every member sums what all have: each part goes around the ring twice, first to be summed, then to be known.

    A member sends step s to the next one when it has received step s - 1 from the one before.
    """
    part = _parts(size_bytes, members)
    return [
        Transfer(
            member,
            (member + 1) % members,
            part[(member - step) % members],
            [(step - 1) * members + (member - 1) % members] if step else (),
        )
        for step in range(2 * (members - 1))
        for member in range(members)
    ]


def all_to_all(members: int, size_bytes: int) -> list[Transfer]:
    """Every member sends a part of its own to every other one, all at once."""
    part = _parts(size_bytes, members - 1)
    return [
        Transfer(member, (member + 1 + i) % members, part[i]) for i in range(members - 1) for member in range(members)
    ]


def ring(members: int, size_bytes: int) -> list[Transfer]:
    """Every member sends all its bytes to the next one, once."""
    return [Transfer(member, (member + 1) % members, size_bytes) for member in range(members)]


def permutation(members: int, size_bytes: int) -> list[Transfer]:
    """Every member of the first half sends all its bytes to that in the same place of the second half."""
    half = members // 2
    return [Transfer(member, half + member, size_bytes) for member in range(half)]


PATTERNS: Mapping[str, Callable[[int, int], list[Transfer]]] = {
    "all_to_all": all_to_all,
    "ring_all_reduce": ring_all_reduce,
    "ring": ring,
    "permutation": permutation,
}


def halves(servers: Sequence[int], seed: int) -> list[int]:
    """Return servers in order, the second half shuffled: the members of a random permutation between the halves."""
    ordered, half = sorted(servers), len(servers) // 2
    shuffled = np.random.default_rng([seed, half]).permutation(len(ordered) - half)
    return ordered[:half] + [ordered[half + place] for place in shuffled.tolist()]


def collective(
    kind: str,
    groups: Sequence[Sequence[int]],
    size_bytes: int,
    *,
    repeat: int,
    compute_ns: int,
    traffic_ns: int,
    seed: int,
    channels: int = 1,
    spread_ns: int = 0,
) -> list[Message]:
    """Return the messages of all rounds of all groups.

    Parameters
    ----------
    kind : key of PATTERNS
    groups : servers of each, at least two, in the order of the ring
    size_bytes : what a server has, at least as many bytes as members
    repeat : rounds
    compute_ns : from the instant at which a server has received all of a round to its part in the next; one that
        receives nothing waits for the delivery of what it has sent
    traffic_ns : all groups start during this time, each at a time drawn from [0, compute_ns]
    seed : of these draws
    channels : connections between a pair of servers, each with an equal part of every message
    spread_ns : every message starts later by a time drawn from [0, spread_ns]
    """
    draw = np.random.default_rng([seed, len(groups)])
    spread = np.random.default_rng([seed, len(groups), 1])
    messages: list[Message] = []
    connections: dict[tuple[int, int, int], int] = {}
    for group, servers in enumerate(groups):
        start_ns = min(int(draw.integers(0, compute_ns, endpoint=True)), traffic_ns - 1)
        received: list[list[int]] = [[] for _ in servers]  # places of what each has received in the round before
        sent: list[list[int]] = [[] for _ in servers]
        for number in range(repeat):
            first, before = len(messages), [came or own for came, own in zip(received, sent, strict=True)]
            received, sent = [[] for _ in servers], [[] for _ in servers]
            for transfer in PATTERNS[kind](len(servers), size_bytes):
                pair = servers[transfer.source], servers[transfer.destination]
                begins = not transfer.after
                after = [first + other * channels + channel for other in transfer.after for channel in range(channels)]
                for channel, part_bytes in enumerate(_parts(transfer.size_bytes, channels)):
                    received[transfer.destination].append(len(messages))
                    sent[transfer.source].append(len(messages))
                    late_ns = int(spread.integers(0, spread_ns, endpoint=True)) if spread_ns else 0
                    messages.append(
                        Message(
                            start_ns if number or not begins else start_ns + late_ns,
                            NO_LIMIT_NS,
                            part_bytes,
                            *pair,
                            connections.setdefault((*pair, channel), len(connections)),
                            before[transfer.source] if begins else after,
                            (compute_ns if begins and number else 0) + (late_ns if number or not begins else 0),
                            group * repeat + number,
                        )
                    )
    return messages


def _parts(size_bytes: int, count: int) -> list[int]:
    """Cut bytes into parts that differ by one at most."""
    return [size_bytes * (i + 1) // count - size_bytes * i // count for i in range(count)]


def elephants(
    peers: Sequence[Sequence[int]],
    flows_per_server: int,
    burst_bytes: int,
    idle_ns: int,
    *,
    link_bps: int,
    traffic_ns: int,
    seed: int,
) -> list[Message]:
    """Return the bursts of all connections; each has as many as an idle network could deliver during the traffic.

    Parameters
    ----------
    peers : for every server those that it may send to; one is drawn twice only when there are too few
    flows_per_server : connections that every server sends on
    burst_bytes : mean of the exponential size of a burst, at least 1
    idle_ns : mean of the exponential pause from the delivery of a burst to the next; 0: none
    link_bps : rate of a server's link
    traffic_ns : bursts start during this time
    seed : of the draws; every server has its own
    """
    ns_per_byte = 8e9 / link_bps
    messages: list[Message] = []
    connection = 0
    for server, reachable in enumerate(peers):
        draw = np.random.default_rng([seed, server])
        for peer in draw.choice(reachable, flows_per_server, replace=flows_per_server > len(reachable)).tolist():
            start_ns = min(int(draw.exponential(idle_ns + burst_bytes * ns_per_byte)), traffic_ns - 1)
            after: list[int] = []
            gap_ns = 0
            while start_ns < traffic_ns:
                size_bytes = max(1, round(draw.exponential(burst_bytes)))
                messages.append(Message(start_ns, traffic_ns - 1, size_bytes, server, peer, connection, after, gap_ns))
                after, gap_ns = [len(messages) - 1], int(draw.exponential(idle_ns))
                start_ns += int(size_bytes * ns_per_byte) + gap_ns + 1
            connection += 1
    return messages


# Ethereal: equal flows on the spines of a leaf-spine network, a few of them cut (Addanki's thesis, section 3.2).
#
# Flows of one size from a server to one leaf are dealt out to the spines. What is left over is cut, so that every spine
# gets as much as if each packet were sprayed, up to the bytes that a cut rounds by.


class Piece(NamedTuple):
    """A flow, or a part of one, on a spine."""

    flow: int  #: from 0
    spine: int
    size_bytes: int


def pieces(flows: int, spines: int, size_bytes: int, *, first_spine: int = 0) -> list[Piece]:
    """Return the pieces of equal flows from a server to a leaf, flow by flow (Algorithm 3).

    Each of the n mod s flows left over is cut into s / gcd(n, s) equal parts, as a communication library can. These are
    not the fewest parts, which have several sizes.

    Parameters
    ----------
    flows : n, from 0 on
    spines : s, at least 1
    size_bytes : of each flow, at least 1
    first_spine : from 0 to s - 1, which gets the first flow; another one for every batch keeps rounded bytes apart

    ForetailError on anything else. A part without a byte is left out.
    """
    for name, value, least in (("flows", flows, 0), ("spines", spines, 1), ("size_bytes", size_bytes, 1)):
        _require(name, value, least)
    if not 0 <= first_spine < spines:
        raise ForetailError(f"first_spine = {first_spine} is not one of {spines} spines: give 0 to {spines - 1}")
    left = flows % spines
    whole = flows - left
    pieces = [(flow, flow, size_bytes) for flow in range(whole)]
    parts = spines // math.gcd(left, spines)
    sizes = _even_parts(size_bytes, parts)
    pieces += [(whole + i // parts, i, sizes[i % parts]) for i in range(left * parts)]
    return [Piece(flow, (first_spine + spine) % spines, size) for flow, spine, size in pieces if size > 0]


def assigned(messages: Sequence[Message], spines: int, servers_per_leaf: int) -> list[Message]:
    """Return the messages of a collective on spines, cut where :func:`pieces` does, each piece on its own connection.

    A batch is what a server sends to another leaf in one step: in one round, waiting for the same messages. Its sizes
    should be equal up to a byte. Every batch of a server begins at the spine behind the last one, and servers begin at
    different spines. What stays below a leaf has no spine.
    """
    _require("spines", spines, 1)
    batches: dict[tuple[int, int, int, tuple[int, ...]], list[int]] = defaultdict(list)
    for place, message in enumerate(messages):
        ends = message.source // servers_per_leaf, message.destination // servers_per_leaf
        if ends[0] != ends[1]:
            batches[message.source, ends[1], message.round, tuple(message.after)].append(place)
    ways = [[-1] for _ in messages]  # the spine of each part
    turn = {message.source: message.source % spines for message in messages}
    for (source, *_), places in batches.items():
        for place in places:
            ways[place] = []
        for piece in pieces(len(places), spines, spines, first_spine=turn[source]):
            ways[places[piece.flow]].append(piece.spine)
        turn[source] = (turn[source] + len(places)) % spines
    made: list[Message] = []
    places_of: list[list[int]] = []
    connections: dict[tuple[int, int], int] = {}
    for message, spines_of in zip(messages, ways, strict=True):
        after = [piece for other in message.after for piece in places_of[other]]
        places_of.append([])
        for spine, size_bytes in zip(spines_of, _even_parts(message.size_bytes, len(spines_of)), strict=True):
            if size_bytes == 0:
                continue
            places_of[-1].append(len(made))
            number = connections.setdefault((message.connection, spine), len(connections))
            made.append(message._replace(size_bytes=size_bytes, connection=number, after=after, spine=spine))
    return made


def _require(name: str, value: int, least: int) -> None:
    if value < least:
        raise ForetailError(f"{name} = {value} is too small: give at least {least}")


def _even_parts(size_bytes: int, count: int) -> list[int]:
    """Cut bytes into parts that differ by one at most."""
    return [size_bytes * (part + 1) // count - size_bytes * part // count for part in range(count)]
