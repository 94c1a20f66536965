"""The export stage: other frameworks' models in, every target out, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from numpy.typing import NDArray

from foretail.configs.schema.model_stages import ExportConfig
from foretail.configs.schema.network.circuits import DemandConfig
from foretail.configs.schema.stages import STAGES
from foretail.core.errors import ForetailError
from foretail.export.c.build import PredictorLibrary
from foretail.features.dataset.reader import Dataset
from foretail.models.drop.network import Network
from foretail.models.ensemble.ensemble import Ensemble
from foretail.pipelines import cli
from foretail.pipelines.exporting.network import NetworkExport
from foretail.pipelines.exporting.predictor import ExportResult, export_drop_predictor, export_to_store, model_rows
from foretail.pipelines.runs.progress import StageProgress
from foretail.pipelines.runs.result import plain
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.collect import collect
from foretail.pipelines.stages.demand import demand
from foretail.pipelines.stages.export import export
from foretail.pipelines.stages.train import train
from foretail.testing import synthetic_arrivals
from tests.composed import composed, foretail, result_in, stage_settings
from tests.forests import paper_forest

pytestmark = pytest.mark.slow
COLUMNS = ("queue", "queue_average", "occupancy", "occupancy_average")
INPUTS = f"inputs=[{','.join(f'{{name: {name}, bits: 13}}' for name in COLUMNS)}]"


def exported(folder: Path, *overrides: str) -> ExportResult:
    config = stage_settings(
        ExportConfig, f"out={folder / 'out'}", f"store_dir={folder / 'store'}", "tracking=off", *overrides
    )
    return export_drop_predictor(config, folder / "run")


@pytest.fixture(scope="module")
def arrivals() -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    return synthetic_arrivals(rows=5000, seed=3)


@pytest.fixture(scope="module")
def boosted(arrivals: tuple[NDArray[np.int32], NDArray[np.bool_]]) -> xgboost.Booster:
    data = xgboost.DMatrix(*arrivals, feature_names=list(COLUMNS))
    return xgboost.train({"objective": "binary:logistic", "max_depth": 3, "seed": 1}, data, num_boost_round=3)


def test_a_file_of_xgboost_is_the_booster(
    boosted: xgboost.Booster, arrivals: tuple[NDArray[np.int32], NDArray[np.bool_]], tmp_path: Path
) -> None:
    boosted.save_model(tmp_path / "model.json")
    exported(tmp_path, f"model={tmp_path / 'model.json'}", INPUTS)
    emitted = Ensemble.load(tmp_path / "out" / "ensemble.json")
    margin = boosted.predict(xgboost.DMatrix(arrivals[0], feature_names=list(COLUMNS)), output_margin=True)
    assert emitted.default_tau is not None
    drops = emitted.score(arrivals[0]) > emitted.default_tau
    assert 0 < drops.sum() < len(drops)
    np.testing.assert_array_equal(drops, margin > 0)


def test_forms_are_measured_only_with_rows(tmp_path: Path) -> None:
    paper_forest().ensemble.save(tmp_path / "ensemble.json")
    with pytest.raises(ForetailError, match=r"c\.tune=true needs rows to measure on"):
        exported(tmp_path, f"model={tmp_path}", "c.tune=true")
    with pytest.raises(ForetailError, match=r"c\.tune=true is for target=c"):
        exported(tmp_path, f"model={tmp_path}", "c.tune=true", "target=p4", "dataset=here")


def test_a_larger_model_is_proven_by_boxes(tmp_path: Path) -> None:
    paper_forest().ensemble.save(tmp_path / "ensemble.json")
    result = exported(tmp_path, f"model={tmp_path}", "max_cells=100")
    certificate = result.predictor.certificate
    assert (certificate.method, certificate.votes_by) == ("boxes", "boxes")
    assert certificate.boxes is not None
    assert certificate.boxes >= result.predictor.leaves
    assert "boxes" in str(result.tables()[0].rows)
    assert Ensemble.load(tmp_path / "out" / "ensemble.json").origin == paper_forest().ensemble.origin
    assert f"proven by boxes, of which there are {certificate.boxes:,}" in result.verdict()[0]


def test_a_library_for_the_simulators_shows_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(StageProgress, "update", lambda self, job, fraction, detail="": told.append(job))
    export_to_store(paper_forest(trees=1, depth=1).ensemble, Store(tmp_path))
    assert {"trees simplified", "votes chosen", "code written", "code built"} < set(told)


REFUSED = {
    "no range": ([], "does not say the range of its inputs"),
    "another order": (
        [f"inputs=[{','.join(f'{{name: {name}, bits: 13}}' for name in reversed(COLUMNS))}]"],
        "occupancy_average",
    ),
    "one feature too few": (["inputs=[{name: queue, bits: 13}]"], "features"),
    "a name that is not an identifier": ([INPUTS.replace("name: queue,", "name: 'queue;drop',")], "queue;drop"),
    "inputs and columns": ([INPUTS, "columns=[queue]"], "both inputs and columns"),
    "columns without a dataset": (["columns=[queue]"], "set dataset=FOLDER"),
    "a name that prefixes no code": ([INPUTS, "name='a b'"], "cannot prefix names"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("target", ["c", "p4", "onnx"])
def test_what_does_not_describe_the_model_is_refused(
    case: str, target: str, boosted: xgboost.Booster, tmp_path: Path
) -> None:
    overrides, complaint = REFUSED[case]
    boosted.save_model(tmp_path / "model.json")
    with pytest.raises(ForetailError) as refusal:
        exported(tmp_path, f"model={tmp_path / 'model.json'}", f"target={target}", *overrides)
    assert complaint in str(refusal.value)
    assert {path.name for path in tmp_path.iterdir()} <= {"model.json", "store"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of predictors that the demand stage has written."""
    folder = tmp_path_factory.mktemp("demand")
    chosen = "demand_predictor=[seasonal,linear_entries,low_rank,history_attention]"
    tiny = ["nodes=4", "degree=2", "steps=10", "warm_up=6", "trusts=[2]", "demand_predictor.history_attention.steps=3"]
    demand(stage_settings(DemandConfig, chosen, *tiny, "tracking.enabled=false"), folder)
    return folder / "predictors" / "hybrid_parallel"


