"""Queues that may not lose a packet: what is paused, for how long, and what that costs. Takes half a minute of CPU.

The slow model is `slow_models/pauses.py`.
"""

from __future__ import annotations

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
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Records, read_records
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge._native import slotted
from foretail.sim_bridge.native.network import NativeNetwork
from foretail.sim_bridge.ns3.messages import Message, columns
from foretail.sim_bridge.policies import KNOW_PRIORITIES, MAKES_ROOM, SEE_INGRESS
from tests.examples import draws
from tests.refusals import refusing
from tests.scenarios import STAR, settings
from tests.sim_bridge.native.drawn_settings import drawn_pauses
from tests.sim_bridge.packets.paused_runs import (
    GBPS,
    MILLISECOND,
    PACKET_BYTES,
    finished,
    incast_of,
    mixed,
    needed_headroom,
    require_conserved,
    some_messages,
    star_document,
    stars,
    total,
    written,
)
from tests.sim_bridge.slow_models.pauses import SlowPauses, Star


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
    messages = [Message(0, 10**9, size, source, 4, source) for source in (0, 1, 2, 8)]
    victim = Message(100_000, 10**9, victim_size, 3, 5, 3)
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
    flows, summary = finished(settings(**quiet, queues__lossless=[0, 1], messages=columns([*messages, victim])))
    require_conserved(summary)
    leaf, *others, spine = (switch["lossless"] for switch in summary["switches"])
    assert spine["pauses"] == spine["resumes"] > 0  # of leaves
    assert leaf["pauses"] == leaf["resumes"] > 0  # of servers, when the spine has paused the leaf
    assert others[0]["pauses"] == 0  # its servers get no more than the spine's link brings
    (undisturbed,), _ = finished(settings(**quiet, queues__lossless=[0, 1], messages=columns([victim])))
    assert flows["fct_ns"][4] > 3 * undisturbed["fct_ns"]
    assert flows["fct_ns"][4] > 100_000


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


def test_a_run_that_stops_while_senders_are_paused_has_its_bytes_in_the_queues() -> None:
    for moment in range(1_600_000, 2_600_000, 200_000):
        network = NativeNetwork(mixed())
        network.advance(moment)
        summary = network.finish()
        require_conserved(summary)
        assert total(summary, "queued_bytes") > 0


test_the_network_refuses_them_too = refusing(
    (
        lambda: NativeNetwork(mixed(topology__buffer_bytes_per_port_per_gbps=2400)),
        "the headroom of a switch takes 142704 of its 144000 bytes, which leaves less than two packets: lower "
        "setting 'pfc.headroom_pool_bytes', or give the switch a larger buffer",
    ),
    (lambda: NativeNetwork(mixed(queues__lossless=[3])), r"queues\.lossless"),
    (lambda: NativeNetwork(mixed(pfc__makes_room="all")), r"pfc\.makes_room"),
    (
        lambda: NativeNetwork(mixed("sonic", policy__egress_alphas=[1.0])),
        "the policy parameter egress_alphas has 1 values for 3 queues of a port: give one for each, or none",
    ),
)


def test_arrivals_do_not_say_where_they_came_in() -> None:
    words = "has to know where packets came in, "
    with pytest.raises(ForetailError, match=f"policies names sonic, which {words}and arrivals do not say: simulate a"):
        require_distinct_policies("policies", ["dt", "sonic"])
    with pytest.raises(ForetailError, match=f"policy 'sonic' {words}which these arrivals do not say: simulate a"):
        slotted(policy="sonic", ports=1, buffer=4, slot=np.array([0], np.int64), port=np.array([0], np.int32))


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
