"""Labels under a rule, a rule from them, labels under that, and so on.

Round 1 turns decisions of the given policies, every later round those of the trees of the round before. Conditions of
training families that no label comes from judge the rounds. All that is simulated is a point of the store, so a round
that was stopped goes on where it was. No held-out family is simulated here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import pandas as pd

from foretail.configs.schema.policies import Policy
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.tracking import TrackedRun
from foretail.pipelines.comparison.statistics import PairedDifference, change_text
from foretail.pipelines.experiment.declaration import FunctionExperiment, Learned, Run, Shown
from foretail.pipelines.exporting.predictor import export_to_store
from foretail.pipelines.families.conditions import Condition, Rule
from foretail.pipelines.families.costs import CS
from foretail.pipelines.runs.result import Cell, Table, plain
from foretail.pipelines.settings.compose import compose_policy
from foretail.pipelines.settings.rules import LEARNED
from foretail_studies.costs.learning import Candidate, Labelled, Learning, conditions_of, labelled_policies
from foretail_studies.costs.settings import IterationSettings
from foretail_studies.search.budget import Budget, cost_in_switch, log_traffic


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
        columns = {name: getattr(self, name) for name in ("number", "under", "flips", "spread", "cost", "sharing_cost")}
        return {
            **plain(columns),
            "chosen": plain(asdict(self.chosen)),
            "budget": asdict(self.budget),
            "ensemble_sha256": self.ensemble.sha256,
        }


def show(settings: IterationSettings, run: Run) -> Shown:
    """Label, learn and judge until the cost in the conditions left out falls no more; then test the best round."""
    learning = Learning.of(settings, run.store)
    left_out = conditions_of(settings.left_out, learning.plan, "left_out")
    policies = labelled_policies(settings, run.store)
    rounds: list[Round] = []
    all_labels: list[Labelled] = []
    while len(rounds) < settings.most_rounds and not _ended(rounds):
        under = ", ".join(policies) if not rounds else f"{LEARNED}, round {len(rounds)}"
        all_labels.append(learning.labelled(policies))
        rounds.append(_round(learning, left_out, under, all_labels))
        policies = {LEARNED: _asking(rounds[-1].ensemble, learning)}
        if run.logged is not None:
            _log_round(run.logged, rounds[-1], all_labels[-1])
    best = min(rounds, key=lambda one: one.cost)
    rows, less_sharing = _tested(settings, learning, left_out, best)
    run.folder.mkdir(parents=True, exist_ok=True)
    of_rounds = [run.folder / f"round_{one.number}.json" for one in rounds]
    for path, one in zip(of_rounds, rounds, strict=True):
        one.ensemble.save(path)
    labelled = [one.frame.assign(round=number) for number, one in enumerate(all_labels, 1)]
    switch, in_switch = cost_in_switch(best.ensemble, "its trees")
    points, reused = (sum(getattr(one, name) for one in all_labels) for name in ("points", "reused"))
    ended = "the cost still fell" if not _ended(rounds) else "the cost fell no more"
    return Shown(
        rows,
        _tables(rounds, best, rows, in_switch),
        frames={"drop_costs.csv": pd.concat(labelled, ignore_index=True), "test.csv": rows},
        files=of_rounds,
        notes=(f"{points:,} points of branches, {reused:,} of them in the store", rounds[-1].budget.sentence()),
        verdict=(
            f"Round {best.number} of {len(rounds)} is the best ({ended}): J {best.cost:.3g} in the conditions left "
            f"out, Complete Sharing {best.sharing_cost:.3g}.",
            f"On the test seeds it costs {change_text(less_sharing)} there against Complete Sharing.",
        ),
        details={
            "rounds": [one.document() for one in rounds],
            "best": best.number,
            "less_sharing": asdict(less_sharing),
            "switch": asdict(switch),
            "budget": asdict(rounds[-1].budget),
            "points": points,
            "reused": reused,
        },
        learned=Learned(
            best.ensemble,
            f"Policy iteration for policy learned: round {best.number}, from labels under {best.under}, seeds "
            f"{', '.join(map(str, settings.seeds))}; J {best.cost:.3g} in the conditions left out.",
            {"left_out/cost": best.cost, "left_out/cost_of_sharing": best.sharing_cost},
            lambda logged: _log(logged, settings, learning, all_labels[: best.number]),
        ),
    )


POLICY_ITERATION = FunctionExperiment(IterationSettings, show)


def _tables(rounds: Sequence[Round], best: Round, rows: pd.DataFrame, in_switch: str) -> list[Table]:
    """The rounds, and the test."""
    columns = {"family": "family", "condition": "condition", "left_out": "left out", "cost": "J"}
    columns |= {"sharing_cost": "J of sharing all"}
    tested = rows.assign(left_out=rows["left_out"].map({True: "yes", False: "no"}))
    return [
        Table.of_rows(
            "Rounds of policy iteration",
            map(_cells, rounds),
            "spread: standard deviation of labels, log J; simulated s: of this round and all before it",
        ),
        Table.of_frame(f"Round {best.number} on the test seeds", tested, columns, in_switch),
    ]


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
    return compose_policy(LEARNED, LEARNED).ask(export_to_store(ensemble, learning.store).library)


def _tested(
    settings: IterationSettings, learning: Learning, left_out: Sequence[Condition], best: Round
) -> tuple[pd.DataFrame, PairedDifference]:
    """The best round beside Complete Sharing on the test seeds: J in each condition, geometric means over seeds."""
    simulations, rule = learning.simulations, _rule(best.number)
    conditions = [*learning.wheres, *left_out]
    simulations.levels({rule: best.ensemble, CS: None}, conditions, settings.test_seeds)

    def cost(where: Condition, of: Rule) -> float:
        return math.exp(simulations.costs.level(where, of, settings.test_seeds))

    rows = [
        {
            **asdict(where),
            "left_out": where in left_out,
            "cost": cost(where, rule),
            "sharing_cost": cost(where, CS),
        }
        for where in conditions
    ]
    return pd.DataFrame(rows), simulations.costs.family_difference(left_out, rule, CS)


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


def _log(logged: TrackedRun, settings: IterationSettings, learning: Learning, all_labels: Sequence[Labelled]) -> None:
    """Log the labels of all rounds up to the best, and the traffic that chose: later rounds had no part in it."""
    for labels in all_labels:
        labels.log(logged)
    chose = [*learning.wheres, *(one for one in learning.plan.scenarios if str(one) in settings.left_out)]
    scenarios = {str(where): learning.plan.scenarios[where] for where in chose}
    log_traffic(logged, scenarios, settings.validation_seeds, "validation")


def _cells(one: Round) -> dict[str, Cell]:
    return {
        "round": one.number,
        "labels under": one.under,
        "labels": one.flips,
        "spread": one.spread,
        "drop if it gains more than": one.chosen.drops_above,
        "arrivals dropped, %": 100 * (one.chosen.dropped_share or 0.0),
        "J, labelled": one.chosen.cost,
        "J, left out": one.cost,
        "J of sharing all, left out": one.sharing_cost,
        "simulated s": one.budget.traffic_ns / 1e9,
    }
