"""Demand predictors."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from foretail.configs.schema.fields import setting


@dataclass
class DemandPredictor:
    """One demand predictor; null settings are its own defaults, and it refuses those that it does not have."""

    name: str = setting(
        MISSING,
        "the predictor",
        one_of=(
            "last_value",
            "moving_average",
            "seasonal",
            "linear_entries",
            "boosted_entries",
            "low_rank",
            "history_attention",
        ),
    )
    window: int | None = setting(None, "last steps that count")
    period: int | None = setting(None, "seasonal: steps; null: found in the training runs")
    longest: int | None = setting(None, "seasonal: longest period that is tried")
    penalty: float | None = setting(None, "linear_entries, low_rank: on the squared weights")
    shared: bool | None = setting(None, "linear_entries: one function for all pairs, instead of one for each")
    rank: int | None = setting(None, "low_rank: patterns")
    trees: int | None = setting(None, "boosted_entries: number of trees")
    depth: int | None = setting(None, "boosted_entries: largest depth of a tree")
    learning_rate: float | None = setting(None, "boosted_entries, history_attention: of the training")
    width: int | None = setting(None, "history_attention: hidden units")
    steps: int | None = setting(None, "history_attention: training steps")
    seed: int | None = setting(None, "boosted_entries, history_attention: same seed and runs, same predictor")
