"""Drop predictors as classifiers of scikit-learn: for its searches, cross-validations and pipelines."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from foretail.models.drop.forest import RandomForest
from foretail.models.drop.predictor import DropPredictor


class DropClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no annotations
    """A classifier of scikit-learn that fits a copy of a drop predictor.

    Its second class, in sorted order, is what LQD drops: True where the labels are bools.

    Parameters
    ----------
    predictor : DropPredictor, whose parameters are ``predictor__NAME``; None is ``RandomForest()``

    Attributes
    ----------
    predictor_ : the trained predictor, for ``to_ensemble`` and export
    classes_ : array [2], the labels
    n_features_in_ : columns of the training rows

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from foretail.testing import synthetic_arrivals
    >>> x, y = synthetic_arrivals(rows=6000, seed=2)
    >>> search = GridSearchCV(DropClassifier(RandomForest()), {"predictor__depth": [1, 6]}, cv=3, scoring="f1")
    >>> search.fit(x, y).best_params_
    {'predictor__depth': 6}
    """

    def __init__(self, predictor: DropPredictor | None = None) -> None:
        self.predictor = predictor

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Learn from integer features [rows, features] and two kinds of labels [rows]; a row of weight 0 is left out.

        ValueError on other input, ForetailError as :meth:`DropPredictor.fit`.
        """
        x, labels = validate_data(self, X, y, dtype=None)
        check_classification_targets(labels)
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, x, allow_all_zero_weights=False)
            x, labels, sample_weight = x[weights != 0], labels[weights != 0], weights[weights != 0]
        self.classes_, drops = np.unique(labels, return_inverse=True)
        if len(self.classes_) != 2:
            words = "Only binary classification is supported: " if len(self.classes_) > 2 else ""
            raise ValueError(f"{words}the labels have {len(self.classes_)} class(es), give two")
        self.predictor_: DropPredictor = clone(self.predictor or RandomForest())
        self.predictor_.fit(_whole(x), drops.astype(bool), sample_weight)
        return self

    def predict_proba(self, X: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the probabilities of both classes: float64[rows, 2]."""
        check_is_fitted(self)
        drop = self.predictor_.probability(_whole(validate_data(self, X, reset=False, dtype=None)))
        return np.stack([1 - drop, drop], axis=1)

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the label of each row: the second where its probability is more than one half."""
        drop = self.predict_proba(X)[:, 1] > 0.5  # before fit there are no classes
        labels: npt.NDArray[Any] = self.classes_[drop.astype(int)]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.categorical = tags.input_tags.positive_only = True  # the checks' words for integers from 0 on
        return tags


def _whole(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Whole numbers as integers, whatever their type; other numbers stay, and are refused by the predictor."""
    whole = x.astype(np.int64) if x.dtype.kind in "fO" else x
    return whole if np.array_equal(whole, x) else x
