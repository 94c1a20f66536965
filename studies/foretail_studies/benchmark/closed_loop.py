"""The benchmark: a model, a rule or a policy on frozen conditions, beside a reference and tuned thresholds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import SimulatedPointSettings
from foretail.configs.schema.policies import ASKING, RULE_DEFAULTS, Policy, require_rule
from foretail.core.errors import ForetailError
from foretail.core.settings import setting
from foretail.pipelines.comparison.statistics import change_text, percent_change
from foretail.pipelines.data.simulation import driver_config
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown, measure_cases
from foretail.pipelines.exporting.network import predictor_to_store
from foretail.pipelines.exporting.predictor import export_to_store
from foretail.pipelines.runs.notes import lineages
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_policy
from foretail.pipelines.settings.predictors import LEARNED, rule_of
from foretail.pipelines.tracking.loading import is_predictor, load_predictor
from foretail.pipelines.tracking.runs import refuse_seen
from foretail.sim_bridge.native.driver import NATIVE
from foretail.sim_bridge.native.network import run_live_native
from foretail.sim_bridge.python_policies import PythonPolicy
from foretail_studies.benchmark.track import (
    CLOSED_LOOP,
    GUARD_PERCENT,
    Score,
    best_by_family,
    guard_percent,
    named,
    reference_runs,
    require_answers,
    require_frozen,
    scores_document,
    scores_table,
)
from foretail_studies.families import (
    DEFAULT,
    Condition,
    Costs,
    Families,
    Rule,
    SharingCase,
    SharingPlan,
    cost_document,
    measure_rules,
)


@dataclass(frozen=True)
class LiveCase:
    """All conditions on a seed: they wait together, so that the policy gets a batch."""

    seed: int


@dataclass(frozen=True)
class LivePlan:
    """A policy in Python, the policy that asks it, and the conditions in which it decides."""

    policy: PythonPolicy
    asking: Policy  #: the policy of the switch that asks it
    plan: SharingPlan

    def __post_init__(self) -> None:
        """Raise ForetailError unless all conditions are of the native network."""
        if not all(simulator.program == NATIVE for simulator in self.plan.simulators.values()):
            raise ForetailError(
                f"{self.policy.name} decides in Python, which only the native network asks: set network=native"
            )

    def documents(self, seed: int) -> dict[SharingCase, dict[str, Any]]:
        """The driver's document of every simulation on a seed."""
        return {
            SharingCase(where.family, where.condition, self.policy.name, DEFAULT, seed): driver_config(
                scenario, self.asking, seed, trace=False
            )
            for where, scenario in self.plan.scenarios.items()
        }

    def depends_on(self, case: LiveCase) -> dict[str, Any]:
        """Everything that the measurement depends on."""
        documents = self.documents(case.seed).items()
        return {
            "runs": [self.plan.simulators[one.where].depends_on(document) for one, document in documents],
            "policy": [self.policy.sha256, self.policy.function],
            "code": self.plan.code,
        }

    def measured(self, case: LiveCase, so_far: SoFar) -> list[Mapping[str, Any]]:
        """Costs on a seed, in the order of the conditions."""
        so_far("")
        documents = self.documents(case.seed)
        runs = run_live_native([*documents.values()], self.policy.fresh().decide, self.policy.features)
        return [
            cost_document(one, run.flows, run.summary["end_ns"], document)
            for (one, document), run in zip(documents.items(), runs, strict=True)
        ]

    def add_costs(self, settings: BenchmarkSettings, costs: Costs) -> None:
        """Add what the policy costs in every condition."""
        measured = measure_cases(
            settings.experiment,
            "live_cost",
            [LiveCase(seed) for seed in settings.seeds],
            settings,
            name=lambda case: f"{self.policy.name} in {len(self.plan.scenarios)} conditions, seed {case.seed}",
            depends_on=self.depends_on,
            measure=self.measured,
        )
        for case, of_seed in zip(measured.cases, measured.measurements, strict=True):
            for one, cost in zip(self.documents(case.seed), of_seed, strict=True):
                costs.add(one, cost)
        costs.points += len(settings.seeds) * len(self.plan.scenarios)
        costs.reused += measured.reused * len(self.plan.scenarios)


