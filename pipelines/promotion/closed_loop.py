"""The gate of promotions by cost J: the policy that asks a model, under the held-out families of a map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretail.configs.schema.model_stages import PromoteConfig
from foretail.core.errors import ForetailError
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.registry import Lineage
from foretail.pipelines.comparison.statistics import PairedDifference, interval_text
from foretail.pipelines.exporting.predictor import export_to_store
from foretail.pipelines.families.conditions import DEFAULT, Condition, Rule, SharingPlan
from foretail.pipelines.families.costs import CS, Costs, measure_rules
from foretail.pipelines.promotion.gate import Check, Judged, Judging
from foretail.pipelines.promotion.model_card import closed_loop_card
from foretail.pipelines.runs.result import Cell, Table, plain
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_policy
from foretail.pipelines.tracking.seen import refuse_seen
from foretail.sim_bridge.policies import policy_words

MODEL, HOLDER = "the model", "the holder"


def judge_by_cost(config: PromoteConfig, store: Store, judging: Judging) -> Judged:
    """Judge a model by log J of the policy that asks it, mean over the held-out conditions, paired by seed.

    With a holder it may cost `config.cost_margin_percent` more, without one it has to cost less than Complete Sharing:
    both by the whole 95 % interval. ForetailError when one of both was given traffic of a held-out run.
    """
    plan = _held_out_plan(config, store, judging)
    seen = ((judging.lineage, MODEL), (judging.holder_lineage, f"the {judging.against},"))
    for lineage, whose in seen:
        if lineage is not None:
            refuse_seen(plan.scenarios, config.seeds, lineage, whose)
    costs = Costs()
    measure_rules("gate", config, plan, costs, {where: list(plan.rules) for where in plan.scenarios}, config.seeds)
    model, holder = Rule(config.asking, MODEL), Rule(config.asking, HOLDER)
    other = CS if judging.holder is None else holder
    difference = costs.family_difference(list(plan.scenarios), model, other)
    check = _check(difference, None if judging.holder is None else config.cost_margin_percent, judging.against)
    held_out = [
        {
            "family": where.family,
            "condition": where.condition,
            "seed": seed,
            "costs": {str(rule): costs.runs[where][rule][seed]["cost"] for rule in plan.rules},
        }
        for where in plan.scenarios
        for seed in config.seeds
    ]
    tables = (_by_condition(plan, costs, config.seeds), _by_rule(plan, costs, config.seeds))
    return Judged(
        (check,), plain(held_out), (), tables, lambda document: closed_loop_card(document, judging.model, tables)
    )


def _held_out_plan(config: PromoteConfig, store: Store, judging: Judging) -> SharingPlan:
    """The held-out conditions, the baselines, and the policy that asks: with the model, and with the holder's."""
    families = config.families[config.size]
    plan = SharingPlan.of(config, families.shared, families.held_out(), {name: {} for name in config.baselines})
    policy = compose_policy(config.asking, "asking")
    models: dict[str, Ensemble | None] = {MODEL: judging.model, HOLDER: judging.holder}
    rules = {
        Rule(config.asking, whose): policy.ask(export_to_store(model, store).library)
        for whose, model in models.items()
        if model is not None
    }
    return replace(plan, rules={**rules, **plan.rules})


def _check(found: PairedDifference, margin_percent: float | None, against: str) -> Check:
    """Whether log J differs as wanted, by the whole interval."""
    highest = math.inf if found.high is None else found.high
    percent = [None if end is None else 100 * math.expm1(end) for end in (found.mean, found.low, found.high)]
    shown = PairedDifference(percent[0], percent[1], percent[2], found.pairs)
    if margin_percent is None:
        against = "Complete Sharing, which always accepts"
        passed, wanted = highest < 0, "has to lie below 0"
    else:
        passed, wanted = highest <= math.log1p(margin_percent / 100), f"must not lie above {margin_percent:g}"
    reason = f"cost J in % against {against}: {interval_text(shown)}, which {wanted}"
    return Check("cost", passed, reason, found, None if margin_percent is None else math.log1p(margin_percent / 100))


def _levels(plan: SharingPlan, costs: Costs, where: Condition, seeds: Sequence[int]) -> dict[Rule, float]:
    return {rule: costs.level(where, rule, seeds) for rule in plan.rules}


def _by_condition(plan: SharingPlan, costs: Costs, seeds: Sequence[int]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for where in plan.scenarios:
        levels = _levels(plan, costs, where, seeds)
        best = min(levels, key=lambda rule: levels[rule])
        own = [rule for rule in levels if rule.setting != DEFAULT]
        row: list[Cell] = [where.family, where.condition]
        for rule in own:
            row += [math.exp(levels[rule]), 100 * math.expm1(levels[rule] - levels[best])]
        rows.append((*row, _words(best), math.exp(levels[best])))
    columns = ["family", "condition"]
    for rule in plan.rules:
        if rule.setting != DEFAULT:
            columns += [f"J, {rule.setting}", "regret, %"]
    return Table("Cost J under held-out conditions", (*columns, "cheapest", "its J"), tuple(rows))


def _by_rule(plan: SharingPlan, costs: Costs, seeds: Sequence[int]) -> Table:
    found = [_levels(plan, costs, where, seeds) for where in plan.scenarios]
    rows = []
    for rule in plan.rules:
        regrets = [100 * math.expm1(levels[rule] - min(levels.values())) for levels in found]
        within = f"{sum(regret <= 10 for regret in regrets)} of {len(regrets)}"
        rows.append((_words(rule), float(np.mean(regrets)), max(regrets), within))
    note = f"seeds {', '.join(map(str, seeds))}; {costs.note}"
    return Table("Regret over held-out conditions, %", ("rule", "mean", "worst", "at most 10"), tuple(rows), (note,))


def _words(rule: Rule) -> str:
    return policy_words(rule.policy) if rule.setting == DEFAULT else f"{policy_words(rule.policy)}, {rule.setting}"
