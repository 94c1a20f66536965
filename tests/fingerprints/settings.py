"""Composed settings of every stage and experiment, as resolved JSON.

A setting that gets another name or default changes these hashes and no result: they have a file of their own, so that
`python -m tests.fingerprints accept --reason ... configs` takes in such a change and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources

from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from foretail.configs.schema import stages as schema
from tests.fingerprints.book import Fingerprint, Group
from tests.fingerprints.canonical import fingerprint, said
from tests.fingerprints.place import Place

REQUIRED = {
    "export": ["model=x"],
    "evaluate": ["model=x"],
    "distill": ["model=x"],
    "promote": ["model=x"],
    "schedule": ["demand=x", "degree=1", "k=1"],
    "study": ["experiment=predictor_study"],
    "search": ["experiment=predictor_search"],
    "report": ["run=x"],
}
SIZED = {"credence_fig6": "evaluate", "predictor_study": "study", "vermilion_fig8_5": "schedule"}
"""One experiment per kind of sizes, and its stage: composed in all of them."""


def options(group: str) -> list[str]:
    """Return the names of a group's files."""
    folder = resources.files("foretail.configs") / group
    return sorted(path.name.removesuffix(".yaml") for path in folder.iterdir() if path.name.endswith(".yaml"))


def resolved(stage: str, *overrides: str) -> str:
    """Return the fingerprint of the settings that a stage would run with."""
    found = compose(stage, [*REQUIRED.get(stage, []), *overrides])
    return fingerprint(json.dumps(OmegaConf.to_container(found, resolve=True, enum_to_str=True), sort_keys=True))


def composed(place: Place) -> Iterator[Fingerprint]:
    for stage in schema.STAGES:
        schema.register(stage)
    with initialize_config_module("foretail.configs", version_base="1.3"):
        for stage in schema.STAGES:
            yield Fingerprint("stage", said(stage=stage), resolved(stage))
        for experiment in options("experiment"):
            text = (resources.files("foretail.configs") / "experiment" / f"{experiment}.yaml").read_text("utf-8")
            stage = text.splitlines()[1].removeprefix("# foretail ").split()[0]
            parameters = said(stage=stage, experiment=experiment)
            yield Fingerprint("experiment", parameters, resolved(stage, f"experiment={experiment}"))
        for experiment, stage in SIZED.items():
            for size in ("small", "medium", "full"):
                parameters = said(stage=stage, experiment=experiment, size=size)
                yield Fingerprint("experiment", parameters, resolved(stage, f"experiment={experiment}", f"size={size}"))


def files(place: Place) -> Iterator[Fingerprint]:
    """What every option says by itself, without its comments."""
    for group in (
        *("demand_predictor", "features", "flow_sizes", "launcher", "matrices/size", "packets/size", "policy"),
        *("predictor", "scenario", "split", "tracking"),
    ):
        for option in options(group):
            text = (resources.files("foretail.configs") / group / f"{option}.yaml").read_text("utf-8")
            said_there = OmegaConf.to_container(OmegaConf.create(text))
            yield Fingerprint("option", f"{group}={option}", fingerprint(json.dumps(said_there, sort_keys=True)))


GROUPS = (Group("configs", "composed", composed), Group("configs", "files", files))
