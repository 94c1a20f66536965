"""Generated arrivals under several policies: settings, cases, measurement and rows that three experiments share.

A case is one sequence of arrivals with one share of inverted predictions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import pandas as pd
from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.configs.schema.fields import part, setting
from foretail.configs.schema.policies import OF_ARRIVALS, PolicyParameters, require_distinct_policies
from foretail.configs.schema.scenario import Rules
from foretail.core.errors import ForetailError
from foretail.features.dataset import schema
from foretail.models.scoring.metrics import Confusion
from foretail.pipelines.comparison.statistics import PairedDifference, mean_interval
from foretail.pipelines.experiment.declaration import PointExperiment, Shown
from foretail.pipelines.runs.points import SoFar
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.arrivals.workloads import WORKLOADS, LowerBound
from foretail.sim_bridge.builds import native_policy, policy_identity
from foretail.sim_bridge.open_loop.slotted import compare, flipped

FLIP_SEED = 2**32
"""Added to a point's seed for its flips, which must not be the random numbers that made its arrivals."""
LQD_RATIO = 1.707
"""Competitive ratio of LQD, proven by Antoniadis et al. (ICALP 2021)."""
SENT = "transmitted_"
"""Begins the columns with what each policy sent."""
SWITCH = ["workload", "ports", "buffer"]
LINE: dict[str, Any] = {"color": "black", "linewidth": 0.9, "zorder": 1}


@dataclass
class SlotSettings(PointSettings):
    """Generated arrivals under several policies: every workload, switch, flip probability and seed is a point."""

    workloads: list[str] = setting(
        MISSING, "Workloads by their names in foretail.sim_bridge.arrivals.workloads, with their defaults."
    )
    ports: list[int] = setting(MISSING, "Number N of ports of the switch.", at_least=1, at_most=32_768)
    buffer_per_port: list[int] = setting(
        MISSING, "Shared buffer divided by the number of ports, in packets (B / N).", at_least=1, at_most=2**24
    )
    flip_probabilities: list[float] = setting(
        [0.0], "Shares of perfect predictions that are inverted.", at_least=0, at_most=1
    )
    seeds: list[int] = setting([1], "Seeds of arrivals and flips.", at_least=1, at_most=2**31 - 1)
    slots: int = setting(MISSING, "Number of slots with arrivals.", at_least=1, at_most=2**40)
    policies: list[str] = setting(MISSING, "Policies beside LQD; HEADER.hpp:TYPE is one of your own.")
    rules: Rules = part(Rules, "Rules of LQD.")
    rules_seed: int = setting(0, "Seed of random victims.", at_least=0, at_most=2**63 - 1)
    parameters: PolicyParameters = part(PolicyParameters, "Parameters of the policies.")

    def check(self, where: str) -> None:
        """Raise ForetailError on unknown workloads, policies that are there twice, and several queues per port."""
        super().check(where)
        require_distinct_policies("policies", self.policies)
        for name in self.workloads:
            if name not in WORKLOADS:
                raise ForetailError(f"workloads = {name} is unknown: choose from {', '.join(WORKLOADS)}")
        if self.parameters.count > 1:
            raise ForetailError(
                "parameters gives a port several queues, but generated arrivals have one: set parameters.queues=1 and "
                "one number in parameters.alpha"
            )


@dataclass
class CredenceSettings(SlotSettings):
    """The same for an experiment on Credence."""

    def check(self, where: str) -> None:
        """Raise ForetailError when the policy is missing that the experiment is about."""
        super().check(where)
        if "credence" not in self.policies:
            raise ForetailError(f"policies lacks credence, which {self.experiment} is about: add it")


@dataclass(frozen=True)
class SlotCase:
    """One sequence of arrivals and one share of inverted predictions."""

    workload: str  #: name in ``WORKLOADS``; its parameters are the defaults
    ports: int  #: of the switch
    buffer: int  #: of the switch, in packets
    slots: int  #: slots with arrivals
    seed: int  #: of the arrivals and, shifted, of the flips
    flip_probability: float  #: share of perfect predictions that is inverted

    @property
    def name(self) -> str:
        """For progress and tracking."""
        return f"{self.workload} N={self.ports} B={self.buffer} seed={self.seed} p={self.flip_probability:.12g}"


def slot_experiment(
    settings: type[SlotSettings], show: Callable[[pd.DataFrame, SlotSettings], Shown], *, optimum: bool
) -> PointExperiment[SlotSettings, SlotCase]:
    """The experiment that shows these points in its own way; `optimum`: the exact offline optimum is computed too."""
    return PointExperiment(
        settings=settings,
        kind="slots",
        cases=cases_of,
        name=lambda case: case.name,
        measure=partial(counts_of, optimum=optimum),
        rows=row_of,
        show=show,
        code=("sim_bridge",),
        varied=("workloads", "ports", "buffer_per_port", "flip_probabilities", "seeds", "policies"),
        depends_on=lambda case, settings: {
            "workload": asdict(WORKLOADS[case.workload]()),
            "policies": sorted(policy_identity(policy) for policy in settings.policies),
            "optimum": optimum,
        },
        tracks_points=True,
    )


