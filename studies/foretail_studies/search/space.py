"""The space of a search: which settings of ``foretail train`` are drawn, from what, and the overrides of a draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from foretail.configs.schema.model_stages import TrainConfig
from foretail.core.errors import ForetailError
from foretail.pipelines.settings.compose import compose_settings
from foretail_studies.search.settings import Dimension, SearchSettings

PREDICTOR = "predictor"
LEARNING = (
    PREDICTOR,
    "features",
    "drop_weight",
    "trainer",
    "sampling",
    "labels",
    "objective",
    "operating_point",
    "allow_constant_features",
)
"""Settings that may differ between trials, which are all compared on the same runs."""


@dataclass(frozen=True)
class Space:
    """What is drawn, in the order of the overrides."""

    candidate: tuple[str, ...]  #: overrides that all trials share
    distributions: Mapping[str, BaseDistribution]  #: by setting
    #: settings of the space that each predictor has, by its name; one name None where none is drawn
    known: Mapping[str | None, frozenset[str]]

    @classmethod
    def of(cls, search: SearchSettings) -> Space:
        """Return the space, every choice and both ends of every range tried with every predictor.

        ForetailError on a setting that no predictor has, or a value that ``foretail train`` would refuse.
        """
        drawn = {dimension.override or name: (name, dimension) for name, dimension in search.space.items()}
        predictors = drawn[PREDICTOR][1].choices if PREDICTOR in drawn else [None]
        known: dict[str | None, frozenset[str]] = {}
        for predictor in predictors:
            overrides = [*search.candidate, *([] if predictor is None else [f"{PREDICTOR}={predictor}"])]
            has = compose_settings(TrainConfig, overrides, "candidate").predictor
            known[predictor] = frozenset(
                name for name in drawn if not name.startswith(f"{PREDICTOR}.") or name.partition(".")[2] in has
            )
        for setting, (name, _) in drawn.items():
            if setting.partition(".")[0] not in LEARNING:
                raise ForetailError(
                    f"space.{name} draws {setting}, and trials may differ in {', '.join(LEARNING)} only"
                )
            if not any(setting in settings for settings in known.values()):
                names = ", ".join(map(str, predictors))
                none = "the predictor does not have" if predictors == [None] else f"none of {names} has"
                raise ForetailError(f"space.{name} draws {setting}, which {none}: take it out")
        space = cls(
            tuple(search.candidate), {setting: _distribution(one) for setting, (_, one) in drawn.items()}, known
        )
        for predictor, settings in known.items():
            columns = {name: _ends(drawn[name][1]) for name in drawn if name in settings and name != PREDICTOR}
            for place in range(max((len(values) for values in columns.values()), default=1)):
                tried = {name: values[place % len(values)] for name, values in columns.items()}
                space.config(({} if predictor is None else {PREDICTOR: predictor}) | tried, "space")
        return space

    def overrides(self, values: Mapping[str, Any]) -> list[str]:
        """Return what follows ``foretail train`` for drawn values."""
        return [*self.candidate, *self.drawn(values)]

    def drawn(self, values: Mapping[str, Any]) -> list[str]:
        """Return the overrides that were drawn: of the settings that the predictor has."""
        known = self.known[values.get(PREDICTOR)]
        return [f"{name}={_written(values[name])}" for name in self.distributions if name in known]

    def config(self, values: Mapping[str, Any], where: str) -> TrainConfig:
        """Return the checked settings for drawn values."""
        return compose_settings(TrainConfig, self.overrides(values), where)


def _distribution(dimension: Dimension) -> BaseDistribution:
    if dimension.choices:
        return CategoricalDistribution(dimension.choices)
    if dimension.integers:
        first, last = dimension.integers
        return IntDistribution(first, last, log=dimension.log, step=dimension.step)
    low, high = dimension.floats
    return FloatDistribution(low, high, log=dimension.log)


def _ends(dimension: Dimension) -> list[Any]:
    """Every choice, or both ends of a range."""
    return dimension.choices or dimension.integers or dimension.floats


def _written(value: Any) -> str:
    """A value as on the command line."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)
