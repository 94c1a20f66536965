"""Policies under several conditions, beside the claims of the Credence paper: its Figures 6 to 10.

Every condition, policy, share of inverted predictions and seed is a point, simulated on its own and kept in the store:
a sweep that was stopped goes on where it was; a point that failed is named and is all that the next run repeats. All
verdicts are computed by the rules of this module from figures with bootstrap intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from omegaconf import MISSING

from foretail.configs.schema.experiment import SimulatedPointSettings
from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.policies import ASKING, Policy
from foretail.configs.schema.scenario import Scenario
from foretail.configs.schema.tracking import Tracking
from foretail.configs.schema.training import Split
from foretail.core.errors import ForetailError
from foretail.core.settings import part, seed_setting, setting, share_setting
from foretail.models.ensemble.ensemble import Ensemble
from foretail.pipelines.comparison.flows import say_unasked
from foretail.pipelines.comparison.policy_runs import (
    PolicyRun,
    Simulation,
    check_same_flows,
    simulate,
)
from foretail.pipelines.comparison.statistics import FLOW_GROUPS, PairedDifference, interval_text, mean_interval
from foretail.pipelines.data.simulation import Simulator, simulators_of
from foretail.pipelines.errors import PointsFailed
from foretail.pipelines.experiment.declaration import Drawn, FunctionExperiment, Run, Shown
from foretail.pipelines.experiment.sweep import (
    CLOSE,
    CLOSE_PERCENT,
    ROUGHLY_PERCENT,
    UNKNOWN,
    VERDICTS,
    WORSE,
    verdict_of,
)
from foretail.pipelines.exporting.predictor import ExportedPredictor, export_to_store
from foretail.pipelines.runs.points import run_points
from foretail.pipelines.runs.result import Cell, Table
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import compose_policies, compose_settings, compose_training
from foretail.pipelines.tracking.loading import load_model
from foretail.pipelines.tracking.runs import seen_seeds
from foretail.pipelines.training.fitting import TrainResult, train_model
from foretail.sim_bridge.open_loop.scores import ASKED
from foretail.sim_bridge.packets.simulation import PacketRun
from foretail.sim_bridge.policies import policy_name
from foretail.sim_bridge.policy_settings import policy_words
from foretail_studies.engines.bootstrap import BLOCK_NS, DRAWS, FlowSample, Resampled, interval, resample
from foretail_studies.figures import draw_lines

PANELS = {
    "p95.short": "short flows, p95 slowdown",
    "p95.incast": "incast flows, p95 slowdown",
    "p95.long": "long flows, p95 slowdown",
    "timed_out_percent.all": "flows with a timeout, %",
    "occupancy_percent.p99.99": "buffer, p99.99, %",
}
CAPTION = "Mean by policy and condition, a panel per measure; less is better. Bands are 95 % bootstrap intervals."
MEASURES = (
    ("short p95", "p95.short"),
    ("incast p95", "p95.incast"),
    ("long p95", "p95.long"),
    ("timed out %", "timed_out_percent.all"),
)
"""Titles and metrics of the tables over policies."""
MEAN, LEAST = "mean", "least"

Conditions = Mapping[str, Resampled]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper about the change of a figure from one policy to another."""

    words: str  #: the paper's
    metric: str  #: of ``flow_bootstrap``
    policy: str  #: name; ``{model}`` stands for the model that Credence asks
    baseline: str  #: name of what it is compared with, likewise
    says: float | str  #: the change in percent, or ``close``, or ``worse``
    at: str = MEAN  #: a condition, their mean, or the one where it is least


