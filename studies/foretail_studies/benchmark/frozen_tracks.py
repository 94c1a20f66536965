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
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.network.circuits import DemandConfig
from foretail.configs.schema.network.sources import SlottedTraffic
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.configs.schema.policies import ASKING, OF_ARRIVALS
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
from foretail.pipelines.experiment.declaration import PointExperiment, Shown
from foretail.pipelines.runs.notes import lineages
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.store import Store
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
from foretail_studies.benchmark.track import (
    DEMAND,
    OPEN_LOOP,
    Track,
    best_of,
    by_family,
    frozen_of,
    percents_of,
    require_answers,
)
from foretail_studies.families import Condition, Families, composed_conditions, require_apart

ORACLE, LAST = "oracle", "last_value"
RUN = ["family", "condition", "seed"]
"""Columns that name a run."""
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
        require_apart(training_seeds=self.training_seeds, seeds=self.seeds)
        if self.parameters and self.model is None:
            raise ForetailError("parameters belong to no predictor: give model=KIND")

    @property
    def judged(self) -> str | None:
        """Name of what is judged."""
        given = (f"{name} {value}" for name, value in self.parameters.items())
        return None if self.model is None else ", ".join([self.model, *given])

    @cached_property
    def configs(self) -> dict[Condition, DemandConfig]:
        """The matrices and the schedules of every condition."""
        return composed_conditions(DemandConfig, self.families, self.shared)

    @cached_property
    def predictors(self) -> dict[str, DemandPredictor]:
        """Everybody but the oracle, trained, what is judged first; ForetailError where a run that judges trained."""
        judged = {} if self.judged is None else {self.judged: {"name": self.model, **self.parameters}}
        others = {name: {"name": name} for name in [LAST, *self.rules]}
        averages = {_average(window): {"name": "moving_average", "window": window} for window in self.windows}
        predictors = {name: untrained(name, given) for name, given in {**judged, **others, **averages}.items()}
        training = [config for where, config in self.configs.items() if where.family in self.training()]
        runs = [matrices(config, seed) for config in training for seed in self.training_seeds]
        seen = {sha256_of(one) for one in runs}
        for where, config in self.configs.items():
            for seed in self.seeds if where.family in self.held_out() else ():
                if sha256_of(matrices(config, seed)) in seen:
                    raise ForetailError(
                        f"{where} on seed {seed} is not a held-out run: predictors learn on its matrices"
                    )
        return {name: predictor.fit(runs) for name, predictor in predictors.items()}


@dataclass(frozen=True)
class RuleCase:
    """A rule or a predictor on all runs of a condition."""

    family: str
    condition: str
    rule: str

    @property
    def where(self) -> Condition:
        return Condition(self.family, self.condition)

    def __str__(self) -> str:
        return f"{self.where}: {self.rule}"


def matrices(config: DemandConfig, seed: int) -> DemandSequence:
    """The matrices of a condition on a seed."""
    return generated(config.collectives[0], seed, config)


def sha256_of(run: DemandSequence) -> str:
    """A hash of the matrices of a run."""
    return hashlib.sha256(np.ascontiguousarray(run.demand, "<f8").tobytes()).hexdigest()


def _average(window: int) -> str:
    return f"moving_average of {window}"


def _throughputs(case: RuleCase, so_far: SoFar, settings: DemandTrackSettings) -> list[dict[str, Any]]:
    """Throughput on the true matrices of schedules for what is predicted, and for the truth, by seed and trust."""
    config, rows = settings.configs[case.where], []
    for seed in settings.seeds:
        so_far(f"seed {seed}")
        run = matrices(config, seed)
        scores = score(
            settings.predictors[case.rule],
            [run],
            config.degree,
            settings.trusts,
            routings=[ROUTING],
            warm_up=config.warm_up,
            seed=config.seed,
        )
        for trust in settings.trusts:
            of_trust = scores.schedules[ROUTING, trust]
            row = {"seed": seed, "trust": trust, "matrices_sha256": sha256_of(run)}
            rows.append({**row, "throughput": of_trust.predicted, "of_truth": of_trust.true})
    return rows