def cases_of(settings: SlotSettings) -> Iterator[SlotCase]:
    """The cases, each once: where nothing is random, the first seed stands for all."""
    for policy in settings.policies:
        native_policy(policy)  # what does not compile is said before anything has run
    for workload in settings.workloads:
        for ports in settings.ports:
            for per_port in settings.buffer_per_port:
                for probability in settings.flip_probabilities:
                    random = probability not in (0.0, 1.0) or not issubclass(WORKLOADS[workload], LowerBound)
                    for seed in settings.seeds if random else settings.seeds[:1]:
                        case = SlotCase(workload, ports, per_port * ports, settings.slots, seed, probability)
                        WORKLOADS[workload]().batches(case.ports, case.buffer, case.slots, case.seed)
                        yield case


def counts_of(case: SlotCase, so_far: SoFar, settings: SlotSettings, *, optimum: bool) -> dict[str, Any]:
    """What every policy sends of a sequence."""

    def reported(batches: Iterator[Slotted]) -> Iterator[Slotted]:
        for batch in batches:
            so_far("")
            yield batch

    workload = WORKLOADS[case.workload]()
    compared = compare(
        reported(workload.batches(case.ports, case.buffer, case.slots, case.seed)),
        case.ports,
        case.buffer,
        sorted(settings.policies),
        flipped(case.flip_probability, FLIP_SEED + case.seed),
        rules=schema.Rules(**asdict(settings.rules)),
        parameters=settings.parameters,
        seed=settings.rules_seed,
        optimum=optimum,
        threads=1,
    )
    return {
        "arrivals": compared.arrivals,
        "transmitted": compared.transmitted,
        "followlqd_without_predicted": compared.followlqd,
        "optimum": compared.optimum,
        "confusion": {name: getattr(compared.whole, name) for name in ("tp", "fp", "tn", "fn")},
    }


def row_of(case: SlotCase, counts: Mapping[str, Any], settings: SlotSettings) -> dict[str, Any]:
    """The counts of a case, and the ratios that follow from them; NaN where one has no value."""
    sent: Mapping[str, int] = counts["transmitted"]
    lqd, reduced, optimum = sent["lqd"], counts["followlqd_without_predicted"], counts["optimum"]
    eta = _quotient(lqd, reduced)
    closed_form = Confusion(**counts["confusion"]).closed_form_eta(case.ports)
    row: dict[str, Any] = {
        "buffer_per_port": case.buffer // case.ports,
        "arrivals": counts["arrivals"],
        "followlqd_without_predicted": reduced,
        **counts["confusion"],
        "eta": eta,
        "closed_form_eta": math.inf if closed_form is None else closed_form,
        **{f"{SENT}{policy}": count for policy, count in sent.items()},
        **{f"lqd_over_{policy}": _quotient(lqd, count) for policy, count in sent.items() if policy != "lqd"},
    }
    row["eta_over_closed_form_eta"] = eta / row["closed_form_eta"]
    # Theorem 2 of Credence: eta <= closed form. A relative 1e-12 is rounding.
    row["theorem_2_violated"] = row["eta_over_closed_form_eta"] > 1 + 1e-12
    if "credence" in sent:
        # Lemma 1 of Credence: LQD / Credence <= eta, that is, Credence sends at least what FollowLQD sends of the rest.
        row["lqd_over_credence_times_eta"] = _quotient(reduced, sent["credence"])
        row["lemma_1_violated"] = reduced > sent["credence"]
    if optimum is not None:
        row["optimum"] = optimum
        row |= {f"opt_over_{policy}": _quotient(optimum, count) for policy, count in sent.items()}
        if "credence" in sent:  # Theorem 1 of Credence: OPT / Credence <= min(1.707 eta, N)
            row["credence_bound"] = min(LQD_RATIO * eta, case.ports)
            row["bound_violated"] = row["opt_over_credence"] > row["credence_bound"] * (1 + 1e-12)
    return row


def policies_of(points: pd.DataFrame, prefix: str) -> list[str]:
    """The policies that have a column with this prefix, in the order of the config schema, those from outside last."""
    run = [name.removeprefix(SENT) for name in map(str, points.columns) if name.startswith(SENT)]
    guests = [policy for policy in run if policy not in OF_ARRIVALS]
    return [policy for policy in (*OF_ARRIVALS, *guests) if f"{prefix}{policy}" in points]


def over_seeds(points: pd.DataFrame, by: str | list[str], column: str) -> dict[Any, PairedDifference]:
    """Mean and 95 % interval of a column over the seeds, by the values of other columns."""
    return {group: mean_interval(values.dropna().tolist()) for group, values in points.groupby(by)[column]}


def _quotient(numerator: int, denominator: int) -> float:
    return numerator / denominator if denominator else math.nan
