"""The drop predictor interface: what a model must do to be trained, scored, tracked and exported by Foretail.

A new predictor subclasses :class:`TreePredictor`, or ``NetworkPredictor`` (``network.py``) when it is a network,
declares its parameters, and passes ``foretail.testing.check_predictor``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.core.plugins import named, require, require_numbers, running
from foretail.core.settings import require_settings
from foretail.features.rows.labelled_rows import Rows, joined
from foretail.models.ensemble.agreement import with_zeros
from foretail.models.ensemble.cells import Cells
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput, OriginValue
from foretail.models.scoring.metrics import RAISE_CONGESTION

COMPARED = 500
"""Rows and cells on which a model and its ensemble are compared, before zeros are put into them."""
FLOAT32_ROUNDING = 1e-3
"""Largest rounding error of a probability in a framework that adds up many leaves."""

MACHINE_PARAMETERS = frozenset({"device", "jobs", "rows_in_memory"})
"""Parameters that tell where, with how many threads and in how much memory to train, which no search varies."""


@dataclass(eq=False)
class Parameterised:
    """Something with declared parameters: a dataclass whose fields are each a setting."""

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.init}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return :meth:`parameters`, under the name by which scikit-learn's ``clone`` and searches ask for them."""
        return self.parameters()

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name; ForetailError on another name."""
        for name, value in parameters.items():
            if name not in self.parameters():
                known = ", ".join(self.parameters())
                raise ForetailError(f"{type(self).__name__} has no parameter {name}: it takes {known or 'none'}")
            setattr(self, name, value)
        return self

    def check_parameters(self) -> None:
        """Raise ForetailError on a parameter out of its range."""
        require_settings(self, "predictor.")


@dataclass(eq=False)
class DropPredictor(Parameterised, ABC):
    """Predicts, from the features of an arrival, whether LQD would drop the packet.

    Parameters are fields and only stored; :meth:`fit` checks them and learns, and what it learns ends in an
    underscore. Subclasses implement `_fit` and `_probability`, which receive checked input; probabilities may be
    float32. What a subclass from another package returns is checked too, and whatever it raises becomes one sentence
    that names it.

    Examples
    --------
    A threshold on the first feature, between the means of both labels:

    >>> from dataclasses import dataclass
    >>> from foretail.testing import synthetic_arrivals
    >>> @dataclass(eq=False)
    ... class Threshold(DropPredictor):
    ...     def _fit(self, x, y, weight):
    ...         self.cut_ = (x[y, 0].mean() + x[~y, 0].mean()) / 2
    ...
    ...     def _probability(self, x):
    ...         return (x[:, 0] > self.cut_).astype(float)
    >>> x, y = synthetic_arrivals(rows=2000, seed=1)
    >>> sorted(set(Threshold().fit(x, y).probability(x).tolist()))
    [0.0, 1.0]
    """

    #: called with the share of `fit` that is done, and words on it, where that takes long; does nothing by default
    report: Callable[[float, str], None] = field(
        default=staticmethod(lambda share, words: None), init=False, repr=False
    )
    holds_rows: ClassVar[bool] = True  #: whether `fit_batches` has all rows in memory at once
    threads_change_the_model: ClassVar[bool] = True  #: whether another number of `jobs` may give another model
    packages: ClassVar[tuple[str, ...]] = ()  #: packages, beside those of every model, on whose versions it depends

    @classmethod
    def device_here(cls) -> str:
        """Return where this machine trains it fastest, as ``trainer.device=auto`` asks: ``cuda`` only with a GPU."""
        return "cpu"

    def fit(self, x: npt.ArrayLike, y: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> Self:
        """Learn from labelled arrivals.

        ForetailError on a parameter out of its range, malformed rows or weights, or labels of one class only.

        Parameters
        ----------
        x : integer array [rows, features], feature values in ``[0, 2**24)``
        y : bool array [rows], whether LQD drops the packet
        weight : float array [rows], optional
            How much each row counts, finite and positive; 1 without it. Probabilities are those of the weighted rows.
        """
        self.check_parameters()
        features, labels, weights = checked_rows(x, y, weight)
        self._keep_counts(len(labels), int(labels.sum()), features.shape[1])
        with running(self, "fit", features=features, labels=labels, weights=weights):
            self._fit(features, labels, weights)
        return self

    def fit_batches(self, batches: Callable[[], Iterable[Rows]], at_most: int) -> Self:
        """Learn the model of :meth:`fit` from rows that come batch by batch.

        They are held all together, once, unless a subclass learns without that.

        Parameters
        ----------
        batches : returns the rows from the first on, the same whenever it is called; errors as :meth:`fit`'s
        at_most : so many rows at most
        """
        rows = joined(batches(), at_most)
        return self.fit(rows.x, rows.lqd_drop, rows.weight)

    def _keep_counts(self, rows: int, drops: int, features: int) -> None:
        """Keep the counts of the training rows; raise ForetailError when they are of one class."""
        if drops == 0:
            raise ForetailError(f"the {rows} training rows hold no drop: {RAISE_CONGESTION}")
        if drops == rows:
            raise ForetailError(f"all {drops} training rows are drops: lower background.load or incast.burst_fraction")
        self.features_in_, self.rows_, self.drops_ = features, rows, drops

    def probability(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the probability that LQD drops each row: float64[rows] in [0, 1]; ForetailError before `fit`."""
        self._require_fit()
        features = checked_features(x)
        if features.shape[1] != self.features_in_:
            raise ForetailError(
                f"the predictor was trained on {self.features_in_} features, but got {features.shape[1]}: "
                f"pass the training columns in order"
            )
        with running(self, "probability", features=features):
            probability = self._probability(features)
        return require_numbers(self, "probability", probability, (len(features),), low=0, high=1)

    def _require_fit(self) -> None:
        if not hasattr(self, "features_in_"):
            raise ForetailError(f"the {type(self).__name__} is not trained: call fit first")

    @abstractmethod
    def _fit(self, x: npt.NDArray[np.int32], y: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64]) -> None: ...

    @abstractmethod
    def _probability(self, x: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]: ...


