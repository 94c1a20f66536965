"""Text of ``foretail STAGE --help``: groups, and every setting with its default, meaning, unit and range.

Completion of words in a shell reads the same settings: ``eval "$(foretail completion bash)"``.
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from foretail.configs.schema.stages import STAGES as SCHEMAS
from foretail.core.errors import ForetailError
from foretail.core.settings import limits_of, range_in_words
from foretail.features.catalog import FEATURE_GROUPS, FEATURES
from foretail.pipelines.runs.result import Cell, Table
from foretail.pipelines.settings.compose import composed_settings
from foretail.pipelines.stage import Command, stage_command
from foretail.pipelines.stages import STAGES

FLAGS = (
    "--multirun sweeps over values given as name=a,b,c; --cfg job prints all settings as YAML; --config-dir FOLDER "
    "adds options of your own; --debug shows the traceback of an error."
)
WIDTH = 80
MOST_USED = 10
"""So many settings are explained at first."""
LONGEST_DEFAULT = 48
"""Letters of a default; a longer list is counted instead."""
NAME = {"policy": "NAME", "collect_policy": "NAME", "demand_predictor": "NAME", "designs": "NAME"}
"""Word that stands for the key of a mapping of nodes; ``SIZE`` where there is nothing here."""
ALL = "all"
LEAST_USED = ("experiment", "store_dir", "ns3_prefix", "figures")
"""Settings that few experiments are given."""
USED = {
    "collect": "scenario seeds source policy jobs log slotted.workload slotted.settings slotted.slots store_dir",
    "train": "predictor features datasets scenario split drop_weight operating_point.maximise tracking.alias jobs "
    "store_dir",
    "evaluate": "scenario policy seeds model network baselines jobs size tracking.enabled store_dir",
    "replay": "arrivals datasets ports buffer policies model predictions flip_probability optimum jobs",
    "choose": "arrivals datasets ports buffer windows sample_packets rules search trials jobs",
    "export": "model target out name inputs dataset any_tau max_cells budget_seconds store_dir",
    "deploy": "model switch canary rollback tau program control device_id drain_ms store_dir",
    "promote": "model to seeds datasets scenario f1_margin sent_margin_percent p4 jobs tracking.registered_model",
    "demo": "size referee slotted scenario seeds policy sent labels jobs tracking.enabled store_dir",
    "schedule": "demand degree k l scheduler scheduler_settings scale multi_hop prediction outputs",
    "demand": "demand_predictor collectives nodes datasets logs steps trusts degree noise split",
    "report": "run out store_dir",
}
"""The settings of every stage that are used most, which its help explains: their names, between spaces."""


@dataclass(frozen=True)
class SettingHelp:
    """A setting for readers: dotted name, default as written (None for a heading), meaning, and values if few."""

    name: str
    default: str | None
    meaning: str
    options: tuple[str, ...] = ()


def experiments_text(what: str, example: str) -> str:
    """The help of ``foretail run``: every experiment with the beginning of its sentence."""
    from foretail.pipelines.experiment.catalog import experiments

    lines = [example, *_wrapped(what, "  ", "  ")]
    lines += ["usage: foretail run NAME [size=small|medium|full] [name=value ...]", "       foretail run NAME --help"]
    for name, one in experiments().items():
        lines.append("  " + textwrap.shorten(f"{name}: {one.sentence}", WIDTH - 2, placeholder=" ..."))
    return "\n".join(lines)


def help_text(command: Command, what: str, example: str, overrides: Sequence[str], wanted: Sequence[str]) -> str:
    """The help of a command: an example, its most used settings, and its groups; or of what is wanted.

    Parameters
    ----------
    overrides : settings are shown as these leave them
    wanted : a group of settings such as ``scenario.incast``, or ``all``
    """
    described = list(settings_of(command, overrides))  # composing registers the options of other packages
    named = " ".join(command.words)
    lines = [
        example,
        *_wrapped(what, "  ", "  "),
        "",
        f"usage: foretail {named} [name=value ...] [--multirun] [--cfg job] [--debug]",
    ]
    if wanted == [ALL]:
        lines += ["", "groups, chosen as group=option:"]
        for group, options in groups_of(command):
            lines += _wrapped(f"{group}: {', '.join(options)}", "  ", "      ")
        return "\n".join(
            [
                *lines,
                "",
                "settings, with their defaults (??? has to be given):",
                *_explained(described),
                "",
                *_wrapped(FLAGS, "", ""),
            ]
        )
    if wanted:
        return "\n".join(_explained(_of_group(wanted[0], described, named)))
    used = _most_used(command, described)
    lines += [
        "",
        "most used settings, with their defaults (??? has to be given):",
        *_explained(used),
        "",
        *_groups(command, described, used),
    ]
    more = f"foretail {named} --help GROUP shows the settings of a group, --help {ALL} everything."
    return "\n".join([*lines, "", *_wrapped(f"{more} {FLAGS}", "", "")])


def settings_of(command: Command, overrides: Sequence[str] = ()) -> Iterator[SettingHelp]:
    """Every setting of a command, in the order of its schema."""
    yield from _of_node(command.schema, "", composed_settings(command.config_name, tuple(overrides)))


def features_table() -> Table:
    """Every feature with its meaning, and what it costs a switch that runs Credence already."""
    costs = ("bits per queue", "bits per switch", "operations")
    rows: list[tuple[Cell, ...]] = []
    for one in FEATURES:
        cost = (None, None, None) if one.study_only else dataclasses.astuple(one.cost)[: len(costs)]
        groups = [group for group, names in FEATURE_GROUPS.items() if one.name in names]
        sets = ", ".join(groups) or ("studies only" if one.study_only else "-")
        rows.append((one.name, one.state, one.unit, one.bits, *cost, sets, one.description))
    notes = (
        "features=SET chooses a set, features.names=[queue,occupancy] names them one by one.",
        "Costs are beyond a switch that runs Credence: bits of registers, operations per packet.",
    )
    return Table("Features", ("feature", "state", "unit", "bits", *costs, "sets", "meaning"), tuple(rows), notes)


def _most_used(command: Command, described: Sequence[SettingHelp]) -> list[SettingHelp]:
    """Settings of the table; of an experiment the first of its own, and its size."""
    of_stage = USED.get(command.words[0])
    if of_stage is not None:
        by_name = {one.name: one for one in described}
        return [by_name[name] for name in of_stage.split()]
    own = [one for one in described if "." not in one.name and one.name not in LEAST_USED and one.default is not None]
    return sorted(own, key=lambda one: one.name != "size")[:MOST_USED]


def _groups(command: Command, described: Sequence[SettingHelp], used: Sequence[SettingHelp]) -> list[str]:
    """The names of groups with what they are, the options of Hydra's, and the names of all other settings."""
    options, lines = dict(groups_of(command)), ["groups of settings:"]
    headings = {
        one.name: one.meaning
        for one in described
        if "." not in one.name and (one.default is None or one.name in options)
    }
    for name in dict.fromkeys([*headings, *options]):
        chosen = f" ({name}={'|'.join(options[name])})" if len(options.get(name, [])) in range(1, 6) else ""
        lines += _wrapped(f"{name}: {headings.get(name, 'options that set several settings')}{chosen}", "  ", "      ")
    shown = {*headings, *(one.name for one in used)}
    others = [one.name for one in described if "." not in one.name and one.name not in shown]
    return lines if not others else [*lines, *_wrapped(f"other settings: {', '.join(others)}", "", "  ")]


