"""Drop predictors on runs and conditions that they never saw, open loop and closed loop, and the champion.

Conditions and candidates are overrides as on the command line: every row can be had alone, with ``foretail collect`` or
``foretail train`` and the overrides of its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import SimulatedPointSettings
from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.networks import Network
from foretail.configs.schema.scenario import Scenario
from foretail.configs.schema.training import Split
from foretail.core.errors import ForetailError
from foretail.core.json_text import flat
from foretail.core.settings import part, require_seeds, seed_setting, setting
from foretail.features.catalog import PAPER_FEATURES, training_columns
from foretail.features.dataset.reader import Dataset
from foretail.features.rows import splits
from foretail.features.rows.labelled_rows import ALONE
from foretail.models.drop.predictor import TreePredictor
from foretail.pipelines.comparison.flows import FlowsResult, evaluate_policies
from foretail.pipelines.comparison.policy_runs import PolicyRun
from foretail.pipelines.comparison.statistics import interval_text
from foretail.pipelines.data.collecting import collect_runs
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown
from foretail.pipelines.exporting.predictor import export_to_store
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_policies, compose_policy, compose_settings, compose_training
from foretail.pipelines.settings.predictors import predictor_class, untrained
from foretail.pipelines.training.fitting import TrainResult, train_model
from foretail.sim_bridge.open_loop.scores import SentScores
from foretail_studies.predictors.held_out import (
    ACCEPT,
    SHOWN,
    HeldOut,
    Promotion,
    judge_held_out,
    leakage,
    promote_best,
    shift_row,
    shift_tables,
)
from foretail_studies.predictors.label_study import LQD, LabelStudy, label_study


@dataclass
class ClosedLoop:
    """Simulations of a study in which Credence asks the candidates."""

    conditions: list[str] = setting([], "Conditions of the study; an empty list runs no simulations.")
    candidates: list[str] = setting([], "Candidates, which must be trees.")
    policies: list[str] = setting(
        ["lqd", "credence_accept", "followlqd", "dt"], "Policies to run beside them; lqd has to be among them."
    )
    seeds: list[int] = seed_setting([], "Traffic seeds on which no candidate trained.")


@dataclass
class Shift:
    """A candidate that trains under each condition alone and is tested under all of them."""

    conditions: list[str] = setting([], "Conditions of the study; an empty list makes no shift matrix.")
    candidate: str = setting("ours", "Candidate of the study.")
    seeds: list[int] = seed_setting([], "Traffic seeds of the closed loop; an empty list means open loop only.")


@dataclass
class StudySettings(SimulatedPointSettings):
    """Predictors on runs and conditions that they never saw; overrides are written as on the command line."""

    shared: list[str] = setting(["scenario=leafspine_small"], "Overrides that all conditions share.")
    conditions: dict[str, list[str]] = setting(MISSING, "Overrides of each condition, by its name.")
    train_on: list[str] = setting(MISSING, "Conditions whose runs train; the others are new to every candidate.")
    split: Split = part(Split, "Seeds of the runs, split by run.")
    candidates: dict[str, list[str]] = setting(MISSING, "Overrides of foretail train, by the candidate's name.")
    closed_loop: ClosedLoop = part(ClosedLoop, "Settings of the runs in closed loop.")
    shift: Shift = part(Shift, "Settings of the shift matrix.")
    forest_sizes: list[int] = setting([1, 2, 4, 8, 16, 32], "Numbers of trees of Figure 15.", at_least=1)
    labels: list[str] = setting(
        [],
        "Policies beside lqd whose runs the label study compares, the last of them asking a candidate; an "
        "empty list means none.",
    )
    label_candidate: str = setting("forest", "Candidate of the label study, which must be trees.")
    budget: list[str] = setting(
        [],
        "Candidates that fit a switch, of which the best on validation runs is proposed as champion; an "
        "empty list proposes none.",
    )

    def check(self, where: str) -> None:
        """Raise ForetailError on names that mean nothing here, and on seeds that have two roles."""
        super().check(where)
        if self.split.name != "by_run":
            raise ForetailError(f"split is {self.split.name}: a study holds whole runs out, use by_run")
        for name, known in (("conditions", self.conditions), ("candidates", self.candidates)):
            if not known:
                raise ForetailError(f"{name} is empty: name at least one")
        if not self.train_on:
            raise ForetailError("train_on is empty: name conditions to train on")
        for name, given, known in (
            ("train_on", self.train_on, self.conditions),
            ("closed_loop.conditions", self.closed_loop.conditions, self.conditions),
            ("closed_loop.candidates", self.closed_loop.candidates, self.candidates),
            ("shift.conditions", self.shift.conditions, self.conditions),
            ("shift.candidate", [self.shift.candidate] if self.shift.conditions else [], self.candidates),
            ("label_candidate", [self.label_candidate] if self.labels else [], self.candidates),
            ("budget", self.budget, self.candidates),
        ):
            for item in given:
                if item not in known:
                    raise ForetailError(f"{name} names {item}, which is not among {', '.join(known)}")
        for name, simulated in (("closed_loop", self.closed_loop.seeds), ("shift", self.shift.seeds)):
            self.split.require_unseen(f"{name}.seeds and the split", simulated, "simulate other seeds")
        if self.closed_loop.conditions:
            require_seeds("closed_loop.seeds", self.closed_loop.seeds)
            if "lqd" not in self.closed_loop.policies:
                raise ForetailError("closed_loop.policies lacks lqd, to which all are compared: add it")
        if self.budget and not self.tracking.enabled:
            raise ForetailError("budget makes a champion in MLflow, and tracking is off: turn it on or empty it")


CREDENCE = "credence"
PAPER_DEPTH = 4
CLOSED_LOOP_METRICS = (
    ("incast p95", "slowdown.incast.p95"),
    ("incast p50", "slowdown.incast.p50"),
    ("short p95", "slowdown.short.p95"),
    ("long p95", "slowdown.long.p95"),
    ("timed out %", "timed_out_percent"),
)


@dataclass(frozen=True)
class Condition:
    """A scenario of the study and its runs."""

    scenario: Scenario  #: what is simulated
    network: Network  #: that simulates it
    seen: bool  #: candidates train on runs of it
    runs: Mapping[int, Dataset]  #: datasets by seed

    def simulated(self, settings: StudySettings) -> StudySettings:
        """The settings with which it is simulated."""
        return replace(settings, network=self.network)

    def of(self, seeds: Sequence[int]) -> list[Dataset]:
        """The datasets of some seeds."""
        return [self.runs[seed] for seed in seeds]


@dataclass(frozen=True)
class Studied:
    """A finished study."""

    settings: StudySettings
    conditions: Mapping[str, Condition]  #: by name
    trained: Mapping[str, TrainResult]  #: candidates by name
    held_out: Sequence[HeldOut]  #: what every candidate does on every held-out run, and always accepting
    closed_loop: Mapping[str, FlowsResult]  #: by condition
    shift: Sequence[Mapping[str, Any]]  #: scores of predictors that trained under one condition each
    leakage: Sequence[Mapping[str, Any]]  #: scores by number of trees and kind of split
    labels: LabelStudy | None  #: the label study; None where none is wanted
    #: the gate that the best candidate of the budget went through; None where none is wanted
    promotion: Promotion | None

    def details(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        return {
            "conditions": {
                name: {
                    "overrides": self.settings.conditions[name],
                    "seen": condition.seen,
                    "datasets": {
                        str(seed): {"path": run.path, "content_sha256": run.manifest.content_sha256}
                        for seed, run in condition.runs.items()
                    },
                }
                for name, condition in self.conditions.items()
            },
            "candidates": {
                name: {"overrides": self.settings.candidates[name]} | result.document()
                for name, result in self.trained.items()
            },
            "held_out": [asdict(judged) for judged in self.held_out],
            "closed_loop": {name: flows.document() for name, flows in self.closed_loop.items()},
            "shift": list(self.shift),
            "leakage": list(self.leakage),
            "labels": None if self.labels is None else self.labels.document(),
            "promotion": None if self.promotion is None else self.promotion.document(),
        }

    def shown(self) -> Shown:
        """Return the scores of every candidate on every held-out run."""
        rows = [{"f1": one.asked.f1, **dict(flat(asdict(one)))} for one in self.held_out]
        return Shown(pd.DataFrame(rows), self.tables(), verdict=self.verdict(), details=self.details())

    def verdict(self) -> list[str]:
        """Name the best candidate on held-out runs, in seen and in new conditions, and the verdict of the gate."""
        replays = {
            seen: {
                name: SentScores.together([run.replay for run in runs])
                for name in self.trained
                if (runs := [run for run in self.held_out if run.candidate == name and run.seen == seen])
            }
            for seen in (True, False)
        }
        recovered = {name: replay.recovered_loss for name, replay in replays[True].items()}
        known = {name: value for name, value in recovered.items() if value is not None}
        if not known:
            return ["Always accepting loses nothing against LQD on the held-out runs, so there is nothing to recover."]
        best = max(known, key=lambda name: known[name])
        share = f"{100 * known[best]:.3g} %"
        first = (
            f"On held-out runs {best} recovers the largest share of what always accepting loses, {share}"
            if known[best] > 0
            else f"On held-out runs no predictor recovers what always accepting loses; {best} comes closest, {share}"
        )
        new = replays[False].get(best)
        if new is not None and new.recovered_loss is not None:
            first += f"; under new conditions {100 * new.recovered_loss:.3g} %"
        if self.promotion is None:
            return [f"{first}.", "None was put up for champion."]
        chosen, gate = self.promotion.chosen, self.promotion.gate
        if gate is None:
            return [f"{first}.", f"{chosen} was champion already."]
        return [f"{first}.", *gate.verdict()[:1]]

    def tables(self) -> list[Table]:
        """Held-out scores, closed loop, leakage, shift, labels, champion."""
        parts = [part for part in (self.labels, self.promotion) if part is not None]
        more = [table for part in parts for table in part.tables()]
        return [self._scores(), *self._flows(), self._leakage(), *shift_tables(self.shift), *more]

    def _scores(self) -> Table:
        rows = []
        for seen in (True, False):
            for name in (ACCEPT, *self.trained):
                runs = [run for run in self.held_out if run.candidate == name and run.seen == seen]
                if runs:
                    which = {"candidate": name, "conditions": "seen" if seen else "new", "runs": len(runs)}
                    rows.append({**which, **HeldOut.together(runs)})
        return Table.of_rows(
            "Predictors on held-out runs",
            rows,
            "Runs of other seeds than train and validation, under conditions that candidates trained on (seen) or not "
            "(new). Counts of the runs are added up; F1 per run is the mean over runs with a 95 % t interval.",
        )

    def _flows(self) -> Iterator[Table]:
        for condition, flows in self.closed_loop.items():
            less_lqd = flows.differences(CLOSED_LOOP_METRICS[0][1], "lqd")
            rows = [
                {
                    "policy": policy,
                    **{title: flows.means(metric)[policy].mean for title, metric in CLOSED_LOOP_METRICS},
                    "incast p95 - LQD": "-" if policy == "lqd" else interval_text(less_lqd[policy]),
                    "predicted drops %": _share(flows, policy, "predicted"),
                    "threshold drops %": _share(flows, policy, "over_threshold"),
                }
                for policy in flows.policies
            ]
            seeds = ", ".join(str(seed) for seed in sorted({run.seed for run in flows.runs}))
            yield Table.of_rows(
                f"Closed loop, condition {condition}",
                rows,
                f"FCT slowdown, means over seeds {seeds}; differences paired by seed, 95 % t intervals; the last "
                "columns are shares of all data drops, by the predictor and by the thresholds.",
            )

    def _leakage(self) -> Table:
        return Table.of_frame(
            "What a split of rows pretends (Figure 15)",
            pd.DataFrame(self.leakage),
            {name: name for name in ("split", "trees", *SHOWN)},
            "The paper's features and depth, threshold one half. Split by row is what the paper did.",
        )


def _share(flows: FlowsResult, policy: str, reason: str) -> float | None:
    runs = [run.counters for run in flows.runs if run.policy == policy]
    total = sum(value for counters in runs for name, value in counters.items() if name.startswith("data_drops."))
    return 100 * sum(counters.get(f"data_drops.{reason}", 0) for counters in runs) / total if total else None


def studied(settings: StudySettings, run: Run) -> Studied:
    """Collect, train, judge, simulate and choose; with tracking every training and promotion is a run inside."""
    settings = replace(settings, tracking=run.inside(settings.tracking))
    store = run.store
    composed = {name: _composed(settings, name) for name in settings.conditions}
    candidates = {name: _train_config(settings, name) for name in settings.candidates}
    if settings.labels:
        _check_label_candidate(settings.label_candidate, candidates[settings.label_candidate])
    conditions = {name: _collected(settings, name, one) for name, one in composed.items()}
    seen = [
        str(conditions[name].runs[seed].path)
        for name in settings.train_on
        for seed in (*settings.split.train, *settings.split.validation, *settings.split.test)
    ]
    trained = {name: train_model(replace(candidate, datasets=seen)) for name, candidate in candidates.items()}
    held_out = [
        judged
        for name, condition in conditions.items()
        for judged in judge_held_out(
            settings, condition.of(settings.split.test), name, condition.seen, trained, candidates
        )
    ]
    closed_loop = {
        name: _closed_loop(settings, conditions[name], trained, store) for name in settings.closed_loop.conditions
    }
    shift = _shifted(settings, conditions, store)
    leaked = _leaked(settings, conditions)
    labels = _label_study(settings, conditions, trained, store) if settings.labels else None
    promotion = _promoted(settings, conditions, trained, candidates, run)
    return Studied(settings, conditions, trained, held_out, closed_loop, shift, leaked, labels, promotion)


STUDY = FunctionExperiment(StudySettings, lambda settings, run: studied(settings, run).shown())


def _shifted(settings: StudySettings, conditions: Mapping[str, Condition], store: Store) -> list[dict[str, Any]]:
    """The candidate of the shift matrix, trained under each of its conditions alone and tested under all of them."""
    chosen, rows = settings.shift.candidate, []
    candidate = _train_config(settings, chosen)
    for one in settings.shift.conditions:
        paths = [str(run.path) for run in conditions[one].runs.values()]
        trained = {f"{chosen} on {one}": train_model(replace(candidate, datasets=paths))}
        for other in settings.shift.conditions:
            condition, flows = conditions[other], None
            runs = condition.of(settings.split.test)
            judged = judge_held_out(settings, runs, other, one == other, trained, dict.fromkeys(trained, candidate))
            if settings.shift.seeds:
                predictor = export_to_store(trained[f"{chosen} on {one}"].ensemble, store)
                policies, config = compose_policies(["lqd", CREDENCE], "policies"), condition.simulated(settings)
                flows = evaluate_policies(config, condition.scenario, policies, settings.shift.seeds, predictor)
            rows.append(shift_row(one, other, [run for run in judged if run.candidate in trained], flows))
    return rows


def _leaked(settings: StudySettings, conditions: Mapping[str, Condition]) -> list[dict[str, Any]]:
    """Figure 15 on the first training run, with the paper's features on LQD's own queues."""
    runs = conditions[settings.train_on[0]].runs
    return leakage(
        runs[settings.split.train[0]],
        conditions[settings.train_on[0]].of(settings.split.test),
        training_columns(PAPER_FEATURES, own_queues=True),
        settings.forest_sizes,
        PAPER_DEPTH,
        seed=1,
    )


def _composed(settings: StudySettings, name: str) -> TrainConfig:
    """A condition, whose scenario and network count."""
    overrides = [settings.network.override, *settings.shared, *settings.conditions[name]]
    return compose_settings(TrainConfig, overrides, f"conditions.{name}")


def _train_config(settings: StudySettings, name: str) -> TrainConfig:
    candidate = compose_training(settings, settings.candidates[name], f"candidates.{name}")
    return replace(candidate, split=settings.split)


def _collected(settings: StudySettings, name: str, composed: TrainConfig) -> Condition:
    seen = name in settings.train_on
    split = settings.split
    trains = seen or name in settings.shift.conditions
    seeds = [*split.train, *split.validation, *split.test] if trains else split.test
    lqd = compose_settings(TrainConfig, ["policy=lqd"], "policy").policy["lqd"]
    scenario, network = composed.scenario, composed.network
    runs = collect_runs(replace(settings, network=network), scenario, lqd, seeds)
    return Condition(scenario, network, seen, {run.seed: Dataset.open(run.path) for run in runs})


def _closed_loop(
    settings: StudySettings, condition: Condition, trained: Mapping[str, TrainResult], store: Store
) -> FlowsResult:
    """The baselines, and Credence asking each candidate, on the same flows."""
    seeds, scenario, config = settings.closed_loop.seeds, condition.scenario, condition.simulated(settings)
    policies = compose_policies(settings.closed_loop.policies, "closed_loop.policies")
    asking = compose_policy(CREDENCE, "policies")
    runs: list[PolicyRun] = []
    runs += evaluate_policies(config, scenario, policies, seeds).runs
    for name in settings.closed_loop.candidates:
        predictor = export_to_store(trained[name].ensemble, store)
        runs += evaluate_policies(config, scenario, {f"credence, {name}": asking}, seeds, predictor).runs
    return FlowsResult(tuple(runs), (), None)


def _check_label_candidate(name: str, candidate: TrainConfig) -> None:
    """Before hours of work: whether the label study can train it, on its own features and on the paper's."""
    if not issubclass(predictor_class(candidate.predictor), TreePredictor):
        raise ForetailError(f"the label study trains trees, and {name} are none: name trees")
    of_a_split = candidate.predictor.get("features_per_split") or 0
    if of_a_split > len(PAPER_FEATURES):
        raise ForetailError(
            f"the label study also trains {name} on the paper's {len(PAPER_FEATURES)} features, and its "
            f"predictor.features_per_split is {of_a_split}: choose another label_candidate"
        )


