"""The first pass over an Etalon log: what it finds, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.sim_bridge.imports.etalon.records import UP, Chunk, RecordFile

_MOST_BACKWARD_NS = 1_000_000


@dataclass(frozen=True, eq=False)
class Survey:
    """Findings of a first pass over a log."""

    packets: int  #: records of packets
    events: int  #: records of events
    racks: int  #: racks of the network
    first_stamp_ns: int  #: dilated time of the first record
    start_ns: int  #: virtual time of the first arrival, relative to the first record
    end_ns: int  #: virtual time of the last record, likewise
    disorder_ns: int  #: no arrival is logged after one that is later by more than this
    #: (source, destination) -> int64 [days, 2], when that circuit went up and down, relative to `start_ns`
    days: dict[tuple[int, int], NDArray[np.int64]]
    voqs: dict[tuple[int, int], int]  #: packets per (source, destination)
    day_ns: int | None  #: median of the time up; None without events
    week_ns: int | None  #: median of the time between two starts of a circuit; None without events
    voq_packets: int | None  #: largest length of a VOQ; None in the layout without it
    circuit_packets: int  #: packets that came over the circuit
    #: smallest latency of packet path and circuit; None where no packet took it
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


class Findings:
    """The survey in the making."""

    def __init__(self, log: RecordFile) -> None:
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

    def add(self, chunk: Chunk) -> None:
        """Take in the next records."""
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
        """Return what all records have shown, unless it betrays that they are misread."""
        log, reading = self._log, self._log.reading
        if self._start is None or self._latest_out is None:
            raise ForetailError(f"the log {log.path} contains no packet, only events: give a log of a run with traffic")
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


def _check(log: RecordFile, survey: Survey) -> None:
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
