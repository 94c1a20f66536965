"""Scores of demand predictions: matrix errors, throughput of their schedules, the choice of trust."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandMatrix, DemandSequence, split_sequences
from foretail.models.demand.attention import HistoryAttention
from foretail.models.demand.averages import LastValue, MovingAverage, Seasonal
from foretail.models.demand.predictor import DemandPredictor
from foretail.models.demand.regression import BoostedEntries, LinearEntries, LowRank
from foretail.models.demand.scores import (
    MatrixError,
    evaluate,
    forecasts,
    matrix_error,
    score,
)
from foretail.sim_bridge.circuits.demand import JOBS, Phase, permutation, repeated, ring
from foretail.sim_bridge.circuits.schedules import robustness, single_hop_guarantee, vermilion
from foretail.sim_bridge.circuits.throughput import multi_hop, single_hop

NODES, DEGREE, TRUSTS = 6, 2, (2, 3, 5)


def job(run: str, seed: int, steps: int = 12, noise: float = 0.0) -> DemandSequence:
    return repeated(
        JOBS["hybrid_parallel"](NODES, DEGREE, 1), steps, 1000, run, seed, placed_at_random=True, noise=noise
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
    found = score(Seasonal(period=6).fit([job("a", 1)]), [job("b", 2)], DEGREE, TRUSTS, warm_up=6)
    assert (found.steps, found.idle_steps) == (6, 0)
    assert found.error.relative < 1e-12
    assert set(found.schedules) == {(routing, k) for routing in ("single_hop", "multi_hop") for k in TRUSTS}
    for (routing, trust), result in found.schedules.items():
        assert result.ratio == result.least_ratio == 1
        assert result.predicted == result.true
        if routing == "single_hop":
            assert result.true >= single_hop_guarantee(trust)


def test_a_wrong_prediction_costs_what_its_schedule_cannot_carry() -> None:
    first, second = ring(NODES, DEGREE), permutation(NODES, DEGREE, seed=3)
    sequence = repeated([Phase(first), Phase(second)], 3, 1000, "a")
    found = score(LastValue().fit([sequence]), [sequence], DEGREE, [4])
    for routing, theta in (("single_hop", single_hop), ("multi_hop", lambda d, c: multi_hop(d, c).theta)):
        ours = [theta(m, vermilion(p, DEGREE, 4).capacity) for p, m in ((first, second), (second, first))]
        theirs = [theta(m, vermilion(m, DEGREE, 4).capacity) for m in (second, first)]
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
    scaled = score(LastValue().fit([light]), [light], DEGREE, [4]).schedules["multi_hop", 4]
    assert np.allclose(list(vars(scaled.by_run["a"]).values()), list(vars(multi.by_run["a"]).values()))


def test_runs_count_alike_whatever_their_length() -> None:
    runs = [job("a", 1, 8, noise=0.5), job("b", 2, 12, noise=0.5), job("b", 3, 9, noise=0.5)]
    idle = DemandSequence(np.zeros((4, NODES, NODES)), 1000, "idle")
    trained = LastValue().fit(runs)
    both = score(trained, [*runs, idle], DEGREE, [3]).schedules["single_hop", 3]
    alone = [score(trained, of, DEGREE, [3]).schedules["single_hop", 3] for of in (runs[:1], runs[1:])]
    assert both.by_run == {**alone[0].by_run, **alone[1].by_run}
    assert [run.steps for run in both.by_run.values()] == [7, 11 + 8]
    assert both.predicted == pytest.approx((alone[0].predicted + alone[1].predicted) / 2)
    assert both.true == pytest.approx((alone[0].true + alone[1].true) / 2)
    assert both.ratio == pytest.approx((alone[0].ratio + alone[1].ratio) / 2)
    assert both.least_ratio == min(alone[0].least_ratio, alone[1].least_ratio)


def test_idle_steps_are_not_scored_and_idle_predictions_are_oblivious() -> None:
    busy = ring(NODES, DEGREE).demand
    sequence = DemandSequence(np.stack([busy, 0 * busy, busy, busy]), 1000, "a")
    found = score(LastValue().fit([sequence]), [sequence], DEGREE, [3])
    assert (found.steps, found.idle_steps) == (2, 1)
    own = vermilion(DemandMatrix(busy), DEGREE, 3).capacity
    oblivious = np.full((NODES, NODES), DEGREE / NODES) * (1 - np.eye(NODES))
    wanted = DemandMatrix(busy)
    expected = (single_hop(wanted, oblivious) + single_hop(wanted, own)) / 2
    assert found.schedules["single_hop", 3].predicted == pytest.approx(expected)


@pytest.mark.parametrize(
    "predictor",
    [
        LastValue(),
        MovingAverage(3),
        Seasonal(),
        LinearEntries(3),
        LowRank(),
        BoostedEntries(trees=5),
        HistoryAttention(steps=20),
    ],
    ids=lambda p: type(p).__name__,
)
def test_forecasts_do_not_see_the_future(predictor: DemandPredictor) -> None:
    predictor.fit([job("a", 1, noise=0.2)])
    run = job("b", 2, steps=24, noise=0.2)
    before = forecasts(predictor, run, DEGREE, warm_up=2)
    assert before.shape == (22, NODES, NODES)
    for changed_from in (3, 7, 16):
        later: NDArray[np.float64] = np.array(run.demand)
        later[changed_from:] = later[changed_from:, ::-1, ::-1] * 2
        after = forecasts(predictor, replace(run, demand=later), DEGREE, warm_up=2)
        known = changed_from + 1 - 2  # the first changed step is itself still predicted from unchanged ones
        assert np.array_equal(after[:known], before[:known])
        assert not np.array_equal(after[known:], before[known:])


def test_the_trust_is_chosen_without_the_test_runs() -> None:
    sequences = [job(f"run {i}", i, 8, noise=0.5) for i in range(6)]
    split = split_sequences(sequences, 0.2, 0.2, seed=1)
    found = evaluate(LastValue(), split, DEGREE, TRUSTS, routing="single_hop")
    by_trust = {k: found.validation.schedules["single_hop", k].predicted for k in TRUSTS}
    assert by_trust[found.trust] == max(by_trust.values())
    assert list(found.test.schedules) == [("single_hop", k) for k in TRUSTS]
    easy = tuple(repeated([Phase(ring(NODES, DEGREE))], 8, 1000, s.run) for s in split.test)
    again = evaluate(LastValue(), replace(split, test=easy), DEGREE, TRUSTS, routing="single_hop")
    assert (again.trust, again.validation) == (found.trust, found.validation)
    assert again.test != found.test


def test_impossible_scores_are_refused() -> None:
    run = job("a", 1)
    trained = LastValue().fit([run])
    for warm_up, complaint in ((0, "choose at least 1"), (12, "has no step 12, the first to be scored")):
        with pytest.raises(ForetailError, match=complaint):
            score(trained, [run], DEGREE, [3], warm_up=warm_up)
    with pytest.raises(ForetailError, match="no step of b from step 1 on has demand"):
        score(trained, [replace(run, demand=0 * run.demand, run="b")], DEGREE, [3])
    with pytest.raises(ForetailError, match="choose k = 4"):
        score(trained, [run], 4, [3])
    with pytest.raises(ForetailError, match="give no score"):
        score(trained, [], DEGREE, [3])
    with pytest.raises(ForetailError, match="give no score"):
        score(trained, [run], DEGREE, [])
    with pytest.raises(ForetailError, match="routings of single_hop, multi_hop"):
        score(trained, [run], DEGREE, [3], routings=["two_hop"])
