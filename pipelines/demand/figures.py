"""The figure of a comparison of demand predictors, and its numbers."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from foretail.models.scoring.figure_style import BLUE, GREY, ORANGE, panels, styled
from foretail.pipelines.demand.comparison import Comparison, worth_of

FIGURE = "throughput"
CAPTION = (
    "Throughput on the true demand of the schedules of each predictor, with its k: a small dot is a test run, a large "
    "one their mean. Hollow: of schedules of the truth with the same k. Dashed: the last value, with its own k."
)


def runs_of(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    """A row per workload, predictor and test run with demand."""
    return pd.DataFrame(
        [
            {
                "workload": found.workload,
                "predictor": name,
                "k": evaluation.trust,
                "run": run,
                "theta": throughput.predicted,
                "truth": throughput.true,
                "last_value": worth_of(found.last_value).by_run[run].predicted,
            }
            for found in comparisons
            for name, evaluation in found.evaluations.items()
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
            axes.plot([place] * len(runs), runs["theta"], ".", color=GREY, markersize=5, zorder=2)
            axes.plot(place, runs["truth"].mean(), "o", color=ORANGE, markerfacecolor="none", markersize=10, zorder=2)
            axes.plot(place, runs["theta"].mean(), "o", color=BLUE, markersize=6, zorder=3)
        axes.axhline(panel["last_value"].mean(), color="0.3", linestyle="--", linewidth=0.9, zorder=1)
        axes.set_xticks(range(len(names)), [name.replace("_", " ") for name in names], rotation=30, ha="right")
        axes.set(title=str(workload).replace("_", " "), xlim=(-0.6, len(names) - 0.4))
    row[0].set_ylabel("throughput, without duty cycle")
    return figure
