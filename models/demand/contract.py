"""The executable contract of demand predictors, in the manner of scikit-learn's ``check_estimator``."""

from __future__ import annotations

import copy

import numpy as np

from foretail.features.demand.matrix import DemandMatrix, DemandSequence
from foretail.models.demand.predictor import DemandPredictor
from foretail.models.demand.predictor_file import from_json, to_json
from foretail.models.drop.parameters_contract import check_parameters, holds, made_of, refuses

_DEGREE = 2


def synthetic_sequences(runs: int, steps: int, nodes: int, seed: int) -> list[DemandSequence]:
    """Return made-up runs, for tests and benchmarks only: three random sparse matrices in turn, with noise, some idle.

    `seed`: same seed, same runs.
    """
    random = np.random.default_rng(seed)
    sequences = []
    for run in range(runs):
        phases = random.random((3, nodes, nodes)) * (random.random((3, nodes, nodes)) < 0.5) * (1 - np.eye(nodes))
        demand = phases[np.arange(steps) % 3] * random.uniform(0.5, 1.5, (steps, nodes, nodes))
        sequences.append(DemandSequence(demand * (random.random((steps, 1, 1)) < 0.9), 1000, f"run {run}"))
    return sequences


def check_demand_predictor(predictor: DemandPredictor | type[DemandPredictor]) -> None:
    """Run the contract of :class:`DemandPredictor` on a class (built with its defaults) or an untrained instance.

    AssertionError with the clause that does not hold.
    """
    fresh: DemandPredictor = made_of(predictor, DemandPredictor, "a demand predictor")  # type: ignore[type-abstract]
    runs = synthetic_sequences(runs=4, steps=20, nodes=4, seed=7)
    unseen = synthetic_sequences(runs=1, steps=24, nodes=4, seed=8)[0].demand

    parameters = fresh.parameters()
    check_parameters(fresh, lambda broken: broken.fit(runs))
    refuses(lambda: fresh.predict(unseen, _DEGREE), "predict must refuse before fit")
    refuses(lambda: fresh.fit([]), "fit must refuse no sequences")
    other = synthetic_sequences(runs=1, steps=20, nodes=5, seed=9)
    refuses(lambda: fresh.fit(runs + other), "fit must refuse sequences of different nodes")
    single = [DemandSequence(run.demand[:1], 1000, run.run) for run in runs]
    refuses(lambda: fresh.fit(single), "fit must refuse sequences without a second step")
    assert not hasattr(fresh, "nodes_"), "a refused fit must leave the predictor untrained"

    trained = copy.deepcopy(fresh)
    with holds("fit must learn from whole runs"):
        assert trained.fit(runs) is trained, "fit must return self"
    assert trained.parameters() == parameters, "fit must not change parameters"
    refuses(lambda: trained.predict(other[0].demand, _DEGREE), "predict must refuse other nodes")
    refuses(lambda: trained.predict(unseen[:0], _DEGREE), "predict must refuse an empty history")
    refuses(lambda: trained.predict(-unseen, _DEGREE), "predict must refuse negative demand")
    refuses(lambda: trained.predict(unseen * np.nan, _DEGREE), "predict must refuse NaN")
    refuses(lambda: trained.predict(unseen, 0), "predict must refuse a degree of 0")

    before = unseen.copy()
    forecasts = _forecasts(trained, unseen)
    assert np.array_equal(unseen, before), "predict must not change the history"
    assert np.array_equal(forecasts[::-1], _forecasts(trained, unseen, reverse=True)), (
        "earlier predictions must not count"
    )
    cut = len(unseen) // 2
    changed = np.concatenate([unseen[:cut], unseen[cut:][::-1] * 3])
    assert np.array_equal(_forecasts(trained, changed)[:cut], forecasts[:cut]), "what comes later must not count"
    assert np.array_equal(_forecasts(copy.deepcopy(fresh).fit(runs), unseen), forecasts), (
        "same seed and runs, same model"
    )
    shorter = [DemandSequence(runs[0].demand[:2], 1000, "short")]
    _forecasts(copy.deepcopy(fresh).fit(shorter), unseen)
    _forecasts(copy.deepcopy(fresh).fit([DemandSequence(np.zeros((5, 4, 4)), 1000, "idle")]), 0 * unseen)

    text = to_json(trained)
    again = from_json(text)
    assert type(again) is type(trained), "the file must give the same kind back"
    assert again.parameters() == parameters, "the file must keep the parameters"
    assert to_json(again) == text, "the file of what was read must be the file that was read"
    assert np.array_equal(_forecasts(again, unseen), forecasts), "what was read must predict what was written"
    refuses(lambda: to_json(fresh), "an untrained predictor must have no file")


def _forecasts(trained: DemandPredictor, run: np.ndarray, reverse: bool = False) -> np.ndarray:
    """All predictions along a run, each checked: float64[steps, n, n]."""
    matrices = []
    for known in sorted(range(1, len(run) + 1), reverse=reverse):
        with holds("predict must answer for any history"):
            matrix = trained.predict(run[:known], _DEGREE)
        assert isinstance(matrix, DemandMatrix), "predict must return a demand matrix"
        matrix.require_hose(_DEGREE)
        matrices.append(matrix.demand)
    return np.stack(matrices)
