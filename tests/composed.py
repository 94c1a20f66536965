"""Settings of a command, composed from its options as the command line does."""

from __future__ import annotations

import contextlib
import io
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from omegaconf import DictConfig

from foretail.configs.plugins import with_policies
from foretail.configs.schema.stages import register
from foretail.pipelines import cli
from foretail.pipelines.experiment.catalog import USUAL_SIZE, declared, register_experiment
from foretail.pipelines.experiment.running import ExperimentResult, run_experiment
from foretail.pipelines.settings.validation import typed

MANDATORY = {
    "export": ["model=x"],
    "deploy": ["switch=127.0.0.1:9559"],
    "evaluate": ["model=x"],
    "replay": ["arrivals=x", "ports=1", "buffer=1"],
    "choose": ["arrivals=x", "ports=1", "buffer=1"],
    "distill": ["model=x"],
    "schedule": ["demand=x", "degree=1", "k=1"],
    "report": ["run=x"],
}
"""What a stage has no default for."""
OF_EXPERIMENTS = {"flips": ["model=x"]}
"""What an experiment has no default for."""


def composed(stage: str, *overrides: str) -> DictConfig:
    """Compose a stage's settings, with something for each that has no default."""
    register(stage)
    with initialize_config_module("foretail.configs", version_base="1.3"):
        return compose(stage, [*MANDATORY.get(stage, []), *overrides])


def composed_experiment(name: str, *overrides: str) -> DictConfig:
    """Compose an experiment's settings, in the size that the overrides name."""
    sizes = [override.removeprefix("size=") for override in overrides if override.startswith("size=")]
    config = register_experiment(name, sizes[-1] if sizes else USUAL_SIZE)
    with initialize_config_module("foretail.configs", version_base="1.3"):
        return compose(config, with_policies([*OF_EXPERIMENTS.get(name, []), *overrides]))


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
