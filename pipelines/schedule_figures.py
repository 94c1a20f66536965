"""Figures of schedules that are made for wrong predictions."""

from __future__ import annotations

import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure


def draw(curves: pd.DataFrame) -> Figure:
    """Mean throughput by deviation of the noise: a panel per noise and matrix, a line per gamma.

    The band reaches from the mean down to the least sample at the largest gamma. Where k is drawn, lines are for
    distributions from the first value on, and the dashed ones for the widest of every other.
    """
    panels = list(curves.groupby(["noise", "matrix"], sort=False))
    largest, first = int(curves["gamma"].max()), curves["uniform_from"].iloc[0]
    drawn = any(curves["uniform_from"] < curves["gamma"])
    figure = Figure(figsize=(2.9 * len(panels) + 1.2, 3.4), layout="constrained")
    columns = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, ((noise, matrix), panel) in zip(columns, panels, strict=True):
        for schedule, line in panel.groupby("schedule", sort=False):
            gamma, start = int(line["gamma"].iloc[0]), int(line["uniform_from"].iloc[0])
            other = drawn and start != first
            if other and gamma < largest:
                continue
            axes.plot(
                line["deviation"],
                line["mean"],
                color="black" if other else colormaps["viridis"](0.95 * gamma / largest),
                linestyle="--" if other else "-",
                marker="" if other else ".",
                label=str(schedule),
            )
            if gamma == largest and not other:
                axes.fill_between(line["deviation"], line["least"], line["mean"], color="grey", alpha=0.2, linewidth=0)
        axes.set_title(f"{str(matrix).replace('_', ' ')}, {noise}", fontsize="medium")
        axes.set_xlabel("standard deviation of the noise")
        axes.grid(alpha=0.25)
    columns[0].set_ylabel("multi-hop throughput, without duty cycle")
    title = "k drawn from" if drawn else "gamma"
    figure.legend(*columns[0].get_legend_handles_labels(), loc="outside right center", fontsize="small", title=title)
    return figure
