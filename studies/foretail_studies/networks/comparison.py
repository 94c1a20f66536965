"""Policies in a simulator or in the emulator, with the settings of an experiment; a row per policy and seed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from foretail.configs.schema.experiment import ExperimentSettings
from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.pipelines.comparison.emulation import EmulationResult
from foretail.pipelines.evaluating import evaluate_in_network
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown


@dataclass
class NetworkSettings(ExperimentSettings, EvaluateConfig):
    """Policies on the same flows in a network."""

    def check(self, where: str) -> None:
        """Raise ForetailError on policies that cannot be compared."""
        EvaluateConfig.check(self, where)


def show(settings: NetworkSettings, run: Run) -> Shown:
    """Evaluate as the stage does."""
    result = evaluate_in_network(replace(settings, tracking=run.inside(settings.tracking)), run.folder)
    compared = result.compared if isinstance(result, EmulationResult) else result
    rows = pd.DataFrame([{"policy": one.policy, "seed": one.seed, **one.metrics()} for one in compared.runs])
    return Shown.of_stage(result, rows, run.folder)


NETWORKS = FunctionExperiment(NetworkSettings, show)
