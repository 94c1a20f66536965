"""Files of demand predictors: they read back to the last bit, and nothing else passes the door."""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandSequence
from foretail.models.demand.attention import HistoryAttention
from foretail.models.demand.averages import LastValue, MovingAverage, Seasonal
from foretail.models.demand.predictor import DemandPredictor
from foretail.models.demand.predictor_file import PREDICTORS, from_json, load, save, to_json
from foretail.models.demand.regression import BoostedEntries, LinearEntries, LowRank
from foretail.models.ensemble.ensemble import FeatureInput
from foretail.models.ensemble.frontends import regressor_from_xgboost
from foretail.models.ensemble.rounding import framework_sum
from foretail.testing import synthetic_sequences
from tests.examples import draws

SEEDS = st.integers(0, 2**32 - 1)
FILES = st.one_of(
    st.just(LastValue()),
    st.builds(MovingAverage, st.integers(1, 5)),
    st.builds(Seasonal, st.none() | st.integers(1, 5)),
    st.builds(LinearEntries, st.integers(1, 5), st.floats(1e-9, 1e3), st.booleans()),
    st.builds(BoostedEntries, st.integers(1, 3), st.integers(1, 4), st.integers(1, 3)),
    st.builds(LowRank, st.integers(1, 5), st.integers(1, 3)),
    st.builds(HistoryAttention, st.integers(1, 3), st.integers(1, 4), st.just(2)),
)


@cache
def texts() -> dict[str, str]:
    runs = synthetic_sequences(2, 8, 3, 1)
    few = {"boosted_entries": BoostedEntries(2, 2, 2), "history_attention": HistoryAttention(2, 3, 2)}
    return {name: to_json(few.get(name, kind()).fit(runs)) for name, kind in PREDICTORS.items()}


@settings(max_examples=draws(40), deadline=None)
@given(FILES, SEEDS, st.integers(2, 5), st.floats(1e-6, 1e6))
def test_what_is_read_predicts_what_was_written(
    predictor: DemandPredictor, seed: int, nodes: int, level: float
) -> None:
    runs = [DemandSequence(level * run.demand, 1, run.run) for run in synthetic_sequences(2, 9, nodes, seed)]
    trained = copy.deepcopy(predictor).fit(runs)
    again = from_json(to_json(trained))
    for known in (1, 2, 9):
        assert np.array_equal(again.unprojected(runs[0].demand[:known]), trained.unprojected(runs[0].demand[:known]))


@pytest.mark.parametrize("name", PREDICTORS)
def test_a_file_is_written_whole_and_read(name: str, tmp_path: Path) -> None:
    predictor = from_json(texts()[name])
    save(predictor, tmp_path / "p.json")
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]
    assert (tmp_path / "p.json").read_text() == texts()[name]
    assert to_json(load(tmp_path / "p.json")) == texts()[name]
    with pytest.raises(ForetailError, match=r"missing\.json cannot be read"):
        load(tmp_path / "missing.json")


def _places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [path, *(place for key, item in items[:3] for place in _places(item, (*path, key)))]


@settings(max_examples=draws(150), deadline=None)
@given(st.data())
def test_a_damaged_file_is_refused_or_is_another_whole_predictor(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(list(PREDICTORS)))
    document = json.loads(texts()[name])
    place = data.draw(st.sampled_from(_places(document)[1:]))
    parent = document
    for key in place[:-1]:
        parent = parent[key]
    new: Any = data.draw(st.sampled_from([None, -1, 0, 2.5, 1e39, 10**400, "x", [], {}, [[]], True, 3, [1.0]]))
    parent[place[-1]] = new
    try:
        found = from_json(json.dumps(document), "F")
    except ForetailError as error:
        assert re.fullmatch("F.*", str(error))  # noqa: PT017  # refused or read are both right; one line
    else:
        history = np.ones((3, found.nodes_, found.nodes_)) * (1 - np.eye(found.nodes_))
        assert np.isfinite(found.unprojected(history)).all()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(version=2), "format version 2"),
        (lambda d: d.update(schema="other"), "but no demand predictor"),
        (lambda d: d.update(name="oracle"), "no predictor is called 'oracle'"),
        (lambda d: d.update(more=1), "other keys"),
        (lambda d: d.pop("nodes"), "other keys"),
        (lambda d: d.update(nodes=4), "of shape .* where"),
        (lambda d: d.update(nodes=1), "nodes is 1"),
        (lambda d: d["parameters"].update(window=0), "window"),
        (lambda d: d["parameters"].pop("window"), "other parameters"),
        (lambda d: d["learned"].update(more=1), "learned other things"),
        (lambda d: d["learned"].pop("weight"), "'weight' is missing"),
        (lambda d: d["learned"]["weight"][0].pop(), "of shape|inhomogeneous"),
        (lambda d: d["learned"]["weight"][0].__setitem__(0, "1.5"), "of shape"),
    ],
)
def test_the_door_names_what_is_wrong(change: Any, says: str) -> None:
    document = json.loads(texts()["linear_entries"])
    change(document)
    with pytest.raises(ForetailError, match=says):
        from_json(json.dumps(document))


def test_numbers_that_are_not_finite_are_refused() -> None:
    document = json.loads(texts()["linear_entries"])
    document["learned"]["weight"][0][0] = float("nan")
    with pytest.raises(ForetailError, match="NaN is not finite"):
        from_json(json.dumps(document))
    document["learned"]["weight"][0][0] = 0.125
    with pytest.raises(ForetailError, match="finite ones are due"):
        from_json(json.dumps(document).replace("0.125", "1e999", 1))
    with pytest.raises(ForetailError, match="not a demand predictor"):
        from_json("[" * 100_000)


def test_a_kind_without_a_name_has_no_file() -> None:
    class Other(LastValue): ...

    with pytest.raises(ForetailError, match="Other has no name"):
        to_json(Other().fit(synthetic_sequences(1, 5, 3, 1)))


@settings(max_examples=draws(20), deadline=None)
@given(SEEDS, st.integers(1, 30), st.integers(1, 5))
def test_trees_of_the_front_end_are_those_of_xgboost(seed: int, trees: int, depth: int) -> None:
    import xgboost

    random = np.random.default_rng(seed)
    rows = random.integers(0, 1 << 24, (60, 3))
    booster = xgboost.train(
        {"max_depth": depth, "nthread": 1}, xgboost.DMatrix(rows.astype(np.float32), random.random(60)), trees
    )
    ensemble = regressor_from_xgboost(booster, [FeatureInput(name, "", 24) for name in "abc"])
    unseen = random.integers(0, 1 << 24, (60, 3))
    expected = booster.inplace_predict(unseen.astype(np.float32))
    assert np.array_equal(framework_sum(ensemble, unseen), expected.astype(np.float64))
