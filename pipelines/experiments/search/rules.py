"""``foretail search experiment=sharing_rule``: the numbers of a sharing rule, by its cost J or its regret in ns-3.

Every trial is simulated on one seed that all trials share: in the first condition of each training family, or in all of
them, one after the other, until it cannot be the best any more. The best of them run in all conditions of the training
families, on more seeds. Held-out families are never simulated here.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import partial
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from optuna.distributions import IntDistribution

from foretail.configs.schema.experiments.studies import RuleSearch, SearchConfig
from foretail.configs.schema.policies import RULE_DEFAULTS
from foretail.core.errors import ForetailError
from foretail.export.p4.planning.profile import load_profile
from foretail.export.switch_cost import SwitchCost, switch_cost
from foretail.features.dataset.manifest import traffic_sha256_of
from foretail.models.drop.sharing_rule import HIGHEST, SharingRule
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.registered import ENSEMBLE_FILE, RegisteredModel
from foretail.pipelines.comparison.statistics import PairedDifference
from foretail.pipelines.data.simulation import Ns3
from foretail.pipelines.experiments.frame import Here, measure_cases
from foretail.pipelines.experiments.search.budget import Budget
from foretail.pipelines.experiments.search.trials import Trial, Trials, open_trials
from foretail.pipelines.experiments.sharing.plan import Condition, Rule, SharingCase, SharingPlan, measured
from foretail.pipelines.experiments.sharing.race import CS, POINT, Costs
from foretail.pipelines.exporting.predictor import export_to_store
from foretail.pipelines.runs.points import write_files
from foretail.pipelines.runs.result import Cell, Table, plain
from foretail.pipelines.runs.store import Key, Store, canonical_json
from foretail.pipelines.settings.compose import compose_policies
from foretail.pipelines.tracking.identity import register_trained
from foretail.pipelines.tracking.runs import address, tracked

LEARNED = "learned"
COST, REGRET = "cost", "regret"
LOSSES = "losses"
"""What a trial lost in each condition that it was simulated in: log J, or regret."""


@dataclass(frozen=True)
class Finalist:
    """A rule in all conditions of the training families."""

    trial: int  #: its number
    rule: SharingRule
    cost: float  #: J, geometric mean over conditions and seeds
    regret: float | None  #: over the policies of the search, mean over conditions; None in a search by cost
    less_first: PairedDifference  #: log J less that of the first finalist, mean over conditions, paired by seed


@dataclass(frozen=True)
class RuleSearchResult:
    """A search of sharing rules."""

    name: str  #: under which the trials are kept
    score: str  #: by which they were judged
    file: Path  #: where the trials are kept
    trials: tuple[Trial, ...]  #: all of them, in order
    finalists: tuple[Finalist, ...]  #: the best first
    ensemble: Ensemble  #: the best of them as a tree
    switch: SwitchCost  #: of the tree in a switch of 32 ports
    simulations: int  #: of the trials and finalists of this command
    reused: int  #: so many of them were in the store
    budget: Budget  #: of all trials, those of earlier commands too, and of the finalists
    files: tuple[Path, ...]  #: all trials, and the model
    tracked: Mapping[str, Any] | None  #: run in MLflow, or None
    registered: RegisteredModel | None  #: its version in the registry

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        return {
            "name": self.name,
            "score": self.score,
            "file": self.file,
            "trials": plain(_frame(self.trials, self.score).to_dict("records")),
            "finalists": plain([asdict(one) for one in self.finalists]),
            "ensemble_sha256": self.ensemble.sha256,
            "switch": asdict(self.switch),
            "budget": asdict(self.budget),
            "files": [path.name for path in self.files],
            "tracked": self.tracked,
            "registered": None if self.registered is None else asdict(self.registered),
        }

    def verdict(self) -> list[str]:
        """The best rule."""
        best = self.finalists[0]
        rule = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in asdict(best.rule).items())
        return [
            f"Trial {best.trial} is the best of {len(self.trials)} rules on the training families: {rule}; "
            f"J {best.cost:.3g}{'' if best.regret is None else f', mean regret {100 * best.regret:.3g} %'}."
        ]

    def tables(self) -> list[Table]:
        """The finalists."""
        rows: list[tuple[Cell, ...]] = [
            (
                one.trial,
                *astuple(one.rule),
                one.cost,
                *([] if one.regret is None else [100 * one.regret]),
                *map(_percent, astuple(one.less_first)[:3]),
            )
            for one in self.finalists
        ]
        regret = () if self.score == COST else ("mean regret, %",)
        names = [name.replace("_", " ") for name in asdict(self.finalists[0].rule)]
        return [
            Table(
                "Sharing rules in all conditions of the training families",
                ("trial", *names, "J", *regret, "against the first, %", "low", "high"),
                tuple(rows),
                (
                    f"{self.simulations:,} simulations, {self.reused:,} of them in the store",
                    self.budget.sentence(),
                    f"the best as a tree: {self.switch.table_entries} P4 table entries, {self.switch.tcam_bits} TCAM "
                    f"bits, {self.switch.feature_bits} bits of registers",
                    f"search {self.name} in {self.file}",
                    *(f"file: {path}" for path in self.files),
                ),
            )
        ]


@dataclass
class Simulations:
    """Rules, each as trees, under conditions of a plan."""

    here: Here
    plan: SharingPlan
    store: Store
    costs: Costs
    cell_bytes: int
    cases: set[SharingCase] = field(default_factory=set)  #: all that were wanted

    @property
    def budget(self) -> Budget:
        """Of all that were wanted."""
        return Budget.of_cases(self.cases, self.plan.scenarios)

    def level(self, rules: Sequence[SharingRule], wheres: Sequence[Condition], seeds: Sequence[int]) -> list[float]:
        """Return the mean of log J over conditions and seeds of each rule, and simulate what is not known."""
        levels = self.levels({_name(rule): rule.ensemble(self.cell_bytes) for rule in rules}, wheres, seeds)
        return [levels[_name(rule)] for rule in rules]

    def levels(
        self, trees: Mapping[Rule, Ensemble | None], wheres: Sequence[Condition], seeds: Sequence[int]
    ) -> dict[Rule, float]:
        """The same of each rule of the policy ``learned`` that asks an ensemble, or, without one, of the plan."""
        policy = compose_policies([LEARNED], LEARNED)[LEARNED]
        asking = {
            rule: replace(policy, library=str(export_to_store(tree, self.store).library))
            for rule, tree in trees.items()
            if tree is not None
        }
        plan = replace(self.plan, rules={**self.plan.rules, **asking})
        cases = [
            SharingCase(where.family, where.condition, rule.policy, rule.setting, seed)
            for where in wheres
            for rule in trees
            for seed in seeds
        ]
        self.cases.update(cases)
        cases = [case for case in cases if case.seed not in self.costs.runs.get(case.where, {}).get(case.rule, {})]
        found = measure_cases(
            "search",
            POINT,
            cases,
            self.here,
            name=lambda case: f"{case.where}: {case.rule}, seed {case.seed}",
            depends_on=plan.depends_on,
            measure=partial(measured, plan=plan),
        )
        for case, one in zip(found.cases, found.found, strict=True):
            self.costs.add(case, one)
        self.costs.points += len(cases)
        self.costs.reused += sum(entry.reused for entry in found.entries)
        return {rule: float(np.mean([self.costs.level(where, rule, seeds) for where in wheres])) for rule in trees}

    def losses(
        self, score: str, rules: Sequence[SharingRule], wheres: Sequence[Condition], seeds: Sequence[int]
    ) -> list[list[float]]:
        """What each rule loses in each condition: log J, or, by regret, J over the least of the plan's, less 1."""
        self.level(rules, wheres, seeds)
        if score == REGRET:
            self.levels(dict.fromkeys(self.plan.rules), wheres, seeds)
        found = []
        for rule in rules:
            levels = [self.costs.level(where, _name(rule), seeds) for where in wheres]
            if score == REGRET:
                least = [min(self.costs.level(where, known, seeds) for known in self.plan.rules) for where in wheres]
                levels = [max(0.0, math.expm1(one - best)) for one, best in zip(levels, least, strict=True)]
            found.append(levels)
        return found


