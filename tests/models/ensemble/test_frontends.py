"""Trained classifiers of other frameworks: the ensemble sums and decides as they do, or they are refused.

Rules outside of a model's trees are honoured, or refused in one sentence that names them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import joblib
import lightgbm
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import skops.io
import treelite
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from treelite.model_builder import Metadata, ModelBuilder, PostProcessorFunc, TreeAnnotation

from foretail.core.errors import ForetailError
from foretail.models.ensemble import model_files
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.frontends import from_estimator, from_lightgbm, from_sklearn, from_treelite, from_xgboost
from foretail.models.ensemble.model_files import load_model_file, read_foreign
from foretail.models.ensemble.rounding import framework_drops, framework_sum, rounding_bound
from tests.examples import draws
from tests.forests import CLASSIFIERS, classified, read, untrained
from tests.refusals import refusing

TWO = (FeatureInput("queue", "", 10), FeatureInput("occupancy", "", 10))


def _rows(count: int = 200, features: int = 2, seed: int = 1) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    random = np.random.default_rng(seed)
    x = random.integers(0, 1 << 10, (count, features))
    return x, x[:, 0] + random.integers(0, 400, count) > 800


def _own_sum(model: Any, x: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    if isinstance(model, xgboost.XGBModel):
        # XGBClassifier.predict would add and subtract the base around every leaf of DART
        margin: npt.NDArray[np.float32] = model.get_booster().predict(xgboost.DMatrix(x), output_margin=True)
        return margin
    own: npt.NDArray[np.float64]
    own = model.decision_function(x) if hasattr(model, "decision_function") else model.predict_proba(x)[:, 1]
    return own


def _exact_sums(ensemble: Ensemble, x: npt.NDArray[np.int64]) -> list[Fraction]:
    leaves = [tree.value[tree.leaf(x)].tolist() for tree in ensemble.trees]
    return [Fraction(ensemble.base) + sum(map(Fraction, row)) for row in zip(*leaves, strict=True)]


@pytest.mark.parametrize("kind", CLASSIFIERS)
@settings(max_examples=draws(25))
@given(data=st.data())
def test_the_ensemble_sums_to_the_last_bit_and_decides_up_to_rounding_as_its_framework(
    kind: str, data: st.DataObject
) -> None:
    model, ensemble, rows = data.draw(classified(kind))
    total, own = framework_sum(ensemble, rows), _own_sum(model, rows)
    assert np.array_equal(total / len(ensemble.trees) if ensemble.output == "mean_probability" else total, own)
    exact, bound = _exact_sums(ensemble, rows), Fraction(rounding_bound(ensemble))
    drops = ensemble.exceeds(rows)
    assert drops.tolist() == [s > ensemble.threshold for s in exact]
    assert all(abs(Fraction(t) - s) <= bound for t, s in zip(total.tolist(), exact, strict=True))
    close = np.array([abs(s - ensemble.threshold) <= bound for s in exact])
    probability = model.predict_proba(rows)[:, 1]
    for decides in (probability > 0.5, framework_drops(ensemble, rows)):
        assert np.array_equal(drops[~close], decides[~close])
    if kind != "gradient_boosting":  # whose `predict` drops at a logit of exactly 0
        assert np.array_equal(drops[~close], model.predict(rows)[~close])


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_the_range_of_a_feature_drops_branches_and_nothing_else(kind: str) -> None:
    x, y = _rows(400)
    model = untrained(kind, trees=4, depth=4).fit(x, y)
    wide, narrow = read(model, TWO), read(model, [FeatureInput("queue", "", 9), FeatureInput("occupancy", "", 3)])
    assert sum(len(tree.value) for tree in narrow.trees) < sum(len(tree.value) for tree in wide.trees)
    assert "beyond_bits" not in wide.origin
    assert "queue" in str(narrow.origin["beyond_bits"])
    inside = np.random.default_rng(2).integers(0, [512, 8], (2000, 2))
    assert _exact_sums(wide, inside) == _exact_sums(narrow, inside)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_thresholds_of_scaled_columns_are_named(kind: str) -> None:
    x, y = _rows(400)
    scaled = (x - x.mean(axis=0)) / (3.7 * x.std(axis=0))
    assert "fractions" not in read(untrained(kind, trees=4, depth=4).fit(x, y), TWO).origin
    assert read(untrained(kind, trees=4, depth=4).fit(scaled, y), TWO).origin["fractions"]


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("at", [(1 << 24) - 3, 1 << 24, (1 << 24) + 5, (1 << 31) - 65, 1 << 31, (1 << 32) - 600])
def test_the_cut_of_a_wide_feature_is_where_the_framework_rounds_to_the_other_side(kind: str, at: int) -> None:
    x = np.array([[at - 2000], [at]] * 20) + np.arange(40)[:, np.newaxis] % 7
    y = np.arange(40) % 2 == 1
    settings: dict[str, Any] = {"base_score": 0.5} if kind.startswith("xgboost") else {}
    model = untrained(kind, trees=1, depth=1, rate=1.0, **settings).fit(x, y)
    ensemble = read(model, [FeatureInput("time", "", 32)])
    every = np.arange(at - 2100, min(at + 2100, 1 << 32))[:, np.newaxis]
    assert np.array_equal(ensemble.exceeds(every), model.predict_proba(every)[:, 1] > 0.5)
    assert 0 < np.count_nonzero(ensemble.exceeds(every)) < len(every)


def test_a_forest_keeps_the_probabilities_that_treelite_would_round_anew() -> None:
    x, y = _rows(400)
    forest = RandomForestClassifier(8, max_depth=4, class_weight="balanced_subsample", random_state=1).fit(x, y)
    own = np.concatenate([tree.tree_.value[tree.tree_.children_left < 0, 0, 1] for tree in forest.estimators_])
    rounded = from_treelite(treelite.sklearn.import_model(forest), TWO)
    ours = np.concatenate([tree.value[tree.leaves] for tree in from_sklearn(forest, TWO).trees])
    assert np.array_equal(ours, own)
    assert not np.array_equal(np.concatenate([tree.value[tree.leaves] for tree in rounded.trees]), own)


def test_visits_are_the_training_rows_where_the_framework_counts_them() -> None:
    random = np.random.default_rng(0)
    x = random.integers(0, 200, (300, 2))
    features = [FeatureInput(name, "", 8) for name in ("a", "b")]
    for kind in ("random_forest", "gradient_boosting", "histogram_boosting", "xgboost"):
        model = untrained(kind, 2, 3, 0.3, 1).fit(x, x.sum(axis=1) > 200)
        for index, tree in enumerate(read(model, features).trees):
            if kind == "xgboost":  # which sums Hessians
                assert tree.visits is None
                continue
            assert tree.visits is not None
            if kind == "random_forest":
                own = model.estimators_[index].tree_
                assert tree.visits[tree.leaves].tolist() == own.n_node_samples[own.children_left < 0].tolist()
            else:
                counted = read(model, features).with_visits([x]).trees[index].visits
                assert counted is not None
                assert tree.visits.tolist() == counted.tolist()


def test_an_early_stopped_classifier_is_read_as_it_predicts_and_its_booster_is_refused() -> None:
    x, y = _rows(400)
    model = xgboost.XGBClassifier(n_estimators=50, max_depth=2, early_stopping_rounds=2, n_jobs=1)
    model.fit(x[:200], y[:200], eval_set=[(x[200:], ~y[200:])], verbose=False)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    ensemble = from_xgboost(model, TWO)
    assert len(ensemble.trees) == model.best_iteration + 1
    assert np.array_equal(framework_sum(ensemble, x), model.predict(x, output_margin=True))
    with pytest.raises(ForetailError, match="stopped early"):
        from_xgboost(model.get_booster(), TWO)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("gradient_boosting", {"n_iter_no_change": 2}),
        ("histogram_boosting", {"early_stopping": True, "n_iter_no_change": 2}),
    ],
)
def test_boosting_that_stopped_early_is_read_as_far_as_it_went(kind: str, settings: dict[str, Any]) -> None:
    x, y = _rows(600)
    model = untrained(kind, trees=200, **settings).fit(x, y)
    ensemble = from_sklearn(model, TWO)
    assert 1 < len(ensemble.trees) < 200
    assert np.array_equal(framework_sum(ensemble, x), model.decision_function(x))


def test_names_that_the_model_knows_are_compared() -> None:
    x, y = _rows()
    table = pd.DataFrame(x, columns=["queue", "occupancy"])
    named = RandomForestClassifier(2, max_depth=2, random_state=1).fit(table, y)
    booster = xgboost.train(
        {"objective": "binary:logistic"}, xgboost.DMatrix(x, y, feature_names=["queue", "occupancy"]), 2
    )
    for read_one, model in ((from_sklearn, named), (from_xgboost, booster)):
        assert [f.name for f in read_one(model, TWO).features] == ["queue", "occupancy"]
        with pytest.raises(ForetailError, match="the declared order is occupancy, queue"):
            read_one(model, TWO[::-1])
        with pytest.raises(ForetailError, match="'occupancy' is not declared"):
            read_one(model, [TWO[0], FeatureInput("ports", "", 4)])


def _made(kind: str, *given: Any, **settings: Any) -> Any:
    """Return an estimator of the class of this name; the packages load only where a test needs them."""
    places = map(importlib.import_module, ("sklearn.ensemble", "sklearn.tree", "sklearn.linear_model", "xgboost"))
    return next(getattr(place, kind) for place in places if hasattr(place, kind))(*given, **settings)


def test_a_value_that_counts_as_missing_is_refused() -> None:
    x, y = np.arange(40).reshape(-1, 2), np.arange(20) % 3 == 0
    for missing in (0, 7.0):
        model = xgboost.XGBClassifier(n_estimators=2, max_depth=2, missing=missing, n_jobs=1).fit(x, y)
        with pytest.raises(ForetailError, match=f"takes missing={missing:g} for a missing value, a rule outside"):
            from_xgboost(model, TWO)
    for missing in (np.nan, -1):
        from_xgboost(xgboost.XGBClassifier(n_estimators=2, missing=missing, n_jobs=1).fit(x, y), TWO)
    wide = xgboost.XGBClassifier(n_estimators=2, n_jobs=1, missing=1 << 25).fit(x, y)
    with pytest.raises(ForetailError, match=r"takes missing=3.35544e[+]07 for a missing value"):
        from_xgboost(wide, [replace(TWO[0], bits=26), TWO[1]])


def _booster(x: Any, y: Any, rounds: int = 2, data: dict[str, Any] | None = None, **settings: Any) -> xgboost.Booster:
    return xgboost.train({"max_depth": 2, **settings}, xgboost.DMatrix(x, label=y, **(data or {})), rounds)


def _linear(x: Any, y: Any) -> xgboost.Booster:
    return xgboost.train({"objective": "binary:logistic", "booster": "gblinear"}, xgboost.DMatrix(x, label=y), 2)


def _boosted(
    operator: str, thresholds: list[float], base: float = 0.25, leaves: tuple[float, float] = (-1.5, 0.5), **meta: Any
) -> treelite.Model:
    """One stump per threshold: leaves[0] where x `operator` threshold, else leaves[1]."""
    given = {"task_type": "kBinaryClf", "link": "sigmoid", "average": False, "dtype": "float32", **meta}
    builder: Any = ModelBuilder(
        threshold_type=given["dtype"],
        leaf_output_type=given["dtype"],
        metadata=Metadata(1, given["task_type"], given["average"], 1, [1], (1, 1)),
        tree_annotation=TreeAnnotation(len(thresholds), [0] * len(thresholds), [0] * len(thresholds)),
        postprocessor=PostProcessorFunc(given["link"]),
        base_scores=[0.0],
    )
    for threshold in thresholds:
        builder.start_tree()
        builder.start_node(0)
        builder.numerical_test(0, threshold, default_left=True, opname=operator, left_child_key=2, right_child_key=1)
        builder.end_node()
        for key, value in ((1, leaves[1]), (2, leaves[0])):
            builder.start_node(key)
            builder.leaf(value)
            builder.end_node()
        builder.end_tree()
    model: treelite.Model = builder.commit()
    model.get_header_accessor().set_field("base_scores", np.array([base]))  # the builder takes finite ones only
    return model


NARROW = [FeatureInput("a", "", 4)]


@pytest.mark.parametrize("operator", ["<", "<="])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "threshold", [2.5, 3.0, 7.25, 2.9999998, 3.0000002, 0.0, -0.0, -1.0, 1e-30, 14.0, 15.0, 15.5, 16.0, 1e30, -1e30]
)
def test_splits_are_read_with_either_comparison_wherever_they_lie(operator: str, dtype: str, threshold: float) -> None:
    model = _boosted(operator, [threshold, 5.0], dtype=dtype)
    ensemble = from_treelite(model, NARROW)
    x = np.arange(16)[:, np.newaxis]
    margin = treelite.gtil.predict(model, x.astype(dtype), pred_margin=True).ravel()
    assert np.array_equal(framework_sum(ensemble, x), margin)
    assert np.array_equal(ensemble.exceeds(x), margin > 0)
    assert ensemble.origin["arithmetic"] == dtype


Training = Callable[[npt.NDArray[np.int64], npt.NDArray[Any]], object]
FORESTS: tuple[tuple[Training, str], ...] = (
    (lambda x, y: _made("RandomForestRegressor", 2).fit(x, y), "RandomForestRegressor is not a classifier"),
    (lambda x, y: _made("LogisticRegression").fit(x > 512, y), "LogisticRegression is not a classifier"),
    (lambda x, y: "forest.skops", "str is not a classifier"),
    (lambda x, y: _made("RandomForestClassifier"), "not trained"),
    (lambda x, y: _made("RandomForestClassifier", 2).fit(x, x[:, 0] % 3), "3 classes apart"),
    (lambda x, y: _made("DecisionTreeClassifier").fit(x, y & False), "1 classes apart"),
    (lambda x, y: _made("RandomForestClassifier", 2).fit(x, np.where(y, "drop", "accept")), "'accept', 'drop'"),
    (lambda x, y: _made("RandomForestClassifier", 2).fit(x, np.stack([y, y], 1)), "several outputs"),
    (lambda x, y: untrained("gradient_boosting", loss="exponential").fit(x, y), "'exponential'"),
    (lambda x, y: untrained("gradient_boosting", init=_made("DecisionTreeClassifier")).fit(x, y), "own init"),
    (lambda x, y: untrained("histogram_boosting", categorical_features=[0]).fit(x % 8, y), "categorical features"),
    (lambda x, y: _made("RandomForestClassifier", 2).fit(x[:, :1], y), "trained on 1 features"),
)
CATEGORIES = {"feature_types": ["c", "q"], "enable_categorical": True}
BOOSTERS: tuple[tuple[Training, str], ...] = (
    *((lambda x, y, kind=kind: _booster(x, y, objective=kind), kind) for kind in ("reg:squarederror", "reg:logistic")),
    *((lambda x, y, kind=kind: _booster(x, y, objective=kind), kind) for kind in ("rank:pairwise", "binary:hinge")),
    (lambda x, y: _booster(x, y, objective="binary:logitraw"), "binary:logitraw"),
    (lambda x, y: _booster(x, x[:, 0] % 3, objective="multi:softprob", num_class=3), "multi:softprob"),
    (_linear, "gblinear"),
    (lambda x, y: _made("XGBRegressor", n_estimators=1).fit(x, y), "XGBRegressor is not a classifier"),
    (lambda x, y: _made("XGBClassifier"), "not trained"),
    (lambda x, y: _booster(x, y, rounds=0, objective="binary:logistic"), "no trees"),
    (lambda x, y: _booster(x % 8, y, data=CATEGORIES, objective="binary:logistic"), "categorical splits"),
    (lambda x, y: _booster(x[:, :1], y, objective="binary:logistic"), "trained on 1 features, but 2"),
)
FEATURES: tuple[tuple[FeatureInput, str], ...] = (
    *((FeatureInput(name, "", 10), "not an identifier") for name in ('queue"; system("x");//', "", "7up", "queue\n")),
    (FeatureInput("q" * 64, "", 10), "not an identifier"),
    (FeatureInput("queue", "", None), "has no range"),  # type: ignore[arg-type]
    (FeatureInput("queue", "", 0), "has no range"),
    (FeatureInput("queue", "", 33), "has no range"),
    (FeatureInput("queue", 'a"b', 10), "params"),
    (FeatureInput("occupancy", "", 10), "twice"),
)


def _stumps(operator: str, threshold: float = 2.5, **settings: Any) -> Ensemble:
    return from_treelite(_boosted(operator, [threshold], **settings), NARROW)


def _malformed(name: str, values: list[int]) -> Ensemble:
    model = _boosted("<", [2.5])
    model.get_tree_accessor(0).set_field(name, np.array(values, np.int32))
    return from_treelite(model, NARROW)


test_what_cannot_be_is_refused = refusing(
    *((lambda train=train: from_sklearn(train(*_rows()), TWO), words) for train, words in FORESTS),
    *((lambda train=train: from_xgboost(train(*_rows()), TWO), words) for train, words in BOOSTERS),
    *(
        (lambda one=one: from_sklearn(untrained("random_forest").fit(*_rows()), [one, TWO[1]]), words)
        for one, words in FEATURES
    ),
    (lambda: _stumps(">"), "other than x < t"),
    (lambda: _stumps("<", float("inf")), "threshold that is not finite"),
    (lambda: _stumps("<=", float("nan")), "threshold that is not finite"),
    (lambda: _stumps("<=", leaves=(float("nan"), 1.0)), "leaf that is not finite"),
    (lambda: _stumps("<=", leaves=(float("inf"), 1.0)), "leaf that is not finite"),
    (lambda: _stumps("<=", base=float("inf")), "base score that is not finite"),
    (lambda: _stumps("<", link="identity", task_type="kRegressor"), "not a binary classifier"),
    (lambda: _stumps("<", task_type="kRegressor"), "not a binary classifier"),
    (lambda: _stumps("<", average=True), "averages logits, as LightGBM's boosting=rf"),
    (lambda: _malformed("cleft", [0, -1, -1]), "malformed tree"),
    (lambda: _malformed("cleft", [1, -1, -1]), "malformed tree"),
    (lambda: _malformed("cright", [7, -1, -1]), "malformed tree"),
    (lambda: _malformed("cright", [-1, -1, -1]), "malformed tree"),
    (lambda: _malformed("split_index", [3, -1, -1]), "malformed tree"),
)


SIX_BITS = (FeatureInput("queue", "", 6), FeatureInput("occupancy", "", 6))
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


def test_rows_of_data_are_compared(tmp_path: Path) -> None:
    model = forest(OneRow).fit(X, Y)
    wide = [replace(feature, bits=20) for feature in SIX_BITS]
    from_sklearn(model, wide)
    joblib.dump(model, tmp_path / "model")  # noqa: TID251  # what users bring
    for read_rows in (
        lambda: from_sklearn(model, wide, rows=X),
        lambda: load_model_file(tmp_path / "model", wide, allow_pickle=True, rows=X),
    ):
        refused(read_rows, f"the OneRow .* at {{'queue': {X[200, 0]}, 'occupancy': {X[200, 1]}}} where its trees")


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
    ensemble = load_model_file(tmp_path / "model.json", SIX_BITS)
    own = np.asarray(booster.predict(EVERY.astype(float)))
    assert np.allclose(ensemble.probability(EVERY), own, rtol=0, atol=1e-12)
    assert np.array_equal(ensemble.exceeds(EVERY), own > 0.5)
    whole = (tmp_path / "model.json").read_text()
    (tmp_path / "model.json").write_text(whole[: whole.index("leaf_value=") + 20])
    refused(lambda: load_model_file(tmp_path / "model.json", SIX_BITS), "LightGBM model")


def test_a_lightgbm_text_without_one_of_its_trees_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    boosted().save_model(path)
    text = path.read_text()
    start, end = text.index("Tree=2"), text.index("Tree=3")
    for changed in (text[:start] + text[end:], text.replace("shrinkage=", "shrinkage=0", 1)):
        path.write_text(changed)
        refused(
            lambda: load_model_file(path, SIX_BITS), "trees that are not the 6 of its tree_sizes, or were changed: save"
        )


def test_lightgbm_that_takes_zeros_for_missing_values_is_refused(tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "model.txt", tmp_path / "checkpoint"
    for more, complaint in (({"zero_as_missing": True}, "takes zeros for missing values"), ({}, "")):
        booster = boosted(**more)
        booster.save_model(path)
        checkpoint.write_bytes(treelite.frontend.from_lightgbm(booster).serialize_bytes())
        if complaint:
            refused(lambda: load_model_file(path, SIX_BITS), complaint)
        else:
            load_model_file(path, SIX_BITS)
        refused(
            lambda: load_model_file(checkpoint, SIX_BITS), "does not say whether zeros are missing .* own text model"
        )


def test_a_lightgbm_text_that_an_editor_changed_is_refused_or_read(tmp_path: Path) -> None:
    text = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1).fit(X, Y).booster_.model_to_string().encode()
    file = tmp_path / "model.txt"
    for changed in (b"\xef\xbb\xbf" + text, text.replace(b"\n", b"\r")):
        file.write_bytes(changed)
        refused(lambda: load_model_file(file, SIX_BITS), "is a LightGBM text that an editor has changed")
    file.write_bytes(text.replace(b"[max_delta_step: 0]", b"[max_delta_step: nan]"))
    refused(lambda: from_lightgbm(file, SIX_BITS), "LightGBM itself refuses the model")
    file.write_bytes(text.replace(b"\n", b"\r\n"))
    assert len(load_model_file(file, SIX_BITS).trees) == 3


def late() -> xgboost.XGBClassifier:
    class Late(xgboost.XGBClassifier):
        def predict(self, x: Any, **settings: Any) -> Any:
            return self.predict_proba(x)[:, 1] > 0.9

    return Late(n_estimators=4, n_jobs=1).fit(X, Y)


def of_two_labels(folder: Path) -> object:
    xgboost.XGBClassifier(n_estimators=2, n_jobs=1).fit(X, np.stack([Y, ~Y], axis=1)).save_model(folder / "model.json")
    return load_model_file(folder / "model.json", SIX_BITS)


def pickled(folder: Path, model: Any) -> object:
    joblib.dump(model, folder / "model")  # noqa: TID251  # what users bring
    return load_model_file(folder / "model", SIX_BITS, allow_pickle=True)


def text_of(folder: Path, **settings: Any) -> object:
    boosted(**settings).save_model(folder / "model.txt")
    return load_model_file(folder / "model.txt", SIX_BITS)


def without_a_split(folder: Path, rows: Any) -> object:
    skops.io.dump(forest().fit(rows, Y), folder / "model")
    return load_model_file(folder / "model", SIX_BITS)


NAMED_LABELS = np.where(Y, "drop", "keep")
WRAPPERS: tuple[tuple[Callable[[Any], Any], str], ...] = (
    (CalibratedClassifierCV, "CalibratedClassifierCV calibrates probabilities, a rule outside"),
    (FixedThresholdClassifier, "FixedThresholdClassifier decides at a threshold of its own.* estimator_"),
    (TunedThresholdClassifierCV, "TunedThresholdClassifierCV decides at a threshold of its own"),
    (lambda one: GridSearchCV(one, {"max_depth": [2]}), "GridSearchCV is a search: give its best_estimator_"),
    (lambda one: make_pipeline(StandardScaler(), one), "Pipeline changes its inputs"),
)
TEXTS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"boosting": "rf", "bagging_fraction": 0.5, "bagging_freq": 1}, "averages logits, as LightGBM's boosting=rf"),
    ({"sigmoid": 2}, "LightGBM's sigmoid=2: train it with sigmoid=1"),
    ({"linear_tree": True}, "linear trees"),
    ({"objective": "regression"}, "not a binary classifier"),
    ({"names": ["occupancy", "queue"]}, "the declared order is queue, occupancy"),
)
test_rules_outside_of_the_trees_are_refused = refusing(
    *(
        (lambda kind=kind: from_sklearn(forest(kind).fit(X, X.sum(1) > 70), SIX_BITS), f"{kind.__name__} .* its trees")
        for kind in (Careful, ZeroIsDrop)
    ),
    (lambda: from_sklearn(forest(Broken).fit(X, Y), SIX_BITS), r"the Broken cannot predict \(ValueError\)"),
    (lambda: from_xgboost(late(), SIX_BITS), "the Late accepts at .* trees drop"),
    *((lambda wrap=wrap: from_sklearn(wrap(forest()).fit(X, Y), SIX_BITS), words) for wrap, words in WRAPPERS),
    *((lambda folder, wrap=wrap: pickled(folder, wrap(forest()).fit(X, Y)), words) for wrap, words in WRAPPERS),
    *((lambda folder, given=given: text_of(folder, **given), words) for given, words in TEXTS),
    (
        lambda: from_estimator(lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, NAMED_LABELS), SIX_BITS),
        r"tells 2 classes apart \('drop', 'keep'\): train it on labels 0",
    ),
    (of_two_labels, "has several outputs, 2 labels: train it on one column"),
    *(
        (lambda folder, rows=rows: without_a_split(folder, rows), "no split of .* can be reached on both sides")
        for rows in (X + 500, X / 3000.0 - 2)
    ),
)
