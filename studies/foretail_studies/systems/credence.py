"""Credence: Figure 6 of its paper, with a forest that is trained as the paper trains it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from foretail.pipelines.experiment.catalog import settings_of
from foretail.pipelines.experiment.declaration import Run
from foretail.pipelines.runs.points import SoFar
from foretail.pipelines.runs.store import Store
from foretail_studies.flows.experiment import FlowSettings, find
from foretail_studies.flows.verdicts import CLAIMS, judge
from foretail_studies.systems.comparisons import SEEDS
from foretail_studies.systems.system import Published, System

EXPERIMENT, MODEL = "credence_fig6", "paper"
POLICIES = ["lqd", "dt", "abm"]
FIGURES = [claim for claim in CLAIMS[EXPERIMENT] if not isinstance(claim.says, str)]


def _settings(size: str, seed: int, folder: str) -> FlowSettings:
    settings = settings_of(EXPERIMENT, size, FlowSettings)
    models = {MODEL: settings.models[MODEL]}
    tracking = replace(settings.tracking, enabled=False)
    return replace(
        settings, seeds=[seed], policies=POLICIES, models=models, jobs=1, store_dir=folder, tracking=tracking
    )


def _measure(size: str, seed: int, so_far: SoFar) -> dict[str, float]:
    with TemporaryDirectory() as folder:
        found = find(_settings(size, seed, folder), Run(Path(folder), Store(folder), None))
    changes = {claim.words: judge(claim, found.conditions, MODEL)[0] for claim in FIGURES}
    return {words: change.mean for words, change in changes.items() if change is not None and change.mean is not None}


CREDENCE = System(
    "Credence",
    "Credence (NSDI'24)",
    tuple(Published(claim.words, float(claim.says), "section 4.2, Figure 6", change=True) for claim in FIGURES),
    _measure,
    {size: seeds[:5] for size, seeds in SEEDS.items()},
)
