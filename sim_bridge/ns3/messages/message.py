"""One message, and the driver's columns of many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


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
    found = {name: [getattr(row, name) for row in rows] for name in Message._fields}
    if not any(row.spine >= 0 for row in rows):
        del found["spine"]
    return found
