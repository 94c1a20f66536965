"""Settings of sweeps of the native network, see ``pipelines/experiment/sweep.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from foretail.configs.schema.experiment import PointSettings
from foretail.core.errors import ForetailError
from foretail.core.settings import seed_setting, setting

VARIANT, WAY = "variant", "way"
PERCENT, CHANGE, DIFFERENCE = "percent", "change", "difference"


@dataclass
class Comparison:
    """Alternatives of an axis, each set beside others on the same seeds."""

    along: str = setting(VARIANT, "Axis whose alternatives are compared.", one_of=(VARIANT, WAY))
    against: list[str] = setting(MISSING, "Alternatives to which all others are compared.")
    metrics: list[str] = setting(MISSING, "Metrics that are compared.")
    by: str = setting(
        PERCENT,
        "Difference of two values: percent of the other, change of the logarithm in percent, or difference.",
        one_of=(PERCENT, CHANGE, DIFFERENCE),
    )


@dataclass
class Claim:
    """A change of a metric that a source prints, as a mean over conditions."""

    words: str = setting(MISSING, "Claim in a few words.")
    where: str = setting("", "Beginning of the names of its conditions.")
    metric: str = setting(MISSING, "Metric that changes.")
    of: str = setting(MISSING, "Variant with the changed value.")
    against: str = setting(MISSING, "Variant with the other value.")
    says: Any = setting(MISSING, "Change in percent, or close or worse.")


@dataclass
class SweepSettings(PointSettings):
    """Variants under conditions in the native network."""

    shared: list[str] = setting([], "Overrides of foretail evaluate that all runs share.")
    conditions: dict[str, list[str]] = setting(MISSING, "Overrides of foretail evaluate, by the condition's name.")
    variants: dict[str, list[str]] = setting(
        MISSING, "Overrides of foretail evaluate that choose a policy and perhaps a transport, by the variant's name."
    )
    ways: dict[str, list[str]] = setting(
        {}, "Overrides with which every variant runs, by the way's name; none where there is one way."
    )
    seeds: list[int] = seed_setting(MISSING, "Traffic seeds of every run.")
    metrics: dict[str, str] = setting(MISSING, "Titles of what is measured, by the metric's name.")
    compare: list[Comparison] = setting([], "Alternatives that are compared with each other.")
    claims: list[Claim] = setting([], "Changes that a source prints.")
    source: str = setting("", "Source of the claims.")
    least: list[str] = setting([], "Metrics whose least value is told of every condition.")

    def check(self, where: str) -> None:
        """Raise ForetailError on a comparison with what does not run or is not measured."""
        super().check(where)
        for place, one in enumerate(self.compare):
            for name in one.against:
                if name not in self.axis(one.along):
                    raise ForetailError(
                        f"compare[{place}].against names {name}, which is not among {one.along}s: add it there"
                    )
        wanted = [name for one in self.compare for name in one.metrics]
        for name in (*wanted, *self.least, *(one.metric for one in self.claims)):
            if name not in self.metrics:
                raise ForetailError(f"metrics lacks {name}, which is compared: add it with its title")

    def axis(self, name: str) -> list[str]:
        """The alternatives of an axis, in order."""
        return list(self.variants if name == VARIANT else self.ways or [""])
