"""The headers of Ethernet frames: sizes, flows, and whether a packet carries data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.sim_bridge.imports.pcap.capture import Frames

HEAD_BYTES = 128
"""Ethernet with two VLAN tags, IPv4 with all options, TCP up to its flags: 22 + 60 + 14 and some room."""

_IDENTITY_BYTES = 48
"""Headers of IPv4 and TCP, and a few bytes behind them."""

_SHORTEST_BYTES = 60
"""Shorter frames are padded; a VLAN tag comes on top or not."""

_LONGEST_TRAILER_BYTES = 64
"""Time stamps of taps, tags and check sequences are shorter."""

_VLAN = (0x8100, 0x88A8, 0x9100)
_IPV4, _IPV6 = 0x0800, 0x86DD
_TCP, _UDP, _NOTHING = 6, 17, 59
_ENCAPSULATED = {
    0x8847: "MPLS",
    0x8848: "MPLS",
    0x8864: "PPPoE",
    0x88E5: "MACsec",
    0x88E7: "MAC-in-MAC",
    0x8906: "FCoE",
    0x8915: "RoCE v1",
    **dict.fromkeys(_VLAN, "a third VLAN tag"),
}
"""Ethernet types of data that is not seen as IP."""
KEY_DTYPE = np.dtype(
    [
        ("version", "u1"),
        ("protocol", "u1"),
        ("ports", "u1", (4,)),
        ("source", "u1", (16,)),
        ("destination", "u1", (16,)),
    ]
)
"""A five-tuple. IPv4 addresses fill the first four bytes."""


@dataclass(frozen=True, eq=False)
class Packets:
    """IP packets of a capture, in its order."""

    time_ns: NDArray[np.int64]  #: int64 [n]
    size_bytes: NDArray[np.int64]  #: int64 [n], of the frame on the wire without check sequence and trailers
    flow: NDArray[np.int64]  #: int64 [n], number of the five-tuple
    data: NDArray[np.bool_]  #: bool [n], False for TCP without payload
    identity: NDArray[np.int64]  #: int64 [n], of its headers and first bytes without what a router changes
    #: uint8 [n], how far that tells it from others: 2 with an identification of IPv4, which a repeated packet has anew;
    #: 1 with a sequence number of TCP or a check sum of UDP alone; 0 without
    known: NDArray[np.uint8]

    def at(self, rows: NDArray[np.generic]) -> Packets:
        """Return the packets at these rows, or where a mask is True."""
        return Packets(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    @classmethod
    def joined(cls, parts: Sequence[Packets]) -> Packets:
        """Return the packets of several parts, one after the other."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))


@dataclass
class Flows:
    """Five-tuples by their number, in the order in which they appear; they are kept in memory only."""

    number_of: dict[bytes, int] = field(default_factory=dict)  #: five-tuple -> number

    def numbers(self, keys: NDArray[np.void]) -> NDArray[np.int64]:
        """The number of each five-tuple, KEY_DTYPE [n]."""
        distinct, first, inverse = np.unique(
            keys.view(f"V{KEY_DTYPE.itemsize}"), return_index=True, return_inverse=True
        )
        number = np.empty(len(distinct), np.int64)
        for position in np.argsort(first):
            number[position] = self.number_of.setdefault(distinct[position].tobytes(), len(self.number_of))
        return number[inverse]

    def destinations(self) -> list[bytes]:
        """Destination of every flow, by its number: 4 or 16 bytes."""
        keys = np.frombuffer(b"".join(self.number_of), KEY_DTYPE)
        return [
            bytes(address[:4] if version == 4 else address)
            for version, address in zip(keys["version"], keys["destination"], strict=True)
        ]


