"""Capture files: where every frame lies, when it passed, and how long it was on the wire.

Both formats are read strictly: a file that does not end with a whole record is refused, as are blocks whose two lengths
differ. Times are whole nanoseconds, computed without rounding to a float. Lengths are those on the wire, whatever the
snap length has kept, without a check sequence that the file declares. Formats: draft-ietf-opsawg-pcap,
draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError, readable
from foretail.core.impostors import refuse_impostor

CHUNK_PACKETS = 1 << 17
ETHERNET = 1

_PCAP = {  # the file's first four bytes: byte order, ticks per second
    b"\xd4\xc3\xb2\xa1": ("<", 10**6),
    b"\xa1\xb2\xc3\xd4": (">", 10**6),
    b"\x4d\x3c\xb2\xa1": ("<", 10**9),
    b"\xa1\xb2\x3c\x4d": (">", 10**9),
}
_PCAPNG = b"\x0a\x0d\x0d\x0a"
_SECTION, _INTERFACE, _OBSOLETE_PACKET, _SIMPLE_PACKET, _STATISTICS, _PACKET = 0x0A0D0D0A, 1, 2, 3, 5, 6
_TIME_RESOLUTION, _CHECK_SEQUENCE, _TIME_OFFSET = 9, 13, 14
_PACKET_FLAGS, _PACKET_DROPS = 2, 4
_RECEIVED, _DROPPED = 4, (5, 7)  # by the interface, and by the system
_CHECK_SEQUENCE_BYTES = {0: 0, 2: 2, 4: 4, 16: 2, 32: 4}
"""By what an interface declares: bits as the format says, or bytes as some tools write."""
_LATEST_NS = 2**62
_LARGEST_FRAME_BYTES = 2**20

Frame = tuple[int, int, int, int]
"""Time in ns, where its bytes begin in the file, how many were kept, and how many it had."""


@dataclass(frozen=True, eq=False)
class Frames:
    """Frames of a capture, in its order."""

    number: int  #: of the first one in the file, from 1
    time_ns: NDArray[np.int64]  #: int64 [n]
    kept_bytes: NDArray[np.int64]  #: int64 [n]
    wire_bytes: NDArray[np.int64]  #: int64 [n]
    heads: NDArray[np.uint8]  #: uint8 [n, width], the first bytes of each, zero behind what was kept


def frames_of(
    path: Path, width: int, lost: Callable[[int, int], None] = lambda packets, received: None
) -> Iterator[Frames]:
    """Yield the frames of an Ethernet capture in chunks, with their first `width` bytes.

    At its end it calls `lost` with the packets that it says to have lost, and received; 0 where it does not say.
    ForetailError if the file cannot be read, is compressed, no capture, damaged, truncated, without times or not of
    Ethernet.
    """
    with readable(f"the capture {path}", "give another file"), path.open("rb") as file:
        if not file.seek(0, 2):
            raise ForetailError(f"the capture {path} is empty: copy it again")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield from _chunks(path, content, width, lost)


def _chunks(path: Path, content: mmap.mmap, width: int, lost: Callable[[int, int], None]) -> Iterator[Frames]:
    refuse_impostor(path)
    magic = content[:4]
    if magic == _PCAPNG:
        walk = _PcapNg(path, content, lost).frames()
    elif magic in _PCAP:
        walk = _pcap(path, content)
    else:
        raise ForetailError(f"the file {path} is not a capture: give one in the format pcap or pcapng")
    number = 1
    while chunk := list(islice(walk, CHUNK_PACKETS)):
        yield _frames(content, number, chunk, width)
        number += len(chunk)


def _frames(content: mmap.mmap, number: int, frames: list[Frame], width: int) -> Frames:
    time_ns, _, captured, wire = np.array(frames, np.int64).T
    heads = b"".join(content[at : at + min(length, width)].ljust(width, b"\0") for _, at, length, _ in frames)
    return Frames(number, time_ns, captured, wire, np.frombuffer(heads, np.uint8).reshape(-1, width))


def _pcap(path: Path, content: mmap.mmap) -> Iterator[Frame]:
    order, ticks = _PCAP[content[:4]]
    if len(content) < 24:
        raise _truncated(path, 0)
    (link,) = struct.unpack_from(order + "I", content, 20)
    _require_ethernet(path, link & 0xFFFF)
    check_sequence = (link >> 28) * 2 if link & 1 << 26 else 0
    record, at, number = struct.Struct(order + "4I"), 24, 0
    scale = 10**9 // ticks
    while at < len(content):
        if at + 16 > len(content):
            raise _truncated(path, number)
        seconds, fraction, captured, wire = record.unpack_from(content, at)
        number += 1
        if fraction >= ticks or not check_sequence <= wire <= _LARGEST_FRAME_BYTES:
            raise _damaged(path, f"packet {number} has an impossible time or length")
        if at + 16 + captured > len(content):
            raise _truncated(path, number - 1)
        _refuse_longer(path, number, captured, wire)
        size = wire - check_sequence
        yield seconds * 10**9 + fraction * scale, at + 16, min(captured, size), size
        at += 16 + captured


@dataclass(frozen=True)
class _Interface:
    ticks: int
    offset_seconds: int
    check_sequence_bytes: int


class _PcapNg:
    """The blocks of a pcapng file."""

    def __init__(self, path: Path, content: mmap.mmap, lost: Callable[[int, int], None]) -> None:
        self._path, self._content, self._lost = path, content, lost
        self._drops = 0  # by options of packets
        self._statistics: dict[tuple[int, int, int], int] = {}  # by section, interface and count; each grows
        self._section = 0
        self._order = "<"
        self._interfaces: list[_Interface] = []
        self._number = 0

    def frames(self) -> Iterator[Frame]:
        """Walk through the blocks; those that hold no packet and describe no interface are passed over."""
        at = 0
        while at < len(self._content):
            kind, begin, end, following = self._block(at)
            if kind == _SECTION:
                self._interfaces = []  # interfaces are numbered anew in each section
                self._section += 1
            elif kind == _INTERFACE:
                self._interfaces.append(self._interface(begin, end))
            elif kind == _PACKET:
                self._number += 1
                yield self._packet(begin, end)
            elif kind == _STATISTICS:
                self._count(begin, end)
            elif kind in (_SIMPLE_PACKET, _OBSOLETE_PACKET):
                raise ForetailError(
                    f"the capture {self._path} has a packet block of kind {kind}, which says no time or is obsolete: "
                    "write the file again as pcap, such as with editcap -F nsecpcap"
                )
            at = following
        counts = [(code, number) for (_, _, code), number in self._statistics.items()]
        dropped = sum(number for code, number in counts if code in _DROPPED)
        self._lost(max(dropped, self._drops), sum(number for code, number in counts if code == _RECEIVED))

    def _count(self, begin: int, end: int) -> None:
        """Read the statistics of an interface so far."""
        if end - begin < 12:
            raise _damaged(self._path, "statistics of an interface have less than 12 bytes")
        (interface,) = self._unpack("I", begin)
        for code, length, at in self._options("statistics", begin + 12, end):
            if code in (_RECEIVED, *_DROPPED) and length == 8:
                self._statistics[self._section, interface, code] = self._unpack("Q", at)[0]

    def _block(self, at: int) -> tuple[int, int, int, int]:
        """Kind of the block at a place, where its body begins and ends, and where the next block begins."""
        content = self._content
        if at + 12 > len(content):
            raise _truncated(self._path, self._number)
        if content[at : at + 4] == _PCAPNG:
            orders = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
            if (order := orders.get(content[at + 8 : at + 12])) is None:
                raise _damaged(self._path, "a section has no byte order")
            self._order = order
        kind, length = self._unpack("2I", at)
        if length < 12 or length % 4:
            raise _damaged(self._path, f"the block behind packet {self._number} has the length {length}")
        if at + length > len(content):
            raise _truncated(self._path, self._number)
        if self._unpack("I", at + length - 4) != (length,):
            raise _damaged(self._path, f"the block behind packet {self._number} ends with another length")
        return kind, at + 8, at + length - 4, at + length

    def _interface(self, begin: int, end: int) -> _Interface:
        if end - begin < 8:
            raise _damaged(self._path, "an interface is described in less than 8 bytes")
        link, _, _ = self._unpack("2HI", begin)
        _require_ethernet(self._path, link)
        ticks, offset_seconds, check_sequence = 10**6, 0, 0
        for code, length, at in self._options("an interface", begin + 8, end):
            if code == _TIME_RESOLUTION and length == 1:
                exponent = self._content[at]
                ticks = 2 ** (exponent & 127) if exponent & 128 else 10**exponent
            elif code == _TIME_OFFSET and length == 8:
                (offset_seconds,) = self._unpack("q", at)
            elif code == _CHECK_SEQUENCE and length == 1:
                declared = self._content[at]
                if declared not in _CHECK_SEQUENCE_BYTES:
                    raise _damaged(self._path, f"an interface has a check sequence of {declared} bits")
                check_sequence = _CHECK_SEQUENCE_BYTES[declared]
        return _Interface(ticks, offset_seconds, check_sequence)

    def _options(self, what: str, at: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Code and length of each option, and where its value begins."""
        while at + 4 <= end:
            code, length = self._unpack("2H", at)
            if at + 4 + length > end:
                raise _damaged(self._path, f"an option of {what} is longer than its block")
            yield code, length, at + 4
            at += 4 + length + -length % 4

    def _packet(self, begin: int, end: int) -> Frame:
        if end - begin < 20:
            raise _damaged(self._path, f"packet {self._number} is described in less than 20 bytes")
        interface, high, low, captured, wire = self._unpack("5I", begin)
        if interface >= len(self._interfaces):
            raise _damaged(self._path, f"packet {self._number} is of interface {interface}, which nothing describes")
        seen = self._interfaces[interface]
        check_sequence = seen.check_sequence_bytes
        for code, length, at in self._options(f"packet {self._number}", begin + 20 + captured + -captured % 4, end):
            if code == _PACKET_FLAGS and length == 4:  # zero: the packet does not say
                check_sequence = self._unpack("I", at)[0] >> 5 & 15 or check_sequence
            elif code == _PACKET_DROPS and length == 8:
                self._drops += self._unpack("Q", at)[0]
        if not check_sequence <= wire <= _LARGEST_FRAME_BYTES or begin + 20 + captured > end:
            raise _damaged(self._path, f"packet {self._number} has an impossible length")
        _refuse_longer(self._path, self._number, captured, wire)
        time_ns = (high << 32 | low) * 10**9 // seen.ticks + seen.offset_seconds * 10**9
        if not 0 <= time_ns < _LATEST_NS:
            raise _damaged(self._path, f"packet {self._number} has an impossible time")
        return time_ns, begin + 20, min(captured, wire - check_sequence), wire - check_sequence

    def _unpack(self, form: str, at: int) -> tuple[int, ...]:
        return struct.unpack_from(self._order + form, self._content, at)


def _require_ethernet(path: Path, link: int) -> None:
    if link != ETHERNET:
        raise ForetailError(
            f"the capture {path} has link type {link}, not {ETHERNET} (Ethernet): capture on an Ethernet interface of "
            "the switch, not on `any`"
        )


def _refuse_longer(path: Path, number: int, captured: int, wire: int) -> None:
    if captured > wire:
        raise ForetailError(
            f"packet {number} of the capture {path} has {captured} captured bytes but a length of {wire}: take off the "
            f"{captured - wire} bytes that a tool appended, such as with editcap -C -{captured - wire}"
        )


def _truncated(path: Path, packets: int) -> ForetailError:
    return ForetailError(
        f"the capture {path} is truncated: it ends inside a record behind packet {packets}; copy it again"
    )


def _damaged(path: Path, how: str) -> ForetailError:
    return ForetailError(f"the capture {path} is damaged: {how}; copy it again")
