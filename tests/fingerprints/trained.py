"""What is learned on made-up rows: ensembles of every framework that trains them, their thresholds, and scores.

Trained by scikit-learn and XGBoost as `constraints.txt` pins them: another version may move these rows and no other.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from foretail.models.drop.forest import ExtraTrees, RandomForest
from foretail.models.ensemble.ensemble import FeatureInput
from foretail.models.scoring.metrics import rank, scores
from foretail.models.scoring.operating_point import choose_operating_point
from foretail.testing import synthetic_arrivals
from tests.fingerprints.book import Fingerprint, Group
from tests.fingerprints.canonical import fingerprint, parameters_text
from tests.fingerprints.drawn import drawn_ensemble
from tests.fingerprints.place import Place
from tests.forests import CLASSIFIERS, PAPER_INPUTS, read, untrained


def read_back(place: Place) -> Iterator[Fingerprint]:
    """Classifiers of other people's libraries, read into ensembles."""
    random = np.random.default_rng(1)
    x = random.integers(0, 1 << 10, (400, 3))
    y = x[:, 0] + x[:, 1] > 1100 + random.integers(0, 300, 400)
    features = [FeatureInput(f"f{i}", "", 10) for i in range(3)]
    for kind in CLASSIFIERS:
        ensemble = read(untrained(kind, trees=4, depth=4).fit(x, y), features)
        yield Fingerprint("ensemble", parameters_text(classifier=kind), fingerprint(ensemble.to_json()))


def predictors(place: Place) -> Iterator[Fingerprint]:
    """Our own predictors, with the threshold that validation rows choose, and the scores there."""
    x, y = synthetic_arrivals(rows=16_000, seed=1)
    tried = np.arange(len(y)) % 2 == 1
    for name, predictor in (
        ("random_forest", RandomForest(trees=4, depth=4, seed=1)),
        ("random_forest without bootstrap", RandomForest(trees=2, depth=6, bootstrap=False, seed=2)),
        ("extra_trees", ExtraTrees(trees=4, depth=4, seed=1)),
    ):
        ensemble = predictor.fit(x[~tried], y[~tried]).to_ensemble(PAPER_INPUTS)
        point = choose_operating_point(ensemble, x[tried], y[tried])
        chosen = ensemble.with_threshold(point.threshold)
        yield Fingerprint("ensemble", parameters_text(predictor=name), fingerprint(ensemble.to_json()))
        yield Fingerprint("threshold", parameters_text(predictor=name), fingerprint(point))
        told = chosen.exceeds(x[tried].astype(np.int64))
        yield Fingerprint("scores", parameters_text(predictor=name), fingerprint(scores(y[tried], told, ports=8)))


def metrics(place: Place) -> Iterator[Fingerprint]:
    """Scores of drawn answers to drawn questions."""
    random = np.random.default_rng(2)
    ensemble = drawn_ensemble(PAPER_INPUTS, seed=9)
    x = random.integers(0, 1 << 24, (5000, 4))
    truth, asked = random.random((2, 5000)) < [[0.1], [0.3]]
    probability = random.integers(0, 257, 5000) / 256
    told = ensemble.exceeds(x)
    yield Fingerprint("scores", "", fingerprint(scores(truth, told, ports=20, score=probability, asked=asked)))
    yield Fingerprint("ranking", "", fingerprint(rank(truth, probability)))
    yield Fingerprint("threshold", "", fingerprint(choose_operating_point(ensemble, x, truth, asked)))


GROUPS = (
    Group("models", "other libraries", read_back),
    Group("models", "predictors", predictors),
    Group("models", "metrics", metrics),
)
