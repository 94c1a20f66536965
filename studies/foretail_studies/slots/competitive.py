"""The exact offline optimum over every policy, on every workload, against the ratios that are proven."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from foretail.models.scoring.figure_style import MARKERS, panels, styled, with_legend
from foretail.pipelines.experiment.declaration import Drawn, Shown
from foretail.pipelines.runs.result import Cell, Table, plain
from foretail.sim_bridge.arrivals.workloads import WORKLOADS, LowerBound
from foretail.sim_bridge.policy_settings import policy_words
from foretail_studies.slots.arrivals import LINE, LQD_RATIO, SlotSettings, policies_of, slot_experiment

CAPTION = (
    "The largest found ratio of the optimum to what a policy sends, by the number of ports: left on the sequences of "
    "proofs, right on all other traffic. Dashed lines are known bounds."
)


@dataclass(frozen=True)
class Known:
    """What is claimed of a policy: the words, the value for a point, and whether that bounds OPT / ALG from above."""

    words: str
    value: Callable[[Mapping[str, Any]], float]
    is_upper_bound: bool = True


KNOWN: dict[str, Known] = {
    "cs": Known("N + 1", lambda row: row["ports"] + 1),
    "dt": Known("O(N)", lambda row: row["ports"], is_upper_bound=False),
    "harmonic": Known("ln N + 2", lambda row: math.log(row["ports"]) + 2),
    "lqd": Known(f"{LQD_RATIO}", lambda row: LQD_RATIO),
    "followlqd": Known("at least (N + 1) / 2", lambda row: (row["ports"] + 1) / 2, is_upper_bound=False),
    "credence": Known(f"min({LQD_RATIO} eta, N)", lambda row: min(LQD_RATIO * row["eta"], row["ports"])),
    "guarded": Known("N", lambda row: row["ports"]),
}
"""Competitive ratios as Credence (NSDI'24) gathers them in its Table 1, and its Observation 1 for FollowLQD; that of
Guarded Credence is proven in docs/results/worst-cases.md.
"""


def show(points: pd.DataFrame, settings: SlotSettings) -> Shown:
    """The worst cases of every policy."""
    return Shown(points, tables(points), {"": Drawn(draw(points), CAPTION)}, verdict=verdict(points))


COMPETITIVE_RATIO = slot_experiment(SlotSettings, show, optimum=True)


def verdict(points: pd.DataFrame) -> list[str]:
    """The policy whose worst case is best, and the worst case of Credence."""
    worst = {policy: float(points[f"opt_over_{policy}"].max()) for policy in policies_of(points, "opt_over_")}
    least = min(worst, key=lambda policy: worst[policy])
    sentences = [
        f"The largest ratio of the optimum to a policy is least for {policy_words(least)}: {worst[least]:.4g}."
    ]
    if "credence" in worst:
        sentences.append(f"That of Credence is {worst['credence']:.4g}.")
    return sentences


def tables(points: pd.DataFrame) -> list[Table]:
    """The worst case of every policy beside what is known, and the largest ratios by workload."""
    policies = policies_of(points, "opt_over_")
    worst: list[dict[str, Cell]] = []
    for policy in policies:
        ratios = points[f"opt_over_{policy}"]
        row: dict[str, Any] = plain(points.iloc[int(ratios.argmax())].to_dict())
        known = KNOWN.get(policy)
        share = exceeded = None
        if known is not None and known.is_upper_bound:
            shares = ratios / points.apply(known.value, axis=1)
            share, exceeded = float(shares.max()), int((shares > 1 + 1e-12).sum())
        worst.append(
            {
                "policy": policy,
                "max OPT/ALG": float(ratios.max()),
                "workload": row["workload"],
                "N": int(row["ports"]),
                "B/N": int(row["buffer_per_port"]),
                "known ratio": None if known is None else known.words,
                "at this N": None if known is None else float(known.value(row)),
                "max share": share,
                "exceeded": exceeded,
            }
        )
    note = "max share: largest OPT/ALG over the known ratio, where that is an upper bound; exceeded: in so many points"
    most = points.groupby("workload", sort=False)[[f"opt_over_{policy}" for policy in policies]].max()
    titles = {"workload": "workload", **{f"opt_over_{policy}": policy for policy in policies}}
    return [
        Table.of_rows("Worst cases: the offline optimum over the policy", worst, note),
        Table.of_frame("Largest OPT/ALG by workload", most.reset_index(), titles),
    ]


@styled
def draw(points: pd.DataFrame) -> Figure:
    """The worst ratio of every policy by the number of ports, on the sequences of proofs and on the others."""
    proofs = points["workload"].map(lambda name: issubclass(WORKLOADS[name], LowerBound))
    figure, row = panels(2, inches=(11, 4.6), sharey=True)
    policies = policies_of(points, "opt_over_")
    ports = np.geomspace(points["ports"].min(), points["ports"].max(), 100)
    titles = ("sequences of proofs", "random traffic and collectives")
    for axes, part, title in zip(row, (points[proofs], points[~proofs]), titles, strict=True):
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
            style: dict[str, Any] = {
                "fontsize": "small",
                "ha": "center",
                "va": "center",
                "bbox": {"color": "white", "pad": 1},
            }
            axes.annotate(words, (ports[60], bound[60]), **style)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:g}")
        axes.set(title=title, xlabel="ports N")
    row[0].set_ylabel("largest optimum / policy")
    return with_legend(figure, row[0])