class TreePredictor(DropPredictor):
    """A drop predictor that is a sum of trees, which every target can export; subclasses also implement `_ensemble`.

    Examples
    --------
    >>> from foretail.testing import synthetic_arrivals
    >>> from foretail.models.drop.forest import RandomForest
    >>> x, y = synthetic_arrivals(rows=2000, seed=1)
    >>> features = [FeatureInput(f"feature_{column}", "", bits=24) for column in range(x.shape[1])]
    >>> ensemble = RandomForest(trees=2, depth=3).fit(x, y).to_ensemble(features)
    >>> len(ensemble.trees)
    2
    """

    def to_ensemble(self, features: Sequence[FeatureInput]) -> Ensemble:
        """Return the trained model as a tree ensemble with probability threshold 0.5; ForetailError before `fit`.

        `features`: the training columns in order.
        """
        self._require_fit()
        with running(self, "to_ensemble"):
            ensemble = self._ensemble(features)
        require(
            self, isinstance(ensemble, Ensemble), "to_ensemble must return an Ensemble", f"a {type(ensemble).__name__}"
        )
        require(self, ensemble.features == tuple(features), "to_ensemble must keep the features in order", "other ones")
        return ensemble

    def check_ensemble(self, ensemble: Ensemble, x: npt.NDArray[np.int32]) -> None:
        """Raise ForetailError when `ensemble` has other probabilities than the model, beyond what its framework rounds.

        They are compared on some of the rows `x`, on points of the ensemble's cells, and on both with zeros in them.
        """
        points = Cells.of(ensemble).sample(COMPARED, np.random.default_rng(0))
        rows = with_zeros(np.concatenate([x[:: -(-len(x) // COMPARED)], points])).astype(np.int32)
        own, exported = self.probability(rows), ensemble.probability(rows)
        wrong = np.flatnonzero(np.abs(own - exported) > FLOAT32_ROUNDING)
        if len(wrong):
            point = dict(zip((item.name for item in ensemble.features), rows[wrong[0]].tolist(), strict=True))
            raise ForetailError(
                f"the trees of {named(self)} give {exported[wrong[0]]:.4g} at {point} where its probability gives "
                f"{own[wrong[0]]:.4g}: let to_ensemble say what the model decides, without rules outside of its trees"
            )

    def origin(self) -> dict[str, OriginValue]:
        """Return what the ensemble's ``origin`` says of the training."""
        settings = {name: value for name, value in self.parameters().items() if name not in MACHINE_PARAMETERS}
        return {
            "predictor": type(self).__name__,
            "rows": self.rows_,
            "drops": self.drops_,
            **{f"parameter.{n}": repr(value) if isinstance(value, float) else value for n, value in settings.items()},
        }

    @abstractmethod
    def _ensemble(self, features: Sequence[FeatureInput]) -> Ensemble: ...


def checked_rows(
    x: npt.ArrayLike, y: npt.ArrayLike, weight: npt.ArrayLike | None
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Return features, labels and weights as predictors get them; errors as :meth:`DropPredictor.fit`'s."""
    features = checked_features(x)
    labels = np.asarray(y)
    if labels.shape != features.shape[:1] or labels.dtype != np.bool_:
        raise ForetailError(f"the labels have shape {labels.shape} and type {labels.dtype}: pass {len(features)} bools")
    return features, labels, np.ones(len(labels)) if weight is None else checked_weights(weight, len(labels))


def checked_features(x: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """Return `x` as int32[rows, features]; raise ForetailError on another shape, type or range, or without rows."""
    array = np.asarray(x)
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "iu":
        raise ForetailError(
            f"the features have shape {array.shape} and type {array.dtype}: pass at least one row of integers"
        )
    if array.min() < 0 or array.max() >= 1 << 24:
        raise ForetailError("the features have values outside [0, 2**24): saturate them as their definition says")
    return array.astype(np.int32, copy=False)


def checked_weights(weight: npt.ArrayLike, rows: int) -> npt.NDArray[np.float64]:
    """Return `weight` as float64[rows]; raise ForetailError on another shape, or a weight not finite and positive."""
    array = np.asarray(weight)
    if array.shape != (rows,) or array.dtype.kind not in "iuf":
        raise ForetailError(
            f"the row weights have shape {array.shape} and type {array.dtype}: pass {rows} numbers, one for each row"
        )
    wrong = np.flatnonzero(~(np.isfinite(array) & (array > 0)))
    if len(wrong):
        raise ForetailError(
            f"row {wrong[0]} weighs {array[wrong[0]]:g}: weights are finite and positive, leave out rows that do not "
            f"count"
        )
    return array.astype(np.float64, copy=False)
