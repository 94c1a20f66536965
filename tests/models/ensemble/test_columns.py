"""Columns of training whose names are no identifiers: mapped to inputs, or refused with the mapping to write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import skops.io
import xgboost
from sklearn.ensemble import RandomForestClassifier

from foretail.configs.schema.model_stages import ExportConfig
from foretail.core.errors import ForetailError
from foretail.features.dataset.reader import Dataset
from foretail.models.ensemble.ensemble import ColumnInput, Ensemble, FeatureInput
from foretail.models.ensemble.frontends import from_sklearn, from_xgboost
from foretail.pipelines.data.inputs import column_inputs, feature_inputs
from foretail.pipelines.exporting.predictor import given_model
from foretail.pipelines.settings.validation import typed
from foretail.sim_bridge.arrivals.workloads import Incast
from foretail.sim_bridge.open_loop.dataset import collect_slots
from tests.composed import composed

COLUMNS = ["queue length", "7-day.avg", "_a", "日時"]
INPUTS = tuple(ColumnInput(name, "", 6, column) for name, column in zip("abcd", COLUMNS, strict=True))
X = np.random.default_rng(1).integers(0, 64, (300, 4))
Y = X[:, 0] + X[:, 3] > 70


def trained(kind: str) -> tuple[Any, Callable[..., Ensemble]]:
    from sklearn.ensemble import RandomForestClassifier
    from xgboost import XGBClassifier

    table = pd.DataFrame(X, columns=COLUMNS)
    if kind == "xgboost":
        return XGBClassifier(n_estimators=3, max_depth=3, n_jobs=1).fit(table, Y), from_xgboost
    return RandomForestClassifier(3, max_depth=3, random_state=1).fit(table, Y), from_sklearn


@pytest.mark.parametrize("kind", ["xgboost", "scikit-learn"])
def test_columns_are_mapped_to_inputs(kind: str) -> None:
    model, read = trained(kind)
    ensemble = read(model, INPUTS)
    assert ensemble.features == tuple(FeatureInput(name, "", 6) for name in "abcd")
    assert np.array_equal(ensemble.exceeds(X), model.predict_proba(pd.DataFrame(X, columns=COLUMNS))[:, 1] > 0.5)
    with pytest.raises(ForetailError, match=r"declared order is 日時, _a, 7-day\.avg, queue length"):
        read(model, INPUTS[::-1])
    with pytest.raises(ForetailError, match=r"'queue length' is not declared: .* column: 'queue length', bits: 12}"):
        read(model, ensemble.features)
    with pytest.raises(ForetailError, match=r"'queue length' is not an identifier: .* column: 'queue length'"):
        read(model, [FeatureInput(name, "", 6) for name in COLUMNS])


def test_columns_are_not_mapped_where_the_model_names_none() -> None:
    from sklearn.ensemble import RandomForestClassifier

    with pytest.raises(ForetailError, match=r"does not name its columns: .* without column="):
        from_sklearn(RandomForestClassifier(2, random_state=1).fit(X, Y), INPUTS)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("columns") / "run"
    return collect_slots(folder, Incast(load=0.3, fan_in=5, background_load=0.8), ports=8, slots=2000, seed=1)


def test_a_frame_is_read_by_its_names(dataset: Dataset) -> None:
    """Also in another order, which would silently be other features."""
    frame = dataset.frame(["threshold", "shadow_queue", "lqd_drop"])
    forest = RandomForestClassifier(4, max_depth=4, random_state=1)
    forest.fit(frame[["threshold", "shadow_queue"]], frame["lqd_drop"].astype(int))
    ensemble = from_sklearn(forest, column_inputs(["threshold", "shadow_queue"], [dataset]))
    assert [item.name for item in ensemble.features] == ["threshold", "queue"]
    expected = ensemble.exceeds(frame[["threshold", "shadow_queue"]].to_numpy())
    assert 0 < expected.sum() < len(expected)
    for columns in (["shadow_queue", "threshold"], ["lqd_drop", "shadow_queue", "threshold"]):
        assert np.array_equal(ensemble.exceeds(frame[columns]), expected)
    renamed = frame.rename(columns={"shadow_queue": "queue"})
    assert np.array_equal(ensemble.exceeds(renamed), expected)
    with pytest.raises(ForetailError, match="the frame has no column queue: pass one column for each feature"):
        ensemble.exceeds(frame[["threshold"]])
    with pytest.raises(ForetailError, match="the frame has queue and shadow_queue: pass one"):
        ensemble.exceeds(frame.assign(queue=0))


@pytest.mark.parametrize("kind", ["skops", "xgboost", "lightgbm"])
def test_export_finds_the_columns_of_a_model_in_a_dataset(kind: str, dataset: Dataset, tmp_path: Path) -> None:
    """With their constants, so that the C is asked by a switch of these datasets."""
    frame = dataset.frame(["threshold", "shadow_queue", "lqd_drop"])
    x, y = frame[["threshold", "shadow_queue"]], frame["lqd_drop"].astype(int)
    if kind == "skops":
        skops.io.dump(RandomForestClassifier(3, max_depth=3, random_state=1).fit(x, y), tmp_path / "model")
    elif kind == "xgboost":
        xgboost.XGBClassifier(n_estimators=3, max_depth=3).fit(x, y).save_model(tmp_path / "model.json")
        (tmp_path / "model.json").rename(tmp_path / "model")
    else:
        lightgbm.LGBMClassifier(n_estimators=3, verbosity=-1).fit(x, y).booster_.save_model(tmp_path / "model")
    settings = (f"model={tmp_path / 'model'}", f"dataset={dataset.path}", "tracking=off", f"store_dir={tmp_path}")
    model = given_model(typed(composed("export", *settings), ExportConfig))
    assert isinstance(model, Ensemble)
    assert model.features == feature_inputs(["threshold", "queue"], [dataset])
    assert "cell_bytes=256" in model.features[1].params


def test_a_model_whose_columns_a_dataset_lacks_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    frame = dataset.frame(["threshold", "lqd_drop"]).rename(columns={"threshold": "limit"})
    forest = RandomForestClassifier(2, random_state=1).fit(frame[["limit"]], frame["lqd_drop"].astype(int))
    skops.io.dump(forest, tmp_path / "model.skops")
    skops.io.dump(RandomForestClassifier(2, random_state=1).fit(X, Y), tmp_path / "nameless.skops")
    for name, complaint in {
        "model": "trained on 'limit', which is no column of the dataset",
        "nameless": r"does not name its columns: give columns=\[NAME",
    }.items():
        settings = (
            f"model={tmp_path / name}.skops",
            f"dataset={dataset.path}",
            "tracking=off",
            f"store_dir={tmp_path}",
        )
        with pytest.raises(ForetailError, match=complaint):
            given_model(typed(composed("export", *settings), ExportConfig))
