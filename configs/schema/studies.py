"""Studies and searches: candidates as overrides of ``foretail train``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from foretail.configs.schema.fields import part, setting
from foretail.configs.schema.training import Split


@dataclass
class ClosedLoop:
    """Simulations of a study in which Credence asks the candidates."""

    conditions: list[str] = setting([], "conditions of the study; empty = no simulations")
    candidates: list[str] = setting([], "candidates, which must be trees")
    policies: list[str] = setting(["lqd", "credence_accept", "followlqd", "dt"], "beside them; lqd has to be there")
    seeds: list[int] = setting([], "traffic seeds that no candidate trained on", at_least=1, at_most=2**31 - 1)


@dataclass
class Shift:
    """A candidate that trains under each condition alone and is tested under all of them."""

    conditions: list[str] = setting([], "conditions of the study; empty = no shift matrix")
    candidate: str = setting("ours", "candidate of the study")
    seeds: list[int] = setting([], "traffic seeds in ns-3; empty = open loop only", at_least=1, at_most=2**31 - 1)


@dataclass
class Study:
    """Predictors on runs and conditions that they never saw; overrides are written as on the command line."""

    scenario: list[str] = setting(["scenario=leafspine_small"], "overrides that all conditions share")
    conditions: dict[str, list[str]] = setting(MISSING, "overrides of each condition, by its name")
    train_on: list[str] = setting(MISSING, "conditions whose runs train; the others are new to every candidate")
    split: Split = part(Split, "seeds of the runs, by run")
    candidates: dict[str, list[str]] = setting(MISSING, "overrides of foretail train, by the candidate's name")
    closed_loop: ClosedLoop = part(ClosedLoop, "in ns-3")
    shift: Shift = part(Shift, "the shift matrix")
    forest_sizes: list[int] = setting([1, 2, 4, 8, 16, 32], "numbers of trees of Figure 15", at_least=1)
    labels: list[str] = setting(
        [], "policies beside lqd whose runs the label study compares, the last of them asking a candidate; empty = none"
    )
    label_candidate: str = setting("forest", "candidate of the label study, which must be trees")
    budget: list[str] = setting(
        [], "candidates that fit a switch; the best of them on validation runs is put up for champion; empty = none"
    )


SEARCH_SCORES = ("recovered_loss", "f1", "average_precision")


"""Of a search, on its validation runs: where Credence asks; more is better."""


SEARCH_COSTS = ("table_entries", "tcam_bits", "leaves", "comparisons", "feature_bits")


"""Of a search, as ``foretail.export.switch_cost`` counts them; less is better."""


@dataclass
class Dimension:
    """The values of one setting of ``foretail train``: choices, or a range of integers or of floats."""

    override: str | None = setting(None, "the setting, such as predictor.trees; null: the name of the dimension")
    choices: list[Any] = setting([], "values, written as on the command line")
    integers: list[int] = setting([], "first and last integer")
    floats: list[float] = setting([], "lower and upper end")
    step: int = setting(1, "of the integers", at_least=1)
    log: bool = setting(False, "drawn by order of magnitude")


@dataclass
class Search:
    """Settings of ``foretail train`` to draw from, and what counts."""

    candidate: list[str] = setting([], "overrides of foretail train that all trials share")
    space: dict[str, Dimension] = setting(
        MISSING, "what is drawn; a setting predictor.X is drawn for the predictors that have it"
    )
    objectives: list[str] = setting(
        ["recovered_loss", "table_entries"],
        "what the front is about: scores on the validation runs, against costs",
        one_of=(*SEARCH_SCORES, *SEARCH_COSTS),
    )
    budget: dict[str, float] = setting(
        {"comparisons": 16}, "most of each cost; the best first score within it is trained for good and tested"
    )
    p4_profile: str = setting("v1model", "of table_entries and tcam_bits: v1model, rmt, or a YAML file")
    trials: int = setting(MISSING, "trials in total, those of earlier runs included", at_least=1, at_most=100_000)
    sampler: str = setting("nsga2", "who draws", one_of=("nsga2", "tpe"))
    population: int = setting(20, "nsga2: trials of a generation", at_least=2, at_most=10_000)
    batch: int = setting(
        4, "trials drawn before any of them is known, so that jobs change nothing", at_least=1, at_most=1024
    )
    seed: int = setting(1, "of the draws", at_least=0, at_most=2**32 - 1)
