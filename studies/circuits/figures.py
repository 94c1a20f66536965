"""Figures of experiments on schedules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.spatial import ConvexHull

from foretail.models.scoring.figure_style import styled
from foretail.sim_bridge.circuits.schedules.vermilion import consistency, robustness
from foretail.studies.circuits.smoothness import hyperbola


@styled
def draw_noise(curves: pd.DataFrame) -> Figure:
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
        axes.grid()
    columns[0].set_ylabel("multi-hop throughput, without duty cycle")
    title = "k drawn from" if drawn else "gamma"
    figure.legend(*columns[0].get_legend_handles_labels(), loc="outside right center", fontsize="small", title=title)
    return figure


@styled
def draw_smoothness(samples: pd.DataFrame, fits: pd.DataFrame) -> Figure:
    """Throughput of every sample by the error of the predicted shape, with its fit: a panel per noise and matrix.

    Drawn are the smallest and the largest gamma that are fitted, and one between.
    """
    panels = list(samples.groupby(["noise", "matrix"], sort=False))
    figure = Figure(figsize=(2.9 * len(panels) + 1.2, 3.4), layout="constrained")
    columns = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, ((noise, matrix), panel) in zip(columns, panels, strict=True):
        fitted = fits[(fits["noise"] == noise) & (fits["matrix"] == matrix)]
        for place in sorted({0, len(fitted) // 2, len(fitted) - 1} if len(fitted) else ()):
            fit = fitted.iloc[place]
            drawn = panel[panel["schedule"] == fit["schedule"]]
            color = colormaps["viridis"](0.9 * place / max(1, len(fitted) - 1))
            axes.plot(drawn["error_of_shape"], drawn["theta"], ".", color=color, markersize=2, alpha=0.4)
            error = np.linspace(0, fit["largest_error"])
            theta = hyperbola(fit["at_zero"], fit["loss"], error)
            axes.plot(error, theta, color=color, label=f"gamma {fit['schedule']}")
        axes.set_title(f"{str(matrix).replace('_', ' ')}, {noise}", fontsize="medium")
        axes.set_xlabel("error of shape")
        axes.grid()
    columns[0].set_ylabel("multi-hop throughput, without duty cycle")
    figure.legend(*columns[0].get_legend_handles_labels(), loc="outside right center", fontsize="small")
    return figure


def designs_of(curves: pd.DataFrame) -> list[tuple[str, str, int]]:
    """Design, routing and k in one order for table and figure: Vermilion first, k rising."""
    found = set(curves[["design", "routing", "k"]].itertuples(index=False, name=None))
    return sorted(sorted(found, key=lambda design: int(design[2])), key=lambda design: str(design[0]), reverse=True)


@styled
def draw_designs(curves: pd.DataFrame) -> Figure:
    """Mean throughput by matrix: a panel per number of nodes, a marker per design, routing and k."""
    panels = list(curves.groupby("nodes", sort=False))
    matrices = list(dict.fromkeys(curves["matrix"]))
    designs = [design for design in designs_of(curves) if design[0] != "robust optimum"]
    figure = Figure(figsize=(0.45 * len(matrices) + 3.5, 2.9 * len(panels) + 1.2), layout="constrained")
    rows = figure.subplots(len(panels), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    for axes, (nodes, panel) in zip(rows, panels, strict=True):
        for place, (design, routing, k) in enumerate(designs):
            line = panel[(panel["design"] == design) & (panel["routing"] == routing) & (panel["k"] == k)]
            filled = design == "vermilion"
            axes.plot(
                [matrices.index(matrix) for matrix in line["matrix"]],
                line["mean"],
                linestyle="",
                marker="os^vD<>ph*"[place % 10],
                markersize=7 if filled else 5,
                markerfacecolor=f"C{place % 10}" if filled else "none",
                markeredgecolor=f"C{place % 10}",
                label=f"{design}{f' k={k}' if k else ''}, {routing}",
            )
            if filled:
                axes.axhline((k - 1) / k, color=f"C{place % 10}", linewidth=0.9, linestyle=":")
        axes.set_title(f"{nodes} nodes; dotted: (k - 1) / k", fontsize="medium")
        axes.set_ylim(0, 1.05)
        axes.grid()
    names = [str(matrix).replace("_", " ") for matrix in matrices]
    rows[-1].set_xticks(range(len(matrices)), names, rotation=60, ha="right", fontsize="small")
    figure.supylabel("throughput, without duty cycle", fontsize="medium")
    figure.legend(*rows[0].get_legend_handles_labels(), loc="outside right center", fontsize="small")
    return figure


@styled
def draw_sizes(samples: pd.DataFrame) -> Figure:
    """Vermilion's single-hop throughput over all matrices by k, a line per number of nodes, and by nodes, one per k."""
    made = samples[samples["design"] == "vermilion"]
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    for axes, along, other, name in zip(
        figure.subplots(1, 2, sharey=True), ("k", "nodes"), ("nodes", "k"), ("k", "nodes n"), strict=True
    ):
        values = sorted(set(made[other]))
        for place, value in enumerate(values):
            color = colormaps["viridis"](0.9 * place / max(1, len(values) - 1))
            theta = made[made[other] == value].groupby(along)["theta"]
            axes.plot(theta.mean().index, theta.mean(), color=color, marker=".", label=f"{other} = {value}")
            axes.plot(theta.min().index, theta.min(), color=color, linestyle="--", linewidth=0.9)
            if other == "k":
                axes.axhline((value - 1) / value, color=color, linestyle=":", linewidth=0.9)
        if along == "k":
            k = sorted(set(made["k"]))
            axes.plot(k, [(value - 1) / value for value in k], color="black", linestyle=":", label="(k - 1) / k")
            axes.set_xticks(k)
        else:
            axes.set_xscale("log", base=2)
            ticks = sorted(set(made["nodes"]))
            axes.set_xticks(ticks, [str(nodes) for nodes in ticks])
        axes.set_xlabel(name)
        axes.grid()
        axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.supylabel("single-hop throughput, without duty cycle", fontsize="medium")
    figure.suptitle("mean over matrices (solid) and least (dashed); dotted: (k - 1) / k", fontsize="medium")
    return figure


