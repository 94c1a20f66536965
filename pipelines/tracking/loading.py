"""Models of stages: from a file, a run folder, or MLflow; which ones these are, and the tuned policies beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.tracking import Tracking
from foretail.core.errors import ForetailError
from foretail.core.impostors import refuse_impostor
from foretail.models import zoo
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.model_files import DEFAULT_LIMITS, Limits, load_model_file
from foretail.models.mlflow.registry import (
    Lineage,
    NoLineage,
    Version,
    lineage,
    load_drop_predictor,
    not_trees,
    register_model,
    run_document,
    versions_of,
)
from foretail.models.mlflow.store import store_exists, tracking_uri
from foretail.models.mlflow.tracking import (
    ENSEMBLE_FILE,
    ENSEMBLE_TAG,
    NETWORK_FILE,
    NETWORK_TAG,
    OUTCOME_FILE,
    RegisteredModel,
)
from foretail.models.scoring.metrics import Score
from foretail.models.scoring.operating_point import constant_decision
from foretail.pipelines.runs.notes import lineages, say, say_if_constant, use_lineage, use_model
from foretail.pipelines.runs.result import Cell, figure_text
from foretail.pipelines.runs.store import Store
from foretail.sim_bridge.open_loop.baselines import Baseline
from foretail.sim_bridge.open_loop.scores import shown_share
from foretail.sim_bridge.python_policies import is_function

if TYPE_CHECKING:
    from foretail.models.drop.network import Network


TRAINED, HERE = "the runs that trained the model", "these very runs, for the model's own are not known"
"""Runs on which settings were chosen, in words."""


def known_baselines(tracking: Tracking, store: Store) -> tuple[Baseline, ...]:
    """Return the policies that were tuned when the model of this command was trained; none where no run says so."""
    uri = tracking_uri(tracking.uri, store.folder.parent)
    for run_id in (run for known in lineages() for run in known.runs):
        with suppress(ForetailError):  # of a run that logged none
            if baselines := chosen_in(run_document(run_id, OUTCOME_FILE, uri)):
                return baselines
    return ()


def chosen_in(outcome: Mapping[str, Any]) -> tuple[Baseline, ...]:
    """Return the baselines of a training, the best first; none where test runs were not replayed."""
    replay = outcome.get("replay") or {}
    return tuple(Baseline(one["policy"], one["alpha"]) for one in replay.get("baselines", ()))


def baseline_rows(baselines: Sequence[Mapping[str, Any]]) -> list[tuple[Cell, ...]]:
    """Rows of a table: what tuned policies recover and send."""
    return [(one["title"], shown_share(one["recovered_loss"]), one["sent_percent_of_lqd"]) for one in baselines]


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
    datasets : as :func:`foretail.pipelines.tracking.runs.describe_split` gives them
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


def load_model(model: str, tracking: Tracking, store: Store, **reading: Any) -> Ensemble:
    """The trees of :func:`load_predictor`, with the same `reading`; ForetailError when there is a network."""
    predictor = load_predictor(model, tracking, store, **reading)
    if not isinstance(predictor, Ensemble):
        raise not_trees(model)
    return predictor


def is_predictor(model: str) -> bool:
    """True if it names a predictor, in a file, a folder, MLflow or the zoo, and not a policy."""
    return model.startswith(("models:/", "runs:/", zoo.PREFIX)) or Path(model).exists()


def load_predictor(
    model: str,
    tracking: Tracking,
    store: Store,
    inputs: Sequence[FeatureInput] | None = None,
    allow_pickle: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    rows: NDArray[np.int64] | None = None,
) -> Ensemble | Network:
    """The drop predictor of a file, of a train run's folder, of an address in MLflow, or zoo:NAME.

    `inputs` describes the columns of a model that another framework trained, `limits` what reading it may take, and
    `rows` are data on which it is tried, see :func:`foretail.models.ensemble.model_files.load_model_file`.
    """
    predictor: Ensemble | Network
    if model.startswith(("models:/", "runs:/")):
        uri = tracking_uri(tracking.uri, store.folder.parent)
        predictor = load_drop_predictor(model, uri, inputs, allow_pickle, limits)
    elif model.startswith(zoo.PREFIX):
        predictor = zoo.ensemble(model.removeprefix(zoo.PREFIX))
    else:
        path = Path(model)
        if path.is_dir():
            path /= ENSEMBLE_FILE if (path / ENSEMBLE_FILE).is_file() else NETWORK_FILE
            path = path if path.is_file() else path.with_name(ENSEMBLE_FILE)
        if is_function(model):
            raise ForetailError(
                f"{model} is a function in Python, which replay, evaluate, benchmark and judge ask: give trees or a "
                "network here"
            )
        if not path.is_file():
            raise ForetailError(
                f"there is no model {path}: give the file of a model, a train run's folder, zoo:NAME or "
                "models:/NAME@ALIAS"
            )
        network = path.suffix == Path(NETWORK_FILE).suffix
        predictor = load_network(path) if network else load_model_file(path, inputs, allow_pickle, limits, rows)
    identity = identify(predictor, model, tracking, store)
    use_model(identity.document(), identity.sentence())
    use_lineage(identity.lineage)
    if isinstance(predictor, Ensemble) and predictor.output != "value":
        say_if_constant(f"model {model}", "the threshold", constant_decision(predictor))
    return predictor


def load_network(path: Path) -> Network:
    """The network in a file; loads what runs it only now."""
    from foretail.models.drop.network import Network

    refuse_impostor(path)
    return Network.load(path)
