"""Demand predictors: their contract, what each must predict exactly, their files, and scores of what they predict."""

from __future__ import annotations

import copy
import json
import re
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix, DemandSequence, split_sequences
from foretail.models.demand.attention import HistoryAttention
from foretail.models.demand.averages import LastValue, MovingAverage, Seasonal
from foretail.models.demand.predictor import DemandPredictor, FloatArray, examples, into_hose, windows
from foretail.models.demand.predictor_file import PREDICTORS, from_json, load, to_json
from foretail.models.demand.regression import BoostedEntries, LinearEntries, LowRank
from foretail.models.demand.scores import (
    MatrixError,
    evaluate,
    matrix_error,
    score,
)
from foretail.models.ensemble.ensemble import FeatureInput
from foretail.models.ensemble.frontends import regressor_from_xgboost
from foretail.models.ensemble.rounding import framework_sum
from foretail.sim_bridge.circuits.demand import JOBS, Phase, permutation, repeated, ring
from foretail.sim_bridge.circuits.schedules import robustness, single_hop_guarantee, vermilion
from foretail.sim_bridge.circuits.throughput import multi_hop, single_hop
from foretail.testing import check_demand_predictor, synthetic_sequences
from tests.examples import draws
from tests.refusals import refusing

NODES, DEGREE = 5, 100
OFF = ~np.eye(NODES, dtype=bool)
EXACT = 1e-12

LEARNERS: list[DemandPredictor] = [
    LastValue(),
    MovingAverage(),
    Seasonal(),
    Seasonal(period=3),
    LinearEntries(),
    LinearEntries(window=2, shared=True),
    BoostedEntries(trees=5),
    LowRank(),
    LowRank(rank=2, window=1),
    HistoryAttention(steps=20),
]


@pytest.mark.parametrize("predictor", LEARNERS, ids=repr)
def test_every_predictor_keeps_the_contract(predictor: DemandPredictor) -> None:
    check_demand_predictor(predictor)


@dataclass(eq=False)
class _Undeclared(MovingAverage):
    extra: int = 1


class _LearnsInConstructor(MovingAverage):
    def __init__(self, window: int = 8) -> None:
        super().__init__(window)
        self.learned_ = 1


class _Remembers(LastValue):
    def _fit(self, runs: list[FloatArray]) -> None:
        self.seen = 0

    def _predict(self, history: FloatArray) -> FloatArray:
        self.seen += 1
        return super()._predict(history) * (1 + self.seen)


class _ForgetsItsSeed(LastValue):
    def _fit(self, runs: list[FloatArray]) -> None:
        self.factor = np.random.default_rng().random()

    def _predict(self, history: FloatArray) -> FloatArray:
        return super()._predict(history) * self.factor


class _LeavesTheHose(LastValue):
    def predict(self, history: FloatArray, degree: int, **options: Any) -> DemandMatrix:
        return DemandMatrix(super().predict(history, degree, **options).demand * 10)


