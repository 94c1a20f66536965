"""Figures of the experiment on virtual output queues."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from foretail.models.scoring.figure_style import panels, styled, with_legend

METRICS = {"utilisation_percent": "use of the circuit, %", "p50_us": "median latency, us", "p99_us": "p99 latency, us"}


@styled
def draw_voqs(rows: pd.DataFrame, published_by: str) -> Figure:
    """A row of panels for static capacities and one for resized VOQs, a panel per metric.

    Parameters
    ----------
    rows : one per run, with ``voq_packets``, ``ahead_ns`` (missing for a static one), ``valid``, the metrics, and each
        as ``published_METRIC``, with ns-3 also as ``ns3_METRIC``
    published_by : whose the published figures are; empty when there are none
    """
    figure, grid = panels(len(METRICS), 2, inches=(3.3 * len(METRICS), 6.0))
    is_static = rows["ahead_ns"].isna()
    for line, part, by, label in (
        (grid[: len(METRICS)], rows[is_static], "voq_packets", "capacity, packets"),
        (grid[len(METRICS) :], rows[~is_static], "ahead_ns", "grows before, us"),
    ):
        x = part[by].astype(float) / (1 if by == "voq_packets" else 1000)
        for axes, (metric, title) in zip(line, METRICS.items(), strict=True):
            _draw(axes, x, part, metric, published_by.split(":")[0])
            if by == "voq_packets":
                axes.set_xscale("log", base=2)
            axes.set(xlabel=label, ylabel=title)
            axes.set_ylim(0, 1.08 * axes.dataLim.ymax)
    return with_legend(figure, grid[0], "upper center", ncols=3)


@styled
def draw_sharing(rows: pd.DataFrame) -> Figure:
    """A bar per run with a mark for ns-3's, in the order of the rows; a panel per metric.

    `rows` are those of :func:`draw_voqs`, with ``run``.
    """
    inches = (3.3 * len(METRICS) + 0.8, 0.35 * len(rows) + 1.2)
    figure, row = panels(len(METRICS), inches=inches, grid="x", sharey=True)
    colours = ["C0" if valid else "white" for valid in rows["valid"]]
    for axes, (metric, title) in zip(row, METRICS.items(), strict=True):
        axes.barh(rows["run"].str.replace("_", " "), rows[metric], color=colours, edgecolor="C0")
        if f"ns3_{metric}" in rows:
            axes.plot(rows[f"ns3_{metric}"], range(len(rows)), "|", color="C2", markersize=12, label="ns-3's TCP")
        axes.set_xlabel(title)
    row[0].invert_yaxis()
    return with_legend(figure, row[0], "upper center")


def _draw(axes: Axes, x: pd.Series[float], part: pd.DataFrame, metric: str, published_by: str) -> None:
    axes.plot(x, part[metric], "o-", label="Linux's TCP", color="C0")
    for valid, chosen in part.groupby("valid"):
        fill: dict[str, Any] = (
            {"markerfacecolor": "C0"} if valid else {"markerfacecolor": "white", "label": "a run that is not valid"}
        )
        axes.plot(x[chosen.index], chosen[metric], "o", color="C0", **fill)
    published = part[f"published_{metric}"].astype(float)
    if published.notna().any():
        axes.plot(x, published, "--s", label=published_by, color="C1")
    if f"ns3_{metric}" in part:
        axes.plot(x, part[f"ns3_{metric}"], ":^", label="ns-3's TCP", color="C2")
