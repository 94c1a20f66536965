"""Worth of predictions under each transport: Credence with a forest against the best threshold, by the cost J.

Under each transport a forest learns what LQD drops, on runs of all conditions of its family. Settings of policies
without a model, and the probability above which Credence drops, are chosen by J on the same runs. Other seeds judge
them. No feature may be an average, for its interval is the base round trip, which conditions do not share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import SimulatedPointSettings
from foretail.configs.schema.policies import Policy, require_tunable
from foretail.core.errors import ForetailError
from foretail.core.settings import setting
from foretail.features.catalog import feature, training_columns
from foretail.features.dataset.reader import Dataset
from foretail.models.drop.forest import RandomForest
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.pipelines.comparison.statistics import PairedDifference, change_text, paired_difference
from foretail.pipelines.data.collecting import collect_runs
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown
from foretail.pipelines.exporting.predictor import export_to_store
from foretail.pipelines.runs.result import Table
from foretail.pipelines.settings.compose import compose_policy
from foretail.sim_bridge.policies import PUSHING_OUT
from foretail_studies.benchmark.track import best_by_family, confidence_of_each
from foretail_studies.families import LQD, Condition, Costs, Families, Rule, SharingPlan, measure_rules, require_apart
from foretail_studies.sharing.map import EQUAL_PERCENT

MODEL, DT = "credence", Rule.of("dt")
PAYS, COSTS, EQUAL, OPEN, NOTHING = "pays", "costs", "as good", "not decided", "nothing to learn"
"""Verdicts on a prediction against the best threshold; with `NOTHING`, LQD drops no packet of the training runs."""


@dataclass
class PredictionSettings(SimulatedPointSettings, Families):
    """Credence with a forest for each family, beside policies that are tuned on the runs that train it."""

    policies: dict[str, dict[str, list[float]]] = setting(
        MISSING, "Values of each parameter by policy; all their combinations are tried beside the policy's defaults."
    )
    feature_names: list[str] = setting(MISSING, "Features of the forest, none of them an average.")
    trees: int = setting(4, "Trees of the forest.", at_least=1, at_most=64)
    depth: int = setting(4, "Depth of each tree.", at_least=1, at_most=8)
    least_share: list[float] = setting(
        MISSING, "Probabilities of a drop, above one of which Credence drops.", above=0, at_most=0.99
    )
    training_seeds: list[int] = setting(
        MISSING, "Traffic seeds on which the forest learns and all settings are chosen.", at_least=1, at_most=2**30
    )
    seeds: list[int] = setting(MISSING, "Traffic seeds that judge.", at_least=1, at_most=2**30)

    def check(self, where: str) -> None:
        """Raise ForetailError on averages, without the policies of the tables, and on seeds with two roles."""
        super().check(where)
        for name in self.feature_names:
            if feature(name).averaged or feature(name).study_only:
                raise ForetailError(f"feature_names has {name}, which is not the same in all networks: leave it out")
        for name, values in self.policies.items():
            require_tunable("policies", name, values)
        if missing := sorted({"lqd", "dt"} - self.policies.keys()):
            raise ForetailError(f"policies lacks {missing[0]}, which stands beside the model: add {missing[0]}: {{}}")
        require_apart(seeds=self.seeds, training_seeds=self.training_seeds)


def show(settings: PredictionSettings, run: Run) -> Shown:
    """Learn and choose under each transport, and judge on other seeds."""
    plan = SharingPlan.of(settings, settings.shared, settings.families, settings.policies)
    credence, drops = compose_policy(MODEL, "prediction"), {}
    asking: dict[str, dict[Rule, Policy]] = {family: {} for family in settings.families}
    for family, of in asking.items():
        forest, drops[family] = _learned(settings, plan, family)
        if forest is None:
            continue
        for p in settings.least_share:
            library = export_to_store(forest.with_threshold(Fraction(p)), run.store).library
            of[Rule(MODEL, f"{family}, p={p:g}")] = credence.ask(library)
    without, tuned, judged = list(plan.rules), Costs(), Costs()
    plan = replace(
        plan, rules={**plan.rules, **{rule: policy for of in asking.values() for rule, policy in of.items()}}
    )

    def measure(costs: Costs, rules: Mapping[str, Iterable[Rule]], seeds: Sequence[int]) -> None:
        by_condition = {where: list(dict.fromkeys(rules[where.family])) for where in plan.scenarios}
        measure_rules(settings.experiment, settings, plan, costs, by_condition, seeds)

    measure(tuned, {family: [*without, *of] for family, of in asking.items()}, settings.training_seeds)
    thresholds = [rule for rule in without if settings.policies.get(rule.policy) and rule.policy not in PUSHING_OUT]
    chosen: dict[str, dict[str, Rule]] = {}
    for family, of in asking.items():
        family_conditions = [where for where in plan.scenarios if where.family == family]
        groups = {"threshold": thresholds, "no model": without, **({"model": list(of)} if of else {})}
        chosen[family] = {name: best_by_family(tuned, family_conditions, rules, LQD) for name, rules in groups.items()}
    measure(judged, {family: [LQD, DT, *of.values()] for family, of in chosen.items()}, settings.seeds)
    frame = pd.DataFrame(_row(settings, judged, where, chosen[where.family]) for where in plan.scenarios)
    conditions = list(frame["condition"].unique())
    return Shown(
        frame,
        [_table(frame, condition) for condition in conditions],
        notes=(
            "J is its geometric mean over seeds, and less is better. Threshold, policy without a model and the model's "
            f"probability are chosen on seeds {', '.join(map(str, settings.training_seeds))} of the transport. "
            "Changes are those of J by the model, with 95 % t intervals over seeds "
            f"{', '.join(map(str, settings.seeds))}.",
            f"To choose: {tuned.note}. To judge: {judged.note}.",
        ),
        verdict=[moves(judged, chosen, plan.scenarios, settings.seeds, condition) for condition in conditions],
        details={"drops": drops},
    )


PREDICTION = FunctionExperiment(PredictionSettings, show)


def _learned(settings: PredictionSettings, plan: SharingPlan, family: str) -> tuple[Ensemble | None, int]:
    """A forest that gives the probability of LQD's drop, and how many drops it saw; None where there is none."""
    columns, parts = training_columns(settings.feature_names, own_queues=False), []
    for scenario in [scenario for where, scenario in plan.scenarios.items() if where.family == family]:
        for collected in collect_runs(settings, scenario, compose_policy("lqd", "prediction"), settings.training_seeds):
            parts.append(Dataset.open(collected.path).frame([*columns, "lqd_drop"]))
    rows = pd.concat(parts, ignore_index=True)
    drops = int(rows["lqd_drop"].sum())
    if not drops:
        return None, 0
    forest = RandomForest(trees=settings.trees, depth=settings.depth)
    x, y = rows[[*columns]].to_numpy(np.int32), rows["lqd_drop"].to_numpy(np.bool_)
    inputs = [FeatureInput.of(name, plan.cell_bytes) for name in settings.feature_names]
    return forest.fit(x, y).to_ensemble(inputs), drops


