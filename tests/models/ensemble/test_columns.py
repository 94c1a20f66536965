"""Columns of training whose names are no identifiers: mapped to inputs, or refused with the mapping to write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretail.configs.schema.model_stages import ExportConfig
from foretail.core.errors import ForetailError
from foretail.models.ensemble.ensemble import ColumnInput, Ensemble, FeatureInput
from foretail.models.ensemble.frontends import from_sklearn, from_xgboost
from foretail.models.ensemble.model_files import load_model_file
from foretail.pipelines.exporting.predictor import declared_inputs
from foretail.pipelines.settings.validation import typed
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


@pytest.mark.nightly
def test_the_settings_map_columns_of_a_file(tmp_path: Path) -> None:
    model, read = trained("xgboost")
    model.save_model(tmp_path / "model.json")
    inputs = ",".join(f"{{name: {item.name}, column: '{item.column}', bits: 6}}" for item in INPUTS)
    config = typed(composed("export", f"inputs=[{inputs}]"), ExportConfig)
    assert declared_inputs(config) == INPUTS
    loaded = load_model_file(tmp_path / "model.json", declared_inputs(config))
    assert loaded.features == read(model, INPUTS).features
    assert np.array_equal(loaded.exceeds(X), read(model, INPUTS).exceeds(X))
