"""Collective communication, step by step: a server sends what a step asks for when it has received what it needs.

``foretail.sim_bridge.arrivals.workloads.collectives`` has the patterns as one slotted switch sees them, where all
servers start a step together. Here every server goes on by itself, so its steps are other ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from foretail.sim_bridge.ns3.messages.message import Message

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
