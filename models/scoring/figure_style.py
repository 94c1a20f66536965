"""How every figure looks: colours that colour-blind readers tell apart, quiet axes, the same file for the same numbers.

A function that draws is ``styled``. Its figure keeps the style for when it is saved, where colours like C0
are looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Panels = tuple[Figure, list[Axes]]

Given = ParamSpec("Given")
Drawn = TypeVar("Drawn")

MARKERS = "osD^v<>PXph*"
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, BLACK, GREY, INDIGO = "#CC79A7", "#56B4E9", "#000000", "#999999", "#5D3A9B"
COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK, GREY, INDIGO)
"""C0, C1 and so on: of Okabe and Ito without the yellow, which is faint on white, and a grey and an indigo."""


def figure_style() -> AbstractContextManager[None]:
    """The settings of matplotlib for one figure."""
    from matplotlib import rc_context
    from matplotlib.rcsetup import cycler

    return rc_context(
        {
            "axes.axisbelow": True,
            "axes.edgecolor": "0.4",
            "axes.prop_cycle": cycler(color=COLOURS),
            "axes.spines.right": False,
            "axes.spines.top": False,
            "axes.titlesize": "medium",
            "figure.facecolor": "white",
            "figure.titlesize": "medium",
            "grid.alpha": 0.25,
            "legend.fontsize": "small",
            "legend.frameon": False,
            "savefig.facecolor": "white",
            "svg.hashsalt": "foretail",
            "xtick.color": "0.4",
            "xtick.labelcolor": "black",
            "ytick.color": "0.4",
            "ytick.labelcolor": "black",
        }
    )


def styled(draw: Callable[Given, Drawn]) -> Callable[Given, Drawn]:
    """`draw`, within the style."""

    @wraps(draw)
    def drawing(*args: Given.args, **kwargs: Given.kwargs) -> Drawn:
        with figure_style():
            return draw(*args, **kwargs)

    return drawing


def panels(columns: int, rows: int = 1, *, inches: tuple[float, float], grid: Any = "both", **more: Any) -> Panels:
    """A figure, and its panels row by row.

    Parameters
    ----------
    inches : width and height of the whole figure
    grid : axis whose values have lines behind them: x, y or both; none where it is empty
    more : goes to ``Figure.subplots``
    """
    from matplotlib.figure import Figure

    class Styled(Figure):
        def draw(self, renderer: Any) -> None:
            with figure_style():
                super().draw(renderer)

    figure = Styled(figsize=inches, layout="constrained")
    made: list[Axes] = list(figure.subplots(rows, columns, squeeze=False, **more).flat)
    for axes in made if grid else ():
        axes.grid(axis=grid)
    return figure, made


def with_legend(figure: Figure, axes: Axes, side: str = "right center", **more: Any) -> Figure:
    """The figure, with what one of its panels shows as the legend beside all of them, if that has names."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        figure.legend(handles, labels, **{"loc": f"outside {side}", **more})
    return figure
