"""Figures of predictions, with the numbers behind them: the confusion matrix and the precision-recall curve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from foretail.models.scoring.figure_style import panels, styled
from foretail.models.scoring.metrics import Confusion, rank

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@styled
def write_figures(
    folder: Path,
    split: str,
    region: str,
    lqd_drop: npt.ArrayLike,
    predicted_drop: npt.ArrayLike,
    score: npt.ArrayLike,
) -> None:
    """Write both figures and their numbers into a folder.

    Parameters
    ----------
    split, region : which rows these are; they name the files ``<split>_<region>_*``
    lqd_drop, predicted_drop : bool array [rows], LQD's decision and the prediction
    score : int64 or float64 array [rows], what the predictions were cut from
    """
    import pandas as pd

    confusion = Confusion.count(lqd_drop, predicted_drop)
    ranking = rank(lqd_drop, score)
    curve = pd.DataFrame({"score": ranking.score, "true_positives": ranking.tp, "false_positives": ranking.fp})
    drops = confusion.tp + confusion.fn
    curve["precision"] = curve.true_positives / (curve.true_positives + curve.false_positives)
    curve["recall"] = curve.true_positives / drops if drops else np.nan
    title = f"{split}, {region}: {confusion.rows:,} rows, {drops:,} drops"
    stem = folder / f"{split}_{region}"
    counts = {"tp": confusion.tp, "fp": confusion.fp, "tn": confusion.tn, "fn": confusion.fn}
    Path(f"{stem}_confusion.json").write_text(json.dumps(counts) + "\n", encoding="ascii")
    curve.to_parquet(f"{stem}_precision_recall.parquet", index=False)
    _confusion_figure(confusion, title).savefig(f"{stem}_confusion.png", dpi=120)
    _curve_figure(curve, confusion, title).savefig(f"{stem}_precision_recall.png", dpi=120)


def _confusion_figure(confusion: Confusion, title: str) -> Figure:
    from matplotlib.colors import FuncNorm
    from sklearn.metrics import ConfusionMatrixDisplay

    figure = _figure(title)
    (axes,) = figure.axes
    counts = np.array([[confusion.tn, confusion.fp], [confusion.fn, confusion.tp]])
    scale = FuncNorm((np.log1p, np.expm1), vmin=0)  # drops are rare: a linear scale shows one dark corner
    shown = ConfusionMatrixDisplay(counts).plot(
        ax=axes, cmap="Blues", values_format=",", colorbar=False, im_kw={"norm": scale}
    )
    for text, count in zip(shown.text_.flat, counts.flat, strict=True):  # it chooses for a linear scale
        text.set_color("white" if np.log1p(count) > np.log1p(counts.max()) / 2 else "black")
    axes.set(xlabel="prediction", xticklabels=["accept", "drop"], ylabel="LQD", yticklabels=["transmits", "drops"])
    return figure


def _curve_figure(curve: pd.DataFrame, confusion: Confusion, title: str) -> Figure:
    from sklearn.metrics import PrecisionRecallDisplay

    figure = _figure(title)
    (axes,) = figure.axes
    PrecisionRecallDisplay(curve["precision"].to_numpy(), curve["recall"].to_numpy()).plot(ax=axes)
    if confusion.precision is not None and confusion.recall is not None:
        axes.plot([confusion.recall], [confusion.precision], "o", label="operating point")
        axes.legend()
    axes.set(xlabel="recall", xlim=(0, 1), ylabel="precision", ylim=(0, 1.02), aspect="auto")
    return figure


def _figure(title: str) -> Figure:
    figure, (axes,) = panels(1, inches=(4.2, 3.6), grid="")
    axes.set_title(title, fontsize="small")
    return figure
