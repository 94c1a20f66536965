"""A tree that predicts every queue's alpha, by its cost J.

Every fixed alpha runs in all conditions of the training families, and what switches counted is drawn from all runs.
Trees learn which alpha costs least under which counters; the depth is that of the least loss on families left out in
turn. Then the tree runs in the loop, on seeds of its own, beside fixed alphas. Held-out families are never simulated.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import SimulatedPointSettings
from foretail.configs.schema.families import Families
from foretail.configs.schema.fields import setting
from foretail.configs.schema.policies import DT_PREDICTED, FIRST_EXPONENT, LAST_EXPONENT, limits
from foretail.core.errors import ForetailError
from foretail.models.drop.thresholds.alpha_tree import alpha_exponents, fit_alpha_tree
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.tracking import TrackedRun
from foretail.pipelines.comparison.statistics import change_text
from foretail.pipelines.experiment.declaration import FunctionExperiment, Learned, Run, Shown
from foretail.pipelines.exporting.predictor import export_to_store
from foretail.pipelines.families.conditions import DEFAULT, Condition, Rule, SharingPlan
from foretail.pipelines.families.costs import Costs, measure_rules
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_policy

DT = "dt"
PREDICTED = Rule(DT_PREDICTED, DEFAULT)


@dataclass
class AlphaSettings(SimulatedPointSettings, Families):
    """A tree that predicts alphas, learned from what fixed ones cost under the training families.

    Every alpha runs in every condition of these families, and the switches' counters are drawn from all runs.
    """

    exponents: list[int] = setting(
        MISSING,
        "Base-2 logarithms of the alphas that are tried, in rising order.",
        at_least=FIRST_EXPONENT,
        at_most=LAST_EXPONENT,
    )
    interval_ns: int = setting(MISSING, "Time between two predictions.", **limits("alpha_interval_ns"))
    depths: list[int] = setting(
        MISSING,
        "Depths of trees, of which that with the least loss on families left out in turn is taken; 0 is one "
        "fixed alpha.",
        at_least=0,
        at_most=8,
    )
    rows: int = setting(
        512, "Number of rows drawn from each simulation, weighted by the bytes that came in an interval.", at_least=1
    )
    seeds: list[int] = setting(MISSING, "Traffic seeds to learn from.", at_least=1, at_most=2**30)
    test_seeds: list[int] = setting(
        MISSING, "Traffic seeds that judge the tree in the loop.", at_least=1, at_most=2**30
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on exponents that are not in order, and on seeds that learn and judge."""
        super().check(where)
        if len(self.training()) < 2 and len(self.depths) > 1:
            raise ForetailError(
                "families has one training family, and a depth is chosen on another: give one number in depths"
            )
        if self.exponents != sorted(self.exponents):
            raise ForetailError(f"exponents = {self.exponents} are not in order: sort them")
        for seed in self.test_seeds:
            if seed in self.seeds:
                raise ForetailError(f"test_seeds holds {seed}, which is learned from: judge on other seeds")


@dataclass(frozen=True)
class Learnable:
    """What trees learn from: a row per draw, and the conditions."""

    wheres: Sequence[Condition]
    counters: npt.NDArray[np.int64]  #: int64[rows, counters]
    where: npt.NDArray[np.int64]  #: int64[rows], of which condition
    lost: npt.NDArray[np.float64]  #: float64[conditions, exponents], log J over the condition's least

    def fitted(self, settings: AlphaSettings, depth: int, families: Sequence[str]) -> Ensemble:
        """The tree of some families, all their conditions of equal weight."""
        among = np.array([where.family in families for where in self.wheres])
        rows = among[self.where]
        weights = 1 / np.bincount(self.where, minlength=len(self.wheres)).clip(1)
        return fit_alpha_tree(
            self.counters[rows],
            self.lost[self.where[rows]],
            weights[self.where[rows]],
            settings.exponents,
            depth,
            settings.interval_ns,
        )

    def loss(self, settings: AlphaSettings, ensemble: Ensemble, family: str) -> list[float]:
        """What a tree loses in each condition of a family, log J, as if every choice held for a whole run."""
        places = {exponent: place for place, exponent in enumerate(settings.exponents)}
        losses = []
        for number, where in enumerate(self.wheres):
            rows = self.counters[self.where == number]
            if where.family == family and len(rows):
                chosen = [places[exponent] for exponent in alpha_exponents(ensemble, rows).tolist()]
                losses.append(float(self.lost[number, chosen].mean()))
        return losses


