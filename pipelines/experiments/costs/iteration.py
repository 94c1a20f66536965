"""``foretail search experiment=policy_iteration``: labels under a rule, a rule from them, labels under that, and so on.

Round 1 turns decisions of the given policies, every later round those of the trees of the round before. Conditions of
training families that no label comes from judge the rounds. All that is simulated is a point of the store, so a round
that was stopped goes on where it was. No held-out family is simulated here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from foretail.configs.schema.experiments.studies import PolicyIteration, SearchConfig
from foretail.configs.schema.policies import Policy
from foretail.export.p4.planning.profile import load_profile
from foretail.export.switch_cost import SwitchCost, switch_cost
from foretail.features.dataset.manifest import traffic_sha256_of
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.registered import ENSEMBLE_FILE, RegisteredModel
from foretail.models.mlflow.tracking import TrackedRun
from foretail.pipelines.comparison.statistics import PairedDifference, mean_interval
from foretail.pipelines.experiments.costs.experiment import SWITCH_PORTS
from foretail.pipelines.experiments.costs.learning import (
    Candidate,
    Labelled,
    Learning,
    conditions_of,
    labelled_policies,
)
from foretail.pipelines.experiments.search.budget import Budget
from foretail.pipelines.experiments.search.rules import LEARNED
from foretail.pipelines.experiments.sharing.plan import Condition, Rule
from foretail.pipelines.experiments.sharing.race import CS
from foretail.pipelines.exporting.predictor import export_to_store
from foretail.pipelines.runs.points import write_files
from foretail.pipelines.runs.result import Cell, Table, plain
from foretail.pipelines.settings.compose import compose_policies
from foretail.pipelines.tracking.identity import register_trained
from foretail.pipelines.tracking.runs import address, tracked


@dataclass(frozen=True)
class Round:
    """Labels under a rule, and the trees that learned them."""

    number: int  #: from 1
    under: str  #: whose decisions were turned
    flips: int  #: labels
    spread: float  #: their standard deviation, in log J
    chosen: Candidate  #: the trees with the best limit, in the labelled conditions on the validation seeds
    cost: float  #: J of it in the conditions left out, on the same seeds
    sharing_cost: float  #: of Complete Sharing there
    budget: Budget  #: of this round and all before it
    ensemble: Ensemble

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        found = {name: getattr(self, name) for name in ("number", "under", "flips", "spread", "cost", "sharing_cost")}
        return {
            **plain(found),
            "chosen": plain(asdict(self.chosen)),
            "budget": asdict(self.budget),
            "ensemble_sha256": self.ensemble.sha256,
        }


@dataclass(frozen=True)
class TestedRow:
    """The best round in a condition, on the test seeds."""

    family: str
    condition: str
    left_out: bool  #: no label came from it
    cost: float  #: J, geometric mean over seeds
    sharing_cost: float  #: of Complete Sharing


@dataclass(frozen=True)
class IterationResult:
    """A policy iteration."""

    rounds: tuple[Round, ...]
    best: Round  #: the least cost in the conditions left out
    rows: tuple[TestedRow, ...]  #: the best on the test seeds
    less_sharing: PairedDifference  #: log J of it less that of Complete Sharing, conditions left out, paired by seed
    switch: SwitchCost  #: of the best in a switch of 32 ports
    budget: Budget  #: of all rounds; the test is not part of it
    points: int  #: of branches
    reused: int  #: so many of them were in the store
    files: tuple[Path, ...]
    tracked: Mapping[str, Any] | None  #: run in MLflow, or None
    registered: RegisteredModel | None  #: its version in the registry

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        return {
            "rounds": [one.document() for one in self.rounds],
            "best": self.best.number,
            "rows": plain([asdict(one) for one in self.rows]),
            "less_sharing": plain(asdict(self.less_sharing)),
            "ensemble_sha256": self.best.ensemble.sha256,
            "switch": asdict(self.switch),
            "budget": asdict(self.budget),
            "points": self.points,
            "reused": self.reused,
            "files": [path.name for path in self.files],
            "tracked": self.tracked,
            "registered": None if self.registered is None else asdict(self.registered),
        }

    def verdict(self) -> list[str]:
        """Which round is best, and what it is worth where nothing was learned or chosen."""
        best, fell = self.best, len(self.rounds) < 2 or self.rounds[-1].cost < self.rounds[-2].cost
        ended = "the cost still fell" if fell else "the cost fell no more"
        return [
            f"Round {best.number} of {len(self.rounds)} is the best ({ended}): J {best.cost:.3g} in the conditions "
            f"left out, Complete Sharing {best.sharing_cost:.3g}.",
            f"On the test seeds it costs {_percent(self.less_sharing.mean):+.3g} % there against Complete Sharing.",
        ]

    def tables(self) -> list[Table]:
        """The rounds, and the test."""
        return [
            Table(
                "Rounds of policy iteration",
                (
                    "round",
                    "labels under",
                    "labels",
                    "spread",
                    "drop if it gains more than",
                    "arrivals dropped, %",
                    "J, labelled",
                    "J, left out",
                    "J of sharing all, left out",
                    "simulated s",
                ),
                tuple(_cells(one) for one in self.rounds),
                (
                    f"{self.points:,} points of branches, {self.reused:,} of them in the store",
                    self.budget.sentence(),
                    "spread: standard deviation of labels, log J; simulated s: of this round and all before it",
                ),
            ),
            Table(
                f"Round {self.best.number} on the test seeds",
                ("family", "condition", "left out", "J", "J of sharing all"),
                tuple(
                    (one.family, one.condition, "yes" if one.left_out else "no", one.cost, one.sharing_cost)
                    for one in self.rows
                ),
                (
                    f"its trees: {self.switch.table_entries} P4 table entries, {self.switch.tcam_bits} TCAM bits, "
                    f"{self.switch.feature_bits} bits of registers",
                    *(f"file: {path}" for path in self.files),
                ),
            ),
        ]


def policy_iteration(config: SearchConfig, run_dir: Path) -> IterationResult:
    """Label, learn and judge until the cost in the conditions left out falls no more; then test the best round."""
    settings, where = config.iterations[config.size], f"iterations.{config.size}"
    learning = Learning.of(config, settings, where)
    left_out = conditions_of(settings.left_out, learning.plan, f"{where}.left_out")
    policies = labelled_policies(config, settings, where, learning.store)
    run = tracked(config.tracking, learning.store, asdict(config), f"policy iteration {config.size}")
    with run if config.tracking.enabled else nullcontext() as logged:
        rounds: list[Round] = []
        all_labels: list[Labelled] = []
        while len(rounds) < settings.most_rounds and not _ended(rounds):
            under = ", ".join(policies) if not rounds else f"{LEARNED}, round {len(rounds)}"
            all_labels.append(learning.labelled(policies))
            rounds.append(_round(learning, left_out, under, all_labels))
            policies = {LEARNED: _asking(rounds[-1].ensemble, learning)}
            if logged is not None:
                _log_round(logged, rounds[-1], all_labels[-1])
        best = min(rounds, key=lambda one: one.cost)
        rows, less_sharing = _tested(settings, learning, left_out, best)
        run_dir.mkdir(parents=True, exist_ok=True)
        best.ensemble.save(run_dir / ENSEMBLE_FILE)
        of_rounds = tuple(run_dir / f"round_{one.number}.json" for one in rounds)
        for path, one in zip(of_rounds, rounds, strict=True):
            one.ensemble.save(path)
        labelled = pd.concat(
            [one.frame.assign(round=number) for number, one in enumerate(all_labels, 1)], ignore_index=True
        )
        frames = {"drop_costs.csv": labelled, "test.csv": pd.DataFrame([asdict(row) for row in rows])}
        files = (*write_files(run_dir, frames), run_dir / ENSEMBLE_FILE, *of_rounds)
        where_tracked, registered = None, None
        if logged is not None:
            where_tracked = address(logged)
            registered = _log(config, settings, logged, learning, best, all_labels, files)
    return IterationResult(
        tuple(rounds),
        best,
        rows,
        less_sharing,
        switch_cost(best.ensemble, SWITCH_PORTS, load_profile("v1model")),
        rounds[-1].budget,
        sum(one.points for one in all_labels),
        sum(one.reused for one in all_labels),
        files,
        where_tracked,
        registered,
    )


def _ended(rounds: Sequence[Round]) -> bool:
    """Whether trees of a round cost no less than those before."""
    return any(later.cost >= earlier.cost for earlier, later in pairwise(rounds))


def _round(learning: Learning, left_out: Sequence[Condition], under: str, all_labels: Sequence[Labelled]) -> Round:
    """Learn from the newest labels, choose a limit, and judge it in the conditions left out."""
    number, labelled = len(all_labels), all_labels[-1].frame
    candidates, ensemble = learning.candidates(learning.trees(labelled), labelled, f"round {number}, ")
    rule = _rule(number)
    levels = learning.simulations.levels({rule: ensemble, CS: None}, left_out, learning.settings.validation_seeds)
    return Round(
        number,
        under,
        len(labelled),
        float(labelled["drop_cost"].std(ddof=1)),
        candidates[0],
        math.exp(levels[rule]),
        math.exp(levels[CS]),
        sum((one.budget for one in all_labels), learning.simulations.budget),
        ensemble,
    )


def _rule(number: int) -> Rule:
    return Rule(LEARNED, f"round {number}")


def _asking(ensemble: Ensemble, learning: Learning) -> Policy:
    """The policy that asks the trees of a round."""
    policy = compose_policies([LEARNED], LEARNED)[LEARNED]
    return replace(policy, library=str(export_to_store(ensemble, learning.store).library))


def _tested(
    settings: PolicyIteration, learning: Learning, left_out: Sequence[Condition], best: Round
) -> tuple[tuple[TestedRow, ...], PairedDifference]:
    """The best round beside Complete Sharing on the test seeds."""
    simulations, rule = learning.simulations, _rule(best.number)
    wheres = [*learning.wheres, *left_out]
    simulations.levels({rule: best.ensemble, CS: None}, wheres, settings.test_seeds)

    def cost(where: Condition, of: Rule) -> float:
        return math.exp(simulations.costs.level(where, of, settings.test_seeds))

    rows = tuple(
        TestedRow(where.family, where.condition, where in left_out, cost(where, rule), cost(where, CS))
        for where in wheres
    )
    less = [
        float(
            np.mean(
                [
                    simulations.costs.logs(where, rule)[seed] - simulations.costs.logs(where, CS)[seed]
                    for where in left_out
                ]
            )
        )
        for seed in settings.test_seeds
    ]
    return rows, mean_interval(less)


def _log_round(logged: TrackedRun, one: Round, labels: Labelled) -> None:
    """A run inside the search's for each round, with the labels that it was given."""
    inner = logged.log_nested(
        f"round {one.number}",
        {"under": one.under, "ensemble_sha256": one.ensemble.sha256},
        {
            "validation/cost": one.chosen.cost,
            "left_out/cost": one.cost,
            "left_out/cost_of_sharing": one.sharing_cost,
            "budget/traffic_ns": one.budget.traffic_ns,
        },
    )
    labels.log(inner)


