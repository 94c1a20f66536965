"""Policies under several conditions, beside the claims of the Credence paper: its Figures 6 to 10.

Every condition, policy, share of inverted predictions and seed is a point, simulated on its own and kept in the store:
a sweep that was stopped goes on where it was; a point that failed is named and is all that the next run repeats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import SimulatedPointSettings
from foretail.configs.schema.fields import part, setting
from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.policies import ASKING, Policy
from foretail.configs.schema.scenario import Scenario
from foretail.configs.schema.tracking import Tracking
from foretail.configs.schema.training import Split
from foretail.core.errors import ForetailError
from foretail.models.ensemble.ensemble import Ensemble
from foretail.pipelines.comparison.bootstrap import BLOCK_NS, DRAWS, FlowSample, Resampled, interval, resample
from foretail.pipelines.comparison.flows import say_unasked
from foretail.pipelines.comparison.policy_runs import PolicyRun, Simulation, check_same_flows, simulate
from foretail.pipelines.comparison.predictions import ASKED_COLUMNS
from foretail.pipelines.comparison.statistics import FLOW_GROUPS, interval_text, mean_interval
from foretail.pipelines.data.simulation import Simulator, simulators_of
from foretail.pipelines.errors import PointsFailed
from foretail.pipelines.experiment.declaration import Drawn, FunctionExperiment, Run, Shown
from foretail.pipelines.exporting.predictor import ExportedPredictor, export_to_store
from foretail.pipelines.runs.jobs import run_points
from foretail.pipelines.runs.result import Cell, Table
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_policies, compose_settings, compose_training
from foretail.pipelines.tracking.loading import load_model
from foretail.pipelines.tracking.seen import seen_seeds
from foretail.pipelines.training.fitting import train_model
from foretail.pipelines.training.outcome import TrainResult
from foretail.sim_bridge.packets.simulation import PacketRun
from foretail.sim_bridge.policies import policy_name
from foretail_studies.flows.figures import CAPTIONS, draw_distributions, draw_lines
from foretail_studies.flows.verdicts import MEASURES, claims_table, conclusion, tolerance_table

LQD, OURS, GIVEN = "lqd", "ours", "given"
SCALARS = ("occupancy_percent.p99", "occupancy_percent.p99.99", "drops", "timeouts", "unfinished")
"""Figures of a run as a whole."""
CDF_POINTS = 500
QUESTIONS = ("asked", "predicted_drops")
"""Of a run, NaN where the policy asks no predictor."""


@dataclass
class FlowSettings(SimulatedPointSettings):
    """Flows in a network: every condition, policy, share of flips and seed is a point.

    Overrides are written as on the command line: of the scenario in ``shared`` and ``conditions``, of
    ``foretail train`` in ``models`` and ``train``.
    """

    axis: str = setting(MISSING, "Axis along which conditions or flips vary, as figures name it.")
    shared: list[str] = setting(MISSING, "Overrides that all conditions and the training share.")
    conditions: dict[str, list[str]] = setting(MISSING, "Overrides of each condition, by its name.")
    policies: list[str] = setting(MISSING, "Options of the group policy, without a model; lqd has to be among them.")
    asking: list[str] = setting(["credence"], "Policies that ask the models; credence has to be among them.")
    models: dict[str, list[str]] = setting(MISSING, "Overrides of each model that these policies ask, by its name.")
    train: list[str] = setting(MISSING, "Overrides of the scenario on which models train.")
    split: Split = part(Split, "Seeds of the training runs, split by run.")
    model: str | None = setting(None, "Model, as in export, that takes the place of ours; null trains all.")
    flip_probabilities: list[float] = setting(
        [0.0], "Shares of the models' predictions that are inverted.", at_least=0, at_most=1
    )
    seeds: list[int] = setting(MISSING, "Traffic seeds, none of the split.", at_least=1, at_most=2**31 - 1)

    def check(self, where: str) -> None:
        """Raise ForetailError on conditions, policies or seeds that cannot be compared."""
        super().check(where)
        if not self.conditions:
            raise ForetailError("conditions is empty: name at least one")
        if "lqd" not in self.policies:
            raise ForetailError("policies lacks lqd, to which all are compared: add it")
        for name in ASKING:
            if name in self.policies:
                raise ForetailError(f"policies names {name}, which asks a model: name models in models")
        if "credence" not in self.asking or not set(self.asking) <= set(ASKING):
            raise ForetailError(
                f"asking = {', '.join(self.asking)}: give credence, and beside it any of "
                f"{', '.join(name for name in ASKING if name != 'credence')}"
            )
        if self.split.name != "by_run":
            raise ForetailError(f"split is {self.split.name}: models train on whole runs, use by_run")
        self.split.require_unseen("seeds and its split", self.seeds, "simulate seeds that did not train")


@dataclass(frozen=True)
class FlowPoint:
    """A simulation of the sweep."""

    condition: str  #: its name
    policy: str  #: name without the share of inverted predictions
    flip_probability: float  #: that share
    simulation: Simulation  #: what is simulated, under the full name of the policy

    @property
    def name(self) -> str:
        """For progress and errors."""
        return f"{self.condition}: {self.simulation.policy}, seed {self.simulation.seed}"


@dataclass(frozen=True, eq=False)
class FlowFindings:
    """What an experiment found."""

    experiment: FlowSettings  #: its settings
    points: pd.DataFrame  #: one row per finished point
    conditions: Mapping[str, Resampled]  #: figures with their draws, by condition
    figures: pd.DataFrame  #: one row per condition, policy and metric, with intervals
    quantiles: pd.DataFrame  #: of slowdown, by condition, policy and group
    #: what Credence asked: the training's figures, by name; None for a given model
    models: Mapping[str, TrainResult | None]
    failed: Mapping[str, str]  #: a sentence for each point that failed, by its name

    def shown(self) -> Shown:
        """Figures with their numbers, tables and claims of the paper."""
        name = self.experiment.experiment
        return Shown(
            self.points,
            self.tables(),
            {
                "": Drawn(draw_lines(self.figures, self.experiment.axis), CAPTIONS["figure"], self.figures),
                "distributions": Drawn(draw_distributions(self.quantiles), CAPTIONS["distributions"], self.quantiles),
            },
            notes=self._notes(),
            verdict=conclusion(name, self.conditions, list(self.models)),
            details={
                "figures": self.figures.to_dict("records"),
                "models": {model: trained and trained.document() for model, trained in self.models.items()},
            },
            failed=self.failed,
            points=len(self.points) + len(self.failed),
        )

    def tables(self) -> list[Table]:
        """Figures, claims of the paper, flips, files."""
        models, experiment = list(self.models), self.experiment.experiment
        tables = [self._figures(), claims_table(experiment, self.conditions, models)]
        if len(self.experiment.flip_probabilities) > 1:
            shares = sorted(self.experiment.flip_probabilities)
            names = [f"{policy}, {model}" for policy in self.experiment.asking for model in models]
            flipped = {name: {share: _flipped(name, share) for share in shares} for name in names}
            tables += [tolerance_table(found, flipped) for found in self.conditions.values()]
        return tables

    def _figures(self) -> Table:
        rows: list[tuple[Cell, ...]] = []
        names = map(_flipped, self.points["policy"], self.points["flip_probability"])
        by_policy = self.points.assign(policy=list(names)).groupby(["condition", "policy"])
        questions = {name: by_policy[name].mean().to_dict() for name in QUESTIONS}
        for condition, found in self.conditions.items():
            for policy in found.policies:
                asked = (questions[name][(condition, policy)] for name in QUESTIONS)
                cells: list[Cell] = [found.figure(policy, metric).mean for _, metric in MEASURES]
                cells += [
                    "-" if policy == LQD else interval_text(found.difference(policy, LQD, metric))
                    for _, metric in MEASURES
                ]
                rows.append((condition, policy, *cells, found.figure(policy, "unfinished").mean, *asked))
        titles = [title for title, _ in MEASURES]
        return Table(
            f"{self.experiment.experiment}: FCT slowdown by {self.experiment.axis}",
            ("condition", "policy", *titles, *(f"{title} - LQD" for title in titles), "unfinished", *ASKED_COLUMNS),
            tuple(rows),
            (
                f"Means over seeds {', '.join(map(str, self.experiment.seeds))}, the same flows under every policy; "
                "slowdown is FCT over the ideal FCT of this topology, unfinished flows count with their age.",
                f"95 % bootstrap intervals of paired differences: {DRAWS:,} draws of seeds, and within them of blocks "
                f"of {BLOCK_NS / 1e6:g} ms of starts.",
            ),
        )

    def _notes(self) -> list[str]:
        reused = int(self.points["reused"].sum())
        speed = mean_interval(self.points["packets_per_cpu_second"].dropna().tolist()).mean
        notes = [
            f"{len(self.points):,} points, {reused:,} of them reused, {self.points['cpu_seconds'].sum():,.0f} CPU s"
        ]
        if speed is not None:
            notes[0] += f", {speed:,.0f} leaf data packets per CPU s"
        notes += [f"failed: {name}: {reason}" for name, reason in self.failed.items()]
        return notes


@dataclass(frozen=True)
class Plan:
    """Everything that is composed and checked before the first simulation."""

    scenarios: Mapping[str, Scenario]  #: by condition
    simulators: Mapping[str, Simulator]  #: by condition
    trainings: Mapping[str, TrainConfig]  #: of the models that the sweep trains, by name
    policies: Mapping[str, Policy]  #: by name
    given: Ensemble | None  #: the user's model, which takes the place of ours

    @classmethod
    def of(cls, settings: FlowSettings, store: Store) -> Plan:
        """Compose everything, and load the model that is given."""
        trainings, composed = _trainings(settings), _composed(settings)
        scenarios = {name: one.scenario for name, one in composed.items()}
        simulators = simulators_of(settings, {name: one.network for name, one in composed.items()})
        for name, training in trainings.items():
            for condition, scenario in scenarios.items():
                if scenario == training.scenario:
                    raise ForetailError(f"conditions.{condition} is what {name} trains on: change train")
        policies = compose_policies([*settings.policies, *settings.asking], "policies")
        given = None if settings.model is None else load_model(settings.model, settings.tracking, store)
        return cls(scenarios, simulators, trainings, policies, given)


def find(settings: FlowSettings, run: Run) -> FlowFindings:
    """Train the models, simulate what the store lacks, and compare by condition."""
    plan, store = Plan.of(settings, run.store), run.store
    scenarios = plan.scenarios
    tracking = run.inside(replace(settings.tracking, registered_model=None))  # these models are no candidates
    models, predictors = _models(tracking, plan, store)
    for condition, scenario in scenarios.items():
        seen_seeds(scenario, settings.seeds, condition)
    points = _points(settings, plan, predictors)
    runs, failed = _simulated(points, store, plan, settings)
    say_unasked(runs.values())
    conditions, quantiles = {}, []
    for position, condition in enumerate(scenarios):
        of_condition = [runs[point.name] for point in points if point.condition == condition and point.name in runs]
        check_same_flows(of_condition)
        samples = _samples(of_condition)
        if LQD in samples:
            conditions[condition] = resample(samples, position)
            quantiles.append(_quantiles(condition, samples))
    if not conditions:
        raise PointsFailed(f"no condition has all its runs: {next(iter(failed.values()))}")
    return FlowFindings(
        settings,
        _point_rows(points, runs),
        conditions,
        _figures(points, conditions),
        pd.concat(quantiles, ignore_index=True),
        models,
        failed,
    )


def _composed(settings: FlowSettings) -> dict[str, TrainConfig]:
    """Each condition, whose scenario and network count."""
    first = (settings.network.override, *settings.shared)
    return {
        name: compose_settings(TrainConfig, [*first, *overrides], f"conditions.{name}")
        for name, overrides in settings.conditions.items()
    }


def _trainings(settings: FlowSettings) -> dict[str, TrainConfig]:
    first = (settings.network.override, *settings.shared)
    return {
        name: replace(
            compose_training(settings, [*first, *settings.train, *overrides], f"models.{name}"),
            split=settings.split,
            jobs=settings.jobs,
        )
        for name, overrides in settings.models.items()
        if settings.model is None or name != OURS
    }


def _models(
    tracking: Tracking, plan: Plan, store: Store
) -> tuple[dict[str, TrainResult | None], dict[str, ExportedPredictor]]:
    """What Credence asks, by name: the trainings and the model that was given."""
    models: dict[str, TrainResult | None] = {}
    predictors: dict[str, ExportedPredictor] = {}
    if plan.given is not None:
        models[GIVEN] = None
        predictors[GIVEN] = export_to_store(plan.given, store)
    for name, training in plan.trainings.items():
        trained = train_model(replace(training, tracking=tracking))
        models[name] = trained
        predictors[name] = export_to_store(trained.ensemble, store)
    return models, predictors


def _flipped(policy: str, flip_probability: float) -> str:
    return f"{policy}, {flip_probability:g} inverted" if flip_probability else policy


def _points(settings: FlowSettings, plan: Plan, predictors: Mapping[str, ExportedPredictor]) -> list[FlowPoint]:
    points, policies = [], plan.policies
    for condition, scenario in plan.scenarios.items():
        simulator = plan.simulators[condition]
        for seed in settings.seeds:
            for name in map(policy_name, settings.policies):
                simulation = Simulation.of(name, scenario, policies[name], seed, None, simulator)
                points.append(FlowPoint(condition, name, 0.0, simulation))
            for (model, predictor), policy in product(predictors.items(), settings.asking):
                for share in settings.flip_probabilities:
                    name, flipped = f"{policy}, {model}", replace(policies[policy], flip_probability=share)
                    simulation = Simulation.of(_flipped(name, share), scenario, flipped, seed, predictor, simulator)
                    points.append(FlowPoint(condition, name, share, simulation))
    return points


def _simulated(
    points: Sequence[FlowPoint], store: Store, plan: Plan, settings: FlowSettings
) -> tuple[dict[str, PolicyRun], dict[str, str]]:
    """Runs and failures by the points' names; what the store lacks is simulated."""
    runs: dict[str, PolicyRun] = {}
    failed: dict[str, str] = {}
    missing = {}
    for point in points:
        try:
            entry = store.find(point.simulation.key)
            if entry is None:
                missing[point.name] = partial(simulate, point.simulation, store, plan.simulators[point.condition])
            else:
                runs[point.name] = point.simulation.opened(entry)
        except ForetailError as error:
            failed[point.name] = str(error)
    simulated, failures = run_points(settings.experiment, missing, settings.jobs, settings.launcher)
    return runs | simulated, failed | failures


