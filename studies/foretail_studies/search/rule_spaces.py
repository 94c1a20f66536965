"""Spaces of sharing rules: some numbers of one fixed form, or small programs of comparisons.

A program is a tree of comparisons whose leaves accept or drop. Its nodes are numbered from 1. Below node i stand 2i,
where the feature is at most the cut, and 2i + 1. The root compares, and a node that accepts or drops
hides what is below it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Protocol

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from foretail.features.catalog import feature
from foretail.models.drop.sharing_rule import HIGHEST, rule_ensemble
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.nested import Rule
from foretail.pipelines.settings.rules import rule_of

ACCEPT, DROP = "accept", "drop"
LEAVES = {ACCEPT: False, DROP: True}


class RuleSpace(Protocol):
    """What a search draws rules from."""

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """What is drawn, by its name."""

    @property
    def first(self) -> Sequence[Mapping[str, Any]]:
        """Rules to try first; what they do not name is drawn."""

    def text(self, values: Mapping[str, Any]) -> str:
        """A rule in one line, the same for drawn values that make the same rule."""

    def ensemble(self, values: Mapping[str, Any], cell_bytes: int) -> Ensemble:
        """A rule as trees; `cell_bytes` is the unit of ``message_left``."""


@dataclass(frozen=True)
class Numbers:
    """The numbers of a :class:`~foretail.models.drop.sharing_rule.SharingRule`."""

    ranges: Mapping[str, Sequence[int]]  #: first and last value of each
    first: Sequence[Mapping[str, Any]]

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """An integer for every number."""
        return {name: IntDistribution(low, high) for name, (low, high) in self.ranges.items()}

    def text(self, values: Mapping[str, Any]) -> str:
        """The numbers in the order of the rule."""
        return " ".join(map(str, astuple(rule_of(values))))

    def ensemble(self, values: Mapping[str, Any], cell_bytes: int) -> Ensemble:
        """One or two trees."""
        return rule_of(values).ensemble(cell_bytes)


@dataclass(frozen=True)
class Programs:
    """Trees of comparisons.

    Examples
    --------
    >>> space = Programs(["message_left", "pressure"], depth=2, first=[])
    >>> drawn = {"test_1": "message_left", "cut_1": 17, "test_2": "accept", "test_3": "pressure", "cut_3": 136}
    >>> space.text(drawn | {"leaf_6": "accept", "leaf_7": "drop"})
    'message_left <= 17 ? accept : (pressure <= 136 ? accept : drop)'
    """

    features: Sequence[str]  #: at most 8 bits wide
    depth: int  #: comparisons on the longest path
    first: Sequence[Mapping[str, Any]]

    @property
    def values(self) -> dict[str, Sequence[Any]]:
        """For every inner node its tests and cuts, and what each leaf at the bottom does."""
        drawn: dict[str, Sequence[Any]] = {}
        for node in range(1, 1 << self.depth):
            drawn[f"test_{node}"] = [*self.features, *(LEAVES if node > 1 else ())]
            drawn[f"cut_{node}"] = range(HIGHEST)
        return drawn | {f"leaf_{node}": [*LEAVES] for node in range(1 << self.depth, 2 << self.depth)}

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """The same for Optuna."""
        return {
            name: IntDistribution(values[0], values[-1])
            if isinstance(values, range)
            else CategoricalDistribution(values)
            for name, values in self.values.items()
        }

    def rule(self, values: Mapping[str, Any], node: int = 1) -> Rule:
        """What is decided from a node on; comparisons that decide nothing are left out."""
        test = values[f"test_{node}" if node < 1 << self.depth else f"leaf_{node}"]
        if test in LEAVES:
            return LEAVES[test]
        below, above = self.rule(values, 2 * node), self.rule(values, 2 * node + 1)
        highest = (1 << feature(test).bits) - 1
        return below if below == above else (test, min(values[f"cut_{node}"], highest - 1), below, above)

    def text(self, values: Mapping[str, Any]) -> str:
        """The comparisons as nested conditions."""
        return _text(self.rule(values))

    def ensemble(self, values: Mapping[str, Any], cell_bytes: int) -> Ensemble:
        """One tree."""
        return rule_ensemble([self.rule(values)], tuple(self.features), cell_bytes)


def _text(rule: Rule) -> str:
    if not isinstance(rule, tuple):
        return DROP if rule else ACCEPT
    name, cut, below, above = rule
    low, high = (f"({_text(one)})" if isinstance(one, tuple) else _text(one) for one in (below, above))
    return f"{name} <= {cut} ? {low} : {high}"
