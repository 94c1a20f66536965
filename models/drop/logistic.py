"""Logistic regression behind the drop predictor interface: what a single linear score can tell.

It is a network of one layer, no sum of trees: it compares, and reaches a switch as integer C.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.core.settings import setting
from foretail.models.drop.network import Layer, Network, NetworkPredictor, network_columns
from foretail.models.ensemble.ensemble import FeatureInput


@dataclass(eq=False)
class LogisticRegression(NetworkPredictor):
    """scikit-learn's logistic regression on the standardised features and their logarithms.

    Attributes
    ----------
    scaler_ : of the columns of ``network_columns``
    regression_ : on the standardised columns
    """

    threads_change_the_model = False
    packages = ("onnxruntime",)
    l2: float = setting(1.0, at_least=1e-9)  #: penalty on the squares of the coefficients, in weighted rows
    iterations: int = setting(1000, at_least=1)  #: most iterations of its solver

    def _fit(self, x: npt.NDArray[np.int32], y: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64]) -> None:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression as Regression
        from sklearn.preprocessing import StandardScaler

        columns = network_columns(x).astype(np.float64)
        self.scaler_ = StandardScaler(copy=False).fit(columns, sample_weight=weight)
        self.regression_ = Regression(C=1 / self.l2, max_iter=self.iterations)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            try:
                self.regression_.fit(self.scaler_.transform(columns), y, sample_weight=weight)
            except ConvergenceWarning:
                raise ForetailError(
                    f"logistic regression does not converge in {self.iterations} iterations: raise "
                    f"predictor.iterations or predictor.l2"
                ) from None

    def _probability(self, x: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
        from scipy.special import expit

        z = self.scaler_.transform(network_columns(x).astype(np.float64))
        probability: npt.NDArray[np.float64] = expit(self.regression_.decision_function(z))
        return probability

    def _network(self, features: Sequence[FeatureInput]) -> Network:
        layer = Layer(self.regression_.coef_.astype(np.float32), self.regression_.intercept_.astype(np.float32))
        mean, deviation = (part.astype(np.float32) for part in (self.scaler_.mean_, self.scaler_.scale_))
        return Network.of_layers(features, mean, deviation, [layer])
