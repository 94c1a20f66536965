"""The readers that are fuzzed, with files to begin from."""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from foretail.core.digest import DIGEST_FILE, check_folder, write_digest
from foretail.export.c.reader import read_c
from foretail.export.c.target import C, render_c, stated
from foretail.export.folder import encoded
from foretail.export.p4.profile import load_profile
from foretail.export.p4.target import P4
from foretail.export.proof import Certificate
from foretail.export.schedule import (
    PlannedSchedule,
    read_json,
    read_tor_entries,
    schedule_json,
    tor_entries,
)
from foretail.export.target import export
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Manifest
from foretail.features.demand.logs import Steps, read_demand_logs
from foretail.features.demand.matrix import read_demand
from foretail.models.demand.averages import Seasonal
from foretail.models.demand.predictor_file import load as load_demand_predictor
from foretail.models.demand.predictor_file import to_json
from foretail.models.drop.network import Network
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.model_files import format_of, read_foreign
from foretail.pipelines.reporting.run_record import RunRecord
from foretail.sim_bridge.arrivals.files import ArrivalFile
from foretail.sim_bridge.circuits.demand import ring
from foretail.sim_bridge.circuits.schedules import vermilion
from foretail.sim_bridge.imports.credence_artifact import COLUMNS, write_artifact_rows
from foretail.sim_bridge.imports.etalon.log import EtalonLog
from foretail.sim_bridge.imports.etalon.records import Reading
from foretail.sim_bridge.imports.pcap.log import PortTable, read_captures
from foretail.sim_bridge.imports.pcap.synthetic import draw_arrivals, write_capture
from foretail.sim_bridge.imports.sonic.config import read_config
from foretail.testing import synthetic_sequences
from tests.etalon_logs import emulate, write_etalon_log
from tests.export.p4.p4_texts import small_ensemble, texts_of
from tests.traces import ARTIFACT, write_bursts

TWO = (FeatureInput("queue", "cell_bytes=256", 10), FeatureInput("occupancy", "cell_bytes=256", 10))


@dataclass(frozen=True)
class Reader:
    """A reader of one kind of file.

    Attributes
    ----------
    file : what the file is called, which may decide how it is read
    seeds : called with an empty folder, makes the contents to begin from
    read : reads the file at a path, in a folder of its own
    inputs : how many are tried when no time is given, some seconds' worth
    native : modules of other people's native code below it, for which each input gets a fork of its own
    """

    file: str
    seeds: Callable[[Path], Sequence[bytes]]
    read: Callable[[Path], Any]
    native: tuple[str, ...] = ()
    inputs: int = 10_000


def _ensemble(folder: Path) -> list[bytes]:
    return [small_ensemble().to_json().encode()]


def _manifest(folder: Path) -> list[bytes]:
    return [(write_bursts(folder / "trace", 1).path / "manifest.json").read_bytes()]


def _digest(folder: Path) -> list[bytes]:
    (folder / "a").write_text("1")
    write_digest(folder)
    return [(folder / DIGEST_FILE).read_bytes()]


def _certificate(folder: Path) -> list[bytes]:
    export(small_ensemble(), C(), folder / "c")
    return [(folder / "c" / "certificate.json").read_bytes()]


def _result(folder: Path) -> list[bytes]:
    document = {"stage": "train", "config": {"a": {"seed": 1}}, "versions": {"x": "1"}, "seconds": 1.0, "files": []}
    table = {"title": "t", "columns": ["a"], "rows": [[1.5]], "notes": ["n"]}
    return [json.dumps(document | {"tables": [table], "command": "foretail train", "finished": "now"}).encode()]


def _demand_predictor(folder: Path) -> list[bytes]:
    return [to_json(Seasonal(period=2, longest=4).fit(synthetic_sequences(3, 10, 3, seed=1))).encode()]


def _lines(header: str, rows: Sequence[str]) -> bytes:
    return "\n".join([header, *rows]).encode() + b"\n"


def _p4(folder: Path) -> list[bytes]:
    return [texts_of(small_ensemble())["p.p4"].encode()]


def _read_p4(path: Path) -> None:
    P4().load(small_ensemble(), {**encoded(texts_of(small_ensemble())), "p.p4": path.read_bytes()})


