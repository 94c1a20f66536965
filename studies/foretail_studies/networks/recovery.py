"""Which timeouts are ns-3's own: the same runs with senders that repair losses as ns-3 and as Linux."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import JobSettings
from foretail.configs.schema.fields import setting
from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.network.transport import RECOVERIES
from foretail.core.code import code_digest
from foretail.pipelines.comparison.policy_runs import policy_run
from foretail.pipelines.comparison.statistics import change_text, interval_text, paired_difference
from foretail.pipelines.data.scenario import driver_config
from foretail.pipelines.data.simulation import Native, scratch_run
from foretail.pipelines.experiment.cases import measure_cases
from foretail.pipelines.experiment.declaration import FunctionExperiment, Run, Shown
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Cell, Table
from foretail.pipelines.settings.compose import compose_settings


@dataclass
class RecoverySettings(JobSettings):
    """Policies under conditions, with every way of repairing losses."""

    shared: list[str] = setting([], "Overrides of foretail train that all conditions share.")
    conditions: dict[str, list[str]] = setting(MISSING, "Overrides of foretail train, by the condition's name.")
    policies: dict[str, list[str]] = setting(
        MISSING, "Overrides of foretail train that choose a policy, by its name in the table."
    )
    seeds: list[int] = setting(MISSING, "Traffic seeds of every run.", at_least=1, at_most=2**31 - 1)


@dataclass(frozen=True)
class RecoveryCase:
    """A run."""

    condition: str
    policy: str
    recovery: str
    seed: int

    def __str__(self) -> str:
        return f"{self.policy} under {self.condition} as {self.recovery}, seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    """Everything that is composed and checked before the first run."""

    composed: Mapping[tuple[str, str], TrainConfig]  #: by condition and policy
    native: Native

    @classmethod
    def of(cls, settings: RecoverySettings) -> Plan:
        """Compose every condition with every policy; ForetailError when one has no TCP of Linux's."""
        composed = {
            (condition, policy): compose_settings(
                TrainConfig, [*settings.shared, *overrides, *chosen], f"conditions.{condition}"
            )
            for condition, overrides in settings.conditions.items()
            for policy, chosen in settings.policies.items()
        }
        for (condition, _), one in composed.items():
            replace(one.scenario.transport, recovery="linux").check(f"conditions.{condition}: scenario.transport")
        return cls(composed, Native())

    def document(self, case: RecoveryCase) -> dict[str, Any]:
        """The settings document of a run."""
        composed = self.composed[case.condition, case.policy]
        ((_, policy),) = composed.policy.items()
        transport = replace(composed.scenario.transport, recovery=case.recovery)
        return driver_config(replace(composed.scenario, transport=transport), policy, case.seed, trace=False)

    def depends_on(self, case: RecoveryCase) -> dict[str, Any]:
        """Everything that a measurement depends on."""
        return {**self.native.depends_on(self.document(case)), "code": code_digest(policy_run, measured)}


def measured(case: RecoveryCase, so_far: SoFar, plan: Plan) -> dict[str, Any]:
    """Run a case; its cost J, and how many of its flows had a timeout."""
    with scratch_run(plan.document(case), plan.native, so_far) as run:
        metrics = policy_run(case.policy, case.seed, run).metrics()
        return {metric: metrics[metric] for metric in ("cost", "timed_out_percent", "timeouts", "retransmissions")}


def show(settings: RecoverySettings, run: Run) -> Shown:
    """Run every policy under every condition, and set the ways of repairing losses beside each other."""
    plan = Plan.of(settings)
    cases = [
        RecoveryCase(*case) for case in product(settings.conditions, settings.policies, RECOVERIES, settings.seeds)
    ]
    measurements = measure_cases(
        settings.experiment,
        "recovery",
        cases,
        settings,
        name=str,
        depends_on=plan.depends_on,
        measure=partial(measured, plan=plan),
    )
    rows = measurements.rows(lambda case, measurement: measurement)
    return Shown(rows, _tables(rows, settings), verdict=_verdict(rows))


RECOVERY = FunctionExperiment(RecoverySettings, show)


def _tables(rows: pd.DataFrame, settings: RecoverySettings) -> list[Table]:
    """Timeouts, and costs against those of the first policy."""
    timeouts: list[tuple[Cell, ...]] = []
    costs: list[tuple[Cell, ...]] = []
    logs = {
        case: dict(np.log(runs.set_index("seed")["cost"]))
        for case, runs in rows.groupby(["condition", "policy", "recovery"], sort=False)
    }
    first = next(iter(settings.policies))
    for (condition, policy), runs in rows.groupby(["condition", "policy"], sort=False):
        ns3, linux = (runs[runs["recovery"] == recovery].set_index("seed") for recovery in RECOVERIES)
        shares = [way["timed_out_percent"] for way in (ns3, linux)]
        fewer = interval_text(paired_difference(dict(shares[1]), dict(shares[0])))
        timeouts.append(
            (str(condition), str(policy), *(float(share.mean()) for share in shares), fewer, _own_share(runs))
        )
        change = paired_difference(logs[condition, policy, "linux"], logs[condition, policy, "ns3"])
        against = [
            change_text(paired_difference(logs[condition, policy, way], logs[condition, first, way]))
            for way in RECOVERIES
        ]
        means = (float(way["cost"].mean()) for way in (ns3, linux))
        costs.append((str(condition), str(policy), *means, change_text(change), *against))
    return [
        Table(
            "Flows with a timeout, losses repaired as ns-3 and as Linux",
            ("condition", "policy", "ns3, %", "linux, %", "difference", "ns-3's own timeouts, %"),
            tuple(timeouts),
        ),
        Table(
            "Cost J, losses repaired as ns-3 and as Linux",
            ("condition", "policy", "ns3", "linux", "change", f"ns3, over {first}", f"linux, over {first}"),
            tuple(costs),
            (
                f"Means over {len(settings.seeds)} seeds from {settings.seeds[0]}; differences are paired by seed, "
                "with 95 % intervals, those of J in the geometric mean.",
            ),
        ),
    ]


def _own_share(runs: pd.DataFrame) -> float | None:
    """How many of ns-3's timeouts Linux's senders do not have, in %; None where ns-3 has none."""
    timeouts = runs.groupby("recovery")["timeouts"].sum()
    return 100 * (1 - float(timeouts["linux"]) / float(timeouts["ns3"])) if timeouts["ns3"] > 0 else None


def _verdict(rows: pd.DataFrame) -> list[str]:
    """How many timeouts are ns-3's own, and in how many conditions another policy has the least cost."""
    best = rows.groupby(["condition", "recovery", "policy"])["cost"].mean().unstack().idxmin(axis=1).unstack()
    other = best.index[best["ns3"] != best["linux"]]
    changes = [f"{name}: {best['ns3'][name]} as ns-3, {best['linux'][name]} as Linux" for name in other]
    own = _own_share(rows)
    return [
        f"{own:.3g} % of ns-3's timeouts are its own." if own is not None else "Nothing timed out as ns-3.",
        f"The policy with the least mean J is the same in {len(best) - len(other)} of {len(best)} conditions"
        + (f"; {'; '.join(changes)}." if changes else "."),
    ]
