"""Tables of the sweeps: means over seeds, violations of what is claimed, and the worst cases found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from foretail.configs.schema.policies import BUFFER_POLICIES
from foretail.pipelines.comparison.statistics import PairedDifference, mean_interval
from foretail.pipelines.runs.result import Cell, Table, plain
from foretail.sim_bridge.policies import may_ask, policy_words

LQD_RATIO = 1.707
"""Competitive ratio of LQD, proven by Antoniadis et al. (ICALP 2021)."""
EXACT = ("credence_smoothness", "competitive_ratio")
"""Experiments that compute the offline optimum."""
SENT = "transmitted_"
"""Begins the columns with what each policy sent."""
SWITCH = ["workload", "ports", "buffer"]


@dataclass(frozen=True)
class Known:
    """What is claimed of a policy: the words, the value for a point, and whether that bounds OPT / ALG from above."""

    words: str
    value: Callable[[Mapping[str, Any]], float]
    is_upper_bound: bool = True


KNOWN: dict[str, Known] = {
    "cs": Known("N + 1", lambda row: row["ports"] + 1),
    "dt": Known("O(N)", lambda row: row["ports"], is_upper_bound=False),
    "harmonic": Known("ln N + 2", lambda row: math.log(row["ports"]) + 2),
    "lqd": Known(f"{LQD_RATIO}", lambda row: LQD_RATIO),
    "followlqd": Known("at least (N + 1) / 2", lambda row: (row["ports"] + 1) / 2, is_upper_bound=False),
    "credence": Known(f"min({LQD_RATIO} eta, N)", lambda row: min(LQD_RATIO * row["eta"], row["ports"])),
    "guarded": Known("N", lambda row: row["ports"]),
}
"""Competitive ratios as Credence (NSDI'24) gathers them in its Table 1, and its Observation 1 for FollowLQD; that of
Guarded Credence is proven in docs/results/worst-cases.md.
"""


def tables_of(experiment: str, points: pd.DataFrame) -> list[Table]:
    """The tables of an experiment."""
    return {
        "credence_fig14": _flips,
        "credence_smoothness": _smoothness,
        "competitive_ratio": _competitive,
    }[experiment](points)


def policies_of(points: pd.DataFrame, prefix: str) -> list[str]:
    """The policies that have a column with this prefix, in the order of the config schema, those from outside last."""
    run = [name.removeprefix(SENT) for name in map(str, points.columns) if name.startswith(SENT)]
    guests = [policy for policy in run if policy not in BUFFER_POLICIES]
    return [policy for policy in (*BUFFER_POLICIES, *guests) if f"{prefix}{policy}" in points]


def over_seeds(points: pd.DataFrame, by: str | list[str], column: str) -> dict[Any, PairedDifference]:
    """Mean and 95 % interval of a column over the seeds, by the values of other columns."""
    return {group: mean_interval(values.dropna().tolist()) for group, values in points.groupby(by)[column]}


def plain_rows(points: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as JSON knows them; None where a ratio has no value."""
    rows: list[dict[str, Any]] = plain(points.to_dict("records"))
    return rows


def conclusion(experiment: str, points: pd.DataFrame) -> list[str]:
    """What an experiment comes to, in two sentences."""
    if experiment == "credence_fig14":
        if "lqd_over_credence" not in points:
            return []
        means = points.groupby("flip_probability")["lqd_over_credence"].mean()
        said = [
            f"{means[share]:.4g} when {100 * share:g} % are inverted" for share in (means.index[0], means.index[-1])
        ]
        found = [f"LQD's throughput over that of Credence, whose predictions are right, is {' and '.join(said)}."]
        others = [policy for policy in policies_of(points, "lqd_over_") if not may_ask(policy) and policy != "lqd"]
        if others:
            rest = {policy: points[f"lqd_over_{policy}"].mean() for policy in others}
            best = min(rest, key=lambda policy: rest[policy])
            found.append(f"Without predictions {policy_words(best)} is closest to LQD, at {rest[best]:.4g}.")
        return found
    if experiment == "credence_smoothness":
        lemma, theorem, ratio = (int(points[f"{name}_violated"].sum()) for name in ("lemma_1", "theorem_2", "bound"))
        return [
            f"Of {len(points):,} points {lemma:,} violate Lemma 1 of Credence and {theorem:,} its Theorem 2.",
            f"Its competitive ratio, min({LQD_RATIO} eta, N), is violated at {ratio:,} of them.",
        ]
    worst = {policy: float(points[f"opt_over_{policy}"].max()) for policy in policies_of(points, "opt_over_")}
    least = min(worst, key=lambda policy: worst[policy])
    found = [f"The largest ratio of the optimum to a policy is least for {policy_words(least)}: {worst[least]:.4g}."]
    if "credence" in worst:
        found.append(f"That of Credence is {worst['credence']:.4g}.")
    return found


def _flips(points: pd.DataFrame) -> list[Table]:
    policies = policies_of(points, "lqd_over_")
    tables = []
    for (workload, ports, buffer), part in points.groupby(SWITCH):
        columns = ["flip probability"]
        cells: dict[float, list[Cell]] = {p: [float(p)] for p in sorted(part["flip_probability"].unique())}
        for policy in policies:
            columns += [f"LQD/{policy}", "+-"]
            for p, found in over_seeds(part, "flip_probability", f"lqd_over_{policy}").items():
                cells[p] += [found.mean, None if found.high is None else found.high - float(found.mean or 0)]
        seeds = part["seed"].nunique()
        title = f"Throughput of LQD over that of others: {workload}, N = {ports}, B = {buffer}"
        note = f"means over {seeds} seeds with the half-width of their 95 % t interval"
        tables.append(Table(title, tuple(columns), tuple(tuple(row) for row in cells.values()), (note,)))
    return tables


def _smoothness(points: pd.DataFrame) -> list[Table]:
    rows: list[tuple[Cell, ...]] = []
    for workload, part in [*points.groupby("workload", sort=False), ("all", points)]:
        rows.append(
            (
                str(workload),
                len(part),
                float(part["eta"].max()),
                float(part["lqd_over_credence"].max()),
                int(part["lemma_1_violated"].sum()),
                max(0, int((part["followlqd_without_predicted"] - part["transmitted_credence"]).max())),
                float(part["lqd_over_credence_times_eta"].max()),
                int(part["theorem_2_violated"].sum()),
                float(part["eta_over_closed_form_eta"].max()),
                int(part["bound_violated"].sum()),
                float((part["opt_over_credence"] / part["credence_bound"]).max()),
            )
        )
    columns = (
        "workload",
        "points",
        "max eta",
        "max LQD/Credence",
        "Lemma 1 violated",
        "by packets",
        "max LQD/(Credence eta)",
        "Theorem 2 violated",
        "max eta/closed form",
        "ratio violated",
        "max OPT/(Credence ratio)",
    )
    notes = (
        "Lemma 1: LQD/Credence <= eta; Theorem 2: eta <= closed form; ratio: OPT/Credence <= min(1.707 eta, N)",
        "violated: in so many points; max: by how much, 1 is the limit",
    )
    return [Table("Credence against its prediction error", columns, tuple(rows), notes)]


def _competitive(points: pd.DataFrame) -> list[Table]:
    policies = policies_of(points, "opt_over_")
    worst: list[tuple[Cell, ...]] = []
    for policy in policies:
        ratios = points[f"opt_over_{policy}"]
        row: dict[str, Any] = plain_rows(points.iloc[[int(ratios.argmax())]])[0]
        known = KNOWN.get(policy)
        share = exceeded = None
        if known is not None and known.is_upper_bound:
            shares = ratios / points.apply(known.value, axis=1)
            share, exceeded = float(shares.max()), int((shares > 1 + 1e-12).sum())
        worst.append(
            (
                policy,
                float(ratios.max()),
                row["workload"],
                int(row["ports"]),
                int(row["buffer_per_port"]),
                None if known is None else known.words,
                None if known is None else float(known.value(row)),
                share,
                exceeded,
            )
        )
    columns = ("policy", "max OPT/ALG", "workload", "N", "B/N", "known ratio", "at this N", "max share", "exceeded")
    note = "max share: largest OPT/ALG over the known ratio, where that is an upper bound; exceeded: in so many points"
    most = points.groupby("workload", sort=False)[[f"opt_over_{policy}" for policy in policies]].max()
    by_workload: list[tuple[Cell, ...]] = [
        (str(workload), *(float(value) for value in values)) for workload, values in most.iterrows()
    ]
    return [
        Table("Worst cases: the offline optimum over the policy", columns, tuple(worst), (note,)),
        Table("Largest OPT/ALG by workload", ("workload", *policies), tuple(by_workload)),
    ]
