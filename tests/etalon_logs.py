"""Packet logs in the format of the Etalon emulator, for tests of their import.

Racks around a packet switch and a rotor: one VOQ per pair, served by its share of the packet uplink and, one day a
week, by a circuit. It is a sketch of the emulator; no result about circuit networks follows from it.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from foretail.features.records import Records
from foretail.sim_bridge.imports.etalon.records import DOWN, LAYOUTS, UP

PACKET_DTYPE = np.dtype(
    [
        ("time_ns", "<i8"),  # virtual time at which it is logged, from 0
        ("latency_us", "<i4"),  # virtual time since it came to its VOQ
        ("source", "<i4"),  # racks, from 1
        ("destination", "<i4"),
        ("source_host", "u1"),
        ("destination_host", "u1"),
        ("source_port", "<u2"),
        ("destination_port", "<u2"),
        ("payload_bytes", "<i4"),  # of TCP, without the headers of 52 bytes
        ("circuit", "u1"),
        ("voq", "<i4"),
    ]
)
EVENT_DTYPE = np.dtype([("time_ns", "<i8"), ("up", "u1"), ("source", "<i4"), ("destination", "<i4")])

HEADER_BYTES = 52  # IPv4 without options, TCP with timestamps
DAY_NS, NIGHT_NS = 180_000, 20_000
_FIRST_SECOND = 1_580_000_000


def write_etalon_log(
    path: Path,
    packets: Records,
    events: Records,
    *,
    record_bytes: int = 116,
    time_dilation: int = 20,
    latency_dilated: bool = False,
) -> None:
    """Write packets and events, merged by time, as a packet log.

    Parameters
    ----------
    path : replaced when it exists
    packets : (n,) array of PACKET_DTYPE, events come before packets of the same time
    events : (m,) array of EVENT_DTYPE
    record_bytes : {112, 116}, the layout; 112 has no VOQ lengths
    time_dilation : wall time over virtual time
    latency_dilated : write latencies in wall time, as a log with another unit would
    """
    log = np.zeros(len(packets) + len(events), LAYOUTS[record_bytes])
    time_ns = np.concatenate([events["time_ns"], packets["time_ns"]])
    log["stamp"] = _stamps(time_ns, time_dilation)
    of_events, of_packets = log[: len(events)], log[len(events) :]
    of_events["type"] = np.where(events["up"] != 0, UP, DOWN)
    of_packets["latency_us"] = packets["latency_us"] * (time_dilation if latency_dilated else 1)
    for name in ("source", "destination"):
        of_events[name] = events[name]
        of_packets[name] = packets[name]
    if record_bytes == 116:
        of_packets["voq"] = packets["voq"]
    of_packets["packet"] = _headers(packets)
    log[np.argsort(time_ns, kind="stable")].tofile(path)


def _stamps(time_ns: Any, time_dilation: int) -> Any:
    """ASCII seconds of dilated times, uint8 [n, 32]."""
    text = [f"{_FIRST_SECOND + t // 10**9}.{t % 10**9:09d}" for t in (time_ns * time_dilation).tolist()]
    return np.array(text, "S32").view("u1").reshape(-1, 32)


def _headers(packets: Records) -> Any:
    """The first 64 bytes of each packet, uint8 [n, 64]."""
    header = np.zeros((len(packets), 64), np.uint8)
    header[:, 0] = 0x45
    header[:, 1] = np.where(packets["circuit"] != 0, ord("1"), 0b10)  # the circuit link overwrites ECT(0)
    _put(header, 2, packets["payload_bytes"] + HEADER_BYTES)
    header[:, 8:10] = (64, 6)
    for at, end in ((12, "source"), (16, "destination")):
        header[:, at : at + 2] = (10, 1)
        header[:, at + 2] = packets[end]
        header[:, at + 3] = packets[f"{end}_host"]
    _put(header, 20, packets["source_port"])
    _put(header, 22, packets["destination_port"])
    header[:, 32] = 8 << 4
    return header


def _put(header: Any, at: int, value: Any) -> None:
    header[:, at], header[:, at + 1] = value >> 8, value & 255


def emulate(racks: int, weeks: int, load: float, voq_packets: int, seed: int) -> tuple[Records, Records]:
    """Emulate bursts through VOQs with a rotor's circuits.

    Returns packets, an array of PACKET_DTYPE in order of departure, and events, an array of EVENT_DTYPE.

    Parameters
    ----------
    racks : 3 to 250
    weeks : a week gives every pair one day of 180 us, each followed by a night of 20 us
    load : offered traffic over the mean capacity of a pair, above 0
    voq_packets : capacity of a VOQ; what exceeds it is dropped and never logged
    """
    draw = np.random.default_rng(seed)
    slot_ns = DAY_NS + NIGHT_NS
    week_ns = slot_ns * (racks - 1)
    end_ns = weeks * week_ns
    packet_ns = 7200 * (racks - 1)  # 9000 bytes at the pair's share of 10 Gbit/s
    circuit_ns = 900  # and at 80 Gbit/s
    mean_ns = 1 / (1 / packet_ns + DAY_NS / week_ns / circuit_ns)
    packets: list[tuple[int, ...]] = []
    events: list[tuple[int, ...]] = []
    for source in range(racks):
        for turn in range(1, racks):
            destination = (source + turn) % racks
            days = [(week * week_ns + (turn - 1) * slot_ns, source + 1, destination + 1) for week in range(weeks)]
            for start, *pair in days:
                events += [(start, 1, *pair), (start + DAY_NS, 0, *pair)]
            burst = int(draw.integers(8, 33))
            gaps = draw.exponential(burst * mean_ns / load, max(1, int(end_ns * load / (burst * mean_ns))))
            times = (np.cumsum(gaps)[:, None] + 720 * np.arange(burst)).ravel()
            arriving = np.sort(times[times < end_ns].astype(np.int64)).tolist()
            waiting: deque[int] = deque()  # departures of what is in the VOQ
            free_ns = 0
            for count, now in enumerate(arriving):
                while waiting and waiting[0] <= now:
                    waiting.popleft()
                if len(waiting) >= voq_packets:
                    continue
                begin = max(now, free_ns)
                day = begin // week_ns * week_ns + (turn - 1) * slot_ns
                up = day <= begin < day + DAY_NS - circuit_ns
                free_ns = begin + (circuit_ns if up else packet_ns)
                waiting.append(free_ns)
                latency_us = -(-(free_ns - now) // 1000) + (30 if up else 10)
                payload = 8948 if count % 16 else 0  # now and then a pure ACK
                host = count // burst % 16 + 1
                packets.append(
                    (
                        now + latency_us * 1000,
                        latency_us,
                        source + 1,
                        destination + 1,
                        host,
                        host,
                        40_000 + count // burst % 1000,
                        5001,
                        payload,
                        int(up),
                        len(waiting),
                    )
                )
    packets.sort()
    events.sort()
    return np.array(packets, PACKET_DTYPE), np.array(events, EVENT_DTYPE)