@dataclass
class BenchmarkSettings(SimulatedPointSettings, Families):
    """Rules under frozen conditions, judged by their cost J against that of a reference rule."""

    model: str | None = setting(
        None,
        "What is judged: a drop predictor, as in export; the name of a policy, as in evaluate; HEADER.hpp:TYPE; or "
        "FILE.py:FUNCTION, which decides in Python. null judges the rules of the benchmark alone.",
    )
    asking: str = setting("learned", "Policy that asks the predictor.", one_of=ASKING)
    reference: str = setting("lqd_last", "Policy against whose J all scores are taken.")
    rules: list[str] = setting([], "Policies that stand beside what is judged.")
    thresholds: list[str] = setting(
        MISSING,
        "Policies of which the best on the training families stands beside what is judged, as the tuned threshold.",
    )
    sharing_rules: dict[str, dict[str, int]] = setting(
        {}, "Sharing rules, by their names in the table, each with its numbers as in sharing_rule of evaluate."
    )
    seeds: list[int] = setting(MISSING, "Traffic seeds of every condition.", at_least=1, at_most=2**30)

    def check(self, where: str) -> None:
        """Raise ForetailError without a family that trains or one that judges, and on rules that are none."""
        super().check(where)
        self.require_both_sides()
        for name, numbers in self.sharing_rules.items():
            require_rule(f"sharing_rules.{name}", {**RULE_DEFAULTS, **numbers})


@dataclass(frozen=True)
class Field:
    """Everybody who runs."""

    plan: SharingPlan
    reference: Rule
    thresholds: Sequence[Rule]
    others: Sequence[Rule]
    judged: Rule | None  #: what the score is of
    live: LivePlan | None  #: of a judged policy in Python, which decides in runs of its own

    @property
    def rules(self) -> list[Rule]:
        """All of them, each once, what is judged first."""
        judged = [] if self.judged is None else [self.judged]
        return list(dict.fromkeys([*judged, self.reference, *self.others, *self.thresholds]))

    @classmethod
    def of(cls, settings: BenchmarkSettings, store: Store) -> Field:
        """Compose the conditions and all rules; ForetailError when the model was given a held-out run."""
        model, judged = settings.model, None
        python = None if model is None else PythonPolicy.of(model)
        policy = None if model is None or python is not None or is_predictor(model) else model
        if policy is not None:
            require_answers(policy)
            if "/" not in policy and ":" not in policy and compose_policy(policy, "model").asks_exported_model:
                raise ForetailError(
                    f"model={policy} asks a predictor and there is none: give a policy with its library"
                )
        names = [settings.reference, *settings.rules, *settings.thresholds, *([] if policy is None else [policy])]
        plan = SharingPlan.of(settings, settings.shared, settings.families, {name: {} for name in names})
        live = None
        if python is not None:
            live = LivePlan(python, compose_policy(settings.asking, "asking"), plan)
            judged = Rule(python.name, DEFAULT)
        elif model is not None and policy is None:
            library = predictor_to_store(load_predictor(model, settings.tracking, store), store).library
            plan = plan.with_model([settings.asking], library)
            judged = Rule(settings.asking, DEFAULT)
            held_out = {where: one for where, one in plan.scenarios.items() if settings.families[where.family].held_out}
            for lineage in lineages():
                refuse_seen(held_out, settings.seeds, lineage, "the model")
        elif policy is not None:
            judged = Rule.of(policy)
        numbers = {name: {**RULE_DEFAULTS, **one} for name, one in settings.sharing_rules.items()}
        asking = compose_policy(LEARNED, "sharing_rules")
        made = {
            Rule(LEARNED, name): asking.ask(export_to_store(rule_of(one).ensemble(plan.cell_bytes), store).library)
            for name, one in numbers.items()
        }
        plan = replace(plan, rules={**plan.rules, **made})
        thresholds = [Rule.of(name) for name in settings.thresholds]
        return cls(plan, Rule.of(settings.reference), thresholds, [*map(Rule.of, settings.rules), *made], judged, live)


