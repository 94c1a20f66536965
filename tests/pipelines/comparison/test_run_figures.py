"""Figures of finished runs, drawn again from the numbers beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.patches import Rectangle

from foretail.api import run_figures
from foretail.core.errors import ForetailError
from foretail.pipelines.comparison.figures import DRAW, SLOWDOWNS
from tests.pipelines.command.test_cli import foretail

pytestmark = pytest.mark.slow


def test_an_experiment_of_points_is_drawn_again(tmp_path: Path) -> None:
    foretail(tmp_path, "run", "vermilion_fig8_7", "size=small", "tracking=off", "hydra.run.dir=fig")
    (figure,) = run_figures(tmp_path / "fig").values()
    figure.savefig(tmp_path / "again.png", dpi=150)
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "fig" / "vermilion_fig8_7.png").read_bytes()


def test_other_figures_are_images_and_none_is_refused(tmp_path: Path) -> None:
    pd.DataFrame(1 - np.eye(4)).to_csv(tmp_path / "demand.csv", header=False, index=False)
    done = foretail(
        tmp_path, "schedule", "demand=demand.csv", "degree=2", "k=2", "scale=true", "hydra.run.dir=schedule"
    )
    assert done.returncode == 0, done.stderr
    with pytest.raises(ForetailError, match="has no figures"):
        run_figures(tmp_path / "schedule")


def test_the_figures_of_policies_are_drawn_from_their_numbers() -> None:
    frame = pd.DataFrame(
        {"policy": ["lqd", "lqd", "dt"], "seed": [1, 2, 1]} | {name: [1.0, 3.0, 2.0] for name in SLOWDOWNS}
    )
    figure = DRAW["slowdown_p95"](frame)
    assert [axes.get_title() for axes in figure.axes] == [title for _, title in SLOWDOWNS.values()]
    assert [bar.get_width() for bar in figure.axes[0].patches if isinstance(bar, Rectangle)] == [2.0, 2.0]
    without = DRAW["slowdown_p95"](frame.assign(long=np.nan))
    assert [axes.get_title() for axes in without.axes] == [t for name, (_, t) in SLOWDOWNS.items() if name != "long"]
