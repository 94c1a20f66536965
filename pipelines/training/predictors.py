"""The predictors that ``foretail train`` can be told to train, by the names of their settings."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from foretail.configs.schema.training import Predictor, Trainer, Window
from foretail.features.rows.history import ArrivalWindow
from foretail.models.drop.predictor import DropPredictor

SEQUENCE_BEHIND = 15
"""Arrivals before this one that a sequence network sees by default."""


def predictor_class(name: str) -> type[DropPredictor]:
    """The class behind ``predictor.name``; ForetailError when its packages are not installed."""
    # Each loads the framework that trains it.
    if name in ("mlp", "sequence"):
        from foretail.models.drop.neural import MultilayerPerceptron, SequenceNetwork

        return MultilayerPerceptron if name == "mlp" else SequenceNetwork
    if name == "boosted_trees":
        from foretail.models.drop.boosted import BoostedTrees

        return BoostedTrees
    if name == "logistic_regression":
        from foretail.models.drop.logistic import LogisticRegression

        return LogisticRegression
    from foretail.models.drop.forest import ExtraTrees, RandomForest

    return RandomForest if name == "random_forest" else ExtraTrees


def packages(name: str) -> tuple[str, ...]:
    """The packages, beside those of every model, on whose versions a predictor depends."""
    return {
        "boosted_trees": ("xgboost", "xgboost-cpu"),
        "logistic_regression": ("onnxruntime",),
        "mlp": ("torch", "onnxruntime"),
        "sequence": ("torch", "onnxruntime"),
    }.get(name, ())


def window_of(predictor: Predictor, window: Window) -> ArrivalWindow:
    """The arrivals that a predictor sees."""
    usual = SEQUENCE_BEHIND if predictor.name == "sequence" else 0
    return ArrivalWindow(usual if window.behind is None else window.behind, window.ahead)


def untrained(predictor: Predictor, trainer: Trainer, window: ArrivalWindow) -> DropPredictor:
    """The predictor of the settings, not trained yet; it takes of `trainer` and `window` what it knows."""
    parameters = asdict(predictor)
    kind = predictor_class(parameters.pop("name"))
    around: dict[str, Any] = {**asdict(trainer), "arrivals": window.arrivals}
    return kind(**parameters, **{name: value for name, value in around.items() if name in kind.parameter_constraints})
