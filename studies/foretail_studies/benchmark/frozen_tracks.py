"""Tracks of the benchmark that simulate no network: demand predictors, and drop predictors in open loop.

The demand track: predictors of demand, judged by what their schedules of circuits carry on frozen matrices.

A predictor learns on runs of the training families, in which its trust k is chosen as well. Of held-out families it
sees the matrices before a step, predicts the next one, and Vermilion schedules circuits for it. The score is the
throughput of these schedules on the true matrices, in percent of the oracle's, which schedules for the true ones.

The open-loop track: drop policies and predictors on frozen slotted arrivals, where no sender reacts.

The score is the recovered loss (:func:`foretail.sim_bridge.open_loop.scores.recovered_loss`): the share of what always
accepting loses against LQD that a rule wins back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.families import Families
from foretail.configs.schema.network.circuits import DemandConfig
from foretail.configs.schema.network.sources import SlottedTraffic
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.configs.schema.policies import ASKING, OF_ARRIVALS
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.core.settings import setting
from foretail.features.catalog import arithmetic_of
from foretail.features.dataset.schema import traffic_sha256
from foretail.features.demand.matrix import DemandSequence
from foretail.models.demand.predictor import DemandPredictor
from foretail.models.demand.predictor_file import to_json
from foretail.models.demand.scores import score
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.scorers import POLICY, scorer_of
from foretail.pipelines.data.collecting import run_in, workload_in
from foretail.pipelines.demand import generated, untrained
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown, measure_cases
from foretail.pipelines.families import Condition
from foretail.pipelines.runs.notes import lineages
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.settings.compose import compose_settings
from foretail.pipelines.tracking.loading import is_predictor, load_predictor
from foretail.pipelines.tracking.runs import refuse_traffic
from foretail.sim_bridge._native import Scorer
from foretail.sim_bridge.arrivals.files import Slotted, slots_shift
from foretail.sim_bridge.arrivals.workloads import Workload
from foretail.sim_bridge.builds import policy_identity
from foretail.sim_bridge.open_loop.known import KnownRun
from foretail.sim_bridge.open_loop.live import run_live
from foretail.sim_bridge.open_loop.scores import recovered_loss
from foretail.sim_bridge.open_loop.slotted import packets_sent
from foretail.sim_bridge.policies import is_guest
from foretail.sim_bridge.policy_settings import SlotParameters, settings_in_name
from foretail.sim_bridge.python_policies import PythonPolicy
from foretail_studies.benchmark.track import DEMAND, OPEN_LOOP, Track, best_of, by_family, require_answers

ORACLE, LAST = "oracle", "last_value"
ROUTING = "single_hop"


@dataclass
class DemandTrackSettings(PointSettings, Families):
    """Demand predictors on frozen matrices, judged by the throughput of their schedules against the oracle's."""

    model: str | None = setting(
        None,
        "Kind of demand predictor that is judged, as in foretail demand; the benchmark trains it. null judges the "
        "predictors of the benchmark alone.",
    )
    parameters: dict[str, Any] = setting({}, "Parameters of the predictor that is judged.")
    rules: list[str] = setting([], "Kinds of demand predictors that stand beside what is judged.")
    windows: list[int] = setting(
        [2, 4, 8],
        "Windows of moving averages, of which the best on the training families, the last value among them, stands "
        "beside what is judged.",
        at_least=1,
        at_most=1000,
    )
    trusts: list[int] = setting(
        [2, 3, 5], "Values of k among which each predictor chooses on the training families.", at_least=1, at_most=64
    )
    training_seeds: list[int] = setting(MISSING, "Seeds of the runs on which predictors learn.", at_least=1)
    seeds: list[int] = setting(MISSING, "Seeds of the runs that choose and judge.", at_least=1, at_most=2**30)

    def check(self, where: str) -> None:
        """Raise ForetailError on families that are all of one side, and on seeds that learn and judge."""
        super().check(where)
        self.require_both_sides()
        if both := sorted(set(self.training_seeds) & set(self.seeds)):
            raise ForetailError(f"seed {both[0]} is among training_seeds and seeds: let it learn or judge")
        if self.parameters and self.model is None:
            raise ForetailError("parameters belong to no predictor: give model=KIND")


@dataclass(frozen=True)
class RuleCase:
    """A rule or a predictor on the run of a condition and seed."""

    family: str
    condition: str
    seed: int
    rule: str

    @property
    def where(self) -> Condition:
        return Condition(self.family, self.condition)


