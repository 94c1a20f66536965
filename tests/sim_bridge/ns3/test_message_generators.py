"""Elephants and collectives: what they plan, and that nothing of it depends on the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.features.records import Records
from foretail.pipelines.comparison.policy_runs import flows_sha256
from foretail.sim_bridge.ns3.driver import DriverRun, run_driver
from foretail.sim_bridge.ns3.messages import PATTERNS, Message, collective, columns, elephants, joined
from tests.scenarios import MILLISECOND, settings

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


def ring_by_hand(members: int, size_bytes: int) -> dict[tuple[int, int], list[set[int]]]:
    """What every member knows of every part after each step of a ring: sets of the members that it has summed."""
    known = {(member, part): [{member}] for member in range(members) for part in range(members)}
    for step in range(2 * (members - 1)):
        before = {key: set(found[-1]) for key, found in known.items()}
        for member in range(members):
            part = (member - step) % members
            after = (member + 1) % members
            known[after, part].append(before[member, part] | (before[after, part] if step < members - 1 else set()))
    return known


@given(st.integers(2, 9), st.integers(9, 10_000))
def test_a_ring_leaves_every_member_with_the_whole_sum(members: int, size_bytes: int) -> None:
    assert all(found[-1] == set(range(members)) for found in ring_by_hand(members, size_bytes).values())
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


@pytest.mark.ns3
def test_every_policy_is_offered_the_same(together: dict[str, DriverRun]) -> None:
    hashes = {flows_sha256(run.flows(), run.settings()) for run in together.values()}
    assert len(hashes) == 1
    starts = {run.flows()["start_ns"].tobytes() for run in together.values()}
    assert len(starts) == len(together)  # and messages started at other times
    run = together["lqd"]
    document = run.settings()
    document["messages"]["gap_ns"][-1] += 1
    assert flows_sha256(run.flows(), document) not in hashes


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