def _samples(runs: Sequence[PolicyRun]) -> dict[str, dict[int, FlowSample]]:
    """Flows by policy, on the seeds that every policy with a run has."""
    policies = list(dict.fromkeys(run.policy for run in runs))
    whole = {seed for seed in {run.seed for run in runs} if sum(run.seed == seed for run in runs) == len(policies)}
    samples: dict[str, dict[int, FlowSample]] = {}
    for run in runs:
        if run.seed in whole:
            opened, metrics = PacketRun.open(run.path), run.metrics()
            scalars = {name: metrics[name] for name in SCALARS}
            sample = FlowSample.of(opened.flows(), opened.summary["end_ns"], scalars)
            samples.setdefault(run.policy, {})[run.seed] = sample
    return samples


def _quantiles(condition: str, samples: Mapping[str, Mapping[int, FlowSample]]) -> pd.DataFrame:
    """Quantiles of slowdown of all seeds together: columns condition, policy, group, share, slowdown."""
    share = np.linspace(0, 1, CDF_POINTS)
    parts = []
    for policy, runs in samples.items():
        for group in FLOW_GROUPS:
            pooled = np.concatenate([sample.slowdown[sample.groups[group]] for sample in runs.values()])
            if len(pooled):
                named = {"condition": condition, "policy": policy, "group": group, "share": share}
                parts.append(pd.DataFrame(named | {"slowdown": np.quantile(pooled, share)}))
    return pd.concat(parts, ignore_index=True)


