"""The predictors that ``foretail train`` can be told to train, by the names of their settings."""

from __future__ import annotations

from dataclasses import asdict

from foretail.configs.schema import Predictor
from foretail.models.predictor import DropPredictor


def predictor_class(name: str) -> type[DropPredictor]:
    """The class behind ``predictor.name``; ForetailError when its packages are not installed."""
    # Each loads the framework that trains it.
    if name == "mlp":
        from foretail.models.neural import MultilayerPerceptron

        return MultilayerPerceptron
    from foretail.models.forest import RandomForest

    return RandomForest


def untrained(settings: Predictor) -> DropPredictor:
    """The predictor of the settings, not trained yet."""
    parameters = asdict(settings)
    return predictor_class(parameters.pop("name"))(**parameters)