@styled
def draw_completion_times(curves: pd.DataFrame) -> Figure:
    """Completion times by load, a line per design: p99 of short flows, mean and p99 of long ones."""
    titles = {"short_p99_us": "short flows, p99", "long_mean_us": "long flows, mean", "long_p99_us": "long flows, p99"}
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    panels = figure.subplots(1, 3)
    for axes, (metric, title) in zip(panels, titles.items(), strict=True):
        _by_load(axes, curves, metric)
        axes.set_yscale("log")
        axes.set_title(title, fontsize="medium")
    panels[0].set_ylabel("completion time in microseconds")
    title = "hollow: at least"
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize="small", title=title)
    return figure


@styled
def draw_utilisation(curves: pd.DataFrame) -> Figure:
    """Link utilisation by load, a line per design: delivered over the uplinks' rate, and any cell over circuits."""
    titles = {"delivered": "delivered, of the uplinks' rate", "raw_utilisation": "carrying any cell, of circuits up"}
    figure = Figure(figsize=(9.5, 3.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (metric, title) in zip(panels, titles.items(), strict=True):
        _by_load(axes, curves, metric)
        axes.set_ylim(0, 1.05)
        axes.set_title(title, fontsize="medium")
    loads = sorted(set(curves["load"]))
    percent = [100 * load for load in loads]
    panels[0].plot(percent, loads, color="black", linestyle=":", linewidth=0.9, label="offered")
    panels[0].set_ylabel("link utilisation")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize="small")
    return figure


def _by_load(axes: Axes, curves: pd.DataFrame, metric: str) -> None:
    """Means over the seeds; bands reach from the least to the largest, hollow markers are lower bounds."""
    for place, (design, line) in enumerate(curves[curves["metric"] == metric].groupby("design", sort=False)):
        percent, color, marker = 100 * line["load"], f"C{place % 10}", "os^vD<>ph*"[place % 10]
        bound = line["unfinished"] > 0
        axes.plot(percent, line["mean"], color=color, marker=marker, markersize=4, label=str(design))
        axes.plot(percent[bound], line["mean"][bound], f"{color}{marker}", markersize=4, markerfacecolor="white")
        axes.fill_between(percent, line["least"], line["largest"], color=color, alpha=0.2, linewidth=0)
    axes.set_xlabel("load in % of the uplinks' rate")
    axes.grid()


@styled
def draw_tradeoff(curves: pd.DataFrame, optimised: pd.DataFrame, hulls: Sequence[int]) -> Figure:
    """Consistency over robustness: what is proven for the largest gammas in `hulls`, and what was measured by routing.

    An area is the hull of all distributions of k: expectations are mixtures of the points of every k. Of measured
    points it is the hull of the least throughputs, which every matrix gets in expectation.
    """
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    theory, *measured = figure.subplots(1, 3)
    for place, largest in enumerate(sorted(hulls, reverse=True)):
        trust = range(1, largest + 1)
        points = np.array([(robustness(r), consistency(r)) for r in trust])
        _hull(theory, points, color=str(0.9 - 0.12 * place), label=f"all distributions, gamma {largest}")
    for axes, routing in zip(measured, ("multi-hop", "single-hop"), strict=True):
        line = curves[curves["routing"] == routing]
        _hull(axes, line[["least_wrong", "least_right"]].to_numpy(), color="0.85", label="all distributions, least")
        axes.plot(line["least_wrong"], line["least_right"], "o-", color="C0", label="measured, least")
        axes.plot(line["mean_wrong"], line["mean_right"], "^-", color="C2", label="measured, mean")
        for row in line.to_dict("records"):
            axes.annotate(str(row["gamma"]), (row["least_wrong"], row["least_right"]), fontsize="x-small")
        axes.set_title(f"measured, {routing}, without duty cycle", fontsize="medium")
    for axes in (theory, *measured):
        line = curves[curves["routing"] == ("single-hop" if axes is measured[1] else "multi-hop")]
        axes.plot(line["robustness"], line["consistency"], "s:", color="C3", markersize=4, label="proven, k = gamma")
        if axes is not measured[1]:
            axes.plot(
                line["uniform_robustness"], line["uniform_consistency"], "d:", color="C1", label="proven, k uniform"
            )
        axes.set_xlabel("robustness")
        axes.grid()
    theory.plot(optimised["robustness"], optimised["consistency"], "k*", label="proven, best for a floor")
    measured[0].plot(optimised["least_wrong"], optimised["least_right"], "k*", label="measured, best for a floor")
    theory.set_title("proven", fontsize="medium")
    theory.set_ylabel("consistency")
    for axes in (theory, *measured):
        axes.legend(fontsize="x-small")
    return figure


def _hull(axes: Axes, points: npt.NDArray[np.float64], color: str, label: str) -> None:
    corners = points[ConvexHull(points, qhull_options="QJ").vertices]  # joggled: points may lie on a line
    axes.fill(corners[:, 0], corners[:, 1], color=color, label=label)
