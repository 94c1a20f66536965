"""Load balancing in the native network: decisions beside a slow model, and what reaches the spines.

Costs forty simulations, ten seconds.
"""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as drawing
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.export.c.target import C
from foretail.export.target import export
from foretail.features.catalog import FEATURES, FLOW_FEATURES, feature
from foretail.features.dataset.reader import Dataset
from foretail.features.records import ARRIVAL_DTYPE, FLOW_DTYPE, FlowClass, Records, read_records
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.nested import Rule, tree_of_rule
from foretail.sim_bridge._native import Balancer, NativeRun
from foretail.sim_bridge.native.driver import collect_dataset, run_native
from foretail.sim_bridge.ns3.messages import Message, columns
from foretail.sim_bridge.packets.simulation import PacketRun
from tests.examples import draws
from tests.scenarios import MILLISECOND, settings
from tests.sim_bridge.packets.paused_runs import finished
from tests.sim_bridge.slow_models.balancer import SlowBalancer

pytestmark = pytest.mark.slow

RULES = ("spray", "uss", "rss", "sirona", "flowbender")
GIVEN = settings()["balancing"]


@drawing(max_examples=draws(400))
@given(
    st.sampled_from([("uss", "mean"), ("sirona", "mean"), ("flowbender", "mean")])
    | st.sampled_from(["mean", "max", "ewma", "marks", "fed_back"]).map(lambda metric: ("rss", metric)),
    st.integers(1, 8),
    st.sampled_from([0.0, 0.25]),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.integers(0, 2**32),
)
def test_decisions_are_those_of_a_slow_model(
    rule: tuple[str, str], subflows: int, jitter: float, share: float, seed: int
) -> None:
    given_settings = GIVEN | {
        "name": rule[0],
        "metric": rule[1],
        "subflows": subflows,
        "interval_ns": 5_000,
        "jitter": jitter,
        "last_share": share,
        "mark_share": share / 20,
    }
    native, slow = Balancer(json.dumps(given_settings), seed), SlowBalancer(given_settings, seed)
    draw, now = random.Random(seed), 1
    under_way: list[tuple[int, int]] = []
    ways = {tuple(native.entropies())}
    for _ in range(400):
        now += draw.choice([1, 10, 200, 400, 3_000])
        if under_way and draw.random() < 0.5:
            subflow, sent = under_way.pop(draw.randrange(len(under_way)))
            marked = draw.random() < 0.2
            native.acknowledged(subflow, sent, marked, now)
            slow.acknowledged(subflow, sent, marked, now)
        else:
            choice = native.next(now)
            assert choice == slow.next(now)
            under_way.append((choice[0], now))
        assert native.entropies() == slow.entropies
        ways.add(tuple(native.entropies()))
    if subflows > 1:  # a single one may never leave its way
        assert (len(ways) == 1) == (rule[0] == "uss")  # all others have left one, so their decisions were compared


def to(source: int, destination: int, size_bytes: int, **rest: Any) -> Message:
    return Message(0, 2**60, size_bytes, source, destination, source * 64 + destination, **rest)


def simulate(folder: Path, messages: list[Message], rule: str, **changes: Any) -> PacketRun:
    nothing = {"background__load": 0.0, "incast__queries_per_second_per_server": 0.0, "policy__name": "cs"}
    tolerant = {"transport__recovery": "linux", "transport__reordering_window_ns": 10_000_000}
    roomy = {"topology__spines": 4, "topology__buffer_bytes_per_port_per_gbps": 50_000}
    given = {**nothing, **tolerant, **roomy, "messages": columns(messages), "balancing__name": rule, **changes}
    return run_native(settings(**given), folder)


def packets_of_spines(run: PacketRun) -> list[int]:
    """Data packets that came to each spine."""
    return [switch["data_in"]["packets"] for switch in run.summary["switches"] if switch["role"] == "spine"]


