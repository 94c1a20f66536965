"""Labels of what drops cost, trees that learn them, and the gain from which on a drop pays, chosen by J."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd

from foretail.configs.schema.policies import Policy
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.features.catalog import feature
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import Run, traffic_sha256
from foretail.features.dataset.writer import write_drop_costs
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.mlflow.tracking import TrackedRun
from foretail.pipelines.comparison.statistics import PairedDifference
from foretail.pipelines.data.collecting import DATASET, collect_runs
from foretail.pipelines.experiment.cases import measure_cases
from foretail.pipelines.exporting.network import predictor_to_store
from foretail.pipelines.families.conditions import Condition, Rule, SharingPlan
from foretail.pipelines.families.costs import CS
from foretail.pipelines.runs.store import Key, Store, file_digest
from foretail.pipelines.settings.compose import compose_policies
from foretail.pipelines.settings.rules import LEARNED
from foretail.pipelines.tracking.loading import load_predictor
from foretail.sim_bridge.packets.simulation import PacketRun
from foretail_studies.costs import labels
from foretail_studies.costs.branching import (
    Branching,
    FlipCase,
    LabelledRun,
    drawn_arrivals,
    measured_branches,
    parts,
    require_losses,
)
from foretail_studies.costs.cost_trees import fit_cost_trees
from foretail_studies.costs.labels import cost_labels, gains
from foretail_studies.costs.settings import CostSettings
from foretail_studies.search.budget import Budget
from foretail_studies.search.simulations import Simulations

BRANCHES, COSTS = "drop_cost_branches", "drop_costs"
"""Folders of the store: costs of branches, and the labels of a run as a dataset."""


@dataclass(frozen=True)
class Candidate:
    """The trees with a limit, on the validation seeds."""

    drops_above: float | None  #: log J that a drop must gain; None: Complete Sharing, which asks nobody
    dropped_share: float | None  #: of the arrivals that the labelled ones stand for
    cost: float  #: J, geometric mean over conditions and seeds
    less_sharing: PairedDifference  #: log J less that of Complete Sharing, mean over conditions, paired by seed


@dataclass(frozen=True)
class Labelled:
    """Runs with the labels of their drawn arrivals."""

    runs: Sequence[tuple[LabelledRun, Dataset, pd.DataFrame]]
    points: int  #: of branches
    reused: int  #: so many of them were in the store
    budget: Budget  #: of traces and branches

    @property
    def frame(self) -> pd.DataFrame:
        """All labels, with their runs."""
        return pd.concat([frame for _, _, frame in self.runs], ignore_index=True)

    def log(self, run: TrackedRun) -> None:
        """Name the datasets as what a run in MLflow was given."""
        for one, dataset, _ in self.runs:
            manifest = dataset.manifest
            run.log_dataset(
                str(one),
                manifest.content_sha256,
                traffic_sha256(manifest),
                str(dataset.path),
                manifest.rows,
                manifest.drops,
                "train",
            )


@dataclass(frozen=True)
class Learning:
    """Everything with which labels are collected and trees tried: conditions of training families, and the store."""

    settings: CostSettings
    plan: SharingPlan  #: all conditions that are simulated
    wheres: Sequence[Condition]  #: those that are labelled
    simulations: Simulations
    store: Store

    @classmethod
    def of(cls, settings: CostSettings, store: Store) -> Learning:
        """Compose it; ForetailError on unknown conditions, or cells of several sizes."""
        plan = SharingPlan.of(settings, settings.shared, settings.training(), {CS.policy: {}})
        named = conditions_of(settings.conditions, plan, "conditions")
        conditions = named or [next(one) for _, one in groupby(plan.scenarios, key=lambda condition: condition.family)]
        return cls(settings, plan, conditions, Simulations.of(settings, plan, conditions, store), store)

    def labelled(self, policies: Mapping[str, Policy]) -> Labelled:
        """Draw arrivals of every run under these policies, measure branches and keep the labels as datasets."""
        settings, plan = self.settings, self.plan
        scenarios = {
            condition: replace(plan.scenarios[condition], traffic_ns=min(whole.traffic_ns, settings.traffic_ns))
            for condition in self.wheres
            for whole in (plan.scenarios[condition],)
        }
        branching = Branching(scenarios, policies, settings.repeats, settings.repeat_ns, plan.simulators, plan.code)
        drawn: dict[tuple[LabelledRun, int], pd.DataFrame] = {}
        traces: dict[LabelledRun, Dataset] = {}
        cases: list[FlipCase] = []
        for condition, scenario in scenarios.items():
            for name, policy in policies.items():
                for collected in collect_runs(settings, scenario, policy, settings.seeds):
                    run = LabelledRun(condition.family, condition.condition, name, collected.seed)
                    whole = PacketRun.open(collected.path / "run")
                    drops = sum(n for reason, n in collected.counters.items() if reason.startswith("data_drops."))
                    require_losses(run, whole.flows(), drops)
                    traces[run] = Dataset.open(collected.path)
                    for hold_ns, count in ((0, settings.flips), (whole.summary["base_rtt_ns"], settings.held_flips)):
                        if count:
                            rows = drawn_arrivals(traces[run], count, [settings.seed, run.seed, int(hold_ns > 0)])
                            drawn[run, hold_ns] = rows
                            cases += parts(run, hold_ns, rows, settings.flips_per_point)
        measured = measure_cases(
            "drop costs",
            BRANCHES,
            cases,
            settings,
            name=str,
            depends_on=branching.depends_on,
            measure=partial(measured_branches, plan=branching),
        )
        kept: list[tuple[LabelledRun, Dataset, pd.DataFrame]] = []
        budget = Budget()
        for run, trace in traces.items():
            traffic_ns = scenarios[run.where].traffic_ns
            budget += Budget(1, 0, traffic_ns)
            mine = [
                (case, one, e.digest)
                for case, one, e in zip(cases, measured.measurements, measured.entries, strict=True)
                if case.run == run
            ]
            for _, one, _ in mine:  # the run itself is among them
                budget += Budget(1, len(one) - 1, len(one) * traffic_ns)
            frames = [
                cost_labels(
                    rows,
                    [branch for case, one, _ in mine if case.hold_ns == hold for branch in one],
                    hold,
                    settings.repeats,
                )
                for (of_run, hold), rows in drawn.items()
                if of_run == run
            ]
            labelled = pd.concat(frames).sort_values(["arrival", "hold_ns"], ignore_index=True)
            key = Key(
                COSTS,
                {
                    "trace": trace.manifest.content_sha256,
                    "points": [digest for _, _, digest in mine],
                    "code": [file_digest(Path(labels.__file__)), code_digest(write_drop_costs)],
                },
            )
            described = Run(**{field.name: getattr(trace.manifest, field.name) for field in fields(Run)})
            entry = self.store.get_or_build(key, partial(_write, described, labelled))
            kept.append((run, Dataset.open(entry.path / DATASET), labelled.assign(**asdict(run))))
        return Labelled(kept, len(cases), measured.reused, budget)

    def trees(self, labelled: pd.DataFrame) -> Ensemble:
        """Trees whose sum is what dropping gains, from labels."""
        settings = self.settings
        chosen = [feature(name) for name in settings.columns]
        inputs = [FeatureInput(one.name, one.params(self.simulations.cell_bytes, 0), one.bits) for one in chosen]
        return fit_cost_trees(
            labelled[settings.columns].to_numpy(np.int32),
            gains(labelled, settings.clip_percent),
            inputs,
            trees=settings.trees,
            depth=settings.depth,
            learning_rate=settings.learning_rate,
            fewest_rows=settings.fewest_flips,
            seed=settings.seed,
        )

    def candidates(
        self, trees: Ensemble, labelled: pd.DataFrame, named: str = ""
    ) -> tuple[tuple[Candidate, ...], Ensemble]:
        """The trees with each limit and Complete Sharing, on the validation seeds; and the best trees.

        `named` begins the names of rules, which are distinct among all that one search tries.
        """
        settings, simulations = self.settings, self.simulations
        predicted = trees.float_sum(labelled[settings.columns].to_numpy(np.int32))
        single = (labelled["hold_ns"] == 0).to_numpy()
        stands_for = labelled["arrivals"].to_numpy(float)[single]
        order = np.argsort(-predicted[single], kind="stable")
        above = np.cumsum(stands_for[order]) / stands_for.sum()
        limits = {0.0}
        for share in settings.drop_shares:
            place = min(int(np.searchsorted(above, share)), len(order) - 1)
            limits.add(float(predicted[single][order][place]))
        limited = {
            Rule(LEARNED, f"{named}above {limit:.6g}"): (limit, trees.with_threshold(Fraction(limit)))
            for limit in sorted(limits)
        }
        tried = {**{rule: tree for rule, (_, tree) in limited.items()}, CS: None}
        levels = simulations.levels(tried, self.wheres, settings.validation_seeds)

        def candidate(rule: Rule, limit: float | None) -> Candidate:
            share = None if limit is None else float(stands_for[predicted[single] > limit].sum() / stands_for.sum())
            less = simulations.costs.family_difference(self.wheres, rule, CS)
            return Candidate(limit, share, math.exp(levels[rule]), less)

        ranked = sorted(limited, key=lambda rule: levels[rule])
        candidates = [candidate(rule, limited[rule][0]) for rule in ranked]
        return (*candidates, candidate(CS, None)), limited[ranked[0]][1]


def labelled_policies(settings: CostSettings, store: Store) -> dict[str, Policy]:
    """The policies whose decisions are turned, by name; those that ask a predictor ask the model of the settings.

    ForetailError when one asks and there is no model, or the other way round.
    """
    policies = compose_policies(settings.policies, "policies")
    asking = [name for name, policy in policies.items() if policy.asks_exported_model]
    if not asking and settings.model is not None:
        raise ForetailError(f"policies names none that asks model={settings.model}: add one, such as learned")
    if asking and settings.model is None:
        raise ForetailError(
            f"policies names {asking[0]}, which asks a predictor, and there is none: give model=FILE or "
            "model=models:/NAME@ALIAS"
        )
    if settings.model is None:
        return policies
    predictor = predictor_to_store(load_predictor(settings.model, settings.tracking, store), store)
    return policies | {name: policies[name].ask(predictor.library) for name in asking}


def conditions_of(names: Sequence[str], plan: SharingPlan, where: str) -> list[Condition]:
    """Conditions of training families by their names; ForetailError on one that is none."""
    known = {str(condition): condition for condition in plan.scenarios}
    for name in names:
        if name not in known:
            raise ForetailError(f"{where} names {name}, which is none of training: {', '.join(known)}")
    return [known[name] for name in names]


def _write(run: Run, labelled: pd.DataFrame, folder: Path) -> None:
    write_drop_costs(folder / DATASET, run, labelled)