@dataclass(frozen=True)
class Contest:
    """The trained predictors, and the runs of all conditions."""

    predictors: Mapping[str, DemandPredictor]
    learned: Mapping[str, str]  #: hashes of these
    configs: Mapping[Condition, DemandConfig]
    runs: Mapping[tuple[Condition, int], DemandSequence]  #: by condition and seed
    trusts: Sequence[int]
    code: str

    def depends_on(self, case: RuleCase) -> dict[str, Any]:
        """Everything that a measurement depends on."""
        config = self.configs[case.where]
        return {
            "matrices": sha256_of(self.runs[case.where, case.seed]),
            "predictor": self.learned[case.rule],
            "trusts": list(self.trusts),
            "schedules": [config.degree, config.warm_up, config.seed],
            "code": self.code,
        }

    def measure(self, case: RuleCase, so_far: SoFar) -> dict[str, Any]:
        """The throughput on the true matrices of schedules for what is predicted and for the truth, by trust."""
        so_far("")
        config = self.configs[case.where]
        scores = score(
            self.predictors[case.rule],
            [self.runs[case.where, case.seed]],
            config.degree,
            self.trusts,
            routings=[ROUTING],
            warm_up=config.warm_up,
            seed=config.seed,
        )
        by_trust = {str(trust): scores.schedules[ROUTING, trust] for trust in self.trusts}
        return {
            "predicted": {trust: one.predicted for trust, one in by_trust.items()},
            "true": {trust: one.true for trust, one in by_trust.items()},
        }


def sha256_of(run: DemandSequence) -> str:
    """A hash of the matrices of a run."""
    return hashlib.sha256(np.ascontiguousarray(run.demand, "<f8").tobytes()).hexdigest()


def show_demand(settings: DemandTrackSettings, run: Run) -> Shown:
    """Train, choose every trust on the training families, verify the frozen runs, and score."""
    configs = {
        Condition(name, condition): compose_settings(
            DemandConfig, [*settings.shared, *family.overrides(condition)], f"families.{name}.conditions.{condition}"
        )
        for name, family in settings.families.items()
        for condition in family.conditions
    }
    conditions = list(configs)
    training = [where for where in conditions if where.family in settings.training()]
    kinds = _predictors(settings)
    runs = {(where, seed): _run(configs[where], seed) for where in conditions for seed in settings.seeds}
    learns = [_run(configs[where], seed) for where in training for seed in settings.training_seeds]
    seen = {sha256_of(one) for one in learns}
    for (where, seed), one in runs.items():
        if where not in training and sha256_of(one) in seen:
            raise ForetailError(f"{where} on seed {seed} is not a held-out run: predictors learn on its matrices")
    learned = {
        rule: hashlib.sha256(to_json(predictor.fit(learns)).encode()).hexdigest() for rule, predictor in kinds.items()
    }
    contest = Contest(kinds, learned, configs, runs, settings.trusts, code_digest(score, generated))
    cases = [
        RuleCase(where.family, where.condition, seed, rule)
        for where in conditions
        for seed in settings.seeds
        for rule in kinds
    ]
    measured = measure_cases(
        settings.experiment,
        "demand_track",
        cases,
        settings,
        name=lambda case: f"{case.where}: {case.rule}, seed {case.seed}",
        depends_on=contest.depends_on,
        measure=contest.measure,
    )
    measurements = dict(zip(measured.cases, measured.measurements, strict=True))
    everybody = {rule: (rule, "predicted") for rule in kinds} | {ORACLE: (next(iter(kinds)), "true")}

    def throughput(rule: str, where: Condition, seed: int, trust: str) -> float:
        name, what = everybody[rule]
        return float(measurements[RuleCase(where.family, where.condition, seed, name)][what][trust])

    trusts = {
        rule: max(
            map(str, settings.trusts),
            key=lambda trust: np.mean(
                [throughput(rule, where, seed, trust) for where in training for seed in settings.seeds]
            ),
        )
        for rule in everybody
    }
    percents = {
        where: {
            rule: {
                seed: 100
                * throughput(rule, where, seed, trusts[rule])
                / throughput(ORACLE, where, seed, trusts[ORACLE])
                for seed in settings.seeds
            }
            for rule in everybody
        }
        for where in conditions
    }
    tuned = best_of(percents, training, [LAST, *(_average(window) for window in settings.windows)])
    track = Track(
        DEMAND,
        settings.size,
        percents,
        settings.held_out().keys(),
        {
            (where, seed): (sha256_of(runs[where, seed]), throughput(ORACLE, where, seed, trusts[ORACLE]))
            for where in conditions
            for seed in settings.seeds
        },
        LAST,
        tuned,
        "the throughput of the schedules of predictions, in percent of the oracle's",
    )
    judged = None if settings.model is None else _judged(settings)
    chosen = ", ".join(f"{rule} {trust}" for rule, trust in trusts.items())
    return track.shown(judged, list(everybody), [f"k, chosen on the training families: {chosen}.", measured.note])


