"""The export stage on networks: a train run's folder goes to integer C, which ns-3 asks; what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.stages import STAGES
from foretail.core.errors import ForetailError
from foretail.export.c.build import PredictorLibrary
from foretail.features.dataset.reader import Dataset
from foretail.models.drop.network import Network
from foretail.pipelines import cli
from foretail.pipelines.exporting.network import NetworkExport
from foretail.pipelines.exporting.predictor import model_rows
from foretail.pipelines.runs.result import plain
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.collect import collect
from foretail.pipelines.stages.export import export
from foretail.pipelines.stages.promote import promote
from foretail.pipelines.stages.train import train
from tests.composed import composed

pytestmark = pytest.mark.slow

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
    more = {"window": (*NETWORKS["mlp"], "window.behind=1"), "trees": ("predictor=random_forest",)}
    for name, predictor in {**NETWORKS, **more}.items():
        train(config("train", here, datasets, *sides, *predictor, "allow_constant_features=true"), here / name)
    return here


def exported(folder: Path, out: Path, *overrides: str) -> NetworkExport:
    result = export(config("export", folder, "tracking=off", f"out={out}", *overrides), out.parent)
    assert isinstance(result, NetworkExport)
    return result


@pytest.mark.nightly
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_a_run_goes_to_integer_c(name: str, folder: Path, tmp_path: Path) -> None:
    result = exported(folder, tmp_path / "c", f"model={folder / name}", f"dataset={folder / 'test'}")
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
    narrow = exported(
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
        ("mlp", ["target=p4"], "holds a neural network, not trees: run foretail distill"),
        ("mlp", ["target=onnx"], "is a network, and its ONNX file is the export: take that file"),
        ("mlp", ["c.tune=true"], "c.tune is for trees"),
        ("mlp", ["c.shape=branches"], "c.shape is for trees"),
        ("mlp", ["columns=[queue]", "dataset=../test"], "columns is for trees"),
        ("window", [], "sees a window of arrivals"),
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
    with pytest.raises(ForetailError, match=complaint) as error:
        export(settings, tmp_path)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "c").exists()


@pytest.mark.nightly
@pytest.mark.full
@pytest.mark.ns3
def test_ns3_asks_the_library_of_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings: TrainConfig = config("train", tmp_path, "scenario=tiny", "tracking=off", *NETWORKS["mlp"])
    train(settings, tmp_path / "run")
    exported(tmp_path, tmp_path / "c", f"model={tmp_path / 'run'}")
    library = tmp_path / "c" / "drop_predictor.so"
    asks = ["policy=[credence]", "baselines=[]", "seeds=[11]"]
    shared = ["scenario=tiny", f"store_dir={tmp_path / 'store'}", f"hydra.run.dir={tmp_path / 'evaluated'}"]
    answers = []
    for given in (f"policy.credence.library={library}", f"model={tmp_path / 'run'}"):
        assert cli.main(["evaluate", *shared, *asks, given]) == 0
        document = json.loads((tmp_path / "evaluated" / "result.json").read_text())
        (run,) = document["runs"]
        answers.append((run["asked"], run["predicted_drops"], run["flows_sha256"]))
    assert answers[0] == answers[1], "evaluate compiles what export writes"
    assert answers[0][0] > answers[0][1] > 0
    assert document["predictor"]["certificate"]["method"] == "quantised"
    (said,) = [sentence for sentence in document["findings"] if "quantised form" in sentence]
    assert document["predictor"]["certificate"]["error_probability"] in said


def test_replay_asks_the_c_of_a_network_and_counts_where_it_decides_otherwise(folder: Path, tmp_path: Path) -> None:
    network = Network.load(folder / "mlp" / "model.onnx")
    x, lqd_drop = model_rows(network.features, Dataset.open(folder / "test"))
    exported(folder, tmp_path / "c", f"model={folder / 'mlp'}")
    library = PredictorLibrary(tmp_path / "c" / "drop_predictor.so")
    drops = library.score(x) > library.default_tau
    run = ["replay", f"store_dir={folder / 'store'}", "tracking=off", f"datasets=[{folder / 'test'}]"]
    assert cli.main([*run, f"model={folder / 'mlp'}", f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    document = json.loads((tmp_path / "run" / "result.json").read_text())
    scores = document["predictions"]["scores"]["whole"]
    assert scores["true_positives"] == (drops & lqd_drop).sum()
    assert scores["false_positives"] == (drops & ~lqd_drop).sum()
    assert document["predictions"]["network_sha256"] == network.sha256
    assert document["used_models"][0]["network_sha256"] == network.sha256
    (said,) = [sentence for sentence in document["findings"] if "quantised form" in sentence]
    otherwise = (drops != network.exceeds(x)).sum()
    assert said.endswith(f"on {otherwise:,} of {len(x):,} packets it decides otherwise")


@pytest.mark.nightly
@pytest.mark.full
def test_a_tracked_network_has_a_version_that_replay_export_and_distill_take(folder: Path, tmp_path: Path) -> None:
    tracking = [f"tracking.uri=sqlite:///{tmp_path / 'mlflow.db'}", "tracking.alias=net"]
    datasets = [str(Dataset.open(folder / "test").path.resolve())]
    split = ["split=by_time", "split.seeds=[3]", "split.gap_ns=10000", "features=switch"]
    learn = config(
        "train", tmp_path, f"datasets={datasets}", *split, *NETWORKS["mlp"], *tracking, "allow_constant_features=true"
    )
    trained = train(learn, tmp_path / "mlp")
    assert trained.registered is not None
    model = f"model=models:/foretail-drop@{trained.registered.alias}"
    run = [f"store_dir={tmp_path / 'store'}", *tracking, model, f"hydra.run.dir={tmp_path / 'run'}"]
    assert cli.main(["replay", *run[:2], model, f"datasets={datasets}", run[-1]]) == 0
    (used,) = json.loads((tmp_path / "run" / "result.json").read_text())["used_models"]
    assert used["network_sha256"] == trained.model.sha256
    assert used["versions"][0]["aliases"] == ["net"]
    result = export(config("export", tmp_path, *tracking, model, f"out={tmp_path / 'c'}"), tmp_path)
    assert isinstance(result, NetworkExport)
    assert result.certificate.network_sha256 == trained.model.sha256
    refused = "holds a neural network, not trees: run foretail distill model=models:/"
    with pytest.raises(ForetailError, match=refused):
        export(config("export", tmp_path, *tracking, model, "target=p4"), tmp_path / "none")
    with pytest.raises(ForetailError, match=refused):
        promote(config("promote", tmp_path, *tracking, model, f"datasets={datasets}"), tmp_path / "none")