@pytest.mark.parametrize(
    ("broken", "clause"),
    [
        (_Undeclared, "must be declared"),
        (_LearnsInConstructor, "only store"),
        (_Remembers, "earlier predictions"),
        (_ForgetsItsSeed, "same model"),
    ],
)
def test_the_contract_names_what_is_broken(broken: type[DemandPredictor], clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        check_demand_predictor(broken)


def runs_of(demand: NDArray[np.float64]) -> list[DemandSequence]:
    return [DemandSequence(demand, 1000, "a")]


def constant() -> NDArray[np.float64]:
    matrix = np.random.default_rng(1).random((NODES, NODES)) * OFF
    return np.repeat(matrix[np.newaxis], 20, axis=0)


def periodic(steps: int = 24) -> NDArray[np.float64]:
    matrices = np.random.default_rng(2).random((3, NODES, NODES)) * OFF
    return matrices[np.arange(steps) % 3]


def linear() -> NDArray[np.float64]:
    """Every pair grows by a step of its own: x(t + 1) = 2 x(t) - x(t - 1)."""
    random = np.random.default_rng(3)
    growth = random.uniform(0.01, 0.1, (NODES, NODES)) * OFF
    return growth * np.arange(30)[:, np.newaxis, np.newaxis] + random.random((NODES, NODES)) * OFF


EXACT_LINEAR = [LinearEntries(2, EXACT), LinearEntries(2, EXACT, shared=True), LowRank(2, 2, EXACT)]
EXACT_PERIODIC = [
    Seasonal(),
    LinearEntries(3, EXACT),
    LinearEntries(3, EXACT, shared=True),
    LowRank(3, 1, EXACT),
    LowRank(3, 3, EXACT),
]


@pytest.mark.parametrize(
    "predictor", [LastValue(), MovingAverage(), HistoryAttention(steps=1), *EXACT_PERIODIC, *EXACT_LINEAR], ids=repr
)
def test_constant_demand_is_predicted(predictor: DemandPredictor) -> None:
    predictor.fit(runs_of(constant()))
    for known in (1, 2, 20):
        assert np.allclose(predictor.predict(constant()[:known], DEGREE).demand, constant()[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("predictor", EXACT_PERIODIC, ids=repr)
def test_periodic_demand_is_predicted(predictor: DemandPredictor) -> None:
    predictor.fit(runs_of(periodic()))
    run = periodic(30)
    for known in range(3, 30):
        assert np.allclose(predictor.predict(run[:known], DEGREE).demand, run[known], atol=1e-6)


@pytest.mark.parametrize("predictor", EXACT_LINEAR, ids=repr)
def test_linear_demand_is_predicted_beyond_the_training(predictor: DemandPredictor) -> None:
    run = linear()
    predictor.fit(runs_of(run[:20]))
    for known in range(2, 30):
        assert np.allclose(predictor.predict(run[:known], DEGREE).demand, run[known], atol=1e-4)


def test_trees_learn_a_period() -> None:
    predictor = BoostedEntries(window=3, trees=200, depth=6).fit(runs_of(periodic()))
    run = periodic(30)
    for known in range(3, 30):
        assert np.allclose(predictor.predict(run[:known], DEGREE).demand, run[known], atol=0.02)


def test_attention_learns_to_recognise_phases_on_other_places() -> None:
    phases = JOBS["hybrid_parallel"](NODES, 1, 1)
    *train, test = [repeated(phases, 36, 1000, f"run {i}", i, placed_at_random=True, noise=0.05) for i in range(4)]
    attention, last = HistoryAttention(window=3).fit(train), LastValue().fit(train)
    error = [
        np.abs(np.stack([p.predict(test.demand[:t], 1).demand - test.demand[t] for t in range(18, 36)])).sum()
        for p in (attention, last)
    ]
    assert error[0] < 0.3 * error[1]


def test_the_period_is_the_shortest_of_the_best() -> None:
    assert Seasonal().fit(runs_of(periodic())).period_ == 3
    assert Seasonal(longest=2).fit(runs_of(periodic())).period_ <= 2
    assert Seasonal(period=5).fit(runs_of(periodic())).period_ == 5
    assert Seasonal().fit(runs_of(constant())).period_ == 1


def test_windows_repeat_the_first_step_and_examples_leave_those_out() -> None:
    run = np.arange(4.0)
    assert windows(run, 3).tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]]
    past, following = examples([run, np.array([7.0, 8.0]), np.array([9.0])], 3)
    assert past.tolist() == [[0, 1, 2], [7, 7, 7]]
    assert following.tolist() == [3, 8]


@st.composite
def matrices(draw: st.DrawFn) -> NDArray[np.float64]:
    nodes = draw(st.integers(2, 6))
    values = st.sampled_from([0.0, 0.0, 1.0]) | st.floats(1e-9, 1e9)
    demand = draw(hnp.arrays(np.float64, (nodes, nodes), elements=values))
    np.fill_diagonal(demand, 0)
    return demand


@settings(max_examples=draws(150))
@given(matrices(), st.integers(1, 8))
def test_the_projection_is_in_the_hose_model_and_keeps_absent_pairs_absent(
    demand: NDArray[np.float64], degree: int
) -> None:
    projected = into_hose(demand, degree)
    projected.require_hose(degree)
    assert np.array_equal(projected.demand > 0, demand > 0)
    assert np.all(projected.demand <= demand)
    assert np.allclose(into_hose(projected.demand, degree).demand, projected.demand, rtol=1e-12)
    if DemandMatrix(demand).largest_sum <= degree:
        assert np.array_equal(projected.demand, demand)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ForetailError, match=r"package torch: pip install '\.\[nn\]'"):
        HistoryAttention().fit(runs_of(constant()))


def fitted(predictor: DemandPredictor) -> DemandPredictor:
    return predictor.fit(runs_of(constant()))


