"""Figures of the trade-off between right and wrong predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from foretail.models.scoring.figure_style import (
    BLACK,
    BLUE,
    GREEN,
    MARKERS,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    panels,
    styled,
    with_legend,
)
from foretail_studies.slots.arrivals import LINE, LQD_RATIO
from foretail_studies.slots.tradeoff_tables import RULES, is_rule, predictors_of, summary_of, told

COLOURS = (BLACK, BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
"""Of predictors, perfect predictions first."""
RULE_STYLES = {"lqd": "-", "dt": "--", "followlqd": "-.", "cs": ":", "always accept": (0, (5, 1, 1, 1, 1, 1))}
GREY = "0.45"
TICKS = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
COLUMNS = 3


@styled
def draw_flips(curves: pd.DataFrame) -> Figure:
    """What is sent by the share of inverted predictions: a panel per workload that is not a proof."""

    def lines(axes: Axes, part: pd.DataFrame) -> None:
        for predictor, style in _styles(curves):
            mine = told(part, predictor).sort_values("flip_probability")
            _line(axes, mine, "flip_probability", label=predictor, **style)
        positive = [flip for flip in part["flip_probability"].unique() if flip > 0]
        axes.set_xscale("symlog", linthresh=min(positive))
        axes.set(xlim=(0, 1.1), xlabel="share of inverted predictions")

    return _panels(curves, lines)


@styled
def draw_thresholds(curves: pd.DataFrame, own: Mapping[str, float]) -> Figure:
    """What is sent by the threshold of the models, as they are and (thin) inverted; a star is a model's `own`."""

    def lines(axes: Axes, part: pd.DataFrame) -> None:
        for predictor, style in _styles(curves):
            mine = part[(part["predictor"] == predictor) & part["threshold"].notna()].sort_values("threshold")
            for flip, more in ((0.0, {"label": predictor}), (1.0, {"linewidth": 0.7, "linestyle": ":"})):
                if len(mine):
                    _line(axes, mine[mine["flip_probability"] == flip], "threshold", **{**style, **more})
            if len(mine):
                star = {**style, "marker": "*", "markersize": 13, "markeredgecolor": "white", "zorder": 4}
                axes.plot([own[predictor]], told(part, predictor, 0.0)["of_optimum"], linestyle="", **star)
        axes.set_xscale("logit")
        axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS], fontsize="small")
        axes.set_xticks([], minor=True)
        axes.set_xlabel("drop iff the probability exceeds; dotted: inverted")

    return _panels(curves, lines)


@styled
def draw_worst_cases(curves: pd.DataFrame, searched: pd.DataFrame, ports: int) -> Figure:
    """Consistency against robustness; what is sent of the sequences of proofs; the worst that a search found."""
    figure, (summary, proofs, search) = panels(3, inches=(15, 4.6), width_ratios=(1.1, 1.3, 0.7))
    _summary(summary, curves, ports)
    _proofs(proofs, curves, ports)
    search.plot(searched["ports"], searched["percent_of_optimum"], "o", color=COLOURS[2], label="worst found")
    search.plot(searched["ports"], 100 / searched["ports"], linestyle="--", label="OPT / N", **LINE)
    search.set_xticks(sorted(searched["ports"]))
    search.set(title="searched arrivals and predictions", xlabel="ports N", ylabel="Credence sends, % of the optimum")
    search.set_ylim(0, 100)
    search.legend()
    return with_legend(figure, proofs, "lower center", ncols=8)


