"""Runs of the native network in which senders are paused, and what the tests of them share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from foretail.features.records import Records
from foretail.models import zoo
from foretail.sim_bridge.native.network import NativeNetwork
from foretail.sim_bridge.ns3.messages import Message as Sent
from tests.scenarios import settings, star_of_messages
from tests.sim_bridge.slow_models.pauses import Message, Star

PACKET_BYTES, MILLISECOND, GBPS = 1440, 1_000_000, 10**9


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


def output(folder: Path, summary: Mapping[str, Any]) -> dict[str, Any]:
    """All that a run writes, and what it says, but for times of the machine."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".bin"}
    return files | {name: value for name, value in summary.items() if not name.endswith("_seconds")}


def written(
    document: Mapping[str, Any], folder: Path, moments: Sequence[int], further: int = 300_000
) -> dict[str, Any]:
    """Files and summary of a run that goes on for a while at some moments, and comes back."""
    folder.mkdir()
    network = NativeNetwork(document, folder)
    for moment in moments:
        network.advance(moment)
        snapshot = network.snapshot()
        network.advance(moment + further)
        network.restore(snapshot)
    network.advance()
    return output(folder, network.finish())


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
        "policy__rules": zoo.numbers(zoo.names()[:2]),
        "queues__count": 3,
        "queues__incast": 1,
        "queues__control": 2,
        "queues__lossless": [1, 2],
    }
    return settings(**(usual | changes))


def star_document(star: Star, messages: Sequence[Message], **changes: Any) -> dict[str, Any]:
    """The driver's document of what the slow model runs; the buffer must be a multiple of what ports bring."""
    whole, port_gbps = star.buffer_bytes + star.pool_bytes, star.hosts * star.bps / 10**9
    assert whole % port_gbps == 0
    never = 10**12
    usual: dict[str, Any] = {
        "topology__server_link_bps": star.bps,
        "topology__link_delay_ns": star.delay_ns,
        "topology__buffer_bytes_per_port_per_gbps": int(whole / port_gbps),
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
    }
    listed = [
        Sent(message.start_ns, 10**9, message.size_bytes, message.source, message.destination, number)
        for number, message in enumerate(messages)
    ]
    return star_of_messages(listed, star.hosts, **(usual | changes))


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
        alpha=draw(st.sampled_from([0.001, 0.0625, 0.5, 1.0, 4.0, 64.0])),
        xon_bytes=draw(st.sampled_from([0, 0, 3000])),
        xon_offset_bytes=draw(st.sampled_from([0, 1440, 2880, 10_000, 10**6])),
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


def incast_of(senders: int, size_bytes: int) -> list[Message]:
    return [Message(0, source, 0, size_bytes) for source in range(1, senders + 1)]
