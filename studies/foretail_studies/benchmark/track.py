"""A track of the benchmark whose score is a share in percent: of what is measured to tables and ``result.json``.

What every run of a version finds again: the traffic of its conditions, and what the reference rule costs there.

``python -m foretail_studies.benchmark.track RESULT...`` writes the file of a new version from its ``result.json``.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from foretail.core.errors import ForetailError
from foretail.pipelines.comparison.statistics import PairedDifference, interval_text, mean_interval, paired_difference
from foretail.pipelines.experiment.declaration import Shown
from foretail.pipelines.runs.result import Table
from foretail.sim_bridge.policies import ASKING
from foretail.sim_bridge.policy_settings import settings_in_name
from foretail_studies.families import Condition, Costs, Rule

RuleOf = TypeVar("RuleOf")
CLOSED_LOOP, OPEN_LOOP, DEMAND, ADAPTIVE = "benchmark-1", "open-loop-1", "demand-1", "adaptive-1"
"""The version of each track; its frozen runs are in the file of this name, those of adaptive-1 in open-loop-1's."""


@dataclass(frozen=True)
class FrozenRun:
    """A run of the reference rule."""

    size: str  #: of the experiment
    family: str
    held_out: bool  #: whether the family judges
    condition: str
    seed: int
    flows_sha256: str  #: of what was offered: flows, arrivals or matrices
    cost: float  #: exact: J; open loop, the packets that are sent; demand, the throughput of the true matrices


def frozen_runs(size: str, version: str = CLOSED_LOOP) -> list[FrozenRun]:
    """The frozen runs of a size, which come with the package."""
    with resources.files(__package__).joinpath(f"{version}.csv").open(encoding="utf-8") as file:
        rows: list[dict[str, Any]] = [row for row in csv.DictReader(file) if row["size"] == size]
    typed = (
        {"held_out": row["held_out"] == "True", "seed": int(row["seed"]), "cost": float(row["cost"])} for row in rows
    )
    return [FrozenRun(**row | values) for row, values in zip(rows, typed, strict=True)]


def named(version: str, size: str) -> str:
    """The version of a run of a size: only the full one is the benchmark."""
    return version if size == "full" else f"{version}-{size}"


def require_frozen(measured: Sequence[FrozenRun], size: str, version: str = CLOSED_LOOP) -> None:
    """Raise ForetailError unless the runs of the reference rule are the frozen ones: these, and no others."""
    measured_runs = {(run.family, run.condition, run.seed): run for run in measured}
    frozen = {(run.family, run.condition, run.seed): run for run in frozen_runs(size, version)}
    for key in frozen.keys() | measured_runs.keys():
        run, known = measured_runs.get(key), frozen.get(key)
        if run == known:
            continue
        if run is None:
            what = "is not measured"
        elif known is None:
            what = "is not part of it"
        elif run.held_out != known.held_out:
            what = "judges or trains where it did the other"
        elif run.flows_sha256 != known.flows_sha256:
            what = "has other traffic"
        else:
            what = f"comes to {run.cost!r} and not {known.cost!r} under the reference"
        raise ForetailError(
            f"{key[0]} {key[1]} with seed {key[2]} {what}, so this is not {version}: leave its families, seeds and "
            f"reference as they are, or use a Foretail that has {version}"
        )


def reference_runs(costs: Costs, reference: Rule, size: str, held_out: Collection[str]) -> Iterator[FrozenRun]:
    """The measured runs of the reference rule; `held_out` names families."""
    for where, rules in costs.runs.items():
        for seed, run in rules[reference].items():
            judges = where.family in held_out
            yield FrozenRun(size, where.family, judges, where.condition, seed, run["flows_sha256"], run["cost"])


def frozen_of(rows: pd.DataFrame, size: str, held_out: Collection[str], sha256: str, cost: str) -> list[FrozenRun]:
    """The runs of the reference rule, from its rows and the names of their columns for the hash and the cost."""
    values = rows[["family", "condition", "seed", sha256, cost]].itertuples(index=False)
    return [
        FrozenRun(size, family, family in held_out, condition, seed, digest, float(made))
        for family, condition, seed, digest, made in values
    ]


