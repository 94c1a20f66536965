"""``foretail collect source=...`` and what can be done with the datasets, as a user does it."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.core.errors import ForetailError
from foretail.core.reading import telling
from foretail.export.c.target import C
from foretail.export.target import export
from foretail.features.catalog import FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.features.records import ARRIVAL_DTYPE, Outcome, Records, read_records
from foretail.gym.traffic import FromDatasets
from foretail.models.ensemble.ensemble import Ensemble
from foretail.pipelines.data.collecting import CollectedRun, traced_racks
from foretail.pipelines.stages.collect import CollectResult, collect
from foretail.pipelines.stages.train import train
from foretail.sim_bridge.arrivals.workloads import Incast
from foretail.sim_bridge.imports.credence_artifact import COLUMNS
from foretail.sim_bridge.imports.pcap.synthetic import write_switch
from foretail.sim_bridge.ns3.driver import run_driver
from foretail.sim_bridge.open_loop.replay import compare_replays
from foretail.sim_bridge.open_loop.slotted import labelled
from foretail.sim_bridge.packets.simulation import PacketRun
from tests.composed import SIDES, foretail, stage_settings
from tests.etalon_logs import emulate, write_etalon_log

pytestmark = pytest.mark.slow


def result_of(folder: Path, stage: str) -> dict[str, Any]:
    (path,) = (folder / "outputs" / stage).rglob("result.json")
    document: dict[str, Any] = json.loads(path.read_text())
    return document


@pytest.fixture(scope="module")
def etalon_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "click.txt"
    write_etalon_log(path, *emulate(racks=4, weeks=60, load=0.95, voq_packets=50, seed=2))
    return path


@pytest.fixture(scope="module")
def artifact_logs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("artifact")
    paths = []
    for number in (1, 2, 3):
        draw = np.random.default_rng(number)
        occupancy = draw.integers(0, 1_000_000, 4000)
        queue = (occupancy * draw.random(4000)).astype(np.int64)
        drop = (occupancy > 800_000) & (queue > 400_000) & (draw.random(4000) < 0.9)
        rows = np.stack([queue, queue // 2, occupancy, occupancy // 2, drop], axis=1)
        paths.append(folder / f"{number}.csv")
        np.savetxt(paths[-1], rows, "%d", header=" ".join(COLUMNS), comments="")
    return paths


SWITCH = ["source=pcap", "pcap.ports=4", "pcap.buffer_bytes=100_000", "pcap.port_rates_bps=[10_000_000_000]"]


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    write_switch(folder, ports=4, packets=6000, seed=1)
    return folder


def test_what_was_left_out_of_a_capture_is_told(tmp_path: Path) -> None:
    write_switch(tmp_path, ports=4, packets=1000, seed=1)
    capture = bytearray((tmp_path / "ingress.pcap").read_bytes())
    for number in range(1000):
        place = 24 + number * (16 + 96) + 12
        capture[place : place + 4] = struct.pack("<I", 1004)  # with a check sequence that the file does not declare
    capture[24 + 16 + 16 : 24 + 16 + 18] = struct.pack(">H", 16)
    (tmp_path / "ingress.pcap").write_bytes(capture)
    given = (f"log={tmp_path / 'ingress.pcap'}", f"pcap.table={tmp_path / 'ports.csv'}")
    with telling() as readings:
        collect(config(tmp_path, *SWITCH, *given), tmp_path)
    assert readings[0].sentence() == (
        f"{tmp_path / 'ingress.pcap'} has 1 frames whose IP header contradicts itself, bytes behind 999 packets, "
        "such as an undeclared check sequence, which Foretail does not use"
    )


@pytest.mark.nightly
def test_captures_are_imported_and_train(tmp_path: Path, captures: Path) -> None:
    egress = ",".join(f"{{file: {captures / f'port{port}.pcap'}, port: {port}}}" for port in range(4))
    ingress = f"log={captures / 'ingress.pcap'}"
    done = foretail(tmp_path, "collect", *SWITCH, ingress, f"pcap.table={captures / 'ports.csv'}")
    assert (done.returncode, "open-loop replay" in done.stdout) == (0, True), done.stderr
    (run,) = result_of(tmp_path, "collect")["runs"]
    assert run["drops"] == run["counters"]["data_drops.buffer_full"] + run["counters"]["data_drops.pushed_out"] > 100
    assert (run["imported"]["survey"]["packets"], run["imported"]["survey"]["active_ports"]) == (6000, 4)
    manifest = Dataset.open(Path(run["path"])).manifest
    assert manifest.switches[0].port_rates_bps == (10**10,) * 4
    assert (manifest.scenario["open_loop"], manifest.scenario["drops_visible"]) == (True, True)
    given = [f"datasets=[{run['path']}]", "split=by_time", "split.gap_ns=100_000", "allow_constant_features=true"]
    done = foretail(tmp_path, "train", *given, "tracking=off")
    assert done.returncode == 0, done.stderr

    again = collect(config(tmp_path, *SWITCH, ingress, f"pcap.captures=[{egress}]"), tmp_path).runs[0]
    assert (again.rows, again.drops) == (run["rows"], run["drops"])
    alone = collect(config(tmp_path, *SWITCH, f"pcap.captures=[{egress}]"), tmp_path).runs[0]
    assert Dataset.open(alone.path).manifest.scenario["drops_visible"] is False
    assert alone.drops < run["drops"]  # what left one after the other hardly queues again
    (captures / "copy.csv").write_bytes((captures / "ports.csv").read_bytes())
    copied = collect(config(tmp_path, *SWITCH, ingress, f"pcap.table={captures / 'copy.csv'}"), tmp_path).runs[0]
    moved = collect(config(tmp_path, *SWITCH, ingress, f"pcap.table={captures / 'ports.csv'}"), tmp_path).runs[0]
    assert copied.path == moved.path  # files count by their content


WHOLE = "operating_point.region=whole"


def test_what_artifact_rows_cannot_do_is_refused(tmp_path: Path, artifact_logs: list[Path], etalon_log: Path) -> None:
    store = f"store_dir={tmp_path / 'store'}"
    logs = ",".join(map(str, artifact_logs))
    settings = config(tmp_path, "source=credence_artifact", f"log=[{logs}]", "seeds=[1,2,3]")
    paths = [run.path for run in collect(settings, tmp_path).runs]
    trace = collect(config(tmp_path, "source=etalon", f"log={etalon_log}", "seeds=[3]"), tmp_path).runs[0].path
    for datasets, overrides, complaint in (
        (paths, [*SIDES, WHOLE], r"features\.own_queues=true"),
        (paths, [*SIDES, "features.own_queues=true"], r"set operating_point\.region=whole"),
        (paths, [*SIDES, WHOLE, "features=virtual"], "has no feature threshold"),
        (paths, ["split=by_time", "split.seeds=[1,2,3]"], "in the order of their fates"),
        ([*paths[:2], trace], [*SIDES, WHOLE], "train on datasets of one kind"),
    ):
        given = f"datasets=[{','.join(map(str, datasets))}]"
        with pytest.raises(ForetailError, match=complaint):
            train(stage_settings(TrainConfig, store, "tracking=off", given, *overrides), tmp_path)
    assert not (tmp_path / "store" / "model").exists() or not list((tmp_path / "store" / "model").iterdir())


def config(folder: Path, *overrides: str) -> CollectConfig:
    return stage_settings(CollectConfig, f"store_dir={folder / 'store'}", *overrides)


def collected(folder: Path, *overrides: str) -> tuple[CollectedRun, ...]:
    return collect(config(folder, "source=slotted", *overrides), folder).runs


def test_a_dataset_is_what_the_settings_say(tmp_path: Path) -> None:
    given = ("slotted.ports=6", "slotted.buffer_per_port=10", "slotted.slots=500", "seeds=[3]")
    (run,) = collected(tmp_path, *given, "slotted.settings={load: 0.3, poisson: false}")
    batches = Incast(load=0.3, poisson=False).batches(6, 60, 500, 3)
    (expected,) = labelled(batches, 6, 60)
    np.testing.assert_array_equal(Dataset.open(run.path).frame(["lqd_drop"])["lqd_drop"], expected.lqd_drop)
    assert run.drops == run.counters["data_drops.buffer_full"] + run.counters["data_drops.pushed_out"] > 0
    assert run.imported is None
    (again,) = collected(tmp_path, *given, "slotted.settings={poisson: false, load: 0.3, burst_fraction: 0.5}")
    assert (again.reused, again.path, again.counters) == (True, run.path, run.counters)
    (coarse,) = collected(tmp_path, *given, "slotted.settings={load: 0.3}", "slotted.features.cell_bytes=1024")
    assert not coarse.reused
    manifest = Dataset.open(coarse.path).manifest
    assert (manifest.cell_bytes, manifest.average_shift, manifest.seed) == (1024, 15, 3)
    assert manifest.scenario["workload"]["poisson"] is True


def test_no_packets_leave_nothing(tmp_path: Path) -> None:
    nothing = ("slotted.settings={load: 0.0001, background_load: 0}", "slotted.slots=3")
    done = foretail(tmp_path, "collect", "source=slotted", *nothing)
    assert done.returncode == 2
    assert done.stderr.startswith("foretail: slotted.workload = incast sends no packet in 3 slots with seed 1")
    assert len(done.stderr.splitlines()) == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_workload_without_chance_is_one_run(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match="has the same packets with seeds 1 and 2"):
        collected(tmp_path, "slotted.workload=lqd_lower_bound", "slotted.slots=200", "seeds=[1,2]")


NAMES = ("queue", "occupancy", "until_circuit")
RACKS = (
    *("source=racks", "racks.fabric.racks=4", "racks.fabric.hosts_per_rack=2", "racks.destination_racks=[2,3]"),
    *("racks.flows=4", "racks.shared_packets=32", "racks.weeks=60", "seeds=[1,2,3]"),
)
LONGEST_NS = 3 * 200_000 - 180_000  # from the end of a day to the next with the same circuit


def config_of(folder: Path, *overrides: str) -> CollectConfig:
    return config(folder, *RACKS, *overrides)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("racks")


@pytest.fixture(scope="module")
def collected_of_rack_traces(folder: Path) -> CollectResult:
    return collect(config_of(folder), folder)


@pytest.fixture(scope="module")
def model(collected_of_rack_traces: CollectResult, folder: Path) -> Ensemble:
    given = (
        f"datasets=[{','.join(str(run.path) for run in collected_of_rack_traces.runs)}]",
        f"features.names=[{','.join(NAMES)}]",
        *(*SIDES, "tracking=off", f"store_dir={folder / 'store'}"),
    )
    train(stage_settings(TrainConfig, *given), folder / "train")
    return Ensemble.load(folder / "train" / "ensemble.json")


@pytest.mark.ns3
def test_a_trace_of_racks_has_the_drops_of_lqd_and_the_time_to_the_next_circuit(
    collected_of_rack_traces: CollectResult, folder: Path
) -> None:
    again = collect(config_of(folder), folder)
    assert [run.reused for run in again.runs] == [True] * 3
    assert len({run.content_sha256 for run in collected_of_rack_traces.runs}) == 3
    for run in collected_of_rack_traces.runs:
        counters = run.counters
        assert counters["threshold_deficits"] == 0
        assert counters["data_drops.buffer_full"] + counters["data_drops.pushed_out"] == run.drops > 100
        dataset = Dataset.open(run.path)
        assert dataset.manifest.scenario["racks_with_hosts"] == [0, 1, 2]
        assert not (run.path / "run" / "etalon.log").exists()
        until = dataset.frame(["until_circuit"])["until_circuit"]
        assert until.min() == 0
        assert 0.9 * LONGEST_NS < 1024 * until.max() <= LONGEST_NS


@pytest.mark.ns3
def test_ns3_collects_the_same_traces(tmp_path: Path) -> None:
    runs = [
        collect(config_of(tmp_path, f"network={network}", "seeds=[2]", "racks.weeks=6"), tmp_path).runs[0]
        for network in ("native", "ns3")
    ]
    assert runs[0].drops > 10
    assert runs[0].content_sha256 == runs[1].content_sha256


@pytest.mark.ns3
def test_a_replay_of_racks_sends_what_their_circuits_took(collected_of_rack_traces: CollectResult) -> None:
    dataset = Dataset.open(collected_of_rack_traces.runs[0].path)
    run = PacketRun.open(dataset.path / "run")
    switches = run.summary["switches"]
    compared = compare_replays(dataset, ("lqd", "dt", "cs"), dataset.frame(["lqd_drop"])["lqd_drop"].to_numpy(bool))
    lost = sum(drop["packets"] for node in switches for drop in node["data_drops"].values())
    arrived = sum(node["data_in"]["packets"] for node in switches)
    assert compared.transmitted["lqd"] == arrived - lost
    assert 0 < compared.transmitted["dt"] < arrived
    assert compared.sent > 0.99 * compared.lqd  # it is told the labels


@pytest.mark.ns3
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


@pytest.mark.ns3
def test_what_has_no_circuits_refuses_a_trace_of_racks(collected_of_rack_traces: CollectResult) -> None:
    with pytest.raises(ForetailError, match="an environment knows no circuits"):
        _ = FromDatasets([collected_of_rack_traces.runs[0].path]).episodes


def test_a_damaged_log_leaves_nothing(tmp_path: Path, etalon_log: Path) -> None:
    log = tmp_path / "cut"
    log.write_bytes(etalon_log.read_bytes()[:-10])
    done = foretail(tmp_path, "collect", "source=etalon", f"log={log}")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "is truncated" in done.stderr
    assert [path for path in (tmp_path / "outputs").rglob("*") if path.is_file()] == []