def show_demand(rows: pd.DataFrame, settings: DemandTrackSettings) -> Shown:
    """Choose every trust on the training families, verify the frozen runs, and score."""
    first = rows[rows["rule"] == rows["rule"].iloc[0]]
    everybody = pd.concat([rows, first.assign(rule=ORACLE, throughput=first["of_truth"])])
    learns = everybody[everybody["family"].isin(list(settings.training()))]
    means = learns.groupby(["rule", "trust"], sort=False)["throughput"].mean().unstack(sort=False)
    trusts = means.idxmax(axis=1)
    chosen = everybody[everybody["trust"] == everybody["rule"].map(trusts)]
    oracle = chosen[chosen["rule"] == ORACLE]
    truth = oracle.set_index(RUN)["throughput"].rename("oracle")
    chosen = chosen.join(truth, on=RUN)
    percents = percents_of(chosen.assign(percent=100 * chosen["throughput"] / chosen["oracle"]))
    training = [where for where in percents if where.family in settings.training()]
    track = Track(
        DEMAND,
        settings.size,
        percents,
        settings.held_out().keys(),
        frozen_of(oracle, settings.size, settings.held_out(), "matrices_sha256", "throughput"),
        LAST,
        best_of(percents, training, [LAST, *map(_average, settings.windows)]),
        "the throughput of the schedules of predictions, in percent of the oracle's",
    )
    words = ", ".join(f"{rule} {trust}" for rule, trust in trusts.items())
    return track.shown(settings.judged, list(trusts.index), [f"k, chosen on the training families: {words}."])


DEMAND_TRACK = PointExperiment(
    settings=DemandTrackSettings,
    kind="demand_track",
    cases=lambda settings: [
        RuleCase(one.family, one.condition, rule) for one in settings.configs for rule in settings.predictors
    ],
    measure=_throughputs,
    show=show_demand,
    code=("models.demand.scores", "pipelines.demand"),
    varied=("model", "parameters", "rules", "windows", "training_seeds", "shared", "families"),
    depends_on=lambda case, settings: {
        "matrices": asdict(settings.configs[case.where]),
        "predictor": hashlib.sha256(to_json(settings.predictors[case.rule]).encode()).hexdigest(),
    },
)


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

    @cached_property
    def traffic(self) -> dict[Condition, SlottedTraffic]:
        """The workload and the switch of every condition."""
        return traffic_of(self)

    @cached_property
    def hashes(self) -> dict[tuple[Condition, int], str]:
        """Hashes of scenario and seed, by condition and seed."""
        return {
            (where, seed): traffic_sha256(run_in(one, seed))
            for where, one in self.traffic.items()
            for seed in self.seeds
        }

    @cached_property
    def judged(self) -> Judged | None:
        """The policy or model that is judged; ForetailError when it was given a held-out run."""
        if self.model is None:
            return None
        if (python := PythonPolicy.of(self.model)) is not None:
            return Judged(python.name, self.asking or "learned", python)
        if not is_predictor(self.model):
            require_answers(self.model)
            _policy(self.model)
            return Judged(self.model, self.model, None)
        ensemble = load_predictor(self.model, self.tracking, Store(self.store_dir))
        if not isinstance(ensemble, Ensemble):
            raise ForetailError(f"{self.model} is a network, and this track asks trees: give trees")
        held_out = [
            (f"{where} on seed {seed}", traffic_sha)
            for (where, seed), traffic_sha in self.hashes.items()
            if where.family in self.held_out()
        ]
        for lineage in lineages():
            refuse_traffic(held_out, lineage, "the model")
        asking = self.asking or str(ensemble.origin.get(POLICY, "credence"))
        return Judged(f"{asking}, the model", asking, ensemble)

    @property
    def everybody(self) -> list[str]:
        """All rules that run, each once, the judged one first."""
        judged = [] if self.judged is None else [self.judged.name]
        return list(dict.fromkeys([*judged, LQD, ACCEPT, *self.rules, *self.thresholds]))


@dataclass(frozen=True)
class Judged:
    """A policy that is judged, with the predictor or the function in Python that it asks."""

    name: str
    policy: str
    asks: Ensemble | PythonPolicy | None

    @property
    def identity(self) -> list[str]:
        """Everything that its decisions depend on."""
        if isinstance(self.asks, PythonPolicy):
            return [self.policy, self.asks.sha256, self.asks.function]
        return [policy_identity(self.policy)] if self.asks is None else [self.policy, self.asks.sha256]