test_what_cannot_be_is_refused = refusing(
    (lambda: check_demand_predictor(_LeavesTheHose), "hose model"),
    (lambda: into_hose(constant()[0], 0), "give at least 1 uplink"),
    (lambda: fitted(MovingAverage(window=0)), r"predictor\.window = 0 is"),
    (
        lambda: fitted(Seasonal(period=0)),
        r"predictor\.period = 0 is out of range: it must be a whole number, at least 1, .*or null",
    ),
    (lambda: fitted(LinearEntries(penalty=0)), r"predictor\.penalty = 0 is"),
    (lambda: fitted(BoostedEntries(trees=0)), r"predictor\.trees"),
    (lambda: fitted(LowRank(rank=1.5)), r"predictor\.rank"),  # type: ignore[arg-type]
    (lambda: fitted(HistoryAttention(learning_rate=0)), r"predictor\.learning_rate"),
    (lambda: LastValue().fit([*runs_of(constant()), DemandSequence(constant(), 2000, "b")]), "one interval"),
)


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
    (tmp_path / "p.json").write_text(to_json(predictor), encoding="utf-8")
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
    random = np.random.default_rng(seed)
    rows = random.integers(0, 1 << 24, (60, 3))
    booster = xgboost.train(
        {"max_depth": depth, "nthread": 1}, xgboost.DMatrix(rows.astype(np.float32), random.random(60)), trees
    )
    ensemble = regressor_from_xgboost(booster, [FeatureInput(name, "", 24) for name in "abc"])
    unseen = random.integers(0, 1 << 24, (60, 3))
    expected = booster.inplace_predict(unseen.astype(np.float32))
    assert np.array_equal(framework_sum(ensemble, unseen), expected.astype(np.float64))


RACKS, CIRCUITS, TRUSTS = 6, 2, (2, 3, 5)


def job(run: str, seed: int, steps: int = 12, noise: float = 0.0) -> DemandSequence:
    return repeated(
        JOBS["hybrid_parallel"](RACKS, CIRCUITS, 1), steps, 1000, run, seed, placed_at_random=True, noise=noise
    )


def test_errors_by_hand() -> None:
    true = np.array([[[0.0, 2], [2, 0]], [[0, 4], [0, 0]], [[0, 0], [0, 0]]])
    predicted = np.array([[[0.0, 1], [1, 0]], [[0, 2], [2, 0]], [[0, 1], [0, 0]]])
    # 1 + 1 wrong of 4, 2 + 2 of 4, 1 of 0; the first has the right shares, the second half of them
    assert matrix_error(true, predicted) == MatrixError(relative=7 / 8, shape=0.25)
    assert matrix_error(true, true) == MatrixError(0.0, 0.0)
    assert matrix_error(true, 0 * true) == MatrixError(1.0, 1.0)
    with pytest.raises(ForetailError, match="no scored step has demand"):
        matrix_error(0 * true, predicted)
    with pytest.raises(ForetailError, match="predict every step"):
        matrix_error(true, predicted[1:])


def test_a_perfect_prediction_loses_nothing() -> None:
    found = score(Seasonal(period=6).fit([job("a", 1)]), [job("b", 2)], CIRCUITS, TRUSTS, warm_up=6)
    assert (found.steps, found.idle_steps) == (6, 0)
    assert found.error.relative < 1e-12
    assert set(found.schedules) == {(routing, k) for routing in ("single_hop", "multi_hop") for k in TRUSTS}
    for (routing, trust), result in found.schedules.items():
        assert result.ratio == result.least_ratio == 1
        assert result.predicted == result.true
        if routing == "single_hop":
            assert result.true >= single_hop_guarantee(trust)


def test_a_wrong_prediction_costs_what_its_schedule_cannot_carry() -> None:
    first, second = ring(RACKS, CIRCUITS), permutation(RACKS, CIRCUITS, seed=3)
    sequence = repeated([Phase(first), Phase(second)], 3, 1000, "a")
    found = score(LastValue().fit([sequence]), [sequence], CIRCUITS, [4])
    for routing, theta in (("single_hop", single_hop), ("multi_hop", lambda d, c: multi_hop(d, c).theta)):
        ours = [theta(m, vermilion(p, CIRCUITS, 4).capacity) for p, m in ((first, second), (second, first))]
        theirs = [theta(m, vermilion(m, CIRCUITS, 4).capacity) for m in (second, first)]
        ratios = np.divide(ours, theirs)
        worth = found.schedules[routing, 4]
        (got,) = worth.by_run.values()
        assert np.allclose(list(vars(got).values()), [2, np.mean(ours), np.mean(theirs), ratios.mean(), ratios.min()])
        assert (worth.predicted, worth.true) == (got.predicted, got.true)
        assert (worth.ratio, worth.least_ratio) == (got.ratio, got.least_ratio)
    single, multi = found.schedules["single_hop", 4], found.schedules["multi_hop", 4]
    assert single.ratio < 0.5
    assert single.predicted <= multi.predicted
    assert multi.least_ratio * multi.true >= robustness(4) - 1e-9
    light = replace(sequence, demand=sequence.demand * np.array([1, 0.1, 0.7])[:, np.newaxis, np.newaxis])
    scaled = score(LastValue().fit([light]), [light], CIRCUITS, [4]).schedules["multi_hop", 4]
    assert np.allclose(list(vars(scaled.by_run["a"]).values()), list(vars(multi.by_run["a"]).values()))