_CREDENCE = "credence, {model}"
CLAIMS: dict[str, tuple[Claim, ...]] = {
    "credence_fig6": (
        Claim("incast, Credence against DT", "p95.incast", _CREDENCE, "dt", -95.5),
        Claim("incast, Credence against ABM", "p95.incast", _CREDENCE, "abm", -95.5),
        Claim("incast, Credence against LQD", "p95.incast", _CREDENCE, "lqd", CLOSE),
        Claim("long, Credence against ABM", "p95.long", _CREDENCE, "abm", -28.49),
        Claim("long, Credence against ABM at 80 %", "p95.long", _CREDENCE, "abm", -49.34, "80"),
        Claim("short, Credence against DT", "p95.short", _CREDENCE, "dt", CLOSE),
        Claim("buffer p99.99, DT against Credence", "occupancy_percent.p99.99", "dt", _CREDENCE, -3.77),
        Claim("buffer p99.99, ABM against Credence", "occupancy_percent.p99.99", "abm", _CREDENCE, -18.68),
    ),
    "credence_fig7": (
        Claim("incast, Credence against DT, small bursts", "p95.incast", _CREDENCE, "dt", CLOSE, "10"),
        Claim("incast, Credence against DT", "p95.incast", _CREDENCE, "dt", -95.0),
        Claim("incast, Credence against ABM", "p95.incast", _CREDENCE, "abm", -96.92),
        Claim("long, Credence against ABM at most", "p95.long", _CREDENCE, "abm", -22.02, LEAST),
    ),
    "credence_fig8": (
        Claim("incast, Credence against DT", "p95.incast", _CREDENCE, "dt", -93.27),
        Claim("incast, Credence against ABM", "p95.incast", _CREDENCE, "abm", -93.36),
        Claim("long, Credence against DT", "p95.long", _CREDENCE, "dt", -3.31),
        Claim("long, Credence against ABM", "p95.long", _CREDENCE, "abm", -17.35),
    ),
    "credence_fig9": (
        Claim("incast, Credence against ABM at 8 us", "p95.incast", _CREDENCE, "abm", -97.73, "8"),
        Claim("incast, Credence against ABM at 64 us", "p95.incast", _CREDENCE, "abm", CLOSE, "64"),
    ),
    "credence_fig10": (
        Claim("incast, 0.001 inverted, against LQD", "p95.incast", _CREDENCE + ", 0.001 inverted", "lqd", CLOSE),
        Claim("incast, 0.005 inverted, against LQD", "p95.incast", _CREDENCE + ", 0.005 inverted", "lqd", CLOSE),
        Claim("incast, 0.01 inverted, against LQD", "p95.incast", _CREDENCE + ", 0.01 inverted", "lqd", WORSE),
        Claim("incast, 0.1 inverted, against LQD", "p95.incast", _CREDENCE + ", 0.1 inverted", "lqd", WORSE),
    ),
}
"""Section 4 of Credence (NSDI'24); its percentages are read as means over the conditions of a figure."""

RULES = (
    "Change of the figure in percent, with 95 % bootstrap intervals. Where our whole interval has the sign of a "
    f"percentage, it is reproduced when the interval holds it or ours is within {CLOSE_PERCENT:g} points, in shape "
    "when ours is at least half of it, and else weaker.",
    f"Close is reproduced when the whole interval is within {CLOSE_PERCENT:g} %, in shape when the change is within "
    f"{ROUGHLY_PERCENT:g} %; worse, when the whole interval, or the change, is above {CLOSE_PERCENT:g} %.",
)


def judge(claim: Claim, conditions: Conditions, model: str) -> tuple[PairedDifference | None, str]:
    """The change in percent for Credence with `model`, and the verdict; None where a run is missing."""
    policy, baseline = (name.format(model=model) for name in (claim.policy, claim.baseline))
    at = {claim.at} if claim.at not in (MEAN, LEAST) else set(conditions)
    changes = {
        name: resampled.change_percent(policy, baseline, claim.metric)
        for name, resampled in conditions.items()
        if name in at and {policy, baseline} <= resampled.policies.keys()
    }
    if not at or changes.keys() != at:
        return None, UNKNOWN
    seeds = min(len(conditions[name].seeds) for name in changes)
    if claim.at == LEAST:
        difference = interval(min(changes.values(), key=lambda change: float(change[0])), seeds)
    else:
        difference = interval(np.mean(list(changes.values()), axis=0), seeds)
    return difference, verdict_of(claim.says, difference)


