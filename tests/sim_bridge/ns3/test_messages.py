"""Messages in ns-3: connections that they share, what they wait for, and what the driver refuses."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.features.records import ARRIVAL_DTYPE, FLOW_DTYPE, FlowClass, Records, read_records
from foretail.sim_bridge.ns3.driver import DriverRun, run_driver
from foretail.sim_bridge.ns3.messages import PATTERNS, Message, collective, columns, elephants, joined
from tests.examples import some_by_day
from tests.scenarios import MILLISECOND, settings

AHEAD_NS = 1_500_000
NO_LIMIT_NS = 2**60
SERVERS = 8
TRANSPORTS = ("dctcp", "cubic", "newreno", "theta_powertcp", "timely", "powertcp", "hpcc")


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


@pytest.mark.ns3
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


@pytest.mark.ns3
@pytest.mark.parametrize(
    ("transport", "seed"),
    some_by_day(itertools.product(TRANSPORTS, range(6)), lambda one: TRANSPORTS.index(one[0]) == one[1]),
)
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


@pytest.mark.ns3
def test_a_connection_keeps_its_window_while_it_is_silent(run: Any) -> None:
    """A window of 22 segments grows by the first message, and the second leaves as one, 1 s later as at once."""
    for silence_ns in (100_000, 1_000 * MILLISECOND):
        first = to(0, 4, 2_000_000)
        second = to(0, 4, 40 * 1400, after=[0], gap_ns=silence_ns)
        records = all_flows(run(only([first, second], transport__slow_start=True, drain_ns=2_000 * MILLISECOND)))
        assert records["fct_ns"][1] <= records["ideal_fct_ns"][1] + 1


@pytest.mark.ns3
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


@pytest.mark.ns3
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


@pytest.mark.ns3
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


@pytest.mark.nightly
@pytest.mark.ns3
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


@pytest.mark.nightly
@pytest.mark.ns3
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


@pytest.mark.ns3
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


TRAFFIC_NS = 5 * MILLISECOND


def bursts(seed: int = 1, **changes: Any) -> list[Message]:
    given: dict[str, Any] = {"flows_per_server": 2, "burst_bytes": 100_000, "idle_ns": 50_000, **changes}
    peers = [[other for other in range(8) if other != server] for server in range(8)]
    return elephants(peers, **given, link_bps=10**10, traffic_ns=TRAFFIC_NS, seed=seed)


def exchange(
    kind: str, groups: list[list[int]], size_bytes: int, repeat: int = 2, compute_ns: int = 0
) -> list[Message]:
    return collective(kind, groups, size_bytes, repeat=repeat, compute_ns=compute_ns, traffic_ns=TRAFFIC_NS, seed=1)


def test_elephants_are_chains_of_bursts_on_connections_of_their_own() -> None:
    messages = bursts()
    by_connection: dict[int, list[int]] = {}
    for place, message in enumerate(messages):
        by_connection.setdefault(message.connection, []).append(place)
        assert 0 <= message.start_ns < TRAFFIC_NS
        assert message.latest_ns == TRAFFIC_NS - 1
        assert message.size_bytes >= 1
        assert message.source != message.destination
    assert len(by_connection) == 16
    for places in by_connection.values():
        assert len({(messages[place].source, messages[place].destination) for place in places}) == 1
        assert [list(messages[place].after) for place in places] == [[], *([place] for place in places[:-1])]
    pairs = {(messages[places[0]].source, messages[places[0]].destination) for places in by_connection.values()}
    assert len(pairs) == 16  # no peer twice while there are others


def test_bursts_and_pauses_have_the_means_that_are_asked_for() -> None:
    messages = [message for seed in range(40) for message in bursts(seed)]
    sizes = [message.size_bytes for message in messages]
    assert np.mean(sizes) == pytest.approx(100_000, rel=5 / len(sizes) ** 0.5)
    pauses = [message.gap_ns for message in messages if message.after]
    assert len(pauses) > 5_000
    assert np.mean(pauses) == pytest.approx(50_000, rel=0.06)  # long ones end a connection's list


@given(st.integers(2, 9), st.integers(9, 10_000))
def test_a_ring_leaves_every_member_with_the_whole_sum(members: int, size_bytes: int) -> None:
    transfers = PATTERNS["ring_all_reduce"](members, size_bytes)
    assert len(transfers) == 2 * members * (members - 1)
    part_bytes = sorted(size_bytes // members + (part < size_bytes % members) for part in range(members))
    for step in range(2 * (members - 1)):
        of_step = transfers[step * members : (step + 1) * members]
        assert sorted(transfer.size_bytes for transfer in of_step) == part_bytes
        for place, transfer in enumerate(of_step, step * members):
            assert transfer.destination == (transfer.source + 1) % members
            if step:
                (other,) = transfer.after
                assert transfers[other].destination == transfer.source
                assert transfers[other].size_bytes == transfer.size_bytes  # it passes on the part that it received
                assert other // members == place // members - 1
            else:
                assert not transfer.after


@given(st.integers(2, 9), st.integers(9, 10_000))
def test_all_to_all_sends_each_members_bytes_to_all_others(members: int, size_bytes: int) -> None:
    transfers = PATTERNS["all_to_all"](members, size_bytes)
    assert {(transfer.source, transfer.destination) for transfer in transfers} == {
        (source, destination) for source in range(members) for destination in range(members) if source != destination
    }
    for member in range(members):
        assert sum(transfer.size_bytes for transfer in transfers if transfer.source == member) == size_bytes
        assert not any(transfer.after for transfer in transfers)


@pytest.mark.parametrize("kind", PATTERNS)
def test_a_member_starts_the_next_round_when_it_has_received_all_of_this_one(kind: str) -> None:
    messages = exchange(kind, [[0, 4, 1], [5, 2, 6]], 3_000, repeat=3, compute_ns=7_000)
    assert {message.round for message in messages} == set(range(6))
    for place, message in enumerate(messages):
        assert all(other < place for other in message.after)
        begins = [other for other in message.after if messages[other].round != message.round]
        if message.round % 3 and begins:
            assert begins == list(message.after)
            before = [other for other in range(len(messages)) if messages[other].round == message.round - 1]
            received = [other for other in before if messages[other].destination == message.source]
            sent = [other for other in before if messages[other].source == message.source]
            assert begins == (received or sent)  # who receives nothing waits for what it sent
        assert message.gap_ns == (7_000 if begins else 0)
    assert len({message.connection for message in messages}) == len(
        {(message.source, message.destination) for message in messages}
    )


def test_joined_lists_keep_their_own_connections_rounds_and_order() -> None:
    one, other = bursts(), exchange("all_to_all", [[0, 1, 2]], 300)
    both = joined(one, other, other)
    assert len(both) == len(one) + 2 * len(other)
    rounds = [message.round for message in both]
    assert rounds[: len(one)] == [-1] * len(one)
    assert sorted(set(rounds[len(one) :])) == [0, 1, 2, 3]
    for place, message in enumerate(both):
        for earlier in message.after:
            assert earlier < place
            assert (both[earlier].round < 0) == (message.round < 0)
    ends: dict[int, tuple[int, int]] = {}
    for message in both:
        assert ends.setdefault(message.connection, (message.source, message.destination)) == (
            message.source,
            message.destination,
        )


ALL_AT_ONCE: dict[str, Any] = {
    "background__load": 0.3,
    "incast__connections": "reused",
    "incast__cluster_size": 3.0,
    "incast__cluster_gap_ns": 50_000,
    "topology__buffer_bytes_per_port_per_gbps": 1280,
    "traffic_ns": TRAFFIC_NS,
}


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> dict[str, DriverRun]:
    """Background, queries, elephants and a collective at once, by policy."""
    messages = joined(
        bursts(), exchange("ring_all_reduce", [[0, 4, 1, 5]], 100_000), exchange("all_to_all", [[2, 6, 3]], 50_000)
    )
    return {
        policy: run_driver(
            settings(**ALL_AT_ONCE, messages=columns(messages), policy__name=policy), tmp_path_factory.mktemp(policy)
        )
        for policy in ("lqd", "cs", "dt", "abm")
    }


def started(records: Records) -> Records:
    return records[records["start_ns"] >= 0]


@pytest.mark.ns3
def test_queries_are_their_answers_and_rounds_their_messages(together: dict[str, DriverRun]) -> None:
    for run in together.values():
        flows, queries, rounds = run.flows(), run.queries(), run.rounds()
        for number, query in queries.iterrows():
            answers = flows[flows["query"] == number]
            assert query["senders"] == len(answers) == len(set(answers["source"].tolist())) == 4
            assert query["size_bytes"] == answers["size_bytes"].sum()
            assert {query["destination"]} == set(answers["destination"].tolist())
            assert query["complete"] == (answers["fct_ns"] >= 0).all()
            if query["complete"]:
                assert query["time_ns"] == answers["fct_ns"].max()
            assert query["timeouts"] == answers["timeouts"].sum()
        messages = run.settings()["messages"]
        sent = flows[-len(messages["round"]) :]
        for number, round_ in rounds.iterrows():
            mine = sent[np.array(messages["round"]) == number]
            assert round_["flows"] == len(mine)
            assert round_["start_ns"] == started(mine)["start_ns"].min()
            assert round_["complete"] == (mine["fct_ns"] >= 0).all()
            if round_["complete"]:
                assert round_["time_ns"] == (mine["start_ns"] + mine["fct_ns"]).max() - mine["start_ns"].min()
                assert round_["slowdown"] >= 1
        assert rounds["complete"].all()
        assert len(rounds) == 4


@pytest.mark.ns3
@pytest.mark.parametrize(("kind", "most"), [("ring_all_reduce", 1.02), ("all_to_all", 1.1)])
def test_a_round_alone_takes_its_ideal_time(tmp_path: Path, kind: str, most: float) -> None:
    document = settings(
        background__load=0.0,
        incast__queries_per_second_per_server=0.0,
        transport__initial_window_segments=1000,
        transport__mark_bytes=10**9,
        topology__spines=4,
        messages=columns(exchange(kind, [[0, 4, 1, 5]], 120_000, repeat=1)),
    )
    (found,) = run_driver(document, tmp_path).rounds()["slowdown"]
    assert 1 <= found < most
