"""Queues that may not lose a packet: what is paused, for how long, and what that costs. Takes half a minute of CPU.

The slow model is `slow_models/pauses.py`. Closed forms are those of section 5.1 of Addanki's thesis, and its theorems
10 and 11 on Reverie.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.configs.schema.policies import require_distinct_policies
from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES, LOSSLESS_FEATURES
from foretail.features.records import ARRIVAL_DTYPE, OCCUPANCY_DTYPE, FlowClass, Records, read_records
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge._native import slotted
from foretail.sim_bridge.native.network import NativeNetwork
from foretail.sim_bridge.ns3.driver import run_driver
from foretail.sim_bridge.packets.buffer_cycles import find_cycle, require_no_cycle
from foretail.sim_bridge.policies import KNOW_PRIORITIES, MAKES_ROOM, SCHEDULERS, SEE_INGRESS
from tests.examples import draws
from tests.scenarios import settings
from tests.sim_bridge.native.drawn_settings import drawn_pauses
from tests.sim_bridge.slow_models.pauses import Message, SlowPauses, Star

PACKET_BYTES, MILLISECOND = 1440, 1_000_000
STAR = {
    "topology__leaves": 1,
    "topology__spines": 0,
    "background__destinations": "other_servers",
    "incast__responders": "other_servers",
}


def needed_headroom(delay_ns: int, bps: int = 10_000_000_000) -> int:
    """The packet that pauses, and what comes while two packets and a frame are sent and on the way there and back."""
    packet_ns, frame_ns = (-(-(size + 2) * 8 * 10**9 // bps) for size in (PACKET_BYTES, 64))
    return PACKET_BYTES + math.ceil((2 * packet_ns + frame_ns + 2 * delay_ns) * (bps / 8e9))


def finished(document: Mapping[str, Any], folder: Path | None = None) -> tuple[Records, dict[str, Any]]:
    """Flows and summary of a run."""
    network = NativeNetwork(document, folder)
    network.advance()
    flows = network.flows()
    return flows, network.finish()


def total(summary: Mapping[str, Any], *path: str) -> int:
    """Sum of a number over the switches."""
    found = 0
    for switch in summary["switches"]:
        for key in path:
            switch = switch[key]
        found += switch
    return found


def written(document: Mapping[str, Any], folder: Path, moments: Sequence[int]) -> dict[str, Any]:
    """Files and summary of a run that goes on for a while at some moments, and comes back."""
    folder.mkdir()
    network = NativeNetwork(document, folder)
    for moment in moments:
        network.advance(moment)
        snapshot = network.snapshot()
        network.advance(moment + 300_000)
        network.restore(snapshot)
    network.advance()
    summary = network.finish()
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".bin"}
    return files | {name: value for name, value in summary.items() if not name.endswith("_seconds")}


def require_conserved(summary: Mapping[str, Any], *, loses_nothing: bool = True) -> None:
    """Bytes in are bytes out, dropped and queued, and those of lossless queues are not dropped."""
    for switch in summary["switches"]:
        dropped = sum(of["bytes"] for kind in ("data_drops", "control_drops") for of in switch[kind].values())
        came, went = (sum(switch[f"{kind}_{way}"]["bytes"] for kind in ("data", "control")) for way in ("in", "out"))
        assert came == went + dropped + switch["queued_bytes"]
        lossless = switch["lossless"]
        assert not loses_nothing or lossless["drops"] == {"packets": 0, "bytes": 0}
        gone = lossless["out"]["bytes"] + lossless["drops"]["bytes"]
        assert 0 <= lossless["in"]["bytes"] - gone <= switch["queued_bytes"]


def mixed(policy: str = "dt", **changes: Any) -> dict[str, Any]:
    """Answers by RoCE in a lossless queue, and a background of Cubic in a lossy one; switches have small buffers."""
    usual: dict[str, Any] = {
        "topology__buffer_bytes_per_port_per_gbps": 3000,
        "background__load": 0.5,
        "transport__name": "roce",
        "transport__background_name": "cubic",
        "transport__min_rto_ns": MILLISECOND,
        "traffic_ns": MILLISECOND,
        "policy__name": policy,
        "queues__count": 3,
        "queues__incast": 1,
        "queues__control": 2,
        "queues__lossless": [1, 2],
    }
    return settings(**(usual | changes))


@pytest.mark.parametrize("topology", ["star", "leaf_spine"])
@pytest.mark.parametrize("policy", sorted({*SEE_INGRESS, *KNOW_PRIORITIES}))
def test_switches_pause_senders_instead_of_dropping(policy: str, topology: str) -> None:
    star = STAR | {"topology__servers_per_leaf": 8, "topology__buffer_bytes_per_port_per_gbps": 3500}
    document = mixed(policy, **(star if topology == "star" else {}))
    flows, summary = finished(document)
    assert (flows["fct_ns"] > 0).all()
    require_conserved(summary)
    assert total(summary, "lossless", "pauses") > 10
    needed = needed_headroom(3000)
    for switch in summary["switches"]:
        lossless = switch["lossless"]
        assert lossless["pauses"] == lossless["resumes"]
        assert (lossless["paused_ns"] > 0) == (lossless["pauses"] > 0)
        assert lossless["most_headroom_bytes"] <= 2 * needed * len(switch["port_rates_bps"])
    answers = flows["query"] >= 0
    assert flows["retransmissions"][answers].sum() == flows["timeouts"][answers].sum() == 0


# The slow model.


def star_document(star: Star, messages: Sequence[Message], **changes: Any) -> dict[str, Any]:
    """The driver's document of what the slow model runs; the buffer must be a multiple of what ports bring."""
    whole, port_gbps = star.buffer_bytes + star.pool_bytes, star.hosts * star.bps / 10**9
    assert whole % port_gbps == 0
    rows = len(messages)
    columns = {
        "start_ns": [message.start_ns for message in messages],
        "latest_ns": [10**9] * rows,
        "size_bytes": [message.size_bytes for message in messages],
        "source": [message.source for message in messages],
        "destination": [message.destination for message in messages],
        "connection": list(range(rows)),
        "after": [[] for _ in messages],
        "gap_ns": [0] * rows,
    }
    never = 10**12
    usual: dict[str, Any] = STAR | {
        "topology__servers_per_leaf": star.hosts,
        "topology__server_link_bps": star.bps,
        "topology__link_delay_ns": star.delay_ns,
        "topology__buffer_bytes_per_port_per_gbps": int(whole / port_gbps),
        "background__load": 0.0,
        "incast__queries_per_second_per_server": 0.0,
        "incast__fan_in": 1,
        "incast__connect_ahead_ns": 0,
        "transport__name": "roce",
        "transport__rdma__low_rto_ns": never,
        "transport__rdma__high_rto_ns": never,
        "policy__name": "dt",
        "traffic_ns": MILLISECOND,
        "drain_ns": 10**10,
        "queues__count": 2,
        "queues__background": 1,
        "queues__control": star.control,
        "queues__lossless": list(star.lossless),
        "pfc__alpha": star.alpha,
        "pfc__headroom_bytes": star.headroom_bytes,
        "pfc__headroom_pool_bytes": star.pool_bytes,
        "pfc__xon_bytes": star.xon_bytes,
        "pfc__xon_offset_bytes": star.xon_offset_bytes,
        "messages": columns,
    }
    return settings(**(usual | changes))


