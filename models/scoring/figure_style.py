"""How every figure looks: colours that colour-blind readers tell apart, quiet axes, the same file for the same numbers.

A function that draws is ``styled``. Its figure keeps the style for when it is saved, where colours like C0
are looked up.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    Panels = tuple[Figure, list[Axes]]

MARKERS = "osD^v<>PXph*"
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, BLACK, GREY, INDIGO = "#CC79A7", "#56B4E9", "#000000", "#999999", "#5D3A9B"
COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK, GREY, INDIGO)
"""C0, C1 and so on: of Okabe and Ito without the yellow, which is faint on white, and a grey and an indigo."""


FIGURE_KINDS = ("pdf", "png", "svg")
"""How each figure of a run is saved."""

SLIDES_LARGER = 1.6
"""Figures for slides have so much more room, unless their width is given."""
DASHES = ("-", (0, (5, 1)), (0, (1, 1)), "-.", (0, (3, 1, 1, 1, 1, 1)), (0, (9, 2)), ":", "--", (0, (7, 1, 2, 1)))
"""Dashes of lines without markers in a paper, by their colour: prints in grey tell them apart."""
MM_PER_INCH, POINTS_PER_INCH = 25.4, 72
COLUMN_MM = 3.3 * MM_PER_INCH
"""One column of a paper."""
LEAST_OF_HEIGHT = 0.65
"""A panel that becomes narrower keeps so much of its height, because letters keep theirs."""
MM_PER_LETTER = {"screen": 1.6, "paper": 1.4, "slides": 2.6}
"""Width of a letter of a legend, about."""
NARROWEST_MM = 50
"""Panels that would be narrower than this go into several rows."""


@dataclass(frozen=True)
class Look:
    """Look of figures: the place that shows them, and their width."""

    style: str = "screen"  #: the place: screen, paper or slides, each with a style sheet of matplotlib
    width_mm: float | None = None  #: of a whole figure; None is a column of a paper, elsewhere what fits its panels

    @property
    def width(self) -> float | None:
        """The width of a whole figure in mm; None is what fits its panels."""
        return COLUMN_MM if self.width_mm is None and self.style == "paper" else self.width_mm


SCREEN = Look()
_LOOK: ContextVar[Look] = ContextVar("look", default=SCREEN)


@contextmanager
def looking(look: Look) -> Iterator[None]:
    """Draw what is drawn meanwhile for this look."""
    before = _LOOK.set(look)
    try:
        yield
    finally:
        _LOOK.reset(before)


@contextmanager
def figure_style(look: Look | None = None) -> Iterator[None]:
    """The settings of matplotlib for one figure; `look` is the present one unless given."""
    from matplotlib import rc_context

    with rc_context(style_sheet((look or _LOOK.get()).style)):
        yield


@cache
def style_sheet(style: str) -> dict[Any, Any]:
    """Settings of matplotlib by the place that shows figures: those of ``screen.mplstyle``, and what it changes."""
    from matplotlib import rc_params_from_file
    from matplotlib.rcsetup import cycler

    sheets = [str(resources.files(__package__).joinpath(f"{name}.mplstyle")) for name in ("screen", style)]
    screen, changes = (rc_params_from_file(sheet, use_default_template=False) for sheet in sheets)
    return {"axes.prop_cycle": cycler(color=COLOURS), **screen, **changes}


styled = figure_style()
"""Decorator of functions that draw: they do so within the present style."""


def panels(columns: int, rows: int = 1, *, inches: tuple[float, float], grid: Any = "both", **more: Any) -> Panels:
    """A figure, and its panels row by row; those of one row go into several where the present look is narrow.

    Parameters
    ----------
    inches : width and height of the whole figure, where the look gives no width
    grid : axis whose values have lines behind them: x, y or both; none where it is empty
    more : goes to ``Figure.subplots``
    """
    from matplotlib.figure import Figure

    look = _LOOK.get()

    class Styled(Figure):
        def draw(self, renderer: Any) -> None:
            with figure_style(look):
                for first in made[across::across] if across != columns else ():  # rows of a figure that had one row
                    if not first.get_ylabel() and first.get_shared_y_axes().joined(first, made[0]):
                        first.set_ylabel(made[0].get_ylabel())
                _wrap_texts(self, down, across)
                _without_exponents(self)
                if look.style == "paper":
                    _dash(self)
                super().draw(renderer)

    size, across, down = inches, columns, rows
    if look.width is not None:
        if rows == 1:
            across = max(1, min(columns, int(look.width / NARROWEST_MM)))
            down = -(-columns // across)
        width = look.width / MM_PER_INCH
        height = inches[1] / rows
        size = (width, max(height * width / across / (inches[0] / columns), LEAST_OF_HEIGHT * height) * down)
    elif look.style == "slides":
        size = (SLIDES_LARGER * inches[0], SLIDES_LARGER * inches[1])
    if across != columns:
        more.pop("width_ratios", None)
    figure = Styled(figsize=size, layout="constrained")
    every: list[Axes] = list(figure.subplots(down, across, squeeze=False, **more).flat)
    made = every[: columns * rows]
    for axes in made if grid else ():
        axes.grid(axis=grid)
    for axes in every[len(made) :]:
        axes.set_axis_off()
    for axes in made[-across:] if len(every) > len(made) else ():
        axes.tick_params(labelbottom=True)  # also where no panel is below
    return figure, made


def plain_ticks(axis: Axis) -> None:
    """Label 1, 2 and 5 of every power of ten on a logarithmic axis, and nothing between."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def _without_exponents(figure: Figure) -> None:
    """Write 0.001 instead of a power of ten along logarithmic axes: an exponent is smaller than all other letters."""
    from matplotlib.ticker import LogFormatterMathtext

    class Plain(LogFormatterMathtext):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        for formatter in (axis.get_major_formatter(), axis.get_minor_formatter()):
            if isinstance(formatter, LogFormatterMathtext):
                formatter.__class__ = Plain  # with its base and all that is set


