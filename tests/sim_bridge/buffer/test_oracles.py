"""Whose decisions are the labels: LQD with victims that go by tags, and Occamy. A minute, most of it in ns-3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.packet_stages import CollectConfig
from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Outcome, read_records
from foretail.gym.traffic import FromDatasets
from foretail.pipelines.settings.validation import typed, validate
from foretail.sim_bridge._native import Replay
from foretail.sim_bridge.native.driver import write_trace
from foretail.sim_bridge.ns3.driver import run_driver
from foretail.sim_bridge.open_loop.push_outs import push_outs
from foretail.sim_bridge.open_loop.replay import feed, replay_of
from tests.composed import composed
from tests.scenarios import settings

RULES: list[dict[str, Any]] = [
    {"victim": "spare_first_rtt"},
    {"victim": "most_left"},
    {"victim": "most_left", "order": "any_queue"},
    {"victim": "most_left", "counting": "uncounted"},
    {"oracle": "occamy", "oracle_alpha": 8.0},
]


@pytest.mark.parametrize(
    ("rules", "ports", "lost"),
    [
        ({"victim": "tail"}, [0, 0, 0, 0], 3),
        ({"victim": "spare_first_rtt"}, [0, 0, 0, 0], 1),
        ({"victim": "most_left"}, [0, 0, 0, 0], 2),
        ({"victim": "most_left"}, [0, 1, 1, 0], 3),
        ({"victim": "most_left", "order": "any_queue"}, [0, 1, 1, 0], 2),
        ({"victim": "spare_first_rtt", "order": "any_queue"}, [0, 1, 0, 1], 2),
    ],
)
def test_who_goes_when_the_buffer_is_full(rules: dict[str, str], ports: list[int], lost: int) -> None:
    """Four packets come at once, and three fit. What a port sends is safe: its first. Of equal queues port 0 loses."""
    chosen: dict[str, Any] = {"counting": "counted", "tie": "lowest_port", **rules}
    replay = Replay("lqd", [(30, [10**9] * 2)], wire_overhead_bytes=0, **chosen)
    seen = replay.feed(
        np.zeros(4, np.int64),
        np.zeros(4, np.int16),
        np.array(ports, np.int16),
        np.full(4, 10, np.int32),
        np.ones(4, np.uint8),
        first_rtt=np.array([0, 0, 1 if ports == [0, 0, 0, 0] else 0, 1], np.uint8),
        message_left=np.array([5, 2, 7, 4], np.uint8),
    )
    assert np.flatnonzero(seen["outcome"]).tolist() == [lost]


@pytest.mark.ns3
@pytest.mark.parametrize("rules", RULES, ids=lambda rules: "-".join(map(str, rules.values())))
def test_labels_are_the_fates_under_the_oracle(tmp_path: Path, rules: dict[str, Any]) -> None:
    """In ns-3 under the oracle itself; and a replay of the trace finds the same fates, labels and thresholds."""
    policy = "occamy" if "oracle" in rules else "lqd"
    chosen = {f"rules__{name}": value for name, value in rules.items()}
    tight = {"topology__buffer_bytes_per_port_per_gbps": 640, "incast__burst_fraction": 0.9}
    document = settings(trace=True, policy__name=policy, policy__alpha=8.0, **chosen, **tight)
    (tmp_path / "run").mkdir()
    run = run_driver(document, tmp_path / "run")
    records = read_records(run.folder / "arrivals.bin", ARRIVAL_DTYPE)
    is_data = records["flow_class"] != FlowClass.CONTROL
    lost = records["outcome"][is_data] != Outcome.ACCEPTED
    np.testing.assert_array_equal(lost, records["lqd_drop"][is_data] == 1)
    assert np.count_nonzero(lost) > 20

    write_trace(run, document, tmp_path / "dataset", scenario=document)
    dataset = Dataset.open(tmp_path / "dataset")
    seen = feed(replay_of("followlqd", dataset.manifest, features=True), records)
    np.testing.assert_array_equal(seen["lqd_drop"][is_data], records["lqd_drop"][is_data])
    if policy == "lqd":
        np.testing.assert_array_equal(push_outs(dataset).lqd_drop, lost)
        assert not push_outs(dataset, "tail").lqd_drop[lost].all()
    else:
        with pytest.raises(ForetailError, match="a record of push-outs knows no labels but those of LQD"):
            push_outs(dataset)
        with pytest.raises(ForetailError, match="an environment knows no labels but those of LQD"):
            FromDatasets([dataset.path]).episode(0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ("scenario.rules.order=any_queue", "any_queue compares what senders say of packets: set scenario.rules.victim"),
        ("scenario.rules.order=lower_classes_first", "needs classes, and a port has one queue"),
        ("scenario.rules.oracle=nobody", "scenario.rules.oracle = nobody is unknown"),
        ("scenario.rules.oracle_alpha=0", "oracle_alpha = 0.* above 0"),
        ("policy.lqd.order=any_queue", "any_queue compares what senders say of packets: set policy.lqd.victim"),
    ],
)
def test_an_oracle_that_cannot_be_gets_one_sentence(changes: str, sentence: str) -> None:
    with pytest.raises(ForetailError, match=sentence) as refused:
        validate(typed(composed("collect", "scenario=tiny", "policy=lqd", *changes.split()), CollectConfig))
    assert "\n" not in str(refused.value)
