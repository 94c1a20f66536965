"""What the experiments on flows say: the claims of the Credence paper, and the error tolerated.

All verdicts are computed by the rules of this module from figures with bootstrap intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foretail.pipelines.comparison.bootstrap import Resampled, interval
from foretail.pipelines.comparison.claims import (
    CLOSE,
    CLOSE_PERCENT,
    ROUGHLY_PERCENT,
    UNKNOWN,
    VERDICTS,
    WORSE,
    verdict_of,
)
from foretail.pipelines.comparison.statistics import PairedDifference, interval_text
from foretail.pipelines.runs.result import Cell, Table
from foretail.sim_bridge.policy_settings import policy_words

MEASURES = (
    ("short p95", "p95.short"),
    ("incast p95", "p95.incast"),
    ("long p95", "p95.long"),
    ("timed out %", "timed_out_percent.all"),
)
"""What tables over policies compare."""
MEAN, LEAST = "mean", "least"

Conditions = Mapping[str, Resampled]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper about the change of a figure from one policy to another."""

    words: str  #: the paper's
    metric: str  #: of ``flow_bootstrap``
    policy: str  #: name; ``{model}`` stands for the model that Credence asks
    baseline: str  #: name of what it is compared with, likewise
    says: float | str  #: the change in percent, or ``close``, or ``worse``
    at: str = MEAN  #: a condition, their mean, or the one where it is least


_CREDENCE = "credence, {model}"
CLAIMS: dict[str, tuple[Claim, ...]] = {
    "credence_fig6": (
        Claim("incast, Credence against DT", "p95.incast", _CREDENCE, "dt", -95.5),
        Claim("incast, Credence against ABM", "p95.incast", _CREDENCE, "abm", -95.5),
        Claim("incast, Credence against LQD", "p95.incast", _CREDENCE, "lqd", CLOSE),
        Claim("long, Credence against ABM", "p95.long", _CREDENCE, "abm", -28.49),
        Claim("long, Credence against ABM at 80 %", "p95.long", _CREDENCE, "abm", -49.34, "80"),
        Claim("short, Credence against DT", "p95.short", _CREDENCE, "dt", CLOSE),
        Claim("buffer p99.99, DT against Credence", "occupancy_percent.p99.99", "dt", _CREDENCE, -3.77),
        Claim("buffer p99.99, ABM against Credence", "occupancy_percent.p99.99", "abm", _CREDENCE, -18.68),
    ),
    "credence_fig7": (
        Claim("incast, Credence against DT, small bursts", "p95.incast", _CREDENCE, "dt", CLOSE, "10"),
        Claim("incast, Credence against DT", "p95.incast", _CREDENCE, "dt", -95.0),
        Claim("incast, Credence against ABM", "p95.incast", _CREDENCE, "abm", -96.92),
        Claim("long, Credence against ABM at most", "p95.long", _CREDENCE, "abm", -22.02, LEAST),
    ),
    "credence_fig8": (
        Claim("incast, Credence against DT", "p95.incast", _CREDENCE, "dt", -93.27),
        Claim("incast, Credence against ABM", "p95.incast", _CREDENCE, "abm", -93.36),
        Claim("long, Credence against DT", "p95.long", _CREDENCE, "dt", -3.31),
        Claim("long, Credence against ABM", "p95.long", _CREDENCE, "abm", -17.35),
    ),
    "credence_fig9": (
        Claim("incast, Credence against ABM at 8 us", "p95.incast", _CREDENCE, "abm", -97.73, "8"),
        Claim("incast, Credence against ABM at 64 us", "p95.incast", _CREDENCE, "abm", CLOSE, "64"),
    ),
    "credence_fig10": (
        Claim("incast, 0.001 inverted, against LQD", "p95.incast", _CREDENCE + ", 0.001 inverted", "lqd", CLOSE),
        Claim("incast, 0.005 inverted, against LQD", "p95.incast", _CREDENCE + ", 0.005 inverted", "lqd", CLOSE),
        Claim("incast, 0.01 inverted, against LQD", "p95.incast", _CREDENCE + ", 0.01 inverted", "lqd", WORSE),
        Claim("incast, 0.1 inverted, against LQD", "p95.incast", _CREDENCE + ", 0.1 inverted", "lqd", WORSE),
    ),
}
"""Section 4 of Credence (NSDI'24); its percentages are read as means over the conditions of a figure."""