def _log(
    config: SearchConfig,
    settings: PolicyIteration,
    logged: TrackedRun,
    learning: Learning,
    best: Round,
    all_labels: Sequence[Labelled],
    files: Sequence[Path],
) -> RegisteredModel | None:
    """Log what was simulated, the figures and the model, and register it."""
    for labels in all_labels[: best.number]:  # later rounds had no part in it
        labels.log(logged)
    for key in (*learning.wheres, *(one for one in learning.plan.scenarios if str(one) in settings.left_out)):
        for seed in settings.validation_seeds:  # there are no rows: what was simulated is the traffic
            traffic = traffic_sha256_of(plain(asdict(learning.plan.scenarios[key])), seed)
            logged.log_dataset(f"{key}-{seed}", traffic, traffic, "simulated in ns-3", 0, 0, "validation")
    logged.log_metrics({"left_out/cost": best.cost, "left_out/cost_of_sharing": best.sharing_cost})
    for path in files:
        logged.log_file(path)
    logged.log_model(best.ensemble)
    description = (
        f"Policy iteration for policy learned: round {best.number}, from labels under {best.under}, seeds "
        f"{', '.join(map(str, settings.seeds))}; J {best.cost:.3g} in the conditions left out."
    )
    tags = {
        "ensemble_sha256": best.ensemble.sha256,
        "features": ",".join(item.name for item in best.ensemble.features),
    }
    return register_trained(config.tracking, address(logged), description, tags)


def _cells(one: Round) -> tuple[Cell, ...]:
    return (
        one.number,
        one.under,
        one.flips,
        one.spread,
        one.chosen.drops_above,
        100 * (one.chosen.dropped_share or 0.0),
        one.chosen.cost,
        one.cost,
        one.sharing_cost,
        one.budget.traffic_ns / 1e9,
    )


def _percent(difference: float | None) -> float:
    """A difference of logarithms as a change."""
    return math.nan if difference is None else 100 * math.expm1(difference)
