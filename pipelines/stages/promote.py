"""``foretail promote``: make a model champion or challenger if it passes the gate, or show and restore who is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from foretail.configs.schema.model_stages import PromoteConfig
from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.registry import NamedVersion, give_back, named_versions
from foretail.models.mlflow.store import tracking_uri
from foretail.models.mlflow.tracking import RegisteredModel
from foretail.pipelines.comparison.statistics import PairedDifference, interval_text, percent_change
from foretail.pipelines.exporting.predictor import export_to_store
from foretail.pipelines.families import CS, DEFAULT, Condition, Costs, Rule, SharingPlan, measure_rules
from foretail.pipelines.promotion.model_card import short_card
from foretail.pipelines.promotion.promoting import (
    GATE_RUN_TAG,
    Check,
    Judged,
    Judging,
    PromoteResult,
    judge_by_scores,
    promote_model,
)
from foretail.pipelines.runs.result import Cell, Table, plain
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_policy
from foretail.pipelines.tracking.runs import refuse_seen
from foretail.sim_bridge.policy_settings import policy_words

MODEL, HOLDER = "the model", "the holder"
JUDGED_BY = "what flows feel: the cost J, the geometric mean of the mean slowdowns of queries, short and long flows."


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
        (check,), plain(held_out), (), tables, lambda document: short_card(document, judging.model, tables, JUDGED_BY)
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


def _check(difference: PairedDifference, margin_percent: float | None, against: str) -> Check:
    """Check that log J differs as wanted, by the whole interval."""
    highest = math.inf if difference.high is None else difference.high
    percent = [
        None if end is None else 100 * math.expm1(end) for end in (difference.mean, difference.low, difference.high)
    ]
    shown = PairedDifference(percent[0], percent[1], percent[2], difference.pairs)
    if margin_percent is None:
        against = "Complete Sharing, which always accepts"
        passed, wanted = highest < 0, "has to lie below 0"
    else:
        passed, wanted = highest <= math.log1p(margin_percent / 100), f"must not lie above {margin_percent:g}"
    reason = f"cost J in % against {against}: {interval_text(shown)}, which {wanted}"
    return Check(
        "cost", passed, reason, difference, None if margin_percent is None else math.log1p(margin_percent / 100)
    )


def _by_condition(plan: SharingPlan, costs: Costs, seeds: Sequence[int]) -> Table:
    rules = list(plan.rules)
    own = [rule for rule in rules if rule.setting != DEFAULT]
    rows: list[tuple[Cell, ...]] = []
    for where in plan.scenarios:
        best = costs.best(where, rules, seeds)
        row: list[Cell] = [where.family, where.condition]
        for rule in own:
            row += [math.exp(costs.level(where, rule, seeds)), _regret_percent(plan, costs, where, rule)]
        floor = percent_change(costs.noise_floor(where, rules))
        rows.append((*row, _words(best), math.exp(costs.level(where, best, seeds)), floor))
    columns = ["family", "condition"]
    for rule in own:
        columns += [f"J, {rule.setting}", "regret, %"]
    columns += ["cheapest", "its J", "noise floor, %"]
    return Table("Cost J under held-out conditions", tuple(columns), tuple(rows))


def _by_rule(plan: SharingPlan, costs: Costs, seeds: Sequence[int]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for rule in plan.rules:
        percents = [_regret_percent(plan, costs, where, rule) for where in plan.scenarios]
        regrets = [regret for regret in percents if regret is not None]
        within = f"{sum(regret <= 10 for regret in regrets)} of {len(regrets)}" if regrets else None
        mean, worst = (float(np.mean(regrets)), max(regrets)) if regrets else (None, None)
        rows.append((_words(rule), mean, worst, within))
    notes = (
        f"seeds {', '.join(map(str, seeds))}; {costs.note}",
        "Regret is over the rule that is cheapest on the other seeds of a condition; one seed tells none.",
    )
    return Table("Regret over held-out conditions, %", ("rule", "mean", "worst", "at most 10"), tuple(rows), notes)


def _regret_percent(plan: SharingPlan, costs: Costs, where: Condition, rule: Rule) -> float | None:
    return percent_change(costs.regret(where, rule, list(plan.rules)).mean)


def _words(rule: Rule) -> str:
    return policy_words(rule.policy) if rule.setting == DEFAULT else f"{policy_words(rule.policy)}, {rule.setting}"


@dataclass(frozen=True, repr=False)
class Aliases(Summarised):
    """The versions of a model that aliases point at."""

    name: str  #: of the registered model
    versions: Sequence[NamedVersion]  #: with at least one alias
    restored: RegisteredModel | None = None  #: the alias that this command gave back

    def document(self) -> dict[str, Any]:
        """Every alias, JSON-like."""
        return {
            "name": self.name,
            "aliases": {alias: one.version for one in self.versions for alias in one.aliases},
            "versions": [vars(one) for one in self.versions],
            "restored": None if self.restored is None else vars(self.restored),
        }

    def verdict(self) -> list[str]:
        """Sentence on the champion, or on the alias that moved."""
        if self.restored is not None:
            return [self.restored.sentence() + "."]
        champion = next((one for one in self.versions if "champion" in one.aliases), None)
        if champion is None:
            return [f"models:/{self.name} has no champion: foretail promote model=MODEL judges one."]
        return [f"models:/{self.name}@champion is version {champion.version}, {champion.description or 'undescribed'}"]

    def tables(self) -> list[Table]:
        """A row for each version with an alias."""
        rows = [
            {
                "alias": ", ".join(one.aliases),
                "version": one.version,
                "registered": one.created,
                "passed the gate": "yes" if GATE_RUN_TAG in one.tags else "no",
                "features": one.tags.get("features", "-"),
            }
            for one in self.versions
        ]
        return [Table.of_rows(f"Aliases of {self.name}", rows)] if rows else []


def known_aliases(config: PromoteConfig) -> Aliases:
    """Return who holds the aliases of ``tracking.registered_model``, after the restoring that is wanted.

    ``config.to`` is given to the version that held it before, or to ``config.version``. ForetailError when there is
    none, or it never passed the gate.
    """
    uri = tracking_uri(config.tracking.uri, Store(config.store_dir).folder.parent)
    name, before = str(config.tracking.registered_model), f"previous_{config.to}"
    if not config.rollback and config.version is None:
        return Aliases(name, named_versions(name, uri))
    version = None if config.version is None else str(config.version)
    if version is None:
        version = next((one.version for one in named_versions(name, uri) if before in one.aliases), None)
        if version is None:
            raise ForetailError(
                f"models:/{name} has no alias {before}, so nobody was {config.to} before: give version=N"
            )
    restored = give_back(name, config.to, version, GATE_RUN_TAG, uri)
    return Aliases(name, named_versions(name, uri), restored)


def promote(config: PromoteConfig, run_dir: Path) -> PromoteResult | Aliases:
    """Judge the model and the holder on held-out runs, prove the exports, and move the alias as the last step."""
    if config.model is None:
        return known_aliases(config)
    return promote_model(config, run_dir, judge_by_cost if config.families else judge_by_scores)