@dataclass
class Sizes:
    """How the sizes of a capture's frames were found, and what has none."""

    mtu_bytes: int  #: the largest IP packet that can be on the wire
    without_ip: int = 0  #: frames left out because they are of another protocol, such as ARP
    malformed_ip: int = 0  #: frames left out because their IP header contradicts itself
    with_trailer: int = 0  #: packets that were followed by more than padding, which was taken off
    to_many: int = 0  #: packets left out because they go to several ports: multicast and broadcast
    copies: int = 0  #: packets that were the same as one shortly before, as a mirror port shows them
    repeated: int = 0  #: packets that may be copies or retransmissions, and were taken for the latter
    lost: int = 0  #: packets that the capture says to have lost
    received: int = 0  #: packets that it says to have received; 0: it does not say
    _faults: dict[str, list[int]] = field(default_factory=dict)  #: sentence -> how many, and number of the first

    def note(self, frames: Frames, rows: NDArray[np.intp], what: str) -> None:
        """Count the frames at `rows` as a fault of the capture."""
        if len(rows):
            self._faults.setdefault(what, [0, frames.number + int(rows[0])])[0] += len(rows)

    def count_lost(self, packets: int, received: int) -> None:
        """Add what a capture says of itself."""
        self.lost, self.received = self.lost + packets, self.received + received

    def refuse_faults(self, path: Path) -> None:
        """Raise ForetailError if the capture has a frame whose size on the wire or whose port nobody can tell."""
        for what, (count, first) in self._faults.items():
            raise ForetailError(f"the capture {path} has {count:,} frames (the first is number {first}) that {what}")


def packets_of(path: Path, frames: Frames, flows: Flows, sizes: Sizes) -> Packets:
    """The IP packets among `frames`; others, such as ARP and LLDP, are left out.

    What `sizes` notes is to be refused when the whole capture is read. ForetailError if the snap length has cut a
    header that is needed.
    """
    start, kind = _network_layer(frames.heads)
    for number, name in _ENCAPSULATED.items():
        hide = f"hide their ports in {name}: capture where they are plain IP, or filter them out, such as with"
        sizes.note(
            frames, np.flatnonzero(kind == number), f"{hide} tcpdump -r OLD -w NEW 'not ether proto {number:#x}'"
        )
    least = np.select([kind == _IPV4, kind == _IPV6], [20, 40], 0)
    whole = frames.kept_bytes >= start + least
    _refuse_cut(path, frames, ~whole)
    first = frames.heads[np.arange(len(start)), start]
    header = np.where(kind == _IPV6, 40, (first & 15).astype(np.int64) * 4)
    stated = np.where(kind == _IPV6, _word(frames.heads, start + 4) + 40, _word(frames.heads, start + 2))
    proper = whole & (header >= least) & (first >> 4 == np.select([kind == _IPV4, kind == _IPV6], [4, 6], 255))
    supported = np.flatnonzero(proper & ((stated == 0) | (stated >= header)))
    sizes.without_ip += int(np.count_nonzero(least == 0))
    sizes.malformed_ip += int(np.count_nonzero(least)) - len(supported)
    to_many = _to_many(frames.heads[supported], start[supported], kind[supported] == _IPV6)
    sizes.to_many += int(np.count_nonzero(to_many))
    supported = supported[~to_many]
    stated = stated[supported]
    heads, start, header, six = frames.heads[supported], start[supported], header[supported], kind[supported] == _IPV6
    rows = np.arange(len(supported))

    protocol = heads[rows, start + np.where(six, 6, 9)]
    fragment = ~six & (_word(heads, start + 6) & 0x1FFF != 0)
    transport = start + header
    tcp, with_ports = (protocol == _TCP) & ~fragment, np.isin(protocol, (_TCP, _UDP)) & ~fragment
    needed = np.zeros(len(frames.heads), np.int64)
    needed[supported] = transport + np.where(tcp, 13, np.where(with_ports, 4, 0))
    _refuse_cut(path, frames, frames.kept_bytes < needed)

    keys = np.zeros(len(supported), KEY_DTYPE)
    keys["version"], keys["protocol"] = np.where(six, 6, 4), protocol
    keys["ports"][with_ports] = heads[rows[:, None], transport[:, None] + np.arange(4)][with_ports]
    for name, of_four, of_six in (("source", 12, 8), ("destination", 16, 24)):
        length = np.where(six, 16, 4)[:, None]
        address = heads[rows[:, None], (start + np.where(six, of_six, of_four))[:, None] + np.arange(16)]
        keys[name] = np.where(np.arange(16) < length, address, 0)

    wire = frames.wire_bytes[supported]
    unstated = (stated == 0) | (six & (stated == 40) & (protocol != _NOTHING))
    sizes.note(
        frames,
        supported[unstated | (stated > sizes.mtu_bytes)],
        f"are larger than pcap.mtu_bytes={sizes.mtu_bytes} allows or state no length, as a host's offload makes them: "
        "capture on the wire or switch GRO, GSO and TSO off, or set pcap.mtu_bytes for jumbo frames",
    )
    sizes.note(
        frames,
        supported[wire < start + stated],
        "have more bytes by their IP header than by their record: capture again, or write the file with a tool that "
        "keeps the original lengths, such as editcap -s",
    )
    size = np.minimum(wire, np.maximum(start + stated, _SHORTEST_BYTES + start - 14))
    sizes.note(
        frames,
        supported[wire > size + _LONGEST_TRAILER_BYTES],
        f"go on for more than {_LONGEST_TRAILER_BYTES} bytes behind their IP packet, so that one of its lengths is "
        "wrong: capture on the wire, without a tap that adds as much",
    )
    sizes.with_trailer += int(np.count_nonzero(size < wire))
    of_tcp = (heads[rows, np.minimum(transport + 12, HEAD_BYTES - 1)] >> 4).astype(np.int64) * 4
    data = ~tcp | (stated > header + of_tcp)
    sequence = np.where(tcp[:, None], heads[rows[:, None], transport[:, None] + np.arange(4, 8)], 0).any(axis=1)
    check_sum = with_ports & ~tcp & (_word(heads, transport + 6) != 0)
    known = np.select([~six & (_word(heads, start + 4) > 1), sequence | check_sum], [2, 1], 0).astype(np.uint8)
    return Packets(frames.time_ns[supported], size, flows.numbers(keys), data, _identity(heads, start, six), known)