DEMAND_TRACK = FunctionExperiment(DemandTrackSettings, show_demand)


def _run(config: DemandConfig, seed: int) -> DemandSequence:
    """The matrices of a condition on a seed."""
    return generated(config.collectives[0], seed, config)


def _average(window: int) -> str:
    return f"moving_average of {window}"


def _judged(settings: DemandTrackSettings) -> str:
    given = ", ".join(f"{name} {value}" for name, value in settings.parameters.items())
    return f"{settings.model}, {given}" if given else str(settings.model)


def _predictors(settings: DemandTrackSettings) -> dict[str, DemandPredictor]:
    """Everybody but the oracle, untrained, what is judged first."""
    judged = {} if settings.model is None else {_judged(settings): {"name": settings.model, **settings.parameters}}
    others = {name: {"name": name} for name in [LAST, *settings.rules]}
    averages = {_average(window): {"name": "moving_average", "window": window} for window in settings.windows}
    return {name: untrained(name, given) for name, given in {**judged, **others, **averages}.items()}


LQD, ACCEPT = "lqd", "followlqd"
"""The reference; and the policy that always accepts, which is FollowLQD without predictions."""


@dataclass
class OpenLoopSettings(PointSettings, Families):
    """Drop policies and predictors on frozen arrivals, judged by the share of LQD's gain that they win back."""

    model: str | None = setting(
        None,
        "What is judged: a drop predictor of trees, as in export; the name of a policy, such as dt_alpha_4; "
        "HEADER.hpp:TYPE; or FILE.py:FUNCTION, which decides in Python. null judges the rules of the benchmark alone.",
    )
    asking: str | None = setting(
        None,
        "Policy that asks the predictor; null means the one for which it was trained, and else credence.",
        one_of=ASKING,
    )
    rules: list[str] = setting([], "Policies that stand beside what is judged.")
    thresholds: list[str] = setting(
        MISSING, "Policies of which the best on the training families stands beside what is judged."
    )
    seeds: list[int] = setting(MISSING, "Seeds of the arrivals of every condition.", at_least=1, at_most=2**30)

    def check(self, where: str) -> None:
        """Raise ForetailError without a family that trains or one that judges, and on rules that are none."""
        super().check(where)
        self.require_both_sides()
        for rule in [*self.rules, *self.thresholds]:
            _policy(rule)


@dataclass(frozen=True)
class LiveCase:
    """All seeds of a condition: they wait together, so that a policy in Python gets a batch."""

    family: str
    condition: str
    seeds: tuple[int, ...]

    @property
    def cases(self) -> list[RuleCase]:
        return [RuleCase(self.family, self.condition, seed, "") for seed in self.seeds]


@dataclass(frozen=True)
class Arrivals:
    """All conditions, and the predictor or the policy in Python that is judged on them."""

    traffic: Mapping[Condition, SlottedTraffic]
    hashes: Mapping[tuple[Condition, int], str]  #: of scenario and seed, by condition and seed
    predictors: Mapping[str, tuple[str, Ensemble]]  #: by rule, the policy that asks, and whom
    code: str
    live: tuple[str, PythonPolicy] | None = None  #: the policy that asks, and whom

    def depends_on(self, case: RuleCase) -> dict[str, Any]:
        """Everything that a measurement depends on."""
        pair = self.predictors.get(case.rule)
        rule = [policy_identity(case.rule)] if pair is None else [pair[0], pair[1].sha256]
        return {"traffic": self.hashes[case.where, case.seed], "rule": rule, "code": self.code}

    def measure(self, case: RuleCase, so_far: SoFar) -> dict[str, Any]:
        """Measure the packets that a rule sends, with a hash of the arrivals."""
        so_far("")
        traffic = self.traffic[case.where]
        batches, digest = frozen_arrivals(workload_in(traffic), traffic.ports, traffic.buffer, traffic.slots, case.seed)
        if case.rule not in self.predictors:
            (sent,) = packets_sent(batches, traffic.ports, traffic.buffer, [_policy(case.rule)])
            return {"sent": sent, "arrivals_sha256": digest}
        asking, ensemble = self.predictors[case.rule]
        arithmetic: dict[str, Any] = {**arithmetic_of({item.name: item.params for item in ensemble.features})}
        if "average_shift" in arithmetic:
            arithmetic["average_shift"] = max(slots_shift(arithmetic["average_shift"]), 0)
        run = KnownRun.in_slots(batches, traffic.ports, traffic.buffer, **arithmetic)
        return {"sent": run.sent(asking, scorer_of(ensemble)), "arrivals_sha256": digest}

    def live_depends_on(self, case: LiveCase) -> dict[str, Any]:
        """Everything that a measurement of the policy in Python depends on."""
        asking, policy = self._live()
        return {
            "traffic": [self.hashes[one.where, one.seed] for one in case.cases],
            "policy": [policy.sha256, policy.function, asking],
            "code": [self.code, code_digest(run_live)],
        }

    def measure_live(self, case: LiveCase, so_far: SoFar) -> list[dict[str, Any]]:
        """Measure the packets that the policy in Python sends on each seed, as `measure` does."""
        so_far("")
        asking, policy = self._live()
        traffic = self.traffic[Condition(case.family, case.condition)]
        ports, buffer = traffic.ports, traffic.buffer
        drawn = [frozen_arrivals(workload_in(traffic), ports, buffer, traffic.slots, seed) for seed in case.seeds]
        sequences = [Slotted.joined(list(batches)) for batches, _ in drawn]
        live = run_live(sequences, ports, buffer, policy.fresh().decide, policy.features, policy=asking)
        return [
            {"sent": run.transmitted, "arrivals_sha256": digest}
            for run, (_, digest) in zip(live.runs, drawn, strict=True)
        ]

    def _live(self) -> tuple[str, PythonPolicy]:
        if self.live is None:
            raise TypeError("no policy in Python is judged")
        return self.live


