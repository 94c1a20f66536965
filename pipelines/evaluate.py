"""``foretail evaluate``: buffer policies on the same packets.

In ns-3, where policies are paired by traffic seed and flows react to what a policy does, once or in an experiment's
sweep; or open loop: on a file of slotted arrivals, on recorded datasets, or on the generated arrivals of an experiment.
"""

from __future__ import annotations

import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

from foretail.configs.schema import EvaluateConfig, register
from foretail.pipelines import cli, stage
from foretail.pipelines.evaluate_arrivals import evaluate_arrivals
from foretail.pipelines.evaluate_datasets import evaluate_datasets
from foretail.pipelines.evaluate_flows import evaluate_flows
from foretail.pipelines.flow_sweep import FlowSweepResult, flow_sweep
from foretail.pipelines.laboratory import laboratory

register()


def evaluate(config: EvaluateConfig, run_dir: Path) -> stage.StageResult:
    """Compare policies on what the settings name: a sweep, a file of arrivals, datasets, or else flows in ns-3."""
    if config.sweep:
        return laboratory(config, run_dir)
    if config.figures:
        return flow_sweep(config, run_dir)
    if config.arrivals is not None:
        return evaluate_arrivals(config)
    if config.datasets:
        return evaluate_datasets(config)
    return evaluate_flows(config)


@hydra.main(version_base="1.3", config_path="pkg://foretail.configs", config_name="evaluate")
def main(cfg: DictConfig) -> None:
    """Compose the settings and run the stage."""
    result = stage.run(cfg, EvaluateConfig, evaluate)
    failure = result.failure() if isinstance(result, FlowSweepResult) else None
    if failure is not None:
        raise stage.StageFailed(failure)


if __name__ == "__main__":
    sys.exit(cli.main(["evaluate", *sys.argv[1:]]))