def _to_many(heads: NDArray[np.uint8], start: NDArray[np.int64], six: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Multicast and broadcast, by the address of Ethernet or of IP."""
    first = heads[np.arange(len(heads)), start + np.where(six, 24, 16)]
    to_many: NDArray[np.bool_] = (heads[:, 0] & 1 == 1) | (first >= np.where(six, 0xFF, 224))
    return to_many


def _identity(heads: NDArray[np.uint8], start: NDArray[np.int64], six: NDArray[np.bool_]) -> NDArray[np.int64]:
    """A hash of each packet, from its IP header on, without type of service, hops and the check sum of the header."""
    content = heads[np.arange(len(heads))[:, None], start[:, None] + np.arange(_IDENTITY_BYTES)]
    content[:, 1] = 0
    content[:, 0] &= np.where(six, 0xF0, 0xFF).astype(np.uint8)
    for four, at in ((True, 8), (True, 10), (True, 11), (False, 7)):
        content[six != four, at] = 0
    mixed = np.zeros(len(content), np.uint64)
    for word in np.ascontiguousarray(content).view(np.uint64).T:  # rounds of MurmurHash3's finalizer
        mixed = (mixed ^ word) * np.uint64(0xFF51AFD7ED558CCD)
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        mixed ^= mixed >> np.uint64(33)
    return mixed.view(np.int64)


def _network_layer(heads: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first byte of each frame's network layer, behind up to two VLAN tags, and its Ethernet type."""
    at = np.full(len(heads), 12)
    for _ in range(2):
        at = np.where(np.isin(_word(heads, at), _VLAN), at + 4, at)
    return at + 2, _word(heads, at)


def _refuse_cut(path: Path, frames: Frames, short: NDArray[np.bool_]) -> None:
    """Refuse what the snap length has cut; a frame that was as short on the wire is none of IP."""
    cut = np.flatnonzero(short & (frames.kept_bytes < frames.wire_bytes))
    if len(cut):
        raise ForetailError(
            f"packet {frames.number + int(cut[0])} of the capture {path} was cut off inside its headers: capture with "
            f"a snap length of {HEAD_BYTES} bytes or more"
        )


def _word(heads: NDArray[np.uint8], at: NDArray[np.int64]) -> NDArray[np.int64]:
    """The 16 bits at a place of each head, network byte order."""
    rows = np.arange(len(heads))
    return heads[rows, at].astype(np.int64) << 8 | heads[rows, at + 1]
