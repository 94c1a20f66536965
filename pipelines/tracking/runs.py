"""MLflow runs of stages and experiments, and the datasets of which their models were made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from foretail.configs.schema.scenario import Scenario
from foretail.configs.schema.tracking import Tracking
from foretail.core.errors import ForetailError
from foretail.features.dataset.schema import traffic_sha256, traffic_sha256_of
from foretail.features.rows import splits
from foretail.models.mlflow.registry import Lineage, UsedDataset
from foretail.models.mlflow.store import tracking_uri
from foretail.models.mlflow.tracking import TrackedRun, track
from foretail.pipelines.runs.notes import lineages, say
from foretail.pipelines.runs.result import plain
from foretail.pipelines.runs.store import Store

CAVEATS = ("open_loop", "drops_visible")
"""Fields of the scenario of an imported trace beside its settings."""


def log_dataset(run: TrackedRun, described: Mapping[str, Any]) -> None:
    """Record a dataset, described by :func:`describe_dataset`, as an input of a run."""
    stretch = "" if described["start_ns"] is None and described["end_ns"] is None else " {start_ns}-{end_ns} ns"
    run.log_dataset(
        "{scenario}-{seed}".format_map(described) + stretch.format_map(described),
        described["content_sha256"],
        described["traffic_sha256"],
        described["path"],
        described["rows"],
        described["drops"],
        described["side"],
    )


def describe_split(split: splits.Split) -> list[dict[str, Any]]:
    """Describe which rows of every dataset of a split were used, and for which side."""
    return [describe_dataset(selection, side) for side in splits.SIDES for selection in getattr(split, side)]


def lineage_of(split: splits.Split) -> Lineage:
    """Lineage of a model that is trained on a split."""
    used = [
        UsedDataset(str(dataset.path), side, dataset.manifest.content_sha256, traffic_sha256(dataset.manifest))
        for side in splits.SIDES
        for dataset in (selection.dataset for selection in getattr(split, side))
    ]
    return Lineage((), tuple(used))


def describe_dataset(selection: splits.Selection, side: str) -> dict[str, Any]:
    """Describe which rows of a dataset were used, and for which side."""
    manifest = selection.dataset.manifest
    return {
        "side": side,
        "path": str(selection.dataset.path),
        "content_sha256": manifest.content_sha256,
        "traffic_sha256": traffic_sha256(manifest),
        "scenario": manifest.scenario.get("name"),
        "seed": manifest.seed,
        "policy": manifest.policy.get("name"),
        "rules": asdict(manifest.rules),
        "load": manifest.scenario.get("background", {}).get("load"),
        "switches": sorted({(switch.ports, switch.buffer_bytes) for switch in manifest.switches}),
        "caveats": {name: manifest.scenario[name] for name in CAVEATS if name in manifest.scenario},
        "start_ns": selection.start_ns,
        "end_ns": selection.end_ns,
        "rows": selection.count(),
        "drops": selection.drops(),
    }


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


def refuse_traffic(runs: Iterable[Sequence[str]], lineage: Lineage, whose: str) -> None:
    """The same for held-out runs with their names, the hashes of their traffic and, if there are any, of their rows."""
    for name, *hashes in runs:
        used = lineage.given(*hashes)
        if used is not None:
            why = f"its scenario and seed are those of {used.name}, which {whose} was given"
            why = f"{whose} was given it as {used.name}" if used.content_sha256 in hashes[1:] else why
            raise ForetailError(f"{name} is not a held-out run: {why}: leave it out")


@contextmanager
def tracked(
    tracking: Tracking,
    store: Store,
    settings: Mapping[str, Any],
    name: str | None = None,
    tags: Mapping[str, str] | None = None,
    params: Mapping[str, Any] | None = None,
) -> Iterator[TrackedRun]:
    """A run with `settings` logged, called `name` unless ``tracking.run_name`` says otherwise.

    A job of a sweep has its number before its name, and as the tag ``job``. Parameters are those of
    :func:`foretail.models.mlflow.tracking.track`; runs of one sweep share the tag of ``tracking.sweep_id``.
    """
    swept = {} if tracking.sweep_id is None else {"sweep_id": tracking.sweep_id}
    if HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN:
        job = str(HydraConfig.get().job.num)
        swept["job"], name = job, None if name is None else f"job {job}: {name}"
    with track(
        tracking.experiment,
        settings,
        uri=tracking_uri(tracking.uri, store.folder.parent),
        run_name=tracking.run_name or name,
        tags={**swept, **(tags or {})},
        parent_run_id=tracking.parent_run_id,
        params=params,
    ) as run:
        yield run


def run_note(tracked: Mapping[str, Any] | None) -> tuple[str, ...]:
    """A note below a table that says which run in MLflow has it; none where there is no run."""
    if tracked is None:
        return ()
    here = f"sqlite:///{Path.cwd()}/"
    return (f"MLflow run {tracked['run_id']} in {tracked['uri'].removeprefix(here)}",)


def address(run: TrackedRun) -> dict[str, str]:
    """Address of a run in MLflow, for ``result.json``."""
    return {"run_id": run.run_id, "experiment_id": run.experiment_id, "uri": run.uri}
