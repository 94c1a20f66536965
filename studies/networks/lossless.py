"""Lossless and lossy traffic in one buffer: policies beside each other, and beside the thesis that has Reverie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import JobSettings
from foretail.configs.schema.fields import setting
from foretail.configs.schema.model_stages import TrainConfig
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.pipelines.comparison.flows import policy_run
from foretail.pipelines.comparison.statistics import PairedDifference, interval_text, mean_interval
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.data.simulation import Native, leaf_buffers, scratch_run
from foretail.pipelines.experiment.cases import measure_cases
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Cell, Table
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.packets.cost import slowdowns_by_kind
from foretail.sim_bridge.packets.simulation import PacketRun
from foretail.studies.flows.verdicts import verdict_of

METRICS = {
    "cost": "cost J",
    "incast": "incast, mean slowdown",
    "short": "short, p99 slowdown",
    "pauses": "pauses",
    "paused_percent": "paused, %",
    "lossless_p99": "lossless, p99 of buffer %",
    "lossy_p99": "lossy, p99 of buffer %",
    "drops": "lossy drops",
    "lossless_drops": "lossless drops",
    "unfinished": "unfinished",
}
"""What is measured of a run, with its title."""


@dataclass
class LosslessSettings(JobSettings):
    """Policies under conditions with lossless queues."""

    shared: list[str] = setting([], "Overrides of foretail train that all conditions share.")
    conditions: dict[str, list[str]] = setting(MISSING, "Overrides of foretail train, by the condition's name.")
    policies: dict[str, list[str]] = setting(
        MISSING, "Overrides of foretail train that choose a policy, by its name in the table."
    )
    baselines: list[str] = setting(MISSING, "Policies to which the others are compared.")
    seeds: list[int] = setting(MISSING, "Traffic seeds of every run.", at_least=1, at_most=2**31 - 1)

    def check(self, where: str) -> None:
        """Raise ForetailError on a baseline that does not run."""
        super().check(where)
        for name in self.baselines:
            if name not in self.policies:
                raise ForetailError(f"baselines names {name}, which is not among policies: add it there")


@dataclass(frozen=True)
class Claim:
    """What the thesis says of a metric: its change in percent, as a mean over conditions."""

    words: str
    experiment: str
    conditions: str  #: how their names begin
    metric: str
    policy: str
    baseline: str
    percent: float | str


CLAIMS = (
    Claim("pauses over loads, Reverie against DT", "reverie_a", "load", "pauses", "reverie", "sonic", -60.0),
    Claim("pauses over loads, Reverie against ABM", "reverie_a", "load", "pauses", "reverie", "sonic_abm", -71.2),
    Claim("pauses over bursts, Reverie against DT", "reverie_a", "burst", "pauses", "reverie", "sonic", -61.8),
    Claim("pauses over bursts, Reverie against ABM", "reverie_a", "burst", "pauses", "reverie", "sonic_abm", -57.4),
    Claim("incast over loads, Reverie against DT", "reverie_a", "load", "incast", "reverie", "sonic", -18.5),
    Claim("incast over loads, Reverie against ABM", "reverie_a", "load", "incast", "reverie", "sonic_abm", -18.2),
    Claim("incast over bursts, Reverie against DT", "reverie_a", "burst", "incast", "reverie", "sonic", -10.0),
    Claim("incast over bursts, Reverie against ABM", "reverie_a", "burst", "incast", "reverie", "sonic_abm", -17.0),
    Claim("pauses over loads, Reverie against DT", "reverie_b", "load", "pauses", "reverie", "sonic", "close"),
    Claim("pauses over loads, Reverie against ABM", "reverie_b", "load", "pauses", "reverie", "sonic_abm", -100.0),
    Claim("incast over loads, Reverie against DT", "reverie_b", "load", "incast", "reverie", "sonic", -33.7),
    Claim("incast over loads, Reverie against ABM", "reverie_b", "load", "incast", "reverie", "sonic_abm", -1.08),
    Claim("short flows over loads, Reverie against DT", "reverie_a", "load", "short", "reverie", "sonic", -42.7),
    Claim("short flows over loads, Reverie against ABM", "reverie_a", "load", "short", "reverie", "sonic_abm", "close"),
)
"""Section 5.3 of Addanki's thesis."""


