"""Write captures of known arrivals, to try the import without a switch.

``python -m foretail.sim_bridge.imports.pcap.synthetic FOLDER`` writes what the page on imports reads: ``ingress.pcap``,
the table ``ports.csv`` for it, and a capture ``port0.pcap``, ``port1.pcap``, ... of what left each port. Bursts for a
few ports come on top of steady traffic; nothing about real networks follows from it.
"""

from __future__ import annotations

import argparse
import struct
import sys
from pathlib import Path

import numpy as np

from foretail.core.errors import ForetailError
from foretail.core.files import write_file, writing
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Records

HEADER_BYTES = 54
"""Ethernet, IPv4 and TCP without options."""

_FIRST_NS = 1_580_000_000 * 10**9


def write_capture(path: Path, arrivals: Records, *, snap_bytes: int = 96) -> None:
    """Write arrivals as a capture: Ethernet, nanoseconds, the first `snap_bytes` of each frame.

    Flow f to port p is a TCP connection to 10.0.p.1 and a port of its own. Control packets have no payload.
    ForetailError if the file system refuses.

    Parameters
    ----------
    path : replaced when it exists
    arrivals : (n,) array of ARRIVAL_DTYPE
        ``time_ns``, ``flow``, ``size_bytes`` (60 or more), ``port`` (0 to 255) and ``flow_class`` are read.
    snap_bytes : at least HEADER_BYTES
    """
    columns = (arrivals[name].tolist() for name in ("time_ns", "flow", "size_bytes", "port", "flow_class"))
    with writing(path), path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, snap_bytes, 1))
        for time_ns, flow, size, port, kind in zip(*columns, strict=True):
            captured_bytes = min(size, snap_bytes)
            seconds, rest = divmod(_FIRST_NS + time_ns, 10**9)
            file.write(struct.pack("<4I", seconds, rest, captured_bytes, size))
            file.write(
                _frame(flow, port, size, kind == FlowClass.CONTROL)[:captured_bytes].ljust(captured_bytes, b"\0")
            )


def _frame(flow: int, port: int, size: int, control: bool) -> bytes:
    ip_bytes = 40 if control else size - 14
    ethernet = bytes(12) + b"\x08\x00"
    source, destination = bytes((10, 1, flow >> 8 & 255, flow & 255)), bytes((10, 0, port, 1))
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, ip_bytes, 0, 0, 64, 6, 0, source, destination)
    return ethernet + ip + struct.pack(">HHIIBBHHH", 1024 + (flow >> 16), 80, 0, 0, 5 << 4, 16, 0, 0, 0)


def draw_arrivals(ports: int, packets: int, seed: int) -> Records:
    """Arrivals of 1000 bytes at 10 Gbit/s per port: half of the load is steady, and bursts of 60 go to single ports."""
    draw = np.random.default_rng(seed)
    packet_ns, length = 800, 60
    bursts = packets // 2 // length
    end_ns = packets * packet_ns // ports * 5 // 4
    steady = packets - bursts * length
    start = np.repeat(draw.integers(0, end_ns, bursts), length)
    records = np.zeros(packets, ARRIVAL_DTYPE)
    records["time_ns"] = np.concatenate(
        [draw.integers(0, end_ns, steady), start + np.tile(np.arange(length) * 100, bursts)]
    )
    records["port"] = np.concatenate(
        [draw.integers(0, ports, steady), np.repeat(draw.integers(0, ports, bursts), length)]
    )
    records["flow"] = np.concatenate([records["port"][:steady] + 64, 64 + ports + np.repeat(np.arange(bursts), length)])
    records["size_bytes"], records["flow_class"] = 1000, FlowClass.BACKGROUND
    return records[np.argsort(records["time_ns"], kind="stable")]


def write_switch(folder: Path, ports: int, packets: int, seed: int) -> None:
    """Write the captures of a switch and its table of ports into `folder`.

    What left a port is written as it came, one packet after the other at 10 Gbit/s.
    """
    arrivals = draw_arrivals(ports, packets, seed)
    write_capture(folder / "ingress.pcap", arrivals)
    write_file(folder / "ports.csv", "prefix,port\n" + "".join(f"10.0.{port}.0/24,{port}\n" for port in range(ports)))
    for port in range(ports):
        left = arrivals[arrivals["port"] == port].copy()
        sent = 8 * left["size_bytes"] // 10
        before = np.cumsum(sent) - sent
        left["time_ns"] = np.maximum.accumulate(left["time_ns"] - before) + before + sent
        write_capture(folder / f"port{port}.pcap", left)


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m foretail.sim_bridge.imports.pcap.synthetic", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ports", type=int, default=4)
    parser.add_argument("--packets", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if not (2 <= given.ports <= 256 and given.packets >= 1000):
        parser.error("--ports must be 2 to 256, and --packets at least 1000")
    try:
        given.folder.mkdir(parents=True, exist_ok=True)
        write_switch(given.folder, given.ports, given.packets, given.seed)
    except ForetailError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: cannot write {given.folder}: {error.strerror}; choose another folder", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(_main())
