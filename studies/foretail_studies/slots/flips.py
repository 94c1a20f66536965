"""Throughput by the share of inverted predictions: Figure 14 of the Credence paper."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from foretail.models.scoring.figure_style import panels, styled
from foretail.pipelines.comparison.statistics import PairedDifference
from foretail.pipelines.experiment.declaration import Drawn, Shown
from foretail.pipelines.runs.result import Cell, Table
from foretail.sim_bridge.policies import POLICIES, may_ask
from foretail.sim_bridge.policy_settings import policy_words
from foretail_studies.slots.arrivals import (
    SWITCH,
    CredenceSettings,
    SlotSettings,
    over_seeds,
    policies_of,
    slot_experiment,
)

CAPTION = (
    "How many times as much LQD sends as each policy, by the share of inverted predictions; 1 is as much as LQD. "
    "Points are means over seeds; whiskers and bands are 95 % t intervals."
)


def show(points: pd.DataFrame, settings: SlotSettings) -> Shown:
    """LQD over every policy."""
    return Shown(points, tables(points), {"": Drawn(draw(points), CAPTION)}, verdict=verdict(points))


FIGURE_14 = slot_experiment(CredenceSettings, show, optimum=False)


def verdict(points: pd.DataFrame) -> list[str]:
    """LQD over Credence with the fewest and the most inversions, and the best policy without predictions."""
    means = points.groupby("flip_probability")["lqd_over_credence"].mean()
    ends = [f"{means[share]:.4g} when {100 * share:g} % are inverted" for share in (means.index[0], means.index[-1])]
    sentences = [f"LQD's throughput over that of Credence, whose predictions are right, is {' and '.join(ends)}."]
    others = [policy for policy in policies_of(points, "lqd_over_") if not may_ask(policy) and policy != "lqd"]
    if others:
        rest = {policy: points[f"lqd_over_{policy}"].mean() for policy in others}
        best = min(rest, key=lambda policy: rest[policy])
        sentences.append(f"Without predictions {policy_words(best)} is closest to LQD, at {rest[best]:.4g}.")
    return sentences


def tables(points: pd.DataFrame) -> list[Table]:
    """Means over seeds by flip probability, a table per switch."""
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


@styled
def draw(points: pd.DataFrame) -> Figure:
    """LQD over Credence by flip probability; the policies without predictions are level lines with their interval."""
    switches = list(points.groupby(SWITCH))
    figure, row = panels(len(switches), inches=(5.4 * len(switches), 3.8))
    for axes, ((workload, ports, buffer), part) in zip(row, switches, strict=True):
        shown = policies_of(part, "lqd_over_")
        others = [policy for policy in shown if not may_ask(policy)]
        for number, policy in enumerate(others, start=1):
            interval = next(iter(over_seeds(part, "flip_probability", f"lqd_over_{policy}").values()))
            style = ("--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))[(number - 1) % 4]
            axes.axhline(_mean(interval), color=f"C{number}", linestyle=style, label=policy_words(policy))
            if interval.low is not None and interval.high is not None:
                axes.axhspan(interval.low, interval.high, color=f"C{number}", alpha=0.12, linewidth=0)
        for number, policy in enumerate(policy for policy in shown if may_ask(policy)):
            color = "C0" if policy in POLICIES else f"C{len(others) + 1 + number}"
            _means(axes, part, policy, "oxsD^v"[number % 6], color)
        axes.set(
            title=f"{workload}, N = {ports}, B = {buffer:,}",
            xlabel="probability that a prediction is inverted",
            ylabel="throughput of LQD / that of the policy",
        )
        axes.legend(title="bars and bands: 95 % t intervals", title_fontsize="small")
    return figure


def _means(axes: Axes, part: pd.DataFrame, policy: str, marker: str, color: str) -> None:
    intervals = over_seeds(part, "flip_probability", f"lqd_over_{policy}")
    means = [_mean(item) for item in intervals.values()]
    margins = [0.0 if item.high is None else item.high - _mean(item) for item in intervals.values()]
    axes.errorbar(
        list(intervals),
        means,
        yerr=margins,
        marker=marker,
        markersize=4,
        capsize=3,
        color=color,
        label=policy_words(policy),
    )


def _mean(found: PairedDifference) -> float:
    return math.nan if found.mean is None else found.mean
