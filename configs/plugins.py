"""What others bring, as options of Hydra's groups beside Foretail's own files: installed packages, and headers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from importlib import resources
from typing import Any

from hydra.core.config_store import ConfigStore

from foretail.configs.schema.policies import is_guest, policy_name
from foretail.features.errors import ForetailError
from foretail.features.plugins import DEMAND_PREDICTOR_GROUP, PREDICTOR_GROUP, PluginError, loaded, offered

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


def register_guests(overrides: Iterable[str]) -> None:
    """Store the policies that overrides name by their headers, ``policy=[lqd,my_rule.hpp:MyRule]``, as options.

    ForetailError when two of one override have the same type, under which settings and tables know them.
    """
    store = ConfigStore.instance()
    for override in overrides:
        setting, _, value = override.partition("=")
        if setting.lstrip("+") != "policy":
            continue
        named: dict[str, str] = {}
        for given in re.split(r"[\[\],]", value):
            guest = given.strip(" '\"")
            if not is_guest(guest):
                continue
            name = policy_name(guest)
            if named.setdefault(name, guest) != guest:
                raise ForetailError(f"{named[name]} and {guest} have the same type: rename one, tables know them by it")
            *folders, file = (part for part in f"policy/{guest}".split("/") if part)
            store.store(group="/".join(folders), name=file, node={name: {"name": guest}}, package="policy")


def _options(group: str) -> list[str]:
    """Names of Foretail's own files in a group."""
    files = (resources.files("foretail.configs") / group).iterdir()
    return [file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")]


def _defaults(point: Any) -> dict[str, Any]:
    """Declared parameters with their defaults; none where the class cannot be loaded or is no dataclass."""
    try:
        kind = loaded(point)
    except PluginError:
        return {}
    declared = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return {field.name: field.default for field in declared if "constraint" in field.metadata}
