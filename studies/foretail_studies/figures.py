"""Figures of studies: lines of means by whatever varies."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from foretail.models.scoring.figure_style import COLOURS, MARKERS, panels, styled, with_legend


@styled
def draw_lines(
    rows: pd.DataFrame,
    panel: str,
    line: str,
    x: str,
    y: str = "mean",
    *,
    band: tuple[str, str] | None = None,
    linestyle: str = "-",
    sharey: bool = True,
    **look: Any,
) -> Figure:
    """A panel for each value of a column, with a line for each value of another; one with a single place is level.

    Parameters
    ----------
    rows : one for each panel, line and place
    panel, line, x, y : columns; texts of `x` are places in the order in which they come
    band : columns between which a band reaches
    look : settings of all panels, as matplotlib's ``Axes.set`` has them
    """
    groups = list(rows.groupby(panel, sort=False))
    names, places = list(rows[line].drop_duplicates()), rows[x].drop_duplicates()
    long = any(isinstance(place, str) and len(place) > 8 for place in places)
    width = max(3.4, 0.3 * len(places)) if long else 3.4
    figure, row = panels(len(groups), inches=(width * len(groups) + 2, 5.0 if long else 3.8), sharey=sharey)
    for axes, (title, part) in zip(row, groups, strict=True):
        for number, name in enumerate(names):
            drawn, color = part[part[line] == name], f"C{number % len(COLOURS)}"
            if len(drawn) == 1 < len(places):
                axes.axhline(drawn[y].iloc[0], color=color, linestyle="--", label=str(name))
                continue
            marker = MARKERS[number % len(MARKERS)]
            style: dict[str, Any] = {"color": color, "linestyle": linestyle, "marker": marker, "markersize": 4}
            axes.plot(drawn[x], drawn[y], label=str(name), **style)
            if band is not None:
                low, high = (drawn[end].astype(float) for end in band)
                axes.fill_between(drawn[x], low, high, color=color, alpha=0.15, linewidth=0)
        if long:
            for label in axes.get_xticklabels():
                label.set(rotation=60, ha="right", rotation_mode="anchor")
        axes.set(title=str(title), **look)
    return with_legend(figure, row[0], title=line)
