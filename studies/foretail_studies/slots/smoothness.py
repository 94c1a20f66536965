"""Throughput of Credence against its exact prediction error, and what its paper proves of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from foretail.models.scoring.figure_style import MARKERS, panels, styled, with_legend
from foretail.pipelines.experiment.declaration import Drawn, Shown
from foretail.pipelines.runs.result import Cell, Table
from foretail_studies.slots.arrivals import LINE, LQD_RATIO, CredenceSettings, SlotSettings, slot_experiment

CAPTION = (
    "Left: how many times as much LQD sends as Credence, by the error eta of its predictions; points above the full "
    "line violate Lemma 1. Right: the closed form of eta over the exact one; points below the line violate Theorem 2."
)


def show(points: pd.DataFrame, settings: SlotSettings) -> Shown:
    """Which points violate what is claimed."""
    lemma, theorem, ratio = (int(points[f"{name}_violated"].sum()) for name in ("lemma_1", "theorem_2", "bound"))
    verdict = (
        f"Of {len(points):,} points {lemma:,} violate Lemma 1 of Credence and {theorem:,} its Theorem 2.",
        f"Its competitive ratio, min({LQD_RATIO} eta, N), is violated at {ratio:,} of them.",
    )
    return Shown(points, [table(points)], {"": Drawn(draw(points), CAPTION)}, verdict=verdict)


SMOOTHNESS = slot_experiment(CredenceSettings, show, optimum=True)


COLUMNS: dict[str, Callable[[pd.DataFrame], Cell]] = {
    "points": len,
    "max eta": lambda part: float(part["eta"].max()),
    "max LQD/Credence": lambda part: float(part["lqd_over_credence"].max()),
    "Lemma 1 violated": lambda part: int(part["lemma_1_violated"].sum()),
    "by packets": lambda part: max(0, int((part["followlqd_without_predicted"] - part["transmitted_credence"]).max())),
    "max LQD/(Credence eta)": lambda part: float(part["lqd_over_credence_times_eta"].max()),
    "Theorem 2 violated": lambda part: int(part["theorem_2_violated"].sum()),
    "max eta/closed form": lambda part: float(part["eta_over_closed_form_eta"].max()),
    "ratio violated": lambda part: int(part["bound_violated"].sum()),
    "max OPT/(Credence ratio)": lambda part: float((part["opt_over_credence"] / part["credence_bound"]).max()),
}
"""Of a workload: violations, and how large they are."""


def table(points: pd.DataFrame) -> Table:
    """Violations by workload."""
    groups = [*points.groupby("workload", sort=False), ("all", points)]
    rows = tuple((str(workload), *(of(part) for of in COLUMNS.values())) for workload, part in groups)
    notes = (
        "Lemma 1: LQD/Credence <= eta; Theorem 2: eta <= closed form; ratio: OPT/Credence <= min(1.707 eta, N)",
        "violated: in so many points; max: by how much, 1 is the limit",
    )
    return Table("Credence against its prediction error", ("workload", *COLUMNS), rows, notes)


@styled
def draw(points: pd.DataFrame) -> Figure:
    """LQD over Credence against the exact error, and the closed form of the error against the exact one."""
    figure, (ratio, closed) = panels(2, inches=(12, 4.4))
    for number, (workload, part) in enumerate(points.groupby("workload", sort=False)):
        style: dict[str, Any] = {"color": f"C{number}", "marker": MARKERS[number % len(MARKERS)], "s": 18, "alpha": 0.7}
        ratio.scatter(part["eta"], part["lqd_over_credence"], label=workload, zorder=2, **style)
        bounded = part[np.isfinite(part["closed_form_eta"])]
        closed.scatter(bounded["eta"], bounded["closed_form_eta"], label=workload, zorder=2, **style)
    error = np.geomspace(max(points["eta"].min(), 1e-3), points["eta"].max(), 100)
    ratio.plot(error, error, linestyle="-", label="eta (Lemma 1)", **LINE)
    ratio.plot(error, LQD_RATIO * error, linestyle="--", label=f"{LQD_RATIO} eta", **LINE)
    for ports in sorted(points["ports"].unique()):
        ratio.axhline(ports, linestyle=":", **LINE)
        place, offset = (error[25], ports), (0, 3)
        ratio.annotate(f"N = {ports}", place, offset, textcoords="offset points", fontsize="small", ha="right")
    ratio.set_ylabel("throughput of LQD / that of Credence")
    closed.plot(error, error, linestyle="-", label="eta (Theorem 2: not below)", **LINE)
    unbounded = int(np.isinf(points["closed_form_eta"]).sum())
    title = f"{unbounded} of {len(points)} points have no finite closed form"
    closed.set(title=title, ylabel="closed form of eta")
    for axes in (ratio, closed):
        axes.set(xscale="log", yscale="log", xlabel="prediction error eta, exact")
    closed.legend(*([one[-1]] for one in closed.get_legend_handles_labels()), loc="lower right")
    return with_legend(figure, ratio, "right upper")