def _summary(axes: Axes, curves: pd.DataFrame, ports: int) -> None:
    summary = summary_of(curves)
    for place, row in enumerate(summary[summary["predictor"] == "rules"].to_dict("records")):
        axes.plot(row["robustness"], row["consistency"], MARKERS[place], color=GREY)  # the markers of the legend
        if row["way"] not in RULES.values():
            axes.annotate(row["way"], (row["robustness"], row["consistency"]), (6, 4), textcoords="offset points")
    fixed = summary[summary["predictor"] == "dt"]
    axes.plot(fixed["robustness"], fixed["consistency"], "s--", color=GREY, markersize=3, linewidth=0.8)
    for predictor, style in _styles(curves):
        mine = summary[summary["predictor"] == predictor]
        own, grid = mine[mine["threshold"].isna()], mine[mine["threshold"].notna()].sort_values("threshold")
        axes.plot(grid["robustness"], grid["consistency"], markersize=3, linewidth=0.8, **style)
        axes.plot(own["robustness"], own["consistency"], **{**style, "marker": "*", "markersize": 12})
    axes.axvline(100 / ports, linestyle="--", **LINE)
    axes.axhline(100 / LQD_RATIO, linestyle="-.", **LINE)
    axes.set(
        title="star: own threshold; lines: all thresholds, DT's alphas",
        xlabel="robustness: least sent of any workload, % of the optimum",
        ylabel="consistency: mean sent, % of the optimum",
    )


def _proofs(axes: Axes, curves: pd.DataFrame, ports: int) -> None:
    part = curves[curves["proof"]]
    names = list(dict.fromkeys(part["workload"]))
    spots = {name: place for place, name in enumerate(names)}
    ways: list[tuple[str, pd.DataFrame, dict[str, Any]]] = [
        (title, part[is_rule(part, name)], {"color": GREY}) for name, title in RULES.items()
    ]
    for predictor, style in _styles(curves):
        colour = {"color": style["color"]}
        ways.append((predictor, told(part, predictor, 0.0), colour))
        ways.append((f"{predictor}, inverted", told(part, predictor, 1.0), {**colour, "markerfacecolor": "none"}))
    for place, (label, rows, style) in enumerate(ways):
        low = 0.35 - 0.7 * place / max(1, len(ways) - 1)
        where = [spots[name] + low for name in rows["workload"]]
        axes.plot(rows["of_optimum"], where, linestyle="", marker=MARKERS[place % len(MARKERS)], label=label, **style)
    axes.axvline(100 / ports, linestyle="--", **LINE)
    axes.axvline(100 / LQD_RATIO, linestyle="-.", **LINE)
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names], fontsize="small")
    axes.set(title="sequences of proofs", xlabel="sent, % of the optimum; lines: OPT / N (dashed), OPT / 1.707")


def _styles(curves: pd.DataFrame) -> Iterator[tuple[str, dict[str, Any]]]:
    """Perfect predictions and models with colour and marker."""
    for place, predictor in enumerate(predictors_of(curves)):
        yield predictor, {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)]}


def _line(axes: Axes, part: pd.DataFrame, along: str, **style: Any) -> None:
    margins = (part["of_optimum_high"].astype(float) - part["of_optimum"]).fillna(0.0)
    axes.errorbar(
        part[along], part["of_optimum"], yerr=margins, **{"markersize": 3.5, "capsize": 2, "linewidth": 1.2, **style}
    )


def _panels(curves: pd.DataFrame, lines: Callable[[Axes, pd.DataFrame], None]) -> Figure:
    """A panel per workload that is not a proof (all, if every one is) with the rules as level lines."""
    part = curves[~curves["proof"]] if not curves["proof"].all() else curves
    workloads = list(part.groupby("workload", sort=False))
    rows, columns = math.ceil(len(workloads) / COLUMNS), min(COLUMNS, len(workloads))
    figure, grid = panels(columns, rows, inches=(4.2 * columns + 2, 3.1 * rows + 0.4), sharex=True, sharey=True)
    for axes, (workload, rows_of) in zip(grid, workloads, strict=False):
        lines(axes, rows_of)
        for policy, title in RULES.items():
            rule = rows_of[is_rule(rows_of, policy)].iloc[0]
            axes.axhline(
                rule["of_optimum"], linestyle=RULE_STYLES[policy], color=GREY, linewidth=1, label=title, zorder=1
            )
        axes.set(title=str(workload), ylabel="sent, % of the optimum")
    for axes in grid[len(workloads) :]:
        axes.set_axis_off()
    return with_legend(figure, grid[0], title="bars: 95 % t intervals")
