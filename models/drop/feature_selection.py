"""Which features a predictor needs: permutation importance, and forward selection within what a switch can afford."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.features.catalog import SelectionCost, selection_cost
from foretail.features.rows.labelled_rows import Rows
from foretail.models.drop.predictor import DropPredictor
from foretail.models.scoring.metrics import rank
from foretail.models.scoring.operating_point import require_drops


@dataclass(frozen=True)
class Importance:
    """How much average precision falls when the values of a feature are shuffled among the rows."""

    mean: float  #: over the shuffles; 0 for a feature that the predictor ignores
    deviation: float  #: over the shuffles: that of the population


@dataclass(frozen=True)
class FeatureBudget:
    """Most that a selection may take beyond Credence on one switch; None sets no limit."""

    features: int | None = None  #: number of features
    register_bits: int | None = None  #: as :class:`foretail.features.catalog.SelectionCost`'s
    operations: int | None = None  #: as :class:`foretail.features.catalog.SelectionCost`'s

    def allows(self, features: int, cost: SelectionCost) -> bool:
        """Return whether a selection of so many features at this cost is within every limit."""
        taken = {"features": features, **asdict(cost)}
        return all(most is None or taken[name] <= most for name, most in asdict(self).items())

    def __str__(self) -> str:
        return ", ".join(f"{name} <= {most}" for name, most in asdict(self).items() if most is not None) or "no limit"


@dataclass(frozen=True)
class SelectedFeatures:
    """A step of the selection."""

    names: tuple[str, ...]  #: features, in the order in which they were added
    cost: SelectionCost  #: theirs together
    average_precision: float  #: on the validation rows, in [0, 1]


def permutation_importance(
    predictor: DropPredictor, x: npt.NDArray[np.int32], lqd_drop: npt.NDArray[np.bool_], repeats: int, seed: int
) -> list[Importance]:
    """Return the importance of every feature to a trained predictor (Breiman, Machine Learning 45, 2001).

    Features that tell the same share what they tell: each alone may look worthless. No model is trained again.
    ForetailError when no row is a drop, or the predictor is not trained on so many features.

    Parameters
    ----------
    predictor : trained on these columns
    x : int32[rows, features]
    lqd_drop : bool[rows], labels of rows that did not train it
    repeats : shuffles of every feature, at least 1
    seed : of the shuffles
    """
    from sklearn import inspection

    require_drops(lqd_drop)
    importance = inspection.permutation_importance(
        predictor, x, lqd_drop, scoring=_average_precision, n_repeats=repeats, random_state=seed
    )
    return [
        Importance(float(mean), float(deviation))
        for mean, deviation in zip(importance.importances_mean, importance.importances_std, strict=True)
    ]


def select_features(
    make: Callable[[], DropPredictor],
    candidates: Sequence[str],
    train: Rows,
    validation: Rows,
    *,
    ports: int,
    budget: FeatureBudget,
    margin: float,
    report: Callable[[float, str], None] = lambda share, words: None,
) -> tuple[SelectedFeatures, ...]:
    """Add the feature that lifts average precision most and fits the budget, until none lifts it by more than `margin`.

    Greedy: every step trains one predictor for each feature that still fits, and takes nothing back. Of equal scores
    the cheaper selection counts, by register bits, then operations, then the order of the candidates. ForetailError on
    an unknown, repeated or study-only feature, sides without drops, a budget that allows no feature, or when no feature
    adds more than `margin`. Returns every step, cheapest first: the front of score against cost that was walked.

    Parameters
    ----------
    make : a predictor that is not trained yet
    candidates : names of the catalog, in the order of the columns of both sides
    train, validation : rows that train, with weights where they are sampled, and all rows that score
    ports : queues of the switch, at least 1
    budget : limits of the selection
    margin : float
        Average precision that a feature must add, at least 0; the first one to that of a constant, the share of drops.
    report : called before every training with the share of the longest path that is done, and the features on trial
    """
    require_drops(validation.lqd_drop)
    costs = {name: selection_cost([name], ports) for name in candidates}
    selection_cost(candidates, ports)  # refuses what is named twice
    if not any(budget.allows(1, cost) for cost in costs.values()):
        name, cheapest = min(costs.items(), key=lambda one: (one[1].register_bits, one[1].operations))
        raise ForetailError(
            f"no feature fits the budget ({budget}), {name} alone takes {cheapest.register_bits} register bits and "
            f"{cheapest.operations} operations: raise the budget"
        )
    path: list[SelectedFeatures] = []
    names: tuple[str, ...] = ()
    score = float(np.mean(validation.lqd_drop))
    most, done = len(candidates) * (len(candidates) + 1) // 2, 0
    while True:
        tried: list[SelectedFeatures] = []
        for name in candidates:
            with_it = (*names, name)
            if name in names or not budget.allows(len(with_it), cost := selection_cost(with_it, ports)):
                continue
            report(done / most, ", ".join(with_it))
            done += 1
            places = [candidates.index(one) for one in with_it]
            predictor = make().fit(train.x[:, places], train.lqd_drop, train.weight)
            precision = _average_precision(predictor, validation.x[:, places], validation.lqd_drop)
            tried.append(SelectedFeatures(with_it, cost, precision))
        best = min(
            tried, key=lambda one: (-one.average_precision, one.cost.register_bits, one.cost.operations), default=None
        )
        if best is None or best.average_precision <= score + margin:
            break
        path.append(best)
        names, score = best.names, best.average_precision
    if not path:
        raise ForetailError(
            f"no feature within the budget ({budget}) adds more than {margin:g} to {score:.4g}, the average precision "
            "of a constant: lower the margin, raise the budget, or give more runs"
        )
    return tuple(path)


def _average_precision(predictor: DropPredictor, x: npt.NDArray[np.int32], lqd_drop: npt.NDArray[np.bool_]) -> float:
    return rank(lqd_drop, predictor.probability(x)).average_precision or 0.0  # None only without drops