def _of_group(group: str, described: Sequence[SettingHelp], named: str) -> list[SettingHelp]:
    """The settings of a group; ForetailError when there is no such group."""
    members = [one for one in described if one.name == group or one.name.startswith(f"{group}.")]
    if not members:
        raise ForetailError(f"foretail {named} has no group of settings {group}: --help lists the groups")
    return members


def _explained(described: Sequence[SettingHelp]) -> list[str]:
    lines = []
    for one in described:
        given = one.name if one.default is None else f"{one.name}={one.default}"
        lines += [line.replace(", ", ",") for line in _wrapped(given.replace(",", ", "), "  ", "      ")]
        lines += _wrapped(one.meaning, "      ", "      ")
    return lines


def groups_of(command: Command) -> Iterator[tuple[str, list[str]]]:
    """The groups of a command and their options."""
    config: Any
    if command.words[0] == "run":
        config = ConfigStore.instance().load(f"{command.config_name}.yaml").node
    else:
        config = OmegaConf.create(
            (resources.files("foretail.configs") / f"{command.config_name}.yaml").read_text("utf-8")
        )
    places = ["foretail.configs", *(str(place).removeprefix("pkg://") for place in config.hydra.get("searchpath", ()))]
    for entry in config.defaults:
        if not isinstance(entry, Mapping) and not OmegaConf.is_dict(entry):
            continue
        group = str(next(iter(entry)))
        if group.startswith("override "):
            continue
        name, _, package = group.partition("@")
        options = sorted({*_files(name, places), *_stored(name)})
        if options:
            yield (name if package in ("", "_here_") else f"{name} (as {package})"), options


