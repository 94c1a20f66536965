"""What lossy and lossless classes take of a shared buffer: section 5.1 of Addanki's thesis, and its theorems 10 and 11
on Reverie. Costs ten seconds of CPU time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from foretail.features.records import OCCUPANCY_DTYPE, read_records
from tests.examples import draws
from tests.scenarios import settings
from tests.sim_bridge.packets.paused_runs import (
    GBPS,
    MILLISECOND,
    PACKET_BYTES,
    finished,
    needed_headroom,
    total,
)

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
