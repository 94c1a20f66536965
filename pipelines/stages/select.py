"""``foretail select``: what each feature is worth to a predictor, and the best ones that a switch can afford.

Test rows are not read, so that the selection can be trained and scored on them afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from foretail.configs.schema.model_stages import SelectConfig
from foretail.core.summary import Summarised
from foretail.features.catalog import FeatureCost, feature
from foretail.features.rows.labelled_rows import ALONE, Region, Sampling, read_rows
from foretail.features.rows.splits import Split
from foretail.models.drop.feature_selection import (
    FeatureBudget,
    Importance,
    SelectedFeatures,
    permutation_importance,
    select_features,
)
from foretail.models.scoring.figure_style import BLUE, GREY, legend, panels, styled
from foretail.pipelines.data.collecting import CollectedRun, dataset_table
from foretail.pipelines.runs.points import write_figure
from foretail.pipelines.runs.progress import StageProgress
from foretail.pipelines.runs.result import Table
from foretail.pipelines.settings.predictors import untrained
from foretail.pipelines.training.fitting import find_split
from foretail.pipelines.training.scores import Labelled

FIGURE = "importances"
CAPTION = (
    "What average precision on the validation rows loses when the values of one feature are shuffled: a bar per "
    "feature, with the deviation over the shuffles. Blue: selected."
)


@dataclass(frozen=True, repr=False)
class SelectResult(Summarised):
    """A selection."""

    collected: Sequence[CollectedRun]  #: datasets that came from the scenario
    importances: dict[str, Importance]  #: of every candidate to a predictor of all of them
    path: tuple[SelectedFeatures, ...]  #: steps of the selection
    budget: FeatureBudget  #: its limits
    region: Region  #: validation rows that count
    ports: int  #: of the largest switch, which the costs are of
    files: tuple[str, ...]  #: the figure and its numbers, in the run folder

    @property
    def names(self) -> tuple[str, ...]:
        """The selected features."""
        return self.path[-1].names

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        return {
            "collected": [asdict(run) for run in self.collected],
            "importances": {name: asdict(importance) for name, importance in self.importances.items()},
            "path": [asdict(step) for step in self.path],
            "ports": self.ports,
            "names": self.names,
            "files": self.files,
            "captions": {FIGURE: CAPTION},
        }

    def verdict(self) -> list[str]:
        """Chosen features, and the candidate that the predictor of all needs most."""
        last, of = self.path[-1], len(self.importances)
        most = max(self.importances, key=lambda name: self.importances[name].mean)
        return [
            f"Of {of} features {len(self.names)} within the budget reach an average precision of "
            f"{last.average_precision:.4g}: {', '.join(self.names)}.",
            f"The predictor of all of them needs {most} most: shuffled, it costs {self.importances[most].mean:.3g}.",
        ]

    def tables(self) -> list[Table]:
        """Importances, greatest first, and the path."""
        ordered = sorted(self.importances.items(), key=lambda one: -one[1].mean)
        costs: dict[str, FeatureCost] = {name: feature(name).cost for name in self.importances}
        rows = [
            {"feature": name, "mean": importance.mean, "deviation": importance.deviation}
            | {"bits a queue": costs[name].queue_bits, "bits a switch": costs[name].switch_bits}
            for name, importance in ordered
        ]
        importances = Table.of_rows(
            "Permutation importance of all candidates together",
            rows,
            f"Fall of average precision on validation rows (region {self.region}) when its values are shuffled;",
            "features that tell the same share what they tell.",
        )
        path = Table(
            "Selection",
            ("features", "added", "average precision", "register bits", "operations"),
            tuple(
                (len(step.names), step.names[-1], step.average_precision, step.cost.register_bits, step.cost.operations)
                for step in self.path
            ),
            (
                f"budget: {self.budget}; costs beyond Credence on a switch of {self.ports} ports, per packet",
                f"features.names=[{','.join(self.names)}]",
            ),
        )
        return [*([dataset_table(self.collected)] if self.collected else []), importances, path]


def select(config: SelectConfig, run_dir: Path) -> SelectResult:
    """Train on samples of the training rows and score on the validation rows; the figure goes to the run folder."""
    collected, split = find_split(config)
    names, region = config.features.names, cast(Region, config.region)
    labelled = Labelled.of(Split(split.train, split.validation, split.validation), names, config.features.own_queues)
    rows = read_rows(split.train, labelled.columns, Sampling(config.sampling.others, config.sampling.seed))
    validation = read_rows(split.validation, labelled.columns, region=region)
    make, budget = partial(untrained, config.predictor, config.trainer, ALONE), FeatureBudget(**asdict(config.budget))
    with StageProgress() as progress:
        path = select_features(
            make,
            names,
            rows,
            validation,
            ports=labelled.ports,
            budget=budget,
            margin=config.margin,
            report=partial(progress.update, "select"),
        )
    all_of_them = make().fit(rows.x, rows.lqd_drop, rows.weight)
    importance = permutation_importance(all_of_them, validation.x, validation.lqd_drop, config.repeats, config.seed)
    importances = dict(zip(names, importance, strict=True))
    figure, numbers = draw_importances(importances, path[-1].names)
    files = write_figure(run_dir, FIGURE, figure, numbers)
    return SelectResult(collected, importances, path, budget, region, labelled.ports, files)


@styled
def draw_importances(importances: Mapping[str, Importance], chosen: Sequence[str]) -> tuple[Figure, pd.DataFrame]:
    """A bar per candidate, the greatest on top, the selected ones in colour; and its numbers."""
    rows = sorted(importances.items(), key=lambda one: one[1].mean)
    numbers = pd.DataFrame(
        [{"feature": name, **asdict(importance), "selected": name in chosen} for name, importance in rows[::-1]]
    )
    figure, (axes,) = panels(1, inches=(6.4, 0.9 + 0.26 * len(rows)), grid="x")
    axes.barh(
        [name for name, _ in rows],
        [importance.mean for _, importance in rows],
        xerr=[importance.deviation for _, importance in rows],
        color=[BLUE if name in chosen else GREY for name, _ in rows],
        ecolor="0.3",
        capsize=2,
    )
    axes.set_xlabel("fall of average precision when shuffled")
    shown = (Patch(color=BLUE), Patch(color=GREY), Line2D([], [], color="0.3"))
    legend(figure, shown, ("selected", "not selected", "standard deviation of shuffles"), "lower right", ncols=3)
    return figure, numbers