@pytest.mark.parametrize("rule", ["ecmp", *RULES])
def test_a_flow_uses_one_spine_or_several_and_needs_no_retransmission(rule: str, tmp_path: Path) -> None:
    run = simulate(tmp_path, [to(0, 4, 2_000_000)], rule)
    packets = packets_of_spines(run)
    flows = run.flows()
    assert flows["fct_ns"].min() > 0
    assert flows["retransmissions"].sum() == 0
    assert sum(packets) == 1429
    if rule in ("ecmp", "flowbender"):
        assert sorted(packets)[:3] == [0, 0, 0]  # one flow alone gets no marks
    elif rule == "spray":
        assert min(packets) > 300
    else:
        assert min(packets) > 0


def test_without_a_reordering_window_spraying_repairs_what_was_not_lost(tmp_path: Path) -> None:
    messages = [to(source, 4 + source, 2_000_000) for source in range(4)]
    repeated = {}
    recoveries: dict[str, dict[str, Any]] = {
        "ns3": {"transport__recovery": "ns3", "transport__reordering_window_ns": None},
        "linux": {"transport__reordering_window_ns": None},
        "window": {},
    }
    for name, changes in recoveries.items():
        folder = tmp_path / name
        folder.mkdir()
        run = simulate(folder, messages, "spray", topology__slow_spines=1, **changes)
        drops = sum(one["packets"] for switch in run.summary["switches"] for one in switch["data_drops"].values())
        assert drops == 0
        repeated[name] = int(run.flows()["retransmissions"].sum())
    assert repeated["window"] == 0
    assert repeated["ns3"] > 100
    assert repeated["linux"] > 0


def test_a_message_takes_the_spine_that_it_names(tmp_path: Path) -> None:
    run = simulate(tmp_path, [to(0, 4, 140_000, spine=2), to(1, 5, 280_000, spine=3), to(2, 3, 14_000)], "ethereal")
    assert packets_of_spines(run) == [0, 0, 100, 200]


def test_slow_spines_have_slow_links_and_sirona_leaves_them(tmp_path: Path) -> None:
    messages = [to(source, 4 + source, 4_000_000) for source in range(4)]
    counted = {}
    for rule in ("uss", "sirona"):
        folder = tmp_path / rule
        folder.mkdir()
        slow = {"topology__slow_spines": 1, "topology__slow_spine_link_bps": 2_500_000_000}
        run = simulate(folder, messages, rule, transport__initial_window_segments=40, **slow)
        rates = [switch["port_rates_bps"] for switch in run.summary["switches"]]
        assert rates[0] == 4 * [10**10] + [2_500_000_000] + 3 * [10**10]
        assert rates[2] == 2 * [2_500_000_000]
        assert rates[3] == 2 * [10**10]
        counted[rule] = packets_of_spines(run)[0]
    assert counted["sirona"] < 0.6 * counted["uss"]


@pytest.mark.parametrize("rule", RULES)
def test_a_restored_run_goes_on_as_it_did(rule: str) -> None:
    run = NativeRun(json.dumps(settings(policy__name="dt", balancing__name=rule, traffic_ns=1_000_000)))
    run.advance(2_200_000)
    snapshot = run.snapshot()
    run.advance(2**60)
    first = run.flows()
    run.restore(snapshot)
    run.advance(2**60)
    assert np.array_equal(run.flows(), first)


def test_a_spine_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match=r"'messages\.spine' must be a whole number from -1 to 3, not 4"):
        simulate(tmp_path, [to(0, 4, 1, spine=4)], "ethereal")


def test_spraying_is_as_random_as_it_says() -> None:
    native = Balancer(json.dumps(GIVEN | {"name": "spray"}), 3)
    spines = np.bincount([native.next(0)[1] % 4 for _ in range(40_000)])
    assert np.abs(spines - 10_000).max() < 5 * (40_000 * 0.25 * 0.75) ** 0.5


LARGE_BUFFER = {"topology__buffer_bytes_per_port_per_gbps": 1_000_000, "incast__burst_fraction": 0.001}


