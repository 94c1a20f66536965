"""Trees as a scorer decide as the exact sums of the ensemble do, on both sides of every cut. Some seconds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import skops.io
import xgboost
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from foretail.configs.schema.model_stages import ExportConfig
from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES, STUDY_FEATURES
from foretail.features.dataset.reader import Dataset
from foretail.models.ensemble.ensemble import ColumnInput, Ensemble, FeatureInput
from foretail.models.ensemble.frontends import from_sklearn, from_xgboost
from foretail.models.ensemble.scorers import POLICY, NobodyDecides, asking_policy, decides_in_replay, scorer_of
from foretail.pipelines.data.inputs import column_inputs, feature_inputs
from foretail.pipelines.exporting.predictor import given_model
from foretail.sim_bridge.arrivals.workloads import Incast
from foretail.sim_bridge.open_loop.dataset import collect_slots
from tests.composed import stage_settings
from tests.forests import Trained, classified, forests, stump
from tests.strategies import small_ensembles

pytestmark = pytest.mark.slow

CATALOG = [feature.name for feature in FEATURES]
WIDE = [feature.name for feature in FEATURES if feature.bits == 24]
READ = ("queue", "first_rtt", "message_left", "until_circuit")


def renamed(ensemble: Ensemble, names: list[str]) -> Ensemble:
    """The same trees on features of the catalog."""
    features = tuple(dataclasses.replace(item, name=name) for item, name in zip(ensemble.features, names, strict=False))
    return dataclasses.replace(ensemble, features=features)


def margins(ensemble: Ensemble, rows: NDArray[np.int64], others: int = 0) -> NDArray[np.int64]:
    """Margins of rows of the ensemble's own features; every other feature of the catalog is `others`."""
    whole = np.full((len(rows), len(CATALOG)), others, np.int32)
    for place, item in enumerate(ensemble.features):
        whole[:, CATALOG.index(item.name)] = rows[:, place]
    found: NDArray[np.int64] = scorer_of(ensemble).margins(whole)
    return found


def slow_sum(ensemble: Ensemble, row: list[int]) -> Fraction:
    """The exact sum of a row, node by node."""
    total = Fraction(ensemble.base)
    for tree in ensemble.trees:
        node = 0
        while tree.feature[node] >= 0:
            goes_left = row[tree.feature[node]] <= tree.cut[node]
            node = int((tree.left if goes_left else tree.right)[node])
        total += Fraction(float(tree.value[node]))
    return total


@given(
    ensemble=small_ensembles(READ, highest_cut=0),
    other=st.integers(0, 255),
    rows=st.lists(st.tuples(*[st.integers(0, 1)] * 4), min_size=1),
)
def test_small_trees_have_the_margin_of_their_sum(
    ensemble: Ensemble, other: int, rows: list[tuple[int, int, int, int]]
) -> None:
    """Leaves are quarters at most, and a threshold beyond all sums is moved next to them."""
    found = margins(ensemble, np.array(rows), other)
    unit = 1 << ensemble.scale_bits
    leaves = [tree.value[tree.leaves] * unit for tree in ensemble.trees]
    floor = min(math.floor(ensemble.threshold * unit), int(sum(values.max() for values in leaves)))
    floor = max(floor, int(sum(values.min() for values in leaves)) - 1)
    assert found.tolist() == [slow_sum(ensemble, list(row)) * unit - floor for row in rows]
    assert (found > 0).tolist() == ensemble.exceeds(np.array(rows)).tolist()


@given(trained=forests(max_features=4), threshold=st.integers(0, 64), data=st.data())
def test_forests_decide_as_their_exact_sums_but_for_what_rounding_moves(
    trained: Trained, threshold: int, data: st.DataObject
) -> None:
    """Votes of float64 leaves are rounded, by less than 2**-60 for each tree."""
    names = data.draw(st.permutations(WIDE))
    ensemble = renamed(trained.ensemble, names).with_threshold(Fraction(threshold * len(trained.ensemble.trees), 64))
    exact = [Fraction(total, 1 << ensemble.scale_bits) for total in ensemble.exact_sum(trained.rows).tolist()]
    found = margins(ensemble, trained.rows) > 0
    for drops, total in zip(found.tolist(), exact, strict=True):
        if drops != (total > ensemble.threshold):
            assert abs(total - ensemble.threshold) <= Fraction(len(ensemble.trees), 2**60)


@given(classified("xgboost"), st.sampled_from([-2.0, -0.5, 0.0, 0.5, 2.0]))
def test_boosted_trees_with_a_base_decide_as_their_exact_sums(trained: Trained, logit: float) -> None:
    model = renamed(trained.ensemble, WIDE).with_threshold(Fraction(logit))
    rows = np.minimum(trained.rows, (1 << 31) - 1)
    assert (margins(model, rows) > 0).tolist() == model.exceeds(rows).tolist()


