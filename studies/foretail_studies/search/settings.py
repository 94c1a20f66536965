"""Settings of a search for drop predictors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from foretail.configs.schema.experiment import JobSettings
from foretail.configs.schema.fields import setting
from foretail.core.errors import ForetailError
from foretail.features.catalog import feature

SEARCH_SCORES = ("recovered_loss", "f1", "average_precision")
"""Of a search, on its validation runs: where Credence asks; more is better."""
SEARCH_COSTS = ("table_entries", "tcam_bits", "leaves", "comparisons", "feature_bits")
"""Of a search, as ``foretail_studies.search.switch_cost`` counts them; less is better."""
PLAYED_ROUND, PLAYED_TREE = "round.json", "ensemble.json"
"""Files of a round that was played: its account, and what it learned."""


@dataclass
class TrialSettings:
    """What every search has: how many trials are drawn, and where they are kept."""

    trials: int = setting(
        MISSING, "Number of trials in total, those of earlier runs included.", at_least=1, at_most=100_000
    )
    batch: int = setting(
        4, "Number of trials drawn before any of them is known, so that jobs change nothing.", at_least=1, at_most=1024
    )
    seed: int = setting(1, "Seed of the draws.", at_least=0, at_most=2**32 - 1)
    file: str | None = setting(None, "SQLite file of the trials; null means search.db beside the store.")
    name: str | None = setting(
        None, "Name of the search in that file; null makes it of all that decides its trials, so that a search resumes."
    )


@dataclass
class Dimension:
    """The values of one setting of ``foretail train``: choices, or a range of integers or of floats."""

    override: str | None = setting(
        None, "Setting that the dimension overrides, such as predictor.trees; null means the name of the dimension."
    )
    choices: list[Any] = setting([], "Values, written as on the command line.")
    integers: list[int] = setting([], "First and last integer.")
    floats: list[float] = setting([], "Lower and upper end.")
    step: int = setting(1, "Step of the integers.", at_least=1)
    log: bool = setting(False, "Draw by order of magnitude.")

    def check(self, where: str) -> None:
        """Raise ForetailError unless it is one of choices, integers and floats, and holds more than one value."""
        given = [name for name in ("choices", "integers", "floats") if getattr(self, name)]
        if len(given) != 1:
            raise ForetailError(
                f"{where} has {' and '.join(given) or 'no values'}: give one of choices, integers=[first,last] and "
                "floats=[low,high]"
            )
        if self.choices:
            if self.log or self.step != 1:
                raise ForetailError(f"{where} has choices, which know no step or log: leave those out")
            for position, choice in enumerate(self.choices):
                if not isinstance(choice, (str, int, float, bool, type(None))):
                    raise ForetailError(f"{where}.choices holds {choice}: write it in quotes, as on the command line")
                if any(choice is other or choice == other for other in self.choices[:position]):
                    raise ForetailError(f"{where}.choices holds {choice} twice: name every value once")
            return
        name = given[0]
        values = getattr(self, name)
        if len(values) != 2 or not values[0] < values[1]:
            raise ForetailError(f"{where}.{name} = {values} is not a range: give two numbers, the smaller one first")
        if self.step != 1 and (self.log or name == "floats" or (values[1] - values[0]) % self.step):
            raise ForetailError(
                f"{where}.step = {self.step} is for integers without log whose last is a step: change or leave it out"
            )
        if self.log and values[0] <= 0:
            raise ForetailError(f"{where}.{name} = {values} has no orders of magnitude: log needs a range above 0")


@dataclass
class SearchSettings(JobSettings, TrialSettings):
    """Settings of ``foretail train`` to draw from, and what counts."""

    candidate: list[str] = setting([], "Overrides of foretail train that all trials share.")
    space: dict[str, Dimension] = setting(
        MISSING, "Dimensions that are drawn; a setting predictor.X is drawn for the predictors that have it."
    )
    objectives: list[str] = setting(
        ["recovered_loss", "table_entries"],
        "Objectives of the front: scores on the validation runs, against costs.",
        one_of=(*SEARCH_SCORES, *SEARCH_COSTS),
    )
    budget: dict[str, float] = setting(
        {"comparisons": 16},
        "Largest value of each cost; the best first score within it is trained on all rows and tested.",
    )
    p4_profile: str = setting("v1model", "Profile for table_entries and tcam_bits: v1model, tofino, or a YAML file.")
    sampler: str = setting("nsga2", "Sampler that draws the trials.", one_of=("nsga2", "tpe"))
    population: int = setting(20, "With nsga2, the number of trials of a generation.", at_least=2, at_most=10_000)

    def check(self, where: str) -> None:
        """Raise ForetailError unless a score is weighed against a cost, within known limits."""
        super().check(where)
        if not self.space:
            raise ForetailError("space is empty: name at least one setting to draw")
        for kind, known in (("score", SEARCH_SCORES), ("cost", SEARCH_COSTS)):
            if not set(self.objectives) & set(known):
                raise ForetailError(f"objectives contains no {kind}: add one of {', '.join(known)}")
        for name in self.budget:
            if name not in SEARCH_COSTS:
                raise ForetailError(f"budget.{name} is not a cost: choose from {', '.join(SEARCH_COSTS)}")


@dataclass
class PlaySettings:
    """How a policy is learned by playing episodes of the closed loop."""

    observed: list[str] = setting(MISSING, "Features that the policy observes, of at most 8 bits each.")
    decisions: int = setting(MISSING, "Number of decisions of a round, rounded up.", at_least=1024)
    networks: int = setting(128, "Number of networks that are played side by side.", at_least=1, at_most=4096)
    episode_ns: int = setting(2_000_000, "Time during which flows start in an episode.", at_least=1)
    drain_ns: int = setting(20_000_000, "Time that the flows of an episode have afterwards.", at_least=0)
    discount: float = setting(0.9999, "Discount of rewards per decision.", above=0, at_most=1)
    leaves: int = setting(32, "Most leaves of the tree.", at_least=2, at_most=4096)

    def check(self, where: str) -> None:
        """Raise ForetailError on a feature that is unknown or too wide."""
        for name in self.observed:
            if feature(name).bits > 8:
                raise ForetailError(f"observed holds {name}, which has more than 8 bits: leave it out")
