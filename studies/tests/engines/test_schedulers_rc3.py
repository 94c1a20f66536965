"""Flows of TCP and RC3 against a slow model of one flow alone, and what priorities promise."""

from __future__ import annotations

from dataclasses import replace
from math import log2
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail_studies.engines.schedulers import (
    EDGES,
    SEGMENT_BYTES,
    Flows,
    HostNetwork,
    expected_reduction,
    internet2,
    poisson_flows,
    run_flows,
    star,
)

RATE_BPS, ROUND_TRIP_NS = 10**9, 4_000_000
PACKET_NS, ANSWER_NS = 12_000, 320  # of 1,500 and 40 bytes
LEAST_NS = ROUND_TRIP_NS + PACKET_NS + 2 * ANSWER_NS  # from the end of a packet's transmission to its acknowledgement


def switch() -> HostNetwork:
    return star(4, rate_bps=RATE_BPS, round_trip_ns=ROUND_TRIP_NS)


def flows(hosts: HostNetwork, *drawn: tuple[int, int, int, int]) -> Flows:
    """Flows of so many packets: start in ns, packets, source and destination."""
    start, packets, source, destination = np.array(drawn).T
    return Flows(
        start,
        packets * SEGMENT_BYTES,
        source.astype(np.int32),
        destination.astype(np.int32),
        np.ascontiguousarray(hosts.routes[source, destination, 0]),
    )


def slow_tcp_ns(packets: int, window: int, growth: float) -> int:
    """Completion time of a flow of TCP that is alone: every acknowledgement opens the window of slow start."""
    sent = free = answered = 0
    size = float(window)
    answers: list[int] = []
    now = 0
    while answered < packets:
        while sent < packets and sent - answered < int(size):
            free = max(free, now) + PACKET_NS
            answers.append(free + LEAST_NS)
            sent += 1
        now = answers[answered]
        answered += 1
        size += growth
    return now


@given(st.integers(1, 900), st.integers(1, 20), st.sampled_from([1.0, 0.5]))
def test_tcp_alone_is_the_slow_one(packets: int, window: int, growth: float) -> None:
    hosts = switch()
    run = run_flows(
        hosts,
        flows(hosts, (5, packets, 0, 1)),
        fills=False,
        buffer_ns=10**9,
        first_window=window,
        growth=growth,
        handshake=False,
    )
    assert run.fct_ns.tolist() == [slow_tcp_ns(packets, window, growth)]
    assert run.sent.tolist() == [packets, *[0] * 7]


@given(st.integers(5, 300), st.sampled_from(["text", "kernel"]))
def test_rc3_alone_takes_a_round_trip_and_its_own_time(packets: int, edges: Any) -> None:
    """While nothing is acknowledged, four packets go from the front and all others from the end, each once."""
    hosts = switch()
    one = flows(hosts, (0, packets, 0, 1))
    run = run_flows(hosts, one, fills=True, buffer_ns=10**9, edges=EDGES[edges], handshake=False)
    assert run.fct_ns.tolist() == [packets * PACKET_NS + LEAST_NS]
    first = min(packets - 4, 40)
    assert run.sent.tolist()[1:3] == [first, packets - 4 - first]
    assert run.sent[0] >= 4, "with what the first loop sends when its acknowledgements come before the others"
    later = run_flows(hosts, one, fills=True, buffer_ns=10**9)
    assert (later.fct_ns - run.fct_ns).tolist() == [ROUND_TRIP_NS], "the handshake"


def test_the_example_of_the_thesis() -> None:
    """Section 2.1.2: 66 packets where a round trip holds 50; the second loop sends while the first one waits."""
    hosts = star(2, rate_bps=RATE_BPS, round_trip_ns=50 * PACKET_NS)
    run = run_flows(hosts, flows(hosts, (0, 66, 0, 1)), fills=True, buffer_ns=10**9, handshake=False)
    assert run.sent[1] == 40
    assert run.sent[0] + run.sent[2] >= 26
    assert 66 * PACKET_NS < run.fct_ns[0] < 2 * 66 * PACKET_NS
    long = star(2, rate_bps=RATE_BPS, round_trip_ns=10**9)
    one = flows(long, (0, 460, 0, 1))
    text, kernel = (run_flows(long, one, fills=True, buffer_ns=10**9, edges=edges).sent for edges in EDGES.values())
    assert text[1:4].tolist() == [40, 400, 16]
    assert kernel[1:4].tolist() == [40, 360, 56]


