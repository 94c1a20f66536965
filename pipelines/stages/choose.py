"""``foretail choose``: a rule of the zoo for given traffic, as a folder that export, deploy and replay take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from foretail.configs.schema.packet_stages import ChooseConfig
from foretail.models.mlflow.tracking import ENSEMBLE_FILE
from foretail.models.scoring.figure_style import BLUE, GREY, panels, styled
from foretail.pipelines.comparison.choosing import Choice
from foretail.pipelines.comparison.choosing import choose as choose_rule
from foretail.pipelines.runs.points import write_figure
from foretail.pipelines.runs.progress import StageProgress
from foretail.sim_bridge.arrivals.files import ArrivalFile, Slotted

FIGURE = "choice"
CAPTION = (
    "Gain over Dynamic Thresholds with the best alpha, in %, on each window of the sample: a dot for each window, a "
    "bar for the mean; what reaches the left edge goes on. Blue: the chosen rule."
)


def choose(config: ChooseConfig, run_dir: Path) -> Choice:
    """Choose, and write the chosen rule as ``ensemble.json`` next to a figure."""
    sample: Any = config.datasets
    if config.arrivals is not None:
        assert config.ports is not None
        sample = Slotted.joined(ArrivalFile(Path(config.arrivals)).batches(config.ports, only_required=True))
    with StageProgress() as progress:
        choice = choose_rule(
            sample,
            config.ports,
            config.buffer,
            windows=config.windows,
            sample_packets=config.sample_packets,
            rules=config.rules,
            trials=config.trials if config.search else 0,
            seed=config.seed,
            jobs=config.jobs,
            report=lambda share, words: progress.update("choose", share, words),
        )
    figure, numbers = draw(choice)
    files = write_figure(run_dir, FIGURE, figure, numbers)
    choice.ensemble().save(run_dir / ENSEMBLE_FILE)
    return replace(choice, files=(ENSEMBLE_FILE, *files), captions={FIGURE: CAPTION})


@styled
def draw(choice: Choice) -> tuple[Figure, pd.DataFrame]:
    """A row of dots for each rule of the zoo and each policy with its best setting; and its numbers."""
    shown = [str(row[0]) for row in choice.tables()[0].rows][::-1]
    logs = choice.logs
    base = logs.values[:, logs.places(choice.dt.name)[0]]
    figure, (axes,) = panels(1, inches=(6.4, 1.0 + 0.3 * len(shown)), grid="x")
    records = []
    for height, name in enumerate(shown):
        gains = 100 * (logs.values[:, logs.places(name)[0]] - base)
        colour = BLUE if name == choice.name else GREY
        axes.barh(height, gains.mean(), color=colour, height=0.6, alpha=0.5)
        axes.plot(gains, np.full(len(gains), height), "o", color=colour, markersize=3)
        records += [{"name": name, "window": window, "gain_percent": gain} for window, gain in enumerate(gains)]
    numbers = pd.DataFrame(records)
    lowest, highest = numbers["gain_percent"].min(), numbers["gain_percent"].max()
    axes.set_xlim(left=max(1.05 * lowest, -1.5 * max(highest, 0.1)) - 0.02)
    axes.set_yticks(range(len(shown)), shown)
    axes.set_xlabel(f"packets sent, gain over {choice.dt.name}, %")
    return figure, numbers