def star_of(hosts: int, shared_bytes: int, delay_ns: int, **changes: Any) -> Star:
    """A star with so much shared buffer or a little more, and the headroom that its links need."""
    headroom = changes.pop("headroom_bytes", needed_headroom(delay_ns))
    pool = hosts * len(changes.get("lossless", (1,))) * headroom
    whole = -(-(shared_bytes + pool) // (10 * hosts)) * 10 * hosts
    usual: dict[str, Any] = {"alpha": 1.0, "xon_bytes": 0, "xon_offset_bytes": 2 * PACKET_BYTES}
    return Star(
        hosts=hosts,
        buffer_bytes=whole - pool,
        headroom_bytes=headroom,
        pool_bytes=pool,
        delay_ns=delay_ns,
        **(usual | changes),
    )


@st.composite
def stars(draw: st.DrawFn) -> Star:
    delay_ns = draw(st.sampled_from([0, 1, 577, 1154, 3000]) | st.integers(0, 6000))
    return star_of(
        draw(st.integers(3, 6)),
        draw(st.sampled_from([6000, 12_000, 25_000, 100_000])),
        delay_ns,
        headroom_bytes=needed_headroom(delay_ns) + draw(st.sampled_from([0, 0, 1, 3000])),
        alpha=draw(st.sampled_from([0.0625, 0.5, 1.0, 4.0, 64.0])),
        xon_bytes=draw(st.sampled_from([0, 0, 3000])),
        xon_offset_bytes=draw(st.sampled_from([0, 1440, 2880, 10_000])),
        control=draw(st.sampled_from([0, 1])),
        lossless=draw(st.sampled_from([(1,), (0, 1)])),
    )


@st.composite
def some_messages(draw: st.DrawFn, hosts: int) -> list[Message]:
    one_host = draw(st.booleans())
    pairs = st.tuples(st.integers(0, hosts - 1), st.integers(0, hosts - 1)).filter(lambda pair: pair[0] != pair[1])
    to_one_host = st.tuples(st.integers(1, hosts - 1), st.just(0))
    return [
        Message(
            start_ns=draw(st.sampled_from([0, 1000]) | st.integers(0, 50_000)),
            source=source,
            destination=destination,
            size_bytes=draw(st.sampled_from([1, 1400, 1401, 30_000, 100_000]) | st.integers(1, 50_000)),
        )
        for source, destination in draw(st.lists(to_one_host if one_host else pairs, min_size=1, max_size=16))
    ]


@examples(max_examples=draws(1500), deadline=None)
@given(star=stars(), data=st.data())
def test_messages_take_as_long_as_in_the_slow_model(star: Star, data: st.DataObject) -> None:
    """To the nanosecond, with links so short that many things happen at one time among them."""
    messages = data.draw(some_messages(star.hosts))
    slow = SlowPauses(star, messages)
    expected = slow.run()
    flows, summary = finished(star_document(star, messages))
    assert flows["fct_ns"].tolist() == expected
    (lossless,) = (switch["lossless"] for switch in summary["switches"])
    assert (lossless["pauses"], lossless["resumes"]) == (slow.pauses, slow.resumes)
    assert (lossless["drops"]["packets"], lossless["most_headroom_bytes"]) == (0, slow.most_headroom_bytes)


@examples(max_examples=draws(200), deadline=None)
@given(star=stars(), data=st.data())
def test_features_tell_what_lossless_packets_take(
    star: Star, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    messages = data.draw(some_messages(star.hosts))
    slow = SlowPauses(star, messages)
    slow.run()
    folder = tmp_path_factory.mktemp("run")
    finished(star_document(star, messages, trace=True, features__cell_bytes=64), folder)
    records = read_records(folder / "arrivals.bin", ARRIVAL_DTYPE)
    places = [[feature.name for feature in FEATURES].index(name) for name in LOSSLESS_FEATURES]
    found = records["features"][records["flow_class"] != FlowClass.CONTROL][:, places]
    assert found.tolist() == [[lossless_bytes // 64, paused] for lossless_bytes, paused in slow.seen[: len(found)]]
    assert len(found) >= len(messages)


# States.


def incast_of(senders: int, size_bytes: int) -> list[Message]:
    return [Message(0, source, 0, size_bytes) for source in range(1, senders + 1)]


def test_what_comes_after_a_pause_goes_to_headroom() -> None:
    """The second packet of each sender makes it pause once; what it has sent by then follows."""
    star = star_of(3, 100_000, 3000, alpha=0.001)
    flows, summary = finished(star_document(star, incast_of(2, 8 * 1400)))
    lossless = summary["switches"][0]["lossless"]
    assert (lossless["pauses"], lossless["resumes"], lossless["drops"]["packets"]) == (2, 2, 0)
    packet_ns = -(-(PACKET_BYTES + 2) * 4 // 5)
    paused_ns = 2 * packet_ns + 3000  # when the second packets arrive
    assert paused_ns + 53 + 3000 > 7 * packet_ns  # the last packets have begun when hosts hear of it
    # By the end of the eighth packet of each sender, five have gone on.
    assert lossless["most_headroom_bytes"] >= 7 * PACKET_BYTES
    assert (flows["fct_ns"] == SlowPauses(star, incast_of(2, 8 * 1400)).run()).all()


@pytest.mark.parametrize("xon_bytes", [0, PACKET_BYTES, 10_000])
def test_an_empty_queue_lets_its_sender_go_on(xon_bytes: int) -> None:
    """Though its threshold is 0 because others fill the buffer, and no offset is ever reached."""
    star = star_of(5, 6000, 1000, alpha=0.01, xon_bytes=xon_bytes, xon_offset_bytes=10**6)
    messages = incast_of(4, 100_000)
    flows, summary = finished(star_document(star, messages))
    assert (flows["fct_ns"] > 0).all()
    assert summary["switches"][0]["lossless"]["pauses"] > 20
    assert flows["fct_ns"].tolist() == SlowPauses(star, messages).run()


def test_headroom_may_be_exactly_full_and_a_byte_less_is_a_drop() -> None:
    """The shared buffer stays as it is; links are slow, so that a byte more for each Gbit/s is a byte more in all."""
    bps, shared = 250_000_000, 20_000
    needed = needed_headroom(100, bps)
    messages, repair = incast_of(3, 50_000), {f"transport__rdma__{name}_rto_ns": 10**7 for name in ("low", "high")}

    def run(pool_bytes: int) -> tuple[Records, dict[str, Any]]:
        star = Star(4, shared, needed, pool_bytes, 1.0, 0, 2 * PACKET_BYTES, 100, 0, (1,), bps)
        flows, summary = finished(star_document(star, messages, **repair))
        return flows, summary["switches"][0]["lossless"]

    flows, lossless = run(4 * needed)
    most = lossless["most_headroom_bytes"]
    assert 0 < most < 4 * needed
    same_flows, full = run(most)
    assert (same_flows["fct_ns"] == flows["fct_ns"]).all()
    assert (full["drops"]["packets"], full["most_headroom_bytes"]) == (0, most)
    repaired, short = run(most - 1)
    assert short["drops"]["packets"] > 0
    assert short["in"]["bytes"] == short["out"]["bytes"] + short["drops"]["bytes"]
    assert (repaired["fct_ns"] > 0).all()  # its timers run, since it may lose
    assert repaired["retransmissions"].sum() > 0


@pytest.mark.parametrize("policy", ["dt", "abm", "sonic", "reverie", "occamy"])
def test_where_both_classes_are_refused_one_waits_and_the_other_is_dropped(policy: str) -> None:
    """A threshold admits nothing: what may not be lost comes in by headroom, with a pause for each time."""
    flows, summary = finished(mixed(policy, policy__alpha=1e-9, pfc__alpha=1e-9, drain_ns=50 * MILLISECOND))
    require_conserved(summary)
    assert total(summary, "data_drops", "over_threshold", "packets") > 20
    assert total(summary, "lossless", "pauses") == total(summary, "lossless", "resumes") > 100
    answers = flows["query"] >= 0
    assert (flows["fct_ns"][answers] > 0).all()
    assert flows["retransmissions"][answers].sum() == 0 < flows["retransmissions"][~answers].sum()


@pytest.mark.parametrize(("name", "background"), [("roce", "cubic"), ("dctcp", None), ("cubic", None)])
def test_a_queue_for_everything_loses_nothing(name: str, background: str | None) -> None:
    """Whatever its packets belong to: TCP, which does not know of pauses, waits in the interfaces of its hosts."""
    changes: dict[str, Any] = {"queues__count": 1, "queues__incast": 0, "queues__control": 0, "queues__lossless": [0]}
    changes |= {"transport__name": name, "transport__background_name": background}
    flows, summary = finished(mixed(**changes, transport__min_rto_ns=100 * MILLISECOND))
    assert (flows["fct_ns"] > 0).all()
    require_conserved(summary)
    assert total(summary, "lossless", "pauses") > 10
    assert flows["retransmissions"].sum() == flows["timeouts"].sum() == 0
    for switch in summary["switches"]:
        assert switch["lossless"]["in"]["bytes"] == switch["data_in"]["bytes"] + switch["control_in"]["bytes"]


def test_a_storm_of_pauses_blocks_a_victim() -> None:
    """Four servers send to a fifth: the spine pauses leaves, these their servers, and a flow beside them waits."""
    size, victim_size = 400_000, 20_000
    columns: dict[str, Any] = {
        "start_ns": [0, 0, 0, 0, 100_000],
        "latest_ns": [10**9] * 5,
        "size_bytes": [size] * 4 + [victim_size],
        "source": [0, 1, 2, 8, 3],
        "destination": [4, 4, 4, 4, 5],
        "connection": list(range(5)),
        "after": [[]] * 5,
        "gap_ns": [0] * 5,
    }
    quiet = {
        "topology__leaves": 3,
        "topology__spines": 1,
        "topology__buffer_bytes_per_port_per_gbps": 3000,
        "background__load": 0.0,
        "incast__queries_per_second_per_server": 0.0,
        "transport__name": "roce",
        "policy__name": "dt",
        "queues__count": 2,
        "queues__background": 1,
    }
    flows, summary = finished(settings(**quiet, queues__lossless=[0, 1], messages=columns))
    require_conserved(summary)
    leaf, *others, spine = (switch["lossless"] for switch in summary["switches"])
    assert spine["pauses"] == spine["resumes"] > 0  # of leaves
    assert leaf["pauses"] == leaf["resumes"] > 0  # of servers, when the spine has paused the leaf
    assert others[0]["pauses"] == 0  # its servers get no more than the spine's link brings
    alone = {name: values[4:] for name, values in columns.items()}
    (undisturbed,), _ = finished(settings(**quiet, queues__lossless=[0, 1], messages=alone))
    assert flows["fct_ns"][4] > 3 * undisturbed["fct_ns"]
    assert flows["fct_ns"][4] > 100_000


def test_ports_without_traffic_change_nothing() -> None:
    messages = incast_of(2, 60_000)
    few, many = star_of(3, 10_000, 1000), star_of(8, 10_000, 1000)
    many = Star(**(vars(many) | {"buffer_bytes": few.buffer_bytes, "pool_bytes": 80 * 1000 - few.buffer_bytes}))
    flows, summary = finished(star_document(few, messages))
    same, same_summary = finished(star_document(many, messages))
    assert (flows["fct_ns"] == same["fct_ns"]).all()
    of_few, of_many = (one["switches"][0]["lossless"] for one in (summary, same_summary))
    assert of_few.pop("headroom_pool_bytes") < of_many.pop("headroom_pool_bytes")
    assert of_few == of_many


def test_a_hundred_senders_answer_at_once() -> None:
    star = star_of(101, 50_000, 3000)
    messages = incast_of(100, 15_000)
    flows, summary = finished(star_document(star, messages))
    lossless = summary["switches"][0]["lossless"]
    assert lossless["drops"]["packets"] == 0
    assert lossless["most_headroom_bytes"] <= 100 * star.headroom_bytes
    assert lossless["pauses"] >= 100
    packet_ns = -(-(PACKET_BYTES + 2) * 4 // 5)
    assert (flows["fct_ns"] > 0).all()
    assert flows["fct_ns"].max() < 1.2 * 100 * 11 * packet_ns  # its link never waits for long


def test_lqd_makes_room_out_of_the_lossy_queues_that_it_may_take() -> None:
    found = {}
    for makes_room in MAKES_ROOM:
        flows, summary = finished(mixed("lqd", pfc__makes_room=makes_room, background__load=0.9))
        assert (flows["fct_ns"] > 0).all()
        require_conserved(summary)
        found[makes_room] = (
            total(summary, "lossless", "pauses"),
            total(summary, "data_drops", "pushed_out", "packets"),
        )
    pauses, pushed_out = ({name: pair[place] for name, pair in found.items()} for place in (0, 1))
    assert pauses["any_queue"] < pauses["no_queue"]
    assert pushed_out["any_queue"] > pushed_out["no_queue"]
    assert pauses["any_queue"] <= pauses["longer_queues"] <= pauses["no_queue"]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_paused_queue_misses_its_turns_and_no_other_does(scheduler: str) -> None:
    quanta = [3000, 1500, 1500] if scheduler == "deficit_round_robin" else []
    flows, summary = finished(mixed(queues__scheduler=scheduler, queues__quantum_bytes=quanta))
    assert (flows["fct_ns"] > 0).all()
    require_conserved(summary)
    assert total(summary, "lossless", "pauses") > 10


def test_no_packet_is_labelled_as_dropped_that_may_not_be_lost(tmp_path: Path) -> None:
    for policy in ("lqd", "dt", "occamy", "sonic"):
        folder = tmp_path / policy
        folder.mkdir()
        _, summary = finished(mixed(policy, trace=True), folder)
        rows = read_records(folder / "arrivals.bin", ARRIVAL_DTYPE)
        lossless = rows["flow_class"] != FlowClass.BACKGROUND
        assert rows["lqd_drop"][~lossless].any()
        assert not rows["lqd_drop"][lossless].any()
        assert not rows["outcome"][lossless].any()
        assert summary["labelled_drops"] == rows["lqd_drop"].sum()


@pytest.mark.parametrize("policy", ["dt", "lqd", "reverie", "sonic"])
def test_a_run_goes_on_from_a_snapshot_while_senders_are_paused(policy: str, tmp_path: Path) -> None:
    document = mixed(policy, trace=True)
    whole = written(document, tmp_path / "whole", [])
    assert written(document, tmp_path / "divided", [1_700_000, 1_900_000, 2_300_000]) == whole
    assert total(whole, "lossless", "pauses") > 0


@examples(max_examples=draws(60), deadline=None)
@given(number=st.integers(0, 2**32 - 1), short=st.booleans(), moments=st.lists(st.integers(0, 4_000_000), max_size=2))
def test_drawn_networks_lose_nothing_and_go_on_from_snapshots(
    number: int, short: bool, moments: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever transports, policies and schedulers; where headroom is short, what is lost is counted."""
    document, folder = drawn_pauses(number, short_of_headroom=short), tmp_path_factory.mktemp("run")
    whole = written(document, folder / "whole", [])
    assert written(document, folder / "divided", moments) == whole
    require_conserved(whole, loses_nothing=not short)
    for switch in whole["switches"]:
        still_paused = switch["lossless"]["pauses"] - switch["lossless"]["resumes"]
        assert 0 <= still_paused <= switch["queued_bytes"]


# Closed forms.


GBPS = 10**9
SERVER_BPS, UPLINK_BPS, BUFFER_BYTES_PER_GBPS = 40 * GBPS, 10 * GBPS, 10_000


def shared_buffer(servers: int, uplinks: int) -> int:
    """Bytes of a leaf in :func:`steady_state` without headroom."""
    whole = BUFFER_BYTES_PER_GBPS * (servers * SERVER_BPS + uplinks * UPLINK_BPS) // GBPS
    return whole - servers * needed_headroom(0, SERVER_BPS) - uplinks * needed_headroom(0, UPLINK_BPS)


def steady_state(
    folder: Path, servers: int, uplinks: int, *, lossy: bool = True, **changes: Any
) -> tuple[float, float]:
    """Median bytes of lossy and of lossless packets in a leaf whose servers send far more than its uplinks carry.

    So there is a lossless queue at the port of each server, and a lossy one at each uplink. Links have no delay: a
    queue goes on as soon as it may.
    """
    pairs = [(source, servers + source) for source in range(servers)] * (2 * uplinks * lossy)
    rows = len(pairs)
    columns = {
        "start_ns": [0] * rows,
        "latest_ns": [10**9] * rows,
        "size_bytes": [20_000_000] * rows,
        "source": [source for source, _ in pairs],
        "destination": [to for _, to in pairs],
        "connection": list(range(rows)),
        "after": [[]] * rows,
        "gap_ns": [0] * rows,
    }
    usual: dict[str, Any] = {
        "topology__spines": uplinks,
        "topology__servers_per_leaf": servers,
        "topology__server_link_bps": SERVER_BPS,
        "topology__spine_link_bps": UPLINK_BPS,
        "topology__link_delay_ns": 0,
        "topology__buffer_bytes_per_port_per_gbps": BUFFER_BYTES_PER_GBPS,
        "background__load": 0.0,
        "incast__queries_per_second_per_server": 5_000.0,
        "incast__fan_in": servers,
        "incast__burst_fraction": 2.0,
        "incast__connect_ahead_ns": 0,
        "transport__name": "roce",
        "traffic_ns": 4 * MILLISECOND,
        "drain_ns": 0,
        "occupancy_interval_ns": 1000,
        "queues__count": 3,
        "queues__scheduler": "deficit_round_robin",  # packet by packet answers would wait in a queue of their own
        "queues__background": 1,
        "queues__incast": 2,
        "queues__lossless": [2],
        "pfc__xon_offset_bytes": 0,
        "messages": columns,
    }
    folder.mkdir()
    _, summary = finished(settings(**(usual | changes)), folder)
    assert total(summary, "lossless", "drops", "packets") == 0
    samples = read_records(folder / "occupancy.bin", OCCUPANCY_DTYPE)
    samples = samples[(samples["switch"] == 0) & (samples["time_ns"] > 3 * MILLISECOND)]
    lossless = samples["lossless_bytes"]
    return float(np.median(samples["occupancy_bytes"] - lossless)), float(np.median(lossless))


alphas = st.sampled_from([0.125, 0.25, 0.5, 1.0, 2.0])


@examples(max_examples=draws(60), deadline=None)
@given(
    servers=st.integers(3, 6),
    uplinks=st.integers(1, 3),
    lossy_alpha=alphas,
    lossless_alpha=alphas,
    lossy_share=st.sampled_from([0.5, 0.8]),
)
def test_queues_of_sonic_stay_at_their_closed_forms(
    servers: int,
    uplinks: int,
    lossy_alpha: float,
    lossless_alpha: float,
    lossy_share: float,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Equations 5.7 and 5.8, within two packets for each queue."""
    shared = shared_buffer(servers, uplinks)
    lossy_pool = int(lossy_share * shared)
    lossy, lossless = steady_state(
        tmp_path_factory.mktemp("run") / "run",
        servers,
        uplinks,
        policy__name="sonic",
        policy__egress_lossy_pool_bytes=lossy_pool,
        policy__ingress_alphas=[1000.0, 1000.0, lossless_alpha],
        policy__egress_alphas=[1000.0, lossy_alpha, 1000.0],
    )
    x, y = (n * alpha / (1 + n * alpha) for n, alpha in ((servers, lossless_alpha), (uplinks, lossy_alpha)))
    assert abs(lossy - lossy_pool * y) < 2 * PACKET_BYTES * uplinks
    assert abs(lossless - (shared * x - lossy_pool * x * y)) < 2 * PACKET_BYTES * servers


def test_alphas_of_sonic_at_egress_are_those_at_ingress_unless_given(tmp_path: Path) -> None:
    alphas = [4.0, 0.25, 0.5]
    once = steady_state(tmp_path / "once", 3, 1, policy__name="sonic", policy__ingress_alphas=alphas)
    both: dict[str, Any] = {"policy__ingress_alphas": alphas, "policy__egress_alphas": alphas}
    assert once == steady_state(tmp_path / "twice", 3, 1, policy__name="sonic", **both)


@examples(max_examples=draws(40), deadline=None)
@given(servers=st.integers(3, 5), uplinks=st.integers(1, 2), lossy_alpha=alphas, lossless_alpha=alphas)
def test_classes_of_reverie_share_the_buffer_as_their_alphas(
    servers: int, uplinks: int, lossy_alpha: float, lossless_alpha: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Theorems 10 and 11, within two packets for each lossless queue and three for each lossy one, which gives way to
    them; how many queues there are does not matter.

    Averages are short and the buffer is large, so that every queue counts as congested.
    """
    shared = shared_buffer(servers, uplinks)
    reverie: dict[str, Any] = {"policy__name": "reverie", "policy__alpha": lossy_alpha, "pfc__alpha": lossless_alpha}
    reverie |= {"policy__low_pass_ns": 200}
    lossy, lossless = steady_state(tmp_path_factory.mktemp("run") / "run", servers, uplinks, **reverie)
    both = 1 + lossy_alpha + lossless_alpha
    assert abs(lossless - lossless_alpha * shared / both) < 2 * PACKET_BYTES * servers
    assert abs(lossy - lossy_alpha * shared / both) < 3 * PACKET_BYTES * uplinks
    idle, slack = shared - lossy - lossless, 2 * PACKET_BYTES * (servers + uplinks)
    assert shared / both - slack < idle < shared / (1 + min(lossy_alpha, lossless_alpha)) + slack
    folder = tmp_path_factory.mktemp("run") / "run"
    no_lossy, alone = steady_state(folder, servers, uplinks, lossy=False, **reverie)
    assert no_lossy < PACKET_BYTES
    assert abs(alone - lossless_alpha * shared / (1 + lossless_alpha)) < 3 * PACKET_BYTES * servers


# What is refused.

LOSSLESS = ["scenario.queues.count=2", "scenario.queues.incast=1", "scenario.queues.lossless=[1]"]
LARGE = "scenario.topology.buffer_bytes_per_port_per_gbps=20000"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["policy=dt", LARGE, *LOSSLESS, f"scenario.pfc.headroom_bytes={needed_headroom(3000) - 7}"],
            rf"headroom_bytes = {needed_headroom(3000) - 7} is 7 bytes less than the {needed_headroom(3000)} that may "
            r"come after a pause over a link of 10000000000 bit/s and 3000 ns: raise it",
        ),
        (
            ["policy=dt", "scenario.topology.buffer_bytes_per_port_per_gbps=1200", *LOSSLESS],
            r"the headroom of a leaf takes 71352 of its 72000 bytes: raise "
            r"scenario\.topology\.buffer_bytes_per_port_per_gbps, or lower scenario\.pfc\.headroom_pool_bytes",
        ),
        (
            ["policy=dt", LARGE, *LOSSLESS, "scenario.pfc.headroom_pool_bytes=10_000_000"],
            "the headroom of a leaf takes 10000000 of its 1200000 bytes",
        ),
        (
            ["policy=dt", "scenario.queues.lossless=[1]"],
            r"lossless names queue 1, and a port has 0 to 0: take it out, or raise scenario\.queues\.count",
        ),
        (["policy=dt", "scenario.queues.lossless=[0,0]"], "lossless holds 0 twice: name every queue once"),
        (["policy=dt", "scenario.queues.lossless=[8]"], "must be at most 7"),
        (
            ["policy=dt", "scenario.pfc.makes_room=all"],
            "makes_room = all is unknown: choose from longer_queues, any_qu",
        ),
        (["policy=dt", "scenario.pfc.alpha=0"], "alpha = 0.* must be above 0"),
        (
            ["policy=sonic", "network=native", LARGE, *LOSSLESS, "policy.sonic.ingress_alphas=[1,2,3]"],
            "ingress_alphas has 3 values for the 2 queues of a port: give one for each, or ",
        ),
        (
            ["policy=sonic", "network=native", LARGE, *LOSSLESS, "policy.sonic.egress_static_bytes=[1]"],
            "egress_static_bytes has 1 values for the 2 queues of a port",
        ),
        (
            ["policy=dt", "network=ns3", LARGE, *LOSSLESS],
            "lossless names queues that may not lose, and no switch of network=ns3 pauses a sender: use network=native",
        ),
        (["policy=dt", "network=emulator", LARGE, *LOSSLESS], "no switch of network=emulator pauses a sender"),
        (
            ["policy=sonic", "network=ns3"],
            "policy sonic has to know where packets came in, which switches of network=ns3 do not: use network=native",
        ),
        (["policy=sonic", "network=emulator"], "policy sonic has to know where packets came in"),
    ],
)
def test_settings_that_no_switch_can_follow_are_refused(overrides: list[str], words: str) -> None:
    network = [] if any(one.startswith("network=") for one in overrides) else ["network=native"]
    with pytest.raises(ForetailError, match=words) as refused:
        compose_settings(EvaluateConfig, ["scenario=tiny", *network, *overrides], "overrides")
    assert str(refused.value).count(". ") == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"topology__buffer_bytes_per_port_per_gbps": 2400},
            "the headroom of a switch takes 142704 of its 144000 bytes, which leaves less than two packets: lower "
            "setting 'pfc.headroom_pool_bytes', or give the switch a larger buffer",
        ),
        ({"queues__lossless": [3]}, r"queues\.lossless"),
        ({"pfc__makes_room": "all"}, r"pfc\.makes_room"),
        (
            {"policy__name": "sonic", "policy__egress_alphas": [1.0]},
            "the policy parameter egress_alphas has 1 values for 3 queues of a port: give one for each, or none",
        ),
    ],
)
def test_the_network_refuses_them_too(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ForetailError, match=words):
        NativeNetwork(mixed(**changes))


def test_arrivals_do_not_say_where_they_came_in() -> None:
    words = "has to know where packets came in, "
    with pytest.raises(ForetailError, match=f"policies names sonic, which {words}and arrivals do not say: simulate a"):
        require_distinct_policies("policies", ["dt", "sonic"])
    with pytest.raises(ForetailError, match=f"policy 'sonic' {words}which these arrivals do not say: simulate a"):
        slotted(policy="sonic", ports=1, buffer=4, slot=np.array([0], np.int64), port=np.array([0], np.int32))


@pytest.mark.ns3
@pytest.mark.parametrize(
    ("document", "words"),
    [
        (mixed(transport__name="dctcp"), "'queues.lossless' names a queue that may not lose, and ns-3 pauses no"),
        (settings(policy__name="sonic"), "policy 'sonic' has to know where packets came in, and switches of ns-3 do"),
    ],
)
def test_the_driver_of_ns3_refuses_them_too(document: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match=words):
        run_driver(document, tmp_path)


# Cycles of buffers.


@examples(max_examples=draws(50), deadline=None)
@given(leaves=st.integers(2, 5), spines=st.integers(1, 4), servers=st.integers(1, 3))
def test_routes_up_and_down_have_no_cycle(leaves: int, spines: int, servers: int) -> None:
    """Those of a leaf-spine network: up by any spine where the leaf of the receiver is another, and down again."""
    routes = []
    for source in range(leaves * servers):
        for destination in range(leaves * servers):
            leaf, other = source // servers, destination // servers
            if leaf == other:
                routes.append([(leaf, source % servers)])
            else:
                for spine in range(spines):
                    routes.append([(leaf, source % servers), (leaves + spine, leaf), (other, servers + spine)])
    require_no_cycle(routes)
    assert find_cycle(routes) is None


@examples(max_examples=draws(50), deadline=None)
@given(switches=st.integers(2, 8), hops=st.integers(2, 4), first=st.integers(0, 7))
def test_a_ring_has_a_cycle_that_is_named(switches: int, hops: int, first: int) -> None:
    """Port 1 of each switch is that of the one before it; hosts send by port 0."""
    places = [(first + place) % switches for place in range(switches)]
    routes = [[(start, 0), *(((start + hop) % switches, 1) for hop in range(1, hops + 1))] for start in places]
    assert find_cycle(routes) == [(switch, 1) for switch in range(switches)]
    names = " waits for ".join(f"port 1 of switch {switch % switches}" for switch in range(switches + 1))
    with pytest.raises(ForetailError, match=f"can stop for ever: {names}: take one of the routes"):
        require_no_cycle(routes)
    assert find_cycle(route[:2] for route in routes) is None


@pytest.mark.parametrize("bps", [100_000_000, 10 * GBPS, 400 * GBPS])
def test_headroom_is_what_links_need(bps: int) -> None:
    """Two packets and a frame in whole nanoseconds, which are much at 400 Gbit/s."""
    scenario = compose_settings(EvaluateConfig, ["scenario=tiny", "policy=dt"], "overrides").scenario
    for delay_ns in (0, 14, 28, 3000):
        scenario.topology.link_delay_ns = delay_ns
        assert scenario.headroom_needed_bytes(bps) == needed_headroom(delay_ns, bps)
        lossless = settings(
            **STAR,
            background__load=0.0,
            incast__queries_per_second_per_server=0.0,
            topology__server_link_bps=bps,
            topology__link_delay_ns=delay_ns,
            topology__buffer_bytes_per_port_per_gbps=max(1, 4 * needed_headroom(delay_ns, bps) * GBPS // (4 * bps)),
            queues__lossless=[0],
        )
        with pytest.raises(ForetailError, match=f"headroom of a switch takes {4 * needed_headroom(delay_ns, bps)} of"):
            NativeNetwork(lossless)


def test_samples_hold_headroom_too(tmp_path: Path) -> None:
    star = star_of(5, 6000, 3000, lossless=(0, 1))
    document = star_document(star, incast_of(4, 100_000), occupancy_interval_ns=1000)
    _, summary = finished(document, tmp_path)
    samples = read_records(tmp_path / "occupancy.bin", OCCUPANCY_DTYPE)
    assert (samples["lossless_bytes"] == samples["occupancy_bytes"]).all()
    most = star.buffer_bytes + summary["switches"][0]["lossless"]["most_headroom_bytes"]
    assert star.buffer_bytes < samples["occupancy_bytes"].max() <= most
    assert np.all(samples["longest_bytes"] <= samples["occupancy_bytes"])


def test_a_run_that_stops_while_senders_are_paused_has_its_bytes_in_the_queues() -> None:
    for moment in range(1_600_000, 2_600_000, 200_000):
        network = NativeNetwork(mixed())
        network.advance(moment)
        summary = network.finish()
        require_conserved(summary)
        assert total(summary, "queued_bytes") > 0
