"""The export stage on demand predictors: from the run folder of ``foretail demand`` to C and ONNX."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretail.configs.schema.model_stages import ExportConfig
from foretail.configs.schema.network.circuits import DemandConfig
from foretail.core.errors import ForetailError
from foretail.pipelines import cli
from foretail.pipelines.runs.result import plain
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.demand import demand
from foretail.pipelines.stages.export import export
from tests.composed import composed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of predictors that the demand stage has written."""
    folder = tmp_path_factory.mktemp("demand")
    chosen = "demand_predictor=[seasonal,linear_entries,low_rank,history_attention]"
    tiny = ["nodes=4", "degree=2", "steps=10", "warm_up=6", "trusts=[2]", "demand_predictor.history_attention.steps=3"]
    demand(typed(composed("demand", chosen, *tiny, "tracking.enabled=false"), DemandConfig), folder)
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
    result = export(typed(composed("export", *options), ExportConfig), tmp_path)
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
    name: str,
    overrides: list[str],
    complaint: str,
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = json.loads((trained / "seasonal.json").read_text())
    (trained / "damaged.json").write_text(json.dumps(document | {"nodes": "4"}))
    monkeypatch.chdir(tmp_path)
    code = cli.main(["export", f"model={trained / f'{name}.json'}", "tracking=off", *overrides])
    lines = capsys.readouterr().err.splitlines()
    assert code == cli.EXIT_BAD_INPUT
    assert len(lines) == 1
    assert complaint in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_a_drop_predictor_is_not_taken_for_one(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text('{"schema": "foretail.ensemble"}')
    options = [f"model={tmp_path / 'model.json'}", "tracking=off", f"store_dir={tmp_path / 'store'}"]
    with pytest.raises(ForetailError, match="version"):
        export(typed(composed("export", *options), ExportConfig), tmp_path)
