"""Sweeps of the native network: conditions, variants, ways and seeds, as the document of an experiment declares them.

A condition, a variant and a way are overrides of ``foretail evaluate``, in this order. Every combination runs on every
seed. ``metrics`` names what is measured, ``compare`` what is set beside each other, ``claims`` what a source prints,
and ``least`` the metrics whose least value is told of every condition. An experiment adds metrics of its own, and
sentences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.configs.schema.sweep import CHANGE, DIFFERENCE, PERCENT, VARIANT, WAY, Comparison, SweepSettings
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.pipelines.comparison.policy_runs import policy_run
from foretail.pipelines.comparison.statistics import PairedDifference, change_text, interval_text, mean_interval
from foretail.pipelines.data.simulation import Simulator, driver_config, native_simulator, scratch_run
from foretail.pipelines.experiment.declaration import Run, Shown, axes, measure_cases
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.result import Cell, Table
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.packets.simulation import PacketRun

if TYPE_CHECKING:
    import pandas as pd

CLOSE_PERCENT = 5.0
"""Two figures are close when they differ by no more."""
ROUGHLY_PERCENT = 10.0
WEAK_SHARE = 0.5
"""A change that is surely there is weaker than the claimed one below this share of it."""
REPRODUCED, IN_SHAPE, WEAKER, NOT, UNKNOWN = "reproduced", "in shape", "weaker", "not", "not run"
VERDICTS = (REPRODUCED, IN_SHAPE, WEAKER, NOT, UNKNOWN)
CLOSE, WORSE = "close", "worse"


def verdict_of(says: float | str, change: PairedDifference) -> str:
    """The verdict on a change in percent where a paper says a number, that it is close, or that it is worse."""
    if change.mean is None or change.low is None or change.high is None:
        return UNKNOWN
    if says == CLOSE:
        if max(-change.low, change.high) <= CLOSE_PERCENT:
            return REPRODUCED
        return IN_SHAPE if abs(change.mean) <= ROUGHLY_PERCENT else NOT
    if says == WORSE:
        if change.low > CLOSE_PERCENT:
            return REPRODUCED
        return IN_SHAPE if change.mean > CLOSE_PERCENT else NOT
    percent = float(says)
    if change.low <= 0 if percent > 0 else change.high >= 0:
        return NOT
    near = change.low <= percent <= change.high or abs(change.mean - percent) <= CLOSE_PERCENT
    if near:
        return REPRODUCED
    return IN_SHAPE if change.mean / percent >= WEAK_SHARE else WEAKER


CLOSE_RATIO, SHAPE_RATIO = 1.05, 2.0


def verdict_of_value(says: float, ours: PairedDifference) -> str:
    """The verdict on a number above 0 that a source prints.

    It is reproduced where the interval has it or the mean is within 5 %, and in shape within a factor of two.
    """
    if ours.mean is None:
        return UNKNOWN
    if ours.low is not None and ours.high is not None and ours.low <= says <= ours.high:
        return REPRODUCED
    if min(says, ours.mean) <= 0:
        return REPRODUCED if says == ours.mean else NOT
    ratio = max(says / ours.mean, ours.mean / says)
    if ratio <= CLOSE_RATIO:
        return REPRODUCED
    return IN_SHAPE if ratio <= SHAPE_RATIO else NOT


CONDITION = "condition"


@dataclass(frozen=True)
class SweepCase:
    """A run."""

    condition: str
    variant: str
    way: str
    seed: int

    def __str__(self) -> str:
        way = f" as {self.way}" if self.way else ""
        return f"{self.variant} under {self.condition}{way}, seed {self.seed}"


@dataclass(frozen=True)
class MeasuredRun:
    """A finished run, from which metrics are computed."""

    run: PacketRun
    document: Mapping[str, Any]  #: its settings
    seed: int  #: of its traffic

    @cached_property
    def metrics(self) -> Mapping[str, float | None]:
        """Every figure that ``foretail evaluate`` knows of a run."""
        return policy_run("", self.seed, self.run).metrics()

    def metric(self, name: str) -> float | None:
        """One of these figures; ForetailError when there is none of this name."""
        if name not in self.metrics:
            raise ForetailError(f"metrics names {name}, which no run has: choose from {', '.join(self.metrics)}")
        return self.metrics[name]


Metric = Callable[[MeasuredRun], float | int | None]
Sentences: TypeAlias = "Callable[[pd.DataFrame, SweepSettings], Sequence[str]]"


@dataclass(frozen=True)
class Sweep:
    """Everything that is composed and checked before the first run."""

    composed: Mapping[tuple[str, str, str], EvaluateConfig]  #: by condition, variant and way
    metrics: Sequence[str]
    own: Mapping[str, Metric]  #: metrics beside those of ``foretail evaluate``
    native: Simulator = field(default_factory=native_simulator)

    @classmethod
    def of(cls, settings: SweepSettings, own: Mapping[str, Metric]) -> Sweep:
        """Compose every combination."""
        composed = {
            (condition, variant, way): compose_settings(
                EvaluateConfig,
                [*settings.shared, *overrides, *settings.variants[variant], *settings.ways.get(way, [])],
                f"conditions.{condition}",
            )
            for (condition, overrides), variant, way in product(
                settings.conditions.items(), settings.variants, settings.axis(WAY)
            )
        }
        return cls(composed, list(settings.metrics), own)

    def document(self, case: SweepCase) -> dict[str, Any]:
        """The settings document of a run."""
        composed = self.composed[case.condition, case.variant, case.way]
        ((_, policy),) = composed.policy.items()
        return driver_config(composed.scenario, policy, case.seed, trace=False)

    def depends_on(self, case: SweepCase) -> dict[str, Any]:
        """Everything that a measurement depends on."""
        code = code_digest(policy_run, *(self.own[name] for name in self.metrics if name in self.own))
        return {**self.native.depends_on(self.document(case)), "metrics": self.metrics, "code": code}


def measured(case: SweepCase, so_far: SoFar, sweep: Sweep) -> dict[str, float | int | None]:
    """Run a case, and return its metrics."""
    document = sweep.document(case)
    with scratch_run(document, sweep.native, so_far) as run:
        one = MeasuredRun(run, document, case.seed)
        return {name: sweep.own[name](one) if name in sweep.own else one.metric(name) for name in sweep.metrics}


@dataclass(frozen=True)
class SweepExperiment:
    """An experiment that is a sweep."""

    own: Mapping[str, Metric] = field(default_factory=dict)  #: metrics beside those of ``foretail evaluate``
    sentences: Sentences = lambda rows, settings: ()  #: begin the verdict
    settings: type[SweepSettings] = SweepSettings

    def find(self, settings: SweepSettings, run: Run) -> Shown:
        """Run every combination, and set them beside each other and beside what a source prints."""
        sweep = Sweep.of(settings, self.own)
        measurements = measure_cases(
            settings.experiment,
            "sweep",
            list(axes(SweepCase, settings.conditions, settings.variants, settings.axis(WAY), settings.seeds)),
            settings,
            name=str,
            depends_on=sweep.depends_on,
            measure=partial(measured, sweep=sweep),
        )
        rows = measurements.rows(lambda case, measurement: measurement)
        tables = [_means(rows, settings), *(_compared(rows, settings, one) for one in settings.compare)]
        claims = _claims(rows, settings)
        verdict = [*self.sentences(rows, settings), *(_least(rows, settings, metric) for metric in settings.least)]
        return Shown(rows, [*tables, claims] if claims.rows else tables, verdict=verdict)


def paired(
    rows: pd.DataFrame,
    conditions: Iterable[str],
    metric: str,
    pair: tuple[str, str],
    along: str = VARIANT,
    by: str = PERCENT,
) -> PairedDifference:
    """How a metric differs between two alternatives: by seed the mean over conditions, and its interval over seeds.

    With ``percent`` a pair whose other value is 0 does not count, unless both are.
    """
    values = rows.set_index([along, CONDITION, "seed"])[metric].astype(float)
    differences: list[float | None] = []
    for seed in rows["seed"].unique():
        pairs = [tuple(float(values[one, condition, seed]) for one in pair) for condition in conditions]
        whole = [
            _difference(value, other, by) for value, other in pairs if by != PERCENT or value == other or other > 0
        ]
        differences.append(float(np.mean(whole)) if whole and not np.isnan(whole).any() else None)
    return mean_interval(differences)


def _difference(value: float, other: float, by: str) -> float:
    if by == DIFFERENCE:
        return value - other
    if by == CHANGE:
        return math.log(value) - math.log(other)
    return 0.0 if value == other else 100 * (value / other - 1)


def _means(rows: pd.DataFrame, settings: SweepSettings) -> Table:
    titles = {name: name for name in (CONDITION, VARIANT, *([WAY] if settings.ways else []))}
    means = rows.groupby(list(titles), sort=False)[list(settings.metrics)].mean().reset_index()
    seeds = f"{len(settings.seeds)} seeds from {settings.seeds[0]}"
    return Table.of_frame(f"Means over {seeds}", means, {**titles, **settings.metrics})


def _compared(rows: pd.DataFrame, settings: SweepSettings, one: Comparison) -> Table:
    """Every alternative of an axis beside those of `one`, by condition and by alternative of the other axis."""
    beside = WAY if one.along == VARIANT else VARIANT
    text = change_text if one.by == CHANGE else interval_text
    cells: list[tuple[Cell, ...]] = []
    for condition, other in product(settings.conditions, settings.axis(beside)):
        some = rows[rows[beside] == other]
        for name, baseline in product(settings.axis(one.along), one.against):
            if name != baseline:
                changes = [
                    paired(some, [condition], metric, (name, baseline), one.along, one.by) for metric in one.metrics
                ]
                words = (other,) if len(settings.axis(beside)) > 1 else ()
                shown = [None if item.mean is None else text(item) for item in changes]
                cells.append((condition, *words, name, baseline, *shown))
    beside_column = (beside,) if len(settings.axis(beside)) > 1 else ()
    columns = (CONDITION, *beside_column, one.along, "against", *(settings.metrics[name] for name in one.metrics))
    title = "Difference, paired by seed" if one.by == DIFFERENCE else "Change in %, paired by seed"
    note = f"95 % t intervals over {len(settings.seeds)} seeds from {settings.seeds[0]}; of 0 there is no change."
    return Table(title, columns, tuple(cells), (note,))


def _claims(rows: pd.DataFrame, settings: SweepSettings) -> Table:
    """The claims whose conditions and variants ran."""
    cells: list[tuple[Cell, ...]] = []
    for claim in settings.claims:
        conditions = [name for name in settings.conditions if name.startswith(claim.where)]
        if conditions and {claim.of, claim.against} <= set(settings.variants):
            change = paired(rows, conditions, claim.metric, (claim.of, claim.against))
            says = claim.says if isinstance(claim.says, str) else f"{claim.says:+g}"
            ours = None if change.mean is None else interval_text(change)
            cells.append((claim.words, says, ours, verdict_of(claim.says, change)))
    return Table(f"Claims, change in %: {settings.source}", ("claim", "source", "here", "verdict"), tuple(cells))


def _least(rows: pd.DataFrame, settings: SweepSettings, metric: str) -> str:
    """A sentence on the variant with the least mean of a metric, by condition and way."""
    least = rows.groupby([CONDITION, WAY, VARIANT], sort=False)[metric].mean().unstack().idxmin(axis=1)
    places = [" as ".join(word for word in map(str, place) if word) for place in least.index]
    where = "; ".join(f"{place} {variant}" for place, variant in zip(places, least, strict=True))
    return f"Least {settings.metrics[metric]}: {where}."
