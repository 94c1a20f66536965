"""Packet captures: known arrivals come back exactly, whoever wrote the file; what is not a capture is refused."""

from __future__ import annotations

import ipaddress
import re
import struct
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.utils import RawPcapNgWriter, RawPcapWriter

from foretail.core.errors import ForetailError
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Records
from foretail.sim_bridge.imports.pcap import log as pcap_log
from foretail.sim_bridge.imports.pcap.log import CaptureLog, PortTable, read_captures
from foretail.sim_bridge.imports.pcap.synthetic import draw_arrivals, write_capture, write_switch
from tests.examples import draws

PORTS = 4
LONG_AGO_NS = 1_580_000_000 * 10**9


def arrivals_of(log: CaptureLog) -> Records:
    return np.concatenate([np.empty(0, ARRIVAL_DTYPE), *log.arrivals()])


EVERY_PORT = "".join(f"10.0.{port}.0/24,{port}\n" for port in range(PORTS))


def table_of(folder: Path, text: str = EVERY_PORT) -> Path:
    (folder / "ports.csv").write_text("prefix,port\n" + text)
    return folder / "ports.csv"


@st.composite
def arriving(draw: st.DrawFn) -> Records:
    count = draw(st.integers(1, 40))
    records = np.zeros(count, ARRIVAL_DTYPE)

    def column(low: int, high: int) -> Any:
        return np.array(draw(st.lists(st.integers(low, high), min_size=count, max_size=count)))

    records["time_ns"] = np.cumsum(column(0, 3 * 10**9))
    records["time_ns"] -= records["time_ns"][0]
    records["port"] = column(0, PORTS - 1)
    drawn = column(0, 3) * PORTS + records["port"]
    numbers: dict[int, int] = {}
    records["flow"] = [numbers.setdefault(flow, len(numbers)) for flow in drawn.tolist()]  # as they appear
    records["flow_class"] = np.where(column(0, 4) > 0, FlowClass.BACKGROUND, FlowClass.CONTROL)
    records["size_bytes"] = np.where(records["flow_class"] == FlowClass.CONTROL, 60, column(60, 9000))
    return records


