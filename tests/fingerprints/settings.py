"""Composed settings of every stage and experiment, as resolved JSON.

A setting that gets another name or default changes these hashes and no result: they have a file of their own, so that
`python -m tests.fingerprints accept --reason ... configs` takes in such a change and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources

from omegaconf import OmegaConf

from foretail.configs.schema.stages import STAGES
from tests.composed import composed, options
from tests.fingerprints.book import Fingerprint, Group
from tests.fingerprints.canonical import fingerprint, parameters_text
from tests.fingerprints.place import Place

SIZED = {"credence_fig6": "evaluate", "predictor_study": "study", "vermilion_fig8_5": "schedule"}
"""One experiment per kind of sizes, and its stage: composed in all of them."""


def resolved(stage: str, *overrides: str) -> str:
    """Return the fingerprint of the settings that a stage would run with."""
    settings = composed(stage, *overrides)
    return fingerprint(json.dumps(OmegaConf.to_container(settings, resolve=True, enum_to_str=True), sort_keys=True))


def stages_and_experiments(place: Place) -> Iterator[Fingerprint]:
    """Every stage by itself, and every experiment."""
    for stage in STAGES:
        yield Fingerprint("stage", parameters_text(stage=stage), resolved(stage))
    for experiment in options("experiment"):
        text = (resources.files("foretail.configs") / "experiment" / f"{experiment}.yaml").read_text("utf-8")
        stage = text.splitlines()[1].removeprefix("# foretail ").split()[0]
        parameters = parameters_text(stage=stage, experiment=experiment)
        yield Fingerprint("experiment", parameters, resolved(stage, f"experiment={experiment}"))
    for experiment, stage in SIZED.items():
        for size in ("small", "medium", "full"):
            parameters = parameters_text(stage=stage, experiment=experiment, size=size)
            yield Fingerprint("experiment", parameters, resolved(stage, f"experiment={experiment}", f"size={size}"))


def files(place: Place) -> Iterator[Fingerprint]:
    """What every option says by itself, without its comments."""
    for group in (
        *("demand_predictor", "demonstration/size", "features", "flow_sizes", "launcher", "matrices/size"),
        *("packets/size", "policy", "predictor", "scenario", "split", "tracking"),
    ):
        for option in options(group):
            text = (resources.files("foretail.configs") / group / f"{option}.yaml").read_text("utf-8")
            content = OmegaConf.to_container(OmegaConf.create(text))
            yield Fingerprint("option", f"{group}={option}", fingerprint(json.dumps(content, sort_keys=True)))


GROUPS = (Group("configs", "composed", stages_and_experiments), Group("configs", "files", files))