def claims_table(experiment: str, conditions: Conditions, models: Sequence[str]) -> Table:
    """The paper's claims beside what was found for Credence with each model."""
    rows = []
    for claim in CLAIMS[experiment]:
        row: list[Cell] = [claim.words, claim.says if isinstance(claim.says, str) else f"{claim.says:+g}"]
        for model in models:
            difference, verdict = judge(claim, conditions, model)
            row += ["-" if difference is None else interval_text(difference), verdict]
        rows.append(tuple(row))
    columns = [column for model in models for column in (f"Credence, {model}", f"verdict, {model}")]
    return Table("Claims of the paper, change in %", ("claim", "paper", *columns), tuple(rows), RULES)


def conclusion(experiment: str, conditions: Conditions, models: Sequence[str]) -> list[str]:
    """How many claims of the paper hold with each model."""
    sentences = []
    for model in models:
        verdicts = [judge(claim, conditions, model)[1] for claim in CLAIMS[experiment]]
        counts = {word: verdicts.count(word) for word in VERDICTS}
        words = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        sentences.append(f"Of the paper's {len(verdicts)} claims, with Credence that asks {model}: {words}.")
    return sentences


def tolerance_table(resampled: Resampled, flipped: Mapping[str, Mapping[float, str]]) -> Table:
    """How far every policy is from LQD, and up to which share of inverted predictions those that ask stay close.

    `flipped` has, by policy and model, the name for each share, ascending.
    """
    rows = [
        (policy, *(interval_text(_change(resampled, policy, metric)) for _, metric in MEASURES))
        for policy in resampled.policies
        if policy != "lqd"
    ]
    notes = [
        f"{policy_words(name)}: {_tolerated(resampled, named, title, metric)}"
        for name, named in flipped.items()
        for title, metric in MEASURES
    ]
    return Table("Change from LQD in %", ("policy", *(title for title, _ in MEASURES)), tuple(rows), tuple(notes))


def _tolerated(resampled: Resampled, named: Mapping[float, str], title: str, metric: str) -> str:
    if resampled.figure("lqd", metric).mean == 0:
        return f"{title} of LQD is 0, of which nothing is a percentage"
    return (
        f"{title} within {CLOSE_PERCENT:g} % of LQD up to {_upto(resampled, named, metric, sure=False)}, its whole "
        f"interval up to {_upto(resampled, named, metric, sure=True)}"
    )


def _upto(resampled: Resampled, named: Mapping[float, str], metric: str, *, sure: bool) -> str:
    """The largest share that is close, as are all below it."""
    last = "none"
    for share, policy in sorted(named.items()):
        if policy not in resampled.policies:
            break
        change = _change(resampled, policy, metric)
        above = change.high if sure else change.mean
        if above is None or above > CLOSE_PERCENT:
            break
        last = f"{share:g}"
    return last


def _change(resampled: Resampled, policy: str, metric: str, baseline: str = "lqd") -> PairedDifference:
    return interval(resampled.change_percent(policy, baseline, metric), len(resampled.seeds))