@dataclass(frozen=True)
class LosslessCase:
    """A run."""

    condition: str
    policy: str
    seed: int

    def __str__(self) -> str:
        return f"{self.policy} under {self.condition}, seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    """Everything that is composed and checked before the first run."""

    composed: Mapping[tuple[str, str], TrainConfig]  #: by condition and policy
    native: Native

    @classmethod
    def of(cls, settings: LosslessSettings) -> Plan:
        """Compose every condition with every policy; ForetailError when one has no lossless queue."""
        composed = {
            (condition, policy): compose_settings(
                TrainConfig, [*settings.shared, *overrides, *chosen], f"conditions.{condition}"
            )
            for condition, overrides in settings.conditions.items()
            for policy, chosen in settings.policies.items()
        }
        for (condition, _), one in composed.items():
            if not one.scenario.queues.lossless:
                raise ForetailError(
                    f"conditions.{condition} has no queue that may not lose a packet: set scenario.queues.lossless"
                )
        return cls(composed, Native())

    def document(self, case: LosslessCase) -> dict[str, Any]:
        """The settings document of a run."""
        composed = self.composed[case.condition, case.policy]
        ((_, policy),) = composed.policy.items()
        return driver_config(composed.scenario, policy, case.seed, trace=False)

    def depends_on(self, case: LosslessCase) -> dict[str, Any]:
        """Everything that a measurement depends on."""
        return {**self.native.depends_on(self.document(case)), "code": code_digest(policy_run, measured)}


def measured(case: LosslessCase, so_far: SoFar, plan: Plan) -> dict[str, Any]:
    """Run a case, and return the values of METRICS."""
    document = plan.document(case)
    with scratch_run(document, plan.native, so_far) as run:
        metrics = policy_run(case.policy, case.seed, run).metrics()
        of_kind = slowdowns_by_kind(run.flows(), run.summary["end_ns"], document)
        lossless = [switch["lossless"] for switch in run.summary["switches"]]
        queues = len(document["queues"]["lossless"]) * sum(
            len(switch["port_rates_bps"]) for switch in run.summary["switches"]
        )
        return {
            "cost": metrics["cost"],
            "incast": float(of_kind["query"].mean()) if len(of_kind["query"]) else None,
            "short": metrics["slowdown.short.p99"],
            "pauses": sum(one["pauses"] for one in lossless),
            "paused_percent": 100 * sum(one["paused_ns"] for one in lossless) / (queues * run.summary["end_ns"]),
            **_occupancy(run),
            "drops": metrics["drops"],
            "lossless_drops": sum(one["drops"]["packets"] for one in lossless),
            "unfinished": metrics["unfinished"],
        }


def _occupancy(run: PacketRun) -> dict[str, float]:
    """The 99th percentile of what each class holds of its leaf's buffer, in %."""
    samples = run.occupancy()
    buffers = leaf_buffers(run)
    of_leaves = samples[np.isin(samples["switch"], list(buffers))]
    sizes = np.array([buffers[number] for number in of_leaves["switch"]])
    lossless = of_leaves["lossless_bytes"]
    lossy = of_leaves["occupancy_bytes"] - lossless
    return {
        "lossless_p99": float(np.percentile(100 * lossless / sizes, 99)),
        "lossy_p99": float(np.percentile(100 * lossy / sizes, 99)),
    }


