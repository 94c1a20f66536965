"""Replays of a schedule: does another scheduler get every packet out in time? (Mittal's thesis, chapter 5.)"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretail.core.errors import ForetailError
from foretail.sim_bridge.schedulers.network import Bands, Exits, Int64, Packets, PortNetwork, Scheduler, run


@dataclass(frozen=True)
class Replay:
    """How a replay compares with what it replays."""

    overdue: float  #: share of packets that come out later, 0 to 1
    overdue_by_more: float  #: share of packets that come out later by more than a threshold
    lateness_ns: Int64  #: int64[packets], later by so much; below 0 earlier

    @classmethod
    def of(cls, lateness_ns: Int64, late_ns: int) -> Replay:
        """From the lateness of all packets; shares of no packet are 0."""
        overdue, by_more = (float((lateness_ns > least).mean()) if len(lateness_ns) else 0.0 for least in (0, late_ns))
        return cls(overdue, by_more, lateness_ns)


def slack_ns(network: PortNetwork, packets: Packets, exit_ns: Int64) -> Int64:
    """How long packets may wait in all and come out at `exit_ns`: int64[packets].

    It is the wanted exit, less the arrival, less the time through an empty network. ForetailError where a packet was
    dropped or came out sooner than any can.
    """
    slack = exit_ns - packets.arrival_ns - network.least_ns(packets)
    if (exit_ns < 0).any():
        raise ForetailError("a packet of the schedule was dropped: replay one without drops, of larger buffers")
    if (slack < 0).any():
        packet = int(np.argmax(slack < 0))
        raise ForetailError(
            f"packet {packet} comes out {-slack[packet]} ns sooner than the network lets it: give the network its "
            "rates and delays"
        )
    return np.asarray(slack, np.int64)


def replay(
    network: PortNetwork,
    packets: Packets,
    original: Exits | Int64,
    *,
    scheduler: Scheduler = "lstf",
    late_ns: int = 0,
    preemptive: bool = False,
    bands: Bands | None = None,
) -> Replay:
    """Replay a schedule under another scheduler.

    Parameters
    ----------
    original
        What came out when, or int64[packets] of these times in ns.
    scheduler
        ``lstf`` and ``bands`` go by slack; ``edf`` and ``priority`` go by the time of exit.
    late_ns
        Threshold of `Replay.overdue_by_more`, in the thesis the time of a packet on the bottleneck.
    """
    exit_ns = original.exit_ns if isinstance(original, Exits) else np.asarray(original, np.int64)
    slack = slack_ns(network, packets, exit_ns)
    if scheduler not in ("lstf", "bands", "edf", "priority"):
        raise ForetailError(f"scheduler={scheduler} does not go by slack or exit: choose lstf, bands, edf or priority")
    values = exit_ns if scheduler in ("edf", "priority") else slack
    again = run(network, packets, scheduler, values, preemptive=preemptive, bands=bands)
    return Replay.of(again.exit_ns - exit_ns, late_ns)


def replay_switch(
    arrival_ns: Int64, departure_ns: Int64, port: Int64, size_bytes: Int64, rate_bps: Int64, *, late_ns: int = 0
) -> Replay:
    """Replay the log of a switch under least slack, as a check of what an importer takes its ports for.

    A switch whose ports send at these rates can always be replayed without an overdue packet, whatever its scheduler,
    but for packets that must not be interrupted. So a large share says that rates, ports or times are wrong.

    Parameters
    ----------
    arrival_ns, departure_ns
        int64[packets], of the last bit at the switch and from it.
    port
        int64[packets], output port, an index of `rate_bps`.
    size_bytes
        int64[packets], on the wire.
    rate_bps
        int64[ports].

    A departure that comes sooner than its transmission takes is counted as if it had no slack. ForetailError on columns
    that differ in length or a port without a rate.
    """
    columns = (arrival_ns, departure_ns, port, size_bytes)
    if len({np.shape(column) for column in columns}) != 1:
        raise ForetailError("the columns of the log differ in length: give one value per packet")
    ports = len(rate_bps)
    if len(port) and not 0 <= int(np.min(port)) <= int(np.max(port)) < ports:
        raise ForetailError(f"the log has port {int(np.max(port))}, but there are {ports} rates: give one per port")
    network = PortNetwork(
        np.asarray(rate_bps, np.int64),
        np.zeros(ports, np.int64),
        np.zeros(ports, np.int32),
        np.arange(ports + 1, dtype=np.int64),
        np.arange(ports, dtype=np.int32),
    )
    start_ns = int(np.min(arrival_ns, initial=0))
    packets = Packets(
        np.asarray(arrival_ns) - start_ns,
        np.asarray(size_bytes, np.int32),
        np.zeros(len(port), np.int32),
        np.asarray(port, np.int32),
    )
    least_ns = packets.arrival_ns + network.least_ns(packets)
    departure = np.asarray(departure_ns, np.int64) - start_ns
    result = replay(network, packets, np.maximum(departure, least_ns), late_ns=late_ns)
    return Replay.of(result.lateness_ns + np.maximum(least_ns - departure, 0), late_ns)
