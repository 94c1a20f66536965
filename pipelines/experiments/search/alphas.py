"""``foretail search experiment=slow_setting``: a tree that predicts every queue's alpha, by its cost J in ns-3.

Every fixed alpha runs in all conditions of the training families, and what switches counted is drawn from all runs.
Trees learn which alpha costs least under which counters; the depth is that of the least loss on families left out in
turn. Then the tree runs in the loop, on seeds of its own, beside fixed alphas. Held-out families are never simulated.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from foretail.configs.schema.experiments.studies import AlphaSearch, SearchConfig
from foretail.configs.schema.policies import DT_PREDICTED
from foretail.core.errors import ForetailError
from foretail.models.drop.alpha_tree import alpha_exponents, fit_alpha_tree
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.registered import ENSEMBLE_FILE, RegisteredModel
from foretail.models.mlflow.tracking import TrackedRun
from foretail.pipelines.comparison.statistics import PairedDifference, mean_interval
from foretail.pipelines.data.simulation import Ns3
from foretail.pipelines.experiments.frame import Here, measure_cases
from foretail.pipelines.experiments.sharing.plan import DEFAULT, Condition, Rule, SharingCase, SharingPlan, measured
from foretail.pipelines.experiments.sharing.race import POINT, Costs
from foretail.pipelines.exporting.predictor import export_to_store
from foretail.pipelines.runs.points import write_files
from foretail.pipelines.runs.result import Cell, Table, plain
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_policies
from foretail.pipelines.tracking.identity import register_trained
from foretail.pipelines.tracking.runs import address, tracked

DT = "dt"
PREDICTED = Rule(DT_PREDICTED, DEFAULT)


@dataclass(frozen=True)
class DepthRow:
    """Trees of one depth."""

    depth: int
    leaves: int  #: of the tree that all families made
    lost_percent: float  #: J over that of each condition's best fixed alpha, on families left out; geometric mean


@dataclass(frozen=True)
class ConditionRow:
    """The tree in the loop in a condition, on the test seeds."""

    family: str
    condition: str
    best_alpha: float  #: the fixed one that cost least there on the seeds that were learned from
    cost: float  #: J under the tree, geometric mean over seeds
    cost_fixed: float  #: under the fixed alpha that costs least over all conditions
    cost_best: float  #: under the best fixed alpha of this condition


@dataclass(frozen=True)
class AlphaSearchResult:
    """A search of a tree of alphas."""

    exponent: int  #: log2 of the fixed alpha that costs least over all conditions
    depths: tuple[DepthRow, ...]
    depth: int  #: that was taken
    ensemble: Ensemble
    rows: tuple[ConditionRow, ...]
    less_fixed: PairedDifference  #: log J less that of the fixed alpha, mean over conditions, paired by seed
    less_best: PairedDifference  #: less that of each condition's best fixed alpha
    simulations: int
    reused: int  #: so many of them were in the store
    files: tuple[Path, ...]  #: all rows, what was learned from, and the model
    tracked: Mapping[str, Any] | None  #: run in MLflow, or None
    registered: RegisteredModel | None  #: its version in the registry

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        return {
            **plain({name: getattr(self, name) for name in ("exponent", "depth")}),
            "depths": plain([asdict(one) for one in self.depths]),
            "rows": plain([asdict(one) for one in self.rows]),
            "less_fixed": plain(asdict(self.less_fixed)),
            "less_best": plain(asdict(self.less_best)),
            "ensemble_sha256": self.ensemble.sha256,
            "files": [path.name for path in self.files],
            "tracked": self.tracked,
            "registered": None if self.registered is None else asdict(self.registered),
        }

    def verdict(self) -> list[str]:
        """Which tree it is, and what it costs against fixed alphas."""
        fixed, best = _percent(self.less_fixed), _percent(self.less_best)
        return [
            f"The tree has depth {self.depth} and {len(self.ensemble.trees[0].leaves)} leaves.",
            f"On the training families it costs {fixed} against alpha {2.0**self.exponent:g} everywhere, and {best} "
            "against the best fixed alpha of each condition.",
        ]

    def tables(self) -> list[Table]:
        """Depths, and the tree in the loop."""
        depths: list[tuple[Cell, ...]] = [(one.depth, one.leaves, one.lost_percent) for one in self.depths]
        rows: list[tuple[Cell, ...]] = [
            (one.family, one.condition, one.best_alpha, one.cost, one.cost_fixed, one.cost_best) for one in self.rows
        ]
        fixed = f"J, alpha {2.0**self.exponent:g}"
        return [
            Table(
                "Trees that predict alpha, on families left out",
                ("depth", "leaves", "J against the best fixed alpha, %"),
                tuple(depths),
                ("as if every choice held for the whole run; depth 0 is one fixed alpha",),
            ),
            Table(
                "The tree in the loop, on the training families",
                ("family", "condition", "best alpha", "J", fixed, "J, best alpha"),
                tuple(rows),
                (
                    f"{self.simulations:,} simulations, {self.reused:,} of them in the store",
                    *(f"file: {path}" for path in self.files),
                ),
            ),
        ]


@dataclass(frozen=True)
class Learnable:
    """What trees learn from: a row per draw, and the conditions."""

    wheres: Sequence[Condition]
    counters: npt.NDArray[np.int64]  #: int64[rows, counters]
    where: npt.NDArray[np.int64]  #: int64[rows], of which condition
    lost: npt.NDArray[np.float64]  #: float64[conditions, exponents], log J over the condition's least

    def fitted(self, settings: AlphaSearch, depth: int, families: Sequence[str]) -> Ensemble:
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

    def loss(self, settings: AlphaSearch, ensemble: Ensemble, family: str) -> list[float]:
        """What a tree loses in each condition of a family, log J, as if every choice held for a whole run."""
        places = {exponent: place for place, exponent in enumerate(settings.exponents)}
        losses = []
        for number, where in enumerate(self.wheres):
            rows = self.counters[self.where == number]
            if where.family == family and len(rows):
                chosen = [places[exponent] for exponent in alpha_exponents(ensemble, rows).tolist()]
                losses.append(float(self.lost[number, chosen].mean()))
        return losses


def alpha_search(config: SearchConfig, run_dir: Path) -> AlphaSearchResult:
    """Measure the fixed alphas, learn a tree, and run it beside them."""
    settings, where = config.alphas[config.size], f"sharing.{config.size}"
    sweep = replace(config.sharing[config.size], experiment="tune", policies={DT: {}})  # no held-out family
    store, plan = Store(config.store_dir), SharingPlan.of(sweep, where, Ns3(config.ns3_prefix))
    families = list(dict.fromkeys(condition.family for condition in plan.scenarios))
    if len(families) < 2 and len(settings.depths) > 1:
        raise ForetailError(
            f"{where}.families has one training family, and a depth is chosen on another: give one in alphas.*.depths"
        )
    fixed = {
        _fixed(exponent): replace(plan.rules[Rule(DT, DEFAULT)], alpha=2.0**exponent) for exponent in settings.exponents
    }
    name = f"alphas {config.size}"
    with tracked(config.tracking, store, asdict(config), name) if config.tracking.enabled else nullcontext() as run:
        learned = _Runs(config, replace(plan, rules=fixed, logged_rows=settings.rows))
        wheres = list(plan.scenarios)
        learned.measure({condition: list(fixed) for condition in wheres}, settings.seeds)
        learnable = _learnable(settings, learned, wheres)
        depths = tuple(_depth(settings, learnable, families, depth) for depth in settings.depths)
        depth = min(depths, key=lambda one: one.lost_percent).depth
        ensemble = learnable.fitted(settings, depth, families)
        exponent = settings.exponents[int(learnable.lost.mean(axis=0).argmin())]
        best = {
            condition: settings.exponents[int(learnable.lost[number].argmin())]
            for number, condition in enumerate(wheres)
        }
        policy = replace(
            compose_policies([DT_PREDICTED], DT_PREDICTED)[DT_PREDICTED],
            alpha_interval_ns=settings.interval_ns,
            library=str(export_to_store(ensemble, store).library),
        )
        looped = _Runs(config, replace(plan, rules={**fixed, PREDICTED: policy}))
        rules = {where: list(dict.fromkeys([PREDICTED, _fixed(exponent), _fixed(best[where])])) for where in wheres}
        looped.measure(rules, settings.test_seeds)
        rows = tuple(_row(looped, settings, where, exponent, best[where]) for where in wheres)
        run_dir.mkdir(parents=True, exist_ok=True)
        ensemble.save(run_dir / ENSEMBLE_FILE)
        frames = {"conditions.csv": pd.DataFrame([asdict(one) for one in rows]), "fixed.csv": learned.frame()}
        files = (*write_files(run_dir, frames), run_dir / ENSEMBLE_FILE)
        registered, where_tracked = None, None
        if run is not None:
            _log_inputs(run, learned, store)
            run.log_metrics({f"depth_{one.depth}/lost_percent": one.lost_percent for one in depths})
            for path in files:
                run.log_file(path)
            run.log_model(ensemble)
            where_tracked = address(run)
            description = (
                f"Tree of Dynamic Thresholds' alphas every {settings.interval_ns} ns, from {len(wheres)} conditions of "
                f"the training families of sharing.{config.size}, seeds {', '.join(map(str, settings.seeds))}."
            )
            tags = {"ensemble_sha256": ensemble.sha256, "features": ",".join(item.name for item in ensemble.features)}
            registered = register_trained(config.tracking, where_tracked, description, tags)
    return AlphaSearchResult(
        exponent,
        depths,
        depth,
        ensemble,
        rows,
        looped.less(wheres, {where: _fixed(exponent) for where in wheres}),
        looped.less(wheres, {where: _fixed(best[where]) for where in wheres}),
        learned.costs.points + looped.costs.points,
        learned.costs.reused + looped.costs.reused,
        files,
        where_tracked,
        registered,
    )


class _Runs:
    """Simulations of a plan, and what they cost."""

    def __init__(self, config: SearchConfig, plan: SharingPlan) -> None:
        self._here, self._plan, self.costs = Here(config.store_dir, config.jobs), plan, Costs()

    def measure(self, rules: Mapping[Condition, Sequence[Rule]], seeds: Sequence[int]) -> None:
        """Simulate what the store lacks."""
        cases = [
            SharingCase(where.family, where.condition, rule.policy, rule.setting, seed)
            for seed in seeds
            for where, of_condition in rules.items()
            for rule in of_condition
        ]
        found = measure_cases(
            "slow_setting",
            POINT,
            cases,
            self._here,
            name=lambda case: f"{case.where}: {case.rule}, seed {case.seed}",
            depends_on=self._plan.depends_on,
            measure=partial(measured, plan=self._plan),
        )
        for case, one in zip(found.cases, found.found, strict=True):
            self.costs.add(case, one)
        self.costs.points += len(cases)
        self.costs.reused += sum(entry.reused for entry in found.entries)

    def less(self, wheres: Sequence[Condition], others: Mapping[Condition, Rule]) -> PairedDifference:
        """log J of the tree less that of another rule in each condition, mean over conditions, paired by seed."""
        logs = {where: (self.costs.logs(where, PREDICTED), self.costs.logs(where, others[where])) for where in wheres}
        seeds = sorted(logs[wheres[0]][0])
        return mean_interval(
            [float(np.mean([mine[seed] - other[seed] for mine, other in logs.values()])) for seed in seeds]
        )

    def frame(self) -> pd.DataFrame:
        """A row per simulation."""
        return pd.DataFrame(
            [
                {**asdict(where), "setting": rule.setting, "seed": seed, "cost": found["cost"]}
                for where, rules in self.costs.runs.items()
                for rule, runs in rules.items()
                for seed, found in runs.items()
            ]
        )


def _fixed(exponent: int) -> Rule:
    return Rule(DT, f"alpha={2.0**exponent:g}")


def _learnable(settings: AlphaSearch, runs: _Runs, wheres: Sequence[Condition]) -> Learnable:
    levels = np.array(
        [
            [runs.costs.level(where, _fixed(exponent), settings.seeds) for exponent in settings.exponents]
            for where in wheres
        ]
    )
    rows = [
        (number, row)
        for number, where in enumerate(wheres)
        for of_rule in runs.costs.runs[where].values()
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


def _depth(settings: AlphaSearch, learnable: Learnable, families: Sequence[str], depth: int) -> DepthRow:
    """Trees of a depth; each family is judged by the tree of all others."""
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
    return DepthRow(depth, leaves, 100 * math.expm1(float(np.mean(losses))))


def _row(runs: _Runs, settings: AlphaSearch, where: Condition, exponent: int, best: int) -> ConditionRow:
    levels = [
        math.exp(runs.costs.level(where, rule, settings.test_seeds))
        for rule in (PREDICTED, _fixed(exponent), _fixed(best))
    ]
    return ConditionRow(where.family, where.condition, 2.0**best, *levels)


def _log_inputs(run: TrackedRun, runs: _Runs, store: Store) -> None:
    """The rows of every condition and seed as inputs of the run."""
    for where, rules in runs.costs.runs.items():
        for seed in next(iter(rules.values())):
            found = [of_rule[seed] for of_rule in rules.values()]
            rows = np.array([row for one in found for row in one["counters"]], np.int64)
            run.log_dataset(
                f"{where}-{seed}",
                hashlib.sha256(rows.tobytes()).hexdigest(),
                found[0]["flows_sha256"],
                str(store.folder),
                len(rows),
                sum(one["drops"] for one in found),
                "train",
            )


def _percent(found: PairedDifference) -> str:
    shown = [f"{100 * math.expm1(value):+.1f}" for value in asdict(found).values() if isinstance(value, float)]
    return f"{shown[0]} %" + (f" [{', '.join(shown[1:3])}]" if len(shown) > 2 else "")