def _sent(case: RuleCase, so_far: SoFar, settings: OpenLoopSettings) -> list[dict[str, Any]]:
    """Packets that a rule sends on each seed, with a hash of the arrivals; a policy in Python gets them in batches."""
    so_far("")
    traffic, judged = settings.traffic[case.where], settings.judged
    switch = (traffic.ports, traffic.buffer)
    drawn = [frozen_arrivals(workload_in(traffic), *switch, traffic.slots, seed) for seed in settings.seeds]
    asks = judged.asks if judged is not None and judged.name == case.rule else None
    if judged is None or asks is None:
        sent = [packets_sent(batches, *switch, [_policy(case.rule)])[0] for batches, _ in drawn]
    elif isinstance(asks, PythonPolicy):
        sequences = [Slotted.joined(batches) for batches, _ in drawn]
        live = run_live(sequences, *switch, asks.fresh().decide, asks.features, policy=judged.policy)
        sent = [run.transmitted for run in live.runs]
    else:
        arithmetic: dict[str, Any] = {**arithmetic_of({item.name: item.params for item in asks.features})}
        if "average_shift" in arithmetic:
            arithmetic["average_shift"] = max(slots_shift(arithmetic["average_shift"]), 0)
        runs = (KnownRun.in_slots(batches, *switch, **arithmetic) for batches, _ in drawn)
        sent = [run.sent(judged.policy, scorer_of(asks)) for run in runs]
    return [
        {"seed": seed, "sent": count, "arrivals_sha256": digest}
        for seed, count, (_, digest) in zip(settings.seeds, sent, drawn, strict=True)
    ]


@lru_cache(maxsize=16)
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
    composed = composed_conditions(CollectConfig, families.families, ["source=slotted", *families.shared])
    return {where: one.slotted for where, one in composed.items()}


def recovered(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return the rows with what LQD and always accepting send on the same arrivals, and the recovered loss in percent.

    The last is missing where always accepting loses nothing. `by` is the column with the name of who sends.
    """
    for name, policy in (("sent_by_lqd", LQD), ("sent_by_accept", ACCEPT)):
        rows = rows.merge(rows[rows[by] == policy].set_index(RUN)["sent"].rename(name), on=RUN)
    counts = zip(rows["sent_by_lqd"], rows["sent"], rows["sent_by_accept"], strict=True)
    shares = pd.Series([recovered_loss(*one) for one in counts], rows.index, float)
    return rows.assign(recovered_percent=100 * shares)


def show_open_loop(rows: pd.DataFrame, settings: OpenLoopSettings) -> Shown:
    """Verify the frozen arrivals, and score everybody."""
    compared = recovered(rows, "rule")
    if (lost := compared[compared["recovered_percent"].isna()]).size:
        first = lost.iloc[0]
        raise ForetailError(
            f"{first['family']} {first['condition']} on seed {first['seed']} loses nothing to always accepting: raise "
            "its load"
        )
    percents = percents_of(compared.rename(columns={"recovered_percent": "percent"}))
    training = [where for where in percents if where.family in settings.training()]
    tuned = best_of(percents, training, settings.thresholds)
    track = Track(
        OPEN_LOOP,
        settings.size,
        percents,
        settings.held_out().keys(),
        frozen_of(rows[rows["rule"] == LQD], settings.size, settings.held_out(), "arrivals_sha256", "sent"),
        ACCEPT,
        tuned,
        "the share of what always accepting loses against LQD that a rule wins back",
    )
    judged = settings.judged
    name = None if judged is None else judged.name
    shown = [
        rule for rule in settings.everybody if rule in (name, tuned, *settings.rules) or rule not in settings.thresholds
    ]
    best = f"{tuned} is the best of {len(settings.thresholds)} on the training families."
    live = [judged.asks.note] if judged is not None and isinstance(judged.asks, PythonPolicy) else []
    return track.shown(name, shown, [best, *live])


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


OPEN_LOOP_TRACK = PointExperiment(
    settings=OpenLoopSettings,
    kind="open_loop",
    cases=lambda settings: [
        RuleCase(one.family, one.condition, rule) for one in settings.traffic for rule in settings.everybody
    ],
    measure=_sent,
    show=show_open_loop,
    code=("sim_bridge.arrivals", "sim_bridge.open_loop"),
    varied=("model", "asking", "rules", "thresholds", "shared", "families"),
    depends_on=lambda case, settings: {
        "traffic": [settings.hashes[case.where, seed] for seed in settings.seeds],
        "rule": settings.judged.identity
        if settings.judged is not None and settings.judged.name == case.rule
        else [policy_identity(case.rule)],
    },
)