@pytest.mark.parametrize(
    ("name", "target", "wanted"),
    [
        ("linear_entries", "c", {"demand_predictor.h", "demand_predictor_selftest.c"}),
        ("seasonal", "c", {"demand_predictor.h", "demand_predictor_selftest.c"}),
        ("linear_entries", "onnx", {"demand_predictor.onnx"}),
        ("low_rank", "onnx", {"demand_predictor.onnx"}),
        ("history_attention", "onnx", {"demand_predictor.onnx"}),
    ],
)
def test_a_predictor_of_a_run_goes_to_its_targets(
    name: str, target: str, wanted: set[str], trained: Path, tmp_path: Path
) -> None:
    options = [f"model={trained / f'{name}.json'}", f"target={target}", "demand.max_error_uplinks=0.01", "tracking=off"]
    result = export(stage_settings(ExportConfig, *options), tmp_path)
    folder = tmp_path / target
    assert {path.name for path in folder.iterdir()} == wanted | {"predictor.json", "certificate.json", "digest.json"}
    assert (folder / "predictor.json").read_bytes() == (trained / f"{name}.json").read_bytes()
    certificate = json.loads((folder / "certificate.json").read_text())
    assert plain(result.document())["export"]["certificate"] == {
        key: value for key, value in certificate.items() if key not in ("schema", "version")
    }
    assert len(result.verdict()) == 2
    (table,) = result.tables()
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["predictor"] == name
    if target == "c":
        assert row["error in uplinks"] == certificate["error_uplinks"]
        assert certificate["error_uplinks"] in result.verdict()[0]
        assert 0.001 < float(certificate["error_uplinks"]) <= 0.01
        assert certificate["largest_uplinks"] == "64.0"
    else:
        assert row["relative difference"] == certificate["relative_difference"] <= certificate["tolerance"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "overrides", "complaint"),
    [
        ("low_rank", ["target=c"], "low_rank has no target c: export it with target=onnx"),
        ("seasonal", ["target=p4"], "seasonal has no target p4: export it with target=c"),
        ("linear_entries", ["demand.max_error_uplinks=1e-12"], "keep an error of"),
        ("linear_entries", ["demand.max_error_uplinks=0"], "demand.max_error_uplinks"),
        ("linear_entries", ["columns=[queue]"], "columns is for drop predictors"),
        ("linear_entries", ["name=BAD"], "cannot prefix names"),
        ("damaged", [], "is not a valid demand predictor"),
    ],
)
def test_bad_input_gets_one_sentence_and_nothing_is_written(
    name: str, overrides: list[str], complaint: str, trained: Path, tmp_path: Path
) -> None:
    document = json.loads((trained / "seasonal.json").read_text())
    (trained / "damaged.json").write_text(json.dumps(document | {"nodes": "4"}))
    done = foretail(tmp_path, "export", f"model={trained / f'{name}.json'}", "tracking=off", *overrides)
    assert done.returncode == cli.EXIT_BAD_INPUT
    (line,) = done.stderr.splitlines()
    assert complaint in line
    assert list(tmp_path.iterdir()) == []


