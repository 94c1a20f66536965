"""Utilisation and latency from an Etalon log, on packets counted by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.sim_bridge.imports.etalon.log import EtalonLog
from foretail.sim_bridge.imports.etalon.records import Reading
from foretail.sim_bridge.imports.synthetic import EVENT_DTYPE, HEADER_BYTES, PACKET_DTYPE, write_etalon_log
from foretail_studies.circuits.circuit_use import circuit_use

WEEK_NS, DAY_NS = 400_000, 180_000
CIRCUIT, PACKET = 1, 0


def log_of(folder: Path, packets: list[tuple[int, int, int, int, int]], weeks: int = 4) -> EtalonLog:
    """A log of rack 1's circuit to rack 2; a packet is logged ns, latency us, bytes, by circuit, destination."""
    rows = np.zeros(len(packets), PACKET_DTYPE)
    for row, (time_ns, latency_us, size, circuit, destination) in zip(rows, packets, strict=True):
        row["time_ns"], row["latency_us"], row["circuit"] = time_ns, latency_us, circuit
        row["payload_bytes"] = size - HEADER_BYTES
        row["source"], row["destination"], row["voq"] = 1, destination, 7
        row["source_host"] = row["destination_host"] = 1
    ups = [(week * WEEK_NS + shift, up, 1, 2) for week in range(weeks) for shift, up in ((0, 1), (DAY_NS, 0))]
    write_etalon_log(folder / "log", rows, np.array(ups, EVENT_DTYPE))
    return EtalonLog.open(folder / "log", Reading(racks=3))


def packets_of_week(week: int) -> list[tuple[int, int, int, int, int]]:
    """As many full packets by the circuit as the week's number plus one, and what must not count as such."""
    start = week * WEEK_NS
    return [
        *((start + 40_000 + 1_000 * i, 40, 9000, CIRCUIT, 2) for i in range(week + 1)),
        (start + 100_000, 45, HEADER_BYTES, CIRCUIT, 2),  # an acknowledgement
        (start + 110_000, 40, 9000, CIRCUIT, 3),  # to another rack
        (start + 250_000, 20, 9000, PACKET, 2),
        (start + 260_000, 500, 900, PACKET, 2),  # too small for a latency
    ]


def test_use_and_latency_are_those_of_the_pairs_data_packets(tmp_path: Path) -> None:
    log = log_of(tmp_path, [packet for week in range(4) for packet in packets_of_week(week)])
    found = circuit_use(log, 1, 2, circuit_bps=80_000_000_000, skipped_weeks=0)
    # A day carries 1.8 MB, a packet is half a percent of that; the fourth week has no end.
    assert (found.weeks, found.p50_us, found.p99_us, found.longest_voq) == (3, 40, 40, 7)
    used = (found.least_percent, found.utilisation_percent, found.most_percent)
    assert used == pytest.approx((0.5, 1.0, 1.5))
    assert found.packet_gbps == pytest.approx(3 * 9900 * 8 / (3 * WEEK_NS))


def test_weeks_at_either_end_do_not_count(tmp_path: Path) -> None:
    log = log_of(tmp_path, [packet for week in range(4) for packet in packets_of_week(week)])
    found = circuit_use(log, 1, 2, circuit_bps=80_000_000_000, skipped_weeks=1)
    assert found.weeks == 1
    assert found.utilisation_percent == found.least_percent == found.most_percent == pytest.approx(1.0)


def test_a_log_without_such_weeks_or_packets_is_refused(tmp_path: Path) -> None:
    log = log_of(tmp_path, packets_of_week(0))
    with pytest.raises(ForetailError, match="no whole week between circuits from rack 1 to rack 2"):
        circuit_use(log, 1, 2, circuit_bps=80_000_000_000, skipped_weeks=2)
    with pytest.raises(ForetailError, match="no whole week between circuits from rack 1 to rack 3"):
        circuit_use(log, 1, 3, circuit_bps=80_000_000_000, skipped_weeks=0)
    only_late = log_of(tmp_path, packets_of_week(3))
    with pytest.raises(ForetailError, match="no data from rack 1 to rack 2"):
        circuit_use(only_late, 1, 2, circuit_bps=80_000_000_000, skipped_weeks=0)
