"""Ethereal: equal flows on the spines of a leaf-spine network, a few of them cut (Addanki's thesis, section 3.2).

Flows of one size from a server to one leaf are dealt out to the spines. What is left over is cut, so that every spine
gets as much as if each packet were sprayed, up to the bytes that a cut rounds by.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from foretail.core.errors import ForetailError
from foretail.sim_bridge.ns3.messages.message import Message


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
    found = [(flow, flow, size_bytes) for flow in range(whole)]
    parts = spines // math.gcd(left, spines)
    sizes = _parts(size_bytes, parts)
    found += [(whole + i // parts, i, sizes[i % parts]) for i in range(left * parts)]
    return [Piece(flow, (first_spine + spine) % spines, size) for flow, spine, size in found if size > 0]


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
        for spine, size_bytes in zip(spines_of, _parts(message.size_bytes, len(spines_of)), strict=True):
            if size_bytes == 0:
                continue
            places_of[-1].append(len(made))
            number = connections.setdefault((message.connection, spine), len(connections))
            made.append(message._replace(size_bytes=size_bytes, connection=number, after=after, spine=spine))
    return made


def _require(name: str, value: int, least: int) -> None:
    if value < least:
        raise ForetailError(f"{name} = {value} is too small: give at least {least}")


def _parts(size_bytes: int, count: int) -> list[int]:
    """Cut bytes into parts that differ by one at most."""
    return [size_bytes * (part + 1) // count - size_bytes * part // count for part in range(count)]
