"""Threshold rules: what a threshold is worth by the decisions that it makes on validation rows, by name.

A new one subclasses :class:`ThresholdRule`, its fields are its settings, and it passes
``foretail.testing.check_threshold_rule``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from foretail.core.plugins import THRESHOLD_RULE_GROUP, Kinds, require_numbers, running
from foretail.core.summary import Summarised

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class ThresholdCounts(Summarised):
    """Right and wrong predictions of the validation rows at every threshold, from always dropping to never."""

    tp: Counts  #: int64[thresholds], rows predicted to drop that LQD drops
    fp: Counts  #: int64[thresholds], rows predicted to drop that LQD transmits
    tn: Counts  #: int64[thresholds], rows predicted to pass that LQD transmits
    fn: Counts  #: int64[thresholds], rows predicted to pass that LQD drops

    @classmethod
    def of(cls, tp: Counts, fp: Counts) -> ThresholdCounts:
        """Return all four from two of them, whose first is that of always dropping."""
        return cls(tp, fp, fp[0] - fp, tp[0] - tp)


class ThresholdRule(ABC):
    """Says what every threshold is worth; the best is taken, of equals the lowest.

    Subclasses are frozen dataclasses whose fields all have defaults. They implement `worth`; what that of another
    package returns is checked, and whatever it raises becomes one sentence that names it.
    """

    def values(self, counts: ThresholdCounts) -> npt.NDArray[np.float64]:
        """Return the worth of every threshold, finite: float64[thresholds]; ForetailError when `worth` is wrong."""
        with running(self, "worth", tp=counts.tp, fp=counts.fp, tn=counts.tn, fn=counts.fn):
            worth = self.worth(counts)
        return require_numbers(self, "worth", worth, counts.tp.shape, each="threshold")

    @abstractmethod
    def worth(self, counts: ThresholdCounts) -> npt.NDArray[np.float64]:
        """Return the worth of every threshold: float64[thresholds]."""


@dataclass(frozen=True)
class F1(ThresholdRule):
    """The harmonic mean of precision and recall."""

    def worth(self, counts: ThresholdCounts) -> npt.NDArray[np.float64]:
        f1: npt.NDArray[np.float64] = 2 * counts.tp / np.maximum(2 * counts.tp + counts.fp + counts.fn, 1)
        return f1


THRESHOLD_RULES: Mapping[str, type[ThresholdRule]] = MappingProxyType({"f1": F1})
"""Foretail's own by name."""

_NOUN = "threshold rule"
THRESHOLD_RULE_KINDS = Kinds(THRESHOLD_RULE_GROUP, ThresholdRule, _NOUN, THRESHOLD_RULES)  # type: ignore[type-abstract]
"""Foretail's own threshold rules, and those that installed packages offer."""
