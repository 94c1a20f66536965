"""What ``foretail STAGE --help`` prints: groups, and every setting with its default, meaning, unit and range."""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from foretail.configs.schema.stages import STAGES
from foretail.pipelines.settings.compose import composed_settings

FLAGS = (
    "--multirun sweeps over values given as name=a,b,c; --cfg job prints all settings as YAML; --config-dir FOLDER "
    "adds options of your own; --debug shows the traceback of an error."
)
WIDTH = 80
LONGEST_DEFAULT = 48
"""Letters of a default; a longer list is counted instead."""
NAME = {"policy": "NAME", "collect_policy": "NAME", "demand_predictor": "NAME"}
"""What stands for the key of a mapping of nodes; ``SIZE`` where there is nothing here."""


@dataclass(frozen=True)
class SettingHelp:
    """A setting for readers: dotted name, default as written (None for a heading), meaning, and values if few."""

    name: str
    default: str | None
    meaning: str
    options: tuple[str, ...] = ()


def help_text(stage: str, what: str, example: str, overrides: Sequence[str] = ()) -> str:
    """The help of a stage: usage, an example, its groups, its settings as `overrides` leave them."""
    lines = [f"usage: foretail {stage} [name=value ...] [--multirun] [--cfg job] [--debug]", "", what, f"  {example}"]
    described = list(settings_of(stage, overrides))  # composing registers the options of other packages
    lines += ["", "groups, chosen as group=option:"]
    for group, options in groups_of(stage):
        lines += _wrapped(f"{group}: {', '.join(options)}", "  ", "      ")
    lines += ["", "settings, with their defaults (??? has to be given):"]
    for found in described:
        given = found.name if found.default is None else f"{found.name}={found.default}"
        lines += [line.replace(", ", ",") for line in _wrapped(given.replace(",", ", "), "  ", "      ")]
        lines += _wrapped(found.meaning, "      ", "      ")
    lines += ["", *_wrapped(FLAGS, "", "")]
    return "\n".join(lines)


def settings_of(stage: str, overrides: Sequence[str] = ()) -> Iterator[SettingHelp]:
    """Every setting of a stage, in the order of its schema."""
    yield from _of_node(STAGES[stage], "", composed_settings(stage, tuple(overrides)))


def groups_of(stage: str) -> Iterator[tuple[str, list[str]]]:
    """The groups of a stage and their options; of experiments those that begin with its command."""
    config = OmegaConf.load(resources.files("foretail.configs") / f"{stage}.yaml")  # type: ignore[arg-type]
    places = ["foretail.configs", *(str(place).removeprefix("pkg://") for place in config.hydra.get("searchpath", ()))]
    for entry in config.defaults:
        if not isinstance(entry, Mapping) and not OmegaConf.is_dict(entry):
            continue
        group = str(next(iter(entry)))
        if group.startswith("override "):
            continue
        name, _, package = group.partition("@")
        options = sorted({*_files(name, places, stage), *_stored(name)})
        if options:
            yield (f"{name} (as {package})" if package else name), options


def _files(group: str, places: Sequence[str], stage: str) -> Iterator[str]:
    for place in places:
        folder = resources.files(place) / group
        for file in folder.iterdir() if folder.is_dir() else ():
            if file.name.endswith(".yaml") and (group != "experiment" or _stage_of(file.read_text("utf-8")) == stage):
                yield file.name.removesuffix(".yaml")


def _stage_of(experiment: str) -> str | None:
    """The stage of an experiment's command, which its file begins with."""
    found = re.search(r"^# foretail (\w+) ", experiment, re.MULTILINE)
    return None if found is None else found[1]


def _stored(group: str) -> Iterator[str]:
    """Options that are no files: Foretail's policies, predictors of other packages."""
    for file in ConfigStore.instance().repo.get(group, {}):
        if not file.startswith("base_"):
            yield file.removesuffix(".yaml")


def _of_node(schema: type[Any], prefix: str, values: Mapping[str, Any]) -> Iterator[SettingHelp]:
    types = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        name, kind, value = f"{prefix}{field.name}", types[field.name], values.get(field.name, "???")
        meaning = field.metadata.get("doc", "") + _range(field.metadata)
        inner = next((arg for arg in typing.get_args(kind) if dataclasses.is_dataclass(arg)), None)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            yield SettingHelp(name, None, meaning)
            yield from _of_node(kind, f"{name}.", value if isinstance(value, Mapping) else {})
        elif isinstance(inner, type) and typing.get_origin(kind) is dict:
            chosen = f"[{','.join(value)}]" if isinstance(value, Mapping) else str(value)
            yield SettingHelp(name, chosen, meaning)
            yield from _of_node(inner, f"{name}.{NAME.get(field.name, 'SIZE')}.", _first(value))
        elif field.name == "predictor" and isinstance(value, Mapping) and "_target_" in value:
            yield SettingHelp(name, str(value.get("name")), meaning)
            yield from _of_predictor(f"{name}.", value)
        else:
            options = ("true", "false") if kind is bool else field.metadata.get("one_of") or ()
            yield SettingHelp(name, _written(value), meaning, options)


def _first(value: Any) -> Mapping[str, Any]:
    """The settings of one node of a mapping, where all have the same."""
    nodes = list(value.values()) if isinstance(value, Mapping) else []
    return nodes[0] if len(nodes) == 1 and isinstance(nodes[0], Mapping) else {}


def _of_predictor(prefix: str, settings: Mapping[str, Any]) -> Iterator[SettingHelp]:
    from foretail.pipelines.settings.predictors import predictor_class

    constraints = predictor_class(settings).constraints()
    for name, value in settings.items():
        if name in constraints:
            yield SettingHelp(f"{prefix}{name}", _written(value), constraints[name].describe())


def _range(metadata: Mapping[str, Any]) -> str:
    words = {"at_least": "at least", "above": "above", "at_most": "at most"}
    found = [f"{word} {metadata[key]:,}" for key, word in words.items() if metadata.get(key) is not None]
    if metadata.get("power_of_two"):
        found.append("a power of two")
    if metadata.get("one_of"):
        found.append("one of " + ", ".join(metadata["one_of"]))
    return f"; {', '.join(found)}" if found else ""


def _written(value: Any) -> str:
    """A value as one may give it; a long list by its length."""
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":")).replace('"', "")
    if len(text) <= LONGEST_DEFAULT:
        return text
    return f"[{len(value)} values]" if isinstance(value, (list, Mapping)) else f"{text[:LONGEST_DEFAULT]}..."


def _wrapped(text: str, first: str, then: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=then, break_long_words=False, break_on_hyphens=False
    )
