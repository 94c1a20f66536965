"""Lossless and lossy traffic in one buffer: policies and transports beside each other, and beside what theses say."""

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
from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.pipelines.comparison.claims import verdict_of
from foretail.pipelines.comparison.policy_runs import policy_run
from foretail.pipelines.comparison.statistics import PairedDifference, interval_text, mean_interval
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.data.simulation import Native, leaf_buffers, scratch_run
from foretail.pipelines.experiment.cases import measure_cases
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Cell, Table
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.packets.cost import slowdowns, slowdowns_by_kind
from foretail.sim_bridge.packets.simulation import PacketRun

METRICS = {
    "cost": "cost J",
    "slowdown": "mean slowdown",
    "fct_us": "mean FCT, us",
    "fct_p99_us": "p99 FCT, us",
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
    """Variants of a policy or a transport under conditions; queues may be lossless."""

    shared: list[str] = setting([], "Overrides of foretail evaluate that all conditions share.")
    conditions: dict[str, list[str]] = setting(MISSING, "Overrides of foretail evaluate, by the condition's name.")
    variants: dict[str, list[str]] = setting(
        MISSING, "Overrides of foretail evaluate that choose a policy and perhaps a transport, by the name in tables."
    )
    baselines: list[str] = setting(MISSING, "Variants to which the others are compared.")
    seeds: list[int] = setting(MISSING, "Traffic seeds of every run.", at_least=1, at_most=2**31 - 1)

    def check(self, where: str) -> None:
        """Raise ForetailError on a baseline that does not run."""
        super().check(where)
        for name in self.baselines:
            if name not in self.variants:
                raise ForetailError(f"baselines names {name}, which is not among variants: add it there")


@dataclass(frozen=True)
class Claim:
    """What the thesis says of a metric: its change in percent, as a mean over conditions."""

    words: str
    experiment: str
    conditions: str  #: how their names begin
    metric: str
    variant: str
    baseline: str
    percent: float | str


def _of_irn(control: str, baseline: str, slowdown: float | str, fct: float | str, fct_p99: float | str) -> list[Claim]:
    """Of IRN without PFC against another transport, under a congestion control."""
    words = {"roce_pfc": "RoCE with PFC", "irn_pfc": "IRN with PFC"}[baseline]
    percents = {"slowdown": slowdown, "fct_us": fct, "fct_p99_us": fct_p99}
    return [
        Claim(f"{control}: {METRICS[metric]}, IRN against {words}", "irn", control, metric, "irn", baseline, percent)
        for metric, percent in percents.items()
    ]


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
    *_of_irn("none", "roce_pfc", -73.1, -65.0, -69.9),
    *_of_irn("timely", "roce_pfc", -37.4, -37.5, -40.6),
    *_of_irn("dcqcn", "roce_pfc", -51.6, -49.1, -54.7),
    *_of_irn("none", "irn_pfc", -48.7, -36.0, -38.8),
    *_of_irn("timely", "irn_pfc", "close", "close", "close"),
    *_of_irn("dcqcn", "irn_pfc", "close", "close", "close"),
    Claim("none: mean slowdown, IRN with 60 KB a port against 240", "irn", "none", "slowdown", "irn_60", "irn", 16.3),
    Claim(
        "none: mean slowdown, IRN with 480 KB a port against 240", "irn", "none", "slowdown", "irn_480", "irn", "close"
    ),
)
"""Section 5.3 of Addanki's thesis, and Tables 4.2 and 4.6 of Mittal's."""


