"""Predictors of the demand, as ``foretail demand`` compares them; a row per workload and predictor."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import pandas as pd

from foretail.configs.schema.experiment import ExperimentSettings
from foretail.configs.schema.network.circuits import DemandConfig
from foretail.pipelines.demand.comparing import compare_predictors
from foretail.pipelines.demand.comparison import worth_of
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown


@dataclass
class PredictionSettings(ExperimentSettings, DemandConfig):
    """Demand predictors on workloads."""

    def check(self, where: str) -> None:
        """Raise ForetailError on what cannot be compared."""
        DemandConfig.check(self, where)


def show(settings: PredictionSettings, run: Run) -> Shown:
    """Compare as the stage does."""
    result = compare_predictors(replace(settings, tracking=run.inside(settings.tracking)), run.folder)
    rows = [
        {
            "workload": compared.workload,
            "predictor": name,
            "k": evaluation.trust,
            **{f"error_{figure}": value for figure, value in asdict(evaluation.test.error).items()},
            "theta": worth_of(evaluation).predicted,
            "theta_of_truth": worth_of(evaluation).true,
        }
        for compared in result.comparisons
        for name, evaluation in compared.evaluations.items()
    ]
    return Shown.of_stage(result, pd.DataFrame(rows), run.folder)


PREDICTION = FunctionExperiment(PredictionSettings, show)
