"""Reverie and IRN: claims of the experiments on lossless traffic, in their networks.

Reverie is compared over loads alone, with 50 ms of traffic; ``foretail run reverie_a`` has bursts and 100 ms too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foretail.pipelines.experiment.catalog import settings_of
from foretail.pipelines.runs.points import SoFar
from foretail_studies.networks.lossless import CLAIMS, Claim, LosslessCase, LosslessSettings, Plan, measured
from foretail_studies.systems.comparisons import changes, system_of
from foretail_studies.systems.system import System


@dataclass(frozen=True)
class LosslessClaims:
    """Claims of an experiment that give a percentage."""

    experiment: str
    conditions: tuple[str, ...]  #: how the names of conditions begin
    variants: frozenset[str]  #: that are compared
    medium: tuple[str, ...] = ()  #: further overrides of size medium

    @property
    def claims(self) -> list[Claim]:
        """Those about these conditions and variants."""
        return [
            one
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

        def figures(condition: str, variant: str) -> dict[str, float]:
            found = measured(LosslessCase(condition, variant, seed), so_far, plan)
            return {name: np.nan if value is None else value for name, value in found.items()}

        return changes(self.claims, chosen, figures)

    def system(self, name: str, source: str, where: str) -> System:
        """The claims as a system of the table."""
        return system_of(name, source, where, self.claims, self.measure)


REVERIE = LosslessClaims(
    "reverie_a", ("load",), frozenset(["reverie", "sonic", "sonic_abm"]), ("scenario.traffic_ns=50_000_000",)
).system("Reverie", "Addanki's thesis", "section 5.3")
IRN = LosslessClaims("irn", ("none", "timely", "dcqcn"), frozenset(["irn", "roce_pfc", "irn_pfc"])).system(
    "IRN", "Mittal's thesis", "Table 4.2"
)
