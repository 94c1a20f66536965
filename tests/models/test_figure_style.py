"""The one style of all figures: there while one is drawn and saved, and nowhere else."""

from __future__ import annotations

import io

import matplotlib as mpl
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from foretail.models.scoring.figure_style import COLOURS, figure_style, styled


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


def test_the_style_changes_nothing_outside() -> None:
    before = dict(mpl.rcParams)
    figure = drawn()
    assert not figure.axes[0].spines["top"].get_visible()
    with figure_style():
        assert to_hex("C1").upper() == COLOURS[1]
    assert dict(mpl.rcParams) == before


def test_a_figure_is_the_same_file_again_in_its_own_colours() -> None:
    assert saved() == saved()
    assert COLOURS[1].lower() in saved().decode()


def test_every_colour_is_seen_on_white() -> None:
    assert len(set(COLOURS)) == len(COLOURS)
    for colour in COLOURS:
        linear = [value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in to_rgb(colour)]
        luminance = sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
        assert 1.05 / (luminance + 0.05) >= 2, colour