def _figures(points: Sequence[FlowPoint], conditions: Mapping[str, Resampled]) -> pd.DataFrame:
    """Every figure with its interval, and its difference to LQD."""
    named = {point.simulation.policy: (point.policy, point.flip_probability) for point in points}
    rows = []
    for condition, found in conditions.items():
        for policy in found.policies:
            for metric in found.metrics:
                figure, difference = found.figure(policy, metric), found.difference(policy, LQD, metric)
                change = interval(found.change_percent(policy, LQD, metric), len(found.seeds))
                rows.append(
                    {
                        "condition": condition,
                        "policy": named[policy][0],
                        "flip_probability": named[policy][1],
                        "metric": metric,
                        "seeds": len(found.seeds),
                        **{name: getattr(figure, name) for name in ("mean", "low", "high")},
                        **{f"minus_lqd_{name}": getattr(difference, name) for name in ("mean", "low", "high")},
                        **{f"change_percent_{name}": getattr(change, name) for name in ("mean", "low", "high")},
                    }
                )
    frame = pd.DataFrame(rows)
    return frame.astype(dict.fromkeys(frame.columns[5:], "float64"))


def _point_rows(points: Sequence[FlowPoint], runs: Mapping[str, PolicyRun]) -> pd.DataFrame:
    rows = []
    for point in points:
        run = runs.get(point.name)
        if run is not None:
            row = {"condition": point.condition, "policy": point.policy, "flip_probability": point.flip_probability}
            figures = {"seconds": run.seconds, "cpu_seconds": run.cpu_seconds}
            figures["packets_per_cpu_second"] = run.packets_per_cpu_second or np.nan
            metrics = {name: np.nan if value is None else value for name, value in run.metrics().items()}
            for name in QUESTIONS:
                asked = getattr(run, name)
                figures[name] = np.nan if asked is None else asked
            key = {"key": point.simulation.key.digest, "reused": run.reused}
            rows.append(row | {"seed": run.seed} | metrics | figures | key)
    return pd.DataFrame(rows)


FLOWS = FunctionExperiment(FlowSettings, lambda settings, run: find(settings, run).shown())
