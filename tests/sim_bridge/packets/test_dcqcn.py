"""DCQCN over RDMA, marks as of RED, and RDMA beside TCP. Costs ten seconds of CPU time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from foretail.features.catalog import FEATURES
from foretail.features.records import ARRIVAL_DTYPE, FLOW_DTYPE, FlowClass, Records, read_records
from foretail.sim_bridge.native.network import run_live_native
from foretail.sim_bridge.ns3.driver import run_driver
from foretail.sim_bridge.ns3.messages import Message
from tests.examples import draws
from tests.scenarios import settings, star_of_messages
from tests.sim_bridge.buffer.test_headers import compiled, run
from tests.sim_bridge.packets.paused_runs import MILLISECOND, finished, written
from tests.sim_bridge.slow_models.dcqcn import SlowDcqcn

pytestmark = pytest.mark.slow

SEGMENT = 1400
LINE_BYTES_PER_NS = 1.25 * SEGMENT / (SEGMENT + 42)  #: payload on a link of 10 Gbit/s
RDMA_ALONE = {
    "transport__name": "roce",
    "transport__rdma__control": "dcqcn",
    "policy__name": "dt",
    "policy__alpha": 4.0,
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("dcqcn") / "dcqcn_check", Path(__file__).with_name("dcqcn_check.cpp"))


GAPS_NS = st.one_of(st.integers(0, 3_000), st.integers(0, 200_000), st.sampled_from([55_000, 110_000, 40_000_000]))


@examples(max_examples=draws(100), deadline=None)
@given(
    events=st.lists(st.tuples(GAPS_NS, st.sampled_from([0, 0, 1, 1400, 1400, 20_000])), max_size=80),
    gain=st.sampled_from([1 / 256, 1 / 16, 0.5, 1.0]),
    alpha_ns=st.sampled_from([1_000, 55_000, 300_000]),
    increase_ns=st.sampled_from([1_000, 55_000, 300_000]),
    increase_bytes=st.sampled_from([1_000, 3_000, 30_000, 10_000_000]),
    fast_rounds=st.sampled_from([1, 2, 5]),
    additive_bps=st.sampled_from([40e6, 1e9, 20e9]),
)
def test_the_rate_is_that_of_timers_that_tick_one_by_one(
    program: Path,
    events: Sequence[tuple[int, int]],
    gain: float,
    alpha_ns: int,
    increase_ns: int,
    increase_bytes: int,
    fast_rounds: int,
    additive_bps: float,
) -> None:
    numbers = (gain, alpha_ns, increase_ns, increase_bytes, fast_rounds, additive_bps, 3 * additive_bps)
    slow = SlowDcqcn(LINE_BYTES_PER_NS, *numbers)
    times = np.cumsum([gap for gap, _ in events]).tolist()
    happened = [(time, size) for time, (_, size) in zip(times, events, strict=True)]
    lines = "".join(f"{time} {size}\n" for time, size in happened)
    rates = [
        float(line) for line in run(program, "law", *map(repr, (LINE_BYTES_PER_NS, *numbers)), source=lines).split()
    ]
    assert rates == pytest.approx([slow.happens(*event) for event in happened], rel=1e-9)


def require_binomial(marked: int, packets: int, probability: float) -> None:
    """Within five standard deviations, which chance leaves once in two million times."""
    deviation = math.sqrt(packets * probability * (1 - probability))
    assert abs(marked - packets * probability) <= 5 * deviation + 1e-9


@pytest.mark.parametrize("probability", [0.01, 0.3, 1.0])
@pytest.mark.parametrize(("seed", "switch"), [(0, 0), (1, 0), (1, 1), (2**40, 5)])
def test_the_share_of_marks_rises_with_the_queue(program: Path, probability: float, seed: int, switch: int) -> None:
    packets, first, full = 20_000, 10_000, 50_000
    queues = [0, 9_999, 10_000, 20_000, 35_000, 49_999, 50_000, 10**6]
    numbers = (seed, switch, first, full, probability, packets)
    marked = [int(line) for line in run(program, "marks", *map(str, (*numbers, *queues))).split()]
    for queue, found in zip(queues, marked, strict=True):
        share = 0.0 if queue <= first else 1.0 if queue >= full else probability * (queue - first) / (full - first)
        require_binomial(found, packets, share)


def test_switches_and_seeds_draw_apart(program: Path) -> None:
    """Two switches, and two seeds, mark other packets: counts of single packets agree as often as chance has it."""

    def drawn(seed: int, switch: int) -> list[str]:
        return run(program, "marks", *map(str, (seed, switch, 1, 1001, 1.0, 1, *[501] * 1000))).split()

    base = drawn(1, 0)
    for other in (drawn(1, 1), drawn(2, 0), drawn(0, 0)):
        require_binomial(sum(a == b for a, b in zip(base, other, strict=True)), 1000, 0.5)


def star(sizes: Sequence[Sequence[int]], **changes: Any) -> dict[str, Any]:
    """Senders 0, 1 and so on of a star, each with messages one after the other, to the server behind them."""
    rows = [(size, sender) for sender, own in enumerate(sizes) for size in own]
    messages = [Message(0, 10**9, size, sender, len(sizes), sender) for size, sender in rows]
    usual: dict[str, Any] = {
        "topology__buffer_bytes_per_port_per_gbps": 30_000,
        "transport__name": "roce",
        "transport__rdma__control": "dcqcn",
        "policy__name": "cs",
        "drain_ns": 1000 * MILLISECOND,
    }
    return star_of_messages(messages, len(sizes) + 1, **(usual | changes))


@pytest.mark.parametrize("probability", [0.05, 0.6])
def test_a_switch_marks_the_share_that_its_queues_ask_for(tmp_path: Path, probability: float) -> None:
    """The queue that each data packet of a run found gives the share that has a mark, of all that are ECN capable."""
    first, full = 20_000, 100_000
    document = settings(
        **RDMA_ALONE,
        transport__mark_bytes=first,
        transport__mark_full_bytes=full,
        transport__mark_probability=probability,
        features__cell_bytes=1,
        trace=True,
    )
    _, summary = finished(document, tmp_path)
    arrivals = read_records(tmp_path / "arrivals.bin", ARRIVAL_DTYPE)
    queue = [feature.name for feature in FEATURES].index("queue")
    queues = arrivals["features"][arrivals["flow_class"] != FlowClass.CONTROL, queue].astype(float)
    shares = np.where(queues >= full, 1.0, probability * np.clip(queues - first, 0, None) / (full - first))
    marked = sum(switch["marked"] for switch in summary["switches"])
    assert np.count_nonzero((shares > 0) & (shares < 1)) > 5_000
    assert abs(marked - shares.sum()) <= 5 * math.sqrt((shares * (1 - shares)).sum())


def test_marks_of_a_range_of_one_byte_are_those_of_a_step() -> None:
    """All from mark_full_bytes on, and at mark_bytes itself none."""

    def flows(**marks: Any) -> Records:
        return finished(settings(**RDMA_ALONE, **marks))[0]

    step = flows(transport__mark_bytes=30_001)
    ramp = flows(transport__mark_bytes=30_000, transport__mark_full_bytes=30_001, transport__mark_probability=1.0)
    assert (step == ramp).all()
    assert (step != flows(transport__mark_bytes=30_000, transport__mark_full_bytes=90_000)).any()


def test_queues_that_mark_by_themselves_count_their_own_length(tmp_path: Path) -> None:
    """Packets of other queues get no mark, and their bytes count for none."""
    queues = {"queues__count": 3, "queues__incast": 1, "queues__control": 2}

    def marked(*marking: int) -> tuple[int, Records]:
        document = settings(
            **queues, queues__marking=list(marking), transport__mark_bytes=10_000, features__cell_bytes=1, trace=True
        )
        _, summary = finished(document, tmp_path)
        return sum(switch["marked"] for switch in summary["switches"]), read_records(
            tmp_path / "arrivals.bin", ARRIVAL_DTYPE
        )

    def asks(arrivals: Records, *marking: int) -> int:
        queue = [feature.name for feature in FEATURES].index("queue")
        own = np.where(arrivals["flow_class"] == FlowClass.INCAST, 1, 0)
        data = arrivals["flow_class"] != FlowClass.CONTROL
        return int(np.count_nonzero(data & np.isin(own, marking) & (arrivals["features"][:, queue] >= 10_000)))

    for marking in ((1,), (0,)):
        count, arrivals = marked(*marking)
        assert count == asks(arrivals, *marking) > 100
    assert marked()[0] > marked(0, 1)[0]


@pytest.mark.ns3
def test_ns3_marks_the_same_packets(tmp_path: Path) -> None:
    for policy, queues in (("lqd", {}), ("dt", {"queues__count": 2, "queues__incast": 1, "queues__marking": [1]})):
        document = settings(
            **queues,
            transport__mark_bytes=10_000,
            transport__mark_full_bytes=60_000,
            transport__mark_probability=0.5,
            policy__name=policy,
        )
        flows, summary = finished(document)
        (tmp_path / policy).mkdir()
        run_of_ns3 = run_driver(document, tmp_path / policy)
        assert (flows == run_of_ns3.flows()).all()
        assert summary["switches"] == run_of_ns3.summary["switches"]
        assert sum(switch["marked"] for switch in summary["switches"]) > 100


def counts(document: dict[str, Any]) -> tuple[dict[str, Any], Records]:
    """What the switch of a star counted, and what became of the messages."""
    flows, summary = finished(document)
    (switch,) = summary["switches"]
    return switch, flows


@pytest.mark.parametrize("interval_ns", [0, 20_000, 50_000, 10**12])
@pytest.mark.parametrize("transport", ["roce", "irn"])
def test_a_receiver_notifies_as_often_as_it_may(transport: str, interval_ns: int) -> None:
    """Senders that stay at the rate of their link get a mark on nearly every packet, and notifications of 60 bytes."""
    document = star(
        [[2_000_000], [2_000_000]],
        topology__buffer_bytes_per_port_per_gbps=100_000,
        transport__name=transport,
        transport__mark_bytes=1,
        transport__dcqcn__cnp_interval_ns=interval_ns,
        transport__dcqcn__additive_bps=10e9,
    )
    switch, flows = counts(document)
    came = switch["control_in"]
    notifications, rest = divmod(came["bytes"] - 40 * came["packets"], 60 - 40)
    assert rest == 0
    assert (flows["retransmissions"] == 0).all()
    assert switch["marked"] > 0.99 * switch["data_in"]["packets"]
    # The run ends when the last packet is there, before what is sent in answer to it.
    assert 0 <= switch["data_out"]["packets"] - (came["packets"] - notifications) < 10
    if interval_ns == 0:
        assert 0 <= switch["marked"] - notifications < 10
    else:
        most = sum(1 + fct_ns // interval_ns for fct_ns in flows["fct_ns"].tolist())
        assert 0.9 * most <= notifications <= most


@pytest.mark.parametrize("transport", ["roce", "irn"])
def test_packets_leave_when_the_law_lets_them(tmp_path: Path, transport: str) -> None:
    """Each sender of a run: its notifications at the switch tell when its packets have to come there."""
    document = star(
        [[8_400_000], [5_600_000]],
        transport__name=transport,
        transport__rdma__window_segments=10**6,
        transport__mark_bytes=10_000,
        transport__mark_full_bytes=100_000,
        transport__mark_probability=0.3,
        transport__dcqcn__increase_bytes=500_000,
        trace=True,
    )
    flows, _ = finished(document, tmp_path)
    assert (flows["timeouts"] == 0).all()
    arrivals = read_records(tmp_path / "arrivals.bin", ARRIVAL_DTYPE)
    delay_ns, packet_ns, notification_ns = 3000, 1154, 50  # of a link, and of 1,442 and 62 bytes on it
    for flow in range(2):
        own = arrivals[arrivals["flow"] == flow]
        is_data = own["flow_class"] != FlowClass.CONTROL
        sent_ns = (own["time_ns"][is_data] - delay_ns - packet_ns).tolist()
        notified_ns = (own["time_ns"][~is_data & (own["size_bytes"] == 60)] + notification_ns + delay_ns).tolist()
        assert len(notified_ns) > 10
        law = SlowDcqcn(LINE_BYTES_PER_NS, 1 / 256, 55_000, 55_000, 500_000, 5, 40e6, 400e6)
        for now, following in itertools.pairwise(sent_ns):
            while notified_ns and notified_ns[0] <= now:
                law.happens(notified_ns.pop(0), 0)
            pause_ns = int(SEGMENT / law.happens(now, SEGMENT))
            assert following - now == pytest.approx(max(pause_ns, packet_ns), abs=1)


def delivered(flows: Records, sender: int, begin_ns: int, end_ns: int) -> int:
    """Bytes of the messages of a sender that were complete between two times."""
    done_ns = flows["start_ns"] + flows["fct_ns"]
    return int(flows["size_bytes"][(flows["source"] == sender) & (done_ns > begin_ns) & (done_ns <= end_ns)].sum())


STEP = {"transport__mark_bytes": 50_000}
RAMP = {"transport__mark_bytes": 5_000, "transport__mark_full_bytes": 200_000, "transport__mark_probability": 0.01}


@pytest.mark.parametrize("marks", [STEP, RAMP], ids=["step", "ramp"])
@pytest.mark.parametrize("transport", ["roce", "irn"])
def test_senders_come_to_equal_shares_of_a_full_link(transport: str, marks: dict[str, Any]) -> None:
    """Also where one of them has had the link to itself before."""
    head_start_ns, begin_ns, end_ns = 20 * MILLISECOND, 40 * MILLISECOND, 80 * MILLISECOND
    pieces = [100_000] * 600
    document = star([pieces] * 2, transport__name=transport, transport__rdma__window_segments=10**6, **marks)
    document["messages"]["start_ns"][len(pieces) :] = [head_start_ns] * len(pieces)
    flows, _ = finished(document)
    alone = delivered(flows, 0, head_start_ns // 2, head_start_ns)
    assert alone > 0.98 * LINE_BYTES_PER_NS * head_start_ns / 2
    first, second = (delivered(flows, sender, begin_ns, end_ns) for sender in range(2))
    assert first / second == pytest.approx(1, abs=0.1)
    assert first + second > 0.8 * LINE_BYTES_PER_NS * (end_ns - begin_ns)
    assert (flows["fct_ns"] > 0).all()
    assert (flows["retransmissions"] == 0).all()


MIXTURES = [
    {"transport__name": "cubic", "transport__background_name": "roce", "transport__rdma__control": "dcqcn"},
    {"transport__name": "dctcp", "transport__background_name": "irn", "transport__rdma__control": "powertcp"},
    {
        "transport__name": "newreno",
        "transport__background_name": "irn",
        "transport__rdma__control": "theta_powertcp",
        "transport__recovery": "linux",
    },
    {"transport__name": "roce", "transport__background_name": "cubic", "transport__rdma__control": "dcqcn"},
]


def named(mixture: dict[str, Any]) -> str:
    return " ".join(str(value) for value in mixture.values())


@pytest.mark.parametrize("mixture", MIXTURES, ids=named)
def test_every_flow_of_a_mixture_ends_and_a_snapshot_goes_on_from_where_it_was(
    tmp_path: Path, mixture: dict[str, Any]
) -> None:
    document = settings(
        **mixture,
        policy__name="dt",
        policy__alpha=2.0,
        transport__mark_bytes=10_000,
        transport__mark_full_bytes=60_000,
        transport__mark_probability=0.3,
        trace=True,
    )
    whole = written(document, tmp_path / "whole", [])
    flows = read_records(tmp_path / "whole" / "flows.bin", FLOW_DTYPE)
    assert (flows["fct_ns"] > 0).all()
    assert flows["retransmissions"].sum() > 0
    assert written(document, tmp_path / "parts", [2_500_000]) == whole


@pytest.mark.parametrize(
    ("name", "background_name", "rdma"),
    [("cubic", "roce", FlowClass.BACKGROUND), ("roce", "cubic", FlowClass.INCAST), ("irn", None, None)],
)
def test_only_the_flows_that_the_settings_name_go_by_rdma(
    tmp_path: Path, name: str, background_name: str | None, rdma: FlowClass | None
) -> None:
    """A flow by RDMA has no handshake: its first packet that reaches a switch has data."""
    document = settings(
        transport__name=name, transport__background_name=background_name, policy__name="lqd", trace=True
    )
    flows, _ = finished(document, tmp_path)
    arrivals = read_records(tmp_path / "arrivals.bin", ARRIVAL_DTYPE)
    numbers, firsts = np.unique(arrivals["flow"], return_index=True)
    has_handshake = arrivals["flow_class"][firsts] == FlowClass.CONTROL
    for flow_class in (FlowClass.BACKGROUND, FlowClass.INCAST):
        own = has_handshake[flows["flow_class"][numbers] == flow_class]
        assert len(own) > 10
        assert (own == (rdma is not None and flow_class != rdma)).all()


def test_background_by_rdma_with_dcqcn_is_marked_and_keeps_queues_short() -> None:
    """Its packets are ECN capable beside a TCP; those of a background by TCP are not."""
    changes: dict[str, Any] = {"transport__name": "cubic", "incast__queries_per_second_per_server": 0.0}
    changes |= {"policy__name": "cs", "background__load": 0.9}
    marked = {}
    for background_name, control in (("roce", "dcqcn"), ("roce", None), ("newreno", None)):
        mixture = {"transport__background_name": background_name, "transport__rdma__control": control}
        _, summary = finished(settings(**changes, **mixture))
        marked[background_name, control] = sum(switch["marked"] for switch in summary["switches"])
    assert marked["roce", "dcqcn"] > 100
    assert marked["roce", None] == marked["newreno", None] == 0


RDMA_SEGMENT, HEADER, OVERHEAD, BPS, DELAY_NS = 1400, 40, 2, 10_000_000_000, 3000
LOW_NS, HIGH_NS = 100_000, 320_000
BDP_SEGMENTS = 13  #: in a round trip of four links, on which a segment takes 1,154 ns and an answer 34 ns twice


def message(transport: str, size_bytes: int, **changes: Any) -> dict[str, Any]:
    """One message between two servers of a star, and nothing else."""
    usual = {"transport__name": transport, "policy__name": "learned", "traffic_ns": 1_000_000}
    return star_of_messages([Message(0, 10**9, size_bytes, 0, 1, 0)], 4, **(usual | changes))


def flow_of(document: dict[str, Any], dropped: Collection[int] = ()) -> Any:
    """Return the fate of the message when the switch drops these of the packets that reach it."""
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
    sizes = [RDMA_SEGMENT] * (size_bytes // RDMA_SEGMENT) + [size_bytes % RDMA_SEGMENT] * (
        size_bytes % RDMA_SEGMENT > 0
    )
    times = [time_ns(size + HEADER) for size in sizes]
    last = max(sum(times[: k + 1]) + sum(times[k:]) for k in range(len(times)))  # through two links
    assert found["fct_ns"] == last + 2 * DELAY_NS
    assert (found["retransmissions"], found["timeouts"]) == (0, 0)


def test_no_more_is_in_flight_than_the_window() -> None:
    """Four segments and their answers per round trip, whatever the transport is."""
    trip = 2 * time_ns(RDMA_SEGMENT + HEADER) + 2 * time_ns(HEADER) + 4 * DELAY_NS
    assert trip > 4 * time_ns(RDMA_SEGMENT + HEADER)
    for transport in ("roce", "irn"):
        found = flow_of(message(transport, 40 * RDMA_SEGMENT, transport__rdma__window_segments=4))
        assert 9 * trip < found["fct_ns"] < 10 * trip


def test_irn_has_a_bandwidth_delay_product_in_flight() -> None:
    """So a message does not wait for answers, and with a segment less in flight it does."""
    size = 100 * RDMA_SEGMENT
    free = flow_of(message("irn", size, transport__rdma__window_segments=1000))["fct_ns"]
    assert flow_of(message("irn", size))["fct_ns"] == free
    assert flow_of(message("irn", size, transport__rdma__window_segments=BDP_SEGMENTS))["fct_ns"] == free
    assert flow_of(message("irn", size, transport__rdma__window_segments=BDP_SEGMENTS - 1))["fct_ns"] > free


def test_irn_repeats_the_packet_that_is_missing_and_roce_all_after_it() -> None:
    size, lost = 30 * RDMA_SEGMENT, 5
    irn, roce = (flow_of(message(transport, size), {lost}) for transport in ("irn", "roce"))
    assert (irn["retransmissions"], irn["timeouts"]) == (1, 0)
    assert roce["timeouts"] == 0
    assert roce["retransmissions"] > 5  # what was sent in the round trip until the switch's loss was known
    assert irn["fct_ns"] < roce["fct_ns"] < HIGH_NS


@pytest.mark.parametrize(("transport", "wait_ns"), [("irn", LOW_NS), ("roce", HIGH_NS)])
def test_a_lost_tail_waits_for_the_timer(transport: str, wait_ns: int) -> None:
    found = flow_of(message(transport, 10 * RDMA_SEGMENT), {9})
    whole = flow_of(message(transport, 10 * RDMA_SEGMENT))
    assert (found["retransmissions"], found["timeouts"]) == (1, 1)
    assert wait_ns < found["fct_ns"] - whole["fct_ns"] < wait_ns + 30_000


def test_irn_waits_longer_with_more_than_a_few_segments_in_flight() -> None:
    lost = flow_of(message("irn", 10 * RDMA_SEGMENT), range(4, 10))
    assert lost["fct_ns"] > HIGH_NS
    few = flow_of(message("irn", 10 * RDMA_SEGMENT, transport__rdma__few_segments=6), range(4, 10))
    assert few["fct_ns"] - flow_of(message("irn", 10 * RDMA_SEGMENT))["fct_ns"] > LOW_NS
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
    document = message(transport, segments * RDMA_SEGMENT - 7, transport__rdma__window_segments=window)
    found = flow_of(document, lost)
    assert found["fct_ns"] > 0
    happened = [k for k in lost if k < segments + found["retransmissions"]]
    if transport == "irn" and found["timeouts"] == 0 and happened:
        within = max(happened) - min(happened) < (window or BDP_SEGMENTS)
        assert found["retransmissions"] <= len(happened) * (1 if within else 2)
    assert found["retransmissions"] >= len(happened)