def drops(summary: dict[str, Any]) -> int:
    """Packets that switches dropped."""
    return sum(
        one["packets"]
        for switch in summary["switches"]
        for one in (*switch["data_drops"].values(), *switch["control_drops"].values())
    )


@pytest.mark.parametrize("transport", ["dctcp", "irn", "roce"])
def test_senders_repair_what_links_lose(transport: str) -> None:
    changes = LARGE_BUFFER | {"transport__name": transport, "transport__min_rto_ns": MILLISECOND, "drain_ns": 10**9}
    changes["transport__rdma__control"] = "powertcp"
    flows, summary = finished(settings(**changes, topology__erasure_probability=0.01))
    assert (flows["fct_ns"] > 0).all()
    repeated = flows["retransmissions"].sum()
    assert drops(summary) == 0
    carried = sum(switch["data_in"]["packets"] + switch["control_in"]["packets"] for switch in summary["switches"])
    assert 0.005 < summary["erased_packets"] / carried < 0.02
    without, summary = finished(settings(**changes))
    assert "erased_packets" not in summary
    assert without["retransmissions"].sum() < repeated / 10


def test_an_erasure_is_never_labelled_a_drop(tmp_path: Path) -> None:
    for name, buffer in (("large", LARGE_BUFFER), ("small", {})):
        document = settings(**buffer, topology__erasure_probability=0.05, trace=True)
        run = collect_dataset(document, tmp_path / name, scenario=document)
        dataset = Dataset.open(tmp_path / name)
        labels = dataset.frame(["lqd_drop", "accepted"])
        dropped = sum(
            switch["data_drops"][reason]["packets"]
            for switch in run.summary["switches"]
            for reason in ("buffer_full", "pushed_out")
        )
        assert run.summary["erased_packets"] > 1000
        assert labels["lqd_drop"].sum() == dropped
        assert (dropped == 0) == (name == "large")


SERVERS = 8
CELL = 256
MESSAGES = [
    Message(start_ns, 2**60, size, source, destination, source * SERVERS + destination)
    for start_ns, size in ((0, 7_000), (10_000, 300), (2 * MILLISECOND, 200_000), (2_050_000, 14_000))
    for source, destination in ((0, 4), (1, 4), (2, 4))
]
"""Four messages on each of three connections: the second and the fourth follow at once, the third after a pause."""


def traced(folder: Path, **changes: Any) -> tuple[Records, np.ndarray[Any, Any]]:
    """Arrivals of a run with losses, and the connection of every flow; flows outside of MESSAGES have one each."""
    document = settings(trace=True, messages=columns(MESSAGES), **changes)
    run = run_native(document, folder)
    flows = read_records(run.folder / "flows.bin", FLOW_DTYPE)
    connection = np.arange(len(flows))
    first = len(flows) - len(MESSAGES)
    connection[first:] = [len(flows) + message.connection for message in MESSAGES]
    return read_records(run.folder / "arrivals.bin", ARRIVAL_DTYPE), connection


def columns_of(records: Records, names: tuple[str, ...] = FLOW_FEATURES) -> np.ndarray[Any, Any]:
    places = [[one.name for one in FEATURES].index(name) for name in names]
    return np.asarray(records["features"][:, places])


