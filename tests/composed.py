"""Settings of a stage, composed from its options as the command line does."""

from __future__ import annotations

from importlib import resources

from hydra import compose, initialize_config_module
from omegaconf import DictConfig

from foretail.configs.schema.stages import register

MANDATORY = {
    "export": ["model=x"],
    "deploy": ["switch=127.0.0.1:9559"],
    "evaluate": ["model=x"],
    "distill": ["model=x"],
    "promote": ["model=x"],
    "schedule": ["demand=x", "degree=1", "k=1"],
    "study": ["experiment=predictor_study"],
    "search": ["experiment=predictor_search"],
    "report": ["run=x"],
}
"""What a stage has no default for."""


def composed(stage: str, *overrides: str) -> DictConfig:
    """Compose a stage's settings, with something for each that has no default."""
    register(stage)
    with initialize_config_module("foretail.configs", version_base="1.3"):
        return compose(stage, [*MANDATORY.get(stage, []), *overrides])


def options(group: str) -> list[str]:
    """Return the names of a group's files."""
    folder = resources.files("foretail.configs") / group
    return sorted(path.name.removesuffix(".yaml") for path in folder.iterdir() if path.name.endswith(".yaml"))
