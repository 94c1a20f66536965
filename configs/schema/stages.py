"""Structured configuration: one dataclass per config node, every field with its meaning, unit and range.

The dataclasses are Hydra schemas, stored in the ConfigStore as ``base_<stage>`` and named first in the defaults list
of each stage's YAML file, so that composing already checks names and types. The ranges given here are checked after
composing by ``foretail.pipelines.settings``. Fields without a default are ``MISSING``: a YAML file has to set them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf

from foretail.configs.plugins import register_plugins
from foretail.configs.schema.model_stages import (
    DeployConfig,
    ExportConfig,
    PromoteConfig,
    TrainConfig,
)
from foretail.configs.schema.network.circuits import DemandConfig, ScheduleConfig
from foretail.configs.schema.networks import EmulatorNetwork, NativeNetwork, Ns3Network
from foretail.configs.schema.packet_stages import ChooseConfig, CollectConfig, DemoConfig, EvaluateConfig, ReplayConfig
from foretail.configs.schema.policies import POLICIES
from foretail.configs.schema.scenario import Scenario
from foretail.configs.schema.stage import Stage
from foretail.configs.schema.tracking import Tracking
from foretail.configs.schema.training import FeatureSelection, Split
from foretail.core.errors import ForetailError
from foretail.core.settings import setting
from foretail.features.catalog import FEATURE_GROUPS


@dataclass
class ReportConfig(Stage):
    """``foretail report``: one HTML page of a run or a sweep, to be read without anything else."""

    run: Any = setting(MISSING, "Folder of a run or of a sweep, or a list of such folders.")
    out: str | None = setting(
        None, "Page to write, a file .html; null means report.html in the report's own run folder."
    )

    @property
    def folders(self) -> list[str]:
        """The folders to show, in order."""
        return [self.run] if isinstance(self.run, str) else self.run

    def check(self, where: str) -> None:
        """Raise ForetailError unless there are folders, and a page to write."""
        folders = self.folders
        if not (
            isinstance(folders, list) and folders and all(isinstance(folder, str) and folder for folder in folders)
        ):
            raise ForetailError("run is neither a folder nor a list of folders: give run=FOLDER or run=[FOLDER,FOLDER]")
        if len(set(folders)) < len(folders):
            raise ForetailError("run names a folder twice: name every folder once")
        if self.out is not None and Path(self.out).suffix != ".html":
            raise ForetailError(f"out = {self.out} is not a page: give a file that ends with .html")


STAGES: dict[str, type[Stage]] = {
    "collect": CollectConfig,
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
    "replay": ReplayConfig,
    "choose": ChooseConfig,
    "promote": PromoteConfig,
    "export": ExportConfig,
    "deploy": DeployConfig,
    "demo": DemoConfig,
    "schedule": ScheduleConfig,
    "demand": DemandConfig,
    "report": ReportConfig,
}


@functools.cache
def register(stage: str) -> None:
    """Store the schemas of a stage in Hydra's ConfigStore, once; --help copies all of it for every group it lists."""
    register_config(stage, STAGES[stage])


def register_config(config: str, schema: type[Stage]) -> None:
    """Store the schema of a config as ``base_CONFIG``, and those of the groups that it may choose from."""
    OmegaConf.register_new_resolver("features", lambda group: list(FEATURE_GROUPS[group]), replace=True)
    store = ConfigStore.instance()
    store.store(name=f"base_{config}", node=schema)
    register_plugins(schema)
    for policy in POLICIES.values():
        store.store(group="policy", name=policy.name, node={policy.name: {"name": policy.name, **policy.option}})
    for network in (Ns3Network, NativeNetwork, EmulatorNetwork):
        store.store(group="network", name=network.name, node=network)
    for group, schema_of_group in (
        ("scenario", Scenario),
        ("features", FeatureSelection),
        ("split", Split),
        ("tracking", Tracking),
    ):
        store.store(group=group, name=f"base_{group}", node=schema_of_group)
