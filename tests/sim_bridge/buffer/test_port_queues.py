"""Several queues per port: who goes when the buffer is full, and the ns-3 switch against its own replay."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES, FLOW_FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Outcome, Records, read_records
from foretail.gym.traffic import FromDatasets
from foretail.sim_bridge._native import Replay
from foretail.sim_bridge.native.driver import write_trace
from foretail.sim_bridge.ns3.driver import DriverRun, run_driver
from foretail.sim_bridge.open_loop.replay import compare_replays, replay_of
from tests.examples import some_by_day
from tests.scenarios import MILLISECOND, settings

SCHEDULERS = ("round_robin", "strict", "deficit_round_robin")
ORDERS = ("longest_queue", "lower_classes_first")


# The ns-3 switch: incast before background, control packets with the incast.
CLASSES = {"queues__count": 3, "queues__background": 2, "queues__incast": 1, "traffic_ns": 2 * MILLISECOND}
TIGHT = {"topology__buffer_bytes_per_port_per_gbps": 2000}


def arrivals_of(run: DriverRun) -> Records:
    return read_records(run.folder / "arrivals.bin", ARRIVAL_DTYPE)


@pytest.mark.ns3
@pytest.mark.parametrize(
    ("scheduler", "order"),
    some_by_day(product(SCHEDULERS, ORDERS), lambda one: (one[0] == "strict") == (one[1] == "longest_queue")),
)
def test_labels_are_the_fates_under_lqd(tmp_path: Path, scheduler: str, order: str) -> None:
    chosen = {"queues__scheduler": scheduler, "rules__order": order}
    run = run_driver(settings(trace=True, **CLASSES, **TIGHT, **chosen), tmp_path)
    assert [node["threshold_deficits"] for node in run.summary["switches"]] == [0] * 4
    records = arrivals_of(run)
    data = records[records["flow_class"] != FlowClass.CONTROL]
    lost = np.isin(data["outcome"], [Outcome.BUFFER_FULL, Outcome.PUSHED_OUT])
    np.testing.assert_array_equal(lost, data["lqd_drop"] == 1)
    assert np.count_nonzero(lost) > 100


def traced(tmp_path: Path, **changes: Any) -> tuple[Dataset, Records]:
    """Return the dataset of a run, and all that the driver wrote of its arrivals."""
    document = settings(trace=True, **CLASSES | TIGHT | changes)
    (tmp_path / "run").mkdir()
    run = run_driver(document, tmp_path / "run")
    write_trace(run, document, tmp_path / "dataset", scenario=document)
    return Dataset.open(tmp_path / "dataset"), arrivals_of(run)


REPLAYED = ("cs", "cp", "dt", "harmonic", "occamy", "lqd", "followlqd", "credence", "guarded")


@pytest.mark.ns3
@pytest.mark.parametrize("policy", some_by_day(REPLAYED, lambda policy: policy in ("occamy", "lqd", "credence")))
def test_a_replay_decides_as_the_driver_did(tmp_path: Path, policy: str) -> None:
    """Where decisions do not depend on the base round trip, which a trace does not tell."""
    order, scheduler = ORDERS[policy > "g"], SCHEDULERS[len(policy) % 3]
    dataset, records = traced(tmp_path, policy__name=policy, queues__scheduler=scheduler, rules__order=order)
    seen = replay_of(policy, dataset.manifest, features=True).feed(records)
    data = records["flow_class"] != FlowClass.CONTROL
    np.testing.assert_array_equal(seen["outcome"], records["outcome"])
    counted = len(FEATURES) - len(FLOW_FEATURES)  # a replay counts no flows
    np.testing.assert_array_equal(seen["features"][data][:, :counted], records["features"][data][:, :counted])
    assert len(set(records["outcome"].tolist())) > 1


@pytest.mark.ns3
def test_what_knows_one_queue_per_port_refuses_a_run_with_several(tmp_path: Path) -> None:
    dataset, _ = traced(tmp_path)
    accepted = np.zeros(dataset.manifest.rows, np.bool_)
    assert compare_replays(dataset, ("lqd",), accepted).transmitted["lqd"] > 1000
    with pytest.raises(ForetailError, match="one queue per port is what credence_artifact can have, and the run has 3"):
        compare_replays(dataset, ("credence_artifact",), accepted)
    with pytest.raises(ForetailError, match="one queue per port is what an environment can have"):
        FromDatasets([dataset.path]).episode(0)


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
@pytest.mark.parametrize("rules", some_by_day(RULES, lambda rules: rules in RULES[::2]), ids=str)
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
    seen = replay_of("followlqd", dataset.manifest, features=True).feed(records)
    np.testing.assert_array_equal(seen["lqd_drop"][is_data], records["lqd_drop"][is_data])
    if policy == "occamy":
        with pytest.raises(ForetailError, match="an environment knows no labels but those of LQD"):
            FromDatasets([dataset.path]).episode(0)