RULES = (
    "Change of the figure in percent, with 95 % bootstrap intervals. Where our whole interval has the sign of a "
    f"percentage, it is reproduced when the interval holds it or ours is within {CLOSE_PERCENT:g} points, in shape "
    "when ours is at least half of it, and else weaker.",
    f"Close is reproduced when the whole interval is within {CLOSE_PERCENT:g} %, in shape when the change is within "
    f"{ROUGHLY_PERCENT:g} %; worse, when the whole interval, or the change, is above {CLOSE_PERCENT:g} %.",
)


def judge(claim: Claim, conditions: Conditions, model: str) -> tuple[PairedDifference | None, str]:
    """The change in percent for Credence with `model`, and the verdict; None where a run is missing."""
    policy, baseline = (name.format(model=model) for name in (claim.policy, claim.baseline))
    at = {claim.at} if claim.at not in (MEAN, LEAST) else set(conditions)
    changes = {
        name: found.change_percent(policy, baseline, claim.metric)
        for name, found in conditions.items()
        if name in at and {policy, baseline} <= found.policies.keys()
    }
    if not at or changes.keys() != at:
        return None, UNKNOWN
    seeds = min(len(conditions[name].seeds) for name in changes)
    if claim.at == LEAST:
        found = interval(min(changes.values(), key=lambda change: float(change[0])), seeds)
    else:
        found = interval(np.mean(list(changes.values()), axis=0), seeds)
    return found, verdict_of(claim.says, found)


def claims_table(experiment: str, conditions: Conditions, models: Sequence[str]) -> Table:
    """The paper's claims beside what was found for Credence with each model."""
    rows = []
    for claim in CLAIMS[experiment]:
        row: list[Cell] = [claim.words, claim.says if isinstance(claim.says, str) else f"{claim.says:+g}"]
        for model in models:
            found, verdict = judge(claim, conditions, model)
            row += ["-" if found is None else interval_text(found), verdict]
        rows.append(tuple(row))
    columns = [column for model in models for column in (f"Credence, {model}", f"verdict, {model}")]
    return Table("Claims of the paper, change in %", ("claim", "paper", *columns), tuple(rows), RULES)


def conclusion(experiment: str, conditions: Conditions, models: Sequence[str]) -> list[str]:
    """How many claims of the paper hold with each model."""
    sentences = []
    for model in models:
        verdicts = [judge(claim, conditions, model)[1] for claim in CLAIMS[experiment]]
        counts = {word: verdicts.count(word) for word in VERDICTS}
        words = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        sentences.append(f"Of the paper's {len(verdicts)} claims, with Credence that asks {model}: {words}.")
    return sentences


def tolerance_table(found: Resampled, flipped: Mapping[str, Mapping[float, str]]) -> Table:
    """How far every policy is from LQD, and up to which share of inverted predictions those that ask stay close.

    `flipped` has, by policy and model, the name for each share, ascending.
    """
    rows = [
        (policy, *(interval_text(_change(found, policy, metric)) for _, metric in MEASURES))
        for policy in found.policies
        if policy != "lqd"
    ]
    notes = [
        f"{policy_words(name)}: {_tolerated(found, named, title, metric)}"
        for name, named in flipped.items()
        for title, metric in MEASURES
    ]
    return Table("Change from LQD in %", ("policy", *(title for title, _ in MEASURES)), tuple(rows), tuple(notes))


def _tolerated(found: Resampled, named: Mapping[float, str], title: str, metric: str) -> str:
    if found.figure("lqd", metric).mean == 0:
        return f"{title} of LQD is 0, of which nothing is a percentage"
    return (
        f"{title} within {CLOSE_PERCENT:g} % of LQD up to {_upto(found, named, metric, sure=False)}, its whole "
        f"interval up to {_upto(found, named, metric, sure=True)}"
    )


def _upto(found: Resampled, named: Mapping[float, str], metric: str, *, sure: bool) -> str:
    """The largest share that is close, as are all below it."""
    last = "none"
    for share, policy in sorted(named.items()):
        if policy not in found.policies:
            break
        change = _change(found, policy, metric)
        above = change.high if sure else change.mean
        if above is None or above > CLOSE_PERCENT:
            break
        last = f"{share:g}"
    return last


def _change(found: Resampled, policy: str, metric: str, baseline: str = "lqd") -> PairedDifference:
    return interval(found.change_percent(policy, baseline, metric), len(found.seeds))
