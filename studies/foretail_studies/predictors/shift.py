"""The shift matrix: a predictor that trained under one condition, tested under every other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from foretail.models.scoring.figure_style import panels, styled
from foretail.pipelines.comparison.flows import FlowsResult
from foretail.pipelines.runs.result import Table
from foretail.sim_bridge.open_loop.replay import ReplayScores
from foretail.sim_bridge.open_loop.scores import SENT
from foretail_studies.predictors.held_out import HeldOut

METRIC = "slowdown.incast.p95"
F1, RECOVERED, INCAST = "F1 of the asked region", "recovered loss R", "incast p95 of Credence over LQD"
LIMITS = {F1: (0.0, 1.0), RECOVERED: (-1.0, 1.0), SENT: (95.0, 100.0), INCAST: (0.9, 1.1)}
"""Of the colours; differences that do not matter look alike."""
Matrix = Mapping[tuple[str, str], float | None]


@dataclass(frozen=True)
class ShiftMatrix:
    """One predictor per condition, on runs of all conditions."""

    conditions: Sequence[str]  #: in order
    #: by condition of the training and of the test, one entry per run
    held_out: Mapping[tuple[str, str], Sequence[HeldOut]]
    #: the same with LQD and Credence in closed loop; empty without simulations
    closed_loop: Mapping[tuple[str, str], FlowsResult]

    def matrices(self) -> dict[str, Matrix]:
        """What is shown, by title."""
        replays = {pair: ReplayScores.together([run.replay for run in runs]) for pair, runs in self.held_out.items()}
        matrices: dict[str, Matrix] = {
            F1: {pair: _f1(runs) for pair, runs in self.held_out.items()},
            RECOVERED: {pair: matrices.recovered_loss for pair, matrices in replays.items()},
            SENT: {pair: matrices.sent_percent_of_lqd for pair, matrices in replays.items()},
        }
        if self.closed_loop:
            matrices[INCAST] = {pair: _ratio(flows) for pair, flows in self.closed_loop.items()}
        return matrices

    def frame(self) -> pd.DataFrame:
        """One row per pair of conditions, one column per matrix."""
        matrices = self.matrices()
        return pd.DataFrame(
            [
                {
                    "trained_on": one,
                    "tested_on": other,
                    **{title: matrix[one, other] for title, matrix in matrices.items()},
                }
                for one in self.conditions
                for other in self.conditions
            ]
        )

    def tables(self) -> list[Table]:
        """A table per matrix: rows train, columns test."""
        return [
            Table(
                f"Shift: {title}",
                ("trained on", *self.conditions),
                tuple((one, *(matrix[one, other] for other in self.conditions)) for one in self.conditions),
            )
            for title, matrix in self.matrices().items()
        ]

    @styled
    def draw(self) -> Figure:
        """A heat map per matrix."""
        matrices = self.matrices()
        size = len(self.conditions)
        figure, row = panels(len(matrices), inches=((1.6 + 0.75 * size) * len(matrices), 1.3 + 0.6 * size), grid="")
        for axes, (title, matrix) in zip(row, matrices.items(), strict=True):
            values = np.array(
                [[matrix[one, other] for other in self.conditions] for one in self.conditions], np.float64
            )
            low, high = LIMITS[title]
            image = axes.imshow(values, cmap="viridis", vmin=low, vmax=high)
            middle = (low + high) / 2
            for (row, column), value in np.ndenumerate(values):
                color = "white" if value < middle else "black"
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=color, fontsize="small")
            axes.set_xticks(range(size), self.conditions, rotation=45, ha="right")
            axes.set_yticks(range(size), self.conditions)
            axes.set(title=title, xlabel="tested on", ylabel="trained on")
            figure.colorbar(image, ax=axes, shrink=0.8, extend="both" if title != F1 else "neither")
        return figure


def shift_matrix(
    conditions: Sequence[str],
    judged: Callable[[str, str], Sequence[HeldOut]],
    simulated: Callable[[str, str], FlowsResult] | None,
) -> ShiftMatrix:
    """Fill the matrix; the callables get the condition of the training and that of the test."""
    pairs = [(one, other) for one in conditions for other in conditions]
    return ShiftMatrix(
        conditions,
        {pair: judged(*pair) for pair in pairs},
        {} if simulated is None else {pair: simulated(*pair) for pair in pairs},
    )


def _f1(runs: Sequence[HeldOut]) -> float | None:
    f1 = HeldOut.together(runs)["F1"]
    return f1 if isinstance(f1, float) else None


def _ratio(flows: FlowsResult) -> float | None:
    lqd, credence = (flows.means(METRIC)[policy].mean for policy in ("lqd", "credence"))
    return credence / lqd if credence is not None and lqd else None
