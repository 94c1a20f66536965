"""``foretail promote``: make a model champion or challenger if it passes the gate, or show and restore who is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretail.configs.schema.model_stages import PromoteConfig
from foretail.core.errors import ForetailError
from foretail.core.summary import Summarised
from foretail.models.mlflow.registry import NamedVersion, give_back, named_versions
from foretail.models.mlflow.store import tracking_uri
from foretail.models.mlflow.tracking import RegisteredModel
from foretail.pipelines.promotion.promoting import GATE_RUN_TAG, PromoteResult, promote_model
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Store


@dataclass(frozen=True, repr=False)
class Aliases(Summarised):
    """The versions of a model that aliases point at."""

    name: str  #: of the registered model
    versions: Sequence[NamedVersion]  #: with at least one alias
    restored: RegisteredModel | None = None  #: the alias that this command gave back

    def document(self) -> dict[str, Any]:
        """Every alias, JSON-like."""
        return {
            "name": self.name,
            "aliases": {alias: one.version for one in self.versions for alias in one.aliases},
            "versions": [vars(one) for one in self.versions],
            "restored": None if self.restored is None else vars(self.restored),
        }

    def verdict(self) -> list[str]:
        """Sentence on the champion, or on the alias that moved."""
        if self.restored is not None:
            return [self.restored.sentence() + "."]
        champion = next((one for one in self.versions if "champion" in one.aliases), None)
        if champion is None:
            return [f"models:/{self.name} has no champion: foretail promote model=MODEL judges one."]
        return [f"models:/{self.name}@champion is version {champion.version}, {champion.description or 'undescribed'}"]

    def tables(self) -> list[Table]:
        """A row for each version with an alias."""
        rows = [
            {
                "alias": ", ".join(one.aliases),
                "version": one.version,
                "registered": one.created,
                "passed the gate": "yes" if GATE_RUN_TAG in one.tags else "no",
                "features": one.tags.get("features", "-"),
            }
            for one in self.versions
        ]
        return [Table.of_rows(f"Aliases of {self.name}", rows)] if rows else []


def known_aliases(config: PromoteConfig) -> Aliases:
    """Return who holds the aliases of ``tracking.registered_model``, after the restoring that is wanted.

    ``config.to`` is given to the version that held it before, or to ``config.version``. ForetailError when there is
    none, or it never passed the gate.
    """
    uri = tracking_uri(config.tracking.uri, Store(config.store_dir).folder.parent)
    name, before = str(config.tracking.registered_model), f"previous_{config.to}"
    if not config.rollback and config.version is None:
        return Aliases(name, named_versions(name, uri))
    version = None if config.version is None else str(config.version)
    if version is None:
        version = next((one.version for one in named_versions(name, uri) if before in one.aliases), None)
        if version is None:
            raise ForetailError(
                f"models:/{name} has no alias {before}, so nobody was {config.to} before: give version=N"
            )
    restored = give_back(name, config.to, version, GATE_RUN_TAG, uri)
    return Aliases(name, named_versions(name, uri), restored)


def promote(config: PromoteConfig, run_dir: Path) -> PromoteResult | Aliases:
    """Judge the model and the holder on held-out runs, prove the exports, and move the alias as the last step."""
    if config.model is None:
        return known_aliases(config)
    return promote_model(config, run_dir)
