"""A track of the benchmark whose score is a share in percent: of what is measured to tables and ``result.json``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from foretail.core.errors import ForetailError
from foretail.pipelines.comparison.statistics import interval_text, mean_interval, paired_difference
from foretail.pipelines.experiment.declaration import Shown
from foretail.pipelines.families.conditions import Condition
from foretail.pipelines.runs.result import Table
from foretail.sim_bridge.policies import ASKING
from foretail.sim_bridge.policy_settings import settings_in_name
from foretail_studies.benchmark.frozen import FrozenRun, named, require_frozen
from foretail_studies.benchmark.score import Score, by_family, confidence_of_each

Percents = Mapping[Condition, Mapping[str, Mapping[int, float]]]
"""Shares in percent, by condition, rule and seed."""


def require_answers(policy: str) -> None:
    """Raise ForetailError on a policy that asks a predictor where none is given, so that it would always accept."""
    name, _ = settings_in_name(policy) or (policy, {})
    if name in ASKING:
        raise ForetailError(
            f"model={policy} asks a predictor and there is none: give model=MODEL, which it asks with asking={name}"
        )


@dataclass(frozen=True)
class Track:
    """What was measured of all rules on one track."""

    version: str
    size: str
    percents: Percents
    held_out: Collection[str]  #: families
    offered: Mapping[tuple[Condition, int], tuple[str, float]]  #: hash of what was offered, and what the reference made
    floor: str  #: the guard fails where a rule is surely below this one
    tuned: str  #: the best without a prediction on the training families
    share: str  #: what the percents are of, in a few words

    @property
    def reference(self) -> list[FrozenRun]:
        """The runs of the reference."""
        return [
            FrozenRun(self.size, where.family, where.family in self.held_out, where.condition, seed, sha256, made)
            for (where, seed), (sha256, made) in self.offered.items()
        ]

    def wheres(self, held_out: bool) -> list[Condition]:
        """The conditions that judge, or those that train."""
        return [where for where in self.percents if (where.family in self.held_out) == held_out]

    def score(self, rule: str, held_out: bool = True) -> Score:
        """The mean share over families, with intervals over seeds and over families."""
        wheres = self.wheres(held_out)
        failed = [where for where in wheres if (high := self.guard(where, rule)) is not None and high < 0]
        return Score.of_families(by_family({where: self.percents[where][rule] for where in wheres}), failed)

    def guard(self, where: Condition, rule: str) -> float | None:
        """By how many points a rule is at most above the floor in a condition; None with one seed.

        The bounds of all held-out conditions hold together (:func:`confidence_of_each`).
        """
        of = self.percents[where]
        return paired_difference(of[rule], of[self.floor], confidence_of_each(len(self.wheres(True)))).high

    def shown(self, judged: str | None, rules: Sequence[str], notes: Sequence[str]) -> Shown:
        """Verify the frozen runs, and show everybody's score; without a judged rule that of the tuned one counts."""
        require_frozen(self.reference, self.size, self.version)
        scores = {rule: self.score(rule) for rule in rules}
        own = scores[judged or self.tuned]
        return Shown(
            self._rows(rules),
            [self._table(scores, judged)],
            notes=(
                f"A score is {self.share}: the mean over held-out families, with its 95 % interval over "
                f"{len({seed for _, seed in self.offered})} seeds.",
                f"The guard fails where a rule is surely below {self.floor}.",
                *notes,
            ),
            verdict=self._verdict(scores, judged),
            details={
                "version": named(self.version, self.size),
                "judged": judged or self.tuned,
                "tuned_threshold": self.tuned,
                **self._document(own, False),
                "scores": {rule: self._document(score, True) for rule, score in scores.items()},
                "reference_runs": self.reference,
            },
        )

    def _verdict(self, scores: Mapping[str, Score], judged: str | None) -> list[str]:
        best = f"{self.tuned}, the best without a prediction on the training families,"
        sentences = [f"{best} scores {interval_text(scores[self.tuned].over_seeds, '')} %."]
        if judged is not None:
            own = scores[judged]
            fails = f"the guard fails in {len(own.failed)} of {len(self.wheres(True))} conditions"
            sentences.insert(0, f"{judged} scores {interval_text(own.over_seeds, '')} %; {fails}.")
        return sentences

    def _document(self, score: Score, whole: bool) -> dict[str, object]:
        over, families = score.over_seeds, score.over_families
        ends: dict[str, object] = {"score": over.mean, "low": over.low, "high": over.high}
        if not whole:
            return ends
        failed = [str(where) for where in score.failed]
        return {**ends, "families_low": families.low, "families_high": families.high, "guard_failed": failed}

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

    def _table(self, scores: Mapping[str, Score], judged: str | None) -> Table:
        """Everybody's score, the best first."""
        rows = []
        for rule, score in sorted(scores.items(), key=lambda item: -(item[1].over_seeds.mean or 0.0)):
            words = f"{rule}, tuned" if rule == self.tuned else rule
            rows.append(
                {
                    "rule": f"{words}, judged" if rule == judged else words,
                    "score, %": interval_text(score.over_seeds, ""),
                    "over families": interval_text(score.over_families, ""),
                    "guard fails in": len(score.failed),
                    "on training families, %": interval_text(self.score(rule, held_out=False).over_seeds, ""),
                }
            )
        return Table.of_rows(f"{named(self.version, self.size)}: {self.share}", rows)


def best_of(percents: Percents, wheres: Sequence[Condition], rules: Sequence[str]) -> str:
    """The rule with the highest mean share over the families of some conditions, the first of equals."""
    return max(rules, key=lambda rule: by_family({where: percents[where][rule] for where in wheres}).mean())
