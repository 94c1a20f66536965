"""Captures at one switch as arrivals at its ports.

Three ways to know the port of a packet:

- an ingress capture and a table of prefixes;
- an ingress capture and one capture per egress port: a flow's port is the one at which it was seen to leave;
- one capture per egress port alone: their packets, with the times at which they left.
"""

from __future__ import annotations

import csv
import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.core.reading import Reading
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Records
from foretail.sim_bridge.imports.pcap.capture import Frames, frames_of

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


_COLUMNS = ["prefix", "port"]
Prefix = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class PortTable:
    """Prefixes and their ports; the longest prefix that holds a destination decides."""

    path: Path  #: the file it was read from
    port_of: dict[tuple[int, int, int], int]  #: by (version, prefix length, network as a number)

    @classmethod
    def read(cls, path: Path, ports: int) -> PortTable:
        """Read a CSV file with the columns ``prefix,port``, such as ``10.0.1.0/24,0``.

        ForetailError if the file cannot be read, or a line is not a prefix with a port of the switch, or repeats one.
        """
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                rows = list(csv.reader(file))
        except OSError as error:
            raise ForetailError(f"cannot read the table of ports {path}: {error.strerror}; give another file") from None
        except (UnicodeDecodeError, csv.Error):
            raise ForetailError(f"the table of ports {path} is not a CSV file: give one with prefix,port") from None
        if not rows or rows[0] != _COLUMNS:
            first = " ".join(",".join(rows[0]).split())[:60] if rows else "nothing"
            raise ForetailError(
                f"the table of ports {path} begins with {first}: let its first line be prefix,port alone"
            )
        port_of: dict[tuple[int, int, int], int] = {}
        for line, row in enumerate(rows[1:], 2):
            try:
                text, number = row
                prefix, port = ipaddress.ip_network(text), int(number)
            except ValueError:
                raise ForetailError(
                    f"line {line} of the table of ports {path} is not a prefix with a port: write it as 10.0.1.0/24,0, "
                    "and a default route as 0.0.0.0/0 and ::/0"
                ) from None
            if not 0 <= port < ports:
                raise ForetailError(
                    f"line {line} of the table of ports {path} names port {port}, but the switch has ports 0 to "
                    f"{ports - 1}: correct it or pcap.ports"
                )
            if port_of.setdefault(_key(prefix), port) != port:
                raise ForetailError(f"line {line} of the table of ports {path} has a prefix again: keep one of the two")
        return cls(path, port_of)

    def ports(self, destinations: Iterable[bytes]) -> list[int | None]:
        """The port of every destination (4 or 16 bytes); None where no prefix holds it."""
        lengths = {
            version: sorted({length for v, length, _ in self.port_of if v == version}, reverse=True)
            for version in (4, 6)
        }
        return [self._port(destination, lengths) for destination in destinations]

    def _port(self, destination: bytes, lengths: dict[int, list[int]]) -> int | None:
        version, bits = (4, 32) if len(destination) == 4 else (6, 128)
        address = int.from_bytes(destination)
        for length in lengths[version]:
            port = self.port_of.get((version, length, address >> (bits - length)))
            if port is not None:
                return port
        return None


def _key(prefix: Prefix) -> tuple[int, int, int]:
    bits = prefix.max_prefixlen - prefix.prefixlen
    return prefix.version, prefix.prefixlen, int(prefix.network_address) >> bits


MOST_PACKETS = 10**7
_BATCH = 1 << 17
COPY_NS = 5_000_000
"""A copy of a packet, as a mirror port shows it, comes so soon at the latest: a switch holds a packet no longer."""
_COUNTS = ("without_ip", "malformed_ip", "with_trailer", "to_many", "copies", "lost")
_MOST_ALIKE, _ONE_IN, _LEAST_COPIES = 4, 10, 10

