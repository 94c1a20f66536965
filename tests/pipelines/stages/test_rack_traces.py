"""Traces of racks with circuits: collected, trained on, served by Credence. Costs the driver and some seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.core.errors import ForetailError
from foretail.export.c.target import C
from foretail.export.target import export
from foretail.features.catalog import FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.features.records import ARRIVAL_DTYPE, Outcome, Records, read_records
from foretail.gym.traffic import FromDatasets
from foretail.models.ensemble.ensemble import Ensemble
from foretail.pipelines.data.racks import traced_racks
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.collect import CollectResult, collect
from foretail.pipelines.stages.train import train
from foretail.sim_bridge.ns3.driver import run_driver
from foretail.sim_bridge.open_loop.replay import compare_replays
from foretail.sim_bridge.packets.simulation import PacketRun
from tests.composed import composed

pytestmark = [pytest.mark.slow, pytest.mark.ns3]

NAMES = ("queue", "occupancy", "until_circuit")
RACKS = (
    *("source=racks", "racks.fabric.racks=4", "racks.fabric.hosts_per_rack=2", "racks.destination_racks=[2,3]"),
    *("racks.flows=4", "racks.shared_packets=32", "racks.weeks=60", "seeds=[1,2,3]"),
)
LONGEST_NS = 3 * 200_000 - 180_000  # from the end of a day to the next with the same circuit


def config_of(folder: Path, *overrides: str) -> CollectConfig:
    given = (*RACKS, f"store_dir={folder / 'store'}", *overrides)
    return typed(composed("collect", *given), CollectConfig, given)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("racks")


@pytest.fixture(scope="module")
def collected(folder: Path) -> CollectResult:
    return collect(config_of(folder), folder)


@pytest.fixture(scope="module")
def model(collected: CollectResult, folder: Path) -> Ensemble:
    given = (
        f"datasets=[{','.join(str(run.path) for run in collected.runs)}]",
        f"features.names=[{','.join(NAMES)}]",
        *("split.train=[1]", "split.validation=[2]", "split.test=[3]", "tracking=off", f"store_dir={folder / 'store'}"),
    )
    train(typed(composed("train", *given), TrainConfig, given), folder / "train")
    return Ensemble.load(folder / "train" / "ensemble.json")


def test_a_trace_of_racks_has_the_drops_of_lqd_and_the_time_to_the_next_circuit(
    collected: CollectResult, folder: Path
) -> None:
    again = collect(config_of(folder), folder)
    assert [run.reused for run in again.runs] == [True] * 3
    assert len({run.content_sha256 for run in collected.runs}) == 3
    for run in collected.runs:
        counters = run.counters
        assert counters["threshold_deficits"] == 0
        assert counters["data_drops.buffer_full"] + counters["data_drops.pushed_out"] == run.drops > 100
        dataset = Dataset.open(run.path)
        assert dataset.manifest.scenario["racks_with_hosts"] == [0, 1, 2]
        assert not (run.path / "run" / "etalon.log").exists()
        until = dataset.frame(["until_circuit"])["until_circuit"]
        assert until.min() == 0
        assert 0.9 * LONGEST_NS < 1024 * until.max() <= LONGEST_NS


def test_ns3_collects_the_same_traces(collected: CollectResult, folder: Path) -> None:
    again = collect(config_of(folder, "network=ns3", "seeds=[2]"), folder)
    assert again.runs[0].content_sha256 == collected.runs[1].content_sha256


def test_a_replay_of_racks_sends_what_their_circuits_took(collected: CollectResult) -> None:
    dataset = Dataset.open(collected.runs[0].path)
    run = PacketRun.open(dataset.path / "run")
    switches = run.summary["switches"]
    compared = compare_replays(dataset, ("lqd", "dt", "cs"), dataset.frame(["lqd_drop"])["lqd_drop"].to_numpy(bool))
    lost = sum(drop["packets"] for node in switches for drop in node["data_drops"].values())
    arrived = sum(node["data_in"]["packets"] for node in switches)
    assert compared.transmitted["lqd"].packets == arrived - lost
    assert 0 < compared.transmitted["dt"].packets < arrived
    assert compared.scores.sent_bytes is not None
    assert compared.scores.sent_bytes > 0.99 * compared.scores.lqd_bytes  # it is told the labels


def test_credence_decides_as_the_exported_forest_says(model: Ensemble, folder: Path, tmp_path: Path) -> None:
    exported = export(model, C(), folder / "export")
    document = traced_racks(config_of(folder).racks, seed=9)
    document["racks"]["buffer"] |= {"policy": "credence", "library": str(exported.file(".so"))}
    run = run_driver(document, tmp_path)
    trace: Records = read_records(tmp_path / "arrivals.bin", ARRIVAL_DTYPE)
    asked = trace[trace["asked"] == 1]
    assert len(asked) == sum(node["asked"] for node in run.summary["switches"]) > 1000
    columns = [[one.name for one in FEATURES].index(name) for name in NAMES]
    tau = exported.ensemble.default_tau
    assert tau is not None
    score = exported.ensemble.score(asked["features"][:, columns])
    np.testing.assert_array_equal(asked["score"], score)
    predicted = asked["outcome"] == Outcome.PREDICTED
    np.testing.assert_array_equal(predicted, score > tau)
    assert 0 < np.count_nonzero(predicted) < len(asked)


def test_what_has_no_circuits_refuses_a_trace_of_racks(collected: CollectResult) -> None:
    with pytest.raises(ForetailError, match="an environment knows no circuits"):
        _ = FromDatasets([collected.runs[0].path]).episodes


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("racks.start_within_ns=0", "every seed has the same packets"),
        ("racks.destination_racks=[]", "racks.destination_racks is empty"),
        ("racks.destination_racks=[2,2]", "holds 2 twice"),
        ("racks.source_rack=2", "flows inside a rack cross no VOQ"),
        ("racks.policy=credence", "racks.policy = credence is unknown"),
        ("scenario=tiny", "scenario means nothing to source=racks"),
        ("log=x", "log is for imports"),
        ("network=emulator", "network=emulator makes no traces of racks: use network=native or network=ns3"),
        ("ns3_prefix=/usr", "ns3_prefix names an ns-3, which network=native does not use"),
    ],
)
def test_settings_that_make_no_trace_are_refused(folder: Path, override: str, complaint: str) -> None:
    with pytest.raises(ForetailError, match=complaint):
        config_of(folder, override)
