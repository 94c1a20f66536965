"""Studies and searches: candidates as overrides of ``foretail train``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from foretail.configs.schema.experiments.packets import SharingMap
from foretail.configs.schema.fields import (
    SIZES,
    Experiment,
    experiment_of_size,
    part,
    require_distinct,
    require_seeds,
    setting,
)
from foretail.configs.schema.policies import (
    FIRST_EXPONENT,
    LAST_EXPONENT,
    POLICIES,
    RULE_DEFAULTS,
    RULE_NUMBERS,
    limits,
    require_tunable,
)
from foretail.configs.schema.stage import Stage
from foretail.configs.schema.tracking import Tracking
from foretail.configs.schema.training import Split
from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES


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

    def check(self, where: str) -> None:
        """Raise ForetailError on names that mean nothing here, and on seeds that have two roles."""
        if self.split.name != "by_run":
            raise ForetailError(f"{where}.split is {self.split.name}: a study holds whole runs out, use by_run")
        for name, known in (("conditions", self.conditions), ("candidates", self.candidates)):
            if not known:
                raise ForetailError(f"{where}.{name} is empty: name at least one")
        if not self.train_on:
            raise ForetailError(f"{where}.train_on is empty: name conditions to train on")
        for name, given, known in (
            ("train_on", self.train_on, self.conditions),
            ("closed_loop.conditions", self.closed_loop.conditions, self.conditions),
            ("closed_loop.candidates", self.closed_loop.candidates, self.candidates),
            ("shift.conditions", self.shift.conditions, self.conditions),
            ("shift.candidate", [self.shift.candidate] if self.shift.conditions else [], self.candidates),
            ("label_candidate", [self.label_candidate] if self.labels else [], self.candidates),
            ("budget", self.budget, self.candidates),
        ):
            for item in given:
                if item not in known:
                    raise ForetailError(f"{where}.{name} names {item}, which is not among {', '.join(known)}")
        for name, simulated in (("closed_loop", self.closed_loop.seeds), ("shift", self.shift.seeds)):
            self.split.require_unseen(f"{where}.{name}.seeds and the split", simulated, "simulate other seeds")
        if self.closed_loop.conditions:
            require_seeds(f"{where}.closed_loop.seeds", self.closed_loop.seeds)
            if "lqd" not in self.closed_loop.policies:
                raise ForetailError(f"{where}.closed_loop.policies lacks lqd, to which all are compared: add it")


SEARCH_SCORES = ("asked_recovered_loss", "f1", "average_precision")
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
            raise ForetailError(f"{where}.{name} = {values} is no range: give two numbers, the smaller one first")
        if self.step != 1 and (self.log or name == "floats" or (values[1] - values[0]) % self.step):
            raise ForetailError(
                f"{where}.step = {self.step} is for integers without log whose last is a step: change or leave it out"
            )
        if self.log and values[0] <= 0:
            raise ForetailError(f"{where}.{name} = {values} has no orders of magnitude: log needs a range above 0")


@dataclass
class Search:
    """Settings of ``foretail train`` to draw from, and what counts."""

    candidate: list[str] = setting([], "overrides of foretail train that all trials share")
    space: dict[str, Dimension] = setting(
        MISSING, "what is drawn; a setting predictor.X is drawn for the predictors that have it"
    )
    objectives: list[str] = setting(
        ["asked_recovered_loss", "table_entries"],
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

    def check(self, where: str) -> None:
        """Raise ForetailError unless a score is weighed against a cost, within known limits."""
        if not self.space:
            raise ForetailError(f"{where}.space is empty: name at least one setting to draw")
        for kind, known in (("score", SEARCH_SCORES), ("cost", SEARCH_COSTS)):
            if not set(self.objectives) & set(known):
                raise ForetailError(f"{where}.objectives holds no {kind}: add one of {', '.join(known)}")
        require_distinct(f"{where}.objectives", self.objectives, "name every one once")
        for name in self.budget:
            if name not in SEARCH_COSTS:
                raise ForetailError(f"{where}.budget.{name} is no cost: choose from {', '.join(SEARCH_COSTS)}")


@dataclass
class RuleSearch(Experiment):
    """Sharing rules drawn from ranges, by their cost J in ns-3 under the training families of ``sharing``.

    Every trial runs on the first seed; the best of them run on all.
    """

    ranges: dict[str, list[int]] = setting(
        MISSING,
        "first and last value, equal to fix it: message_left in cells (-1: no packet is kept for that), fill in 255ths "
        "of the buffer, pressure in eighths of octaves, first_rtt_more: so much more pressure in a first round trip, "
        "last_pressure of the packets that are kept, far: cells after which there is far_less pressure",
    )
    score: str = setting(
        "cost",
        "cost: geometric mean of J; regret: mean over conditions of J over the least of against, less 1, at least 0",
        one_of=("cost", "regret"),
    )
    against: dict[str, dict[str, list[float]]] = setting(
        {}, "policies with values of their parameters, as in sharing.policies, over whose least J there is regret"
    )
    conditions: str = setting(
        "first",
        "of each family for a trial; all: in turn, until it cannot beat the best trial any more",
        one_of=("first", "all"),
    )
    first: list[dict[str, int]] = setting([], "rules that are tried first")
    trials: int = setting(MISSING, "rules in total, those of earlier runs included", at_least=1, at_most=100_000)
    finalists: int = setting(4, "best trials that run everywhere", at_least=1, at_most=1000)
    seeds: list[int] = setting(MISSING, "traffic seeds of the finalists, the first that of all trials", at_least=1)
    batch: int = setting(
        4, "rules drawn before any of them is known, so that jobs change nothing", at_least=1, at_most=1024
    )
    seed: int = setting(1, "of the draws", at_least=0, at_most=2**32 - 1)

    def check(self, where: str) -> None:
        """Raise ForetailError on a number that no rule has, or outside its range."""
        super().check(where)
        if (self.score == "regret") != bool(self.against):
            raise ForetailError(
                f"{where}.against = {sorted(self.against)} with score={self.score}: regret needs some, cost none"
            )
        for name, values in self.against.items():
            require_tunable(f"{where}.against", name, values)
        for name, known in RULE_NUMBERS.items():
            given = self.ranges.get(name, [RULE_DEFAULTS[name]] * 2 if name in RULE_DEFAULTS else [])
            if len(given) != 2 or not known[0] <= given[0] <= given[1] <= known[1]:
                raise ForetailError(
                    f"{where}.ranges.{name} = {given}: give two values in order, from {known[0]} to {known[1]}"
                )
        for name in self.ranges:
            if name not in RULE_NUMBERS:
                raise ForetailError(f"{where}.ranges.{name} is unknown: choose from {', '.join(RULE_NUMBERS)}")
        for position, rule in enumerate(self.first):
            for name in {*self.ranges, *rule}:
                low, high = self.ranges.get(name, (1, 0))
                if not low <= rule.get(name, low - 1) <= high:
                    raise ForetailError(
                        f"{where}.first[{position}] needs {name} within ranges.{name}, and nothing else"
                    )


@dataclass
class DropCosts(Experiment):
    """What decisions cost, measured by branches of runs, and trees that learn it, for the policy ``learned``.

    At sampled arrivals a run is forked: a branch accepts, another drops. Their costs J differ by what the drop costs,
    and by chaos. Runs are those of conditions of the training families of ``sharing``.
    """

    conditions: list[str] = setting(
        [], "FAMILY CONDITION of training families, such as loss_based load_60; empty: the first condition of each"
    )
    policies: list[str] = setting(
        MISSING,
        "whose decisions are turned, such as cs or dt_alpha_2, or learned, which asks model; none that pushes out",
    )
    seeds: list[int] = setting(MISSING, "traffic seeds of the labelled runs", at_least=1, at_most=2**30)
    traffic_ns: int = setting(
        MISSING, "labelled runs are cut to so much traffic, because a branch runs to their end", at_least=1
    )
    flips: int = setting(MISSING, "arrivals of a run at which one decision is turned", at_least=1, at_most=100_000)
    held_flips: int = setting(
        MISSING,
        "arrivals of a run from which on a decision is turned for one base RTT, for that port and flow class",
        at_least=0,
        at_most=100_000,
    )
    repeats: int = setting(2, "runs with each decision; one tells nothing of chaos", at_least=1, at_most=100)
    repeat_ns: int = setting(
        100,
        "by so much the link of the port is longer in each repeat than in the one before",
        at_least=1,
        at_most=10**6,
    )
    flips_per_point: int = setting(
        MISSING, "of these so many are simulated by one process: what a killed command repeats", at_least=1
    )
    features: list[str] = setting(MISSING, "of the trees, in columns of a trace")
    trees: int = setting(4, "of the regression", at_least=1, at_most=64)
    depth: int = setting(4, "of each tree", at_least=1, at_most=8)
    learning_rate: float = setting(0.5, "what of a tree counts", above=0, at_most=1)
    fewest_flips: int = setting(20, "in a leaf", at_least=1)
    clip_percent: float = setting(
        5.0, "gains of a run beyond this percentile, at either end, are learned as that", at_least=0, at_most=49
    )
    drop_shares: list[float] = setting(
        MISSING,
        "shares of arrivals that the trees may drop, beside all that they call cheaper to drop",
        above=0,
        at_most=1,
    )
    validation_seeds: list[int] = setting(
        MISSING, "traffic seeds on which J chooses among these, none of seeds", at_least=1, at_most=2**30
    )
    seed: int = setting(1, "of the drawn arrivals and of the trees", at_least=0, at_most=2**31 - 1)

    def check(self, where: str) -> None:
        """Raise ForetailError on policies that decide no arrival, and on seeds that have two roles."""
        super().check(where)
        for name in self.policies:
            policy = POLICIES.get(name.split("_")[0])
            if policy is not None and policy.pushes_out:
                raise ForetailError(f"{where}.policies names {name}, which pushes out: name one that decides arrivals")
        known = {one.name: one for one in FEATURES}
        for name in self.features:
            if name not in known:
                raise ForetailError(
                    f"{where}.features names {name}, which no switch has: choose from {', '.join(known)}"
                )
            if known[name].averaged:
                raise ForetailError(
                    f"{where}.features names {name}, an average over a time that networks differ in: name others"
                )
        for seed in self.validation_seeds:
            if seed in self.seeds:
                raise ForetailError(f"{where}.validation_seeds holds {seed}, a labelled run: simulate other seeds")


@dataclass
class PolicyIteration(DropCosts):
    """Rounds of `DropCosts`: the trees of a round run while the labels of the next one are collected.

    They end when the trees of a round cost no less than those before, on conditions that no label comes from.
    """

    left_out: list[str] = setting(MISSING, "FAMILY CONDITION of training families, none of conditions; judge rounds")
    most_rounds: int = setting(MISSING, "that follow each other at most", at_least=1, at_most=100)
    test_seeds: list[int] = setting(
        MISSING, "traffic seeds on which the best round is judged", at_least=1, at_most=2**30
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on conditions and seeds that have two roles."""
        super().check(where)
        if not self.conditions:
            raise ForetailError(f"{where}.conditions is empty: name them, so that others can be left out")
        for name in self.left_out:
            if name in self.conditions:
                raise ForetailError(f"{where}.left_out names {name}, which is labelled: name another condition")
        for seed in self.test_seeds:
            if seed in (*self.seeds, *self.validation_seeds):
                raise ForetailError(f"{where}.test_seeds holds {seed}, which learns or chooses: judge on other seeds")


