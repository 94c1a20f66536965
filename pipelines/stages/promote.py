"""``foretail promote``: make a model champion or challenger if it passes the gate, or show and restore who is."""

from __future__ import annotations

from pathlib import Path

from foretail.configs.schema.model_stages import PromoteConfig
from foretail.pipelines.promotion.aliases import Aliases, known_aliases, restore_alias
from foretail.pipelines.promotion.closed_loop import judge_by_cost
from foretail.pipelines.promotion.promoting import PromoteResult, judge_by_scores, promote_model


def promote(config: PromoteConfig, run_dir: Path) -> PromoteResult | Aliases:
    """Judge the model and the holder on held-out runs, prove the exports, and move the alias as the last step."""
    if config.model is None:
        return restore_alias(config) if config.rollback or config.version is not None else known_aliases(config)
    return promote_model(config, run_dir, judge_by_cost if config.families else judge_by_scores)
