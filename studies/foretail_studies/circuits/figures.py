"""Figures of experiments on schedules.

Smoothness of what a wrong prediction costs: throughput against the error of the predicted shape, fitted.

The thesis leaves open how smoothly throughput falls with the error (section 9.8.2). Three answers: the hyperbola
``at_zero / (1 + loss * error)``, a straight line, and the best function that never rises (isotonic regression), whose
steepest twentieth of the errors holds 5 % of its fall when it is a straight line and all of it when it jumps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import least_squares
from scipy.spatial import ConvexHull
from sklearn.isotonic import IsotonicRegression

from foretail.models.scoring.figure_style import MARKERS, legend, panels, styled, with_legend
from foretail.pipelines.runs.result import Table
from foretail.sim_bridge.circuits.schedules import consistency, robustness

FloatArray = npt.NDArray[np.float64]

FITTED = ("at_zero", "loss", "r2", "line_at_zero", "line_slope", "line_r2", "monotone_r2", "steepest_twentieth")
_GRID = 20
DUTY_CYCLE = 0.99
"""Share of a slot that carries data; figures without it are shown as well."""


def smoothness(samples: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Fit ``theta`` over ``error_of_shape`` in every group; one row each, without those whose throughput is constant.

    `samples`: one row per sample, with the columns `by`, ``error_of_shape`` in [0, 1] and ``theta``. Returns columns
    `by`, ``largest_error``, and ``FITTED``; R^2 is the share of the variance over the samples.
    """
    rows = []
    for _, part in samples.groupby(list(by), sort=False):
        error, theta = part["error_of_shape"].to_numpy(float), part["theta"].to_numpy(float)
        if np.ptp(theta) > 1e-6 and len(np.unique(error)) > 2:
            first = part.iloc[0]
            rows.append({name: first[name] for name in by} | {"largest_error": float(error.max())} | _fit(error, theta))
    return pd.DataFrame(rows, columns=[*by, "largest_error", *FITTED])


def hyperbola(at_zero: float, loss: float, error: FloatArray) -> FloatArray:
    """Return ``at_zero / (1 + loss * error)``: `loss` is the relative loss per error where the error is small."""
    return at_zero / (1 + loss * error)


def smoothness_table(fits: pd.DataFrame, by: Sequence[str], routing: str) -> Table:
    """Every fit, with what it says in a note."""
    columns = {
        **{name: name for name in by},
        "largest_error": "largest error",
        "at_zero": "at 0",
        "loss": "loss",
        "r2": "R^2",
        "line_slope": "line: slope",
        "line_r2": "R^2",
        "monotone_r2": "monotone: R^2",
        "steepest_twentieth": "steepest 5 %",
    }
    return Table.of_frame(
        f"Smoothness: {routing} throughput, without the duty cycle, by the error of shape",
        fits,
        columns,
        "Fitted to all samples: at 0 / (1 + loss x error), a line, and a function that never rises; of its fall, the "
        "share in the steepest 5 % of the errors: 0.05 if straight, 1 if it jumps.",
    )


def _fit(error: FloatArray, theta: FloatArray) -> dict[str, float]:
    variance = float(((theta - theta.mean()) ** 2).sum())

    def r2(fitted: FloatArray) -> float:
        return 1 - float(((theta - fitted) ** 2).sum()) / variance

    at_zero, loss = least_squares(
        lambda x: hyperbola(x[0], x[1], error) - theta, (theta.max(), 0.0), bounds=([0, -0.5], np.inf)
    ).x
    slope, intercept = np.polyfit(error, theta, 1)
    monotone = IsotonicRegression(increasing=False, out_of_bounds="clip").fit(error, theta)
    grid = monotone.predict(np.linspace(error.min(), error.max(), _GRID + 1))
    fall = float(grid[0] - grid[-1])
    fitted = (
        float(at_zero),
        float(loss),
        r2(hyperbola(at_zero, loss, error)),
        float(intercept),
        float(slope),
        r2(intercept + slope * error),
        r2(monotone.predict(error)),
        float(-np.diff(grid).min()) / fall if fall > 0 else 0.0,
    )
    return dict(zip(FITTED, fitted, strict=True))


BAND = "bands: least to\nlargest of the seeds"


@styled
def draw_noise(curves: pd.DataFrame) -> Figure:
    """Mean throughput by deviation of the noise: a panel per noise and matrix, a line per gamma.

    The band reaches from the mean down to the least sample at the largest gamma. Where k is drawn, lines are for
    distributions from the first value on, and the dashed ones for the widest of every other.
    """
    largest, first = int(curves["gamma"].max()), curves["uniform_from"].iloc[0]
    drawn = any(curves["uniform_from"] < curves["gamma"])

    def lines(axes: Axes, panel: pd.DataFrame) -> None:
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
                band = axes.fill_between(line["deviation"], line["least"], line["mean"], color="grey", alpha=0.2)
                band.set(linewidth=0, label=f"{schedule}: mean to least sample")

    return _by_noise(curves, lines, "standard deviation of the noise", title="k drawn from" if drawn else "gamma")