def show(settings: AlphaSettings, run: Run) -> Shown:
    """Measure the fixed alphas, learn a tree, and run it beside them."""
    plan = SharingPlan.of(settings, settings.shared, settings.training(), {DT: {}})
    families, conditions = list(settings.training()), list(plan.scenarios)
    usual = plan.rules[Rule(DT, DEFAULT)]
    fixed = {_fixed(exponent): replace(usual, alpha=2.0**exponent) for exponent in settings.exponents}
    costs = Costs()
    every = {where: list(fixed) for where in conditions}
    with_counters = replace(plan, rules=fixed, logged_rows=settings.rows)
    measure_rules(settings.experiment, settings, with_counters, costs, every, settings.seeds)
    learnable = _learnable(settings, costs, conditions)
    depths = pd.DataFrame([_depth(settings, learnable, families, depth) for depth in settings.depths])
    depth = int(depths.sort_values("lost_percent", kind="stable")["depth"].iloc[0])
    ensemble = learnable.fitted(settings, depth, families)
    exponent = settings.exponents[int(learnable.lost.mean(axis=0).argmin())]
    best = {where: settings.exponents[int(learnable.lost[number].argmin())] for number, where in enumerate(conditions)}
    predicted = replace(compose_policy(DT_PREDICTED, DT_PREDICTED), alpha_interval_ns=settings.interval_ns)
    policy = predicted.ask(export_to_store(ensemble, run.store).library)
    looped = Costs()
    beside = {where: list(dict.fromkeys([PREDICTED, _fixed(exponent), _fixed(best[where])])) for where in conditions}
    in_loop = replace(plan, rules={**fixed, PREDICTED: policy})
    measure_rules(settings.experiment, settings, in_loop, looped, beside, settings.test_seeds)
    rows = pd.DataFrame([_row(looped, settings, where, exponent, best[where]) for where in conditions])
    less_fixed = looped.family_difference(conditions, PREDICTED, _fixed(exponent))
    less_best = looped.difference_to(conditions, PREDICTED, {where: _fixed(best[where]) for where in conditions})
    learned = Learned(
        ensemble,
        f"Tree of Dynamic Thresholds' alphas every {settings.interval_ns} ns, from {len(conditions)} conditions of the "
        f"training families, size {settings.size}, seeds {', '.join(map(str, settings.seeds))}.",
        {f"depth_{one}/lost_percent": lost for one, lost in zip(depths["depth"], depths["lost_percent"], strict=True)},
        lambda logged: _log_inputs(logged, costs, run.store),
    )
    return Shown(
        rows,
        _tables(depths, rows, exponent, [costs, looped]),
        frames={"conditions.csv": rows, "fixed.csv": _fixed_frame(costs)},
        verdict=(
            f"The tree has depth {depth} and {len(ensemble.trees[0].leaves)} leaves.",
            f"On the training families it costs {change_text(less_fixed)} against alpha {2.0**exponent:g} everywhere, "
            f"and {change_text(less_best)} against the best fixed alpha of each condition.",
        ),
        details={
            "exponent": exponent,
            "depth": depth,
            "depths": depths.to_dict("records"),
            "less_fixed": asdict(less_fixed),
            "less_best": asdict(less_best),
        },
        learned=learned,
    )


ALPHAS = FunctionExperiment(AlphaSettings, show)


