"""Scores of forests by the number of trees and their depth: Figure 15 of the Credence paper."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import JobSettings
from foretail.configs.schema.fields import setting
from foretail.pipelines.experiment.declaration import Drawn, FunctionExperiment, Run, Shown
from foretail.pipelines.runs.result import Table
from foretail.pipelines.settings.compose import compose_training
from foretail.pipelines.training.fitting import train_model
from foretail_studies.predictors.leakage import draw_by_trees

CAPTION = "F1 by the number of trees, a line per depth."
SCORES = ("precision", "recall", "f1", "average_precision")


@dataclass
class ForestSizeSettings(JobSettings):
    """Forests of several sizes, all trained on the same runs."""

    train: list[str] = setting([], "Overrides of foretail train that all forests share.")
    trees: list[int] = setting(MISSING, "Numbers of trees.", at_least=1, at_most=1024)
    depths: list[int] = setting(MISSING, "Depths of the trees.", at_least=1, at_most=64)


def show(settings: ForestSizeSettings, run: Run) -> Shown:
    """Train every forest, inside the experiment's run in MLflow, and show its scores on the test runs."""
    inside, rows = replace(settings, tracking=run.inside(replace(settings.tracking, registered_model=None))), []
    for trees, depth in product(settings.trees, settings.depths):
        overrides = [*settings.train, f"predictor.trees={trees}", f"predictor.depth={depth}"]
        config = replace(compose_training(inside, overrides, "train"), jobs=settings.jobs)
        scores = train_model(config).outcome["scores"]["test"]
        region = scores.get("asked") or scores["whole"]
        rows.append({"trees": trees, "depth": depth, **{name: region.get(name) for name in SCORES}})
    frame = pd.DataFrame(rows)
    columns = {name: name.replace("_", " ") for name in ("trees", "depth", *SCORES)}
    table = Table.of_frame("Forests by their size, on the test runs", frame, columns, "scores where Credence asks")
    return Shown(frame, [table], {"": Drawn(draw_by_trees(frame, ["f1"], "depth"), CAPTION)})


FOREST_SIZE = FunctionExperiment(ForestSizeSettings, show)