def _name(rule: SharingRule) -> Rule:
    return Rule(LEARNED, " ".join(map(str, astuple(rule))))


def rule_of(values: Mapping[str, int]) -> SharingRule:
    """The sharing rule with these numbers, by their names in settings."""
    more = min(values["pressure"] + values["first_rtt_more"], HIGHEST)
    others = {name: values.get(name, default) for name, default in RULE_DEFAULTS.items()}
    return SharingRule(values["message_left"], values["fill"], values["pressure"], more, **others)


def rule_search(config: SearchConfig, run_dir: Path) -> RuleSearchResult:
    """Draw and judge rules until there are as many as wanted, those of earlier runs included; then the finalists."""
    settings, where = config.rules[config.size], f"sharing.{config.size}"
    known = settings.against or {CS.policy: {}}
    sweep = replace(config.sharing[config.size], experiment="tune", policies=known)  # no held-out family
    store, plan = Store(config.store_dir), SharingPlan.of(sweep, where, Ns3(config.ns3_prefix))
    cells = {scenario.features.cell_bytes for scenario in plan.scenarios.values()}
    if len(cells) > 1:
        raise ForetailError(f"{where} has cells of {sorted(cells)} bytes, and a rule has one unit: give all the same")
    simulations = Simulations(Here(config.store_dir, config.jobs), plan, store, Costs(), cells.pop())
    conditions = _in_turn(plan) if settings.conditions == "all" else _in_turn(plan)[: len(_families(plan))]
    searched = _searched(settings, plan, conditions)
    name = config.name or f"rules-{hashlib.sha256(canonical_json(searched).encode()).hexdigest()[:12]}"
    file = Path(config.file) if config.file else store.folder.parent / "search.db"
    with (
        open_trials(
            file,
            name,
            searched,
            {number: IntDistribution(low, high) for number, (low, high) in settings.ranges.items()},
            {settings.score: "minimize"},
            sampler="tpe",
            population=settings.batch,
            batch=settings.batch,
            seed=settings.seed,
            first=settings.first,
        ) as trials,
        tracked(config.tracking, store, asdict(config), name) if config.tracking.enabled else nullcontext() as run,
    ):
        finished = _all_trials(settings, trials, simulations, conditions)
        simulations.cases.update(_cases_of(settings, finished, conditions))  # those of earlier commands too
        finalists = _finalists(settings, finished, simulations)
        ensemble = finalists[0].rule.ensemble(simulations.cell_bytes)
        run_dir.mkdir(parents=True, exist_ok=True)
        ensemble.save(run_dir / ENSEMBLE_FILE)
        files = (*write_files(run_dir, {"trials.csv": _frame(finished, settings.score)}), run_dir / ENSEMBLE_FILE)
        registered, where_tracked = None, None
        if run is not None:
            for trial in finished:
                run.log_nested(
                    f"trial {trial.number}", trial.values, {settings.score: _score_of(trial, settings.score)}
                )
            run.log_metrics({"finalist/cost": finalists[0].cost})
            for key, scenario in plan.scenarios.items():
                for seed in settings.seeds:  # there are no rows: what was simulated is the traffic
                    traffic = traffic_sha256_of(plain(asdict(scenario)), seed)
                    run.log_dataset(f"{key}-{seed}", traffic, traffic, "simulated in ns-3", 0, 0, "train")
            for path in files:
                run.log_file(path)
            run.log_model(ensemble)
            where_tracked = address(run)
            description = (
                f"Sharing rule of policy learned, by {settings.score} over {len(plan.scenarios)} conditions of the "
                f"training families of sharing.{config.size}, seeds {', '.join(map(str, settings.seeds))}: "
                f"J {finalists[0].cost:.3g}."
            )
            tags = {"ensemble_sha256": ensemble.sha256, "features": ",".join(item.name for item in ensemble.features)}
            registered = register_trained(config.tracking, where_tracked, description, tags)
    return RuleSearchResult(
        name,
        settings.score,
        file,
        tuple(finished),
        finalists,
        ensemble,
        switch_cost(ensemble, 32, load_profile("v1model")),
        simulations.costs.points,
        simulations.costs.reused,
        simulations.budget,
        files,
        where_tracked,
        registered,
    )


