"""Fixed-size little-endian records that the simulators write, one file per kind.

The C++ structs in ``sim_bridge`` mirror these layouts without implicit padding; a test compares both.

Arrival, 128 bytes (one per packet arriving at a switch, in arrival order, control packets included):

====== ============ ======== =====================================================================================
offset field        format   meaning
====== ============ ======== =====================================================================================
0      time_ns      int64    arrival time, non-decreasing over the file
8      fate_time_ns int64    when LQD sends, drops or pushes out a data packet (the label is known); >= time_ns
16     score        int64    score of the predictor, meaningful only where ``asked`` is 1
24     flow         int32    flow identifier, >= 0
28     size_bytes   int32    bytes the packet takes in the buffer, > 0
32     features     int32[20] in the order of ``catalog.FEATURES``; zero for control packets
112    switch       int16    index in the manifest's switches
114    port         int16    egress port of that switch
116    flow_class   uint8    :class:`FlowClass`
117    outcome      uint8    :class:`Outcome` under the run's own policy
118    lqd_drop     uint8    1 when LQD drops the packet, at arrival or later (the label)
119    exposed      uint8    1 when Credence's safeguard does not apply on the run's own queues; 0 for control
120    asked        uint8    :class:`Asked`
121    first_rtt    uint8    1 when the packet belongs to its flow's first round trip
122    pad          uint8[6] zero
====== ============ ======== =====================================================================================

Flow, 56 bytes:

====== ==================== ======== ============================================================================
offset field                format   meaning
====== ==================== ======== ============================================================================
0      start_ns             int64    when the application hands the flow to the transport
8      fct_ns               int64    flow completion time, -1 = unfinished at the end of the run
16     ideal_fct_ns         int64    completion time alone in this topology
24     size_bytes           int64    application bytes
32     source               int32    server index
36     destination          int32    server index
40     query                int32    query identifier, -1 = background
44     retransmissions      int32    retransmitted segments
48     timeouts             int32    retransmission timeouts
52     flow_class           uint8    :class:`FlowClass`
53     connected_in_advance uint8    1 when the connection was set up before ``start_ns``
54     pad                  uint8[2] zero
====== ==================== ======== ============================================================================

Occupancy sample, 32 bytes: time_ns int64 @0, occupancy_bytes int64 @8, longest_bytes int64 @16 (longest queue),
switch int32 @24, pad int32 @28 (zero).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretail.features.catalog import FEATURES
from foretail.features.errors import ForetailError

Records = NDArray[np.void]


class FlowClass(IntEnum):
    """What a packet belongs to; ``control`` packets (pure ACK, SYN, FIN) share the buffer but are never labelled."""

    CONTROL = 0
    BACKGROUND = 1
    INCAST = 2


class Outcome(IntEnum):
    """What the run's own policy did with the packet; ``PUSHED_OUT`` was accepted first (LQD only)."""

    ACCEPTED = 0
    OVER_THRESHOLD = 1
    PREDICTED = 2
    BUFFER_FULL = 3
    PUSHED_OUT = 4


class Asked(IntEnum):
    """Whether the predictor was consulted; ``NEVER``: this policy asks no predictor at all."""

    NO = 0
    YES = 1
    NEVER = 2


ARRIVAL_DTYPE = np.dtype(
    [
        ("time_ns", "<i8"),
        ("fate_time_ns", "<i8"),
        ("score", "<i8"),
        ("flow", "<i4"),
        ("size_bytes", "<i4"),
        ("features", "<i4", (len(FEATURES),)),
        ("switch", "<i2"),
        ("port", "<i2"),
        ("flow_class", "u1"),
        ("outcome", "u1"),
        ("lqd_drop", "u1"),
        ("exposed", "u1"),
        ("asked", "u1"),
        ("first_rtt", "u1"),
        ("pad", "u1", (6,)),
    ]
)

FLOW_DTYPE = np.dtype(
    [
        ("start_ns", "<i8"),
        ("fct_ns", "<i8"),
        ("ideal_fct_ns", "<i8"),
        ("size_bytes", "<i8"),
        ("source", "<i4"),
        ("destination", "<i4"),
        ("query", "<i4"),
        ("retransmissions", "<i4"),
        ("timeouts", "<i4"),
        ("flow_class", "u1"),
        ("connected_in_advance", "u1"),
        ("pad", "u1", (2,)),
    ]
)

OCCUPANCY_DTYPE = np.dtype(
    [
        ("time_ns", "<i8"),
        ("occupancy_bytes", "<i8"),
        ("longest_bytes", "<i8"),
        ("switch", "<i4"),
        ("pad", "<i4"),
    ]
)

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
        ("pad", "u1", (5,)),
    ]
)
"""What a byte replay needs of an arrival, 32 bytes; ``Dataset.arrivals`` yields arrays of it."""


def count_records(path: Path, dtype: np.dtype[Any]) -> int:
    """Return how many records of `dtype` the file holds; raise :class:`ForetailError` if missing or truncated."""
    try:
        size_bytes = path.stat().st_size
    except OSError as error:
        raise ForetailError(f"cannot read {path}: {error.strerror}; run the simulation that writes it again") from None
    count, rest = divmod(size_bytes, dtype.itemsize)
    if rest:
        raise ForetailError(
            f"{path} is truncated: {size_bytes} bytes are not a multiple of the {dtype.itemsize}-byte record;"
            " run the simulation that writes it again"
        )
    return count


def iterate_records(path: Path, dtype: np.dtype[Any], chunk_records: int = 1 << 18) -> Iterator[Records]:
    """Yield the records of a file in order, in arrays of at most `chunk_records`, shape (n,), dtype `dtype`.

    Raises
    ------
    ForetailError
        If the file is missing, truncated, or shrinks while it is read.
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
