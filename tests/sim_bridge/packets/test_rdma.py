"""RoCE and IRN: what they repeat, when they wait, and how much is in flight. Costs twenty seconds of CPU time.

Chosen packets are dropped by a live policy at the one switch of a star.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.core.errors import ForetailError
from foretail.features.records import Records
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.native.network import NativeNetwork, run_live_native
from tests.examples import draws
from tests.scenarios import settings

SEGMENT, HEADER, OVERHEAD, BPS, DELAY_NS = 1400, 40, 2, 10_000_000_000, 3000
LOW_NS, HIGH_NS = 100_000, 320_000
BDP_SEGMENTS = 13  #: in a round trip of four links, on which a segment takes 1,154 ns and an answer 34 ns twice


def message(transport: str, size_bytes: int, **changes: Any) -> dict[str, Any]:
    """One message between two servers of a star, and nothing else."""
    alone: dict[str, Any] = {
        "topology__leaves": 1,
        "topology__spines": 0,
        "background__load": 0.0,
        "background__destinations": "other_servers",
        "incast__queries_per_second_per_server": 0.0,
        "incast__responders": "other_servers",
        "incast__fan_in": 3,
        "transport__name": transport,
        "policy__name": "learned",
        "traffic_ns": 1_000_000,
    }
    document = settings(**(alone | changes))
    one = {"start_ns": [0], "latest_ns": [10**9], "size_bytes": [size_bytes], "source": [0], "destination": [1]}
    return {**document, "messages": {**one, "connection": [0], "after": [[]], "gap_ns": [0]}}


def flow_of(document: dict[str, Any], dropped: Collection[int] = ()) -> Any:
    """What became of the message when the switch drops these of the packets that reach it."""
    seen = -1

    def decide(rows: np.ndarray) -> np.ndarray:
        nonlocal seen
        seen += 1
        return np.array([seen in dropped])

    (run,) = run_live_native([document], decide, ("queue",))
    return run.flows[0]


def time_ns(packet_bytes: int) -> int:
    """That of a packet on a link."""
    return -(-(packet_bytes + OVERHEAD) * 8 * 10**9 // BPS)


@pytest.mark.parametrize("transport", ["roce", "irn"])
@pytest.mark.parametrize("size_bytes", [1, 1400, 1401, 50_000])
def test_a_message_alone_takes_its_time_on_the_links(transport: str, size_bytes: int) -> None:
    found = flow_of(message(transport, size_bytes, transport__rdma__window_segments=1000))
    sizes = [SEGMENT] * (size_bytes // SEGMENT) + [size_bytes % SEGMENT] * (size_bytes % SEGMENT > 0)
    times = [time_ns(size + HEADER) for size in sizes]
    last = max(sum(times[: k + 1]) + sum(times[k:]) for k in range(len(times)))  # through two links
    assert found["fct_ns"] == last + 2 * DELAY_NS
    assert (found["retransmissions"], found["timeouts"]) == (0, 0)


def test_no_more_is_in_flight_than_the_window() -> None:
    """Four segments and their answers per round trip, whatever the transport is."""
    trip = 2 * time_ns(SEGMENT + HEADER) + 2 * time_ns(HEADER) + 4 * DELAY_NS
    assert trip > 4 * time_ns(SEGMENT + HEADER)
    for transport in ("roce", "irn"):
        found = flow_of(message(transport, 40 * SEGMENT, transport__rdma__window_segments=4))
        assert 9 * trip < found["fct_ns"] < 10 * trip


def test_irn_has_a_bandwidth_delay_product_in_flight() -> None:
    """So a message does not wait for answers, and with a segment less in flight it does."""
    size = 100 * SEGMENT
    free = flow_of(message("irn", size, transport__rdma__window_segments=1000))["fct_ns"]
    assert flow_of(message("irn", size))["fct_ns"] == free
    assert flow_of(message("irn", size, transport__rdma__window_segments=BDP_SEGMENTS))["fct_ns"] == free
    assert flow_of(message("irn", size, transport__rdma__window_segments=BDP_SEGMENTS - 1))["fct_ns"] > free


def test_irn_repeats_the_packet_that_is_missing_and_roce_all_after_it() -> None:
    size, lost = 30 * SEGMENT, 5
    irn, roce = (flow_of(message(transport, size), {lost}) for transport in ("irn", "roce"))
    assert (irn["retransmissions"], irn["timeouts"]) == (1, 0)
    assert roce["timeouts"] == 0
    assert roce["retransmissions"] > 5  # what was sent in the round trip until the switch's loss was known
    assert irn["fct_ns"] < roce["fct_ns"] < HIGH_NS


@pytest.mark.parametrize(("transport", "wait_ns"), [("irn", LOW_NS), ("roce", HIGH_NS)])
def test_a_lost_tail_waits_for_the_timer(transport: str, wait_ns: int) -> None:
    found = flow_of(message(transport, 10 * SEGMENT), {9})
    whole = flow_of(message(transport, 10 * SEGMENT))
    assert (found["retransmissions"], found["timeouts"]) == (1, 1)
    assert wait_ns < found["fct_ns"] - whole["fct_ns"] < wait_ns + 30_000


def test_irn_waits_longer_with_more_than_a_few_segments_in_flight() -> None:
    lost = flow_of(message("irn", 10 * SEGMENT), range(4, 10))
    assert lost["fct_ns"] > HIGH_NS
    few = flow_of(message("irn", 10 * SEGMENT, transport__rdma__few_segments=6), range(4, 10))
    assert few["fct_ns"] - flow_of(message("irn", 10 * SEGMENT))["fct_ns"] > LOW_NS
    assert few["timeouts"] > 0


@examples(max_examples=draws(40), deadline=None)
@given(
    transport=st.sampled_from(["irn", "roce"]),
    segments=st.integers(1, 60),
    lost=st.sets(st.integers(0, 80), max_size=12),
    window=st.sampled_from([0, 1, 3, 12]),
)
def test_every_message_arrives_and_irn_repeats_each_loss_once(
    transport: str, segments: int, lost: set[int], window: int
) -> None:
    """Once within a window. A loss further on may be repeated again, when the next recovery begins after the first."""
    document = message(transport, segments * SEGMENT - 7, transport__rdma__window_segments=window)
    found = flow_of(document, lost)
    assert found["fct_ns"] > 0
    happened = [k for k in lost if k < segments + found["retransmissions"]]
    if transport == "irn" and found["timeouts"] == 0 and happened:
        within = max(happened) - min(happened) < (window or BDP_SEGMENTS)
        assert found["retransmissions"] <= len(happened) * (1 if within else 2)
    assert found["retransmissions"] >= len(happened)


@pytest.mark.parametrize("control", [None, "timely", "theta_powertcp", "powertcp", "dcqcn"])
@pytest.mark.parametrize("transport", ["irn", "roce"])
def test_a_run_goes_on_from_a_snapshot_as_if_nothing_had_been(transport: str, control: str | None) -> None:
    document = settings(
        transport__name=transport, transport__rdma__control=control, policy__name="dt", policy__alpha=2.0
    )
    network = NativeNetwork(document)
    network.advance(2_500_000)
    snapshot = network.snapshot()
    network.advance()
    first: Records = network.flows()
    assert (first["fct_ns"] > 0).mean() > 0.9
    assert first["retransmissions"].sum() > 0
    network.restore(snapshot)
    network.advance()
    assert (network.flows() == first).all()


@pytest.mark.parametrize("control", [None, "powertcp", "dcqcn"])
def test_answers_of_rdma_stand_beside_a_background_of_tcp(control: str | None) -> None:
    changes: dict[str, Any] = {"transport__name": "irn", "transport__background_name": "cubic", "policy__name": "dt"}
    changes |= {"transport__rdma__control": control}
    network = NativeNetwork(settings(**changes))
    network.advance()
    flows = network.flows()
    assert (flows["fct_ns"] > 0).all()
    of_tcp = NativeNetwork(settings(transport__name="cubic", policy__name="dt", transport__mark_bytes=0))
    of_tcp.advance()
    answers = flows["query"] >= 0
    assert flows["fct_ns"][answers].mean() < of_tcp.flows()["fct_ns"][answers].mean() / 2


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["network=ns3", "scenario.transport.name=irn"],
            "= irn is no TCP, which network=ns3 sends: use network=native",
        ),
        (["network=emulator", "scenario.transport.name=roce"], "= roce is no TCP, which network=emulator sends"),
        (["scenario.transport.rdma.low_rto_ns=400_000"], "low_rto_ns = 400000 is above high_rto_ns = 320000: lower it"),
        (["scenario.transport.rdma.control=dctcp"], "dctcp"),
    ],
)
def test_what_no_network_sends_is_refused(overrides: list[str], words: str) -> None:
    with pytest.raises(ForetailError, match=words):
        compose_settings(EvaluateConfig, ["scenario=tiny", "policy=dt", *overrides], "overrides")
