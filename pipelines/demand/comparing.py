"""Predictors of the demand, trained on runs and scored on others; the predictors go to the run folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from foretail.configs.schema.network.circuits import DemandConfig
from foretail.pipelines.demand.comparison import DemandResult, compare, track_comparison, untrained, write_predictors
from foretail.pipelines.demand.figures import CAPTION, FIGURE, draw_throughput, runs_of
from foretail.pipelines.demand.runs import demand_runs
from foretail.pipelines.runs.points import write_figure
from foretail.pipelines.runs.progress import StageProgress


def compare_predictors(config: DemandConfig, run_dir: Path) -> DemandResult:
    """Train, choose the trust, score, and write the predictors into the run as ``predictors/WORKLOAD/NAME.json``."""
    predictors = {name: untrained(name, settings) for name, settings in config.demand_predictor.items()}
    splits = demand_runs(config)
    comparisons = []
    with StageProgress() as progress:
        for position, (workload, split) in enumerate(splits.items()):
            progress.update("demand predictors", position / len(splits), workload)
            comparisons.append(compare(workload, split, predictors, config))
    result = DemandResult(config, predictors, tuple(comparisons))
    if config.tracking.enabled:
        result = replace(result, tracked=track_comparison(config, result))
    for comparison in result.comparisons:
        write_predictors(comparison, run_dir)
    numbers = runs_of(comparisons)
    return replace(
        result, files=write_figure(run_dir, FIGURE, draw_throughput(numbers), numbers), captions={FIGURE: CAPTION}
    )
