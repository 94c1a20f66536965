"""Fixed-size little-endian records that the simulators write, one file per kind.

The C++ structs in ``sim_bridge/buffer/records.hpp`` mirror these layouts without implicit padding; a test compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError, readable
from foretail.features.catalog import COUNTERS, FEATURES

if TYPE_CHECKING:
    import pyarrow as pa

Records = NDArray[np.void]


class FlowClass(IntEnum):
    """Kinds of packets; ``control`` packets (pure ACK, SYN, FIN) share the buffer but are never labelled."""

    CONTROL = 0
    BACKGROUND = 1
    INCAST = 2


class Outcome(IntEnum):
    """The decision of the run's own policy about the packet; ``PUSHED_OUT`` was accepted first (LQD only)."""

    ACCEPTED = 0
    OVER_THRESHOLD = 1
    PREDICTED = 2
    BUFFER_FULL = 3
    PUSHED_OUT = 4


class Asked(IntEnum):
    """The states of a question to the predictor; ``NEVER``: this policy asks no predictor at all."""

    NO = 0
    YES = 1
    NEVER = 2


_PAD_BYTES = 6 - (4 * len(FEATURES) + 2) % 8

ARRIVAL_DTYPE = np.dtype(
    [
        ("time_ns", "<i8"),  # arrival time, non-decreasing over the file
        ("fate_time_ns", "<i8"),  # when LQD sends, drops or pushes out a data packet (the label is known); >= time_ns
        ("score", "<i8"),  # of the predictor, meaningful only where ``asked`` is 1
        ("flow", "<i4"),  # identifier, >= 0
        ("size_bytes", "<i4"),  # that the packet takes in the buffer, > 0
        ("features", "<i4", (len(FEATURES),)),  # in the order of the catalog; zero for control packets
        ("switch", "<i2"),  # index in the manifest's switches
        ("port", "<i2"),  # egress port of that switch
        ("flow_class", "u1"),  # FlowClass
        ("outcome", "u1"),  # Outcome under the run's own policy
        ("lqd_drop", "u1"),  # 1 when LQD drops the packet, at arrival or later (the label)
        ("exposed", "u1"),  # 1 when Credence's safeguard does not apply on the run's own queues; 0 for control
        ("asked", "u1"),  # Asked
        ("first_rtt", "u1"),  # 1 when the packet belongs to its flow's first round trip
        ("ingress", "<i2"),  # port by which it came, where some queues may not lose a packet; else zero
        *([("pad", "u1", (_PAD_BYTES,))] if _PAD_BYTES else []),  # zero, to a multiple of 8 bytes
    ]
)
"""One per packet arriving at a switch, in arrival order, control packets included."""

FLOW_DTYPE = np.dtype(
    [
        ("start_ns", "<i8"),  # when the application hands the flow to the transport, or NEVER_STARTED
        ("fct_ns", "<i8"),  # flow completion time, -1 = unfinished at the end of the run
        ("ideal_fct_ns", "<i8"),  # completion time alone in this topology
        ("size_bytes", "<i8"),  # application bytes
        ("source", "<i4"),  # server index
        ("destination", "<i4"),  # server index
        ("query", "<i4"),  # identifier, -1 = background
        ("retransmissions", "<i4"),  # segments
        ("timeouts", "<i4"),  # expirations of the retransmission timer, those of SYNs included
        ("flow_class", "u1"),  # FlowClass
        ("connected_in_advance", "u1"),  # 1 when the connection was set up before ``start_ns``
        ("pad", "u1", (2,)),  # zero
    ]
)

NEVER_STARTED = -1
"""The start of a message that was not sent, because those that it waits for were not delivered, or too late."""

OCCUPANCY_DTYPE = np.dtype(
    [
        ("time_ns", "<i8"),
        ("occupancy_bytes", "<i8"),
        ("longest_bytes", "<i8"),  # the longest queue
        ("switch", "<i4"),
        ("lossless_bytes", "<i4"),  # of queues that may not lose a packet
    ]
)

PAUSE_DTYPE = np.dtype(
    [
        ("time_ns", "<i8"),
        ("switch", "<i2"),  # index in the manifest's switches
        ("port", "<i2"),  # of that switch
        ("priority", "u1"),  # queue of that port
        ("paused", "u1"),  # 1: it stops sending; 0: it goes on
        ("pad", "u1", (2,)),  # zero
    ]
)
"""One per pause of a queue by the other end of its port's link, and one per end of it, in order of time."""

REPLAY_DTYPE = np.dtype(
    [
        ("arrival", "<i8"),
        ("time_ns", "<i8"),
        ("size_bytes", "<i4"),
        ("switch", "<i2"),
        ("port", "<i2"),
        ("flow_class", "u1"),
        ("first_rtt", "u1"),
        ("lqd_drop", "u1"),
        ("message_left", "u1"),  # the feature; zero for control packets
        ("ingress", "<i2"),  # port by which it came, where some queues may not lose a packet; else zero
        ("pad", "u1", (2,)),
    ]
)
"""Fields of an arrival that a byte replay needs; ``Dataset.arrivals`` yields arrays of it."""

COUNTER_DTYPE = np.dtype(
    [
        ("time_ns", "<i8"),  # end of the interval
        ("arrived_bytes", "<i8"),  # data that came to the queue in it, > 0: others have no record
        ("counters", "<i4", (len(COUNTERS),)),  # as they were when it began, in the order of the list
        ("switch", "<i4"),  # index in the summary's switches
        ("queue", "<i4"),  # of that switch: port * queues of a port + queue
        ("pad", "<i4"),
    ]
)
"""One per queue and interval in which data came to it, where ``counters`` is asked for, in order of time."""


def count_records(path: Path, dtype: np.dtype[Any]) -> int:
    """Return how many records of `dtype` the file holds; raise :class:`ForetailError` if missing or truncated."""
    with readable(path, "run the simulation that writes it again"):
        size_bytes = path.stat().st_size
    count, rest = divmod(size_bytes, dtype.itemsize)
    if rest:
        raise ForetailError(
            f"{path} is truncated: {size_bytes} bytes are not a multiple of the {dtype.itemsize}-byte record;"
            " run the simulation that writes it again"
        )
    return count


def iterate_records(path: Path, dtype: np.dtype[Any], chunk_records: int = 1 << 13) -> Iterator[Records]:
    """Yield the records of a file in order, in arrays of at most `chunk_records`, shape (n,), dtype `dtype`.

    By default these are so small that one stays in the cache of a processor while it is worked on.

    ForetailError if the file is missing, truncated, or shrinks while it is read.
    """
    remaining = count_records(path, dtype)
    with path.open("rb") as file:
        while remaining:
            wanted = min(remaining, chunk_records)
            chunk = np.fromfile(file, dtype, wanted)
            if len(chunk) != wanted:
                raise ForetailError(f"{path} was cut short while it was read: run the simulation again")
            remaining -= wanted
            yield chunk


def read_records(path: Path, dtype: np.dtype[Any]) -> Records:
    """Return all records of a file, shape (n,), dtype `dtype`; errors as :func:`iterate_records`."""
    return np.concatenate([np.empty(0, dtype), *iterate_records(path, dtype)])


def column_values(column: pa.Array) -> NDArray[Any]:
    """Values of a column, NaN for missing ones; without pandas, which ``to_numpy`` of pyarrow imports.

    >>> import pyarrow as pa
    >>> column_values(pa.array([True, False]))
    array([ True, False])
    """
    if column.null_count:
        values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return values
    if column.type == "bool":
        return np.from_dlpack(column.cast("uint8")).view(np.bool_)
    return np.from_dlpack(column)
