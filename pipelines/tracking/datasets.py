"""Datasets as MLflow's runs know them: what was used of each, and what for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from foretail.features.dataset.schema import traffic_sha256
from foretail.features.rows import splits
from foretail.models.mlflow.registry import Lineage, UsedDataset
from foretail.models.mlflow.tracking import TrackedRun

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
