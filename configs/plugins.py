"""Options of Hydra's groups that others bring beside Foretail's own files: installed packages, and headers."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from foretail.configs.schema.policies import (
    POLICIES,
    is_guest,
    name_with_settings,
    numbers_of,
    policy_name,
    settings_in_name,
)
from foretail.core.errors import ForetailError
from foretail.core.plugins import DEMAND_PREDICTOR_GROUP, PREDICTOR_GROUP, PluginError, loaded, offered

MOST_BYTES = 1_000_000
"""Largest file of settings."""

AROUND = ("device", "jobs", "arrivals")
"""Parameters of a drop predictor that come from ``trainer`` and ``window``."""


def register_plugins(schema: type[Any]) -> None:
    """Store the options ``predictor=NAME`` and ``demand_predictor=NAME`` of other packages, where a stage has them.

    The declared parameters of a class are its settings, with their defaults. A class that cannot be loaded is told of
    when it is chosen.
    """
    fields, store = {field.name for field in dataclasses.fields(schema)}, ConfigStore.instance()
    if "predictor" in fields:
        for name, point in offered(PREDICTOR_GROUP, _options("predictor")).items():
            target = point.value.replace(":", ".")
            settings = {key: value for key, value in _defaults(point).items() if key not in AROUND}
            store.store(group="predictor", name=name, node={"_target_": target, "name": name, **settings})
    if "demand_predictor" in fields:
        for name, point in offered(DEMAND_PREDICTOR_GROUP, _options("demand_predictor")).items():
            store.store(group="demand_predictor", name=name, node={name: {"name": name, **_defaults(point)}})


def check_sizes(folder: Path) -> None:
    """Raise ForetailError when a YAML file of a folder is larger than settings are."""
    for file in folder.rglob("*.yaml"):
        if file.stat().st_size > MOST_BYTES:
            raise ForetailError(f"{file} has more than {MOST_BYTES:,} bytes: name a file of settings")


_OTHERWISE = re.compile(r"[-+]?0[0-9_]+|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
"""Numbers that only YAML reads as octal or sexagesimal: 010 is 8 there, and 1:30 is 90."""


def check_scalars(folder: Path) -> None:
    """Raise ForetailError on a value in a YAML file of a folder that YAML reads otherwise than it is written."""
    for file in folder.rglob("*.yaml"):
        try:
            node = yaml.compose(file.read_text(encoding="utf-8"), yaml.SafeLoader)
        except (OSError, UnicodeDecodeError, YAMLError):  # Hydra says what is wrong
            continue
        for key, value in _scalars(node, "", set()):
            plain = value.style is None and value.value
            where = f"{file}, line {value.start_mark.line + 1}, has {plain}"
            if plain and _OTHERWISE.fullmatch(plain):
                raise ForetailError(f"{where}, which YAML reads in another base: write decimal digits, or quote a text")
            if plain and key == "name" and value.tag == "tag:yaml.org,2002:bool":
                raise ForetailError(f"{where} as a name, which YAML reads as true or false: quote it")


def _scalars(node: yaml.Node | None, key: str, seen: set[int]) -> Iterator[tuple[str, yaml.ScalarNode]]:
    """The scalars of a node, each with the key that it is the value of."""
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        yield key, node
    elif isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield from _scalars(value, str(name.value), seen)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _scalars(value, "", seen)


def with_policies(overrides: Iterable[str]) -> list[str]:
    """Store policies with settings of their own and policies in headers as options, and name them in the overrides.

    ``policy=[lqd,{name: dt, alpha: 8},my_rule.hpp:MyRule]`` becomes ``policy=[lqd,dt_alpha_8,my_rule.hpp:MyRule]``.

    ForetailError if a setting is not a finite number, or one that the policy does not read; or when two headers of one
    override have the same type, under which settings and tables know them.
    """
    store, names = ConfigStore.instance(), []
    for override in overrides:
        setting, _, value = override.partition("=")
        if setting.lstrip("+") != "policy":
            names.append(override)
            continue
        value = re.sub(r"\{[^{}]*\}", _named, value)
        names.append(f"{setting}={value}")
        named: dict[str, str] = {}
        for option in (given.strip(" '\"") for given in re.split(r"[\[\],]", value)):
            if (policy := settings_in_name(option)) is not None:
                node = {"name": policy[0], **POLICIES[policy[0]].option, **policy[1]}
                store.store(group="policy", name=option, node={option: node})
            if not is_guest(option):
                continue
            name = policy_name(option)
            if named.setdefault(name, option) != option:
                raise ForetailError(
                    f"{named[name]} and {option} have the same type: rename one, tables know them by it"
                )
            *folders, file = (part for part in f"policy/{option}".split("/") if part)
            store.store(group="/".join(folders), name=file, node={name: {"name": option}}, package="policy")
    return names


def _named(written: re.Match[str]) -> str:
    """The name of a policy that is written with its settings, ``{name: dt, alpha: 8}``."""
    try:
        given = OmegaConf.to_container(OmegaConf.create(written[0]))
    except (OmegaConfBaseException, YAMLError):
        given = None
    if not isinstance(given, dict) or given.get("name") not in POLICIES:
        raise ForetailError(f"policy has {written[0]}, which names no policy: write it as {{name: dt, alpha: 8}}")
    name = str(given.pop("name"))
    has, settings = numbers_of(name), {str(setting): value for setting, value in given.items()}
    for setting, value in settings.items():
        if setting not in has:
            raise ForetailError(
                f"policy has {written[0]}, and {name} heeds no number {setting}: it has {', '.join(has) or 'none'}"
            )
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ForetailError(
                f"policy has {written[0]}, whose {setting} is not a finite number: write {{name: {name}, {setting}: 8}}"
            )
    return name_with_settings(name, settings)


def _options(group: str) -> list[str]:
    """Names of Foretail's own files in a group."""
    files = (resources.files("foretail.configs") / group).iterdir()
    return [file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")]


def _defaults(point: Any) -> dict[str, Any]:
    """Declared parameters with their defaults; none where the class cannot be loaded or is not a dataclass."""
    try:
        kind = loaded(point)
    except PluginError:
        return {}
    declared = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return {field.name: field.default for field in declared if "at_least" in field.metadata}
