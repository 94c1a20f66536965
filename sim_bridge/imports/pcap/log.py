"""Captures at one switch as arrivals at its ports.

Three ways to know the port of a packet:

- an ingress capture and a table of prefixes;
- an ingress capture and one capture per egress port: a flow's port is the one at which it was seen to leave;
- one capture per egress port alone: their packets, with the times at which they left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.core.reading import Reading
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Records
from foretail.sim_bridge.imports.pcap.capture import frames_of
from foretail.sim_bridge.imports.pcap.frames import HEAD_BYTES, Flows, Packets, Sizes, packets_of
from foretail.sim_bridge.imports.pcap.ports import PortTable

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