@lru_cache(maxsize=2)
def frozen_arrivals(
    workload: Workload, ports: int, buffer: int, slots: int, seed: int
) -> tuple[Sequence[Slotted], str]:
    """Return the arrivals of a run and their hash; consecutive cases share them."""
    batches = list(workload.batches(ports, buffer, slots, seed))
    digest = hashlib.sha256()
    for column in ("slot", "port"):
        for batch in batches:
            digest.update(np.ascontiguousarray(getattr(batch, column), np.dtype("<i8")).tobytes())
    return batches, digest.hexdigest()


def _policy(rule: str) -> tuple[str, SlotParameters]:
    """A policy by its name, maybe with settings of its own; ForetailError when slots do not know it."""
    if is_guest(rule):
        return rule, SlotParameters()
    name, numbers = settings_in_name(rule) or (rule, {})
    known = {field.name for field in fields(SlotParameters)}
    if name not in OF_ARRIVALS or not numbers.keys() <= known:
        raise ForetailError(
            f"{rule} is no policy of arrivals in slots: choose from {', '.join(OF_ARRIVALS)}, as in dt_alpha_8"
        )
    values: dict[str, Any] = {key: [value] if key == "alpha" else value for key, value in numbers.items()}
    return name, SlotParameters(**values)


def traffic_of(families: Families) -> dict[Condition, SlottedTraffic]:
    """Return the workload and the switch of every condition."""
    return {
        Condition(name, condition): compose_settings(
            CollectConfig,
            ["source=slotted", *families.shared, *family.overrides(condition)],
            f"families.{name}.conditions.{condition}",
        ).slotted
        for name, family in families.families.items()
        for condition in family.conditions
    }


def show_open_loop(settings: OpenLoopSettings, run: Run) -> Shown:
    """Run everybody on all arrivals, verify the frozen ones, and score."""
    traffic = traffic_of(settings)
    arrivals, judged = _with_model(settings, run, traffic)
    named = [*([] if judged is None else [judged]), LQD, ACCEPT, *settings.rules, *settings.thresholds]
    rules = list(dict.fromkeys(named))
    cases = [
        RuleCase(where.family, where.condition, seed, rule)
        for where in traffic
        for seed in settings.seeds
        for rule in rules
        if arrivals.live is None or rule != judged
    ]
    measured = measure_cases(
        settings.experiment,
        "open_loop",
        cases,
        settings,
        name=lambda case: f"{case.where}: {case.rule}, seed {case.seed}",
        depends_on=arrivals.depends_on,
        measure=arrivals.measure,
    )
    measurements = dict(zip(measured.cases, measured.measurements, strict=True))
    notes = []
    if arrivals.live is not None:
        measurements |= _live_runs(settings, arrivals, judged or "")
        notes = [arrivals.live[1].note]
    percents = {where: _percents(measurements, where, rules, settings.seeds) for where in traffic}
    training = [where for where in traffic if where.family in settings.training()]
    tuned = best_of(percents, training, settings.thresholds)
    track = Track(
        OPEN_LOOP,
        settings.size,
        percents,
        settings.held_out().keys(),
        {
            (case.where, case.seed): (one["arrivals_sha256"], float(one["sent"]))
            for case, one in measurements.items()
            if case.rule == LQD
        },
        ACCEPT,
        tuned,
        "the share of what always accepting loses against LQD that a rule wins back",
    )
    shown = [rule for rule in rules if rule in (judged, tuned, *settings.rules) or rule not in settings.thresholds]
    best = f"{tuned} is the best of {len(settings.thresholds)} on the training families."
    return track.shown(judged, shown, [best, measured.note, *notes])