@given(arrivals=arriving(), snap_bytes=st.integers(68, 200), chunk=st.sampled_from((1, 3, 1 << 17)))
@settings(max_examples=draws(40))
def test_known_arrivals_come_back(
    arrivals: Records, snap_bytes: int, chunk: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("pcap")
    write_capture(folder / "a.pcap", arrivals, snap_bytes=snap_bytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foretail.sim_bridge.imports.pcap.capture.CHUNK_PACKETS", chunk)
        log = read_captures(folder / "a.pcap", {}, table_of(folder), PORTS, mtu_bytes=9000)
    np.testing.assert_array_equal(arrivals_of(log), arrivals)


Frame = tuple[int, bytes, int]
"""Time in ns, the bytes that were kept, and how many there were."""


def ethernet(kind: int, payload: bytes, vlans: int = 0) -> bytes:
    return bytes(12) + struct.pack(">HH", 0x8100, 7) * vlans + struct.pack(">H", kind) + payload


def ip(source: str, destination: str, protocol: int, payload: bytes, options: int = 0, fragment: int = 0) -> bytes:
    ends = [ipaddress.ip_address(address).packed for address in (source, destination)]
    if len(ends[0]) == 16:
        return struct.pack(">IHBB16s16s", 6 << 28, len(payload), protocol, 64, *ends) + payload
    words = 5 + options
    head = struct.pack(">BBHHHBBH4s4s", 64 | words, 0, 4 * words + len(payload), 0, fragment, 64, protocol, 0, *ends)
    return head + bytes(4 * options) + payload


def tcp(source: int, destination: int, payload: int, options: int = 0) -> bytes:
    return struct.pack(">HHIIBBHHH", source, destination, 0, 0, 5 + options << 4, 0, 0, 0, 0) + bytes(
        4 * options + payload
    )


def udp(source: int, destination: int, payload: int) -> bytes:
    return struct.pack(">HHHH", source, destination, payload + 8, 0) + bytes(payload)


KINDS = ("pcap, us", "pcap, ns", "pcap, ns, big endian", "pcapng")


def write(path: Path, frames: list[Frame], kind: str = "pcap, ns") -> Path:
    """Let scapy write the frames."""
    nano = kind != "pcap, us"
    writer: Any = (
        RawPcapNgWriter(str(path))
        if kind == "pcapng"
        else RawPcapWriter(str(path), nano=nano, endianness=">" if "big" in kind else "<")
    )
    writer.linktype = 1
    with writer:
        writer.write_header(None)
        for time_ns, kept, size in frames:
            seconds, rest = divmod(time_ns, 10**9)
            if kind == "pcapng":  # which multiplies by 10^6, and heeds no fraction of its own
                time: dict[str, Any] = {"sec": Fraction(time_ns, 10**9)}
            else:
                time = {"sec": seconds, "usec": rest if nano else rest // 1000}
            writer.write_packet(kept, caplen=len(kept), wirelen=size, **time)
    return path


HEADERS = [
    (ethernet(0x0800, ip("10.9.0.1", "10.0.1.5", 6, tcp(1000, 80, 900))), 1, True),
    (ethernet(0x0800, ip("10.9.0.1", "10.0.1.5", 6, tcp(1000, 80, 0))) + bytes(6), 1, False),  # padded to 60 bytes
    (ethernet(0x0800, ip("10.9.0.1", "10.0.2.5", 6, tcp(1000, 80, 0, options=10), options=10), vlans=2), 2, False),
    (ethernet(0x0800, ip("10.9.0.1", "10.0.2.5", 6, tcp(1000, 80, 1, options=10), options=10), vlans=1), 2, True),
    (ethernet(0x0800, ip("10.9.0.1", "10.0.3.5", 17, udp(53, 53, 20))), 3, True),
    (ethernet(0x0800, ip("10.9.0.1", "10.0.3.5", 17, bytes(64), fragment=9)), 3, True),
    (ethernet(0x0800, ip("10.9.0.1", "10.0.3.5", 1, bytes(8))), 3, True),
    (ethernet(0x86DD, ip("2001:db8::1", "2001:db8::2", 6, tcp(1000, 80, 0))), 0, False),
    (ethernet(0x86DD, ip("2001:db8::1", "2001:db8::2", 17, udp(9, 9, 0)), vlans=1), 0, True),
]
OTHERS = [ethernet(0x0806, bytes(46)), ethernet(0x88CC, bytes(60)), bytes(13), ethernet(0x0800, bytes(20))]
TABLE = "10.0.0.0/8,2\n10.0.1.0/24,1\n10.0.3.0/24,3\n2001:db8::/32,0\n"


@pytest.mark.parametrize("kind", KINDS)
def test_headers_are_read_in_files_of_another_writer(tmp_path: Path, kind: str) -> None:
    frames = [(LONG_AGO_NS + 7000 * n, frame[:110], len(frame)) for n, (frame, _, _) in enumerate(HEADERS)]
    others = [(LONG_AGO_NS + 10**6, frame, len(frame)) for frame in OTHERS]
    log = read_captures(write(tmp_path / "a", frames + others, kind), {}, table_of(tmp_path, TABLE), PORTS)
    found = arrivals_of(log)
    assert found["time_ns"].tolist() == [7000 * n for n in range(len(HEADERS))]
    assert found["size_bytes"].tolist() == [len(frame) for frame, _, _ in HEADERS]
    assert found["port"].tolist() == [port for _, port, _ in HEADERS]
    assert (found["flow_class"] == FlowClass.BACKGROUND).tolist() == [data for _, _, data in HEADERS]
    assert found["flow"].tolist() == [0, 0, 1, 1, 2, 3, 4, 5, 6]
    assert log.figures() == {
        "packets": 9,
        "without_ip": 3,
        "malformed_ip": 1,
        "with_trailer": 0,
        "to_many": 0,
        "copies": 0,
        "lost": 0,
        "control_packets": 3,
        "flows": 7,
        "active_ports": 4,
        "span_ns": 7000 * 8,
    }


def pcapng(*blocks: tuple[int, bytes], order: str = "<") -> bytes:
    body = [(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1)), *blocks]
    return b"".join(
        struct.pack(order + "II", kind, len(text) + 12) + text + struct.pack(order + "I", len(text) + 12)
        for kind, text in body
    )


def interface(order: str = "<", link: int = 1, options: bytes = b"") -> tuple[int, bytes]:
    return 1, struct.pack(order + "HHI", link, 0, 96) + options


def packet(ticks: int, order: str = "<", of: int = 0, kept: int | None = None) -> tuple[int, bytes]:
    frame = HEADERS[0][0][:96]
    size = len(frame) if kept is None else kept
    return 6, struct.pack(order + "5I", of, ticks >> 32, ticks & 0xFFFFFFFF, size, 954) + frame


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("resolution", "ticks"), [(None, 10**6), (9, 10**9), (3, 10**3), (12, 10**12), (128 | 30, 2**30)]
)
def test_times_of_pcapng_are_exact(tmp_path: Path, order: str, resolution: int | None, ticks: int) -> None:
    option = b"" if resolution is None else struct.pack(order + "HHBxxx", 9, 1, resolution)
    option += struct.pack(order + "HHq", 14, 8, 5)  # seconds that are added to each time
    blocks = (interface(order, options=option), packet(ticks, order), (4, b"name"), packet(ticks + 10**6, order))
    path = tmp_path / "a"
    path.write_bytes(pcapng(*blocks, order=order) + pcapng(interface(order), packet(2**40, order), order=order))
    times = arrivals_of(read_captures(path, {}, table_of(tmp_path), PORTS))["time_ns"]
    assert times[1] == 10**6 * 10**9 // ticks
    assert times[2] == 2**40 * 1000 - 6 * 10**9  # the second section is in microseconds again


def test_the_three_ways_to_know_a_port_agree(tmp_path: Path) -> None:
    write_switch(tmp_path, PORTS, 2000, seed=3)
    egress = {port: tmp_path / f"port{port}.pcap" for port in range(PORTS)}
    by_table = arrivals_of(read_captures(tmp_path / "ingress.pcap", {}, tmp_path / "ports.csv", PORTS))
    np.testing.assert_array_equal(by_table["port"], draw_arrivals(PORTS, 2000, seed=3)["port"])
    by_flow = arrivals_of(read_captures(tmp_path / "ingress.pcap", egress, None, PORTS))
    np.testing.assert_array_equal(by_flow, by_table)
    alone = arrivals_of(read_captures(None, egress, None, PORTS))
    assert np.all(np.diff(alone["time_ns"]) >= 0)
    for port in range(PORTS):
        one, other = (records[records["port"] == port] for records in (alone, by_table))
        np.testing.assert_array_equal(one["size_bytes"], other["size_bytes"])
        assert len(set(one["flow"].tolist())) == len(set(other["flow"].tolist()))


def frame_to(destination: str, port: int) -> bytes:
    return ethernet(0x0800, ip("10.9.0.1", destination, 17, udp(port, 9, 50)))


def capture_of(path: Path, *frames: bytes) -> Path:
    return write(path, [(LONG_AGO_NS + n, frame, len(frame)) for n, frame in enumerate(frames)])


def test_a_flow_that_was_dropped_whole_goes_where_others_to_its_destination_went(tmp_path: Path) -> None:
    there, dropped, lost = frame_to("10.0.0.1", 1), frame_to("10.0.0.1", 2), frame_to("10.0.0.2", 1)
    ingress = capture_of(tmp_path / "in", there, dropped)
    egress = {3: capture_of(tmp_path / "out", there)}
    assert arrivals_of(read_captures(ingress, egress, None, PORTS))["port"].tolist() == [3, 3]
    with pytest.raises(ForetailError, match=r"1 packets of .* have no port, .*capture every port, or give pcap\.table"):
        read_captures(capture_of(tmp_path / "in", there, lost), egress, None, PORTS)
    egress[1] = capture_of(tmp_path / "other", there)
    with pytest.raises(ForetailError, match="flow 0 left by ports 3 and 1 "):
        read_captures(ingress, egress, None, PORTS)


def test_times_that_go_back_are_sorted_only_on_demand(tmp_path: Path) -> None:
    frames = [(LONG_AGO_NS + late, frame_to("10.0.0.1", late), 92) for late in (0, 5000, 3000, 4000)]
    path = write(tmp_path / "a", frames)
    with pytest.raises(ForetailError, match=r"packet 3 of the capture .* is 2 us earlier .* set pcap\.sort=true"):
        read_captures(path, {}, table_of(tmp_path), PORTS)
    found = arrivals_of(read_captures(path, {}, table_of(tmp_path), PORTS, sort=True))
    assert found["time_ns"].tolist() == [0, 3000, 4000, 5000]
    assert found["flow"].tolist() == [0, 2, 3, 1]


ONE = HEADERS[0][0]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"hello world, no capture", "is not a capture"),
        (b"\x1f\x8b\x08rest", r"is compressed \(gzip\): unpack it"),
        (b"\x28\xb5\x2f\xfdrest", r"is compressed \(zstd\)"),
        (struct.pack("<IHHiII", 0xA1B23C4D, 2, 4, 0, 0, 96), "is truncated"),
        (struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 96, 113), "has link type 113"),
        (struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 96, 1), "no IP packet is in"),
        (struct.pack("<IHHiIII4I", 0xA1B2C3D4, 2, 4, 0, 0, 96, 1, 1, 10**6, 0, 0), "packet 1 has an impossible time"),
        (struct.pack("<IHHiIII4I", 0xA1B2C3D4, 2, 4, 0, 0, 96, 1, 1, 0, 9, 8) + bytes(9), "editcap -C -1$"),
        (pcapng(interface(link=101)), "has link type 101"),
        (pcapng(interface()), "no IP packet is in"),
        (pcapng(packet(1)), "is of interface 0, which nothing describes"),
        (pcapng(interface(), packet(1, kept=200)), "packet 1 has an impossible length"),
        (pcapng(interface(), packet(2**64 - 1)), "packet 1 has an impossible time"),
        (pcapng(interface(), (6, bytes(8))), "packet 1 is described in less than 20 bytes"),
        (pcapng((1, bytes(4))), "an interface is described in less than 8 bytes"),
        (pcapng(interface(options=struct.pack("<HH", 9, 50))), "an option of an interface is longer"),
        (pcapng(interface(), (3, struct.pack("<I", 4) + bytes(4))), "a packet block of kind 3, .* editcap"),
        (pcapng(interface(), packet(1))[:-4], "is truncated: it ends inside a record behind packet 0"),
        (pcapng(interface(), packet(1))[:-3], "is truncated"),
        (pcapng(interface())[:-4] + b"\0\0\0\0", "ends with another length"),
        (pcapng(interface()) + struct.pack("<III", 6, 8, 8), "has the length 8"),
        (b"\x0a\x0d\x0d\x0a" + bytes(24), "a section has no byte order"),
    ],
)
def test_what_is_no_capture_is_refused(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    refused(lambda: read_captures(path, {}, table_of(tmp_path), PORTS), complaint, path)


def refused(read: Callable[[], object], complaint: str, path: Path) -> None:
    with pytest.raises(ForetailError, match=complaint) as caught:
        read()
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_capture_cut_anywhere_is_truncated_or_shorter(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "a", [(LONG_AGO_NS + n, ONE[:48], len(ONE)) for n in range(2)], kind)
    content = path.read_bytes()
    read, said = [], set()
    for length in range(1, len(content)):
        path.write_bytes(content[:length])
        try:
            read.append(len(read_captures(path, {}, table_of(tmp_path), PORTS).port))
        except ForetailError as error:
            said.add(re.sub(r".*(truncated|not a capture|no IP packet|byte order).*", r"\1", str(error)))
    assert said <= {"truncated", "not a capture", "no IP packet", "byte order"}
    assert read == [1]  # what ends with a whole record is shorter, and nothing tells


@pytest.mark.parametrize("kept", [10, 14, 20, 33, 36, 46])
def test_a_snap_length_that_cuts_headers_is_refused(tmp_path: Path, kept: int) -> None:
    path = write(tmp_path / "a", [(LONG_AGO_NS, ONE, len(ONE)), (LONG_AGO_NS, ONE[:kept], len(ONE))])
    complaint = "packet 2 of the capture .* was cut off inside its headers: .* 128 bytes or more"
    refused(lambda: read_captures(path, {}, table_of(tmp_path), PORTS), complaint, path)


def sizes_in(path: Path, folder: Path, mtu_bytes: int = 1500) -> tuple[list[int], dict[str, int]]:
    log = read_captures(path, {}, table_of(folder, "0.0.0.0/0,1\n::/0,0\n"), PORTS, mtu_bytes=mtu_bytes)
    return arrivals_of(log)["size_bytes"].tolist(), log.figures()


@pytest.mark.parametrize("vlans", [0, 1])
@pytest.mark.parametrize("payload", [0, 900])
def test_a_check_sequence_that_the_file_declares_is_no_payload(tmp_path: Path, payload: int, vlans: int) -> None:
    frame = ethernet(0x0800, ip("10.9.0.1", "10.0.1.5", 6, tcp(1000, 80, payload)), vlans).ljust(60, b"\0")
    record = struct.pack("<4I", 1, 0, len(frame) + 4, len(frame) + 4) + frame + b"fcs."
    contents = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 9000, 0x2400_0001) + record]
    padded = frame + b"fcs." + bytes(-len(frame) % 4)
    block = struct.pack("<5I", 0, 0, 0, len(frame) + 4, len(frame) + 4) + padded
    contents += [pcapng(interface(options=struct.pack("<HHBxxx", 13, 1, size)), (6, block)) for size in (4, 32)]
    contents += [pcapng(interface(), (6, block + struct.pack("<HHI", 2, 4, 4 << 5)))]
    for content in contents:
        (tmp_path / "a").write_bytes(content)
        found, figures = sizes_in(tmp_path / "a", tmp_path)
        assert (found, figures["with_trailer"]) == ([len(frame)], 0)
    (tmp_path / "a").write_bytes(pcapng(interface(options=struct.pack("<HHBxxx", 13, 1, 7)), (6, block)))
    refused(lambda: sizes_in(tmp_path / "a", tmp_path), "has a check sequence of 7 bits", tmp_path / "a")


