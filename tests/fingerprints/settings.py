"""Composed settings of every stage and experiment, as resolved JSON.

A setting that gets another name or default changes these hashes and no result: they have a file of their own, so that
`python -m tests.fingerprints accept --reason ... configs` takes in such a change and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources

from omegaconf import DictConfig, OmegaConf

from foretail.configs.schema.stages import STAGES
from foretail.pipelines.experiment.catalog import experiments, sizes_of
from tests.composed import composed, composed_experiment, options
from tests.fingerprints.book import Fingerprint, Group
from tests.fingerprints.canonical import fingerprint, parameters_text
from tests.fingerprints.place import Place


def resolved(settings: DictConfig) -> str:
    """Return the fingerprint of settings as a command would run with them."""
    return fingerprint(json.dumps(OmegaConf.to_container(settings, resolve=True, enum_to_str=True), sort_keys=True))


def stages(place: Place) -> Iterator[Fingerprint]:
    """Every stage by itself."""
    for stage in STAGES:
        yield Fingerprint("stage", parameters_text(stage=stage), resolved(composed(stage)))


def all_sizes(place: Place) -> Iterator[Fingerprint]:
    """Every experiment in every size; a minute and a half."""
    for name in experiments():
        for size in sizes_of(name):
            settings = composed_experiment(name, f"size={size}")
            yield Fingerprint("experiment", parameters_text(experiment=name, size=size), resolved(settings))


def files(place: Place) -> Iterator[Fingerprint]:
    """What every option says by itself, without its comments."""
    for group in (
        *("demand_predictor", "features", "flow_sizes", "demand_sizes/size", "packets/size", "policy"),
        *("predictor", "scenario", "split", "tracking"),
    ):
        for option in options(group):
            text = (resources.files("foretail.configs") / group / f"{option}.yaml").read_text("utf-8")
            content = OmegaConf.to_container(OmegaConf.create(text))
            yield Fingerprint("option", f"{group}={option}", fingerprint(json.dumps(content, sort_keys=True)))


GROUPS = (
    Group("configs", "composed", stages),
    Group("configs", "sizes", all_sizes, nightly=True),
    Group("configs", "files", files),
)