def slow_counts(records: Records, place_of: Any) -> np.ndarray[Any, Any]:
    """The same counted packet by packet, with a dictionary for each kind of memory; `place_of` flow numbers."""
    sent: dict[Any, int] = {}
    last: dict[Any, int] = {}
    ended: dict[Any, int] = {}
    longest: dict[Any, int] = {}
    rows = []
    for record in records:
        place, port = (
            (int(record["switch"]), place_of(int(record["flow"]))),
            (int(record["switch"]), int(record["port"])),
        )
        if record["flow_class"] == FlowClass.CONTROL:
            rows.append([0, 0, 0])
            continue
        size, unit = int(record["size_bytes"]), int(record["time_ns"]) // 2**18
        if (unit - last.get(place, 0)) % 256 > 3:
            sent[place] = 0
        last[place] = unit
        longest[place[0]] = max(longest.get(place[0], 0), size)
        before = sent.get(place, 0)
        after = before + size
        left = ended.get(port, 0) - after
        is_short = size < longest[place[0]]
        rows.append([int(is_short), min(before // CELL, 65535), min(left // CELL, 255) if left >= 0 else 255])
        if is_short:
            ended[port] = after
        sent[place] = 0 if is_short else min(after, 2**24 - 1)
    return np.array(rows)


def library(rule: Rule, folder: Path, names: tuple[str, ...] = FLOW_FEATURES) -> str:
    inputs = tuple(FeatureInput(one.name, one.params(CELL, 15), one.bits) for one in map(feature, names))
    tree = tree_of_rule(rule, names)
    return str(export(Ensemble(inputs, (tree,), Fraction(1, 2)), C(), folder).file(".so"))


def test_every_flow_is_counted_by_its_messages_pauses_and_losses(tmp_path: Path) -> None:
    records, connection = traced(tmp_path, policy__name="dt", policy__alpha=0.25)
    counted = columns_of(records)
    np.testing.assert_array_equal(counted, slow_counts(records, lambda flow: connection[flow]))
    data = records[records["flow_class"] != FlowClass.CONTROL]
    assert (data["outcome"] != 0).sum() > 100  # packets that are sent again are counted again
    (left,) = columns_of(data, ("message_left",)).T
    short, _, like_last = columns_of(data).T
    assert (left[short == 1] == 0).mean() > 0.99  # a short packet ends its message
    assert ((like_last <= 17) & (left <= 17)).sum() > 100
    of_messages = records["flow"] >= len(connection) - len(MESSAGES)
    fresh = records[of_messages & (counted[:, 1] == 0) & (records["flow_class"] != FlowClass.CONTROL)]
    assert len(fresh) >= 4 * 3  # each message of a connection begins anew


@pytest.mark.parametrize("entries", [0, 5])
def test_a_predictor_tells_what_senders_would(tmp_path: Path, entries: int) -> None:
    """With five entries, flows share them; the tags that rules then read come from nothing but these counts."""
    limit = 40
    told = library(("flow_sent", limit, True, False), tmp_path / "library")
    records, connection = traced(
        tmp_path,
        policy__name="occamy",
        policy__spared_bytes=4380,
        policy__message_end=told,
        policy__flow_entries=entries,
    )
    ledger_order = connections_of_the_ledger(connection)
    place_of = (lambda flow: mixed(ledger_order[flow]) % entries) if entries else (lambda flow: connection[flow])
    data = records["flow_class"] != FlowClass.CONTROL
    counted = slow_counts(records, place_of)
    np.testing.assert_array_equal(columns_of(records), counted)
    first_rtt, left = columns_of(records[data], ("first_rtt", "message_left")).T
    sent = counted[data, 1]
    np.testing.assert_array_equal(left == 0, sent <= limit)
    np.testing.assert_array_equal(left[sent > limit], np.minimum(np.maximum(sent[sent > limit], 32), 255))
    assert (first_rtt[sent == 0] == 1).all()
    assert (first_rtt == 0).any()


def connections_of_the_ledger(connection: np.ndarray[Any, Any]) -> list[int]:
    """Connections of flows as the network numbers them: in the order of their first flows."""
    numbers: dict[int, int] = {}
    return [numbers.setdefault(int(one), len(numbers)) for one in connection]


def mixed(x: int) -> int:
    """The finaliser of MurmurHash3, of 32 bits."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = ((x ^ x >> shift) * factor) % 2**32
    return x ^ x >> 16


def test_the_predictor_reads_nothing_but_what_is_counted_of_flows(tmp_path: Path) -> None:
    told = library(("fill", 100, True, False), tmp_path / "library", ("fill",))
    with pytest.raises(ForetailError, match="reads more than what a switch counts of flows; train it on those"):
        run_native(settings(policy__name="occamy", policy__message_end=told), tmp_path)
