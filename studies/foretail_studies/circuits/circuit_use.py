"""Use of circuits by pairs of racks, from an Etalon log: utilisation and latency."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.sim_bridge.imports.etalon.log import EtalonLog

LATENCY_FROM_BYTES = 1000
"""Data packets that are smaller count for no latency, as in Etalon's own figures."""


@dataclass(frozen=True)
class CircuitUse:
    """Use by the data packets from one rack to another."""

    weeks: int  #: counted, each from the start of a circuit to the next
    #: bytes of packets that came by the circuit over what it could have carried while it was up, in percent
    utilisation_percent: float
    least_percent: float  #: the same of the worst week
    most_percent: float  #: and of the best
    packet_gbps: float  #: by the packet network, over the whole time
    p50_us: float  #: latency from the VOQ to the other rack's switch, by both networks
    p99_us: float  #: its 99th percentile
    longest_voq: int  #: packets, as any record says


def circuit_use(log: EtalonLog, source: int, destination: int, *, circuit_bps: int, skipped_weeks: int) -> CircuitUse:
    """Return what packets from a rack to another made of its circuit.

    A packet counts for the week in which it was logged: a circuit's start plus its delay begins one. Bytes are those of
    IP packets, headers and what was sent again included. ForetailError when no week is left.

    Parameters
    ----------
    source, destination : racks, from 1
    circuit_bps : rate of a circuit
    skipped_weeks : not counted, at the beginning and at the end
    """
    survey = log.survey()
    days = survey.days.get((source, destination), np.empty((0, 2), np.int64))
    days = days[skipped_weeks : len(days) - skipped_weeks] + log.reading.circuit_delay_ns
    weeks = len(days) - 1  # the last one's end is not known
    if weeks < 1:
        raise ForetailError(
            f"the log {log.path} has no whole week between circuits from rack {source} to rack {destination}, without "
            f"{skipped_weeks} at either end: give a longer log"
        )
    circuit_bytes, packet_bytes = np.zeros(weeks), 0
    latencies: list[NDArray[np.int64]] = []
    for chunk in log.chunks(lambda records: None):
        week = np.searchsorted(days[:, 0], chunk.out_ns - survey.start_ns, side="right") - 1
        of_pair = chunk.data & (chunk.source == source) & (chunk.destination == destination)
        chosen = of_pair & (week >= 0) & (week < weeks)
        by_circuit = chosen & chunk.circuit
        circuit_bytes += np.bincount(week[by_circuit], chunk.size_bytes[by_circuit], weeks)
        packet_bytes += int(chunk.size_bytes[chosen & ~chunk.circuit].sum())
        latencies.append(chunk.latency_ns[chosen & (chunk.size_bytes > LATENCY_FROM_BYTES)])
    latency_ns = np.concatenate(latencies)
    if not len(latency_ns):
        raise ForetailError(f"the log {log.path} has no data from rack {source} to rack {destination}: choose others")
    used = 100 * 8e9 * circuit_bytes / (circuit_bps * (days[:weeks, 1] - days[:weeks, 0]))
    return CircuitUse(
        weeks=weeks,
        utilisation_percent=float(used.mean()),
        least_percent=float(used.min()),
        most_percent=float(used.max()),
        packet_gbps=8 * packet_bytes / float(days[weeks, 0] - days[0, 0]),
        p50_us=float(np.quantile(latency_ns, 0.5)) / 1000,
        p99_us=float(np.quantile(latency_ns, 0.99)) / 1000,
        longest_voq=survey.voq_packets or 0,
    )