def show(settings: BenchmarkSettings, run: Run) -> Shown:
    """Measure everybody, verify the frozen runs, and score."""
    field = Field.of(settings, run.store)
    plan, costs = field.plan, Costs()
    simulated = field.rules if field.live is None else [rule for rule in field.rules if rule != field.judged]
    measure_rules(settings.experiment, settings, plan, costs, dict.fromkeys(plan.scenarios, simulated), settings.seeds)
    if field.live is not None:
        field.live.add_costs(settings, costs)
    reference = list(reference_runs(costs, field.reference, settings.size, settings.held_out()))
    require_frozen(reference, settings.size)
    training = [where for where in plan.scenarios if where.family in settings.training()]
    held_out = [where for where in plan.scenarios if where.family in settings.held_out()]
    tuned = best_by_family(costs, training, field.thresholds, field.reference)
    rules = [rule for rule in field.rules if rule == tuned or rule not in field.thresholds or rule == field.judged]
    scores = {rule: Score.of(costs, held_out, rule, field.reference) for rule in field.rules}
    judged = field.judged or tuned
    best_first = sorted(rules, key=lambda rule: scores[rule].over_seeds.mean or 0.0)
    rows = _rows(costs, [*training, *held_out], field, set(held_out))
    return Shown(
        rows,
        [
            scores_table(
                f"{CLOSED_LOOP}: the cost J against {field.reference}, held-out families",
                {rule: scores[rule] for rule in best_first},
                {rule: Score.of(costs, training, rule, field.reference) for rule in rules},
                {"tuned threshold": tuned, "judged": field.judged},
                change_text,
            ),
            _conditions(rows, held_out, judged),
        ],
        notes=(
            f"A score is the change of the cost J against {field.reference}: the mean over held-out families, with its "
            f"95 % interval over {len(settings.seeds)} seeds.",
            f"The guard fails where J is surely more than {GUARD_PERCENT:g} % higher; it looks at {len(held_out)} "
            "held-out conditions.",
            f"The tuned threshold, {tuned}, is the best of {len(field.thresholds)} on the training families.",
            costs.note,
            *(() if field.live is None else (field.live.policy.note,)),
        ),
        verdict=_verdict(judged, scores, tuned, field.reference),
        details={
            "reference": str(field.reference),
            **scores_document(named(CLOSED_LOOP, settings.size), judged, tuned, scores, reference, percent_change),
        },
    )


BENCHMARK = FunctionExperiment(BenchmarkSettings, show)


def _rows(costs: Costs, conditions: Sequence[Condition], field: Field, held_out: set[Condition]) -> pd.DataFrame:
    """One row per condition and rule.

    ``cost``: J, geometric mean over seeds. ``change``: J against the reference's, %, with its interval. ``guard``: the
    lower bound that the guard looks at. ``regret``: J against the best rule's, %, cross-fitted, with its interval.
    ``noise_floor``: what the best rule seems to regret by chance, %.
    """
    rows = []
    for where in conditions:
        rules = [rule for rule in field.rules if rule != field.judged] or field.rules
        floor = percent_change(costs.noise_floor(where, rules))
        for rule in field.rules:
            rows.append(
                {
                    "family": where.family,
                    "condition": where.condition,
                    "held_out": where in held_out,
                    "rule": str(rule),
                    "seeds": len(costs.runs[where][rule]),
                    "cost": math.exp(costs.level(where, rule, list(costs.runs[where][rule]))),
                    **costs.difference(where, rule, field.reference).columns("change", percent_change),
                    "guard": guard_percent(costs, where, rule, field.reference, len(held_out)),
                    **costs.regret(where, rule, rules).columns("regret", percent_change),
                    "noise_floor": floor,
                }
            )
    return pd.DataFrame(rows)


def _conditions(rows: pd.DataFrame, held_out: Sequence[Condition], judged: Rule) -> Table:
    """Table of the judged rule in every held-out condition."""
    own = rows[rows["held_out"] & (rows["rule"] == str(judged))]
    columns = {
        "family": "family",
        "condition": "condition",
        "cost": "J",
        "change": "change, %",
        "change_low": "low",
        "change_high": "high",
        "guard": "guard, %",
        "regret": "regret, %",
        "noise_floor": "noise floor, %",
    }
    return Table.of_frame(f"{judged} in {len(held_out)} held-out conditions", own, columns)


def _verdict(judged: Rule, scores: Mapping[Rule, Score], tuned: Rule, reference: Rule) -> list[str]:
    """The score in a sentence, beside that of the tuned threshold, and the guard in another."""
    one = scores[judged]
    beside = "" if judged == tuned else f", the tuned threshold {tuned} {change_text(scores[tuned].over_seeds)}"
    failed = ", ".join(str(where) for where in one.failed)
    return [
        f"{judged} costs {change_text(one.over_seeds)} against {reference}{beside}.",
        f"The guard fails in {failed}." if failed else "The guard passes in every held-out condition.",
    ]
