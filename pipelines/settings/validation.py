"""Checks after composing: the range of every field, what only several fields can tell, and names of other rooms.

Every failure is a ``ForetailError`` of one sentence that names the setting as it is written on the command line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf

from foretail.configs.schema.model_stages import TrainConfig
from foretail.configs.schema.network.circuits import DemandConfig
from foretail.configs.schema.packet_stages import CollectConfig
from foretail.configs.schema.stage import Stage
from foretail.core.errors import ForetailError
from foretail.core.settings import require_within

StageConfig = TypeVar("StageConfig", bound=Stage)


def typed(node: DictConfig, schema: type[StageConfig], overrides: Sequence[str] = ()) -> StageConfig:
    """The composed config as a validated `schema` object; raises ``ForetailError`` and OmegaConf's own errors.

    What its `config` says, if it names a file, is filled in first. Of `overrides`, as on the command line, those are
    refused that mean nothing beside the other settings.
    """
    if OmegaConf.select(node, "config") is not None:
        from foretail.pipelines.settings.switch_config import fill_in

        fill_in(node, overrides)
    config = OmegaConf.to_object(node)
    if not isinstance(config, schema):
        raise TypeError(f"expected a {schema.__name__}, not a {type(config).__name__}")
    validate(config)
    refuse_unused(config, overrides)
    return config


def validate(config: Stage) -> None:
    """Check ranges, then what nodes say of several fields, then names that other rooms know."""
    for path, node in _nodes(config, ""):
        _check_ranges(node, f"{path}." if path else "")
    for path, node in _nodes(config, ""):
        if (check := getattr(node, "check", None)) is not None:
            check(path)
    _check_names(config)


def refuse_unused(config: Stage, overrides: Sequence[str]) -> None:
    """Raise ForetailError on the first override that means nothing beside the other settings."""
    unused = config.unused()
    for override in overrides:
        setting = override.partition("=")[0].lstrip("+~")
        reason = unused.get(setting.split("@")[0].split("/")[0].split(".")[0])
        if reason is not None:
            raise ForetailError(f"{setting} means nothing to {reason}: leave one of the two out")


def _nodes(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Config nodes by their path, outer ones first."""
    yield path, node
    for field in dataclasses.fields(node):
        value, where = getattr(node, field.name), f"{path}.{field.name}".lstrip(".")
        items = value.items() if isinstance(value, dict) else [(None, value)]
        for key, item in items:
            if dataclasses.is_dataclass(item):
                yield from _nodes(item, where if key is None else f"{where}.{key}")


def _check_names(config: Stage) -> None:
    """Check names that workloads, jobs and predictors know; each import loads what other stages may not need."""
    if isinstance(config, TrainConfig):
        from foretail.models.scoring.threshold_rules import THRESHOLD_RULE_KINDS
        from foretail.pipelines.settings.predictors import check_predictor

        check_predictor(config)
        if config.operating_point.maximise != "recovered_loss":
            THRESHOLD_RULE_KINDS.make(config.operating_point.maximise, config.operating_point.settings)
    if isinstance(config, CollectConfig) and config.source == "slotted":
        from foretail.sim_bridge.arrivals.workloads import workload_of

        slotted = config.slotted
        workload = workload_of(slotted.workload, slotted.settings)
        workload.batches(slotted.ports, slotted.buffer, slotted.slots, seed=1)
    if isinstance(config, DemandConfig) and not (config.datasets or config.logs):
        from foretail.sim_bridge.circuits.demand import JOBS

        for name in config.collectives:
            jobs = name.split("+")
            if len(jobs) > 2 or not set(jobs) <= set(JOBS):
                raise ForetailError(
                    f"collectives = {name} is unknown: choose from {', '.join(JOBS)}, or two of them as A+B"
                )


def _check_ranges(node: Any, prefix: str) -> None:
    fields = {field.name: field for field in dataclasses.fields(node)}
    for extra in vars(node).keys() - fields.keys():  # what +name=value adds
        raise ForetailError(f"unknown setting {prefix}{extra}: --help lists the settings")
    for name, field in fields.items():
        value = getattr(node, name)
        for item in value if isinstance(value, list) else ():
            if isinstance(item, dict) and str(field.type).startswith("list[str]"):
                given = str(item).replace("'", "")
                raise ForetailError(
                    f"{prefix}{name} has {given}, and takes names alone: give numbers by settings of their own"
                )
        require_within(prefix + name, value, field.metadata)
