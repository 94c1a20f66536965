"""Distillation: a small random forest that imitates a teacher, for switches that hold trees but no network.

The forest sees the teacher's answers on training rows in two ways, its decisions and its probabilities, and whichever
gives the student that decides more like the teacher on validation rows is kept. Labels play no part. (Tried on traces
of ns-3 and left out: boosted trees, which drops as rare as these throw off, and rows made up between recorded ones,
which change nothing.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.frontends import from_sklearn
from foretail.models.scoring.metrics import Confusion
from foretail.models.scoring.operating_point import choose_operating_point
from foretail.models.scoring.threshold_rules import ThresholdRule

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestClassifier

Answers = Literal["decisions", "probabilities"]
IntRows = npt.NDArray[np.int32]

LIGHTEST = 2.0**-20
"""Rows are left out of a class that the teacher gives less probability than this."""


@dataclass(frozen=True)
class Budget:
    """How large a student may be."""

    trees: int  #: at least 1
    depth: int  #: comparisons per tree, at least 1
    leaves: int | None = None  #: of all trees together, at least 2 per tree; None: as many as the depth allows

    def __post_init__(self) -> None:
        """Refuse a budget without a tree in it."""
        for name in ("trees", "depth"):
            if getattr(self, name) < 1:
                raise ForetailError(f"student.{name} is {getattr(self, name)}: set it to at least 1")
        if self.leaves is not None and self.leaves < 2 * self.trees:
            raise ForetailError(
                f"student.leaves is {self.leaves}, fewer than two for each of {self.trees} trees: "
                f"allow {2 * self.trees} or use fewer trees"
            )


@dataclass(frozen=True, eq=False)
class Student:
    """A trained student."""

    ensemble: Ensemble  #: at the threshold at which it decides most like the teacher on validation rows
    probability_threshold: float  #: that threshold as a probability, rounded
    forest: RandomForestClassifier  #: what it was read from
    answers: Answers  #: what it was trained on
    validation: Confusion  #: its decisions against the teacher's, on the validation rows that count


def distill(
    teacher: Callable[[IntRows], npt.NDArray[np.float64]],
    threshold: float,
    features: Sequence[FeatureInput],
    x: IntRows,
    validation: IntRows,
    budget: Budget,
    *,
    region: npt.NDArray[np.bool_] | None = None,
    rule: ThresholdRule | None = None,
    seed: int = 1,
) -> tuple[Student, ...]:
    """Train students of a teacher, the one that decides most like it on the validation rows first.

    ForetailError when the teacher drops none or all of the training rows, or none of the validation rows that count.

    Parameters
    ----------
    teacher : drop probability of int32[rows, features]: float64[rows]
    threshold : the teacher drops iff its probability exceeds this
    features : inputs in column order
    x, validation : int32[rows, features], rows of training runs, and of other runs
    region : bool[validation rows], validation rows that count, such as the asked region; all without it
    rule : by which the threshold of a student is chosen; None: the F1 of its decisions
    seed : same seed, teacher and rows, same students
    """
    from sklearn.ensemble import RandomForestClassifier

    probability = teacher(x)
    drops = int(np.count_nonzero(probability > threshold))
    if drops in (0, len(x)):
        raise ForetailError(
            f"the teacher drops {'all' if drops else 'none'} of the {len(x)} training rows, which leaves nothing to "
            f"imitate: train it on such rows, or distill on the runs it was trained on"
        )
    taught = teacher(validation) > threshold
    if not (taught if region is None else taught[region]).any():
        raise ForetailError(
            "the teacher drops none of the validation rows that count, so that no student can be told from another: "
            "give the validation side more runs or a longer time"
        )
    students = []
    for answers, (rows, labels, weights) in _lessons(x, probability, threshold):
        forest = RandomForestClassifier(
            n_estimators=budget.trees,
            max_depth=budget.depth,
            max_leaf_nodes=None if budget.leaves is None else budget.leaves // budget.trees,
            random_state=seed,
        ).fit(rows, labels, sample_weight=weights)
        origin = {"distilled_from": answers, "rows": len(x), "seed": seed}
        origin |= {f"budget.{name}": value for name, value in asdict(budget).items()}
        ensemble = from_sklearn(forest, features, origin)
        point = choose_operating_point(ensemble, validation, taught, region, rule)
        students.append(
            Student(ensemble.with_threshold(point.threshold), point.probability, forest, answers, point.confusion)
        )
    return tuple(sorted(students, key=lambda student: -(student.validation.f1 or 0.0)))


Lesson = tuple[IntRows, npt.NDArray[np.bool_], npt.NDArray[np.float64] | None]


def _lessons(x: IntRows, probability: npt.NDArray[np.float64], threshold: float) -> Iterator[tuple[Answers, Lesson]]:
    """Yield rows, labels and weights of either kind of answer."""
    yield "decisions", (x, probability > threshold, None)
    # A probability p is the row twice, as a drop that weighs p and as another that weighs 1 - p.
    drop, other = probability >= LIGHTEST, probability <= 1 - LIGHTEST
    labels = np.repeat([True, False], [np.count_nonzero(drop), np.count_nonzero(other)])
    weights = np.concatenate([probability[drop], 1 - probability[other]])
    yield "probabilities", (np.concatenate([x[drop], x[other]]), labels, weights)
