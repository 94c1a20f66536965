"""``foretail evaluate``: buffer policies on the same packets.

In ns-3, where policies are paired by traffic seed and flows react to what a policy does, once or in an experiment's
sweep; or open loop: on a file of slotted arrivals, on recorded datasets, or on the generated arrivals of an experiment.
"""

from __future__ import annotations

from pathlib import Path

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.pipelines import stage
from foretail.pipelines.comparison.arrivals import evaluate_arrivals
from foretail.pipelines.comparison.datasets import evaluate_datasets
from foretail.pipelines.comparison.figures import with_figures
from foretail.pipelines.comparison.flows import evaluate_flows
from foretail.pipelines.comparison.tracked_flows import track_flows
from foretail.pipelines.experiments.flows.experiment import flow_experiment
from foretail.pipelines.experiments.sharing.experiment import sharing_experiment
from foretail.pipelines.experiments.slots.experiment import slot_experiment
from foretail.pipelines.experiments.slots.tradeoff import tradeoff_experiment


def evaluate(config: EvaluateConfig, run_dir: Path) -> stage.StageResult:
    """Compare policies on what the settings name: a sweep, a file of arrivals, datasets, or else flows in ns-3."""
    if config.slots:
        return slot_experiment(config, run_dir)
    if config.tradeoff:
        return tradeoff_experiment(config, run_dir)
    if config.sharing:
        return sharing_experiment(config, run_dir)
    if config.flows:
        return flow_experiment(config, run_dir)
    if config.arrivals is not None:
        return evaluate_arrivals(config)
    if config.datasets:
        return evaluate_datasets(config)
    return with_figures(track_flows(config, evaluate_flows(config)), run_dir)
