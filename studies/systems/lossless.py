"""Reverie and IRN: claims of the experiments on lossless traffic, in their networks.

Reverie is compared over loads alone, with 50 ms of traffic; ``foretail run reverie_a`` has bursts and 100 ms too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from foretail.pipelines.experiment.catalog import settings_of
from foretail.pipelines.runs.points import SoFar
from foretail.studies.networks.lossless import (
    CLAIMS,
    LosslessCase,
    LosslessSettings,
    Plan,
    change_percent,
    measured,
)
from foretail.studies.systems.comparisons import SEEDS
from foretail.studies.systems.system import Published, System


@dataclass(frozen=True)
class LosslessClaims:
    """Claims of an experiment that give a percentage."""

    experiment: str
    conditions: tuple[str, ...]  #: how the names of conditions begin
    variants: frozenset[str]  #: that are compared
    medium: tuple[str, ...] = ()  #: further overrides of size medium

    @property
    def claims(self) -> list[tuple[Published, str, str, str, str]]:
        """Each as it is printed, with how its conditions begin, its metric, variant and baseline."""
        return [
            (Published(one.words, one.percent, "", change=True), one.conditions, one.metric, one.variant, one.baseline)
            for one in CLAIMS
            if one.experiment == self.experiment
            and not isinstance(one.percent, str)
            and one.conditions in self.conditions
            and {one.variant, one.baseline} <= self.variants
        ]

    def measure(self, size: str, seed: int, so_far: SoFar) -> dict[str, float]:
        """The changes in % on a seed, over the conditions that the size has."""
        settings = settings_of(self.experiment, size, LosslessSettings)
        chosen = {name: one for name, one in settings.conditions.items() if name.startswith(self.conditions)}
        variants = {name: one for name, one in settings.variants.items() if name in self.variants}
        shared = [*settings.shared, *(self.medium if size == "medium" else ())]
        plan = Plan.of(replace(settings, shared=shared, conditions=chosen, variants=variants))
        cases = [LosslessCase(condition, variant, seed) for condition in chosen for variant in variants]
        rows = pd.DataFrame([{**vars(case), **measured(case, so_far, plan)} for case in cases])
        found = {}
        for published, begins, metric, variant, baseline in self.claims:
            conditions = [name for name in chosen if name.startswith(begins)]
            change = change_percent(rows, conditions, metric, variant, baseline) if conditions else None
            if change is not None and change.mean is not None:
                found[published.quantity] = change.mean
        return found

    def system(self, name: str, source: str, where: str) -> System:
        """The claims as a system of the table."""
        published = tuple(replace(claim[0], source=where) for claim in self.claims)
        return System(name, source, published, self.measure, SEEDS)


REVERIE = LosslessClaims(
    "reverie_a", ("load",), frozenset(["reverie", "sonic", "sonic_abm"]), ("scenario.traffic_ns=50_000_000",)
).system("Reverie", "Addanki's thesis", "section 5.3")
IRN = LosslessClaims("irn", ("none", "timely", "dcqcn"), frozenset(["irn", "roce_pfc", "irn_pfc"])).system(
    "IRN", "Mittal's thesis", "Table 4.2"
)
