"""The one style of all figures: there while one is drawn and saved, and nowhere else."""

from __future__ import annotations

import io
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from foretail.models.scoring.figure_style import (
    COLOURS,
    COLUMN_MM,
    DASHES,
    MM_PER_INCH,
    Look,
    figure_style,
    looking,
    panels,
    style_sheet,
    styled,
    with_legend,
)

pytestmark = pytest.mark.slow


@styled
def drawn() -> Figure:
    figure = Figure()
    figure.subplots().plot([1, 2], color="C1")
    return figure


def saved() -> bytes:
    file = io.BytesIO()
    with figure_style():
        drawn().savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


@styled
def wide(columns: int = 3) -> Figure:
    """Panels with long words, as experiments draw them."""
    figure, row = panels(columns, inches=(4 * columns, 4), sharex=True, sharey=True)
    for number, axes in enumerate(row):
        for line in range(5):
            axes.plot([0, 10], [line, number], "o-", label=f"a policy with the number {line}")
        axes.set(title=f"flows of the class with the number {number}, p99", xlabel="load in % of the uplinks' rate")
    row[0].set_ylabel("completion time in microseconds, of all flows that were completed")
    return with_legend(figure, row[0], title="bands: 95 % intervals")


@pytest.mark.parametrize("style", ["screen", "paper", "slides"])
@pytest.mark.parametrize("width_mm", [None, 85.0, 174.0, 300.0])
@pytest.mark.parametrize("columns", [1, 3, 5])
def test_a_figure_is_as_wide_as_it_should_be_and_its_words_are_apart(
    style: str, width_mm: float | None, columns: int
) -> None:
    if style == "slides" and width_mm == 85.0:
        width_mm = 170.0  # letters for slides are too large for a column of a paper
    with looking(Look(style, width_mm)):
        figure = wide(columns)
    figure.savefig(io.BytesIO(), format="png")
    if width_mm is not None:
        assert figure.get_size_inches()[0] * MM_PER_INCH == pytest.approx(width_mm)
    assert {axes.xaxis.label.get_fontsize() for axes in figure.axes} == {style_sheet(style)["font.size"]}
    assert len(figure.legends[0].get_texts()) == 5
    assert all(axes.get_ylabel() for axes in figure.axes if axes.get_position().x0 == figure.axes[0].get_position().x0)
    texts = [
        part for axes in figure.axes for part in (axes.title, axes.xaxis.label, axes.yaxis.label) if part.get_text()
    ]
    boxes = [part.get_window_extent() for part in (*texts, figure.legends[0])]
    assert not [(one, other) for one, other in combinations(boxes, 2) if one.overlaps(other)]
    for box in boxes:
        assert box.x0 >= -1
        assert box.x1 <= figure.bbox.x1 + 1
    bottom = [axes.xaxis.get_tick_params()["labelbottom"] for axes in figure.axes if axes.get_title()]
    assert all(bottom[-1:])


def dashed(line: Any) -> tuple[str, Any]:
    return line.get_linestyle(), line._unscaled_dash_pattern


def test_a_figure_for_a_paper_is_one_column_wide_with_seven_points_and_lines_that_differ_in_grey() -> None:
    """Half a CPU second."""
    with looking(Look("paper")), figure_style():
        figure, row = panels(2, inches=(12, 4), sharey=True)
        for number, colour in enumerate(COLOURS):
            row[0].step(np.arange(4), np.arange(4) + number, color=colour, label=f"a policy {number}")
        row[1].plot([0, 1, 2], [1, 2, 3], "o-", color="C1")
        row[0].set_xticks(range(3), ["one", "two", "three"], fontsize="small")
        row[0].set(title="a title", xlabel="load", yscale="log")
        with_legend(figure, row[0])
    figure.savefig(io.BytesIO(), format="pdf")
    assert figure.get_size_inches()[0] == pytest.approx(3.3)
    assert pytest.approx(83.82) == COLUMN_MM
    shown: list[Any] = figure.findobj(Text)
    assert min(text.get_fontsize() for text in shown if text.get_text()) >= 7
    dashes = [dashed(line) for line in row[0].lines]
    assert len(set(map(str, dashes))) == len(DASHES) == len(COLOURS)
    assert [dashed(line) for line in figure.legends[0].get_lines()] == dashes
    assert row[1].lines[0].get_linestyle() == "-"  # its markers tell it apart