@pytest.mark.parametrize("bits", [70, 200, 1000])
def test_leaves_of_more_than_62_bits_are_rounded(bits: int) -> None:
    """The first tree decides alone where the second adds too little for a vote."""
    features = tuple(FeatureInput(name, "", 24) for name in ("queue", "occupancy"))
    tiny = 2.0**-bits
    ensemble = Ensemble(features, (stump([0.0, 1.0]), stump([0.0, tiny], feature=1)), Fraction(1, 2))
    assert ensemble.scale_bits == bits
    rows = np.array([[0, 0], [0, 20], [20, 0], [20, 20]])
    assert (margins(ensemble, rows) > 0).tolist() == ensemble.exceeds(rows).tolist() == [False, False, True, True]
    at_one = ensemble.with_threshold(Fraction(1))
    assert at_one.exceeds(rows).tolist() == [False, False, False, True]
    assert (margins(at_one, rows) > 0).tolist() == [False] * 4  # the sum is closer to the threshold than a vote
    assert np.abs(margins(ensemble, rows)).max() < 2**62


@pytest.mark.parametrize("threshold", [-(10**30), -(2**62), -3, 0, 1, 2, 3, 2**62, 10**30])
@pytest.mark.parametrize(
    "leaves", [(0.0, 1.0), (-1.0, 1 / 3), (-(2.0**-60), 2.0**-61), (2.0**80, -(2.0**80)), (1e308, -1e308)]
)
def test_thresholds_and_leaves_of_any_size_are_decided(threshold: int, leaves: tuple[float, float]) -> None:
    tree = stump(leaves)
    ensemble = Ensemble((FeatureInput("queue", "", 24),), (tree, tree), Fraction(threshold))
    rows = np.array([[10], [11]])
    exact = [2 * Fraction(leaf) > threshold for leaf in leaves]
    assert ensemble.exceeds(rows).tolist() == exact
    assert (margins(ensemble, rows) > 0).tolist() == exact


@pytest.mark.parametrize("name", [STUDY_FEATURES[0].name, "queue_1_back", "made_up"])
def test_a_feature_that_no_switch_computes_is_named(name: str) -> None:
    ensemble = Ensemble((FeatureInput(name, "", 8),), (stump([0.0, 1.0]),), Fraction(1, 2))
    with pytest.raises(ForetailError, match=f"^no switch computes {name}: give a model on features of the catalog$"):
        scorer_of(ensemble)


def test_rows_of_another_width_are_refused() -> None:
    scorer = scorer_of(Ensemble((FeatureInput("queue", "", 24),), (stump([0.0, 1.0]),), Fraction(1, 2)))
    with pytest.raises(ForetailError, match="every feature of the catalog"):
        scorer.margins(np.zeros((1, len(CATALOG) - 1), np.int32))


def test_credence_asks_a_model_unless_its_origin_names_another_policy() -> None:
    ensemble = Ensemble((FeatureInput("queue", "", 24),), (stump([0.0, 1.0]),), Fraction(1, 2))
    assert asking_policy(ensemble) == asking_policy(None) == "credence"
    assert asking_policy(dataclasses.replace(ensemble, origin={POLICY: "learned"})) == "learned"
    for policy in ("/any/header.hpp:Type", "header.hpp:Type", "lqd", "", 1, True):
        with pytest.raises(
            ForetailError, match=r"origin names policy .*, which asks no predictor: train it for one of"
        ):
            asking_policy(dataclasses.replace(ensemble, origin={POLICY: policy}))


def test_a_model_decides_in_a_replay_or_its_answers_change_nothing_that_it_reads() -> None:
    def inputs(*names: str) -> list[FeatureInput]:
        return [FeatureInput(name, "", 24) for name in names]

    assert decides_in_replay(inputs("queue", "threshold", "first_rtt"))
    assert not decides_in_replay(inputs("threshold", "flow_sent", "incast"))
    assert not decides_in_replay(inputs("threshold", "threshold_1_back"))
    for other in ("flow_sent", "incast", "queue_1_back"):
        with pytest.raises(NobodyDecides, match=f"reads queue, which its own answers change, and {other}, which no"):
            decides_in_replay(inputs("threshold", other, "queue"))


COLUMNS = ["queue length", "7-day.avg", "_a", "日時"]
INPUTS = tuple(ColumnInput(name, "", 6, column) for name, column in zip("abcd", COLUMNS, strict=True))
X = np.random.default_rng(1).integers(0, 64, (300, 4))
Y = X[:, 0] + X[:, 3] > 70


def trained(kind: str) -> tuple[Any, Callable[..., Ensemble]]:
    table = pd.DataFrame(X, columns=COLUMNS)
    if kind == "xgboost":
        return xgboost.XGBClassifier(n_estimators=3, max_depth=3, n_jobs=1).fit(table, Y), from_xgboost
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
    model = given_model(stage_settings(ExportConfig, *settings))
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
            given_model(stage_settings(ExportConfig, *settings))