Report = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class CaptureLog:
    """The packets of one import, in order of time; make one with :func:`read_captures`."""

    packets: Packets  #: of all captures that hold arrivals
    port: NDArray[np.int64]  #: int64 [n], of each packet
    flows: int  #: distinct five-tuples
    sizes: Sizes

    def arrivals(self, report: Report = lambda packets: None) -> Iterator[Records]:
        """Yield arrays of ARRIVAL_DTYPE; times begin at 0, flows are numbers, and no address is in them."""
        packets = self.packets
        for first in range(0, len(self.port), _BATCH):
            part = slice(first, first + _BATCH)
            records = np.zeros(len(self.port[part]), ARRIVAL_DTYPE)
            records["time_ns"] = packets.time_ns[part] - packets.time_ns[0]
            records["flow"], records["size_bytes"] = packets.flow[part], packets.size_bytes[part]
            records["port"] = self.port[part]
            records["flow_class"] = np.where(packets.data[part], FlowClass.BACKGROUND, FlowClass.CONTROL)
            yield records
            report(first + len(records))

    def reading(self, source: object) -> Reading:
        """Parts of the captures that were left out, and what is taken for granted; `source` names them."""
        sizes = self.sizes
        received = f" of {sizes.received:,} that it received" if sizes.received else ""
        counted = {
            "{:,} frames without IP, such as ARP": sizes.without_ip,
            "{:,} frames whose IP header contradicts itself": sizes.malformed_ip,
            "{:,} frames to several ports (multicast and broadcast)": sizes.to_many,
            "bytes behind {:,} packets, such as an undeclared check sequence": sizes.with_trailer,
            "{:,} copies of packets of the 5 ms before, as a mirror of both directions makes them": sizes.copies,
            f"counts of {{:,}} packets{received} that the capture lost": sizes.lost,
        }
        guesses = {
            "copies are no arrivals (pcap.copies=keep takes them for such)": sizes.copies,
            "{:,} packets without an identification of IPv4 that repeat one of the 5 ms before are retransmissions, "
            f"because they are fewer than {_LEAST_COPIES} or than one in {_ONE_IN}": sizes.repeated,
            "what the capture lost never arrived, so labels lack it": sizes.lost,
        }
        left_out, guessed = (
            tuple(words.format(number) for words, number in parts.items() if number) for parts in (counted, guesses)
        )
        return Reading(str(source), left_out, guessed)

    def figures(self) -> dict[str, int]:
        """Counts by name, JSON-like."""
        return {
            "packets": len(self.port),
            **{name: getattr(self.sizes, name) for name in _COUNTS},
            "control_packets": int(np.count_nonzero(~self.packets.data)),
            "flows": self.flows,
            "active_ports": len(np.unique(self.port)),
            "span_ns": int(self.packets.time_ns[-1] - self.packets.time_ns[0]),
        }


def read_captures(
    ingress: Path | None,
    egress: Mapping[int, Path],
    table: Path | None,
    ports: int,
    *,
    mtu_bytes: int = 1500,
    sort: bool = False,
    without_copies: bool = True,
    report: Report = lambda packets: None,
) -> CaptureLog:
    """Read the captures of one switch.

    ForetailError if a file is not what it should be, times go back, packets are too many or none, or a size or port
    is unknown.

    Parameters
    ----------
    ingress : Path, optional
        Everything that came to the switch; needs `table` or `egress`. None takes the packets of `egress` themselves.
    egress : a capture for each port
    table : CSV file of prefixes and ports, instead of `egress`
    ports : of the switch
    mtu_bytes : the largest IP packet that can be on the wire
    sort : sort a capture whose times go back, instead of refusing it
    without_copies : leave out a packet that is the same as one shortly before, as a mirror port shows it
    report : called with the number of packets read so far
    """
    for port, path in egress.items():
        if not 0 <= port < ports:
            raise ForetailError(
                f"the capture {path} is of port {port}, but the switch has ports 0 to {ports - 1}: correct "
                "pcap.captures or pcap.ports"
            )
    sizes = Sizes(mtu_bytes)
    reader = _Reader(sort, without_copies, report, sizes)
    prefixes = PortTable.read(table, ports) if table is not None else None
    if ingress is not None:
        packets = reader.read(ingress)
        sizes = replace(sizes)  # egress captures count no more
        flow_port = (
            _ports_of_table(prefixes, reader.flows) if prefixes else _ports_seen(ingress, packets, egress, reader)
        )
        _require_ports(ingress, packets, flow_port, prefixes)
        port_of = flow_port[packets.flow]
    else:
        parts = {number: reader.read(path) for number, path in egress.items()}
        _require_overlap({egress[number]: part for number, part in parts.items()})
        packets = Packets.joined(list(parts.values()))
        port_of = np.concatenate([np.full(len(part.flow), number) for number, part in parts.items()])
        order = np.argsort(packets.time_ns, kind="stable")
        packets, port_of = packets.at(order), port_of[order]
    if not len(port_of):
        files = ", ".join(map(str, [ingress] if ingress is not None else egress.values()))
        raise ForetailError(
            f"no IP packet is in {files} ({reader.packets} frames, {sizes.malformed_ip} of them with a malformed IP "
            "header): capture while there is traffic"
        )
    log = CaptureLog(packets, port_of, len(np.unique(packets.flow)), sizes)
    log.reading(ingress or "the captures").tell()
    return log


class _Reader:
    """Captures of one import, whose five-tuples are numbered together."""

    def __init__(self, sort: bool, without_copies: bool, report: Report, sizes: Sizes) -> None:
        self._sort, self._without_copies, self._report, self._sizes = sort, without_copies, report, sizes
        self.flows, self.packets = Flows(), 0

    def read(self, path: Path) -> Packets:
        """The IP packets of a capture, in order of time."""
        parts, latest = [_NONE], 0
        for frames in frames_of(path, HEAD_BYTES, self._sizes.count_lost):
            self.packets += len(frames.time_ns)
            if self.packets > MOST_PACKETS:
                raise ForetailError(
                    f"the capture {path} brings more than {MOST_PACKETS:,} packets: cut it, such as with editcap -c, "
                    "and import each piece with a number of its own"
                )
            before = np.maximum.accumulate(np.append(latest, frames.time_ns))
            late = np.flatnonzero(frames.time_ns < before[:-1])
            if len(late) and not self._sort:
                back_ns = before[late[0]] - frames.time_ns[late[0]]
                raise ForetailError(
                    f"packet {frames.number + int(late[0])} of the capture {path} is {back_ns / 1000:g} us earlier "
                    "than one before it: set pcap.sort=true to sort by time"
                )
            latest = int(before[-1])
            parts.append(packets_of(path, frames, self.flows, self._sizes))
            self._report(self.packets)
        self._sizes.refuse_faults(path)
        packets = Packets.joined(parts)
        packets = packets.at(np.argsort(packets.time_ns, kind="stable")) if self._sort else packets
        if not self._without_copies:
            return packets
        copies, repeated = _copies(packets)
        self._sizes.copies += int(np.count_nonzero(copies))
        self._sizes.repeated += int(np.count_nonzero(repeated))
        return packets.at(~copies)