@given(st.integers(0, 2**31), st.integers(1, 40))
def test_what_rc3_fills_does_not_delay_tcp(seed: int, buffer_packets: int) -> None:
    """A flow of TCP beside one of RC3 waits at most for one packet of it at each of two ports, each time it sends."""
    hosts = switch()
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 60, 2)
    pair = flows(hosts, (0, int(sizes[0]), 0, 2), (int(random.integers(0, 10**6)), int(sizes[1]), 1, 3))
    beside = replace(pair, destination=pair.destination, route=np.ascontiguousarray(hosts.routes[[0, 1], [2, 2], 0]))
    fills = np.array([False, True])
    buffer_ns = buffer_packets * PACKET_NS + 30 * 60 * PACKET_NS
    alone = run_flows(hosts, pair, fills=fills, buffer_ns=buffer_ns).fct_ns
    crossed = run_flows(
        hosts, replace(beside, destination=np.array([2, 2], np.int32)), fills=fills, buffer_ns=buffer_ns, first_window=1
    )
    same = run_flows(hosts, pair, fills=fills, buffer_ns=buffer_ns, first_window=1).fct_ns
    assert alone[0] <= same[0]
    rounds = int(sizes[0])  # every round sends at least a packet
    own_first_loop = int(crossed.sent[0]) - int(sizes[0])
    assert crossed.fct_ns[0] - same[0] <= (rounds + own_first_loop) * PACKET_NS + rounds * ANSWER_NS


@pytest.mark.parametrize("fills", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_flow_ends_whatever_is_lost(fills: bool, seed: int) -> None:
    """Buffers of five packets under twice the load."""
    hosts = internet2(1, edge_bps=10**8, host_bps=10**8, with_host_ports=True, mean_round_trip_ns=4_000_000)
    drawn = poisson_flows(hosts, load=0.8, flows=150, seed=seed, loaded_ports=hosts.core, most_bytes=300_000)
    run = run_flows(hosts, drawn, fills=fills, buffer_ns=5 * 120_000)
    assert run.fct_ns.min() > 0
    assert run.dropped.sum() > 0
    assert run.sent.sum() - run.dropped.sum() >= (-(-drawn.size_bytes // SEGMENT_BYTES)).sum()


def test_expected_reduction() -> None:
    """With i = 4 and room for 256 packets: 64 packets take 4 round trips and N / A of one, RC3 one and N / A."""
    assert expected_reduction(64, available_packets=256) == pytest.approx(100 * (1 - 1.25 / 4.25))
    assert expected_reduction(4, available_packets=256) == 0
    assert expected_reduction(4, available_packets=256, whole=True) == 0
    for packets, rounds in ((12, 2), (13, 3), (28, 3), (60, 4)):  # windows of 4, 8, 16 and 32
        own = packets / 256
        expected = 100 * (1 - (1 + own) / (rounds + own))
        assert expected_reduction(packets, available_packets=256, whole=True) == pytest.approx(expected)
    long = 100_000
    approximate = 100 * log2(256 / 4) * 256 / long  # the rule for long flows of section 2.2
    assert expected_reduction(long, available_packets=256) == pytest.approx(approximate, rel=0.2)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"edges": [40, 30]}, "not in increasing order"),
        ({"edges": [0]}, "numbers of packets above 0"),
        ({"edges": list(range(1, 9))}, "at most 6"),
        ({"first_window": 0}, "first_window is 0"),
        ({"growth": 0.0}, "growth must be above 0"),
        ({"timeout_ns": 0}, "timeout_ns is 0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    hosts = switch()
    with pytest.raises(ForetailError, match=words):
        run_flows(hosts, flows(hosts, (0, 1, 0, 1)), fills=True, buffer_ns=1, **settings)
