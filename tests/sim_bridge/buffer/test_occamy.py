"""Occamy: its engine against one that runs all the time, and what no queue may be once the engine had its chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.sim_bridge._native import Replay, feature_names, slotted
from foretail.sim_bridge.policy_settings import NetworkParameters
from tests.sim_bridge.slow_models.bytes import Geometry, Packet, Queues
from tests.sim_bridge.slow_models.features import Averages
from tests.sim_bridge.slow_models.lqd import Settings
from tests.sim_bridge.slow_models.slotted import ACCEPTED, BUFFER_FULL, OVER_THRESHOLD, PUSHED_OUT
from tests.strategies import SlottedArrivals, byte_arrivals, slotted_arrivals

COLUMNS = feature_names()
CELL_BYTES = 200
PLENTY = 2**30


def outcomes(geometry: Geometry, packets: list[Packet], chosen: Settings) -> list[int]:
    replay = Replay(
        "occamy",
        [(geometry.buffer, list(geometry.rates_bps))],
        wire_overhead_bytes=geometry.overhead,
        counting="counted",
        tie="lowest_port",
        victim="tail",
        alpha=chosen.alpha,
        spare_bandwidth=chosen.spare_bandwidth,
        bucket_bytes=chosen.bucket,
    )
    found: list[int] = replay.feed(
        np.array([p.time_ns for p in packets], np.int64),
        np.zeros(len(packets), np.int16),
        np.array([p.port for p in packets], np.int16),
        np.array([p.size for p in packets], np.int32),
        np.array([p.data for p in packets], np.uint8),
        np.zeros(len(packets), np.uint8),
    )["outcome"].tolist()
    return found


def outcomes_cell_by_cell(geometry: Geometry, packets: list[Packet], chosen: Settings) -> list[int]:
    """The same switch with an engine that also runs between arrivals, whenever it can read another cell."""
    real = Queues(geometry, Averages(geometry.ports, chosen), chosen)
    cell_ns = int(CELL_BYTES / real.expulsion.rate)
    outcome: list[int] = []

    def run_engine(now: int) -> None:
        real.advance(now)
        real.expulsion.fill(now)
        for victim in real.expel(now):
            outcome[victim.row] = PUSHED_OUT

    before = 0
    for packet in packets:
        for now in range(before + cell_ns, packet.time_ns, cell_ns):
            run_engine(now)
        before = packet.time_ns
        run_engine(before)
        free = geometry.buffer - real.occupancy()
        if packet.size > free:
            outcome.append(BUFFER_FULL)
        elif packet.data and real.lengths()[packet.port] >= chosen.alpha[0] * free:
            outcome.append(OVER_THRESHOLD)
        else:
            outcome.append(ACCEPTED)
            real.packets[packet.port].append(packet)
            real.start(packet.port, before)
            run_engine(before)
    return outcome


def bursts(ports: int, gaps_ns: tuple[int, ...], seed: int) -> list[Packet]:
    """Bursts of 300 packets at most; each sends a part of its own to one port, with one of the gaps on average."""
    random = np.random.default_rng(seed)
    packets: list[Packet] = []
    now = 0
    while len(packets) < 1000:
        hot, part, gap_ns = random.integers(ports), random.random(), random.choice(gaps_ns)
        for _ in range(random.integers(1, 300)):
            port = hot if random.random() < part else random.integers(ports)
            packets.append(Packet(len(packets), now, int(port), int(random.choice((64, 700, 1500, 1500, 1500)))))
            now += int(random.integers(2 * gap_ns))
        now += int(random.integers(20_000))
    return packets


def differing(ports: int, gaps_ns: tuple[int, ...], alpha: float) -> tuple[float, int]:
    """Share of the packets with another fate, and packets expelled, over four seeds."""
    geometry = Geometry(15_000 * ports, (10**10,) * ports)
    chosen = Settings(
        (alpha,), spare_bandwidth=NetworkParameters.spare_bandwidth, bucket=NetworkParameters.bucket_bytes
    )
    found: list[int] = []
    other: list[int] = []
    for seed in range(4):
        packets = bursts(ports, gaps_ns, seed)
        found += outcomes(geometry, packets, chosen)
        other += outcomes_cell_by_cell(geometry, packets, chosen)
    return float(np.mean(np.array(found) != other)), found.count(PUSHED_OUT)


@pytest.mark.parametrize("alpha", [0.5, 8.0])
def test_an_engine_with_tokens_does_what_one_does_that_runs_all_the_time(alpha: float) -> None:
    share, expelled = differing(4, (400, 600, 1200), alpha)
    assert expelled > 50
    assert share == 0


@pytest.mark.parametrize("alpha", [0.5, 8.0])
def test_an_engine_that_waits_for_tokens_may_take_another_packet(alpha: float) -> None:
    """Bursts of up to 2.6 times what all ports send empty the bucket, and tokens come between two arrivals."""
    share, expelled = differing(4, (80, 160, 240, 480), alpha)
    assert expelled > 300
    assert 0 < share < 0.02


def test_a_second_port_makes_room_at_the_head_of_the_first() -> None:
    """B = 8, alpha = 1: four packets reach the threshold; with the first of port 1 it falls to 3, below queue 0."""
    slot, port = np.zeros(7, np.int64), np.array([0, 0, 0, 0, 0, 1, 1], np.int32)
    fixed: dict[str, Any] = {"alpha": [1.0], "labels": False}
    assert slotted("occamy", 2, 8, slot, port, **fixed)["outcome"].tolist() == [4, 0, 0, 0, 1, 0, 0]
    assert slotted("dt", 2, 8, slot, port, **fixed)["outcome"].tolist() == [0, 0, 0, 0, 1, 0, 0]


@given(case=slotted_arrivals(), alpha=st.sampled_from((0.25, 1.0, 8.0)))
def test_no_queue_is_above_its_threshold_while_there_are_tokens(case: SlottedArrivals, alpha: float) -> None:
    found = slotted(
        "occamy",
        case.ports,
        case.buffer,
        np.array(case.slot, np.int64),
        np.array(case.port, np.int32),
        alpha=[alpha],
        bucket_packets=PLENTY,
        features=True,
        cell_bytes=1024,
    )
    of = {name: found["features"][:, COLUMNS.index(name)] for name in ("queue", "occupancy")}
    assert (of["queue"] <= alpha * (case.buffer - of["occupancy"])).all()


@given(case=byte_arrivals(), alpha=st.sampled_from((0.25, 1.0, 8.0)), bucket=st.sampled_from((0, 500, 5000)))
def test_expulsions_cost_what_memory_bandwidth_has_to_spare(
    case: tuple[Geometry, list[Packet]], alpha: float, bucket: int
) -> None:
    """Of what arrives in an instant no more is expelled than the bucket holds, and one packet of debt."""
    geometry, packets = case
    packets = [Packet(p.row, 0, p.port, p.size, p.data) for p in packets]
    outcome = outcomes(geometry, packets, Settings((alpha,), bucket=bucket))
    expelled = [packet for packet, fate in zip(packets, outcome, strict=True) if fate == PUSHED_OUT]
    assert all(packet.data for packet in expelled)
    assert sum(packet.size for packet in expelled) <= bucket + max((packet.size for packet in expelled), default=0)
