"""Settings of a command, composed from its options as the command line does."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
import subprocess
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from foretail.configs.plugins import with_policies
from foretail.configs.schema.stages import STAGES, register
from foretail.pipelines import cli
from foretail.pipelines.experiment.catalog import (
    USUAL_SIZE,
    ExperimentResult,
    declared,
    register_experiment,
    run_experiment,
)
from foretail.pipelines.settings.validation import StageConfig, typed

MANDATORY = {
    "export": ["model=x"],
    "deploy": ["switch=127.0.0.1:9559"],
    "evaluate": ["model=x"],
    "replay": ["arrivals=x", "ports=1", "buffer=1"],
    "choose": ["arrivals=x", "ports=1", "buffer=1"],
    "schedule": ["demand=x", "degree=1", "k=1"],
    "report": ["run=x"],
}
"""What a stage has no default for."""


SIDES = ("split.train=[1]", "split.validation=[2]", "split.test=[3]")
"""Settings that train on the run with seed 1, validate on 2 and test on 3."""


FOLDERS = frozenset(path.name for path in resources.files("foretail.configs").iterdir() if path.is_dir())


def _search_path() -> tuple[Any, ...]:
    """Folders in which the command that runs looks for settings; nothing outside of a command."""
    hydra = GlobalHydra.instance()
    return tuple(map(str, hydra.config_loader().get_search_path().get_path())) if hydra.is_initialized() else ()


@functools.lru_cache(maxsize=128)
def _of_groups(config: str, registered: str, choices: tuple[str, ...], search_path: tuple[Any, ...]) -> DictConfig:
    if search_path:
        return compose(config, list(choices))
    with initialize_config_module("foretail.configs", version_base="1.3"):
        return compose(config, list(choices))


def hydra_composed(config: str, overrides: Sequence[str]) -> DictConfig:
    """Compose as Hydra does: choices of groups first, which is slow and so is done once, then the other settings."""
    store = ConfigStore.instance().repo
    groups = FOLDERS | {name for name, node in store.items() if isinstance(node, dict)}
    names = [override.partition("=")[0].lstrip("+") for override in overrides]
    of_groups = [
        name in groups or name.startswith("hydra.") or not name.replace(".", "_").isidentifier() for name in names
    ]
    choices = tuple(override for override, is_choice in zip(overrides, of_groups, strict=True) if is_choice)
    values = [override for override, is_choice in zip(overrides, of_groups, strict=True) if not is_choice]
    registered = str(store[f"{config}.yaml"].node) if f"{config}.yaml" in store else ""  # experiments differ by size
    node = copy.deepcopy(_of_groups(config, registered, choices, _search_path()))
    ConfigLoaderImpl._apply_overrides_to_config(OverridesParser.create().parse_overrides(values), node)
    return node


def composed(stage: str, *overrides: str) -> DictConfig:
    """Compose a stage's settings, with something for each that has no default."""
    register(stage)
    return hydra_composed(stage, [*MANDATORY.get(stage, []), *overrides])


def stage_settings(schema: type[StageConfig], *overrides: str) -> StageConfig:
    """The checked settings of the stage of `schema`."""
    stage = next(name for name, kind in STAGES.items() if kind is schema)
    return typed(composed(stage, *overrides), schema)


def composed_experiment(name: str, *overrides: str) -> DictConfig:
    """Compose an experiment's settings, in the size that the overrides name."""
    sizes = [override.removeprefix("size=") for override in overrides if override.startswith("size=")]
    config = register_experiment(name, sizes[-1] if sizes else USUAL_SIZE)
    return hydra_composed(config, with_policies(overrides))


def experiment_settings(name: str, *overrides: str) -> Any:
    """The checked settings of an experiment."""
    return typed(composed_experiment(name, *overrides), declared(name).settings, overrides)


def run_of(name: str, run_dir: Path, *overrides: str) -> ExperimentResult:
    """Run an experiment here."""
    return run_experiment(declared(name), experiment_settings(name, *overrides), run_dir)


def options(group: str) -> list[str]:
    """Return the names of a group's files."""
    folder = resources.files("foretail.configs") / group
    return sorted(path.name.removesuffix(".yaml") for path in folder.iterdir() if path.name.endswith(".yaml"))


def foretail(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in this process as a shell would in a folder."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(arguments)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def result_in(folder: str | Path) -> dict[str, Any]:
    """Return what a command wrote as its result into its run folder."""
    document: dict[str, Any] = json.loads((Path(folder) / "result.json").read_text(encoding="utf-8"))
    return document
