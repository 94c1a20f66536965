"""Settings of a stage from overrides as they are written on the command line, inside another stage."""

from __future__ import annotations

import functools
import shlex
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

import hydra
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from foretail.configs.plugins import with_policies
from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.configs.schema.policies import Policy
from foretail.configs.schema.stage import Stage
from foretail.configs.schema.stages import STAGES, register
from foretail.configs.schema.tracking import Tracking
from foretail.core.errors import ForetailError
from foretail.core.json_text import flat
from foretail.pipelines.errors import BAD_INPUT, sentence
from foretail.pipelines.settings.validation import StageConfig, typed


class Trains(Protocol):
    """Settings of a command inside which something is trained."""

    store_dir: str
    ns3_prefix: str | None
    tracking: Tracking


COMPOSING = threading.RLock()
"""Hydra registers and composes one config at a time; points of an experiment are measured by threads."""

WHERE_NOT_WHAT = ("store_dir", "tracking.", "jobs", "figures.")
"""Settings that say where something runs or lands."""


def compose_settings(schema: type[StageConfig], overrides: Sequence[str], where: str) -> StageConfig:
    """Return the checked settings of the stage of `schema`; ForetailError when the stage would refuse them.

    `overrides` are as after ``foretail STAGE``; `where` is the setting that holds them, for errors.
    """
    stage = next(name for name, kind in STAGES.items() if kind is schema)
    try:
        with COMPOSING:
            register(stage)
            return typed(_composed(stage, overrides), schema)
    except BAD_INPUT as error:
        reason = sentence(error, ()).rstrip(".")
        raise ForetailError(f"{where} = {shlex.join(overrides)}: {reason}") from None


def compose_registered(config: str, schema: type[StageConfig]) -> StageConfig:
    """The checked settings of a registered config, all at their defaults."""
    return typed(_composed(config, ()), schema)


@functools.cache
def composed_settings(config: str, overrides: tuple[str, ...] = ()) -> dict[str, Any]:
    """The unchecked settings of a registered config, JSON-like; ``???`` for what has to be given."""
    settings = OmegaConf.to_container(_composed(config, overrides), resolve=True)
    if not isinstance(settings, dict):
        raise TypeError(f"the settings of {config} are no mapping")
    return {str(name): value for name, value in settings.items()}


def _composed(config: str, overrides: Sequence[str]) -> DictConfig:
    """Settings that Hydra composes, inside a command or outside of one."""
    with COMPOSING:
        return _composed_alone(config, with_policies(overrides))


def _composed_alone(config: str, overrides: list[str]) -> DictConfig:
    if GlobalHydra.instance().is_initialized():
        return hydra.compose(config, overrides)
    with hydra.initialize_config_module("foretail.configs", version_base="1.3"):
        return hydra.compose(config, overrides)


def differing(config: Stage) -> dict[str, Any]:
    """The settings that differ from the defaults of their stage or that the command names, by dotted name.

    The kind of predictor and the features are always among them; where things run or land never is.
    """
    stage = next(name for name, kind in STAGES.items() if isinstance(config, kind))
    job = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    named = {str(override).partition("=")[0].lstrip("+~") for override in job} | {"predictor.name", "features.names"}
    register(stage)
    usual, given = dict(flat(composed_settings(stage))), dict(flat(asdict(config)))
    return {
        name: value
        for name, value in given.items()
        if (name in named or usual.get(name) != value)
        and not name.startswith(WHERE_NOT_WHAT)
        and not name.endswith("_target_")
    }


def compose_policies(names: Sequence[str], where: str) -> dict[str, Policy]:
    """Buffer policies of the group ``policy``; `where` is the setting that names them, for errors."""
    for name in names:
        if not isinstance(yaml.safe_load(name), str):
            raise ForetailError(f"{where} names {name}, which is no policy: --help policy lists them")
    return compose_settings(EvaluateConfig, [f"policy=[{','.join(names)}]", "baselines=[]", "model=any"], where).policy


def compose_policy(name: str, where: str) -> Policy:
    """One of them."""
    return compose_policies([name], where)[name]


def compose_training(settings: Trains, overrides: Sequence[str], where: str) -> TrainConfig:
    """Settings of ``foretail train`` inside another command, in whose store and with whose ns-3 it runs."""
    config = compose_settings(TrainConfig, overrides, where)
    return replace(config, store_dir=settings.store_dir, ns3_prefix=settings.ns3_prefix, tracking=settings.tracking)
