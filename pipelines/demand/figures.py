"""The figure of a comparison of demand predictors, and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from foretail.models.scoring.figure_style import BLUE, GREY, ORANGE, panels, styled, with_legend
from foretail.pipelines.demand.comparison import Comparison, worth_of

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
