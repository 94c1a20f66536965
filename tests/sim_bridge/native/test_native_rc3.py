"""RC3 in the native network: a second loop sends the ends of flows at low priorities while TCP leaves the link idle.

Costs half a second for each drawn setting, and no compiler: the network runs in this process.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Records, read_records
from foretail.sim_bridge.emulator.emulator import EMULATOR, run_emulator, why_not_here
from foretail.sim_bridge.native.network import NativeNetwork
from foretail.sim_bridge.ns3.driver import run_driver
from foretail.sim_bridge.ns3.messages import Message
from foretail.sim_bridge.open_loop.replay import queues_of
from foretail.sim_bridge.packets.simulation import PacketRun
from tests.examples import draws
from tests.scenarios import MILLISECOND, STAR, settings, star_of_messages
from tests.sim_bridge.native.drawn_settings import TCP, drawn_settings
from tests.sim_bridge.packets.paused_runs import finished, written

SEGMENT, EDGES = 1460, [40, 440, 4440]
RATE_BPS, DELAY_NS = 1_000_000_000, MILLISECOND
FULL, EMPTY = 8 * 1502, 8 * 42
"""Of a packet on the wire, in ns at 1 Gbit/s."""


def star(rows: Sequence[tuple[int, ...]], edges: list[int] = EDGES, **changes: Any) -> dict[str, Any]:
    """One switch at 1 Gbit/s with a round trip of 4 ms, and flows of (start in ns, bytes, source, destination)."""
    messages = [Message(row[0], 10**12, row[1], row[2], row[3], number) for number, row in enumerate(rows)]
    usual: dict[str, Any] = {
        "topology__server_link_bps": RATE_BPS,
        "topology__link_delay_ns": DELAY_NS,
        "topology__buffer_bytes_per_port_per_gbps": 500_000,
        "incast__connect_ahead_ns": 0,
        "transport__name": "newreno",
        "transport__mark_bytes": 0,
        "transport__slow_start": True,
        "transport__initial_window_segments": 4,
        "transport__segment_bytes": SEGMENT,
        "transport__min_rto_ns": 10 * MILLISECOND,
        "transport__rc3": {"edges": edges},
        "queues__count": 4,
        "queues__scheduler": "strict",
        "rules__order": "lower_classes_first",
        "drain_ns": 60_000 * MILLISECOND,
    }
    return star_of_messages(messages, 5, **(usual | changes))


def segments(size_bytes: int) -> int:
    return -(-size_bytes // SEGMENT)


def traced(document: dict[str, Any], folder: Path) -> tuple[Records, NDArray[np.uint8], Records]:
    """Arrivals at the switch, their priorities, and flows."""
    flows, _ = finished(document | {"trace": True}, folder)
    arrivals = read_records(folder / "arrivals.bin", ARRIVAL_DTYPE)
    priorities = PacketRun.open(folder).priorities()
    assert len(priorities) == len(arrivals)
    return arrivals, priorities, flows


@pytest.mark.parametrize("size", [1, 4, 5, 20, 300, 2000])
def test_alone_a_flow_takes_a_round_trip_and_its_own_time(size: int) -> None:
    """Section 2.2: RTT + N / A, with the handshake; the first N packets follow the request without a pause."""
    (flow,), _ = finished(star([(0, size * SEGMENT, 0, 1)]))
    one_way_ns = 2 * DELAY_NS
    handshake_ns = 2 * (one_way_ns + 2 * 8 * 50)
    assert flow["fct_ns"] == handshake_ns + EMPTY + size * FULL + one_way_ns + FULL
    assert flow["retransmissions"] == flow["timeouts"] == 0
    (of_tcp,), _ = finished(star([(0, size * SEGMENT, 0, 1)], edges=[]))
    assert (of_tcp["fct_ns"] > flow["fct_ns"]) == (size > 4)


@pytest.mark.parametrize("edges", [EDGES, [40, 400, 4000], [7]])
@pytest.mark.parametrize("size_bytes", [50 * SEGMENT, 700 * SEGMENT + 17])
def test_priorities_are_those_of_the_buckets(edges: list[int], size_bytes: int, tmp_path: Path) -> None:
    """Nothing is acknowledged before all is sent: four segments go from the front, and each other one once."""
    rows = [(0, size_bytes, 0, 1), (2000 * MILLISECOND, 1, 2, 3)]  # the second one lets all answers of the first come
    arrivals, priorities, _ = traced(star(rows, edges, topology__link_delay_ns=100 * MILLISECOND), tmp_path)
    data, first = arrivals["flow_class"] != FlowClass.CONTROL, arrivals["flow"] == 0
    from_end = np.arange(segments(size_bytes) - 4) + 1
    expected = np.minimum(np.searchsorted(edges, from_end) + 1, len(edges))
    of_tail = data & first & (priorities > 0)
    assert priorities[of_tail].tolist() == expected.tolist()
    assert arrivals["size_bytes"][of_tail][0] == 40 + (size_bytes % SEGMENT or SEGMENT)
    answers = np.bincount(priorities[first & ~data], minlength=len(edges) + 1)
    assert answers[1:].tolist() == np.bincount(expected, minlength=len(edges) + 1)[1:].tolist(), "at its own priority"


def test_what_has_come_at_low_priorities_is_no_evidence_of_a_loss() -> None:
    """Nothing is lost, so that whatever TCP sent again would be because of what the second loop has sent."""
    rng = random.Random(1)
    rows = [
        (rng.randrange(400 * MILLISECOND), int(SEGMENT * 10 ** rng.uniform(0.7, 3.3)), *rng.sample(range(5), 2))
        for _ in range(80)
    ]
    patient: dict[str, Any] = {
        "topology__buffer_bytes_per_port_per_gbps": 5_000_000,
        "transport__min_rto_ns": 1000 * MILLISECOND,
    }
    flows, _ = finished(star(rows, **patient))
    assert (flows["fct_ns"] >= 0).all()
    assert flows["retransmissions"].sum() == flows["timeouts"].sum() == 0
    of_tcp, _ = finished(star(rows, edges=[], **patient))
    assert of_tcp["retransmissions"].sum() == 0
    assert flows["fct_ns"].mean() < 0.7 * of_tcp["fct_ns"].mean()


def drawn(number: int) -> dict[str, Any]:
    """A network in which much is lost."""
    rng = random.Random(number)
    rows = []
    for _ in range(rng.randrange(1, 25)):
        source, destination = rng.sample(range(5), 2)
        rows.append((rng.randrange(20 * MILLISECOND), int(10 ** rng.uniform(0, 6)), source, destination))
    fabric = {
        "topology__leaves": 5,
        "topology__spines": 2,
        "topology__servers_per_leaf": 1,
        "topology__spine_link_bps": 500_000_000,
        "background__destinations": "other_leaves",
        "incast__responders": "other_leaves",
        "balancing__name": rng.choice(["ecmp", "ecmp", "spray"]),
    }
    edges = rng.choice([[40, 440, 4440], [40, 400, 4000], [3, 9], [1]])
    return star(
        rows,
        edges,
        **(fabric if rng.random() < 0.4 else {}),
        seed=rng.randrange(1000),
        transport__name=rng.choice(["newreno", "cubic"]),
        transport__segment_bytes=rng.choice([536, 1400, 1460]),
        transport__delayed_ack_segments=rng.choice([1, 2, 4]),
        transport__initial_window_segments=rng.choice([1, 4, 10, 50]),
        transport__slow_start=rng.random() < 0.7,
        policy__name=rng.choice(["lqd", "lqd", "dt", "cs", "abm"]),
        rules__order=rng.choice(["lower_classes_first", "longest_queue"]),
        rules__victim=rng.choice(["tail", "random"]),
        topology__link_delay_ns=rng.choice([1000, 100_000, MILLISECOND]),
        topology__buffer_bytes_per_port_per_gbps=rng.choice([6_000, 20_000, 500_000]),
        topology__erasure_probability=rng.choice([0.0, 0.0, 0.01, 0.02]),
    )


@examples(max_examples=draws(60), deadline=None)
@given(number=st.integers(0, 2**32 - 1))
def test_every_flow_is_delivered_and_the_second_loop_sends_each_byte_once(
    number: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A flow ends when its application has got exactly its bytes; of packets the switch at the source tells."""
    document = drawn(number)
    arrivals, priorities, flows = traced(document, tmp_path_factory.mktemp("run"))
    gave_up = flows["timeouts"] >= 6  # as TCP does at the seventh timeout in a row
    assert len(flows) < 4 or gave_up.mean() < 0.5
    assert (flows["fct_ns"][~gave_up] >= 0).all()
    edges, segment = document["transport"]["rc3"]["edges"], document["transport"]["segment_bytes"]
    at_source = arrivals["switch"] == (flows["source"][arrivals["flow"]] if document["topology"]["spines"] else 0)
    data = (arrivals["flow_class"] != FlowClass.CONTROL) & at_source
    for i, flow in enumerate(flows):
        tail = priorities[data & (arrivals["flow"] == i) & (priorities > 0)]
        whole = np.arange(-(-int(flow["size_bytes"]) // segment)) + 1
        of_buckets = np.bincount(np.minimum(np.searchsorted(edges, whole) + 1, len(edges)), minlength=9)
        assert (np.bincount(tail, minlength=9) <= of_buckets).all()
        sent = arrivals["size_bytes"][data & (arrivals["flow"] == i) & (priorities > 0)].astype(np.int64) - 40
        assert sent.sum() <= flow["size_bytes"]
        if document["topology"]["erasure_probability"] == 0:
            assert (np.diff(tail.astype(int)) >= 0).all(), "from the last one backward"


@examples(max_examples=draws(10), deadline=None)
@given(number=st.integers(0, 2**32 - 1), moment=st.integers(0, 60 * MILLISECOND))
def test_a_snapshot_goes_on_byte_for_byte(number: int, moment: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    document, folder = drawn(number) | {"trace": True}, tmp_path_factory.mktemp("run")
    whole = written(document, folder / "whole", [])
    assert written(document, folder / "divided", [moment], further=20 * MILLISECOND) == whole
    assert "priorities.bin" in whole


def test_more_priorities_than_queues_are_refused() -> None:
    document = star([(0, 1, 0, 1)])
    with pytest.raises(ForetailError, match=r"'transport\.rc3\.edges' has more priorities than a port has queues"):
        NativeNetwork(document | {"queues": document["queues"] | {"count": 3}})


def test_a_replay_would_not_know_the_queues() -> None:
    document = star([(0, 1, 0, 1)])
    scenario = {name: document[name] for name in ("transport", "queues")}
    with pytest.raises(ForetailError, match="a dataset does not keep the priorities of packets of RC3"):
        queues_of(cast("Any", SimpleNamespace(scenario=scenario)))


@pytest.mark.ns3
def test_ns3_refuses_it(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match=r"'transport.rc3.edges' is not simulated by ns-3: run it in the native"):
        run_driver(star([(0, 1, 0, 1)]), tmp_path)


RECOVERY_SEGMENT = 1400
LEAST_RTO_NS = 10 * MILLISECOND
SENDERS = 8
HOUR_NS = 3_600_000 * MILLISECOND


def messages(rows: list[tuple[int, int, int]]) -> list[Message]:
    """Messages of (source, destination, bytes), each on a connection of its own, that all start after 1 ms."""
    return [
        Message(MILLISECOND, HOUR_NS, size, source, destination, number)
        for number, (source, destination, size) in enumerate(rows)
    ]


def flows_of_native_recovery(recovery: str, rows: list[tuple[int, int, int]], **changes: Any) -> Records:
    """Return the fates of messages at a star without other traffic."""
    usual = {"transport__name": "newreno", "transport__mark_bytes": 0, "transport__slow_start": True}
    usual |= {"transport__recovery": recovery, "policy__name": "cs"}
    document = star_of_messages(messages(rows), SENDERS + 1, **(usual | changes))
    flows, _ = finished(document)
    assert (flows["fct_ns"] >= 0).all()
    return flows


@pytest.mark.parametrize("segments", [1, 2, 10, 22])
def test_without_a_loss_a_flow_takes_its_ideal_time_and_a_handshake(segments: int) -> None:
    times = {}
    for recovery in ("ns3", "linux"):
        (flow,) = flows_of_native_recovery(recovery, [(0, 1, segments * RECOVERY_SEGMENT)])
        assert flow["retransmissions"] == flow["timeouts"] == 0
        times[recovery] = flow["fct_ns"]
    assert abs(times["linux"] - times["ns3"]) <= 1  # ns-3 sends one ns after the application


def test_a_lost_tail_is_repaired_before_the_timeout() -> None:
    """All send twenty segments at once into a buffer of thirty, so that the ends of all bursts are lost."""
    rows = [(sender, SENDERS, 20 * RECOVERY_SEGMENT) for sender in range(SENDERS)]
    buffer = {"topology__buffer_bytes_per_port_per_gbps": 500}
    as_ns3, as_linux = (flows_of_native_recovery(recovery, rows, **buffer) for recovery in ("ns3", "linux"))
    assert (as_ns3["timeouts"] > 0).mean() > 0.5
    assert (as_linux["timeouts"] > 0).mean() < 0.3
    assert as_linux["retransmissions"].sum() > 50
    quick = as_linux["timeouts"] == 0
    assert (as_linux["fct_ns"][quick] < LEAST_RTO_NS).all()


def test_a_lost_last_segment_waits_two_round_trips_and_no_timeout() -> None:
    """The second burst finds the buffer full; of its last segments nothing arrives that tells of the loss."""
    rows = [
        (0, SENDERS, 22 * RECOVERY_SEGMENT),
        (1, SENDERS, 22 * RECOVERY_SEGMENT),
        (2, SENDERS, 3 * RECOVERY_SEGMENT),
    ]
    flows = flows_of_native_recovery("linux", rows, topology__buffer_bytes_per_port_per_gbps=300)
    assert flows["retransmissions"].sum() > 0
    assert flows["timeouts"].sum() == 0
    assert flows["fct_ns"].max() < MILLISECOND


def test_a_lost_retransmission_is_repaired_without_a_timeout() -> None:
    """Packets are lost at random beside those that find the buffer full, and so are some that are sent again."""
    changes = {
        "policy__name": "credence",
        "policy__flip_probability": 0.02,
        "topology__buffer_bytes_per_port_per_gbps": 600,
    }
    rows = [(sender, SENDERS, 300 * RECOVERY_SEGMENT) for sender in range(4)]
    as_ns3, as_linux = (flows_of_native_recovery(recovery, rows, **changes) for recovery in ("ns3", "linux"))
    assert as_ns3["timeouts"].sum() > 2
    assert as_linux["retransmissions"].sum() > as_ns3["retransmissions"].sum() > 100
    assert as_linux["timeouts"].sum() == 0
    assert as_linux["fct_ns"].max() < LEAST_RTO_NS < as_ns3["fct_ns"].max()


def test_marks_alone_shrink_the_window_and_repeat_nothing() -> None:
    rows = [(sender, SENDERS, 400 * RECOVERY_SEGMENT) for sender in range(2)]
    changes = {"transport__name": "dctcp", "transport__mark_bytes": 43_200}
    as_ns3, as_linux = (flows_of_native_recovery(recovery, rows, **changes) for recovery in ("ns3", "linux"))
    assert as_linux["retransmissions"].sum() == 0
    assert np.allclose(as_linux["fct_ns"].mean(), as_ns3["fct_ns"].mean(), rtol=0.1)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("policy", ["lqd", "dt"])
def test_flows_take_as_long_as_in_the_emulator(policy: str, tmp_path: Path) -> None:
    executable = EMULATOR.build()
    if (reason := why_not_here(executable)) is not None:
        pytest.skip(reason)
    document = settings(
        **(STAR | {"topology__servers_per_leaf": 8}),
        transport__name="newreno",
        transport__mark_bytes=0,
        transport__slow_start=True,
        transport__recovery="linux",
        incast__queries_per_second_per_server=500.0,
        policy__name=policy,
        traffic_ns=2 * MILLISECOND,
        drain_ns=40 * MILLISECOND,
    )
    native, _ = finished(document)
    emulation = {"factor": 4000, "control": "reno", "background_control": "reno", "lateness_share": 0.1}
    asked = document | {"emulation": {**emulation, "tail_loss_probes": True}}
    run = run_emulator(asked, tmp_path, executable=executable)
    if not run.is_valid:
        pytest.skip(f"the emulation was late: {run.why_invalid}")
    times = np.array([flows["fct_ns"] for flows in (run.flows(), native)], float)
    times = times[:, ((times >= 0) & (times < LEAST_RTO_NS)).all(axis=0)]
    assert times.shape[1] > 0.8 * len(run.flows())
    assert abs(np.log(times[0] / times[1]).mean()) < np.log(1.1)


@examples(max_examples=draws(25), deadline=None)
@given(number=st.integers(0, 2**32 - 1))
def test_every_flow_that_starts_is_delivered(number: int) -> None:
    """Without drops at random, under which a timeout of two minutes may come up too often for an hour."""
    document = drawn_settings(number, TCP[number % len(TCP)])
    document["transport"]["recovery"] = "linux"
    document["policy"]["flip_probability"] = 0.0
    flows, _ = finished({**document, "drain_ns": HOUR_NS, "trace": False})
    assert (flows["fct_ns"][flows["start_ns"] >= 0] > 0).all()
