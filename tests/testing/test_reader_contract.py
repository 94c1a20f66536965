"""Every reader of an input of users against the contract of readers, each with a part that it does not use."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
import skops.io
import yaml
from sklearn.ensemble import RandomForestClassifier

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.core.errors import ForetailError
from foretail.core.reading import MOST_NAMED, Reading, telling
from foretail.export.p4.profile import Profile, load_profile
from foretail.export.schedule import read_json
from foretail.features.dataset.reader import Dataset
from foretail.features.demand.logs import Steps, read_demand_logs
from foretail.features.demand.matrix import read_demand
from foretail.models.demand import predictor_file
from foretail.models.demand.averages import LastValue
from foretail.models.drop.network import Layer, Network
from foretail.models.ensemble.ensemble import FeatureInput
from foretail.models.ensemble.frontends import from_sklearn
from foretail.models.ensemble.model_files import load_model_file
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.arrivals.files import ArrivalFile
from foretail.sim_bridge.imports.credence_artifact import COLUMNS, write_artifact_rows
from foretail.sim_bridge.imports.pcap.log import PortTable, read_captures
from foretail.testing import check_reader
from tests.traces import ARTIFACT, make_arrivals, write_trace

TWO = [FeatureInput("queue", "", 8), FeatureInput("occupancy", "", 8)]
SONIC = Path(__file__).parents[1] / "sim_bridge" / "imports" / "sonic" / "leaf_32x100g.json"

Case = tuple[Callable[[Any], object], Any, Any, str]
"""A reader, an input of which it uses everything, one with a part more, and the word that names the part."""


def text(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def document(path: Path, content: dict[str, Any], **more: Any) -> Path:
    path.write_text(json.dumps(content | more))
    return path


def arrivals(folder: Path) -> Case:
    rows = ["slot,port", "0,1", "3,2"]
    return (
        lambda path: list(ArrivalFile(path).batches(4)),
        text(folder / "a.csv", *rows),
        text(folder / "b.csv", *(f"{row},{ttl}" for row, ttl in zip(rows, ("ttl", 64, 63), strict=True))),
        "ttl",
    )


def arrivals_in_parquet(folder: Path) -> Case:
    frame = pd.DataFrame({"slot": [0, 3], "port": [1, 2]})
    frame.to_parquet(folder / "a.parquet")
    frame.assign(ttl=64).to_parquet(folder / "b.parquet")
    return lambda path: list(ArrivalFile(path).batches(4)), folder / "a.parquet", folder / "b.parquet", "ttl"


def demand_log(folder: Path) -> Case:
    rows = ["step,source,destination,demand", "0,0,1,0.5", "1,1,0,0.25"]
    more = [f"{row},{flag}" for row, flag in zip(rows, ("flags", 1, 0), strict=True)]
    plain, unknown = text(folder / "a.csv", *rows), text(folder / "b.csv", *more)
    return lambda path: read_demand_logs([path], Steps()), plain, unknown, "flags"


def demand_matrix(folder: Path) -> Case:
    rows = ["0,3,1", "2,0,0", "1,1,0"]
    return read_demand, text(folder / "a.csv", *rows), text(folder / "b.csv", "0,1,2", *rows), "first row"


def capture(folder: Path) -> Case:
    def frame(kind: bytes) -> bytes:
        ip = struct.pack(">BBHHHBBH8B", 0x45, 0, 46, 1, 0, 64, 1, 0, 10, 1, 0, 1, 10, 0, 0, 1)
        return struct.pack("<4I", 1, 0, 60, 60) + (bytes(12) + kind + ip).ljust(60, b"\0")

    head, table = (
        struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 96, 1),
        text(folder / "p.csv", "prefix,port", "0.0.0.0/0,0"),
    )
    (folder / "a.pcap").write_bytes(head + frame(b"\x08\x00"))
    (folder / "b.pcap").write_bytes(head + frame(b"\x08\x00") + frame(b"\x08\x06"))
    return lambda path: read_captures(path, {}, table, 2), folder / "a.pcap", folder / "b.pcap", "ARP"


def table_of_ports(folder: Path) -> Case:
    plain = text(folder / "a.csv", "prefix,port", "10.0.0.0/8,1")
    unknown = text(folder / "b.csv", "prefix,port,metric", "10.0.0.0/8,1,5")
    return lambda path: PortTable.read(path, 2), plain, unknown, "metric"


def artifact(folder: Path) -> Case:
    def read(path: Path) -> None:
        write_artifact_rows(folder / str(len(list(folder.iterdir()))), ARTIFACT, path)

    plain = text(folder / "a", " ".join(COLUMNS), "1 1 2 2 0", "5 1 9 2 1")
    return read, plain, text(folder / "b", " ".join((*COLUMNS, "more")), "1 1 2 2 0 7"), "more"


def switch_configuration(folder: Path) -> Case:
    used = ("BUFFER_", "CABLE_LENGTH", "PORT", "DSCP_", "TC_", "PFC_PRIORITY_")
    content = {table: rows for table, rows in json.loads(SONIC.read_text()).items() if table.startswith(used)}

    def read(path: Path) -> None:
        given = ["scenario.topology.buffer_bytes_per_port_per_gbps=750_000", f"config={path}", "policy=[sonic]"]
        compose_settings(EvaluateConfig, given, "the test")

    plain = document(folder / "a.json", content)
    return read, plain, document(folder / "b.json", content, POLICER={"SLOW": {"cir": "1000"}}), "POLICER"


def settings_file(folder: Path) -> Case:
    def read(given: str) -> None:
        compose_settings(EvaluateConfig, [given], "the test")

    return read, "policy=[lqd]", "+scenario.incast.fan_out=2", "fan_out"


def profile(folder: Path) -> Case:
    content = {field: getattr(load_profile("v1model"), field) for field in Profile.__dataclass_fields__}
    return (
        lambda path: load_profile(str(path)),
        text(folder / "a.yaml", yaml.safe_dump(content)),
        text(folder / "b.yaml", yaml.safe_dump(content | {"colour": "red"})),
        "colour",
    )


def schedule(folder: Path) -> Case:
    one = {"matchings": [[[1, 0]]], "period_slots": 1, "degree": 1, "n": 2, "slots": [[[0, 1], [1, 0]]]}
    return read_json, json.dumps(one), json.dumps(one | {"rotor": 3}), "rotor"


def dataset(folder: Path) -> Case:
    for name in ("a", "b"):
        write_trace(folder / name, make_arrivals(20))
    manifest = json.loads((folder / "b" / "manifest.json").read_text())
    (folder / "b" / "manifest.json").write_text(json.dumps(manifest | {"clock": "utc"}))
    return Dataset.open, folder / "a", folder / "b", "clock"


def demand_predictor(folder: Path) -> Case:
    learner = LastValue()
    learner.nodes_ = 3
    plain = predictor_file.to_json(learner)
    return predictor_file.from_json, plain, json.dumps(json.loads(plain) | {"seasons": 2}), "seasons"


def _forest(scale: float = 1.0) -> RandomForestClassifier:
    x = np.random.default_rng(0).integers(0, 200, (300, 2))
    return RandomForestClassifier(4, max_depth=3, random_state=1).fit(x * scale, x.sum(axis=1) > 200)


def ensemble(folder: Path) -> Case:
    content = json.loads(from_sklearn(_forest(), TWO).to_json())
    plain, unknown = document(folder / "a.json", content), document(folder / "b.json", content, scaler=[1])
    return lambda path: load_model_file(path, None), plain, unknown, "scaler"


def foreign_model(folder: Path) -> Case:
    skops.io.dump(_forest(), folder / "a.skops")
    skops.io.dump(_forest(4.0), folder / "b.skops")
    return lambda path: load_model_file(path, TWO), folder / "a.skops", folder / "b.skops", "tests of queue"


def network(folder: Path) -> Case:
    made = Network.of_layers(TWO, np.zeros(4), np.ones(4), [Layer(np.ones((1, 4)), np.zeros(1))])
    model = onnx.load_from_string(made.content)
    onnx.helper.set_model_props(model, {entry.key: entry.value for entry in model.metadata_props} | {"calibrated": "1"})
    return Network.from_bytes, made.content, model.SerializeToString(), "calibrated"


def torch_module(folder: Path) -> Case:
    import torch

    from foretail.models.drop.neural import layers_of

    parts = [torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)]
    return layers_of, torch.nn.Sequential(*parts), torch.nn.Sequential(*parts, torch.nn.Softplus()), "softplus"


READERS = (
    *(
        arrivals,
        arrivals_in_parquet,
        demand_log,
        demand_matrix,
        capture,
        table_of_ports,
        artifact,
        switch_configuration,
    ),
    *(settings_file, profile, schedule, dataset, demand_predictor, ensemble, network, torch_module),
    pytest.param(foreign_model, marks=pytest.mark.nightly),
)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_a_part_that_is_not_used_is_named_or_refused(tmp_path: Path, reader: Callable[[Path], Case]) -> None:
    print(check_reader(*reader(tmp_path)))


def test_a_reader_that_is_silent_or_talks_of_nothing_fails_the_check() -> None:
    with pytest.raises(AssertionError, match="ttl, which a reader does not use, must be named"):
        check_reader(len, "slot", "slot,ttl", "ttl")
    with pytest.raises(AssertionError, match="must tell nothing as left out where it uses everything"):
        check_reader(lambda given: Reading("a", (given,)).tell(), "slot", "ttl", "ttl")
    with pytest.raises(AssertionError, match="must be able to read an input of which it uses everything"):
        check_reader(int, "slot", "ttl", "ttl")


def test_a_sentence_names_some_parts_and_counts_the_others() -> None:
    many = Reading("log", tuple(f"column {n}" for n in range(MOST_NAMED + 3)), ("times are in ns",)).sentence()
    assert many.endswith("column 7, 3 more, which Foretail does not use; it is taken for granted that times are in ns")
    assert Reading("log", guesses=("a",)).sentence() == "in log, it is taken for granted that a"
    assert Reading("log").sentence() == ""


def test_guesses_of_a_log_of_demand_are_told_with_what_they_rest_on(tmp_path: Path) -> None:
    rows = ["time_ns,source,destination,bytes", "5,0,3,1250", "2000005,1,0,2500"]
    readings: list[Reading] = []
    with telling(readings.append):
        read_demand_logs([text(tmp_path / "a.csv", *rows)], Steps(1_000_000, 10_000_000))
    (reading,) = readings
    assert reading.guesses == (
        "nodes are numbered 0 to 3 (racks=4)",
        "the longest run takes 3 steps of interval_ns=1,000,000",
        "a node sends up to 2 uplinks in one",
    )
    with pytest.raises(ForetailError, match="has the column ' source' with a blank: call it source"):
        read_demand_logs([text(tmp_path / "b.csv", rows[0].replace(",", ", "), *rows[1:])], Steps(1_000_000, 10**9))
