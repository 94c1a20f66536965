"""``foretail demand``: train predictors of the demand, and tell what the schedules of their predictions are worth."""

from __future__ import annotations

from pathlib import Path

from foretail.configs.schema.network.circuits import DemandConfig
from foretail.pipelines.demand import DemandResult, compare_predictors


def demand(config: DemandConfig, run_dir: Path) -> DemandResult:
    """Train, choose the trust, score, and write the predictors into the run."""
    return compare_predictors(config, run_dir)