def _families(plan: SharingPlan) -> list[list[Condition]]:
    return [list(one) for _, one in groupby(plan.scenarios, key=lambda condition: condition.family)]


def _in_turn(plan: SharingPlan) -> list[Condition]:
    """The first condition of each family, then the second of each, and so on."""
    return [one for ones in zip_longest(*_families(plan)) for one in ones if one is not None]


def _searched(settings: RuleSearch, plan: SharingPlan, conditions: Sequence[Condition]) -> dict[str, Any]:
    """Everything that decides the trials."""
    seed = settings.seeds[0]
    cases = [
        SharingCase(where.family, where.condition, rule.policy, rule.setting, seed)
        for where in conditions
        for rule in plan.rules
    ]
    return {
        "ranges": settings.ranges,
        "first": settings.first,
        "score": settings.score,
        "conditions_of_a_trial": settings.conditions,
        "batch": settings.batch,
        "seed": settings.seed,
        "traffic_seed": seed,
        "conditions": {f"{case.where} {case.rule}": Key(POINT, plan.depends_on(case)).digest for case in cases},
    }


def _all_trials(
    settings: RuleSearch, trials: Trials, simulations: Simulations, conditions: Sequence[Condition]
) -> list[Trial]:
    while batch := trials.batch(settings.trials):
        rules = {drawn.number: rule_of(drawn.values) for drawn in batch}
        best = _best(settings, trials.finished(), len(conditions)) if settings.conditions == "all" else None
        losses = _raced(settings, simulations, rules, conditions, best)
        found = {number: {settings.score: _score(settings, one, best), LOSSES: one} for number, one in losses.items()}
        trials.keep([Trial(drawn.number, drawn.values, found[drawn.number], None) for drawn in batch])
    return trials.finished()[: settings.trials]