def _wrap_texts(figure: Figure, rows: int, columns: int) -> None:
    """Break titles and the names of axes where they would leave their panel."""
    whole: Any = figure
    width, height = figure.get_size_inches()
    texts = [(text, width) for text in (whole._suptitle, whole._supxlabel) if text is not None]
    texts += [(text, height) for text in (whole._supylabel,) if text is not None]
    for beside in figure.legends:
        if "right" in str(getattr(beside, "_outside_loc", "")):
            width -= beside.get_window_extent().width / figure.dpi
    for axes in figure.axes:
        texts += [(text, 0.72 * width / columns) for text in (axes.title, axes.xaxis.label)]
        texts.append((axes.yaxis.label, 0.7 * height / rows))
    for text, inches in texts:
        letters = int(inches * POINTS_PER_INCH / (0.52 * text.get_fontsize()))
        text.set_text(textwrap.fill(" ".join(text.get_text().split()), max(letters, 8), break_long_words=False))


def _dash(figure: Figure) -> None:
    """Give every solid line without markers, and its sample in a legend, the dashes of its colour."""
    import numpy as np
    from matplotlib.colors import to_hex
    from matplotlib.legend import Legend

    dashes: dict[str, Any] = dict(zip(map(to_hex, COLOURS), DASHES, strict=True))
    legends: Any = figure.findobj(Legend)
    samples = [line for legend in legends for line in legend.get_lines()]
    plotted = [line for axes in figure.axes for line in axes.lines if np.size(line.get_xdata()) > 2]
    plain = [line for line in plotted if line.get_linestyle() == "-" and line.get_marker() in ("None", "", None)]
    colours = {to_hex(line.get_color()) for line in plain}
    plain += [line for line in samples if line.get_linestyle() == "-" and to_hex(line.get_color()) in colours]
    for line in plain:
        if line.get_marker() in ("None", "", None) and to_hex(line.get_color()) in dashes:
            line.set_linestyle(dashes[to_hex(line.get_color())])


def with_legend(figure: Figure, axes: Axes, side: str = "right center", **more: Any) -> Figure:
    """The figure, with what one of its panels shows as the legend beside all of them, if that has names.

    In a narrow figure it is below them.
    """
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        legend(figure, handles, labels, side, **more)
    return figure


def legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str], side: str, **more: Any) -> None:
    """A legend outside of all panels, with as many columns as fit."""
    width_mm = _LOOK.get().width
    if width_mm is not None:
        longest = max(map(len, labels)) + 6
        fitting = max(1, int(width_mm / MM_PER_LETTER[_LOOK.get().style] / longest))
        side, more = "lower center", {**more, "ncols": min(fitting, len(labels))}
        lines = -(-len(labels) // more["ncols"]) + len(str(more.get("title", "")).splitlines())
        (width, height), letter = figure.get_size_inches(), style_sheet(_LOOK.get().style)["font.size"]
        figure.set_size_inches(width, height + lines * 1.5 * letter / POINTS_PER_INCH)
    figure.legend(handles, labels, **{"loc": f"outside {side}", **more})
