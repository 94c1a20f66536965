"""Traces of switches that pause senders: a replay decides every packet as the run did. Ten seconds of CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Outcome, read_records
from foretail.sim_bridge._native import Replay
from foretail.sim_bridge.native.driver import collect_dataset
from foretail.sim_bridge.native.network import NativeNetwork
from foretail.sim_bridge.open_loop.push_outs import push_outs
from foretail.sim_bridge.open_loop.replay import compare_replays, feed, replay_over
from foretail.sim_bridge.policy_settings import IN_INTERVALS, NetworkParameters
from tests.examples import draws
from tests.sim_bridge.native.drawn_settings import drawn_pauses
from tests.sim_bridge.packets.paused_runs import mixed


def collected(document: dict[str, Any], path: Path) -> Dataset:
    """The dataset of a run."""
    collect_dataset(document, path, scenario=document)
    return Dataset.open(path)


def recorded(document: dict[str, Any], folder: Path) -> Any:
    """The records of the same run."""
    folder.mkdir()
    network = NativeNetwork(document, folder)
    network.advance()
    network.finish()
    return read_records(folder / "arrivals.bin", ARRIVAL_DTYPE)


def parameters_of(document: dict[str, Any]) -> NetworkParameters:
    """The parameters of the run's policy."""
    names = NetworkParameters.__dataclass_fields__
    return NetworkParameters(**{name: value for name, value in document["policy"].items() if name in names})


@examples(max_examples=draws(40), deadline=None)
@given(number=st.integers(0, 2**32 - 1), chunk=st.integers(50, 5000))
def test_a_replay_decides_as_the_run(number: int, chunk: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    document = drawn_pauses(number) | {"trace": True}
    document["policy"]["flip_probability"] = 0.0  # a replay inverts other predictions
    assume(document["policy"]["name"] not in IN_INTERVALS)  # a replay does not know the round trip of the network
    folder = tmp_path_factory.mktemp("run")
    records = recorded(document, folder / "run")
    dataset = collected(document, folder / "dataset")
    policy = document["policy"]["name"]
    replay = replay_over(policy, dataset, parameters=parameters_of(document))
    outcomes = [feed(replay, arrivals)["outcome"] for arrivals in dataset.arrivals(chunk)]
    outcomes.append(np.zeros(0, np.uint8))  # there may be no arrival
    decided = np.where(records["outcome"] == Outcome.PUSHED_OUT, Outcome.ACCEPTED, records["outcome"])
    found = np.concatenate(outcomes)
    assert np.array_equal(np.where(found == Outcome.PUSHED_OUT, Outcome.ACCEPTED, found), decided)
    if policy == "lqd":
        lossy = records["flow_class"] != FlowClass.CONTROL
        assert np.array_equal(records["lqd_drop"][lossy] != 0, records["outcome"][lossy] != Outcome.ACCEPTED)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A run under LQD whose answers may not be lost."""
    return collected(mixed("lqd", trace=True), tmp_path_factory.mktemp("collected") / "dataset")


def test_a_dataset_says_which_queues_may_not_lose_and_who_was_paused(dataset: Dataset) -> None:
    lossless = dataset.manifest.lossless
    assert lossless is not None
    assert lossless.queues == (1, 2)
    assert dataset.manifest.kind == "lossless_trace"
    pauses = dataset.pauses()
    assert len(pauses) > 10
    assert (np.diff(pauses["time_ns"]) >= 0).all()
    for where in np.unique(pauses[["switch", "port", "priority"]]):
        own = pauses[pauses[["switch", "port", "priority"]] == where]["paused"]
        assert np.array_equal(own, np.arange(1, len(own) + 1) % 2), "a queue stops and goes on in turn"
    frame = dataset.frame(["flow_class", "lqd_drop", "ingress", "port"])
    assert not frame["lqd_drop"][frame["flow_class"] == "incast"].any()
    assert frame["lqd_drop"].any()
    assert (frame["ingress"] != frame["port"]).mean() > 0.9


def test_other_policies_are_compared_on_it_and_lose_no_lossless_packet(dataset: Dataset) -> None:
    drops = np.concatenate([batch.column(0).to_numpy(zero_copy_only=False) for batch in dataset.rows(["lqd_drop"])])
    compared = compare_replays(dataset, ["dt", "cs", "reverie", "sonic"], drops)
    sent = {name: one.packets for name, one in compared.transmitted.items()}
    assert set(sent) == {"dt", "cs", "reverie", "sonic", "lqd"}
    assert sent["lqd"] == compared.offered.packets - drops.sum()
    lossless = int((dataset.frame(["flow_class"])["flow_class"] == "incast").sum())
    assert all(lossless <= packets <= compared.offered.packets for packets in sent.values())
    assert compared.scores.followlqd_bytes <= compared.scores.lqd_bytes


def test_what_knows_no_pauses_refuses_it(tmp_path: Path) -> None:
    everything = mixed("lqd", trace=True, queues__count=1, queues__incast=0, queues__control=0, queues__lossless=[0])
    with pytest.raises(ForetailError, match="knows no queues that may not lose"):
        push_outs(collected(everything, tmp_path / "dataset"))


PAUSES = ([0], 1.0, 0, 0, "longer_queues", [100])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (([1], 1.0, 0, 0, "longer_queues", [100]), "lossless queue is 1, outside 0 to 0"),
        (([0], 0.0, 0, 0, "longer_queues", [100]), "alpha of pauses must be a number above 0"),
        (([0], 1.0, 0, 0, "shorter_queues", [100]), "unknown makes_room 'shorter_queues'"),
        (([0], 1.0, 0, 0, "longer_queues", []), "headroom is for other switches"),
        (([0], 1.0, 0, 0, "longer_queues", [10_000]), "headroom of a switch"),
    ],
)
def test_a_replay_refuses_pauses_of_other_switches(given: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Replay("lqd", [(10_000, [10**9] * 2)], wire_overhead_bytes=0, pauses=given)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("time_ns", -1, "time"),
        ("switch_index", 1, "unknown switch"),
        ("port", 2, "port 2"),
        ("priority", 1, "unknown queue"),
    ],
)
def test_a_replay_refuses_a_pause_that_is_none(column: str, value: int, words: str) -> None:
    dtypes = {"time_ns": "i8", "switch_index": "i2", "port": "i2", "priority": "u1", "paused": "u1"}
    columns = {name: np.zeros(1, dtype) for name, dtype in dtypes.items()}
    columns[column][0] = value
    replay = Replay("lqd", [(10_000, [10**9] * 2)], wire_overhead_bytes=0, pauses=PAUSES)
    with pytest.raises(ValueError, match=words):
        replay.expect_pauses(**columns)
    with pytest.raises(ValueError, match="differ in length"):
        replay.expect_pauses(**(columns | {"paused": np.zeros(2, "u1")}))
