"""Effect of rounding on a decision: the framework's own sum, and how far any order of adding can be from the exact one.

Proofs and decisions use exact sums. This is for the inputs at which the framework that trained the model would decide
otherwise, which an export lists. scikit-learn adds forests, trees and gradient boosting in float64 in tree order (with
``n_jobs`` > 1 a forest's threads add in any order) and divides a forest's sum by the number of trees; XGBoost adds in
float32 in tree order; both start from the base.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foretail.models.ensemble.ensemble import Ensemble


def arithmetic(ensemble: Ensemble) -> np.dtype[np.floating]:
    """Return the type its framework adds in: what ``origin`` says, else float64 for forests, float32 for boosting."""
    default = "float64" if ensemble.output == "mean_probability" else "float32"
    return np.dtype(np.float32 if ensemble.origin.get("arithmetic", default) == "float32" else np.float64)


def framework_sum(ensemble: Ensemble, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the sum of every row as the framework rounds it, in its arithmetic and in tree order: float64[rows]."""
    x = ensemble.checked_inputs(x)
    dtype = arithmetic(ensemble)
    total = np.full(len(x), ensemble.base, dtype)
    for tree in ensemble.trees:
        total += tree.value.astype(dtype)[tree.leaf(x)]
    return total.astype(np.float64)


def framework_drops(ensemble: Ensemble, x: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Return the framework's own decision on every row: bool[rows].

    Forests compare the mean probability, boosted trees the logit (before any link), with the threshold as a float64.
    """
    total = framework_sum(ensemble, x)
    if ensemble.output == "mean_probability":
        count = len(ensemble.trees)
        return total / count > float(ensemble.threshold / count)
    return total > float(ensemble.threshold)


def rounding_bound(ensemble: Ensemble) -> float:
    """Return how close to the threshold a sum may be for some order of rounding, or the link, to decide otherwise.

    ``|framework_sum - threshold| > rounding_bound`` means that the framework decides as the exact sum does.
    """
    unit = float(np.finfo(arithmetic(ensemble)).eps) / 2
    largest = abs(ensemble.base) + sum(float(np.abs(tree.value).max()) for tree in ensemble.trees)
    # Each of count + 1 additions and the division loses a unit of at most `largest`, XGBClassifier with DART two per
    # tree; a logit as small as `link` has the probability 1/2 after rounding.
    link = 8 * unit if ensemble.output == "logit" else 0.0
    return 2 * (len(ensemble.trees) + 2) * unit * (largest + abs(float(ensemble.threshold))) + link