def _etalon(folder: Path) -> list[bytes]:
    write_etalon_log(folder / "log", *emulate(4, 2, 0.5, 10, seed=1))
    return [(folder / "log").read_bytes()[:20_000]]


def _read_etalon(path: Path) -> None:
    log = EtalonLog.open(path, Reading(day_ns=None))
    survey = log.survey()
    for _ in log.arrivals(survey):
        pass


def _capture(folder: Path) -> list[bytes]:
    write_capture(folder / "a.pcap", draw_arrivals(4, 1000, seed=1)[:20])
    section = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    interface = struct.pack("<IIHHIHHBxxxI", 1, 28, 1, 0, 96, 9, 1, 9, 28)
    frame = (folder / "a.pcap").read_bytes()[40:136]
    packet = struct.pack("<7I", 6, 128, 0, 0, 5000, 96, 1000) + frame + struct.pack("<I", 128)
    return [(folder / "a.pcap").read_bytes(), section + interface + 3 * packet]


def _read_capture(path: Path) -> None:
    """As a capture of port 1, and as one of which only the destinations tell the port."""
    for _ in read_captures(None, {1: path}, None, 4).arrivals():
        pass
    read_captures(path, {2: path}, None, 4)


def _read_artifact(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_artifact_rows(Path(folder) / "dataset", ARTIFACT, path)


def _sonic(folder: Path) -> list[bytes]:
    return [
        path.read_bytes()
        for path in sorted((Path(__file__).parents[1] / "sim_bridge" / "imports" / "sonic").glob("*.json"))
    ]


def _read_arrivals(path: Path) -> None:
    for _ in ArrivalFile(path).batches(4, priorities=2, predictions=True):
        pass


def _npy(folder: Path) -> list[bytes]:
    np.save(folder / "demand.npy", np.arange(9.0).reshape(3, 3) / 40)
    return [(folder / "demand.npy").read_bytes()]


def _part(folder: Path) -> list[bytes]:
    return [(write_bursts(folder / "trace", 1, bursts=2).path / "rows" / "part-00000.parquet").read_bytes()]


def _read_part(path: Path) -> None:
    """Open a dataset whose digest was written after the damage: what lies in the Parquet is all that tells."""
    folder = path.parent / "trace"
    if not folder.exists():
        write_bursts(folder, 1, bursts=2)
    (folder / "rows" / "part-00000.parquet").write_bytes(path.read_bytes())
    write_digest(folder)
    Dataset.open(folder).frame()


def _trained(kind: str) -> Callable[[Path], list[bytes]]:
    def seeds(folder: Path) -> list[bytes]:
        import lightgbm
        import skops.io
        import treelite
        import xgboost
        from sklearn.ensemble import RandomForestClassifier

        random = np.random.default_rng(1)
        x = random.integers(0, 1 << 10, (300, 2))
        y = x[:, 0] + random.integers(0, 400, 300) > 800
        if kind in ("json", "ubj"):
            booster = xgboost.XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1).fit(x, y).get_booster()
            return [bytes(booster.save_raw(kind))]
        if kind == "lightgbm":
            settings = {"objective": "binary", "num_leaves": 4, "verbose": -1, "num_threads": 1}
            return [lightgbm.train(settings, lightgbm.Dataset(x.astype(float), y), 2).model_to_string().encode()]
        forest = RandomForestClassifier(2, max_depth=2, random_state=1).fit(x, y)
        checkpoint: bytes = treelite.sklearn.import_model(forest).serialize_bytes()
        return [checkpoint if kind == "treelite" else skops.io.dumps(forest)]

    return seeds


def _read_model(path: Path) -> None:
    read_foreign(path, format_of(path.read_bytes(), str(path)), TWO)


def _network(folder: Path) -> list[bytes]:
    from foretail.models.drop.neural import MultilayerPerceptron

    random = np.random.default_rng(1)
    x = random.integers(0, 1 << 10, (200, 2)).astype(np.int32)
    trained = MultilayerPerceptron(width=2, steps=5).fit(x, x[:, 0] > 800)
    return [trained.to_network(TWO).content]


def _schedule() -> PlannedSchedule:
    return PlannedSchedule(vermilion(ring(4, 1), 1, 2), 2, 1, 0.75, 0.8)


