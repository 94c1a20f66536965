"""The demand track: predictors of demand, judged by what their schedules of circuits carry on frozen matrices.

A predictor learns on runs of the training families, in which its trust k is chosen as well. Of held-out families it
sees the matrices before a step, predicts the next one, and Vermilion schedules circuits for it. The score is the
throughput of these schedules on the true matrices, in percent of the oracle's, which schedules for the true ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.families import Families
from foretail.configs.schema.fields import setting
from foretail.configs.schema.network.circuits import DemandConfig
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.features.demand.matrix import DemandSequence
from foretail.models.demand.predictor import DemandPredictor
from foretail.models.demand.predictor_file import to_json
from foretail.models.demand.scores import score
from foretail.pipelines.demand.comparison import untrained
from foretail.pipelines.demand.runs import generated
from foretail.pipelines.experiment.cases import measure_cases
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown
from foretail.pipelines.families.conditions import Condition
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.settings.compose import compose_settings
from foretail_studies.benchmark.frozen import DEMAND
from foretail_studies.benchmark.track import Track, best_of

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
class DemandCase:
    """A predictor on the run of a condition and seed."""

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

    def depends_on(self, case: DemandCase) -> dict[str, Any]:
        """Everything that a measurement depends on."""
        config = self.configs[case.where]
        return {
            "matrices": sha256_of(self.runs[case.where, case.seed]),
            "predictor": self.learned[case.rule],
            "trusts": list(self.trusts),
            "schedules": [config.degree, config.warm_up, config.seed],
            "code": self.code,
        }

    def measure(self, case: DemandCase, so_far: SoFar) -> dict[str, Any]:
        """The throughput on the true matrices of schedules for what is predicted and for the truth, by trust."""
        so_far("")
        config = self.configs[case.where]
        found = score(
            self.predictors[case.rule],
            [self.runs[case.where, case.seed]],
            config.degree,
            self.trusts,
            routings=[ROUTING],
            warm_up=config.warm_up,
            seed=config.seed,
        )
        by_trust = {str(trust): found.schedules[ROUTING, trust] for trust in self.trusts}
        return {
            "predicted": {trust: one.predicted for trust, one in by_trust.items()},
            "true": {trust: one.true for trust, one in by_trust.items()},
        }


def sha256_of(run: DemandSequence) -> str:
    """A hash of the matrices of a run."""
    return hashlib.sha256(np.ascontiguousarray(run.demand, "<f8").tobytes()).hexdigest()


def show(settings: DemandTrackSettings, run: Run) -> Shown:
    """Train, choose every trust on the training families, verify the frozen runs, and score."""
    configs = {
        Condition(name, condition): compose_settings(
            DemandConfig, [*settings.shared, *family.overrides(condition)], f"families.{name}.conditions.{condition}"
        )
        for name, family in settings.families.items()
        for condition in family.conditions
    }
    wheres = list(configs)
    training = [where for where in wheres if where.family in settings.training()]
    kinds = _predictors(settings)
    runs = {(where, seed): _run(configs[where], seed) for where in wheres for seed in settings.seeds}
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
        DemandCase(where.family, where.condition, seed, rule)
        for where in wheres
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
    found = dict(zip(measured.cases, measured.measurements, strict=True))
    everybody = {rule: (rule, "predicted") for rule in kinds} | {ORACLE: (next(iter(kinds)), "true")}

    def throughput(rule: str, where: Condition, seed: int, trust: str) -> float:
        name, what = everybody[rule]
        return float(found[DemandCase(where.family, where.condition, seed, name)][what][trust])

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
        for where in wheres
    }
    tuned = best_of(percents, training, [LAST, *(_average(window) for window in settings.windows)])
    track = Track(
        DEMAND,
        settings.size,
        percents,
        settings.held_out().keys(),
        {
            (where, seed): (sha256_of(runs[where, seed]), throughput(ORACLE, where, seed, trusts[ORACLE]))
            for where in wheres
            for seed in settings.seeds
        },
        LAST,
        tuned,
        "the throughput of the schedules of predictions, in percent of the oracle's",
    )
    judged = None if settings.model is None else _judged(settings)
    chosen = ", ".join(f"{rule} {trust}" for rule, trust in trusts.items())
    return track.shown(judged, list(everybody), [f"k, chosen on the training families: {chosen}.", measured.note])


DEMAND_TRACK = FunctionExperiment(DemandTrackSettings, show)


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
