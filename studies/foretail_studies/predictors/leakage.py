"""What a random split of rows pretends: scores by number of trees, split by row, by time and by run.

Source: Credence (NSDI'24), section 5 and Figure 15, whose scores come from rows drawn at random. Neighbouring packets
of one burst are then on both sides, so such a score says how well a forest remembers. It is computed here, and nowhere
else, to show how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from foretail.features.dataset.reader import Dataset
from foretail.features.rows.labelled_rows import read_rows
from foretail.features.rows.splits import Selection
from foretail.models.drop.forest import RandomForest
from foretail.models.scoring.figure_style import panels, styled, with_legend
from foretail.models.scoring.metrics import Confusion

SPLITS = ("by row", "by time", "by run")
TRAIN_SHARE = 0.6
"""Of the rows, as in the paper; split by time, of the drops."""

SHOWN = ("accuracy", "precision", "recall", "f1")


def leakage(
    run: Dataset, others: Sequence[Dataset], columns: Sequence[str], trees: Sequence[int], depth: int, seed: int
) -> list[dict[str, Any]]:
    """Return the scores of forests that decide at one half, on the rest of the run that they train on, and on others.

    `others` are traces of other seeds; `seed` is of the forests and of the draw of rows. Returns for every split and
    number of trees ``split``, ``trees``, ``drops`` (of the test rows) and the scores.
    """
    rows = read_rows((Selection(run),), columns)
    drawn = np.random.default_rng(seed).random(len(rows)) < TRAIN_SHARE
    drops = np.cumsum(rows.lqd_drop)
    first = drops <= TRAIN_SHARE * drops[-1]  # a run goes on long after its last drop
    apart = read_rows(tuple(Selection(other) for other in others), columns)
    sides = dict(zip(SPLITS, ((rows[drawn], rows[~drawn]), (rows[first], rows[~first]), (rows, apart)), strict=True))
    leaks = []
    for split, (train, test) in sides.items():
        for count in trees:
            forest = RandomForest(trees=count, depth=depth, seed=seed).fit(train.x, train.lqd_drop)
            confusion = Confusion.count(test.lqd_drop, forest.probability(test.x) > 0.5)
            scores = {name: getattr(confusion, name) for name in SHOWN}
            leaks.append({"split": split, "trees": count, "drops": confusion.tp + confusion.fn, **scores})
    return leaks


@styled
def draw_by_trees(rows: pd.DataFrame, scores: Sequence[str], by: str) -> Figure:
    """Scores by number of trees: a panel per score, a line per value of the column `by`."""
    figure, row = panels(len(scores), inches=(3 * len(scores) + 1, 3), sharex=True)
    counts = sorted(set(rows["trees"]))
    for axes, score in zip(row, scores, strict=True):
        for value, line in rows.groupby(by, sort=False):
            axes.plot(line["trees"], line[score], marker="o", label=str(value))
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts, labels=[str(count) for count in counts])
        axes.set(title=score, xlabel="trees")
    return with_legend(figure, row[0], title=by)