def write_frozen(results: list[dict[str, Any]], path: Path) -> None:
    """Write what experiments found of the reference rule, as their ``result.json`` have it."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(FrozenRun))
        for result in results:
            writer.writerows(astuple(FrozenRun(**run)) for run in result["reference_runs"])


if __name__ == "__main__":
    documents = [json.loads(Path(result).read_text(encoding="utf-8")) for result in sys.argv[1:]]
    (version,) = {document["version"].removesuffix(f"-{document['size']}") for document in documents}
    write_frozen(documents, Path(__file__).with_name(f"{version}.csv"))


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
    def of(cls, costs: Costs, conditions: Sequence[Condition], rule: Rule, reference: Rule) -> Score:
        """The score over some conditions, all measured on the same seeds."""
        failed = [where for where in conditions if fails(guard_percent(costs, where, rule, reference, len(conditions)))]
        return cls.of_families(logs_by_family(costs, conditions, rule, reference), failed)

    @classmethod
    def of_families(cls, by_family: npt.NDArray[np.float64], failed: Sequence[Condition]) -> Score:
        """The score of means by family and seed: float64[families, seeds]."""
        return cls(mean_interval(list(by_family.mean(axis=0))), mean_interval(list(by_family.mean(axis=1))), failed)

    def document(self, percent: Callable[[float | None], float | None]) -> dict[str, Any]:
        """Every figure, with `percent` of the ends of intervals."""
        seeds, families = self.over_seeds, self.over_families
        ends = {"score": seeds.mean, "low": seeds.low, "high": seeds.high}
        ends |= {"families_low": families.low, "families_high": families.high}
        failed = [str(where) for where in self.failed]
        return {**{name: percent(end) for name, end in ends.items()}, "guard_failed": failed}


def scores_document(
    version: str,
    judged: RuleOf,
    tuned: RuleOf,
    scores: Mapping[RuleOf, Score],
    reference: Sequence[FrozenRun],
    percent: Callable[[float | None], float | None] = lambda end: end,
) -> dict[str, Any]:
    """Everybody's score and the runs of the reference, for ``result.json``."""
    documents = {str(rule): score.document(percent) for rule, score in scores.items()}
    return {
        "version": version,
        "judged": str(judged),
        "tuned_threshold": str(tuned),
        **{name: documents[str(judged)][name] for name in ("score", "low", "high")},
        "scores": documents,
        "reference_runs": reference,
    }


def scores_table(
    title: str,
    scores: Mapping[RuleOf, Score],
    on_training: Mapping[RuleOf, Score],
    roles: Mapping[str, RuleOf | None],
    text: Callable[[PairedDifference], str],
) -> Table:
    """Everybody's score, the best first; `roles` are words behind the name of a rule."""
    rows = [
        {
            "rule": ", ".join([str(rule), *(word for word, one in roles.items() if one == rule)]),
            "score, %": text(score.over_seeds),
            "over families": text(score.over_families),
            "guard fails in": len(score.failed),
            "on training families, %": text(on_training[rule].over_seeds),
        }
        for rule, score in scores.items()
    ]
    return Table.of_rows(title, rows)


def logs_by_family(
    costs: Costs, conditions: Sequence[Condition], rule: Rule, reference: Rule
) -> npt.NDArray[np.float64]:
    """log J of a rule less that of the reference, a mean over the conditions of a family: float64[families, seeds]."""
    pairs = {where: (costs.logs(where, rule), costs.logs(where, reference)) for where in conditions}
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
    """True if a guard says no."""
    return guard is not None and guard > GUARD_PERCENT


def best_by_family(costs: Costs, conditions: Sequence[Condition], rules: Sequence[Rule], reference: Rule) -> Rule:
    """The rule with the least score over some conditions."""
    scores: Mapping[Rule, float] = {
        rule: Score.of(costs, conditions, rule, reference).over_seeds.mean or 0.0 for rule in rules
    }
    return min(scores, key=lambda rule: scores[rule])


Percents = Mapping[Condition, Mapping[str, Mapping[int, float]]]
"""Shares in percent, by condition, rule and seed."""


def percents_of(rows: pd.DataFrame) -> Percents:
    """The column ``percent`` of rows of rules on runs."""
    percents: dict[Condition, dict[str, Mapping[int, float]]] = {}
    for names, some in rows.groupby(["family", "condition", "rule"], sort=False):
        family, condition, rule = map(str, names)
        by_seed = dict(zip(some["seed"], some["percent"], strict=True))
        percents.setdefault(Condition(family, condition), {})[rule] = by_seed
    return percents


