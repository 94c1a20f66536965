"""The map: regret by condition and rule, and the cost of every setting of the policies that have some."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from foretail.models.scoring.figure_style import legend, panels, styled
from foretail.pipelines.families.conditions import DEFAULT
from foretail.sim_bridge.policy_settings import policy_words
from foretail_studies.sharing.verdicts import shown

CAPTIONS = {
    "": "Regret in %, by condition and rule: how much more a run costs than under the best rule of its condition. A "
    "policy with settings stands there as the literature has it, with its best single setting over the training "
    "families, and with the setting that was best in the condition. Families below the line are held out.",
    "settings": "Regret by setting, one line per condition, those of training families in blue. A dot is the policy as "
    "the literature has it, the dashed line the setting that was frozen.",
}
LARGEST_PERCENT = 300.0
"""Colours end here."""


@styled
def draw_map(rows: pd.DataFrame) -> Figure:
    """A row per condition, a column per rule; `rows` as :func:`rows_of` has them."""
    columns = [(policy, which) for policy, which, _ in shown(rows)]
    by_condition = [part.set_index(["family", "condition"])["regret"] for _, _, part in shown(rows)]
    conditions = rows[["held_out", "family", "condition"]].drop_duplicates()
    conditions = conditions.sort_values("held_out", kind="stable")
    places = conditions[["family", "condition"]].itertuples(index=False, name=None)
    regret = 100 * np.array([[of_rule[place] for of_rule in by_condition] for place in places])
    figure, (axes,) = panels(1, inches=(2.6 + 0.75 * len(columns), 1.6 + 0.26 * len(conditions)), grid="")
    image = axes.imshow(np.maximum(regret, 1.0), norm=LogNorm(1, LARGEST_PERCENT), cmap="Blues", aspect="auto")
    for (row, column), value in np.ndenumerate(regret):
        colour = "white" if value > 30 else "black"
        axes.text(column, row, _short(value), ha="center", va="center", fontsize="small", color=colour)
    axes.set_xticks(range(len(columns)), [_title(*column) for column in columns], rotation=60, ha="right")
    axes.set_yticks(range(len(conditions)), [f"{family}: {name}" for family, name in conditions.iloc[:, 1:].to_numpy()])
    axes.tick_params(labelsize="small", length=0)
    boundary = int((~conditions["held_out"]).sum())
    if 0 < boundary < len(conditions):
        axes.axhline(boundary - 0.5, color="black", linewidth=1.5)
    for border in axes.spines.values():
        border.set_visible(False)
    bar = figure.colorbar(image, ax=axes, label="regret, %", extend="max", fraction=0.03)
    bar.ax.yaxis.set_major_formatter("{x:g}")
    return figure


@styled
def draw_settings(rows: pd.DataFrame) -> Figure:
    """A panel per policy with several settings, a line per condition; a dot is the policy as it comes."""
    tuned = [policy for policy, part in rows.groupby("policy", sort=False) if part["setting"].nunique() > 2]
    figure, row = panels(max(len(tuned), 1), inches=(1 + 3.6 * max(len(tuned), 1), 3.4), sharey=True)
    for axes, policy in zip(row, tuned, strict=False):
        part = rows[rows["policy"] == policy]
        order = {setting: place for place, setting in enumerate(part["setting"].drop_duplicates())}
        for (held_out, _, _), of_condition in part.groupby(["held_out", "family", "condition"]):
            for as_it_comes, look in ((False, "-"), (True, ".")):
                shown = of_condition[(of_condition["setting"] == DEFAULT) == as_it_comes]
                percent = 100 * shown["regret"].clip(lower=0.001)
                colour = "C3" if held_out else "C0"
                axes.plot(shown["setting"].map(order), percent, look, color=colour, linewidth=0.8, alpha=0.7)
        frozen = part.loc[part["frozen"], "setting"]
        if len(frozen):
            axes.axvline(order[frozen.iloc[0]], color="0.3", linestyle="--", linewidth=1)
        axes.set_xticks(list(order.values()), list(order), rotation=70)
        axes.set(title=policy_words(str(policy)), yscale="log")
    row[0].set_ylabel("regret, %")
    marks = (
        Line2D([], [], color="C0"),
        Line2D([], [], color="C3"),
        Line2D([], [], color="0.3", linestyle="", marker="."),
        Line2D([], [], color="0.3", linestyle="--"),
    )
    names = ("training condition", "held-out condition", "as in the literature", "frozen setting")
    legend(figure, marks, names, "lower center", ncols=2)
    return figure


def _title(policy: str, which: str) -> str:
    return policy_words(policy) + {"default": "", "frozen": ", tuned", "hindsight": ", hindsight"}[which]


def _short(percent: float) -> str:
    return "-" if not math.isfinite(percent) else "0" if abs(percent) < 0.5 else f"{percent:.0f}"