def test_bytes_behind_a_packet_are_taken_off_and_counted(tmp_path: Path) -> None:
    control = ethernet(0x0800, ip("10.9.0.1", "10.0.1.5", 6, tcp(1000, 80, 0)))
    path = capture_of(tmp_path / "a", ONE, ONE + bytes(4), ONE + bytes(16), control + bytes(10), control + bytes(6))
    found, figures = sizes_in(path, tmp_path)
    assert found == [len(ONE)] * 3 + [60] * 2
    assert (figures["with_trailer"], figures["malformed_ip"], figures["without_ip"]) == (3, 0, 0)


def test_frames_whose_ip_header_contradicts_itself_are_counted(tmp_path: Path) -> None:
    short = bytearray(ONE)
    short[16:18] = struct.pack(">H", 16)  # less than the header
    found, figures = sizes_in(capture_of(tmp_path / "a", bytes(short), ONE, OTHERS[0]), tmp_path)
    assert (found, figures["malformed_ip"], figures["without_ip"]) == ([len(ONE)], 1, 1)
    path = capture_of(tmp_path / "a", bytes(short), OTHERS[0])
    refused(lambda: sizes_in(path, tmp_path), r"2 frames, 1 of them with a malformed IP header", path)


def without_length(frame: bytes) -> bytes:
    at = 16 if frame[12:14] == b"\x08\x00" else 18
    return frame[:at] + bytes(2) + frame[at + 2 :]