def show(settings: LosslessSettings, run: Run) -> Shown:
    """Run every policy under every condition, and set them beside each other and beside the thesis."""
    plan = Plan.of(settings)
    cases = [LosslessCase(*case) for case in product(settings.conditions, settings.policies, settings.seeds)]
    measurements = measure_cases(
        settings.experiment,
        "lossless",
        cases,
        settings,
        name=str,
        depends_on=plan.depends_on,
        measure=partial(measured, plan=plan),
    )
    rows = measurements.rows(lambda case, measurement: measurement)
    return Shown(rows, _tables(rows, settings), verdict=_verdict(rows, settings))


LOSSLESS = FunctionExperiment(LosslessSettings, show)


def _tables(rows: pd.DataFrame, settings: LosslessSettings) -> list[Table]:
    means = rows.groupby(["condition", "policy"], sort=False)[list(METRICS)].mean()
    table = [
        (*names, *(_number(value) for value in found)) for names, found in zip(means.index, means.values, strict=True)
    ]
    changes = [
        (
            condition,
            policy,
            baseline,
            *(_text(_change(rows, [condition], metric, policy, baseline)) for metric in COMPARED),
        )
        for condition in settings.conditions
        for policy in settings.policies
        for baseline in settings.baselines
        if policy != baseline
    ]
    titles = [METRICS[metric] for metric in COMPARED]
    tables = [
        Table("Lossless and lossy traffic in one buffer", ("condition", "policy", *METRICS.values()), tuple(table)),
        Table(
            "Change in %, paired by seed",
            ("condition", "policy", "against", *titles),
            tuple(changes),
            (f"95 % t intervals over {len(settings.seeds)} seeds from {settings.seeds[0]}; of 0 there is no change.",),
        ),
    ]
    claims = _claims(rows, settings)
    return [*tables, claims] if claims.rows else tables


COMPARED = ("cost", "incast", "short", "pauses")


def _number(value: float) -> Cell:
    return None if np.isnan(value) else float(value)


def _text(change: PairedDifference) -> Cell:
    return None if change.mean is None else interval_text(change)


def _change(rows: pd.DataFrame, conditions: Sequence[str], metric: str, policy: str, baseline: str) -> PairedDifference:
    """Change of a metric in percent: by seed the mean over conditions, and its interval over seeds."""
    by_case = rows.set_index(["condition", "policy", "seed"])[metric].astype(float)
    changes: list[float | None] = []
    for seed in rows["seed"].unique():
        pairs = [(by_case[name, policy, seed], by_case[name, baseline, seed]) for name in conditions]
        whole = [100 * (value / other - 1) for value, other in pairs if other > 0]
        changes.append(float(np.mean(whole)) if whole else None)
    return mean_interval(changes)


def _claims(rows: pd.DataFrame, settings: LosslessSettings) -> Table:
    found: list[tuple[Cell, ...]] = []
    for claim in CLAIMS:
        conditions = [name for name in settings.conditions if name.startswith(claim.conditions)]
        if (
            claim.experiment != settings.experiment
            or not conditions
            or not {claim.policy, claim.baseline} <= set(settings.policies)
        ):
            continue
        change = _change(rows, conditions, claim.metric, claim.policy, claim.baseline)
        says = claim.percent if isinstance(claim.percent, str) else f"{claim.percent:+g}"
        found.append((claim.words, says, _text(change), verdict_of(claim.percent, change)))
    return Table("Claims of the thesis, change in %", ("claim", "thesis", "here", "verdict"), tuple(found))


def _verdict(rows: pd.DataFrame, settings: LosslessSettings) -> list[str]:
    lost = int(rows["lossless_drops"].sum())
    best = rows.groupby(["condition", "policy"], sort=False)["cost"].mean().unstack().idxmin(axis=1)
    least = rows.groupby(["condition", "policy"], sort=False)["pauses"].mean().unstack().idxmin(axis=1)
    return [
        f"{lost:,} lossless packets were dropped in {len(rows):,} runs.",
        "Least cost J: " + "; ".join(f"{name} {policy}" for name, policy in best.items()) + ".",
        "Fewest pauses: " + "; ".join(f"{name} {policy}" for name, policy in least.items()) + ".",
    ]
