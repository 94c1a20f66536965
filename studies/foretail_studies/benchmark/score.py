"""What a rule scores: its cost J against the reference rule's, over held-out families, with a guard per condition."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretail.pipelines.comparison.statistics import PairedDifference, mean_interval, paired_difference
from foretail.pipelines.families.conditions import Condition, Rule
from foretail.pipelines.families.costs import Costs

GUARD_PERCENT = 25.0
"""A rule fails in a condition where it surely costs more than so much above the reference."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Score:
    """log J of a rule less that of the reference, paired by seed; a family counts once, however many conditions it has.

    ``over_seeds`` is the headline: its interval tells what other seeds of the same conditions would give.
    ``over_families`` has the same mean; its interval tells what other families would give, were these drawn from them.
    """

    over_seeds: PairedDifference
    over_families: PairedDifference
    failed: Sequence[Condition]  #: conditions in which the guard says no

    @classmethod
    def of(cls, costs: Costs, wheres: Sequence[Condition], rule: Rule, reference: Rule) -> Score:
        """The score over some conditions, all measured on the same seeds."""
        failed = [where for where in wheres if fails(guard_percent(costs, where, rule, reference, len(wheres)))]
        return cls.of_families(logs_by_family(costs, wheres, rule, reference), failed)

    @classmethod
    def of_families(cls, by_family: npt.NDArray[np.float64], failed: Sequence[Condition]) -> Score:
        """The score of means by family and seed: float64[families, seeds]."""
        return cls(mean_interval(list(by_family.mean(axis=0))), mean_interval(list(by_family.mean(axis=1))), failed)


def logs_by_family(costs: Costs, wheres: Sequence[Condition], rule: Rule, reference: Rule) -> npt.NDArray[np.float64]:
    """log J of a rule less that of the reference, a mean over the conditions of a family: float64[families, seeds]."""
    pairs = {where: (costs.logs(where, rule), costs.logs(where, reference)) for where in wheres}
    return by_family({where: {seed: own[seed] - other[seed] for seed in own} for where, (own, other) in pairs.items()})


def by_family(values: Mapping[Condition, Mapping[int, float]]) -> npt.NDArray[np.float64]:
    """Values by condition and seed, as means over the conditions of each family: float64[families, seeds]."""
    families: dict[str, list[Mapping[int, float]]] = {}
    for where, by_seed in values.items():
        families.setdefault(where.family, []).append(by_seed)
    seeds = sorted(next(iter(families.values()))[0])
    return np.array([[np.mean([one[seed] for one in of]) for seed in seeds] for of in families.values()])


def guard_percent(costs: Costs, where: Condition, rule: Rule, reference: Rule, conditions: int) -> float | None:
    """By how much a rule costs at least more than the reference in a condition, %; None with one seed.

    The bounds of all `conditions` hold together with `CONFIDENCE` (Bonferroni), so a rule that is nowhere worse fails
    somewhere in one of twenty benchmarks at most.
    """
    low = paired_difference(costs.logs(where, rule), costs.logs(where, reference), confidence_of_each(conditions)).low
    return None if low is None else 100 * math.expm1(low)


def confidence_of_each(conditions: int) -> float:
    """The confidence of two-sided intervals, of which all lower (or all upper) ends then hold with `CONFIDENCE`."""
    return 1 - 2 * (1 - CONFIDENCE) / conditions


def fails(guard: float | None) -> bool:
    """Whether a guard says no."""
    return guard is not None and guard > GUARD_PERCENT


def best_by_family(costs: Costs, wheres: Sequence[Condition], rules: Sequence[Rule], reference: Rule) -> Rule:
    """The rule with the least score over some conditions."""
    scores: Mapping[Rule, float] = {
        rule: Score.of(costs, wheres, rule, reference).over_seeds.mean or 0.0 for rule in rules
    }
    return min(scores, key=lambda rule: scores[rule])
