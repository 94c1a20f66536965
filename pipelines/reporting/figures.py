"""The figures of a finished run, for a notebook or a paper: drawn again from the numbers beside them."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from foretail.core.errors import ForetailError
from foretail.models.scoring.figure_style import Look, looking, panels, styled
from foretail.pipelines.comparison.figures import DRAW, FOLDER
from foretail.pipelines.demand.figures import FIGURE, draw_throughput
from foretail.pipelines.experiment.catalog import declared
from foretail.pipelines.experiment.declaration import PointExperiment
from foretail.pipelines.experiment.running import stem_of
from foretail.pipelines.reporting.run_record import RUN, RunFigure, RunRecord


def run_figures(folder: Path | str, style: str = "screen", width_mm: float | None = None) -> dict[str, Figure]:
    """Return the figures of a run folder by name; ForetailError when it has none or is damaged.

    `style` and `width_mm` are those of the settings ``figures``: ``paper``, ``slides`` or ``screen``, and the width of
    a figure in mm, which for a paper is one column unless given.

    Those of ``evaluate``, ``demand`` and of experiments that have points are drawn again from their numbers, so that
    their axes can be changed; any other shows the image that the run wrote, which has one style and width.

    Examples
    --------
    >>> figures = run_figures("outputs/vermilion_fig8_7/run")  # doctest: +SKIP
    >>> figures["vermilion_fig8_7"].savefig("throughput.pdf")  # doctest: +SKIP
    """
    look = Look(style, width_mm)
    with looking(look):
        return _figures_of(RunRecord.open(Path(folder)), look)


def _figures_of(record: RunRecord, look: Look) -> dict[str, Figure]:
    drawn = {f"{FOLDER}/{name}": name for name in DRAW}
    again = dict(_of_points(record)) if record.stage == RUN else {}
    figures = {}
    for one in record.figures:
        numbers = [record.folder / name for name in one.data]
        if one.name in again:
            figures[one.name] = again[one.name]
        elif record.stage == "evaluate" and one.name in drawn:
            figures[one.name] = DRAW[drawn[one.name]](pd.read_parquet(numbers[0]))
        elif record.stage == "demand" and one.name == FIGURE:
            figures[one.name] = draw_throughput(pd.read_csv(numbers[0]))
        elif look not in (Look(), Look(**record.document["config"].get("figures", {}))):
            raise ForetailError(
                f"{one.name} was drawn by its run and cannot be drawn again: run it again with "
                f"figures.style={look.style}, which reuses what it measured"
            )
        else:
            figures[one.name] = _image(record.folder, one)
    if not figures:
        raise ForetailError(f"the run in {record.folder} has no figures: give one of evaluate, demand, select or run")
    return figures


def _of_points(record: RunRecord) -> Iterator[tuple[str, Figure]]:
    """The figures of an experiment whose rows are all that it shows."""
    config: dict[str, Any] = dict(record.document["config"])
    experiment = declared(config["experiment"])
    if isinstance(experiment, PointExperiment):
        settings: Any = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(experiment.settings), config))
        rows = pd.read_parquet(record.folder / f"{config['experiment']}.parquet")
        for name, drawn in experiment.show(rows, settings).figures.items():
            yield stem_of(settings, name), drawn.figure


@styled
def _image(folder: Path, one: RunFigure) -> Figure:
    from matplotlib.image import imread

    png = folder / f"{one.name}.png"
    pixels = imread(png if png.is_file() else BytesIO(one.content))
    figure, (axes,) = panels(1, inches=(pixels.shape[1] / 150, pixels.shape[0] / 150), grid=None)
    axes.imshow(pixels)
    axes.set_axis_off()
    return figure