def open_loop_scores(families: Families, seeds: Sequence[int], scorers: Sequence[Scorer]) -> list[float]:
    """Return the scores in % of rules that the policy ``learned`` asks, on the held-out families."""
    shares: list[dict[Condition, dict[int, float]]] = [{} for _ in scorers]
    for where, traffic in traffic_of(families).items():
        for seed in seeds if families.families[where.family].held_out else ():
            batches, _ = frozen_arrivals(workload_in(traffic), traffic.ports, traffic.buffer, traffic.slots, seed)
            run = KnownRun.in_slots(batches, traffic.ports, traffic.buffer)
            accept = run.sent(ACCEPT)
            for share, scorer in zip(shares, scorers, strict=True):
                recovered = recovered_loss(run.lqd, run.sent("learned", scorer), accept)
                share.setdefault(where, {})[seed] = 100 * (recovered or 0.0)
    return [float(by_family(share).mean()) for share in shares]


OPEN_LOOP_TRACK = FunctionExperiment(OpenLoopSettings, show_open_loop)


def _live_runs(settings: OpenLoopSettings, arrivals: Arrivals, rule: str) -> dict[RuleCase, Any]:
    """Return the measurements of the policy in Python, by condition and seed."""
    measured = measure_cases(
        settings.experiment,
        "live_open_loop",
        [LiveCase(where.family, where.condition, tuple(settings.seeds)) for where in arrivals.traffic],
        settings,
        name=lambda case: f"{case.family} {case.condition}: {rule}",
        depends_on=arrivals.live_depends_on,
        measure=arrivals.measure_live,
    )
    return {
        replace(one, rule=rule): measurement
        for case, of_seeds in zip(measured.cases, measured.measurements, strict=True)
        for one, measurement in zip(case.cases, of_seeds, strict=True)
    }


def _with_model(
    settings: OpenLoopSettings, run: Run, traffic: Mapping[Condition, SlottedTraffic]
) -> tuple[Arrivals, str | None]:
    """The arrivals with what is judged, and its name; ForetailError when it was given a held-out run."""
    model = settings.model
    code = code_digest("sim_bridge.arrivals", KnownRun, packets_sent)
    hashes = {
        (where, seed): traffic_sha256(run_in(one, seed)) for where, one in traffic.items() for seed in settings.seeds
    }
    python = None if model is None else PythonPolicy.of(model)
    if python is not None:
        return Arrivals(traffic, hashes, {}, code, (settings.asking or "learned", python)), python.name
    if model is None or not is_predictor(model):
        if model is not None:
            require_answers(model)
            _policy(model)
        return Arrivals(traffic, hashes, {}, code), model
    ensemble = load_predictor(model, settings.tracking, run.store)
    if not isinstance(ensemble, Ensemble):
        raise ForetailError(f"{model} is a network, and this track asks trees: distill it first (foretail distill)")
    held_out = [
        (f"{where} on seed {seed}", traffic_sha)
        for (where, seed), traffic_sha in hashes.items()
        if where.family in settings.held_out()
    ]
    for lineage in lineages():
        refuse_traffic(held_out, lineage, "the model")
    asking = settings.asking or str(ensemble.origin.get(POLICY, "credence"))
    judged = f"{asking}, the model"
    return Arrivals(traffic, hashes, {judged: (asking, ensemble)}, code), judged


def _percents(
    measurements: Mapping[RuleCase, Mapping[str, Any]], where: Condition, rules: Sequence[str], seeds: Sequence[int]
) -> dict[str, dict[int, float]]:
    """The recovered loss in percent, by rule and seed; ForetailError where always accepting loses nothing."""

    def sent(rule: str, seed: int) -> int:
        return int(measurements[RuleCase(where.family, where.condition, seed, rule)]["sent"])

    percents: dict[str, dict[int, float]] = {}
    for rule in rules:
        for seed in seeds:
            share = recovered_loss(sent(LQD, seed), sent(rule, seed), sent(ACCEPT, seed))
            if share is None:
                raise ForetailError(f"{where} on seed {seed} loses nothing to always accepting: raise its load")
            percents.setdefault(rule, {})[seed] = 100 * share
    return percents