@dataclass(frozen=True)
class LosslessCase:
    """A run."""

    condition: str
    variant: str
    seed: int

    def __str__(self) -> str:
        return f"{self.variant} under {self.condition}, seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    """Everything that is composed and checked before the first run."""

    composed: Mapping[tuple[str, str], EvaluateConfig]  #: by condition and variant
    native: Native

    @classmethod
    def of(cls, settings: LosslessSettings) -> Plan:
        """Compose every condition with every variant."""
        composed = {
            (condition, variant): compose_settings(
                EvaluateConfig, [*settings.shared, *overrides, *chosen], f"conditions.{condition}"
            )
            for condition, overrides in settings.conditions.items()
            for variant, chosen in settings.variants.items()
        }
        return cls(composed, Native())

    def document(self, case: LosslessCase) -> dict[str, Any]:
        """The settings document of a run."""
        composed = self.composed[case.condition, case.variant]
        ((_, policy),) = composed.policy.items()
        return driver_config(composed.scenario, policy, case.seed, trace=False)

    def depends_on(self, case: LosslessCase) -> dict[str, Any]:
        """Everything that a measurement depends on."""
        return {**self.native.depends_on(self.document(case)), "code": code_digest(policy_run, measured)}


def measured(case: LosslessCase, so_far: SoFar, plan: Plan) -> dict[str, Any]:
    """Run a case, and return the values of METRICS."""
    document = plan.document(case)
    with scratch_run(document, plan.native, so_far) as run:
        metrics = policy_run(case.variant, case.seed, run).metrics()
        flows, end_ns, switches = run.flows(), run.summary["end_ns"], run.summary["switches"]
        queries = slowdowns_by_kind(flows, end_ns, document)["query"]
        slowdown = slowdowns(flows, end_ns)
        fct_us = slowdown * flows["ideal_fct_ns"] / 1000
        lossless = [switch["lossless"] for switch in switches if "lossless" in switch]
        ports = sum(len(switch["port_rates_bps"]) for switch in switches)
        queues_ns = max(len(document["queues"]["lossless"]) * ports, 1) * end_ns
        return {
            "cost": metrics["cost"],
            "slowdown": float(slowdown.mean()),
            "fct_us": float(fct_us.mean()),
            "fct_p99_us": float(np.percentile(fct_us, 99)),
            "incast": float(queries.mean()) if len(queries) else None,
            "short": metrics["slowdown.short.p99"],
            "pauses": sum(one["pauses"] for one in lossless),
            "paused_percent": 100 * sum(one["paused_ns"] for one in lossless) / queues_ns,
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
    """Run every variant under every condition, and set them beside each other and beside the theses."""
    plan = Plan.of(settings)
    cases = [LosslessCase(*case) for case in product(settings.conditions, settings.variants, settings.seeds)]
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
    means = rows.groupby(["condition", "variant"], sort=False)[list(METRICS)].mean()
    table = [
        (*names, *(_number(value) for value in found)) for names, found in zip(means.index, means.values, strict=True)
    ]
    changes = [
        (
            condition,
            variant,
            baseline,
            *(_text(change_percent(rows, [condition], metric, variant, baseline)) for metric in COMPARED),
        )
        for condition in settings.conditions
        for variant in settings.variants
        for baseline in settings.baselines
        if variant != baseline
    ]
    titles = [METRICS[metric] for metric in COMPARED]
    tables = [
        Table("Lossless and lossy traffic in one buffer", ("condition", "variant", *METRICS.values()), tuple(table)),
        Table(
            "Change in %, paired by seed",
            ("condition", "variant", "against", *titles),
            tuple(changes),
            (f"95 % t intervals over {len(settings.seeds)} seeds from {settings.seeds[0]}; of 0 there is no change.",),
        ),
    ]
    claims = _claims(rows, settings)
    return [*tables, claims] if claims.rows else tables


COMPARED = ("cost", "slowdown", "incast", "short", "pauses")


def _number(value: float) -> Cell:
    return None if np.isnan(value) else float(value)


def _text(change: PairedDifference) -> Cell:
    return None if change.mean is None else interval_text(change)


def change_percent(
    rows: pd.DataFrame, conditions: Sequence[str], metric: str, variant: str, baseline: str
) -> PairedDifference:
    """Change of a metric in percent: by seed the mean over conditions, and its interval over seeds."""
    by_case = rows.set_index(["condition", "variant", "seed"])[metric].astype(float)
    changes: list[float | None] = []
    for seed in rows["seed"].unique():
        pairs = [(by_case[name, variant, seed], by_case[name, baseline, seed]) for name in conditions]
        whole = [
            0.0 if value == other else 100 * (value / other - 1)
            for value, other in pairs
            if value == other or other > 0
        ]
        changes.append(float(np.mean(whole)) if whole else None)
    return mean_interval(changes)


def _claims(rows: pd.DataFrame, settings: LosslessSettings) -> Table:
    found: list[tuple[Cell, ...]] = []
    for claim in CLAIMS:
        conditions = [name for name in settings.conditions if name.startswith(claim.conditions)]
        ran = bool(conditions) and {claim.variant, claim.baseline} <= set(settings.variants)
        if claim.experiment != settings.experiment or not ran:
            continue
        change = change_percent(rows, conditions, claim.metric, claim.variant, claim.baseline)
        says = claim.percent if isinstance(claim.percent, str) else f"{claim.percent:+g}"
        found.append((claim.words, says, _text(change), verdict_of(claim.percent, change)))
    return Table("Claims of the theses, change in %", ("claim", "thesis", "here", "verdict"), tuple(found))


def _verdict(rows: pd.DataFrame, settings: LosslessSettings) -> list[str]:
    lost = int(rows["lossless_drops"].sum())
    best = rows.groupby(["condition", "variant"], sort=False)["cost"].mean().unstack().idxmin(axis=1)
    least = rows.groupby(["condition", "variant"], sort=False)["pauses"].mean().unstack().idxmin(axis=1)
    return [
        f"{lost:,} lossless packets were dropped in {len(rows):,} runs.",
        "Least cost J: " + "; ".join(f"{name} {variant}" for name, variant in best.items()) + ".",
        "Fewest pauses: " + "; ".join(f"{name} {variant}" for name, variant in least.items()) + ".",
    ]
