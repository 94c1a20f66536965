"""The executable contract of drop predictors, in the manner of scikit-learn's ``check_estimator``."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from foretail.features.rows.labelled_rows import Rows
from foretail.models.drop.parameters_contract import check_parameters, holds, made_of, refuses
from foretail.models.drop.predictor import DropPredictor, TreePredictor
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.rounding import framework_sum, rounding_bound


def synthetic_arrivals(rows: int, seed: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Return made-up arrivals shaped like Credence's training rows, for tests and benchmarks only.

    The same seed gives the same arrivals. Bursts fill a shared buffer of 4096 cells; a queue is empty most of the time;
    drops sit where the buffer is almost full and the queue is long, about 1 % of the rows.

    Returns ``x``, int32[rows, 4], which is queue, queue_average, occupancy, occupancy_average in cells, ``[0, 4096]``,
    and ``y``, bool[rows], whether LQD drops the packet.
    """
    random = np.random.default_rng(seed)
    fill = np.clip(np.cumsum(random.normal(0, 0.02, rows)) % 2.0, 0, 2)
    occupancy = np.abs(1.0 - fill)  # a walk between an empty and a full buffer
    share = random.beta(0.3, 1.2, rows)
    queue = occupancy * share
    columns = [queue, queue * random.uniform(0.4, 1.2, rows), occupancy, occupancy * random.uniform(0.6, 1.1, rows)]
    x = np.clip(np.stack(columns, axis=1) * 4096, 0, 4096).astype(np.int32)
    y = (occupancy > 0.93) & (share + random.normal(0, 0.08, rows) > 0.55)
    return x, y


def check_predictor(predictor: DropPredictor | type[DropPredictor]) -> None:
    """Run the contract of :class:`DropPredictor` on a class (built with its defaults) or an untrained instance.

    AssertionError with the clause that does not hold.
    """
    fresh: DropPredictor = made_of(predictor, DropPredictor, "a predictor")  # type: ignore[type-abstract]
    x, y = synthetic_arrivals(rows=4000, seed=7)
    unseen = np.concatenate([synthetic_arrivals(rows=2000, seed=8)[0], np.full((1, 4), (1 << 24) - 1, np.int32)])
    features = tuple(FeatureInput(f"feature_{i}", "", 24) for i in range(x.shape[1]))

    parameters = fresh.parameters()
    check_parameters(fresh, lambda broken: broken.fit(x, y))
    refuses(lambda: fresh.probability(x), "probability must refuse before fit")
    if isinstance(fresh, TreePredictor):
        refuses(partial(fresh.to_ensemble, features), "to_ensemble must refuse before fit")
    refuses(lambda: fresh.fit(x, np.zeros_like(y)), "fit must refuse labels without a drop")
    refuses(lambda: fresh.fit(x, np.ones_like(y)), "fit must refuse labels without an accepted packet")
    refuses(
        lambda: fresh.fit_batches(lambda: [Rows(x, np.zeros_like(y), None)], len(y)), "fit_batches must refuse no drop"
    )
    refuses(lambda: fresh.fit(x.astype(float), y), "fit must refuse features that are not integers")
    refuses(lambda: fresh.fit(x, y[:-1]), "fit must refuse labels of another length")
    for wrong in (0.0, -1.0, np.nan, np.inf):
        weight = np.ones(len(y))
        weight[len(y) // 2] = wrong
        refuses(partial(fresh.fit, x, y, weight), f"fit must refuse a row that weighs {wrong}")
    refuses(lambda: fresh.fit(x, y, np.ones(len(y) - 1)), "fit must refuse weights of another length")
    assert not hasattr(fresh, "features_in_"), "a refused fit must leave the predictor untrained"

    def fitted(*rows: Any) -> DropPredictor:
        with holds("fit must learn from labelled rows"):
            fitted: DropPredictor | None = (learner := copy.deepcopy(fresh)).fit(*rows)
        assert fitted is learner, "fit must return self"
        return learner

    def probability_of(model: DropPredictor, rows: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
        before = rows.copy()
        with holds("probability must answer for any rows"):
            probability = model.probability(rows)
        assert np.array_equal(rows, before), "probability must not change the features"
        assert probability.shape == (len(rows),), "probability must give one number per row"
        assert probability.dtype == np.float64, "probability must be float64"
        assert np.all((probability >= 0) & (probability <= 1)), "probability must be in [0, 1], and NaN is not"
        return probability

    x_before, y_before = x.copy(), y.copy()
    trained = fitted(x, y)
    assert np.array_equal(x, x_before), "fit must not change the features"
    assert np.array_equal(y, y_before), "fit must not change the labels"
    assert trained.parameters() == parameters, "fit must not change parameters"
    refuses(lambda: trained.probability(x[:, :-1]), "probability must refuse another number of features")

    probability = probability_of(trained, unseen)
    again = fitted(x, y)
    assert np.array_equal(probability_of(again, unseen), probability), "same seed and rows must give the same model"
    likely = np.argsort(probability)[-8:]
    alone = np.concatenate([probability_of(trained, unseen[row : row + 1]) for row in likely])
    close = np.allclose(alone, probability[likely], rtol=1e-5, atol=1e-6)  # float32 may add in another order
    assert close, "a row's probability must not depend on the rows beside it"
    parts = [slice(first, first + 900) for first in range(0, len(y), 900)]
    batches = [Rows(x[part], y[part], None, np.ones(len(y))[part]) for part in parts]
    with holds("fit_batches must learn from labelled rows"):
        streamed = copy.deepcopy(fresh).fit_batches(lambda: batches, len(y))
    assert np.array_equal(probability_of(streamed, unseen), probability), "rows in batches must give the same model"
    alike = fitted(x, y, np.ones(len(y)))
    assert np.array_equal(probability_of(alike, unseen), probability), "weights of 1 must change nothing"
    heavy = fitted(x, y, np.where(y, 50.0, 1.0))
    assert probability_of(heavy, x).mean() > probability_of(trained, x).mean(), "heavier drops must be predicted more"
    if isinstance(trained, TreePredictor):
        assert isinstance(again, TreePredictor)
        with holds("to_ensemble must give the trees of the trained model"):
            ensemble = trained.to_ensemble(features)
        assert ensemble == again.to_ensemble(features), "same seed and rows must give the same ensemble"
        _check_ensemble(trained, ensemble, features, unseen)
    elif (to_network := getattr(trained, "to_network", None)) is not None:
        with holds("to_network must give the network of the trained model"):
            network = to_network(features)
        np.testing.assert_allclose(network.probability(unseen), probability, atol=2e-3)


def _check_ensemble(
    trained: TreePredictor, ensemble: Ensemble, features: tuple[FeatureInput, ...], unseen: npt.NDArray[np.int32]
) -> None:
    from scipy.special import expit

    probability = trained.probability(unseen)
    refuses(lambda: trained.to_ensemble(features[:-1]), "to_ensemble must refuse another number of features")
    assert ensemble.features == features, "to_ensemble must keep the features in order"
    assert ensemble == Ensemble.from_json(ensemble.to_json()), "the ensemble must survive its file"
    total = framework_sum(ensemble, unseen)
    meant = total / len(ensemble.trees) if ensemble.output == "mean_probability" else expit(total)
    np.testing.assert_allclose(meant, probability, rtol=1e-12, atol=1e-12)
    clear = np.abs(total - float(ensemble.threshold)) > rounding_bound(ensemble)
    assert np.array_equal(ensemble.exceeds(unseen)[clear], probability[clear] > 0.5), (
        "the ensemble must decide as the model does"
    )
