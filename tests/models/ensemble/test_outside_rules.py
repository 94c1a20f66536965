"""Rules outside of a model's trees: honoured, or refused in one sentence that names them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import lightgbm
import numpy as np
import pytest
import skops.io
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from foretail.core.errors import ForetailError
from foretail.models.ensemble import model_files
from foretail.models.ensemble.ensemble import FeatureInput
from foretail.models.ensemble.frontends import from_estimator, from_sklearn, from_xgboost
from foretail.models.ensemble.model_files import load_model_file, read_foreign

TWO = (FeatureInput("queue", "", 6), FeatureInput("occupancy", "", 6))
RANDOM = np.random.default_rng(1)
X = RANDOM.integers(0, 64, (400, 2))
Y = (X[:, 0] + X[:, 1] > 70) | (X[:, 0] == 0)
EVERY = np.stack(np.meshgrid(np.arange(64), np.arange(64)), axis=-1).reshape(-1, 2)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "_read_apart", read_foreign)


def refused(read: Callable[[], object], complaint: str) -> None:
    with pytest.raises(ForetailError, match=complaint):
        read()


def forest(kind: type[RandomForestClassifier] = RandomForestClassifier) -> RandomForestClassifier:
    return kind(4, max_depth=4, random_state=1)


class Careful(RandomForestClassifier):  # type: ignore[misc]
    def predict(self, x: Any) -> Any:
        return self.predict_proba(x)[:, 1] > 0.9


class ZeroIsDrop(RandomForestClassifier):  # type: ignore[misc]
    def predict(self, x: Any) -> Any:
        return super().predict(x) | (np.asarray(x)[:, 0] == 0)


class OneRow(RandomForestClassifier):  # type: ignore[misc]
    def predict(self, x: Any) -> Any:
        return super().predict(x) ^ np.all(np.asarray(x) == X[200], axis=1)


class Broken(RandomForestClassifier):  # type: ignore[misc]
    def predict(self, x: Any) -> Any:
        raise ValueError("no")


@pytest.mark.parametrize("kind", [Careful, ZeroIsDrop])
def test_an_estimator_that_decides_otherwise_than_its_trees_is_refused(kind: type[RandomForestClassifier]) -> None:
    refused(lambda: from_sklearn(forest(kind).fit(X, X.sum(1) > 70), TWO), f"the {kind.__name__} .* where its trees")
    from_sklearn(forest().fit(X, Y), TWO)


def test_rows_of_data_are_compared(tmp_path: Path) -> None:
    model = forest(OneRow).fit(X, Y)
    wide = [replace(feature, bits=20) for feature in TWO]
    from_sklearn(model, wide)
    joblib.dump(model, tmp_path / "model")  # noqa: TID251  # what users bring
    for read in (
        lambda: from_sklearn(model, wide, rows=X),
        lambda: load_model_file(tmp_path / "model", wide, allow_pickle=True, rows=X),
    ):
        refused(read, f"the OneRow .* at {{'queue': {X[200, 0]}, 'occupancy': {X[200, 1]}}} where its trees")


def test_an_estimator_that_cannot_predict_is_refused() -> None:
    refused(lambda: from_sklearn(forest(Broken).fit(X, Y), TWO), r"the Broken cannot predict \(ValueError\)")


def test_an_xgboost_classifier_that_decides_otherwise_than_its_trees_is_refused() -> None:
    import xgboost

    class Late(xgboost.XGBClassifier):
        def predict(self, x: Any, **settings: Any) -> Any:
            return self.predict_proba(x)[:, 1] > 0.9

    refused(lambda: from_xgboost(Late(n_estimators=4, n_jobs=1).fit(X, Y), TWO), "the Late accepts at .* trees drop")
    wide = [FeatureInput("queue", "", 26), TWO[1]]
    model = xgboost.XGBClassifier(n_estimators=2, n_jobs=1, missing=1 << 25).fit(X, Y)
    refused(lambda: from_xgboost(model, wide), "takes missing=3.35544e[+]07 for a missing value")


@pytest.mark.parametrize(
    ("wrap", "complaint"),
    [
        (CalibratedClassifierCV, "CalibratedClassifierCV calibrates probabilities, a rule outside"),
        (FixedThresholdClassifier, "FixedThresholdClassifier decides at a threshold of its own.* estimator_"),
        (TunedThresholdClassifierCV, "TunedThresholdClassifierCV decides at a threshold of its own"),
        (lambda one: GridSearchCV(one, {"max_depth": [2]}), "GridSearchCV is a search: give its best_estimator_"),
        (lambda one: make_pipeline(StandardScaler(), one), "Pipeline changes its inputs"),
    ],
)
def test_wrappers_are_refused_by_what_they_do(wrap: Callable[[Any], Any], complaint: str, tmp_path: Path) -> None:
    model = wrap(forest()).fit(X, Y)
    refused(lambda: from_sklearn(model, TWO), complaint)
    joblib.dump(model, tmp_path / "model")  # noqa: TID251  # what users bring
    refused(lambda: load_model_file(tmp_path / "model", TWO, allow_pickle=True), complaint)


def boosted(names: Any = "auto", labels: Any = Y, **settings: Any) -> lightgbm.Booster:
    settings = {
        "objective": "binary",
        "num_leaves": 8,
        "min_data_in_leaf": 1,
        "verbose": -1,
        "num_threads": 1,
    } | settings
    return lightgbm.train(settings, lightgbm.Dataset(X.astype(float), labels, feature_name=names), 6)


@pytest.mark.parametrize("settings", [{}, {"boosting": "dart"}, {"objective": "cross_entropy"}, {"use_missing": False}])
@pytest.mark.parametrize("names", ["auto", ["queue", "occupancy"]])
def test_a_lightgbm_text_decides_as_its_booster(settings: dict[str, Any], names: Any, tmp_path: Path) -> None:
    booster = boosted(names, **settings)
    booster.save_model(tmp_path / "model.json")
    ensemble = load_model_file(tmp_path / "model.json", TWO)
    own = np.asarray(booster.predict(EVERY.astype(float)))
    assert np.allclose(ensemble.probability(EVERY), own, rtol=0, atol=1e-12)
    assert np.array_equal(ensemble.exceeds(EVERY), own > 0.5)
    whole = (tmp_path / "model.json").read_text()
    (tmp_path / "model.json").write_text(whole[: whole.index("leaf_value=") + 20])
    refused(lambda: load_model_file(tmp_path / "model.json", TWO), "LightGBM model")


def test_a_lightgbm_text_without_one_of_its_trees_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    boosted().save_model(path)
    text = path.read_text()
    start, end = text.index("Tree=2"), text.index("Tree=3")
    for changed in (text[:start] + text[end:], text.replace("shrinkage=", "shrinkage=0", 1)):
        path.write_text(changed)
        refused(lambda: load_model_file(path, TWO), "trees that are not the 6 of its tree_sizes, or were changed: save")


def test_lightgbm_with_labels_of_its_own_is_refused() -> None:
    model = lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, np.where(Y, "drop", "keep"))
    refused(lambda: from_estimator(model, TWO), r"tells 2 classes apart \('drop', 'keep'\): train it on labels 0")


def test_lightgbm_that_takes_zeros_for_missing_values_is_refused(tmp_path: Path) -> None:
    import treelite

    path, checkpoint = tmp_path / "model.txt", tmp_path / "checkpoint"
    for settings, complaint in (({"zero_as_missing": True}, "takes zeros for missing values"), ({}, "")):
        booster = boosted(**settings)
        booster.save_model(path)
        checkpoint.write_bytes(treelite.frontend.from_lightgbm(booster).serialize_bytes())
        if complaint:
            refused(lambda: load_model_file(path, TWO), complaint)
        else:
            load_model_file(path, TWO)
        refused(lambda: load_model_file(checkpoint, TWO), "does not say whether zeros are missing .* own text model")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"boosting": "rf", "bagging_fraction": 0.5, "bagging_freq": 1}, "averages logits, as LightGBM's boosting=rf"),
        ({"sigmoid": 2}, "LightGBM's sigmoid=2: train it with sigmoid=1"),
        ({"linear_tree": True}, "linear trees"),
        ({"objective": "regression"}, "not a binary classifier"),
        ({"names": ["occupancy", "queue"]}, "the declared order is queue, occupancy"),
    ],
)
def test_lightgbm_of_another_kind_is_refused_by_what_it_is(
    settings: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    boosted(**settings).save_model(tmp_path / "model.txt")
    refused(lambda: load_model_file(tmp_path / "model.txt", TWO), complaint)


def test_models_of_two_labels_are_refused_by_what_they_are(tmp_path: Path) -> None:
    import xgboost

    both = np.stack([Y, ~Y], axis=1)
    model = xgboost.XGBClassifier(n_estimators=2, n_jobs=1).fit(X, both)
    model.save_model(tmp_path / "model.json")
    complaint = "has several outputs, 2 labels: train it on one column"
    refused(lambda: load_model_file(tmp_path / "model.json", TWO), complaint)
    refused(lambda: from_sklearn(forest().fit(X, both), TWO), complaint)


def test_a_lightgbm_text_that_an_editor_changed_is_refused_or_read(tmp_path: Path) -> None:
    text = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1).fit(X, Y).booster_.model_to_string().encode()
    file = tmp_path / "model.txt"
    for changed in (b"\xef\xbb\xbf" + text, text.replace(b"\n", b"\r")):
        file.write_bytes(changed)
        refused(lambda: load_model_file(file, TWO), "is a LightGBM text that an editor has changed")
    file.write_bytes(text.replace(b"\n", b"\r\n"))
    assert len(load_model_file(file, TWO).trees) == 3


@pytest.mark.parametrize("changed", [X + 500, X / 3000.0 - 2])
def test_a_model_without_a_split_that_both_sides_of_are_reached_is_refused(tmp_path: Path, changed: Any) -> None:
    skops.io.dump(forest().fit(changed, Y), tmp_path / "model")
    refused(lambda: load_model_file(tmp_path / "model", TWO), "no split of .* can be reached on both sides")
