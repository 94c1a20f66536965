"""Runs that judge the models of a command and that also trained, tuned or gave them their threshold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from foretail.configs.schema.scenario import Scenario
from foretail.core.errors import ForetailError
from foretail.features.dataset.schema import traffic_sha256_of
from foretail.models.mlflow.registry import Lineage, UsedDataset
from foretail.pipelines.runs.notes import lineages, say
from foretail.pipelines.runs.result import plain

SEEN = "on runs that the model has seen"
"""At the end of the title of a table."""


def given_to_models(traffic_sha256: str, content_sha256: str = "") -> UsedDataset | None:
    """Use of such a run by a model of the command, other than to test it; None if there is none, as far as known."""
    given = (lineage.given(traffic_sha256, content_sha256) for lineage in lineages())
    return next(filter(None, given), None)


def seen_seeds(scenario: Scenario, seeds: Sequence[int], where: str = "the scenario") -> list[int]:
    """The seeds on which a model of the command has seen `scenario`, which the command says."""
    document = plain(asdict(scenario))
    seen = [seed for seed in seeds if given_to_models(traffic_sha256_of(document, seed)) is not None]
    if seen:
        say(
            f"the model was trained or tuned on {where} with seed {', '.join(map(str, seen))}, which flatters it "
            "there: judge it on other seeds"
        )
    return seen


def refuse_seen(scenarios: Mapping[Any, Scenario], seeds: Sequence[int], lineage: Lineage, whose: str) -> None:
    """Raise ForetailError when a model was given traffic of a held-out run: of any condition, on any seed.

    Parameters
    ----------
    scenarios : by condition
    seeds : of the held-out runs
    lineage : what the model came from
    whose : words for the model
    """
    documents = {where: plain(asdict(scenario)) for where, scenario in scenarios.items()}
    runs = (
        (f"{where} on seed {seed}", traffic_sha256_of(one, seed)) for where, one in documents.items() for seed in seeds
    )
    refuse_traffic(runs, lineage, whose)


def refuse_traffic(runs: Iterable[tuple[str, str]], lineage: Lineage, whose: str) -> None:
    """The same for held-out runs with their names and the hashes of their traffic."""
    for name, traffic in runs:
        used = lineage.given(traffic)
        if used is not None:
            raise ForetailError(
                f"{name} is not a held-out run: its scenario and seed are those of {used.name}, which {whose} was given"
            )
