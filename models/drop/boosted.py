"""XGBoost behind the drop predictor interface: boosted trees, and its own kind of forest."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.core.settings import setting
from foretail.features.rows.labelled_rows import Rows
from foretail.models.drop.predictor import TreePredictor, checked_rows
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.frontends import from_xgboost


@dataclass(eq=False)
class BoostedTrees(TreePredictor):
    """XGBoost's trees with a logistic link.

    The first tree starts from even odds. From those of drops as rare as in a trace, which XGBoost would take, its
    Newton steps overshoot by hundreds, and a few trees tell nothing.

    Attributes
    ----------
    booster_ : the trained trees

    Examples
    --------
    >>> from foretail.testing import synthetic_arrivals
    >>> x, y = synthetic_arrivals(rows=2000, seed=1)
    >>> BoostedTrees(trees=3, depth=2).fit(x, y).probability(x).shape
    (2000,)
    """

    packages = ("xgboost", "xgboost-cpu")
    holds_rows = False

    @classmethod
    def device_here(cls) -> str:
        """Return ``cuda`` where XGBoost finds a GPU."""
        import xgboost

        return "cuda" if _finds_gpu(xgboost) else "cpu"

    #: trees one after the other, each on what the others leave; or all at once, each on its own draw of rows
    mode: Literal["boosted", "forest"] = setting("boosted")
    trees: int = setting(4, at_least=1, at_most=4096)  #: number of trees, in either mode
    #: largest depth of a tree: the number of comparisons a packet costs per tree
    depth: int = setting(4, at_least=1, at_most=32)
    learning_rate: float = setting(0.3, at_least=1e-6, at_most=1)  #: what of a tree counts; 1 for a forest
    min_child_weight: float = setting(1.0, at_least=0)  #: fewest p (1 - p), summed over the weighted rows of a leaf
    l2: float = setting(1.0, at_least=0)  #: penalty on the squares of leaf values
    #: share of the rows that a tree sees; a forest needs less than 1, or its trees are alike
    subsample: float = setting(1.0, at_least=1e-6, at_most=1)
    feature_share: float = setting(1.0, at_least=1e-6, at_most=1)  #: share of the features that are tried at each split
    #: values of a feature among which cuts are sought, its weighted quantiles. XGBoost's own 256 are too few: drops lie
    #: in the uppermost thousandths of an occupancy, which one bin would hold.
    bins: int = setting(4096, at_least=2, at_most=2**16)
    seed: int = setting(1, at_least=0, at_most=2**31 - 1)  #: same seed, rows, jobs and device, same trees
    jobs: int = setting(1, at_least=1)  #: threads that train; sums of gradients depend on it, in their last bits
    #: of more rows `fit_batches` keeps the bins in temporary files while it trains on a CPU
    rows_in_memory: int = setting(100_000_000, at_least=1)
    #: where it trains; predictions are made on the CPU
    device: Literal["cpu", "cuda"] = setting("cpu")

    def _fit(self, x: npt.NDArray[np.int32], y: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64]) -> None:
        self._boost(lambda matrix: matrix(x, label=y, weight=weight))

    def fit_batches(self, batches: Callable[[], Iterable[Rows]], at_most: int) -> Self:
        """Fit like ``DropPredictor.fit_batches``; memory holds what XGBoost makes of the rows, not the rows.

        XGBoost goes four times through the batches on a CPU, to count, to find the quantiles and to bin. Of more than
        `rows_in_memory` rows it keeps the bins in files, and the trees are the same.
        """
        import xgboost

        self.check_parameters()
        if self.device == "cpu" and at_most > self.rows_in_memory:
            with TemporaryDirectory(prefix="foretail-bins-") as folder:
                passes = _passes(xgboost, batches, self, cache_prefix=f"{folder}/bins")
                self._boost(lambda matrix: matrix(passes), in_files=True)
        else:
            self._boost(lambda matrix: matrix(_passes(xgboost, batches, self)))
        return self

    def _boost(self, matrix: Callable[[Callable[..., Any]], Any], *, in_files: bool = False) -> None:
        import xgboost

        kind = xgboost.ExtMemQuantileDMatrix if in_files else xgboost.QuantileDMatrix
        if self.device == "cuda" and not _finds_gpu(xgboost):
            raise ForetailError(
                "trainer.device=cuda finds no GPU for XGBoost: install the package xgboost instead of xgboost-cpu on a "
                "machine with one, or set trainer.device=cpu"
            )
        try:
            rows = matrix(partial(kind, max_bin=self.bins, nthread=self.jobs))
        except _Stopped as stopped:
            raise stopped.__cause__ or stopped from None
        rounds, at_once = (self.trees, 1) if self.mode == "boosted" else (1, self.trees)
        self.booster_ = xgboost.train(
            {
                "objective": "binary:logistic",
                "base_score": 0.5,
                "tree_method": "hist",
                "num_parallel_tree": at_once,
                "max_depth": self.depth,
                "learning_rate": self.learning_rate,
                "min_child_weight": self.min_child_weight,
                "lambda": self.l2,
                "subsample": self.subsample,
                "colsample_bynode": self.feature_share,
                "max_bin": self.bins,
                "seed": self.seed,
                "nthread": self.jobs,
                "device": self.device,
            },
            rows,
            rounds,
            callbacks=[_reporter(xgboost, self, rounds)],
        )
        self.booster_.set_param({"device": "cpu", "nthread": 1})

    def _probability(self, x: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
        import xgboost
        from scipy.special import expit

        margin = self.booster_.predict(xgboost.DMatrix(x, nthread=1), output_margin=True)
        probability: npt.NDArray[np.float64] = expit(margin.astype(np.float64))
        return probability

    def _ensemble(self, features: Sequence[FeatureInput]) -> Ensemble:
        return from_xgboost(self.booster_, features, self.origin())


class _Stopped(Exception):
    """Carries Ctrl-C through XGBoost."""


def _finds_gpu(xgboost: Any) -> bool:
    """True if XGBoost trains on a GPU when asked to, where it would otherwise only warn and train on the CPU."""
    if not xgboost.build_info()["USE_CUDA"]:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about the very thing that is asked here
        booster = xgboost.train({"device": "cuda"}, xgboost.DMatrix(np.zeros((2, 1)), label=[0.0, 1.0]), 1)
    device: str = json.loads(booster.save_config())["learner"]["generic_param"]["device"]
    return device.startswith("cuda")


def _passes(xgboost: Any, batches: Callable[[], Iterable[Rows]], predictor: BoostedTrees, **cache: Any) -> Any:
    """Return what gives XGBoost the batches, perhaps with a cache; the predictor keeps the counts of their rows."""

    class Passes(xgboost.DataIter):  # type: ignore[misc]
        number = 0

        def reset(self) -> None:
            self.coming, self.number = iter(batches()), self.number + 1
            self.rows = self.drops = self.features = 0

        def next(self, input_data: Callable[..., None]) -> bool:
            try:
                batch = next((rows for rows in self.coming if len(rows)), None)
            except KeyboardInterrupt as stop:  # XGBoost hands on no more than an Exception
                raise _Stopped from stop
            if batch is None:
                predictor._keep_counts(self.rows, self.drops, self.features)
                return False
            x, y, weight = checked_rows(batch.x, batch.lqd_drop, batch.weight)
            self.rows, self.drops, self.features = self.rows + len(y), self.drops + int(y.sum()), x.shape[1]
            input_data(data=x, label=y, weight=weight)
            predictor.report(0.0, f"pass {self.number} through the rows: {self.rows:,}")
            return True

    return Passes(**cache)


def _reporter(xgboost: Any, predictor: BoostedTrees, rounds: int) -> Any:
    class Reporter(xgboost.callback.TrainingCallback):  # type: ignore[misc]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            predictor.report((epoch + 1) / rounds, f"tree {epoch + 1} of {rounds}")
            return False

    return Reporter()