_INTEGERS = np.empty(0, np.int64)
_NONE = Packets(_INTEGERS, _INTEGERS, _INTEGERS, np.empty(0, np.bool_), _INTEGERS, np.empty(0, np.uint8))


def _copies(packets: Packets) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Packets of a capture that are copies of one shortly before, and those that repeat one and are none.

    More than `_MOST_ALIKE` in a row are a generator's. Without an identification a retransmission looks the same as a
    copy: there repetitions are copies where they are many.
    """
    order = np.lexsort((packets.time_ns, packets.identity))
    time_ns, identity = packets.time_ns[order], packets.identity[order]
    again = np.append(False, (identity[1:] == identity[:-1]) & (np.diff(time_ns) <= COPY_NS))[: len(order)]
    chain = np.cumsum(~again)
    again &= (np.bincount(chain, minlength=1) <= _MOST_ALIKE)[chain]
    copies = np.zeros(len(order), bool)
    copies[order] = again
    weak = packets.known == 1
    repeated = copies & weak
    if np.count_nonzero(repeated) >= max(_LEAST_COPIES, np.count_nonzero(weak) / _ONE_IN):
        repeated[:] = False
    return copies & (packets.known > 0) & ~repeated, repeated


def _require_overlap(parts: Mapping[Path, Packets]) -> None:
    """Raise ForetailError where all captures are silent for a time between the first and the last of them."""
    spans = sorted(
        (int(part.time_ns[0]), int(part.time_ns[-1]), path) for path, part in parts.items() if len(part.flow)
    )
    latest, before = spans[0][1:] if spans else (0, None)
    for first, last, path in spans[1:]:
        if first > latest:
            raise ForetailError(
                f"the capture {path} begins {(first - latest) / 1e6:,.3f} ms after {before} has ended, so they do not "
                "show one switch at the same time: capture all ports together, or set the clocks right with editcap -t"
            )
        latest, before = max((latest, before), (last, path))


def _ports_of_table(table: PortTable, flows: Flows) -> NDArray[np.int64]:
    """Port of every flow, -1 where the table has none."""
    return np.array([-1 if port is None else port for port in table.ports(flows.destinations())], np.int64)


def _ports_seen(ingress: Path, packets: Packets, egress: Mapping[int, Path], reader: _Reader) -> NDArray[np.int64]:
    """Port of every flow: where it left; of one whose packets were all dropped, where others to its destination left.

    -1 where neither says anything.
    """
    parts = {port: reader.read(path) for port, path in egress.items()}
    _require_overlap({ingress: packets, **{egress[port]: part for port, part in parts.items()}})
    left = {port: np.unique(part.flow) for port, part in parts.items()}
    seen = np.full(len(reader.flows.number_of), -1)
    for port, flows in left.items():
        twice = flows[(seen[flows] >= 0) & (seen[flows] != port)]
        if len(twice):
            raise ForetailError(
                f"flow {int(twice[0])} left by ports {int(seen[twice[0]])} and {port} ({egress[port]}), so that its "
                "packets have no port of their own: leave captures of flooded or sprayed traffic out"
            )
        seen[flows] = port
    destinations = reader.flows.destinations()
    by_destination: dict[bytes, int] = {}
    for destination, port in zip(destinations, seen.tolist(), strict=True):
        if port >= 0 and by_destination.setdefault(destination, port) != port:
            by_destination[destination] = -1
    for flow in np.flatnonzero(seen < 0):
        seen[flow] = by_destination.get(destinations[flow], -1)
    return seen


def _require_ports(ingress: Path, packets: Packets, flow_port: NDArray[np.int64], table: PortTable | None) -> None:
    lost = np.flatnonzero(flow_port[packets.flow] < 0) if len(packets.flow) else np.empty(0, np.intp)
    if not len(lost):
        return
    where = (
        f"no prefix of {table.path} holds their destination: add it, or 0.0.0.0/0 and ::/0 for the rest"
        if table
        else "no capture of pcap.captures shows where they left: capture every port, or give pcap.table"
    )
    raise ForetailError(
        f"{len(lost)} packets of the capture {ingress} have no port, the first at {packets.time_ns[lost[0]] / 1e9:.6f} "
        f"s, because {where}"
    )