def _tables(depths: pd.DataFrame, rows: pd.DataFrame, exponent: int, measured: Sequence[Costs]) -> list[Table]:
    """Depths, and the tree in the loop."""
    together = Costs(points=sum(one.points for one in measured), reused=sum(one.reused for one in measured))
    return [
        Table.of_frame(
            "Trees that predict alpha, on families left out",
            depths,
            {"depth": "depth", "leaves": "leaves", "lost_percent": "J against the best fixed alpha, %"},
            "as if every choice held for the whole run; depth 0 is one fixed alpha",
        ),
        Table.of_frame(
            "The tree in the loop, on the training families",
            rows,
            {
                "family": "family",
                "condition": "condition",
                "best_alpha": "best alpha",
                "cost": "J",
                "cost_fixed": f"J, alpha {2.0**exponent:g}",
                "cost_best": "J, best alpha",
            },
            together.note,
        ),
    ]


def _fixed_frame(costs: Costs) -> pd.DataFrame:
    """A row per simulation."""
    return pd.DataFrame(
        [
            {**asdict(where), "setting": rule.setting, "seed": seed, "cost": simulated["cost"]}
            for where, rules in costs.runs.items()
            for rule, runs in rules.items()
            for seed, simulated in runs.items()
        ]
    )


def _fixed(exponent: int) -> Rule:
    return Rule(DT, f"alpha={2.0**exponent:g}")


def _learnable(settings: AlphaSettings, costs: Costs, wheres: Sequence[Condition]) -> Learnable:
    levels = np.array(
        [[costs.level(where, _fixed(exponent), settings.seeds) for exponent in settings.exponents] for where in wheres]
    )
    rows = [
        (number, row)
        for number, where in enumerate(wheres)
        for of_rule in costs.runs[where].values()
        for found in of_rule.values()
        for row in found["counters"]
    ]
    if not rows:
        raise ForetailError("no data came to any switch, so nothing can be learned of alphas: raise the load")
    numbers, counters = zip(*rows, strict=True)
    return Learnable(
        wheres,
        np.array(counters, np.int64),
        np.array(numbers, np.int64),
        levels - levels.min(axis=1, keepdims=True),
    )


def _depth(settings: AlphaSettings, learnable: Learnable, families: Sequence[str], depth: int) -> dict[str, Any]:
    """Trees of a depth: the leaves of that of all families, and what is lost when each family is left out.

    Each family is judged by the tree of all others: J over that of each condition's best fixed alpha, geometric mean.
    """
    losses = [
        loss
        for family in families
        for loss in learnable.loss(
            settings,
            learnable.fitted(settings, depth, [one for one in families if one != family] or [family]),
            family,
        )
    ]
    leaves = len(learnable.fitted(settings, depth, families).trees[0].leaves)
    return {"depth": depth, "leaves": leaves, "lost_percent": 100 * math.expm1(float(np.mean(losses)))}


def _row(costs: Costs, settings: AlphaSettings, where: Condition, exponent: int, best: int) -> dict[str, Any]:
    """A condition: J on the test seeds under the tree, the fixed alpha that is best over all, and the best one here."""
    rules = {"cost": PREDICTED, "cost_fixed": _fixed(exponent), "cost_best": _fixed(best)}
    levels = {name: math.exp(costs.level(where, rule, settings.test_seeds)) for name, rule in rules.items()}
    return {**asdict(where), "best_alpha": 2.0**best, **levels}


def _log_inputs(run: TrackedRun, costs: Costs, store: Store) -> None:
    """The rows of every condition and seed as inputs of the run."""
    for where, rules in costs.runs.items():
        for seed in next(iter(rules.values())):
            of_seed = [of_rule[seed] for of_rule in rules.values()]
            rows = np.array([row for one in of_seed for row in one["counters"]], np.int64)
            run.log_dataset(
                f"{where}-{seed}",
                hashlib.sha256(rows.tobytes()).hexdigest(),
                of_seed[0]["flows_sha256"],
                str(store.folder),
                len(rows),
                sum(one["drops"] for one in of_seed),
                "train",
            )