@dataclass
class AlphaSearch(Experiment):
    """A tree that predicts alphas, learned from what fixed ones cost under the training families of ``sharing``.

    Every alpha runs in every condition of these families, and the switches' counters are drawn from all runs.
    """

    exponents: list[int] = setting(
        MISSING, "log2 of the alphas that are tried, in rising order", at_least=FIRST_EXPONENT, at_most=LAST_EXPONENT
    )
    interval_ns: int = setting(MISSING, "between two predictions", **limits("alpha_interval_ns"))
    depths: list[int] = setting(
        MISSING,
        "of trees; 0 is one fixed alpha. The one that loses least on families left out in turn is taken",
        at_least=0,
        at_most=8,
    )
    rows: int = setting(512, "drawn from each simulation, by the bytes that came in an interval", at_least=1)
    seeds: list[int] = setting(MISSING, "traffic seeds that are learned from", at_least=1, at_most=2**30)
    test_seeds: list[int] = setting(MISSING, "traffic seeds that judge the tree in the loop", at_least=1, at_most=2**30)

    def check(self, where: str) -> None:
        """Raise ForetailError on exponents that are not in order, and on seeds that learn and judge."""
        super().check(where)
        if self.exponents != sorted(self.exponents):
            raise ForetailError(f"{where}.exponents = {self.exponents} are not in order: sort them")
        for seed in self.test_seeds:
            if seed in self.seeds:
                raise ForetailError(f"{where}.test_seeds holds {seed}, which is learned from: judge on other seeds")


