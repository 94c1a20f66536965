"""Figures of the experiments on flows: lines with their intervals, and distributions."""

from __future__ import annotations

from itertools import product
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from foretail.models.scoring.figure_style import MARKERS, panels, plain_ticks, styled, with_legend
from foretail.pipelines.comparison.statistics import FLOW_GROUPS
from foretail.sim_bridge.policy_settings import policy_words

PANELS = {
    "p95.short": "short flows, p95 slowdown",
    "p95.incast": "incast flows, p95 slowdown",
    "p95.long": "long flows, p95 slowdown",
    "timed_out_percent.all": "flows with a timeout, %",
    "occupancy_percent.p99.99": "buffer, p99.99, %",
}
CAPTIONS = {
    "figure": "Mean by policy and condition, a panel per measure; less is better. Bands are 95 % bootstrap intervals.",
    "distributions": "Which share of the flows had at most which slowdown, by condition and class of flows; a line "
    "further to the left is better.",
}
"""What is seen, by kind of figure, the one first that tells most."""
LINEAR = ("timed_out_percent.all", "occupancy_percent.p99.99")


@styled
def draw_lines(figures: pd.DataFrame, axis: str) -> Figure:
    """Figures by condition; by the share of inverted predictions where there are several, beside level lines.

    Parameters
    ----------
    figures : columns condition, policy, flip_probability, metric, mean, low, high
    axis : what the conditions, or the shares, are
    """
    by = "flip_probability" if figures["flip_probability"].nunique() > 1 else "condition"
    places = {value: place for place, value in enumerate(figures[by].drop_duplicates())}
    width = figures.groupby("policy", sort=False)[by].nunique()
    # Curves take the first colours: there may be more lines than colours, and level lines have no markers.
    numbers = {policy: number for number, policy in enumerate(sorted(width.index, key=lambda name: width[name] == 1))}
    figure, row = panels(len(PANELS), inches=(4 * len(PANELS), 4.2))
    for axes in row[1 : len(FLOW_GROUPS)]:
        axes.sharey(row[0])  # slowdowns
    for axes, (metric, title) in zip(row, PANELS.items(), strict=True):
        of_metric = figures[figures["metric"] == metric]
        for policy, part in of_metric.groupby("policy", sort=False):
            number = numbers[policy]
            style: dict[str, Any] = {"color": f"C{number}", "label": policy_words(str(policy))}
            if by == "flip_probability" and part[by].nunique() == 1:
                axes.axhline(part["mean"].iloc[0], linestyle=("--", "-.", ":")[number % 3], **style)
                axes.axhspan(part["low"].iloc[0], part["high"].iloc[0], color=f"C{number}", alpha=0.08, linewidth=0)
                continue
            x = part[by].map(places).to_numpy()
            marker: dict[str, Any] = {"marker": MARKERS[number % len(MARKERS)], "markersize": 9 - 0.8 * number}
            axes.plot(x, part["mean"], linewidth=_width(number), **marker, **style)
            axes.fill_between(x, part["low"], part["high"], color=f"C{number}", alpha=0.12, linewidth=0)
        axes.set_xticks(list(places.values()), [_short(value) for value in places])
        if by == "condition" and not all(str(name).isdigit() for name in places):
            axes.tick_params("x", rotation=70)
        if metric not in LINEAR:
            axes.set_yscale("log")
            plain_ticks(axes.yaxis)
        axes.set(title=title, xlabel=axis)
    return with_legend(figure, row[0], "lower center", ncols=9, title="bands: 95 % bootstrap intervals")


@styled
def draw_distributions(quantiles: pd.DataFrame) -> Figure:
    """Distributions of slowdown: a row per condition, a column per class of flows.

    `quantiles`: columns condition, policy, group, share, slowdown.
    """
    conditions, columns = list(quantiles["condition"].drop_duplicates()), len(FLOW_GROUPS)
    figure, grid = panels(columns, len(conditions), inches=(4 * columns, 2.6 * len(conditions)), sharex="col")
    for axes, (condition, group) in zip(grid, product(conditions, FLOW_GROUPS), strict=True):
        shown = quantiles[(quantiles["condition"] == condition) & (quantiles["group"] == group)]
        for number, policy in enumerate(quantiles["policy"].drop_duplicates()):
            part = shown[shown["policy"] == policy]
            style: dict[str, Any] = {"color": f"C{number}", "label": policy_words(str(policy))}
            axes.step(part["slowdown"], part["share"], where="post", linewidth=_width(number), **style)
        axes.set_xscale("log")
        plain_ticks(axes.xaxis)
        axes.set_ylim(0, 1)
        axes.set_title(f"{group} flows, {condition}", fontsize="small")
    for axes in grid[-columns:]:
        axes.set_xlabel("FCT slowdown, all seeds")
    figure.supylabel("share of flows")
    return with_legend(figure, grid[0], "lower center", ncols=6)


def _width(number: int) -> float:
    """Policies that do the same lie on each other: the later ones are thinner."""
    return max(2.6 - 0.25 * number, 0.8)


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
