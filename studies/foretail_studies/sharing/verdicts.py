"""What a map says: a row per condition and rule, and a sentence per family by rules on intervals of cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from foretail.pipelines.comparison.statistics import PairedDifference, change_text, mean_interval
from foretail.pipelines.families.conditions import DEFAULT, Condition, Rule
from foretail.pipelines.families.costs import CS, LQD
from foretail.sim_bridge.policies import PUSHING_OUT
from foretail.sim_bridge.policy_settings import policy_words
from foretail_studies.sharing.race import Race

NO_MATTER, THRESHOLD, LQD_PAYS, OPEN = (
    "sharing everything is as good as anything",
    "a tuned threshold is enough",
    "the goal of LQD pays",
    "not decided by these seeds",
)
MEANS = (
    *("timeouts_percent", "p99_short", "p99_long", "p99_query", "query_timeouts"),
    *("goodput_bps", "asked", "predicted_drops"),
)
"""Flows with a timeout, slowdowns, timeouts per query, and packets about which a predictor was asked, or said drop."""


def rows_of(race: Race) -> pd.DataFrame:
    """One row per condition and rule, with means over seeds of what a run measured.

    ``held_out``: no setting was chosen on the family. ``frozen`` and ``hindsight``: the policy's best setting over the
    training families, and in this condition. ``cost``: J, geometric mean over seeds. ``regret``: J over the least J of
    the condition, less 1; the rule with the least J is chosen on the other seeds. Both with 95 % intervals as ``_low``
    and ``_high``, missing with one seed. ``noise_floor``: what the regret of the best would seem to be if it were
    chosen on the seeds that judge.
    """
    rows: list[dict[str, Any]] = []
    for where, rules in race.costs.runs.items():
        contenders = race.contenders[where]
        floor = race.costs.noise_floor(where, contenders)
        for rule, runs in rules.items():
            level = mean_interval(list(race.costs.logs(where, rule).values()))
            rows.append(
                {
                    "family": where.family,
                    "held_out": race.settings.families[where.family].held_out,
                    "condition": where.condition,
                    "policy": rule.policy,
                    "setting": rule.setting,
                    "frozen": rule == race.frozen[rule.policy],
                    "hindsight": rule == race.hindsight(where, rule.policy),
                    "seeds": len(runs),
                    **_with_interval("cost", level, math.exp),
                    **_with_interval("regret", race.costs.regret(where, rule, contenders), math.expm1),
                    "noise_floor": None if floor is None else math.expm1(floor),
                    **{name: mean_interval([run[name] for run in runs.values()]).mean for name in MEANS},
                }
            )
    numbers = {column: np.float64 for column in rows[0] if column.startswith(("cost", "regret", "noise"))}
    return pd.DataFrame(rows).astype(numbers)  # what one seed does not tell is NaN


def _with_interval(name: str, log: PairedDifference, of_log: Callable[[float], float]) -> dict[str, float | None]:
    ends = {name: log.mean, f"{name}_low": log.low, f"{name}_high": log.high}
    return {column: None if value is None else of_log(value) for column, value in ends.items()}


def shown(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """What stands for a policy: it, ``default``, ``frozen`` or ``hindsight``, and its rows, one per condition."""
    for policy, part in rows.groupby("policy", sort=False):
        yield str(policy), DEFAULT, part[part["setting"] == DEFAULT]
        if part["setting"].nunique() > 1:
            for which in ("frozen", "hindsight"):
                yield str(policy), which, part[part[which]]


@dataclass(frozen=True)
class FamilyVerdict:
    """What a family says."""

    family: str
    held_out: bool
    verdict: str  #: one of four
    sentence: str
    lqd_less_cs: PairedDifference  #: log J, mean over conditions, paired by seed
    lqd_less_dt: PairedDifference | None  #: against the frozen setting of DT


def verdicts_of(race: Race) -> list[FamilyVerdict]:
    """A verdict per family."""
    by_family: dict[str, list[Condition]] = {}
    for where in race.plan.scenarios:
        by_family.setdefault(where.family, []).append(where)
    return [_verdict(race, name, wheres) for name, wheres in by_family.items()]


def _verdict(race: Race, name: str, wheres: Sequence[Condition]) -> FamilyVerdict:
    close = math.log1p(race.settings.close_percent / 100)
    frozen = list(race.frozen.values())
    tuned = [rule for rule in frozen if race.settings.policies.get(rule.policy)]
    thresholds = [rule for rule in tuned if rule.policy not in PUSHING_OUT]

    def less(rule: Rule, other: Rule) -> PairedDifference:
        return race.costs.family_difference(wheres, rule, other)

    def no_worse(rule: Rule, than: Sequence[Rule]) -> bool:
        differences = [less(rule, other) for other in than if other != rule]
        return all(one.high is not None and one.high <= close for one in differences)

    lqd_cs = less(LQD, CS)
    dt = race.frozen.get("dt")
    lqd_dt = None if dt is None else less(LQD, dt)
    enough = [rule for rule in thresholds if no_worse(rule, [LQD, CS])]
    if no_worse(CS, frozen):
        verdict, sentence = NO_MATTER, f"{NO_MATTER}: no rule is more than {race.settings.close_percent:g} % cheaper"
    elif enough:
        cheapest = min(enough, key=lambda rule: less(rule, CS).mean or 0.0)
        verdict, sentence = THRESHOLD, f"{THRESHOLD}: {cheapest} costs {change_text(less(cheapest, CS))} against CS"
    elif _below(lqd_cs) and all(_below(less(LQD, rule)) for rule in thresholds):
        verdict, sentence = LQD_PAYS, f"{LQD_PAYS}: it costs {change_text(lqd_cs)} against CS"
    else:
        verdict, sentence = OPEN, f"{OPEN}: LQD costs {change_text(lqd_cs)} against CS"
    if verdict == LQD_PAYS and race.plan.library is not None:
        for policy in race.settings.asking:
            if (recovered := _recovered(race, wheres, policy)) is not None:
                sentence += f"; {policy_words(policy)} with the model recovers {recovered:.0f} % of that"
    return FamilyVerdict(name, race.settings.families[name].held_out, verdict, sentence, lqd_cs, lqd_dt)


def _recovered(race: Race, wheres: Sequence[Condition], policy: str) -> float | None:
    """Of what LQD saves against Complete Sharing, the part that the policy saves, %."""
    difference = race.costs.family_difference(wheres, Rule(policy, DEFAULT), CS).mean
    lqd = race.costs.family_difference(wheres, LQD, CS).mean
    return None if difference is None or not lqd else 100 * difference / lqd


def _below(found: PairedDifference) -> bool:
    """Whether the whole interval is below 0."""
    return found.high is not None and found.high < 0


def conclusion(race: Race, verdicts: Sequence[FamilyVerdict]) -> list[str]:
    """How many families say what; in how many LQD is cheaper than sharing everything and than the frozen DT."""
    counts: Mapping[str, int] = {
        words: sum(one.verdict == words for one in verdicts) for words in (NO_MATTER, THRESHOLD, LQD_PAYS, OPEN)
    }
    counted = ", ".join(f"{words} in {count}" for words, count in counts.items() if count)
    cheaper = [
        one.family for one in verdicts if _below(one.lqd_less_cs) and one.lqd_less_dt and _below(one.lqd_less_dt)
    ]
    frozen = race.frozen.get("dt")
    return [
        f"Of {len(verdicts)} families: {counted}.",
        f"LQD is cheaper than Complete Sharing and than {policy_words('dt')}{f' ({frozen.setting})' if frozen else ''} "
        f"with whole intervals in {len(cheaper)}{': ' if cheaper else ''}{', '.join(cheaper)}.",
    ]