def _row(settings: PredictionSettings, costs: Costs, where: Condition, chosen: Mapping[str, Rule]) -> dict[str, Any]:
    """Return the costs J of all rules under a transport in a network, and the change of log J by the model."""
    model = chosen.get("model")
    rules = {"lqd": LQD, "dt": DT, **chosen}
    against = {
        name: PairedDifference(None, None, None, 0) if model is None else costs.difference(where, model, rules[name])
        for name in ("threshold", "no model")
    }
    runs = [] if model is None else costs.runs[where][model].values()
    return {
        "family": where.family,
        "condition": where.condition,
        **{f"{name} J": math.exp(costs.level(where, rule, settings.seeds)) for name, rule in rules.items()},
        **{name: str(rule) for name, rule in chosen.items()},
        **{
            f"against {name}{end}": getattr(difference, part)
            for name, difference in against.items()
            for end, part in {"": "mean", ", low": "low", ", high": "high"}.items()
        },
        **{name: sum(run[name] for run in runs) for name in ("asked", "predicted_drops")},
        "verdict": NOTHING if model is None else verdict(against["threshold"]),
    }


def verdict(difference: PairedDifference) -> str:
    """Return the verdict on a prediction whose log J differs so from that of the best threshold."""
    close = math.log1p(EQUAL_PERCENT / 100)
    if difference.low is None or difference.high is None:
        return OPEN
    if -close <= difference.low and difference.high <= close:
        return EQUAL
    return PAYS if difference.high < 0 else COSTS if difference.low > 0 else OPEN


def moves(
    costs: Costs,
    chosen: Mapping[str, Mapping[str, Rule]],
    conditions: Iterable[Condition],
    seeds: Sequence[int],
    condition: str,
) -> str:
    """Say whether the change of log J by the model differs between transports in a network.

    It does where the change under a transport differs from the mean of the others' with its whole interval. All these
    intervals hold together with a confidence of 95 %.
    """
    changes: dict[str, dict[int, float]] = {}
    for where in conditions:
        if where.condition == condition and (model := chosen[where.family].get("model")) is not None:
            own, threshold = costs.logs(where, model), costs.logs(where, chosen[where.family]["threshold"])
            changes[where.family] = {seed: own[seed] - threshold[seed] for seed in seeds}
    moved = []
    for family, own in changes.items():
        others = [of for name, of in changes.items() if name != family]
        mean = {seed: float(np.mean([of[seed] for of in others])) for seed in seeds if others}
        difference = paired_difference(own, mean, confidence_of_each(len(changes)))
        if difference.low is not None and difference.high is not None and not difference.low <= 0 <= difference.high:
            moved.append(f"{family} ({change_text(difference)})")
    if moved:
        return (
            f"{condition}: the worth of a prediction moves with the transport, for it differs under {', '.join(moved)}."
        )
    return f"{condition}: the worth of a prediction does not surely move with the transport."


def _table(frame: pd.DataFrame, condition: str) -> Table:
    def changed(row: Mapping[Any, Any], name: str) -> str:
        mean, *ends = (row[f"against {name}{end}"] for end in ("", ", low", ", high"))
        low, high = (None if pd.isna(end) else float(end) for end in ends)
        return "-" if pd.isna(mean) else change_text(PairedDifference(float(mean), low, high, 0))

    return Table.of_rows(
        f"J by transport: {condition}",
        (
            {
                "transport": row["family"],
                "LQD": row["lqd J"],
                "DT": row["dt J"],
                "best threshold": row["threshold"],
                "J of the threshold": row["threshold J"],
                "best without a model": row["no model"],
                "J of the best": row["no model J"],
                "Credence": None if pd.isna(row.get("model J")) else row["model J"],
                "against the threshold": changed(row, "threshold"),
                "against the best": changed(row, "no model"),
                "a prediction": row["verdict"],
            }
            for row in frame[frame["condition"] == condition].to_dict("records")
        ),
    )
