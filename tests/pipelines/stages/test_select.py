"""``foretail select`` on the tiny scenario, on real ns-3 packets, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from foretail.configs.schema.model_stages import SelectConfig
from foretail.core.errors import ForetailError
from foretail.features.catalog import selection_cost, training_columns
from foretail.features.rows.labelled_rows import ALONE, ASKED, LABEL, read_rows
from foretail.features.rows.splits import SIDES, Selection
from foretail.models.scoring.metrics import rank
from foretail.pipelines.runs.result import plain
from foretail.pipelines.settings.predictors import untrained
from foretail.pipelines.settings.validation import typed
from foretail.pipelines.stages.select import select
from foretail.pipelines.training.fitting import find_split
from tests.composed import composed

CANDIDATES = ["threshold", "threshold_average", "queue"]


def config_of(folder: Path, *overrides: str) -> SelectConfig:
    names = f"features.names=[{','.join(CANDIDATES)}]"
    return typed(composed("select", "scenario=tiny", f"store_dir={folder / 'store'}", names, *overrides), SelectConfig)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("select")


@pytest.mark.ns3
def test_a_selection_is_made_of_validation_rows_within_the_budget(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(folder, "budget.register_bits=0", "margin=0", "sampling.others=1")
    _, split = find_split(config)
    sides = {selection.dataset.path: side for side in SIDES for selection in getattr(split, side)}
    read: list[tuple[str, tuple[str, ...]]] = []
    rows = Selection.rows

    def spied(selection: Selection, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        read.append((sides[selection.dataset.path], tuple(columns or ())))
        return rows(selection, columns)

    monkeypatch.setattr(Selection, "rows", spied)
    result = select(config, folder / "out")
    columns = ("threshold", "threshold_average", "shadow_queue", LABEL, ASKED)
    assert read == [("train", columns), ("train", columns), ("validation", columns)]

    assert result.ports == 6
    assert set(result.names) <= {"threshold", "queue"}
    assert list(result.importances) == CANDIDATES
    train = read_rows(split.train, training_columns(result.names, own_queues=False))
    asked = read_rows(split.validation, training_columns(result.names, own_queues=False), region="asked")
    model = untrained(config.predictor, config.trainer, ALONE).fit(train.x, train.lqd_drop)
    last = result.path[-1]
    assert last.average_precision == rank(asked.lqd_drop, model.probability(asked.x)).average_precision
    assert last.cost == selection_cost(result.names, 6)
    assert last.cost.register_bits == 0
    again = select(config, folder / "out")
    assert (again.path, again.importances) == (result.path, result.importances)
    *_, importances, path = result.tables()
    order = [str(row[0]) for row in importances.rows]
    assert order == sorted(CANDIDATES, key=lambda name: -result.importances[name].mean)
    assert path.notes[-1] == f"features.names=[{','.join(result.names)}]"
    numbers = pd.read_csv(folder / "out" / "importances.csv")
    assert numbers["mean"].tolist() == pytest.approx([result.importances[name].mean for name in numbers["feature"]])
    assert set(numbers["feature"][numbers["selected"]]) == set(result.names)
    assert {file.name for file in (folder / "out").iterdir()} >= set(result.files) == set(result.document()["files"])
    first, second = result.verdict()
    assert f"{last.average_precision:.4g}: {', '.join(result.names)}." in first
    assert f"needs {order[0]} most" in second
    json.dumps(plain(result.document()), allow_nan=False)


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("features.names=[]", "no features chosen"),
        ("features.names=[no_such]", "unknown feature 'no_such'"),
        ("features.names=[queue,incast]", "no switch can know it"),
        ("predictor=sequence", "choose another predictor to select by"),
        ("predictor=random_forest trainer.device=cuda", "set trainer.device=cpu"),
        ("split.validation=[]", "split.validation is empty"),
        ("policy=[lqd,dt]", "exactly one policy"),
    ],
)
def test_is_refused_in_one_sentence(folder: Path, override: str, complaint: str) -> None:
    with pytest.raises(ForetailError, match=complaint) as refusal:
        config_of(folder, *override.split())
    assert "\n" not in str(refusal.value)