@styled
def draw_smoothness(samples: pd.DataFrame, fits: pd.DataFrame) -> Figure:
    """Throughput of every sample by the error of the predicted shape, with its fit: a panel per noise and matrix.

    Drawn are the smallest and the largest gamma that are fitted, and one between.
    """

    def fitted_samples(axes: Axes, panel: pd.DataFrame) -> None:
        fitted = fits.merge(panel[["noise", "matrix"]].drop_duplicates())
        for place in sorted({0, len(fitted) // 2, len(fitted) - 1} if len(fitted) else ()):
            fit = fitted.iloc[place]
            drawn = panel[panel["schedule"] == fit["schedule"]]
            color = colormaps["viridis"](0.9 * place / max(1, len(fitted) - 1))
            axes.plot(drawn["error_of_shape"], drawn["theta"], ".", color=color, markersize=3, alpha=0.5)
            error = np.linspace(0, fit["largest_error"])
            theta = hyperbola(fit["at_zero"], fit["loss"], error)
            axes.plot(error, theta, color=color, label=f"gamma {fit['schedule']}")

    return _by_noise(samples, fitted_samples, "error of shape", title="fits (lines) of samples (dots)")


def _by_noise(rows: pd.DataFrame, draw: Callable[[Axes, pd.DataFrame], None], along: str, **legend: str) -> Figure:
    """A panel of throughput per noise and matrix."""
    groups = list(rows.groupby(["noise", "matrix"], sort=False))
    figure, row = panels(len(groups), inches=(2.9 * len(groups) + 1.2, 3.4), sharex=True, sharey=True)
    for axes, ((noise, matrix), group) in zip(row, groups, strict=True):
        draw(axes, group)
        axes.set(title=f"{str(matrix).replace('_', ' ')}, {noise}", xlabel=along)
    row[0].set_ylabel("multi-hop throughput, without duty cycle")
    return with_legend(figure, row[0], **legend)


def designs_of(curves: pd.DataFrame) -> list[tuple[str, str, int]]:
    """Design, routing and k in one order for table and figure: Vermilion first, k rising."""
    designs = dict.fromkeys(curves[["design", "routing", "k"]].itertuples(index=False, name=None))
    return sorted(sorted(designs, key=lambda design: int(design[2])), key=lambda design: str(design[0]), reverse=True)


@styled
def draw_designs(curves: pd.DataFrame) -> Figure:
    """Mean throughput by matrix: a panel per number of nodes, a marker per design, routing and k."""
    groups = list(curves.groupby("nodes", sort=False))
    matrices = list(dict.fromkeys(curves["matrix"]))
    designs = [design for design in designs_of(curves) if design[0] != "robust optimum"]
    inches = (0.45 * len(matrices) + 3.5, 2.9 * len(groups) + 1.2)
    figure, rows = panels(1, len(groups), inches=inches, sharex=True, sharey=True)
    for axes, (nodes, panel) in zip(rows, groups, strict=True):
        for place, (design, routing, k) in enumerate(designs):
            line = panel[(panel["design"] == design) & (panel["routing"] == routing) & (panel["k"] == k)]
            filled = design == "vermilion"
            axes.plot(
                [matrices.index(matrix) for matrix in line["matrix"]],
                line["mean"],
                linestyle="",
                marker=MARKERS[place % 10],
                markersize=7 if filled else 5,
                markerfacecolor=f"C{place % 10}" if filled else "none",
                markeredgecolor=f"C{place % 10}",
                label=f"{design}{f' k={k}' if k else ''}, {routing}",
            )
            if filled:
                axes.axhline((k - 1) / k, color=f"C{place % 10}", linewidth=0.9, linestyle=":")
        axes.set(title=f"{nodes} nodes; dotted: (k - 1) / k", ylim=(0, 1.05))
    names = [str(matrix).replace("_", " ") for matrix in matrices]
    rows[-1].set_xticks(range(len(matrices)), names, rotation=60, ha="right", fontsize="small")
    figure.supylabel("throughput, without duty cycle", fontsize="medium")
    return with_legend(figure, rows[0])


@styled
def draw_sizes(samples: pd.DataFrame) -> Figure:
    """Vermilion's single-hop throughput over all matrices by k, a line per number of nodes, and by nodes, one per k."""
    made = samples[samples["design"] == "vermilion"]
    figure, row = panels(2, inches=(10, 3.8), sharey=True)
    for axes, along, other, name in zip(row, ("k", "nodes"), ("nodes", "k"), ("k", "nodes n"), strict=True):
        values = sorted(set(made[other]))
        for place, value in enumerate(values):
            color = colormaps["viridis"](0.9 * place / max(1, len(values) - 1))
            theta = made[made[other] == value].groupby(along)["theta"]
            axes.plot(theta.mean().index, theta.mean(), color=color, marker=".", label=f"{other} = {value}")
            least: dict[str, Any] = {"label": "least"} if value == values[-1] else {}
            axes.plot(theta.min().index, theta.min(), color=color, linestyle="--", linewidth=0.9, **least)
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
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    figure.supylabel("single-hop throughput, without duty cycle", fontsize="medium")
    figure.suptitle("mean over matrices (solid) and least (dashed); dotted: (k - 1) / k")
    return figure


@styled
def draw_completion_times(curves: pd.DataFrame) -> Figure:
    """Completion times by load, a line per design: p99 of short flows, mean and p99 of long ones."""
    titles = {"short_p99_us": "short flows, p99", "long_mean_us": "long flows, mean", "long_p99_us": "long flows, p99"}
    figure, row = _by_load(curves, titles, yscale="log")
    row[0].set_ylabel("completion time in microseconds")
    return with_legend(figure, row[0], title=f"{BAND};\nhollow: at least")


@styled
def draw_utilisation(curves: pd.DataFrame) -> Figure:
    """Link utilisation by load, a line per design: delivered over the uplinks' rate, and any cell over circuits."""
    titles = {"delivered": "delivered, of the uplinks' rate", "raw_utilisation": "carrying any cell, of circuits up"}
    figure, row = _by_load(curves, titles, ylim=(0, 1.05))
    loads = sorted(set(curves["load"]))
    row[0].plot([100 * load for load in loads], loads, color="black", linestyle=":", linewidth=0.9, label="offered")
    row[0].set_ylabel("link utilisation")
    return with_legend(figure, row[0], title=BAND)


def _by_load(curves: pd.DataFrame, titles: Mapping[str, str], **look: Any) -> tuple[Figure, list[Axes]]:
    """A panel per metric of means over the seeds; bands are least to largest, hollow markers are lower bounds."""
    figure, row = panels(len(titles), inches=(3 * len(titles) + 3, 3.6), sharey=True)
    for axes, (metric, title) in zip(row, titles.items(), strict=True):
        for place, (design, line) in enumerate(curves[curves["metric"] == metric].groupby("design", sort=False)):
            percent, color, marker = 100 * line["load"], f"C{place % 10}", MARKERS[place % 10]
            bound = line["unfinished"] > 0
            axes.plot(percent, line["mean"], color=color, marker=marker, markersize=4, label=str(design))
            axes.plot(percent[bound], line["mean"][bound], f"{color}{marker}", markersize=4, markerfacecolor="white")
            axes.fill_between(percent, line["least"], line["largest"], color=color, alpha=0.2, linewidth=0)
        axes.set(title=title, xlabel="load in % of the uplinks' rate", **look)
    return figure, row


@styled
def draw_tradeoff(curves: pd.DataFrame, optimised: pd.DataFrame, hulls: Sequence[int]) -> Figure:
    """Consistency over robustness: what is proven for the largest gammas in `hulls`, and what was measured by routing.

    An area is the hull of all distributions of k: expectations are mixtures of the points of every k. Of measured
    points it is the hull of the least throughputs, which every matrix gets in expectation.
    """
    figure, (theory, *measured) = panels(3, inches=(13, 5.0), sharex=True, sharey=True)
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
            if row["gamma"] in (1, 2, 3, line["gamma"].max()):  # others lie close to each other
                point = (row["least_wrong"], row["least_right"])
                axes.annotate(f"gamma {row['gamma']}", point, (6, 4), textcoords="offset points", fontsize="small")
        axes.set_title(f"measured, {routing}, without duty cycle")
    for axes in (theory, *measured):
        line = curves[curves["routing"] == ("single-hop" if axes is measured[1] else "multi-hop")]
        axes.plot(line["robustness"], line["consistency"], "s:", color="C3", markersize=4, label="proven, k = gamma")
        if axes is not measured[1]:
            axes.plot(
                line["uniform_robustness"], line["uniform_consistency"], "d:", color="C1", label="proven, k uniform"
            )
        axes.set_xlabel("robustness")
    theory.plot(optimised["robustness"], optimised["consistency"], "k*", label="proven, best for a floor")
    measured[0].plot(optimised["least_wrong"], optimised["least_right"], "k*", label="measured, best for a floor")
    theory.set(title="proven", ylabel="consistency")
    named: dict[str, Any] = {}
    for axes in (theory, *measured):
        handles, labels = axes.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    legend(figure, list(named.values()), list(named), "lower center", ncols=5)
    return figure


def _hull(axes: Axes, points: npt.NDArray[np.float64], color: str, label: str) -> None:
    corners = points[ConvexHull(points, qhull_options="QJ").vertices]  # joggled: points may lie on a line
    axes.fill(corners[:, 0], corners[:, 1], color=color, label=label)
