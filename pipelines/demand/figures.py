"""The figure of a comparison of demand predictors, and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from foretail.features.demand.matrix import DemandMatrix
from foretail.models.scoring.figure_style import BLUE, GREY, ORANGE, panels, styled, with_legend
from foretail.pipelines.demand.comparison import Comparison, worth_of
from foretail.sim_bridge.circuits.schedules import IDLE, Schedule

FIGURE = "throughput"
HOLLOW = {"marker": "o", "markerfacecolor": "none"}
CAPTION = (
    "Throughput on the true demand of the schedules of each predictor, with its k: a small dot is a test run, a large "
    "one their mean. Hollow: of schedules of the truth with the same k. Dashed: the last value, with its own k."
)


def runs_of(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    """A row per workload, predictor and test run with demand."""
    return pd.DataFrame(
        [
            {
                "workload": comparison.workload,
                "predictor": name,
                "k": evaluation.trust,
                "run": run,
                "theta": throughput.predicted,
                "truth": throughput.true,
                "last_value": worth_of(comparison.last_value).by_run[run].predicted,
            }
            for comparison in comparisons
            for name, evaluation in comparison.evaluations.items()
            for run, throughput in worth_of(evaluation).by_run.items()
        ]
    )


@styled
def draw_throughput(numbers: pd.DataFrame) -> Figure:
    """A panel per workload, a column per predictor."""
    groups = list(numbers.groupby("workload", sort=False))
    width = 1.4 + 0.8 * int(numbers["predictor"].nunique())
    figure, row = panels(len(groups), inches=(width * len(groups) + 0.6, 3.6), grid="y", sharey=True)
    for axes, (workload, panel) in zip(row, groups, strict=True):
        names = list(dict.fromkeys(panel["predictor"]))
        for place, name in enumerate(names):
            runs = panel[panel["predictor"] == name]
            first = place == 0
            marks: list[tuple[Any, Any, str, dict[str, Any]]] = [
                ([place] * len(runs), runs["theta"], "a test run", {"marker": ".", "color": GREY, "markersize": 5}),
                (place, runs["truth"].mean(), "mean, truth known", {**HOLLOW, "color": ORANGE, "markersize": 10}),
                (place, runs["theta"].mean(), "mean", {"marker": "o", "color": BLUE, "markersize": 6}),
            ]
            for x, y, label, look in marks:
                axes.plot(x, y, linestyle="", label=label if first else None, **look)
        axes.axhline(
            panel["last_value"].mean(), color="0.3", linestyle="--", linewidth=0.9, zorder=1, label="last value"
        )
        axes.set_xticks(range(len(names)), [name.replace("_", " ") for name in names], rotation=30, ha="right")
        axes.set(title=str(workload).replace("_", " "), xlim=(-0.6, len(names) - 0.4))
    row[0].set_ylabel("throughput, without duty cycle")
    return with_legend(figure, row[0], "lower center", ncols=4)


MOST_NAMED = 12
"""Nodes that an axis names."""


@styled
def draw_schedule(made: Schedule, demand: DemandMatrix, called: str = "demand") -> Figure:
    """Which node every port reaches in every slot, and the demand, as it is called, beside what the circuits carry."""
    figure, (slots, wanted, served) = panels(3, inches=(13, 4.4), grid="")
    ports = made.matchings.transpose(2, 1, 0).reshape(-1, made.period)  # the uplinks of a node one below the other
    reached = slots.imshow(np.ma.masked_equal(ports, IDLE), aspect="auto", interpolation="nearest", cmap="viridis")
    title = f"{made.nodes} nodes of {made.degree} uplinks; white: idle"
    slots.set(title=title, xlabel="slot", ylabel="node, a row for each uplink")
    slots.xaxis.set_major_locator(MaxNLocator(integer=True))
    named = np.arange(0, made.nodes, -(-made.nodes // MOST_NAMED))
    slots.set_yticks(named * made.degree, [str(node) for node in named])
    figure.colorbar(reached, ax=slots, label="reaches node", ticks=MaxNLocator(integer=True))
    top = max(demand.demand.max(), made.capacity.max())
    for axes, matrix, title in ((wanted, demand.demand, called), (served, made.capacity, "what circuits carry")):
        image = axes.imshow(matrix, vmin=0, vmax=top, cmap="Blues", interpolation="nearest")
        axes.set(title=title, xlabel="to node", ylabel="from node")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(8, integer=True))
    figure.colorbar(image, ax=(wanted, served), label="capacities of an uplink")
    return figure
