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

Source: the emulator's public readers; where they leave something open, `EtalonLog.survey` checks what would betray it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from foretail.features.errors import ForetailError
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Records

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
_MOST_BACKWARD_NS = 1_000_000
_TCP, _UDP = 6, 17
_LEAST_IP_BYTES = 20

Position = Literal["after", "before"]


@dataclass(frozen=True)
class Reading:
    """How a log is to be understood.

    Attributes
    ----------
    record_bytes : {112, 116, None}
        The layout; None finds out.
    time_dilation : int
        Wall time over virtual time, at least 1.
    position : {'after', 'before'}
        Where in the switch the log was taken.
    latency_dilated : bool
        Whether latencies are in dilated microseconds.
    racks : int, optional
        Racks of the network; None takes the highest number in the log.
    packet_delay_ns, circuit_delay_ns : int
        Virtual propagation delay of the two paths: no packet is faster.
    day_ns : int, optional
        Virtual time that a circuit stays up, which the median of the log must meet; None does not check.
    voq_packets : int, optional
        Largest capacity of a VOQ, which no length may exceed by more than one; None does not check.
    """

    record_bytes: int | None = None
    time_dilation: int = 20
    position: Position = "after"
    latency_dilated: bool = False
    racks: int | None = None
    packet_delay_ns: int = 10_000
    circuit_delay_ns: int = 30_000
    day_ns: int | None = 180_000
    voq_packets: int | None = None


@dataclass(frozen=True, eq=False)
class Survey:
    """What a first pass over a log finds.

    Attributes
    ----------
    packets, events : records of each kind
    racks : racks of the network
    first_stamp_ns : dilated time of the first record
    start_ns, end_ns : virtual time of the first arrival and of the last record, relative to the first record
    disorder_ns : no arrival is logged after one that is later by more than this
    days : (source, destination) -> int64 [days, 2], when that circuit went up and down, relative to `start_ns`
    voqs : packets per (source, destination)
    day_ns, week_ns : medians of the time up and of the time between two starts of a circuit; None without events
    voq_packets : largest length of a VOQ; None in the layout without it
    circuit_packets : packets that came over the circuit
    least_latency_ns : smallest latency of packet path and circuit; None where no packet took it
    """

    packets: int
    events: int
    racks: int
    first_stamp_ns: int
    start_ns: int
    end_ns: int
    disorder_ns: int
    days: dict[tuple[int, int], NDArray[np.int64]]
    voqs: dict[tuple[int, int], int]
    day_ns: int | None
    week_ns: int | None
    voq_packets: int | None
    circuit_packets: int
    least_latency_ns: tuple[int | None, int | None]

    def circuit_share(self, source: int, destination: int) -> float:
        """Share of the log's time during which a pair's circuit was up; racks from 1."""
        days = self.days.get((source, destination))
        if days is None:
            return 0.0
        return float((days[:, 1] - days[:, 0]).sum() / max(self.end_ns - self.start_ns, 1))

    def figures(self) -> dict[str, int | None]:
        """Counts and medians by name, JSON-like."""
        packet, circuit = self.least_latency_ns
        return {
            "packets": self.packets,
            "events": self.events,
            "racks": self.racks,
            "active_voqs": len(self.voqs),
            "circuit_packets": self.circuit_packets,
            "virtual_ns": self.end_ns - self.start_ns,
            "median_day_ns": self.day_ns,
            "median_week_ns": self.week_ns,
            "longest_voq_packets": self.voq_packets,
            "least_packet_latency_ns": packet,
            "least_circuit_latency_ns": circuit,
        }


