"""Messages in ns-3: connections that they share, what they wait for, and what the driver refuses."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.features.records import ARRIVAL_DTYPE, FLOW_DTYPE, FlowClass, Records, read_records
from foretail.sim_bridge.ns3.driver import DriverRun, run_driver
from foretail.sim_bridge.ns3.messages import Message, columns
from tests.scenarios import MILLISECOND, settings

pytestmark = pytest.mark.ns3

AHEAD_NS = 1_500_000
NO_LIMIT_NS = 2**60
SERVERS = 8
TRANSPORTS = ("dctcp", "cubic", "newreno", "theta_powertcp", "timely", "powertcp")


def only(messages: Sequence[Message], **changes: Any) -> dict[str, Any]:
    """Settings without background and queries."""
    nothing = {"background__load": 0.0, "incast__queries_per_second_per_server": 0.0}
    return settings(**{**nothing, "messages": columns(messages), **changes})


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Any]:
    """Runs the driver in a folder of its own."""
    folders: list[Path] = []

    def simulate(document: dict[str, Any]) -> DriverRun:
        folders.append(tmp_path / str(len(folders)))
        folders[-1].mkdir()
        return run_driver(document, folders[-1])

    yield simulate
    for folder in folders:
        shutil.rmtree(folder)


def all_flows(run: DriverRun) -> Records:
    """Records of all that was planned, messages that never started included."""
    return read_records(run.folder / "flows.bin", FLOW_DTYPE)


def to(source: int, destination: int, size_bytes: int, **rest: Any) -> Message:
    """A message that starts at once, on the connection of its ends."""
    fixed = {"start_ns": 0, "latest_ns": NO_LIMIT_NS, "connection": source * SERVERS + destination}
    return Message(**{**fixed, **rest}, size_bytes=size_bytes, source=source, destination=destination)


def offered(run: DriverRun) -> list[dict[str, int]]:
    """What the flows of a run were to send."""
    names, records = ("start_ns", "size_bytes", "source", "destination"), all_flows(run)
    return [dict(zip(names, row, strict=True)) for row in zip(*(records[name].tolist() for name in names), strict=True)]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_messages_with_connections_of_their_own_are_flows(run: Any, transport: str) -> None:
    changes = {
        "transport__name": transport,
        "trace": True,
        "incast__connect_ahead_ns": 0,
        "topology__buffer_bytes_per_port_per_gbps": 300,
    }
    flows = run(settings(**changes, incast__queries_per_second_per_server=0.0))
    messages = [
        to(flow["source"], flow["destination"], flow["size_bytes"], start_ns=flow["start_ns"], connection=number)
        for number, flow in enumerate(offered(flows))
    ]
    again = run(only(messages, **changes))
    for name in ("flows.bin", "arrivals.bin", "occupancy.bin"):
        assert (again.folder / name).read_bytes() == (flows.folder / name).read_bytes()
    assert all_flows(flows)["retransmissions"].sum() > 10


def drawn(seed: int, count: int = 120) -> list[Message]:
    """Messages that wait for others, some of them too long."""
    draw = np.random.default_rng(seed)
    messages: list[Message] = []
    for place in range(count):
        source, shift = draw.integers(SERVERS), draw.integers(1, SERVERS)
        start_ns = int(draw.integers(0, MILLISECOND))
        many = min(place, int(draw.choice([0, 0, 1, 1, 2, 5])))
        late = draw.random() < 0.1
        messages.append(
            to(
                int(source),
                int((source + shift) % SERVERS),
                int(draw.choice([1, 1399, 1400, 1401, 50_000, 300_000])),
                start_ns=start_ns,
                latest_ns=start_ns if late else NO_LIMIT_NS,
                after=draw.choice(place, many, replace=False).tolist() if many else [],
                gap_ns=int(draw.choice([0, 1, 50_000])),
            )
        )
    return messages


def expected_starts(messages: Sequence[Message], records: Records) -> list[int]:
    """When every message starts, -1 for never, given when those before it were delivered: slow and obvious."""
    starts = []
    for message in messages:
        ready = AHEAD_NS + message.start_ns
        for other in message.after:
            if records[other]["fct_ns"] < 0:
                ready = 2**62
            delivered = int(records[other]["start_ns"] + records[other]["fct_ns"])
            ready = max(ready, delivered + message.gap_ns)
        starts.append(-1 if message.after and ready > AHEAD_NS + message.latest_ns else ready)
    return starts


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_drawn_messages_start_when_all_that_they_wait_for_is_delivered(run: Any, transport: str, seed: int) -> None:
    messages = drawn(seed)
    document = only(
        messages,
        transport__name=transport,
        transport__initial_window_segments=100,
        topology__buffer_bytes_per_port_per_gbps=300,
        drain_ns=2_000 * MILLISECOND,
        trace=True,
    )
    found = run(document)
    records = all_flows(found)
    assert records["start_ns"].tolist() == expected_starts(messages, records)
    started = records["start_ns"] >= 0
    np.testing.assert_array_equal(records["fct_ns"] >= 0, started)
    assert found.summary["completed_flows"] == np.count_nonzero(started)
    assert 0 < np.count_nonzero(~started) < len(messages) / 2
    assert records["retransmissions"].sum() > 0
    assert (records["fct_ns"] > records["ideal_fct_ns"])[started].all()
    for name in ("size_bytes", "source", "destination"):
        assert records[name].tolist() == [getattr(message, name) for message in messages]

    connection = np.array([message.connection for message in messages])
    arrivals = read_records(found.folder / "arrivals.bin", ARRIVAL_DTYPE)
    data = arrivals[arrivals["flow_class"] != FlowClass.CONTROL]
    leaf = records["source"][data["flow"]] // 4
    entering = data[leaf == data["switch"]]
    for number in np.unique(connection[started]):
        mine = np.flatnonzero(started & (connection == number))
        start_ns, delivered_ns = records["start_ns"][mine], (records["start_ns"] + records["fct_ns"])[mine]
        assert (np.diff(delivered_ns[np.lexsort((delivered_ns, start_ns))]) >= 0).all()
        sent = (entering["size_bytes"] - 40)[connection[entering["flow"]] == number].sum()
        assert sent >= records["size_bytes"][mine].sum()
        if records["retransmissions"][mine].sum() == 0:
            assert sent == records["size_bytes"][mine].sum()


def test_a_connection_keeps_its_window_while_it_is_silent(run: Any) -> None:
    """A window of 22 segments grows by the first message, and the second leaves as one, 1 s later as at once."""
    for silence_ns in (100_000, 1_000 * MILLISECOND):
        first = to(0, 4, 2_000_000)
        second = to(0, 4, 40 * 1400, after=[0], gap_ns=silence_ns)
        records = all_flows(run(only([first, second], transport__slow_start=True, drain_ns=2_000 * MILLISECOND)))
        assert records["fct_ns"][1] <= records["ideal_fct_ns"][1] + 1


def test_first_round_trips_are_those_after_a_silence(run: Any) -> None:
    messages = [
        to(0, 4, 100_000),
        to(0, 4, 100_000),  # behind the first
        to(0, 4, 100_000, after=[1], gap_ns=1_000),
    ]
    found = run(only(messages, trace=True))
    arrivals = read_records(found.folder / "arrivals.bin", ARRIVAL_DTYPE)
    data = arrivals[(arrivals["flow_class"] != FlowClass.CONTROL) & (arrivals["switch"] == 0)]
    segments = -(-found.summary["first_rtt_bytes"] // 1400)
    marked = [int(data["first_rtt"][data["flow"] == flow].sum()) for flow in range(3)]
    assert marked[:2] == [segments, 0]
    assert marked[2] in (segments, segments - 1)  # segments need not begin where a message does


def test_timeouts_belong_to_the_message_that_waits(run: Any) -> None:
    """Eight senders to one server overflow the buffer; every timeout makes its message take longer than one."""
    messages = []
    for number in range(3):
        messages += [to(source, 0, 120_000, start_ns=number * 60 * MILLISECOND) for source in range(1, SERVERS)]
    document = only(
        messages,
        transport__initial_window_segments=100,
        topology__buffer_bytes_per_port_per_gbps=500,
        policy__name="cs",
        traffic_ns=200 * MILLISECOND,
    )
    records = all_flows(run(document))
    assert (records["fct_ns"] >= 0).all()
    assert records["timeouts"].sum() > 0
    late = records["timeouts"] > 0
    assert (records["fct_ns"][late] > 10 * MILLISECOND).all()
    assert (records["fct_ns"][~late] < 10 * MILLISECOND).all()


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([to(0, 4, 0)], "entry 0 of setting 'messages.size_bytes' must be a whole number from 1 to 4294967295, not 0"),
        ([to(0, 8, 1)], "entry 0 of setting 'messages.destination' must be a whole number from 0 to 7, not 8"),
        ([to(0, 4, 1, gap_ns=-1)], f"entry 0 of setting 'messages.gap_ns' must be a whole number from 0 to {2**60}"),
        ([to(3, 3, 1)], "message 0 of setting 'messages' goes from a server to itself"),
        (
            [to(0, 4, 1, connection=7), to(1, 4, 1, connection=7)],
            "message 1 of setting 'messages' has other ends than those before it on its connection 7",
        ),
        ([to(0, 4, 1, after=[0])], "message 0 of setting 'messages' waits for message 0, which is none before it"),
        (
            [to(0, 4, 1, after=[1]), to(0, 5, 1, after=[0])],
            "message 0 of setting 'messages' waits for message 1, which is none before it in the list",
        ),
        ([to(0, 4, 1), to(0, 4, 1, after=[-1])], "message 1 of setting 'messages' waits for message -1"),
    ],
)
def test_the_driver_refuses_messages_that_cannot_be(run: Any, messages: list[Message], complaint: str) -> None:
    with pytest.raises(ForetailError) as caught:
        run(only(messages))
    assert complaint in str(caught.value)


def queries_of(run: DriverRun) -> Records:
    """One answer of every query, in order of start."""
    records = all_flows(run)
    records = records[records["query"] >= 0]
    return records[np.unique(records["query"], return_index=True)[1]]


QUERIES: dict[str, Any] = {
    "background__load": 0.0,
    "incast__queries_per_second_per_server": 5_000.0,
    "incast__burst_fraction": 0.001,
    "traffic_ns": 100 * MILLISECOND,
    "occupancy_interval_ns": 10 * MILLISECOND,
}


def test_clusters_leave_the_mean_rate_and_gather_queries(run: Any) -> None:
    """4,000 queries of 8 servers are expected, in clusters of 10, 20 us from one to the next."""
    gap_ns, size = 20_000, 10.0
    spread = run(settings(**QUERIES))
    clustered = run(settings(**QUERIES, incast__cluster_size=size, incast__cluster_gap_ns=gap_ns))
    assert len(queries_of(spread)) == pytest.approx(4_000, abs=4 * 4_000**0.5)
    found = queries_of(clustered)
    assert len(found) == pytest.approx(4_000, abs=4 * (2 * size * 4_000) ** 0.5)  # geometric: variance 2 size^2 - size
    for server in range(SERVERS):
        gaps = np.diff(np.sort(found["start_ns"][found["destination"] == server]))
        assert np.mean(gaps < 8 * gap_ns) == pytest.approx(1 - 1 / size, abs=0.08)
        assert np.median(gaps) == pytest.approx(gap_ns * 0.77, rel=0.3)  # 0.9 of the gaps are below the median of all


def test_a_cluster_of_one_is_a_poisson_query(run: Any) -> None:
    plain, gapped = (run(settings(incast__cluster_gap_ns=gap_ns)) for gap_ns in (0, 10**6))
    assert all_flows(plain).tobytes() == all_flows(gapped).tobytes()


def test_reused_connections_carry_the_same_queries_with_fewer_handshakes(run: Any) -> None:
    new, reused = (run(settings(**QUERIES, incast__connections=kind, trace=True)) for kind in ("new", "reused"))
    names = ["start_ns", "size_bytes", "source", "destination", "query", "flow_class"]
    np.testing.assert_array_equal(all_flows(new)[names], all_flows(reused)[names])
    assert (all_flows(reused)["connected_in_advance"] == 1).all()
    assert (all_flows(reused)["fct_ns"] >= 0).all()
    control = [
        np.count_nonzero(arrivals["flow_class"] == FlowClass.CONTROL)
        for arrivals in (read_records(run.folder / "arrivals.bin", ARRIVAL_DTYPE) for run in (new, reused))
    ]
    assert control[1] < control[0] / 4


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_window_below_a_segment_does_not_silence_a_connection(run: Any, transport: str) -> None:
    """Marks bring DCTCP's window below a segment, and nothing in flight would open it again."""
    messages = [to(source, 0, 1_638, start_ns=150_000 * number) for number in range(60) for source in range(1, SERVERS)]
    changes = {
        "transport__mark_bytes": 1,
        "transport__initial_window_segments": 2,
        "traffic_ns": 10 * MILLISECOND,
    }
    records = all_flows(run(only(messages, transport__name=transport, **changes)))
    assert (records["fct_ns"] >= 0).all()