def require_answers(policy: str) -> None:
    """Raise ForetailError on a policy that asks a predictor where none is given, so that it would always accept."""
    name, _ = settings_in_name(policy) or (policy, {})
    if name in ASKING:
        raise ForetailError(
            f"model={policy} asks a predictor and there is none: give model=MODEL, which it asks with asking={name}"
        )


@dataclass(frozen=True)
class Track:
    """Measurements of all rules on one track."""

    version: str
    size: str
    percents: Percents
    held_out: Collection[str]  #: families
    reference: Sequence[FrozenRun]  #: its runs
    floor: str  #: the guard fails where a rule is surely below this one
    tuned: str  #: the best without a prediction on the training families
    share: str  #: what the percents are of, in a few words

    def conditions(self, held_out: bool) -> list[Condition]:
        """The conditions that judge, or those that train."""
        return [where for where in self.percents if (where.family in self.held_out) == held_out]

    def score(self, rule: str, held_out: bool = True) -> Score:
        """The mean share over families, with intervals over seeds and over families."""
        conditions = self.conditions(held_out)
        failed = [where for where in conditions if (high := self.guard(where, rule)) is not None and high < 0]
        return Score.of_families(by_family({where: self.percents[where][rule] for where in conditions}), failed)

    def guard(self, where: Condition, rule: str) -> float | None:
        """By how many points a rule is at most above the floor in a condition; None with one seed.

        The bounds of all held-out conditions hold together (:func:`confidence_of_each`).
        """
        of = self.percents[where]
        return paired_difference(of[rule], of[self.floor], confidence_of_each(len(self.conditions(True)))).high

    def shown(self, judged: str | None, rules: Sequence[str], notes: Sequence[str]) -> Shown:
        """Verify the frozen runs, and show everybody's score; without a judged rule that of the tuned one counts."""
        require_frozen(self.reference, self.size, self.version)
        scores = {rule: self.score(rule) for rule in rules}
        return Shown(
            self._rows(rules),
            [
                scores_table(
                    f"{named(self.version, self.size)}: {self.share}",
                    dict(sorted(scores.items(), key=lambda item: -(item[1].over_seeds.mean or 0.0))),
                    {rule: self.score(rule, held_out=False) for rule in rules},
                    {"tuned": self.tuned, "judged": judged},
                    lambda difference: interval_text(difference, ""),
                )
            ],
            notes=(
                f"A score is {self.share}: the mean over held-out families, with its 95 % interval over "
                f"{len({run.seed for run in self.reference})} seeds.",
                f"The guard fails where a rule is surely below {self.floor}.",
                *notes,
            ),
            verdict=self._verdict(scores, judged),
            details=scores_document(
                named(self.version, self.size), judged or self.tuned, self.tuned, scores, self.reference
            ),
        )

    def _verdict(self, scores: Mapping[str, Score], judged: str | None) -> list[str]:
        best = f"{self.tuned}, the best without a prediction on the training families,"
        sentences = [f"{best} scores {interval_text(scores[self.tuned].over_seeds, '')} %."]
        if judged is not None:
            own = scores[judged]
            fails = f"the guard fails in {len(own.failed)} of {len(self.conditions(True))} conditions"
            sentences.insert(0, f"{judged} scores {interval_text(own.over_seeds, '')} %; {fails}.")
        return sentences

    def _rows(self, rules: Sequence[str]) -> pd.DataFrame:
        """One row per condition and rule: the mean share in percent over seeds, its interval, and the guard."""
        rows = []
        for where, of in self.percents.items():
            for rule in rules:
                over = mean_interval(list(of[rule].values()))
                rows.append(
                    {
                        "family": where.family,
                        "condition": where.condition,
                        "held_out": where.family in self.held_out,
                        "rule": rule,
                        "seeds": len(of[rule]),
                        "percent": over.mean,
                        "low": over.low,
                        "high": over.high,
                        "guard": self.guard(where, rule),
                    }
                )
        return pd.DataFrame(rows)


def best_of(percents: Percents, conditions: Sequence[Condition], rules: Sequence[str]) -> str:
    """The rule with the highest mean share over the families of some conditions, the first of equals."""
    return max(rules, key=lambda rule: by_family({where: percents[where][rule] for where in conditions}).mean())
