"""Settings of every experiment of ``foretail run``; those of one experiment stand beside it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from omegaconf import MISSING

from foretail.configs.schema.networks import Network
from foretail.configs.schema.stage import SIZES, SimulatingStage, Stage
from foretail.configs.schema.tracking import Tracking
from foretail.core.errors import ForetailError
from foretail.core.settings import part, require_distinct, setting


@dataclass
class ExperimentSettings(Stage):
    """Settings of every experiment."""

    experiment: str = setting(MISSING, "Name of the experiment, with which the names of its files begin.")
    size: str = setting(
        "full", "Size of the experiment, which chooses the defaults of all other settings.", one_of=SIZES
    )
    tracking: Tracking = part(Tracking, "Tracking in MLflow.")

    def check(self, where: str) -> None:
        """Raise ForetailError on an empty list, unless that is its default, and on a value that is there twice."""
        super().check(where)
        for field in dataclasses.fields(self):
            values = getattr(self, field.name)
            if not isinstance(values, list):
                continue
            if not values and (field.default_factory is dataclasses.MISSING or field.default_factory()):
                raise ForetailError(f"{field.name} is empty: give at least one value")
            require_distinct(field.name, values, "every value makes points of its own")


@dataclass
class PointSettings(ExperimentSettings):
    """Settings of an experiment that measures several points at the same time."""

    jobs: int = setting(2, "Number of points that are measured at the same time.", at_least=1, at_most=1024)


@dataclass
class SimulatedPointSettings(PointSettings, SimulatingStage):
    """Settings of an experiment that simulates flows."""

    network: Network = part(
        Network, "Network that simulates flows, native or ns3, where the overrides of a condition or model name none."
    )


RUN_SETTINGS = frozenset(field.name for field in dataclasses.fields(PointSettings))
"""Settings that no measurement depends on."""
