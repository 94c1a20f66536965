"""The zoo: rules that were searched on one workload each, ready to decide about any packet of a switch.

A rule is an :class:`~foretail.models.drop.thresholds.adaptive_threshold.AdaptiveThreshold`. As trees it is exported,
proven and deployed like any model: ``model=zoo:NAME`` works wherever a model does. No rule suits all traffic:
``foretail choose`` replays a sample of yours under each of them and says which one to use. ``rules.json`` next to this
module has the rules, what trained them and what their exports cost; ``foretail run zoo`` makes it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from foretail.core.errors import ForetailError
from foretail.features.catalog import CELL_BYTES
from foretail.models.drop.sharing_rule import SharingRule
from foretail.models.drop.thresholds.adaptive_threshold import TERMS, AdaptiveThreshold
from foretail.models.ensemble.ensemble import Ensemble
from foretail.sim_bridge._native import Scorer
from foretail.sim_bridge.arrivals.files import AVERAGE_SHIFT

PREFIX = "zoo:"


@dataclass(frozen=True)
class ZooRule:
    """A rule with its certificate.

    Examples
    --------
    >>> from foretail.models import zoo
    >>> rule = zoo.rule(zoo.names()[0])
    >>> rule.ensemble().features[0].name
    'pressure'
    """

    name: str  #: lower-case letters, digits and underscores
    rule: AdaptiveThreshold  #: its numbers
    trained_on: Mapping[str, Any]  #: the workload, its settings and seeds, and the rules that the search tried
    score_percent: float  #: of open-loop-1, the benchmark's track without senders; LQD has 100, always accepting 0
    #: identity of the trees at the usual units, their leaves, what proved the C, and rows, bits and stages of the P4
    certificate: Mapping[str, Any]

    def scorer(self) -> Scorer:
        """Return what a replay asks."""
        return self.rule.scorer()

    def ensemble(self, cell_bytes: int = CELL_BYTES, average_shift: int = AVERAGE_SHIFT) -> Ensemble:
        """Return the same decisions as trees, in these units of the features."""
        return self.rule.ensemble(cell_bytes, average_shift)

    def row(self) -> dict[str, str | int]:
        """Return the row of ``foretail zoo``."""
        settings = ", ".join(f"{name} {value}" for name, value in self.trained_on.get("settings", {}).items())
        trained = f"{self.trained_on['workload']}: {settings}" if self.trained_on else "none: a threshold"
        return {
            "rule": self.name,
            "searched on": trained,
            "ports": self.trained_on.get("ports", "-"),
            "buffer": self.trained_on.get("buffer", "-"),
            "score, %": f"{self.score_percent:.0f}",
        }


def names() -> tuple[str, ...]:
    """Return the names of all rules, the ones that help most on training workloads first.

    Examples
    --------
    >>> from foretail.models import zoo
    >>> len(zoo.names())
    16
    """
    return tuple(_rules())


def rule(name: str) -> ZooRule:
    """Return a rule that a replay can choose by its name; ForetailError when there is none.

    Examples
    --------
    >>> from foretail.models import zoo
    >>> zoo.rule("none_of_them")
    Traceback (most recent call last):
      ...
    foretail.core.errors.ForetailError: the zoo has no rule none_of_them: foretail zoo lists them
    """
    try:
        return _rules()[name]
    except KeyError:
        raise ForetailError(f"the zoo has no rule {name}: foretail zoo lists them") from None


def numbers(rules: Sequence[str]) -> list[int]:
    """Return the numbers of rules by their names, one rule after the other, of all rules without a name.

    Examples
    --------
    >>> from foretail.models import zoo
    >>> len(zoo.numbers(zoo.names()[:2]))
    46
    """
    return [number for name in rules or names() for number in rule(name).rule.fixed()]


def named(numbers: Sequence[int]) -> list[str]:
    """Return the names of the rules with these numbers."""
    by_numbers = {tuple(one.rule.fixed()): name for name, one in _rules().items()}
    size = len(next(iter(by_numbers)))
    return [by_numbers[tuple(numbers[first : first + size])] for first in range(0, len(numbers), size)]


@functools.cache
def _rules() -> dict[str, ZooRule]:
    return {
        one["name"]: ZooRule(
            one["name"],
            AdaptiveThreshold(tuple(one["numbers"]), tuple(one["centres"])),
            one["trained_on"],
            one["score_percent"],
            one["certificate"],
        )
        for one in _document()["rules"]
    }


@functools.cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(resources.files(__package__).joinpath("rules.json").read_text("utf-8"))
    return document


@functools.cache
def sharing_rules() -> dict[str, SharingRule]:
    """Return rules for TCP by their names: they spare the last packets of a message, which senders have to tag.

    They were searched on the training families of the benchmark's closed loop. A replay cannot choose them.

    Examples
    --------
    >>> from foretail.models import zoo
    >>> zoo.sharing_rules()["found_by_search"].message_left
    10
    """
    return {name: SharingRule(**numbers) for name, numbers in _document()["sharing_rules"].items()}


def ensemble(name: str) -> Ensemble:
    """Return the trees of any rule in the usual units; ForetailError when there is none.

    Examples
    --------
    >>> from foretail.models import zoo
    >>> len(zoo.ensemble("found_by_search").trees)
    2
    """
    tagged = sharing_rules().get(name)
    return rule(name).ensemble() if tagged is None else tagged.ensemble(CELL_BYTES)


def tuned_alpha() -> float:
    """Return the alpha of Dynamic Thresholds that sends most on the workloads that trained the zoo.

    Examples
    --------
    >>> from foretail.models import zoo
    >>> zoo.tuned_alpha() in (4.0, 8.0, 16.0)
    True
    """
    return float(_document()["tuned_alpha"])


def note() -> str:
    """Return the sentences below the list: what every rule reads, and what its P4 takes."""
    certificates = [one.certificate for one in _rules().values()]
    rows, bits, stages = ([one[f"p4_{name}"] for one in certificates] for name in ("rows", "tcam_bits", "stages"))
    return (
        f"Every rule decides by {len(TERMS)} features of its switch. Its score is that of the benchmark's open-loop "
        "track, with traffic of many kinds, where no single rule is good. C and P4 are proven equal to its trees; as "
        f"P4 a rule takes {min(rows):,} to {max(rows):,} rows, {max(bits) / 1000:.0f} kbit of TCAM and {max(stages)} "
        "stages at most. foretail choose says which rule suits given traffic; model=zoo:NAME takes one."
    )