def _text(read: Callable[[str], Any]) -> Callable[[Path], Any]:
    return lambda path: read(path.read_text(encoding="utf-8", errors="replace"))


def _c_seeds(folder: Path) -> list[bytes]:
    return [text.encode() for name, text in render_c(small_ensemble()).items() if name.endswith(".h")]


def _read_c(path: Path) -> None:
    text = path.read_text(encoding="utf-8", errors="replace")
    read_c(stated(small_ensemble(), "drop_predictor", text), text)


def _listed(*contents: bytes) -> Callable[[Path], list[bytes]]:
    return lambda folder: list(contents)


DEMAND = b"0,0.5,0.25\n0.5,0,0.25\n0.25,0.5,0\n"
ROWS = _lines("time_ns,source,destination,bytes,run", ["1000,0,1,500,a", "1100,1,0,20,a", "1000,1,2,7,b"])
STEPS = Steps(interval_ns=100, uplink_bps=80_000_000)
ARRIVALS = _lines("slot,port,prediction,first_rtt,priority", ["0,1,0,0,0", "0,2,1,1,1", "4,3,0,0,0"])
PORT_TABLE = _lines("prefix,port", ["10.0.0.0/24,1", "2001:db8::/32,2"])
ARTIFACT_LOG = _lines(" ".join(COLUMNS), ["10 20 30 40 0", "1 2 3 4 1"])
TREELITE = ("treelite", "lightgbm")
NATIVE_MODEL = ("xgboost", "treelite", "skops.io", "sklearn.ensemble")

READERS: dict[str, Reader] = {
    "ensemble": Reader("ensemble.json", _ensemble, Ensemble.load),
    "manifest": Reader("manifest.json", _manifest, lambda path: Manifest.from_json(path.read_bytes(), path)),
    "digest": Reader(DIGEST_FILE, _digest, lambda path: check_folder(path.parent, "write it again")),
    "certificate": Reader("certificate.json", _certificate, Certificate.load),
    "result": Reader("result.json", _result, lambda path: RunRecord.open(path.parent)),
    "demand predictor": Reader("predictor.json", _demand_predictor, load_demand_predictor),
    "demand matrix": Reader("demand.csv", _listed(DEMAND), read_demand),
    "demand array": Reader("demand.npy", _npy, read_demand),
    "demand log": Reader("log.csv", _listed(ROWS), lambda path: read_demand_logs([path], STEPS), inputs=2_000),
    "arrivals": Reader("arrivals.csv", _listed(ARRIVALS), _read_arrivals),
    "etalon log": Reader("log.txt", _etalon, _read_etalon, inputs=5_000),
    "capture": Reader("a.pcap", _capture, _read_capture, inputs=5_000),
    "table of ports": Reader("ports.csv", _listed(PORT_TABLE), lambda path: PortTable.read(path, 4)),
    "SONiC configuration": Reader("config_db.json", _sonic, read_config),
    "artifact log": Reader("log.csv", _listed(ARTIFACT_LOG), _read_artifact, inputs=1_500),
    "P4 profile": Reader(
        "mine.yaml",
        lambda folder: [(resources.files("foretail.export.p4.profiles") / "tofino.yaml").read_bytes()],
        lambda path: load_profile(str(path)),
    ),
    "P4": Reader("p.p4", _p4, _read_p4, inputs=5_000),
    "C": Reader("drop_predictor.h", _c_seeds, _read_c, inputs=500),
    "schedule": Reader("schedule.json", lambda folder: [schedule_json(_schedule()).encode()], _text(read_json)),
    "schedule in P4": Reader(
        "tor.p4",
        lambda folder: [tor_entries(_schedule().schedule, 1)[0].encode()],
        _text(lambda text: read_tor_entries([text])),
    ),
    **{
        f"model, {kind}": Reader("model", _trained(kind), _read_model, NATIVE_MODEL, 20 if kind in TREELITE else 120)
        for kind in ("json", "ubj", "lightgbm", "treelite", "skops")
    },
    "network": Reader("model.onnx", _network, Network.load, ("onnx", "onnxruntime"), 200),
    "dataset": Reader("part.parquet", _part, _read_part, ("pyarrow.parquet",), 200),
}
"""By name; ``settings`` of the driver, in C++, come besides."""