@dataclass
class StudyConfig(Stage):
    """``foretail study``: predictors on held-out runs and conditions, open loop and in ns-3."""

    study: dict[str, Study] = setting(MISSING, "the study by size: full and small")
    size: str = setting("full", "which one", one_of=SIZES)
    jobs: int = setting(2, "simulations at the same time", at_least=1, at_most=1024)
    tracking: Tracking = part(Tracking, "MLflow")

    def check(self, where: str) -> None:
        """Raise ForetailError without a study of the size, or a champion without MLflow."""
        if self.size not in self.study:
            raise ForetailError(
                f"study has no size {self.size}: choose an experiment that has it, such as predictor_study"
            )
        if self.study[self.size].budget and not self.tracking.enabled:
            raise ForetailError(
                f"study.{self.size}.budget makes a champion in MLflow, and tracking is off: turn it on or empty it"
            )


@dataclass
class SearchConfig(Stage):
    """``foretail search``: predictors by scores and costs in a switch; sharing rules, or alphas, by their cost J."""

    search: dict[str, Search] = setting({}, "a search of predictors by size: full and small")
    drop_costs: dict[str, DropCosts] = setting({}, "rules that trees learn from measured costs of drops, by size")
    iterations: dict[str, PolicyIteration] = setting({}, "rounds of drop_costs, each under the rule before, by size")
    model: str | None = setting(
        None, "drop_costs, iterations: as in export; asked by policies of theirs without a library, such as learned"
    )
    rules: dict[str, RuleSearch] = setting({}, "a search of sharing rules by size")
    alphas: dict[str, AlphaSearch] = setting({}, "a tree of predicted alphas by size")
    sharing: dict[str, SharingMap] = setting(
        {}, "rules, drop_costs, iterations, alphas: conditions by size, of which the training families count"
    )
    size: str = setting("full", "which one", one_of=SIZES)
    file: str | None = setting(None, "SQLite file of the trials; null: search.db beside the store")
    name: str | None = setting(
        None, "of the search in that file; null: from everything that decides its trials, so that it can be resumed"
    )
    jobs: int = setting(2, "trials at the same time", at_least=1, at_most=1024)
    tracking: Tracking = part(Tracking, "MLflow")

    def check(self, where: str) -> None:
        """Raise ForetailError without a search of the size."""
        given = {
            name: sizes
            for name, sizes in (
                ("rules", self.rules),
                ("drop_costs", self.drop_costs),
                ("iterations", self.iterations),
                ("alphas", self.alphas),
            )
            if sizes
        }
        if len(given) > 1:
            raise ForetailError(f"{' and '.join(given)} are several searches: choose one experiment")
        if self.model is not None and not (self.drop_costs or self.iterations):
            raise ForetailError(f"model={self.model} is asked while costs of drops are labelled: leave it out here")
        for name, sizes in given.items():
            experiment_of_size(name, sizes, self.size)
            experiment_of_size("sharing", self.sharing, self.size)
        if not given and self.size not in self.search:
            raise ForetailError(
                f"search has no size {self.size}: choose an experiment that has it, such as predictor_search"
            )
