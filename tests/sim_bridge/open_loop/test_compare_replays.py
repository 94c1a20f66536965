"""Many policies over one dataset, in bytes, against the slow model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.features.dataset.schema import SwitchGeometry
from foretail.features.records import FlowClass
from foretail.sim_bridge.open_loop.replay import Sent, compare_replays, replay_scores
from foretail.sim_bridge.policies import ASKING, OF_ARRIVALS
from foretail.sim_bridge.policy_settings import NetworkParameters
from tests.sim_bridge.slow_models.bytes import Geometry, Packet, run_bytes
from tests.sim_bridge.slow_models.lqd import Rules, Settings
from tests.traces import RUN, make_arrivals, write_trace

GEOMETRY = Geometry(6000, (10**9,) * 4, overhead=2)


def test_policies_send_what_the_slow_model_does(tmp_path: Path) -> None:
    arrivals = make_arrivals(500, seed=7)
    records = arrivals.records
    records["port"] %= 4
    dataset = write_trace(
        tmp_path / "trace",
        arrivals,
        switches=(SwitchGeometry(4, GEOMETRY.buffer, GEOMETRY.rates_bps),) * 2,
        scenario={"topology": {"wire_overhead_bytes": GEOMETRY.overhead}},
    )
    is_data = records["flow_class"] != FlowClass.CONTROL
    told = np.zeros(len(records), np.uint8)
    told[is_data] = np.random.default_rng(1).random(np.count_nonzero(is_data)) < 0.3
    predicted = told[is_data].astype(np.bool_)
    parts: list[float] = []
    found = compare_replays(
        dataset,
        list(OF_ARRIVALS),
        predicted,
        parameters=NetworkParameters(
            alpha=0.25, first_rtt_alpha=8.0, spare_bandwidth=0.5, spares_first_rtt=0, answers_needed=1
        ),
        threads=3,
        report=parts.append,
    )
    assert list(found.transmitted) == list(OF_ARRIVALS)
    assert parts == [1.0]
    assert found.offered == Sent(len(predicted), int(records["size_bytes"][is_data].sum()))
    settings = Settings(
        alpha=(0.25,),
        first_rtt_alpha=8.0,
        rtt=1 << RUN.average_shift,
        low_pass=1 << 19,
        spare_bandwidth=0.5,
        bucket=NetworkParameters.bucket_bytes,
        spares_first_rtt=0,
        drop_budget=NetworkParameters.drop_budget_bytes,
        answers_needed=1,
        average_shift=RUN.average_shift,
    )
    for policy, sent in found.transmitted.items():
        packets_sent = bytes_sent = 0
        for switch in (0, 1):
            mine = np.flatnonzero(records["switch"] == switch)
            packets = [
                Packet(
                    k,
                    int(records["time_ns"][i]),
                    int(records["port"][i]),
                    int(records["size_bytes"][i]),
                    bool(is_data[i]),
                    bool(records["first_rtt"][i]),
                )
                for k, i in enumerate(mine)
            ]
            predictions = told[mine].tolist() if policy in ASKING else None
            rules = Rules(RUN.rules.counting, RUN.rules.tie, RUN.rules.victim)
            slow = run_bytes(policy, GEOMETRY, packets, predictions, rules, settings, RUN.cell_bytes)
            packets_sent += slow.transmitted_packets
            bytes_sent += slow.transmitted_bytes
        assert sent == Sent(packets_sent, bytes_sent), policy
    assert len({sent.bytes for sent in found.transmitted.values()}) > 5
    assert found.scores == replay_scores(dataset, predicted)
    assert found.scores.lqd_bytes == found.transmitted["lqd"].bytes
    assert found.scores.accept_bytes == found.transmitted["followlqd"].bytes
    assert found.scores.sent_bytes == found.transmitted["credence"].bytes
    with pytest.raises(ForetailError, match=r"1 predictions do not fit"):
        compare_replays(dataset, list(OF_ARRIVALS), predicted[:1])