def _label_study(
    settings: StudySettings, conditions: Mapping[str, Condition], trained: Mapping[str, TrainResult], store: Store
) -> LabelStudy:
    """On the first condition: runs under LQD, and under other policies, the last of which asks the candidate."""
    condition, split = conditions[settings.train_on[0]], settings.split
    candidate = _train_config(settings, settings.label_candidate)
    policies = compose_policies(settings.labels, "labels")
    deployed = settings.labels[-1]
    library = export_to_store(trained[settings.label_candidate].ensemble, store).library
    policies[deployed] = policies[deployed].ask(library)
    seeds = [*split.train, *split.validation, *split.test]
    runs = {LQD: list(condition.runs.values())}
    for name, policy in policies.items():
        collected = collect_runs(condition.simulated(settings), condition.scenario, policy, seeds)
        runs[name] = [Dataset.open(run.path) for run in collected]

    def make() -> TreePredictor:
        predictor = untrained(candidate.predictor, candidate.trainer, ALONE)
        assert isinstance(predictor, TreePredictor)
        return predictor

    return label_study(
        {name: splits.split_by_seed(of, split.train, split.validation, split.test) for name, of in runs.items()},
        make,
        candidate.features.names,
        deployed=deployed,
    )


def _promoted(
    settings: StudySettings,
    conditions: Mapping[str, Condition],
    trained: Mapping[str, TrainResult],
    candidates: Mapping[str, TrainConfig],
    run: Run,
) -> Promotion | None:
    """Chosen on the validation runs, judged by the gate on all test runs."""
    if not settings.budget:
        return None
    within = {name: trained[name] for name in settings.budget}
    validation = [
        judged
        for name in settings.train_on
        for judged in judge_held_out(
            settings, conditions[name].of(settings.split.validation), name, True, within, candidates
        )
    ]
    held_out = [dataset for one in conditions.values() for dataset in one.of(settings.split.test)]
    return promote_best(within, validation, held_out, settings.tracking, settings.store_dir, run.folder)
