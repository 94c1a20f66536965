"""Which model this is: its version in the registry, its hash, and what it was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from foretail.configs.schema.tracking import Tracking
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.registry import Lineage, NoLineage, lineage
from foretail.models.mlflow.store import store_exists, tracking_uri
from foretail.models.mlflow.tracking import ENSEMBLE_TAG, NETWORK_TAG
from foretail.models.mlflow.versions import RegisteredModel, Version, register_model, versions_of
from foretail.models.scoring.metrics import Score
from foretail.pipelines.runs.notes import say
from foretail.pipelines.runs.result import figure_text
from foretail.pipelines.runs.store import Store

if TYPE_CHECKING:
    from foretail.models.drop.network import Network

SHOWN_DIGITS = 12


@dataclass(frozen=True)
class ModelIdentity:
    """A drop predictor as a command was given it."""

    address: str  #: file, folder or address in MLflow
    sha256: str  #: identity of its content
    kind: str = "ensemble"  #: ensemble or network
    runs: tuple[str, ...] = ()  #: tracked runs that made this very ensemble, the newest first
    versions: tuple[Version, ...] = ()  #: of registered models that hold it, the newest first
    trained_on: tuple[str, ...] | None = None  #: datasets of its training rows; None when no tracked run made it
    lineage: Lineage | None = field(default=None, repr=False)  #: all that it was given, as its runs say

    def document(self) -> dict[str, Any]:
        """The identity, JSON-like."""
        document = asdict(self)
        document.pop("lineage")
        return {
            "address": document.pop("address"),
            f"{document.pop('kind')}_sha256": document.pop("sha256"),
            **document,
        }

    def sentence(self) -> str:
        """The identity for readers."""
        named = "; ".join(
            f"{one.name} version {one.version}" + (f" ({', '.join(one.aliases)})" if one.aliases else "")
            for one in self.versions
        )
        trained = (
            "no tracked run made it, so that nobody knows what it was trained on"
            if self.trained_on is None
            else f"trained on {', '.join(self.trained_on)}"
        )
        content = f"{self.kind} {self.sha256[:SHOWN_DIGITS]}"
        return f"model {self.address}: {named or 'no registered version'}, {content}, {trained}"


def identify(model: Ensemble | Network, address: str, tracking: Tracking, store: Store) -> ModelIdentity:
    """Identity of a drop predictor in MLflow; only its hash without tracking or without a store."""
    uri = tracking_uri(tracking.uri, store.folder.parent)
    kind, tag = ("ensemble", ENSEMBLE_TAG) if isinstance(model, Ensemble) else ("network", NETWORK_TAG)
    bare = ModelIdentity(address, model.sha256, kind)
    in_mlflow = address.startswith(("models:/", "runs:/"))
    if not (in_mlflow or tracking.enabled) or not store_exists(uri):
        return bare
    try:
        origin = lineage(model.sha256, uri, tag)
    except NoLineage:  # a model from elsewhere
        return bare
    trained = tuple(used.name.removesuffix(" train") for used in origin.datasets if used.context == "train")
    return ModelIdentity(address, model.sha256, kind, origin.runs, versions_of(origin.runs, uri), trained, origin)


def version_description(
    what: str,
    datasets: Sequence[Mapping[str, Any]],
    scores: Mapping[str, Mapping[str, Mapping[str, Score]]],
) -> str:
    """Text of a version's page in MLflow: what was trained, on which runs, and its F1 by side and region.

    Parameters
    ----------
    what : a few words
    datasets : as :func:`foretail.pipelines.tracking.datasets.describe_split` gives them
    scores : side -> region -> name -> score
    """
    trained = ", ".join(f"{one['scenario']}-{one['seed']}" for one in datasets if one["side"] == "train")
    worth = "; ".join(
        f"{side} F1 " + ", ".join(f"{region} {figure_text(named['f1'])}" for region, named in scores[side].items())
        for side in ("validation", "test")
    )
    return f"{what}. Trained on {trained}. {worth[0].upper()}{worth[1:]}."


def register_trained(
    tracking: Tracking, tracked: Mapping[str, Any] | None, description: str, tags: Mapping[str, str]
) -> RegisteredModel | None:
    """Give the model of a tracked run its version, point ``tracking.alias`` at it, and say so.

    Nothing without tracking, without ``tracking.registered_model``, or inside another run, which registers its best.
    """
    if tracked is None or tracking.registered_model is None or tracking.parent_run_id is not None:
        return None
    registered = register_model(
        tracking.registered_model, tracking.alias, tracked["run_id"], tracked["uri"], description, tags
    )
    say(registered.sentence(), finding=False)
    return registered
