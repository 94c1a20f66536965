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

from foretail.configs import schema
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
SIZES = dict.fromkeys(("credence_fig6", "predictor_study", "vermilion_fig8_5"), ("", "small", "medium", "full"))
"""Of one experiment per kind all sizes, of the others what they have by themselves, and the small one."""


def options(group: str) -> list[str]:
    """Return the names of a group's files."""
    folder = resources.files("foretail.configs") / group
    return sorted(path.name.removesuffix(".yaml") for path in folder.iterdir() if path.name.endswith(".yaml"))


def resolved(stage: str, *overrides: str) -> str:
    """Return the fingerprint of the settings that a stage would run with."""
    found = compose(stage, [*REQUIRED.get(stage, []), *overrides])
    return fingerprint(json.dumps(OmegaConf.to_container(found, resolve=True, enum_to_str=True), sort_keys=True))


def composed(place: Place) -> Iterator[Fingerprint]:
    schema.register()
    with initialize_config_module("foretail.configs", version_base="1.3"):
        for stage in schema.STAGES:
            yield Fingerprint("stage", said(stage=stage), resolved(stage))
        for size in options("packets/size"):
            yield Fingerprint("option", f"stage=demo size={size}", resolved("demo", f"size={size}"))
        for group in ("scenario", "features", "predictor", "split", "tracking"):
            for option in options(group):
                chosen = f"{group}={option}"
                yield Fingerprint("option", f"stage=train {chosen}", resolved("train", chosen))
        for policy in options("policy"):
            overrides = [f"policy=[{policy}]", f"baselines=[{policy}]"]
            yield Fingerprint("option", f"stage=evaluate policy={policy}", resolved("evaluate", *overrides))
        for predictor in options("demand_predictor"):
            overrides = [f"demand_predictor=[{predictor}]"]
            yield Fingerprint("option", f"stage=demand demand_predictor={predictor}", resolved("demand", *overrides))
        for experiment in options("experiment"):
            text = (resources.files("foretail.configs") / "experiment" / f"{experiment}.yaml").read_text("utf-8")
            stage = text.splitlines()[1].removeprefix("# foretail ").split()[0]
            for size in SIZES.get(experiment, ("", "small")) if stage != "train" else ("",):
                overrides = [f"experiment={experiment}", *([f"size={size}"] if size else [])]
                parameters = " ".join([f"stage={stage}", *overrides])
                yield Fingerprint("experiment", parameters, resolved(stage, *overrides))


GROUPS = (Group("configs", "composed", composed),)