@dataclass(frozen=True, eq=False)
class _Chunk:
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
class EtalonLog:
    """An Etalon packet log that is what its layout says; make one with :meth:`open`.

    Attributes
    ----------
    path : Path
    reading : Reading
    layout : dtype of a record
    records : their number
    first_stamp_ns : dilated time of the first one
    """

    path: Path
    reading: Reading
    layout: np.dtype[Any]
    records: int
    first_stamp_ns: int
    _flows: dict[bytes, int] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, reading: Reading) -> EtalonLog:
        """Find the layout of a log and look at its first records.

        Raises
        ------
        ForetailError
            If the file cannot be read, is empty or truncated, or its records are no packets and events.
        """
        try:
            size_bytes = path.stat().st_size
            with path.open("rb") as file:
                head = file.read(_SNIFFED_RECORDS * max(LAYOUTS))
        except OSError as error:
            raise ForetailError(f"cannot read the log {path}: {error.strerror}; give log=FILE") from None
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

    def survey(self, report: Callable[[int], None] = lambda records: None) -> Survey:
        """Read the log once and check it; `report` is called with the number of records read so far.

        Raises
        ------
        ForetailError
            On a record that is no packet or event, times that run backwards, latencies below the propagation delay (so
            in another unit), circuits that go up twice, days of another length, VOQs beyond their capacity, a network
            with less than three racks, or no packets at all.
        """
        found = _Findings(self)
        for chunk in self._chunks(report):
            found.add(chunk)
        return found.survey()

    def arrivals(self, survey: Survey, report: Callable[[int], None] = lambda records: None) -> Iterator[Records]:
        """Yield the packets in the order in which they reached their VOQ.

        One switch per source rack; its ports are the other racks, in order. Memory depends on the disorder of the log,
        not on its length.

        Yields
        ------
        (n,) array of ARRIVAL_DTYPE
            ``time_ns`` from the first arrival on, ``switch``, ``port``, ``size_bytes`` (of the IP packet), ``flow``
            (numbered as they appear) and ``flow_class`` (TCP without payload is control) are filled, the rest is zero.

        Raises
        ------
        ForetailError
            When more than 1 % of the circuit's packets left while no circuit was up.
        """
        waiting = np.empty(0, ARRIVAL_DTYPE)
        latest = -(2**62)
        astray = 0
        for chunk in self._chunks(report):
            astray += self._astray(chunk, survey)
            waiting = np.concatenate([waiting, self._records(chunk, survey)])
            waiting = waiting[np.argsort(waiting["time_ns"], kind="stable")]
            if len(waiting):
                latest = max(latest, int(waiting["time_ns"][-1]))
            ready = int(np.searchsorted(waiting["time_ns"], latest - survey.disorder_ns, side="right"))
            if ready:
                yield waiting[:ready]
                waiting = waiting[ready:]
        if astray > 0.01 * survey.circuit_packets:
            raise ForetailError(
                f"the log {self.path} has {astray} of {survey.circuit_packets} circuit packets outside the time of "
                "their circuit: its events or its circuit bits are wrong, such as bits set by a sender with ECN ECT(1)"
            )
        if len(waiting):
            yield waiting

    def _records(self, chunk: _Chunk, survey: Survey) -> Records:
        records = np.zeros(len(chunk.record), ARRIVAL_DTYPE)
        records["time_ns"] = chunk.in_ns - survey.start_ns
        records["flow"] = self._flow(chunk.flow_key)
        records["size_bytes"] = chunk.size_bytes
        records["switch"] = chunk.source - 1
        records["port"] = chunk.destination - 1 - (chunk.destination > chunk.source)
        records["flow_class"] = np.where(chunk.data, FlowClass.BACKGROUND, FlowClass.CONTROL)
        return records

    def _flow(self, key: NDArray[np.void]) -> NDArray[np.int64]:
        distinct, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        number = np.empty(len(distinct), np.int64)
        for position in np.argsort(first):
            number[position] = self._flows.setdefault(distinct[position].tobytes(), len(self._flows))
        return number[inverse]

    def _astray(self, chunk: _Chunk, survey: Survey) -> int:
        """Circuit packets that did not leave between the start of a day of their pair and its end plus the delay."""
        if not survey.days or not chunk.circuit.any():
            return 0
        astray = 0
        out_ns = chunk.out_ns - survey.start_ns
        pair = chunk.source * (survey.racks + 1) + chunk.destination
        for number in np.unique(pair[chunk.circuit]):
            chosen = out_ns[chunk.circuit & (pair == number)]
            days = survey.days.get(divmod(int(number), survey.racks + 1))
            if days is None:
                astray += len(chosen)
                continue
            # before the first day that the log saw begin, and after the last that it saw end, nothing is known
            known = (chosen >= days[0, 0]) & (chosen <= days[-1, 1])
            day = np.clip(np.searchsorted(days[:, 0], chosen, side="right") - 1, 0, None)
            astray += int(np.count_nonzero(known & (chosen > days[day, 1] + self.reading.circuit_delay_ns)))
        return astray

    def _chunks(self, report: Callable[[int], None]) -> Iterator[_Chunk]:
        read = 0
        with self.path.open("rb") as file:
            while read < self.records:
                raw = np.fromfile(file, self.layout, min(CHUNK_RECORDS, self.records - read))
                if not len(raw):
                    raise ForetailError(f"the log {self.path} was cut short while it was read: import it again")
                yield self._decoded(raw, read)
                read += len(raw)
                report(read)

    def _decoded(self, raw: Records, first_record: int) -> _Chunk:
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
        return _Chunk(
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
    """Whether the first bytes of a file are records of this layout."""
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


class _Findings:
    """The survey in the making."""

    def __init__(self, log: EtalonLog) -> None:
        self._log = log
        self._latest_out: int | None = None
        self._latest_in: int | None = None
        self._start: int | None = None
        self._disorder = 0
        self._events: list[NDArray[np.int64]] = []
        self._voqs: dict[tuple[int, int], int] = {}
        self._least: list[int | None] = [None, None]
        self._longest: int | None = None
        self._packets = self._circuit_packets = 0

    def add(self, chunk: _Chunk) -> None:
        self._events.append(chunk.events)
        if not len(chunk.record):
            return
        out, arrived = chunk.out_ns, chunk.in_ns
        before = np.maximum.accumulate(np.append(out[0] if self._latest_out is None else self._latest_out, out))
        if (back := before[1:] - out).max() > _MOST_BACKWARD_NS:
            record = int(chunk.record[int(np.argmax(back))])
            raise ForetailError(
                f"record {record} of the log {self._log.path} is {back.max() / 1e6:.1f} ms of virtual time earlier "
                "than one before it: the log holds several runs; cut it apart"
            )
        self._latest_out = int(before[-1])
        high = np.maximum.accumulate(np.append(arrived[0] if self._latest_in is None else self._latest_in, arrived))
        self._disorder = max(self._disorder, int((high[1:] - arrived).max()))
        self._latest_in = int(high[-1])
        first = int(arrived.min())
        self._start = first if self._start is None else min(self._start, first)
        self._packets += len(chunk.record)
        self._circuit_packets += int(np.count_nonzero(chunk.circuit))
        for path, chosen in enumerate((~chunk.circuit, chunk.circuit)):
            if chosen.any():
                least, so_far = int(chunk.latency_ns[chosen].min()), self._least[path]
                self._least[path] = least if so_far is None else min(so_far, least)
        if chunk.voq is not None:
            self._longest = max(self._longest or 0, int(chunk.voq.max()))
        for pair, count in zip(*np.unique(chunk.source << 8 | chunk.destination, return_counts=True), strict=True):
            key = (int(pair) >> 8, int(pair) & 255)
            self._voqs[key] = self._voqs.get(key, 0) + int(count)

    def survey(self) -> Survey:
        log, reading = self._log, self._log.reading
        if self._start is None or self._latest_out is None:
            raise ForetailError(f"the log {log.path} holds no packet, only events: give a log of a run with traffic")
        events = np.concatenate(self._events)
        days = _days(events, log.path, self._start)
        racks = reading.racks or int(max(max(map(max, self._voqs)), events[:, 2:].max(initial=0)))
        if racks < 3:
            raise ForetailError(
                f"the log {log.path} names only {racks} racks, so that every switch has one port and nothing is "
                "shared: set etalon.racks to the number of racks, or log more pairs"
            )
        day_ns = _median([days[pair][:, 1] - days[pair][:, 0] for pair in days])
        survey = Survey(
            packets=self._packets,
            events=len(events),
            racks=racks,
            first_stamp_ns=log.first_stamp_ns,
            start_ns=self._start,
            end_ns=max(self._latest_out, int(events[:, 0].max(initial=self._latest_out))),
            disorder_ns=self._disorder,
            days=days,
            voqs=dict(sorted(self._voqs.items())),
            day_ns=day_ns,
            week_ns=_median([np.diff(days[pair][:, 0]) for pair in days]),
            voq_packets=self._longest,
            circuit_packets=self._circuit_packets,
            least_latency_ns=(self._least[0], self._least[1]),
        )
        _check(log, survey)
        return survey


def _days(events: NDArray[np.int64], path: Path, start_ns: int) -> dict[tuple[int, int], NDArray[np.int64]]:
    """Match the circuits' ups and downs; what the ends of the log cut off is left out."""
    days: dict[tuple[int, int], list[tuple[int, int]]] = {}
    up_since: dict[tuple[int, int], int] = {}
    for time_ns, kind, source, destination in events.tolist():
        pair = (source, destination)
        if kind == UP:
            if pair in up_since:
                raise ForetailError(
                    f"the log {path} lets the circuit from rack {source} to rack {destination} go up twice without "
                    "going down between: events are missing, so copy the log again"
                )
            up_since[pair] = time_ns
        elif pair in up_since:
            days.setdefault(pair, []).append((up_since.pop(pair) - start_ns, time_ns - start_ns))
        elif pair in days:
            raise ForetailError(
                f"the log {path} lets the circuit from rack {source} to rack {destination} go down twice without "
                "going up between: events are missing, so copy the log again"
            )
    return {pair: np.array(days[pair], np.int64) for pair in sorted(days)}


def _median(parts: list[NDArray[np.int64]]) -> int | None:
    values = np.concatenate([np.empty(0, np.int64), *parts])
    return int(np.median(values)) if len(values) else None


def _check(log: EtalonLog, survey: Survey) -> None:
    """Refuse what betrays another unit, dilation or layout."""
    reading, path = log.reading, log.path
    if reading.day_ns is not None and survey.day_ns is not None and abs(survey.day_ns - reading.day_ns) > 1000:
        raise ForetailError(
            f"the log {path} keeps a circuit up for {survey.day_ns / 1000:g} us of virtual time, not for "
            f"{reading.day_ns / 1000:g}: correct etalon.time_dilation={reading.time_dilation} or set etalon.day_ns"
        )
    if reading.voq_packets is not None and (survey.voq_packets or 0) > reading.voq_packets + 1:
        raise ForetailError(
            f"the log {path} has a VOQ of {survey.voq_packets} packets, more than etalon.voq_packets="
            f"{reading.voq_packets} allow: correct that setting or etalon.record_bytes"
        )
    if reading.position == "before":
        return
    delays = (reading.packet_delay_ns, reading.circuit_delay_ns)
    for name, least, delay in zip(("packet path", "circuit"), survey.least_latency_ns, delays, strict=True):
        if least is not None and least < delay:
            raise ForetailError(
                f"the log {path} has a latency of {least / 1000:g} us on the {name}, less than its propagation delay "
                f"of {delay / 1000:g} us: the latencies have another unit (etalon.latency_dilated), or the log was "
                "taken before the switch (etalon.position)"
            )
    slowed = [
        least >= reading.time_dilation * delay > delay
        for least, delay in zip(survey.least_latency_ns, delays, strict=True)
        if least is not None
    ]
    if all(slowed):
        raise ForetailError(
            f"the log {path} has no latency below {reading.time_dilation} propagation delays: its latencies look "
            "dilated, so set etalon.latency_dilated=true"
        )
