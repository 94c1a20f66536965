"""The binary packet log of the Etalon emulator (racks around a packet switch and a circuit switch), read and checked.

Records of fixed size without a header, little endian, no padding:

============ ============ ====== ====================================================================================
offset (112) offset (116) format meaning
============ ============ ====== ====================================================================================
0            0            int32  1 circuit goes up, 2 circuit goes down, anything else a packet
4            4            ASCII  wall clock in Unix seconds, 10 digits, a point, up to 9 digits; dilated time
36           36           int32  microseconds in the switch; virtual time unless `latency_dilated`
40           40           int32  source rack of an event, from 1
44           44           int32  destination rack of an event, from 1
-            48           int32  packets in the virtual output queue (VOQ) of that pair
48           52           bytes  the first 64 bytes of the packet from the IPv4 header on; zero for events
============ ============ ====== ====================================================================================

The text of the time takes 32 bytes and ends at its first zero, after 20 characters at the latest. A packet's racks are
the third numbers of its IPv4 addresses; bit 0 of its type of service says that it came over the circuit. A log taken
``after`` the switch holds departures in their order, so dropped packets are missing; one taken ``before`` it holds all
arrivals, with latencies near zero and without circuit bits. Time is dilated: virtual time is wall time over
`time_dilation`.

Source: the emulator's public readers; where they leave something open, the survey checks what would betray it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError, readable
from foretail.features.records import Records

UP, DOWN = 1, 2
PACKET_BYTES = 64
TEXT_BYTES = 20
"""Readers look no further into the text of a time."""

_HEAD = [("type", "<i4"), ("stamp", "u1", (32,)), ("latency_us", "<i4"), ("source", "<i4"), ("destination", "<i4")]
_PACKET = ("packet", "u1", (PACKET_BYTES,))
LAYOUTS: dict[int, np.dtype[Any]] = {
    116: np.dtype([*_HEAD, ("voq", "<i4"), _PACKET]),
    112: np.dtype([*_HEAD, _PACKET]),
}
"""Record layouts by their size in bytes, the newer one first."""

CHUNK_RECORDS = 1 << 16
_SNIFFED_RECORDS = 64
_TCP, _UDP = 6, 17
_LEAST_IP_BYTES = 20

Position = Literal["after", "before"]


@dataclass(frozen=True)
class Reading:
    """How a log is to be understood."""

    record_bytes: int | None = None  #: {112, 116, None}, the layout; None finds out
    time_dilation: int = 20  #: wall time over virtual time, at least 1
    position: Position = "after"  #: where in the switch the log was taken
    latency_dilated: bool = False  #: whether latencies are in dilated microseconds
    racks: int | None = None  #: racks of the network; None takes the highest number in the log
    packet_delay_ns: int = 10_000  #: virtual propagation delay of the packet path: no packet is faster
    circuit_delay_ns: int = 30_000  #: the same of the circuit
    #: virtual time that a circuit stays up, which the median of the log must meet; None does not check
    day_ns: int | None = 180_000
    #: largest capacity of a VOQ, which no length may exceed by more than one; None does not check
    voq_packets: int | None = None


@dataclass(frozen=True, eq=False)
class Chunk:
    """Decoded records: packets as columns, events as an array [events, 4] of time, type, source, destination."""

    record: NDArray[np.int64]
    out_ns: NDArray[np.int64]
    latency_ns: NDArray[np.int64]
    circuit: NDArray[np.bool_]
    source: NDArray[np.int64]
    destination: NDArray[np.int64]
    voq: NDArray[np.int64] | None
    size_bytes: NDArray[np.int64]
    data: NDArray[np.bool_]
    flow_key: NDArray[np.void]
    events: NDArray[np.int64]

    @property
    def in_ns(self) -> NDArray[np.int64]:
        return self.out_ns - self.latency_ns


@dataclass
class RecordFile:
    """A file of records that is what its layout says; make one with :meth:`open`."""

    path: Path
    reading: Reading
    layout: np.dtype[Any]  #: dtype of a record
    records: int  #: their number
    first_stamp_ns: int  #: dilated time of the first one

    @classmethod
    def open(cls, path: Path, reading: Reading) -> Self:
        """Find the layout of a log and look at its first records.

        ForetailError if the file cannot be read, is empty or truncated, or its records are no packets and events.
        """
        with readable(f"the log {path}", "give log=FILE"), path.open("rb") as file:
            size_bytes = path.stat().st_size
            head = file.read(_SNIFFED_RECORDS * max(LAYOUTS))
        if not head:
            raise ForetailError(f"the log {path} is empty: give a packet log of Etalon (its *-click.txt)")
        wanted = reading.record_bytes
        fitting = [size for size in LAYOUTS if wanted in (None, size) and _fits(head, LAYOUTS[size])]
        whole = [size for size in fitting if size_bytes % size == 0]
        if not fitting:
            other = next((size for size in LAYOUTS if _fits(head, LAYOUTS[size])), None)
            hint = (
                "give a packet log of Etalon (its *-click.txt)"
                if other is None
                else f"its records have {other}: set etalon.record_bytes={other}"
            )
            sizes = " or ".join(map(str, sorted(LAYOUTS))) if wanted is None else str(wanted)
            raise ForetailError(f"the log {path} does not begin with records of {sizes} bytes: {hint}")
        if not whole:
            raise ForetailError(
                f"the log {path} is truncated: its {size_bytes} bytes end {size_bytes % fitting[0]} bytes into a "
                f"record of {fitting[0]}; copy it again, or cut it at a multiple of {fitting[0]} bytes"
            )
        layout = LAYOUTS[whole[0]]
        stamps, _ = _stamps(np.frombuffer(head, layout, 1)["stamp"])
        return cls(path, reading, layout, size_bytes // layout.itemsize, int(stamps[0]))

    def chunks(self, report: Callable[[int], None]) -> Iterator[Chunk]:
        """Yield all records, decoded and checked one by one; `report` gets the number read so far."""
        read = 0
        with self.path.open("rb") as file:
            while read < self.records:
                raw = np.fromfile(file, self.layout, min(CHUNK_RECORDS, self.records - read))
                if not len(raw):
                    raise ForetailError(f"the log {self.path} was cut short while it was read: import it again")
                yield self._decoded(raw, read)
                read += len(raw)
                report(read)

    def _decoded(self, raw: Records, first_record: int) -> Chunk:
        def demand(holds: NDArray[np.bool_], of: NDArray[np.int64], complaint: str) -> None:
            if not holds.all():
                record = first_record + int(of[int(np.argmin(holds))])
                raise ForetailError(f"record {record} of the log {self.path} {complaint}")

        every = np.arange(len(raw))
        stamp_ns, valid = _stamps(raw["stamp"])
        demand(valid, every, "has no time in Unix seconds: the file is damaged or no packet log of Etalon")
        time_ns = (stamp_ns - self.first_stamp_ns) // self.reading.time_dilation
        is_event = np.isin(raw["type"], (UP, DOWN))
        events = np.stack([time_ns, raw["type"], raw["source"], raw["destination"]], axis=1)[is_event]
        racks = self.reading.racks or 255
        for end in (events[:, 2], events[:, 3]):
            demand(
                (end >= 1) & (end <= racks),
                every[is_event],
                f"is an event of a rack outside 1 to {racks}: set etalon.racks to the number of racks",
            )

        of, ip = every[~is_event], raw["packet"][~is_event].astype(np.int64)
        header_bytes = (ip[:, 0] & 15) * 4
        size_bytes = ip[:, 2] << 8 | ip[:, 3]
        is_packet = (ip[:, 0] >> 4 == 4) & (header_bytes >= _LEAST_IP_BYTES) & (size_bytes >= header_bytes)
        demand(is_packet, of, "is no IPv4 packet: the file is damaged or has another layout")
        source, destination = ip[:, 14], ip[:, 18]
        for end in (source, destination):
            demand(
                (end >= 1) & (end <= racks),
                of,
                f"comes from or goes to a rack outside 1 to {racks} (the third number of an address): "
                "set etalon.racks to the number of racks",
            )
        demand(source != destination, of, "stays inside its rack, where no VOQ is")
        latency_ns = raw["latency_us"][~is_event].astype(np.int64) * 1000
        demand(latency_ns >= 0, of, "has a negative latency: the file is damaged")
        if self.reading.latency_dilated:
            latency_ns //= self.reading.time_dilation
        voq = raw["voq"][~is_event].astype(np.int64) if "voq" in (self.layout.names or ()) else None
        if voq is not None:
            demand(voq >= 0, of, "has a VOQ of negative length: the file is damaged or has another layout")
        key, data = _flows(ip, header_bytes, size_bytes)
        return Chunk(
            record=of + first_record,
            out_ns=time_ns[~is_event],
            latency_ns=latency_ns,
            circuit=ip[:, 1] & 1 != 0,
            source=source,
            destination=destination,
            voq=voq,
            size_bytes=size_bytes,
            data=data,
            flow_key=key,
            events=events,
        )


def _fits(head: bytes, layout: np.dtype[Any]) -> bool:
    """Return whether the first bytes of a file are records of this layout."""
    count = min(len(head) // layout.itemsize, _SNIFFED_RECORDS)
    raw = np.frombuffer(head, layout, count)
    _, valid = _stamps(raw["stamp"])
    shaped = np.isin(raw["type"], (UP, DOWN)) | (raw["packet"][:, 0] >> 4 == 4)
    return bool(count and valid.all() and shaped.all())


def _stamps(text: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Nanoseconds of ASCII seconds, uint8 [n, 32], and which of them are such."""
    text = text[:, :TEXT_BYTES]
    ended = np.logical_or.accumulate(text == 0, axis=1)
    digits = np.where(ended, 0, text.astype(np.int64) - ord("0"))
    point = (text[:, 10] == ord(".")) | ended[:, 10]
    digits = np.delete(digits, 10, axis=1)
    valid = point & ~ended[:, 9] & ((digits >= 0) & (digits <= 9)).all(axis=1)
    return digits @ (10 ** np.arange(18, -1, -1, dtype=np.int64)), valid


def _flows(
    ip: NDArray[np.int64], header_bytes: NDArray[np.int64], size_bytes: NDArray[np.int64]
) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
    """The five numbers that name a packet's flow, as one value, and whether the packet carries data."""
    row = np.arange(len(ip))
    protocol = ip[:, 9]
    has_ports = np.isin(protocol, (_TCP, _UDP))
    ports = ip[row[:, None], header_bytes[:, None] + np.arange(4)] * has_ports[:, None]
    key = np.concatenate([ip[:, 12:20], protocol[:, None], ports], axis=1).astype(np.uint8)
    # the length of the TCP header lies beyond the 64 bytes when there are many IP options: then take the shortest
    at = header_bytes + 12
    tcp_bytes = np.where(at < PACKET_BYTES, (ip[row, np.minimum(at, PACKET_BYTES - 1)] >> 4) * 4, 20)
    return key.view("V13")[:, 0], (protocol != _TCP) | (size_bytes > header_bytes + tcp_bytes)
