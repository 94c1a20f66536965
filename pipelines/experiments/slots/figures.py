"""Figures of the sweeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from foretail.models.scoring.figure_style import styled
from foretail.pipelines.comparison.statistics import PairedDifference
from foretail.pipelines.experiments.slots.tables import LQD_RATIO, SWITCH, over_seeds, policies_of
from foretail.sim_bridge.arrivals.workloads import WORKLOADS
from foretail.sim_bridge.arrivals.workloads.lower_bounds import LowerBound
from foretail.sim_bridge.policies import POLICIES, may_ask, policy_words

CAPTIONS = {
    "credence_fig14": "How many times as much LQD sends as each policy, by the share of inverted predictions; 1 is as "
    "much as LQD. Points are means over seeds; whiskers and bands are 95 % t intervals.",
    "credence_smoothness": "Left: how many times as much LQD sends as Credence, by the error eta of its predictions; "
    "points above the full line violate Lemma 1. Right: the closed form of eta over the exact one; points below the "
    "line violate Theorem 2.",
    "competitive_ratio": "The largest found ratio of the optimum to what a policy sends, by the number of ports: left "
    "on the sequences of proofs, right on all other traffic. Dashed lines are known bounds.",
}
"""What is seen on the figure of each experiment."""
MARKERS = "osD^v<>PXph*"
LINE: dict[str, Any] = {"color": "black", "linewidth": 0.9, "zorder": 1}


@styled
def draw(experiment: str, points: pd.DataFrame) -> Figure:
    """The figure of an experiment."""
    return {
        "credence_fig14": _flips,
        "credence_smoothness": _smoothness,
        "competitive_ratio": _competitive,
    }[experiment](points)


def _flips(points: pd.DataFrame) -> Figure:
    """LQD over Credence by flip probability; the policies without predictions are level lines with their interval."""
    switches = list(points.groupby(SWITCH))
    figure = Figure(figsize=(5.4 * len(switches), 3.8), layout="constrained")
    for axes, ((workload, ports, buffer), part) in zip(_row(figure, len(switches)), switches, strict=True):
        shown = policies_of(part, "lqd_over_")
        others = [policy for policy in shown if not may_ask(policy)]
        for number, policy in enumerate(others, start=1):
            found = next(iter(over_seeds(part, "flip_probability", f"lqd_over_{policy}").values()))
            style = ("--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))[(number - 1) % 4]
            axes.axhline(_mean(found), color=f"C{number}", linestyle=style, label=policy_words(policy))
            if found.low is not None and found.high is not None:
                axes.axhspan(found.low, found.high, color=f"C{number}", alpha=0.12, linewidth=0)
        for number, policy in enumerate(policy for policy in shown if may_ask(policy)):
            color = "C0" if policy in POLICIES else f"C{len(others) + 1 + number}"
            _means(axes, part, policy, "oxsD^v"[number % 6], color)
        axes.set_title(f"{workload}, N = {ports}, B = {buffer:,}", fontsize="medium")
        axes.set_xlabel("probability that a prediction is inverted")
        axes.set_ylabel("throughput of LQD / that of the policy")
        axes.legend(fontsize="small")
        axes.grid()
    return figure


def _means(axes: Axes, part: pd.DataFrame, policy: str, marker: str, color: str) -> None:
    found = over_seeds(part, "flip_probability", f"lqd_over_{policy}")
    means = [_mean(item) for item in found.values()]
    margins = [0.0 if item.high is None else item.high - _mean(item) for item in found.values()]
    axes.errorbar(
        list(found),
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


def _smoothness(points: pd.DataFrame) -> Figure:
    """LQD over Credence against the exact error, and the closed form of the error against the exact one."""
    figure = Figure(figsize=(12, 4.4), layout="constrained")
    ratio, closed = _row(figure, 2)
    for number, (workload, part) in enumerate(points.groupby("workload", sort=False)):
        style: dict[str, Any] = {
            "color": f"C{number}",
            "marker": MARKERS[number % len(MARKERS)],
            "s": 18,
            "alpha": 0.7,
        }
        ratio.scatter(part["eta"], part["lqd_over_credence"], label=workload, zorder=2, **style)
        bounded = part[np.isfinite(part["closed_form_eta"])]
        closed.scatter(bounded["eta"], bounded["closed_form_eta"], label=workload, zorder=2, **style)
    error = np.geomspace(max(points["eta"].min(), 1e-3), points["eta"].max(), 100)
    ratio.plot(error, error, linestyle="-", label="eta (Lemma 1)", **LINE)
    ratio.plot(error, LQD_RATIO * error, linestyle="--", label=f"{LQD_RATIO} eta", **LINE)
    for ports in sorted(points["ports"].unique()):
        ratio.axhline(ports, linestyle=":", **LINE)
        offset: dict[str, Any] = {"textcoords": "offset points", "xytext": (0, 3), "fontsize": "small", "ha": "right"}
        ratio.annotate(f"N = {ports}", (error[25], ports), **offset)
    ratio.set_ylabel("throughput of LQD / that of Credence")
    closed.plot(error, error, linestyle="-", label="eta (Theorem 2: not below)", **LINE)
    unbounded = int(np.isinf(points["closed_form_eta"]).sum())
    closed.set_ylabel("closed form of eta")
    closed.set_title(f"{unbounded} of {len(points)} points have no finite closed form", fontsize="medium")
    for axes in (ratio, closed):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("prediction error eta, exact")
        axes.grid()
    figure.legend(*ratio.get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    closed.legend(*([found[-1]] for found in closed.get_legend_handles_labels()), loc="lower right", fontsize="small")
    return figure


def _competitive(points: pd.DataFrame) -> Figure:
    """The worst ratio of every policy by the number of ports, on the sequences of proofs and on the others."""
    proofs = points["workload"].map(lambda name: issubclass(WORKLOADS[name], LowerBound))
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    policies = policies_of(points, "opt_over_")
    ports = np.geomspace(points["ports"].min(), points["ports"].max(), 100)
    for axes, part, title in zip(
        _row(figure, 2, share=True),
        (points[proofs], points[~proofs]),
        ("sequences of proofs", "random traffic and collectives"),
        strict=True,
    ):
        for number, policy in enumerate(policies):
            worst = part.groupby("ports")[f"opt_over_{policy}"].max()
            # Policies that do the same lie on each other: the later ones are smaller.
            axes.plot(
                worst.index,
                worst,
                color=f"C{number}",
                marker=MARKERS[number % len(MARKERS)],
                markersize=max(9 - 0.6 * number, 3),
                linewidth=max(2.4 - 0.18 * number, 0.6),
                label=policy_words(policy),
            )
        for bound, words in ((ports + 1, "N + 1"), (np.log(ports) + 2, "ln N + 2"), (0 * ports + LQD_RATIO, "1.707")):
            axes.plot(ports, bound, linestyle="--", **LINE)
            offset: dict[str, Any] = {
                "textcoords": "offset points",
                "xytext": (2, 4),
                "fontsize": "small",
                "ha": "left",
            }
            axes.annotate(words, (ports[0], bound[0]), **offset)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:g}")
        axes.set_xlabel("ports N")
        axes.set_title(title, fontsize="medium")
        axes.grid()
    figure.axes[0].set_ylabel("largest optimum / policy")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right center", fontsize="small")
    return figure


def _row(figure: Figure, columns: int, *, share: bool = False) -> Sequence[Axes]:
    axes: np.ndarray = figure.subplots(1, columns, squeeze=False, sharey=share)
    return list(axes[0])