def _files(group: str, places: Sequence[str]) -> Iterator[str]:
    for place in places:
        folder = resources.files(place) / group
        for file in folder.iterdir() if folder.is_dir() else ():
            if file.name.endswith(".yaml"):
                yield file.name.removesuffix(".yaml")


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
            inside = value if isinstance(value, Mapping) else {}
            yield SettingHelp(name, None, meaning)
            yield from _of_node(_chosen(kind, inside), f"{name}.", inside)
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


def _chosen(kind: type[Any], values: Mapping[str, Any]) -> type[Any]:
    """The kind of a node, or that of its kinds which has all of these settings."""
    for one in (kind, *kind.__subclasses__()):
        if values.keys() <= {field.name for field in dataclasses.fields(one)}:
            return one
    return kind


def _first(value: Any) -> Mapping[str, Any]:
    """The settings of one node of a mapping, where all have the same."""
    nodes = list(value.values()) if isinstance(value, Mapping) else []
    return nodes[0] if len(nodes) == 1 and isinstance(nodes[0], Mapping) else {}


def _of_predictor(prefix: str, settings: Mapping[str, Any]) -> Iterator[SettingHelp]:
    from foretail.pipelines.settings.predictors import predictor_class

    limits = limits_of(predictor_class(settings))
    for name, value in settings.items():
        if name in limits:
            yield SettingHelp(f"{prefix}{name}", _written(value), (limits[name]["doc"] + _range(limits[name])).lstrip())


def _range(limits: Mapping[str, Any]) -> str:
    text = range_in_words(limits)
    return f" {text[0].upper()}{text[1:]}." if text else ""


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


FLAG_WORDS = ("--help", "--multirun", "--cfg", "--config-dir", "--debug")
# The shell cuts words at '='; what is completed is the part behind the last one.
_BASH = """\
_foretail() {
  local line=${COMP_LINE:0:COMP_POINT}
  local word=${line##*[[:space:]]}
  local found cut=
  [[ $word != *=* ]] || cut=${word%"${word##*=}"}
  COMPREPLY=()
  while IFS= read -r found; do
    COMPREPLY+=("${found#"$cut"}")
  done < <(foretail completion words "$line" 2>/dev/null)
  [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace
}
complete -o default -F _foretail foretail
"""
# zsh does not cut words at '='; where there is nothing to complete, it names files, behind the '=' too.
_ZSH = """\
_foretail() {
  local -a found whole open
  found=(${(f)"$(foretail completion words "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)"})
  open=(${(M)found:#*=}) whole=(${found:#*=})
  (( $#open )) && compadd -Q -S '' -a open
  (( $#whole )) && compadd -Q -a whole
  (( $#found )) && return
  compset -P '*='
  _files
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _foretail foretail
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH}


def words(line: str, commands: Sequence[str]) -> Iterator[str]:
    """Whole words that the last word of a line may become; nothing where the shell should name files."""
    *before, word = line.split(" ")
    given = [part for part in before if part]
    if len(given) <= 1:
        yield from (name for name in (*STAGES, *commands, "--help", "--version") if name.startswith(word))
    elif given[1] == "run":
        yield from _of_experiments(given[2:], word)
    elif given[1] in SCHEMAS:
        yield from (completed for completed in _of_command(stage_command(given[1]), word) if completed.startswith(word))


def _of_experiments(given: Sequence[str], word: str) -> Iterator[str]:
    from foretail.pipelines.experiment.catalog import command_of, experiments

    if not given:
        yield from (name for name in experiments() if name.startswith(word))
    elif given[0] in experiments():
        yield from (completed for completed in _of_command(command_of(given[0]), word) if completed.startswith(word))


def _of_command(command: Command, word: str) -> Iterator[str]:
    name, has_value, _ = word.partition("=")
    if not has_value and word.startswith("-"):
        yield from FLAG_WORDS
        return
    settings = list(settings_of(command))  # before the groups: it registers their options
    groups = dict(groups_of(command))
    if has_value:
        of_setting = [option for one in settings if one.name == name for option in one.options]
        yield from (f"{name}={option}" for option in groups.get(name, of_setting))
        return
    yield from (f"{group}=" for group in groups)
    yield from (f"{one.name}=" for one in settings if one.default is not None)