def _best(settings: RuleSearch, trials: Sequence[Trial], conditions: int) -> list[float] | None:
    """What the best trial that ran in all conditions lost in each."""
    whole = [losses for trial in trials if len(losses := _losses_of(trial)) == conditions]
    return min(whole, key=sum) if whole else None


def _raced(
    settings: RuleSearch,
    simulations: Simulations,
    rules: Mapping[int, SharingRule],
    conditions: Sequence[Condition],
    best: Sequence[float] | None,
) -> dict[int, list[float]]:
    """What each rule loses in the conditions, up to where it has lost more than the best trial in all of them.

    Losses are at least 0, so that it cannot be the best any more.
    """
    losses: dict[int, list[float]] = {number: [] for number in rules}
    if best is None:
        found = simulations.losses(settings.score, list(rules.values()), conditions, settings.seeds[:1])
        return dict(zip(losses, found, strict=True))
    for where in conditions:
        running = [number for number, lost in losses.items() if sum(lost) <= sum(best)]
        if not running:
            break
        found = simulations.losses(settings.score, [rules[one] for one in running], [where], settings.seeds[:1])
        for number, (lost,) in zip(running, found, strict=True):
            losses[number].append(lost)
    return losses


def _score(settings: RuleSearch, losses: Sequence[float], best: Sequence[float] | None) -> float:
    """Of a trial; where it was stopped it takes the best trial's losses, so that its score is above that one's."""
    whole = [*losses, *([] if best is None else best[len(losses) :])]
    mean = float(np.mean(whole))
    return math.exp(mean) if settings.score == COST else 100 * mean


def _cases_of(settings: RuleSearch, trials: Sequence[Trial], conditions: Sequence[Condition]) -> Iterator[SharingCase]:
    for trial in trials:
        rule = _name(rule_of(trial.values))
        for where, _ in zip(conditions, _losses_of(trial), strict=False):
            yield SharingCase(where.family, where.condition, rule.policy, rule.setting, settings.seeds[0])


def _finalists(settings: RuleSearch, trials: Sequence[Trial], simulations: Simulations) -> tuple[Finalist, ...]:
    """The rules of the best trials in all conditions, the best first."""
    chosen: dict[SharingRule, int] = {}
    for trial in sorted(trials, key=lambda one: _score_of(one, settings.score)):
        if len(chosen) < settings.finalists:
            chosen.setdefault(rule_of(trial.values), trial.number)
    wheres = list(simulations.plan.scenarios)
    losses = simulations.losses(settings.score, list(chosen), wheres, settings.seeds)
    levels = simulations.level(list(chosen), wheres, settings.seeds)
    ranked = sorted(zip(losses, levels, chosen.items(), strict=True), key=lambda one: sum(one[0]))
    first = _name(ranked[0][2][0])
    return tuple(
        Finalist(
            number,
            rule,
            math.exp(level),
            None if settings.score == COST else float(np.mean(lost)),
            simulations.costs.family_difference(wheres, _name(rule), first),
        )
        for lost, level, (rule, number) in ranked
    )


def _losses_of(trial: Trial) -> list[float]:
    return list((trial.found or {})[LOSSES])


def _score_of(trial: Trial, score: str) -> float:
    return float((trial.found or {})[score])


def _frame(trials: Sequence[Trial], score: str) -> pd.DataFrame:
    """One row per trial."""
    return pd.DataFrame(
        [
            {"trial": one.number, **one.values, score: _score_of(one, score), "conditions": len(_losses_of(one))}
            for one in trials
        ]
    )


def _percent(difference: float | None) -> float | None:
    """A difference of logarithms as a change."""
    return None if difference is None else 100 * math.expm1(difference)