LARGE = ethernet(0x86DD, ip("2001:db8::1", "2001:db8::2", 6, tcp(1000, 80, 7000)))
HIDDEN = {0x8847: "MPLS", 0x8864: "PPPoE", 0x88E5: "MACsec", 0x8915: "RoCE v1"}


@pytest.mark.parametrize(
    ("frame", "size", "complaint"),
    [
        (ONE[:96], 96, ".*more bytes by their IP header than by their record: .* keeps the original lengths"),
        (LARGE, len(LARGE), r".*larger than pcap\.mtu_bytes=1500 allows .* offload .* set pcap\.mtu_bytes for jumbo"),
        (ONE + bytes(65), len(ONE) + 65, "go on for more than 64 bytes behind their IP packet"),
        (without_length(ONE), len(ONE), ".*state no length, as a host's offload"),
        (without_length(LARGE[:110]), 80_054, ".*state no length, as a host's offload"),
        (ethernet(0x8100, bytes(60), vlans=2), 82, "hide their ports in a third VLAN tag"),
        *((ethernet(kind, bytes(60)), 74, f"hide .* in {name}: .*proto {kind:#x}'") for kind, name in HIDDEN.items()),
    ],
)
def test_frames_whose_size_or_port_nobody_can_tell_are_refused(
    tmp_path: Path, frame: bytes, size: int, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretail.sim_bridge.imports.pcap.capture.CHUNK_PACKETS", 2)
    frames = [(ONE, len(ONE)), (frame, size), (ONE, len(ONE)), (frame, size)]
    path = write(tmp_path / "a", [(LONG_AGO_NS + n, *one) for n, one in enumerate(frames)])
    refused(lambda: sizes_in(path, tmp_path), r"has 2 frames \(the first is number 2\) that " + complaint, path)


def test_too_many_packets_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = capture_of(tmp_path / "a", ONE, ONE, ONE)
    monkeypatch.setattr(pcap_log, "MOST_PACKETS", 2)
    refused(lambda: read_captures(path, {}, table_of(tmp_path), PORTS), "more than 2 packets: cut it", path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("10.0.0.0/8,1\n10.0.0.0/8,2\n", "line 3 .* has a prefix again"),
        ("10.0.0.0/8,4\n", "line 2 .* names port 4, but the switch has ports 0 to 3"),
        ("10.0.0.0/8,-1\n", "names port -1"),
        ("10.0.0.1/8,1\n", "line 2 .* is not a prefix with a port"),
        ("10.0.0.0/8\n", "line 2 .* is not a prefix with a port"),
        ("10.0.0.0/8,one\n", "line 2 .* is not a prefix with a port"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = table_of(tmp_path, text)
    refused(lambda: PortTable.read(path, PORTS), complaint, path)


def test_other_ports_and_files_are_refused(tmp_path: Path) -> None:
    path = capture_of(tmp_path / "a", ONE)
    refused(lambda: read_captures(None, {4: path}, None, PORTS), "is of port 4, but the switch has ports 0 to 3", path)
    refused(lambda: read_captures(tmp_path / "b", {}, table_of(tmp_path), PORTS), "cannot be read", tmp_path / "b")
    table = table_of(tmp_path, "10.7.0.0/16,1\n")
    refused(lambda: read_captures(path, {}, table, PORTS), "no prefix of .* holds their destination", path)
    table.write_text('"a\nb",c\n')
    refused(lambda: PortTable.read(table, PORTS), "begins with a b,c: let its first line be prefix,port alone", table)
    table.write_text("\ufeffprefix,port\n10.0.0.0/8,1\n", encoding="utf-8")  # as spreadsheets save it
    assert PortTable.read(table, PORTS).port_of
    table.write_bytes(b"\xff\xfe")
    refused(lambda: PortTable.read(table, PORTS), "is not a CSV file", table)
    refused(lambda: PortTable.read(tmp_path / "b", PORTS), "cannot read", tmp_path / "b")


def test_no_address_is_in_the_arrivals(tmp_path: Path) -> None:
    write_switch(tmp_path, PORTS, 1000, seed=1)
    content = arrivals_of(read_captures(tmp_path / "ingress.pcap", {}, tmp_path / "ports.csv", PORTS)).tobytes()
    assert b"\x0a\x00" + bytes((1, 1)) not in content


def sent(number: int, identification: int, hops: int = 64, mac: int = 0, six: bool = False) -> bytes:
    """A TCP segment of 1000 bytes as a sender and a router would write it."""
    ends = (10, 9, 0, number % 5), (10, 0, number % 2, 1)
    if six:
        header = struct.pack(">IHBB", 6 << 28, 946, 6, hops) + b"".join(bytes(12) + bytes(end) for end in ends)
    else:
        header = struct.pack(">BBHHHBBH", 0x45, 0, 986, identification, 0, hops, 6, hops * 7) + bytes(sum(ends, ()))
    segment = struct.pack(">HHIIBBHHH", 1024, 80, number * 946 + 1, 0, 5 << 4, 16, 0, 0, 0)
    kind = b"\x86\xdd" if six else b"\x08\x00"
    return (bytes([2, 0, 0, 0, 0, mac]) + bytes(6) + kind + header + segment).ljust(1000, b"\0")


def timed(*frames: tuple[int, bytes]) -> list[Frame]:
    return [(LONG_AGO_NS + at_ns, frame[:110], len(frame)) for at_ns, frame in sorted(frames)]


@pytest.mark.parametrize("six", [False, True])
@pytest.mark.parametrize("routed", [False, True])
def test_copies_of_a_mirror_port_are_left_out_and_retransmissions_stay(tmp_path: Path, routed: bool, six: bool) -> None:
    table = table_of(tmp_path, EVERY_PORT + "::/0,0\n")
    once = [(n * 1300, sent(n, 100 + n, six=six)) for n in range(100)]
    again = [
        (at + 2000 + n, sent(n, 100 + n, 63 if routed else 64, int(routed), six)) for n, (at, _) in enumerate(once)
    ]
    repeated = [(200_000 + n, sent(n, 900 + n, six=six)) for n in (3, 50, 51)]
    read = partial(read_captures, egress={}, table=table, ports=PORTS)
    plain = read(write(tmp_path / "once", timed(*once, *repeated)))
    weak = "3 packets without an identification of IPv4 that repeat one of the 5 ms before are retransmissions"
    assert (len(plain.port), weak in plain.reading("x").sentence()) == (103, six)
    both = read(write(tmp_path / "twice", timed(*once, *again)))
    assert both.packets.time_ns.tolist() == [LONG_AGO_NS + at for at, _ in once]
    assert "100 copies of packets of the 5 ms before" in both.reading("x").sentence()
    assert "pcap.copies=keep" in both.reading("x").sentence()
    assert len(read(tmp_path / "twice", without_copies=False).port) == 200
    generated = read(write(tmp_path / "alike", timed(*((n * 1000, sent(1, 5)) for n in range(50)))))
    assert len(generated.port) == 50  # a generator's, which all look the same


@pytest.mark.parametrize(("segments", "repeated", "kept"), [(6, 6, 12), (9, 9, 18), (10, 10, 10), (200, 19, 219)])
@pytest.mark.parametrize("six", [False, True])
def test_few_repeated_segments_without_identification_stay(
    tmp_path: Path, six: bool, segments: int, repeated: int, kept: int
) -> None:
    frames = [(n * 1300 + again * 400_000, sent(n, 0, six=six)) for again in (0, 1) for n in range(segments)]
    path = write(tmp_path / "a", timed(*frames[: segments + repeated]))
    log = read_captures(path, {}, table_of(tmp_path, EVERY_PORT + "::/0,0\n"), PORTS)
    assert len(log.port) == kept
    assert log.figures()["copies"] == segments + repeated - kept
    assert ("fewer than 10 or than one in 10" in log.reading(path).sentence()) == (kept > segments)


def test_packets_that_a_capture_lost_are_counted(tmp_path: Path) -> None:
    def statistics(*counts: tuple[int, int]) -> tuple[int, bytes]:
        return 5, struct.pack("<3I", 0, 0, 0) + b"".join(struct.pack("<HHQ", code, 8, n) for code, n in counts)

    def sentence(*blocks: tuple[int, bytes]) -> str:
        path = tmp_path / "a"
        path.write_bytes(pcapng(interface(), packet(5), *blocks))
        return read_captures(path, {}, table_of(tmp_path), PORTS).reading(path).sentence()

    assert sentence(statistics((4, 90), (5, 0), (7, 0))) == ""
    grown = sentence(statistics((4, 40), (5, 30)), statistics((4, 90), (5, 37), (7, 12)))
    assert "counts of 49 packets of 90 that it received that the capture lost" in grown
    of_packet, kind = packet(6), struct.pack("<HHQ", 4, 8, 5)
    assert "counts of 5 packets that the capture lost" in sentence((of_packet[0], of_packet[1] + kind))
    with pytest.raises(ForetailError, match="statistics of an interface have less than 12 bytes"):
        sentence((5, bytes(8)))


def test_frames_to_several_ports_are_left_out_and_counted(tmp_path: Path) -> None:
    to_all = [
        b"\xff" * 6 + sent(1, 7)[6:],
        ethernet(0x0800, ip("10.9.0.1", "239.1.1.1", 17, udp(9, 9, 50))),
        ethernet(0x0800, ip("10.9.0.1", "255.255.255.255", 17, udp(9, 9, 50))),
        ethernet(0x86DD, ip("2001:db8::1", "ff02::1", 17, udp(9, 9, 50))),
    ]
    path = write(tmp_path / "a", timed((0, sent(1, 3)), *((5 + n, frame) for n, frame in enumerate(to_all))))
    log = read_captures(path, {}, table_of(tmp_path, EVERY_PORT + "0.0.0.0/0,0\n::/0,0\n"), PORTS)
    assert (len(log.port), log.figures()["to_many"], log.figures()["without_ip"]) == (1, 4, 0)
    assert "4 frames to several ports" in log.reading(path).sentence()


@pytest.mark.parametrize("apart_ns", [3_000_000, 37 * 10**9, 3600 * 10**9])
@pytest.mark.parametrize("with_ingress", [False, True])
def test_captures_that_do_not_overlap_in_time_are_refused(tmp_path: Path, apart_ns: int, with_ingress: bool) -> None:
    first = write(tmp_path / "a", timed(*((n * 1000, sent(2 * n, 9 + n)) for n in range(20))))
    second = write(tmp_path / "b", timed(*((apart_ns + n * 1000, sent(2 * n + 1, 9 + n)) for n in range(20))))
    with pytest.raises(ForetailError, match=f"b begins .* ms after {first} has ended"):
        read_captures(first if with_ingress else None, {0: first, 1: second}, None, PORTS)