def test_a_drop_predictor_is_not_taken_for_one(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text('{"schema": "foretail.ensemble"}')
    options = [f"model={tmp_path / 'model.json'}", "tracking=off", f"store_dir={tmp_path / 'store'}"]
    with pytest.raises(ForetailError, match="version"):
        export(stage_settings(ExportConfig, *options), tmp_path)


NETWORKS = {
    "logistic_regression": ("predictor=logistic_regression",),
    "mlp": ("predictor=mlp", "predictor.width=8", "predictor.steps=300"),
}


def config(stage: str, folder: Path, *overrides: str) -> Any:
    return typed(composed(stage, f"store_dir={folder / 'store'}", *overrides), STAGES[stage])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with slotted runs, and networks that were trained on them."""
    here = tmp_path_factory.mktemp("networks")
    tiny = ["slotted.buffer_per_port=10", "slotted.slots=2000", "slotted.settings={fan_in: 5, background_load: 0.6}"]
    runs = collect(config("collect", here, "source=slotted", *tiny, "seeds=[1,2,3]"), here).runs
    (here / "test").symlink_to(runs[2].path)
    sides = ["split.train=[1]", "split.validation=[2]", "split.test=[3]", "features=switch", "tracking=off"]
    datasets = f"datasets=[{','.join(str(run.path) for run in runs)}]"
    for name, predictor in {**NETWORKS, "trees": ("predictor=random_forest",)}.items():
        train(config("train", here, datasets, *sides, *predictor, "allow_constant_features=true"), here / name)
    return here


def exported_of_export_network(folder: Path, out: Path, *overrides: str) -> NetworkExport:
    result = export(config("export", folder, "tracking=off", f"out={out}", *overrides), out.parent)
    assert isinstance(result, NetworkExport)
    return result


@pytest.mark.nightly
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_a_run_goes_to_integer_c(name: str, folder: Path, tmp_path: Path) -> None:
    result = exported_of_export_network(folder, tmp_path / "c", f"model={folder / name}", f"dataset={folder / 'test'}")
    document = json.loads((tmp_path / "c" / "certificate.json").read_text())
    assert (document["schema"], document["method"]) == ("foretail.network_certificate", "quantised")
    assert plain(result.document())["export"]["certificate"] == {
        key: value for key, value in document.items() if key not in ("schema", "version")
    }
    network = Network.load(folder / name / "model.onnx")
    x, lqd_drop = model_rows(network.features, Dataset.open(folder / "test"))
    library = PredictorLibrary(tmp_path / "c" / "drop_predictor.so")
    drops = library.score(x) > library.default_tau
    found = document["on_rows"]
    assert found["rows"] == len(x)
    assert found["decide_otherwise"] == (drops != network.exceeds(x)).sum() <= len(x) / 1000
    assert found["f1"] == pytest.approx(2 * (drops & lqd_drop).sum() / (drops.sum() + lqd_drop.sum()))
    assert found["network_f1"] > 0.1
    probability = 1 / (1 + np.exp(-np.ldexp(library.score(x).astype(float), -document["score_bits"])))
    np.testing.assert_allclose(probability, network.probability(x), atol=float(document["error_probability"]) + 1e-4)
    first, second = result.verdict()
    assert document["error_probability"] in first
    assert second == f"It decides otherwise on {found['decide_otherwise']} of the {len(x):,} rows of the dataset."
    titles = [table.title for table in result.tables()]
    assert titles == ["Network in C, in integers", "On the dataset"]
    narrow = exported_of_export_network(
        folder,
        tmp_path / "c",
        f"model={folder / name / 'model.onnx'}",
        "c.input_bits={threshold: 12, threshold_max: 12}",
    )
    assert float(narrow.certificate.error_logit) < float(document["error_logit"])
    assert len(narrow.tables()) == 1


@pytest.mark.parametrize(
    ("name", "overrides", "complaint"),
    [
        ("mlp", ["target=p4"], "holds a neural network, not trees: train predictor=boosted_trees"),
        ("mlp", ["target=onnx"], "is a network, and its ONNX file is the export: take that file"),
        ("mlp", ["c.tune=true"], "c.tune is for trees"),
        ("mlp", ["c.shape=branches"], "c.shape is for trees"),
        ("mlp", ["columns=[queue]", "dataset=../test"], "columns is for trees"),
        ("mlp", ["c.input_bits={no: 3}"], "c.input_bits names no, which the network does not see"),
        ("mlp", ["c.input_bits={threshold: 25}"], "gives threshold 25 bits, and it has 24"),
        ("trees", ["c.input_bits={queue: 10}"], "c.input_bits is for networks"),
    ],
)
def test_what_means_nothing_or_cannot_be_is_refused(
    name: str, overrides: list[str], complaint: str, folder: Path, tmp_path: Path
) -> None:
    overrides = [given.replace("..", str(folder)) for given in overrides]
    settings = config("export", folder, "tracking=off", f"model={folder / name}", f"out={tmp_path / 'c'}", *overrides)
    with pytest.raises(ForetailError, match=complaint):
        export(settings, tmp_path)
    assert not (tmp_path / "c").exists()


def test_replay_asks_the_c_of_a_network_and_counts_where_it_decides_otherwise(folder: Path, tmp_path: Path) -> None:
    network = Network.load(folder / "mlp" / "model.onnx")
    x, lqd_drop = model_rows(network.features, Dataset.open(folder / "test"))
    exported_of_export_network(folder, tmp_path / "c", f"model={folder / 'mlp'}")
    library = PredictorLibrary(tmp_path / "c" / "drop_predictor.so")
    drops = library.score(x) > library.default_tau
    run = ["replay", f"store_dir={folder / 'store'}", "tracking=off", f"datasets=[{folder / 'test'}]"]
    assert cli.main([*run, f"model={folder / 'mlp'}", f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    document = result_in(tmp_path / "run")
    scores = document["predictions"]["scores"]["whole"]
    assert scores["true_positives"] == (drops & lqd_drop).sum()
    assert scores["false_positives"] == (drops & ~lqd_drop).sum()
    assert document["predictions"]["network_sha256"] == network.sha256
    assert document["used_models"][0]["network_sha256"] == network.sha256
    (said,) = [sentence for sentence in document["findings"] if "quantised form" in sentence]
    otherwise = (drops != network.exceeds(x)).sum()
    assert said.endswith(f"on {otherwise:,} of {len(x):,} packets it decides otherwise")
