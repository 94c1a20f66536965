"""The export stage: other frameworks' models in, every target out, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xgboost
from numpy.typing import NDArray

from foretail.configs.schema.model_stages import ExportConfig
from foretail.core.errors import ForetailError
from foretail.models.drop.contract import synthetic_arrivals
from foretail.models.drop.forest import RandomForest
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.pipelines.exporting.predictor import ExportResult, export_drop_predictor, export_to_store
from foretail.pipelines.runs.progress import StageProgress
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.validation import typed
from tests.composed import composed
from tests.forests import paper_forest

pytestmark = pytest.mark.slow

COLUMNS = ("queue", "queue_average", "occupancy", "occupancy_average")
INPUTS = f"inputs=[{','.join(f'{{name: {name}, bits: 13}}' for name in COLUMNS)}]"


def exported(folder: Path, *overrides: str) -> ExportResult:
    config = typed(
        composed("export", f"out={folder / 'out'}", f"store_dir={folder / 'store'}", "tracking=off", *overrides),
        ExportConfig,
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
    assert "\n" not in str(refusal.value)
    assert {path.name for path in tmp_path.iterdir()} <= {"model.json", "store"}


def test_a_demo_program_is_written_when_its_buffer_is_given(tmp_path: Path) -> None:
    x, y = synthetic_arrivals(rows=2000, seed=3)
    inputs = [FeatureInput("threshold", "cell_bytes=256", 24), FeatureInput("thresholds_sum", "cell_bytes=256", 24)]
    RandomForest(trees=2, depth=2).fit(x[:, [0, 2]], y).to_ensemble(inputs).save(tmp_path / "ensemble.json")
    exported(tmp_path, f"model={tmp_path}", "target=p4")
    assert not (tmp_path / "out" / "drop_predictor_demo.p4").exists()
    exported(tmp_path, f"model={tmp_path}", "target=p4", "p4.demo.buffer_bytes=100000")
    assert '#include "drop_predictor.p4"' in (tmp_path / "out" / "drop_predictor_demo.p4").read_text()
    with pytest.raises(ForetailError, match="give it 1 to 8"):
        exported(
            tmp_path,
            f"model={tmp_path}",
            "target=p4",
            "p4.demo.buffer_bytes=100000",
            f"p4.demo.port_rates_bps={[10**9] * 9}",
        )
    assert (tmp_path / "out" / "drop_predictor_demo.p4").exists()