LQD, OURS, GIVEN = "lqd", "ours", "given"
SCALARS = ("occupancy_percent.p99", "occupancy_percent.p99.99", "drops", "timeouts", "unfinished")
"""Figures of a run as a whole."""
CDF_POINTS = 500
QUESTIONS = ("asked", "predicted_drops")
"""Counts of a run's predictions, NaN where the policy asks no predictor."""


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
    flip_probabilities: list[float] = share_setting([0.0], "Shares of the models' predictions that are inverted.")
    seeds: list[int] = seed_setting(MISSING, "Traffic seeds, none of the split.")

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
    """Result of an experiment."""

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
            {"": Drawn(self._drawn(), CAPTION, self.figures)},
            {f"{name}_distributions.csv": self.quantiles},
            notes=self._notes(),
            verdict=conclusion(name, self.conditions, list(self.models)),
            failed=self.failed,
            points=len(self.points) + len(self.failed),
        )

    def _drawn(self) -> Figure:
        """Figures by condition, or by the share of inverted predictions where there are several."""
        drawn = self.figures.assign(
            panel=self.figures["metric"].map(PANELS),
            policy=self.figures["policy"].map(policy_words),
            flips=self.figures["flip_probability"].map("{:g}".format),
        )
        by = "flips" if len(self.experiment.flip_probabilities) > 1 else "condition"
        drawn = drawn.dropna(subset="panel")
        axis = self.experiment.axis
        return draw_lines(drawn, "panel", "policy", by, band=("low", "high"), sharey=False, xlabel=axis)

    def tables(self) -> list[Table]:
        """Figures, claims of the paper, flips, files."""
        models, experiment = list(self.models), self.experiment.experiment
        tables = [self._figures(), claims_table(experiment, self.conditions, models)]
        if len(self.experiment.flip_probabilities) > 1:
            shares = sorted(self.experiment.flip_probabilities)
            names = [f"{policy}, {model}" for policy in self.experiment.asking for model in models]
            flipped = {name: {share: _flipped(name, share) for share in shares} for name in names}
            tables += [tolerance_table(resampled, flipped) for resampled in self.conditions.values()]
        return tables

    def _figures(self) -> Table:
        rows: list[tuple[Cell, ...]] = []
        names = map(_flipped, self.points["policy"], self.points["flip_probability"])
        by_policy = self.points.assign(policy=list(names)).groupby(["condition", "policy"])
        questions = {name: by_policy[name].mean().to_dict() for name in QUESTIONS}
        for condition, resampled in self.conditions.items():
            for policy in resampled.policies:
                counts = (questions[name][(condition, policy)] for name in QUESTIONS)
                cells: list[Cell] = [resampled.figure(policy, metric).mean for _, metric in MEASURES]
                cells += [
                    "-" if policy == LQD else interval_text(resampled.difference(policy, LQD, metric))
                    for _, metric in MEASURES
                ]
                rows.append((condition, policy, *cells, resampled.figure(policy, "unfinished").mean, *counts))
        titles = [title for title, _ in MEASURES]
        return Table(
            f"{self.experiment.experiment}: FCT slowdown by {self.experiment.axis}",
            ("condition", "policy", *titles, *(f"{title} - LQD" for title in titles), "unfinished", *ASKED.values()),
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
    """Return the predictors that Credence asks, by name: results of training (None for the given model) and exports."""
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
                simulator = plan.simulators[point.condition]
                missing[point.name] = partial(simulate, point.simulation, store, simulator)
            else:
                runs[point.name] = point.simulation.opened(entry)
        except ForetailError as error:
            failed[point.name] = str(error)
    simulated, failures = run_points(settings.experiment, missing, settings.jobs)
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
    for condition, resampled in conditions.items():
        for policy in resampled.policies:
            for metric in resampled.metrics:
                figure, difference = resampled.figure(policy, metric), resampled.difference(policy, LQD, metric)
                change = interval(resampled.change_percent(policy, LQD, metric), len(resampled.seeds))
                rows.append(
                    {
                        "condition": condition,
                        "policy": named[policy][0],
                        "flip_probability": named[policy][1],
                        "metric": metric,
                        "seeds": len(resampled.seeds),
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
                count = getattr(run, name)
                figures[name] = np.nan if count is None else count
            key = {"key": point.simulation.key.digest, "reused": run.reused}
            rows.append(row | {"seed": run.seed} | metrics | figures | key)
    return pd.DataFrame(rows)


FLOWS = FunctionExperiment(FlowSettings, lambda settings, run: find(settings, run).shown())