def test_runs_count_alike_whatever_their_length() -> None:
    runs = [job("a", 1, 8, noise=0.5), job("b", 2, 12, noise=0.5), job("b", 3, 9, noise=0.5)]
    idle = DemandSequence(np.zeros((4, RACKS, RACKS)), 1000, "idle")
    trained = LastValue().fit(runs)
    both = score(trained, [*runs, idle], CIRCUITS, [3]).schedules["single_hop", 3]
    alone = [score(trained, of, CIRCUITS, [3]).schedules["single_hop", 3] for of in (runs[:1], runs[1:])]
    assert both.by_run == {**alone[0].by_run, **alone[1].by_run}
    assert [run.steps for run in both.by_run.values()] == [7, 11 + 8]
    assert both.predicted == pytest.approx((alone[0].predicted + alone[1].predicted) / 2)
    assert both.true == pytest.approx((alone[0].true + alone[1].true) / 2)
    assert both.ratio == pytest.approx((alone[0].ratio + alone[1].ratio) / 2)
    assert both.least_ratio == min(alone[0].least_ratio, alone[1].least_ratio)


def test_idle_steps_are_not_scored_and_idle_predictions_are_oblivious() -> None:
    busy = ring(RACKS, CIRCUITS).demand
    sequence = DemandSequence(np.stack([busy, 0 * busy, busy, busy]), 1000, "a")
    found = score(LastValue().fit([sequence]), [sequence], CIRCUITS, [3])
    assert (found.steps, found.idle_steps) == (2, 1)
    own = vermilion(DemandMatrix(busy), CIRCUITS, 3).capacity
    oblivious = np.full((RACKS, RACKS), CIRCUITS / RACKS) * (1 - np.eye(RACKS))
    wanted = DemandMatrix(busy)
    expected = (single_hop(wanted, oblivious) + single_hop(wanted, own)) / 2
    assert found.schedules["single_hop", 3].predicted == pytest.approx(expected)


def test_the_trust_is_chosen_without_the_test_runs() -> None:
    sequences = [job(f"run {i}", i, 8, noise=0.5) for i in range(6)]
    split = split_sequences(sequences, 0.2, 0.2, seed=1)
    found = evaluate(LastValue(), split, CIRCUITS, TRUSTS, routing="single_hop")
    by_trust = {k: found.validation.schedules["single_hop", k].predicted for k in TRUSTS}
    assert by_trust[found.trust] == max(by_trust.values())
    assert list(found.test.schedules) == [("single_hop", k) for k in TRUSTS]
    easy = tuple(repeated([Phase(ring(RACKS, CIRCUITS))], 8, 1000, s.run) for s in split.test)
    again = evaluate(LastValue(), replace(split, test=easy), CIRCUITS, TRUSTS, routing="single_hop")
    assert (again.trust, again.validation) == (found.trust, found.validation)
    assert again.test != found.test


def test_impossible_scores_are_refused() -> None:
    run = job("a", 1)
    trained = LastValue().fit([run])
    for warm_up, complaint in ((0, "choose at least 1"), (12, "has no step 12, the first to be scored")):
        with pytest.raises(ForetailError, match=complaint):
            score(trained, [run], CIRCUITS, [3], warm_up=warm_up)
    with pytest.raises(ForetailError, match="no step of b from step 1 on has demand"):
        score(trained, [replace(run, demand=0 * run.demand, run="b")], CIRCUITS, [3])
    with pytest.raises(ForetailError, match="choose k = 4"):
        score(trained, [run], 4, [3])
    with pytest.raises(ForetailError, match="give no score"):
        score(trained, [], CIRCUITS, [3])
    with pytest.raises(ForetailError, match="give no score"):
        score(trained, [run], CIRCUITS, [])
    with pytest.raises(ForetailError, match="routings of single_hop, multi_hop"):
        score(trained, [run], CIRCUITS, [3], routings=["two_hop"])
