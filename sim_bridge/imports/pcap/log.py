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
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Records
from foretail.sim_bridge.imports.pcap.capture import frames_of
from foretail.sim_bridge.imports.pcap.frames import HEAD_BYTES, Flows, Packets, Sizes, packets_of
from foretail.sim_bridge.imports.pcap.ports import PortTable

MOST_PACKETS = 10**7
_BATCH = 1 << 17

Report = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class CaptureLog:
    """The packets of one import, in order of time; make one with :func:`read_captures`."""

    packets: Packets  #: of all captures that hold arrivals
    port: NDArray[np.int64]  #: int64 [n], of each packet
    flows: int  #: distinct five-tuples
    left_out: int  #: frames that are no packets
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

    def figures(self) -> dict[str, int]:
        """Counts by name, JSON-like."""
        return {
            "packets": len(self.port),
            "without_ip": self.left_out - self.sizes.malformed_ip,
            "malformed_ip": self.sizes.malformed_ip,
            "with_trailer": self.sizes.with_trailer,
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
    report : called with the number of packets read so far
    """
    for port, path in egress.items():
        if not 0 <= port < ports:
            raise ForetailError(
                f"the capture {path} is of port {port}, but the switch has ports 0 to {ports - 1}: correct "
                "pcap.captures or pcap.ports"
            )
    sizes = Sizes(mtu_bytes)
    reader = _Reader(sort, report, sizes)
    prefixes = PortTable.read(table, ports) if table is not None else None
    if ingress is not None:
        packets = reader.read(ingress)
        arrived, sizes = reader.packets, replace(sizes)  # egress captures count no more
        flow_port = _ports_of_table(prefixes, reader.flows) if prefixes else _ports_seen(egress, reader)
        _require_ports(ingress, packets, flow_port, prefixes)
        port_of, left_out = flow_port[packets.flow], arrived - len(packets.flow)
    else:
        parts = {number: reader.read(path) for number, path in egress.items()}
        packets = _joined(list(parts.values()))
        port_of = np.concatenate([np.full(len(part.flow), number) for number, part in parts.items()])
        order = np.argsort(packets.time_ns, kind="stable")
        packets, port_of, left_out = _chosen(packets, order), port_of[order], reader.packets - len(packets.flow)
    if not len(port_of):
        files = ", ".join(map(str, [ingress] if ingress is not None else egress.values()))
        raise ForetailError(
            f"no IP packet is in {files} ({reader.packets} frames, {sizes.malformed_ip} of them with a malformed IP "
            "header): capture while there is traffic"
        )
    return CaptureLog(packets, port_of, len(np.unique(packets.flow)), left_out, sizes)


class _Reader:
    """Captures of one import, whose five-tuples are numbered together."""

    def __init__(self, sort: bool, report: Report, sizes: Sizes) -> None:
        self._sort, self._report, self._sizes = sort, report, sizes
        self.flows, self.packets = Flows(), 0

    def read(self, path: Path) -> Packets:
        """The IP packets of a capture, in order of time."""
        parts, latest = [_NONE], 0
        for frames in frames_of(path, HEAD_BYTES):
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
        packets = _joined(parts)
        return _chosen(packets, np.argsort(packets.time_ns, kind="stable")) if self._sort else packets


_NONE = Packets(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))


def _joined(parts: list[Packets]) -> Packets:
    return Packets(
        np.concatenate([part.time_ns for part in parts]),
        np.concatenate([part.size_bytes for part in parts]),
        np.concatenate([part.flow for part in parts]),
        np.concatenate([part.data for part in parts]),
    )


def _chosen(packets: Packets, order: NDArray[np.intp]) -> Packets:
    return Packets(packets.time_ns[order], packets.size_bytes[order], packets.flow[order], packets.data[order])


def _ports_of_table(table: PortTable, flows: Flows) -> NDArray[np.int64]:
    """Port of every flow, -1 where the table has none."""
    return np.array([-1 if port is None else port for port in table.ports(flows.destinations())], np.int64)


def _ports_seen(egress: Mapping[int, Path], reader: _Reader) -> NDArray[np.int64]:
    """Port of every flow: where it left; of one whose packets were all dropped, where others to its destination left.

    -1 where neither says anything.
    """
    left = {port: np.unique(reader.read(path).flow) for port, path in egress.items()}
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
