"""The model registry: models by their addresses, their versions and aliases, and what they were trained on.

An address names a model, its content (``Ensemble.sha256``) is its identity: what a model was trained on is what every
tracked run that made this very ensemble was given.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from foretail.core.errors import ForetailError
from foretail.core.json_text import parse_json
from foretail.core.reading import Reading
from foretail.models.ensemble.ensemble import Ensemble, FeatureInput
from foretail.models.ensemble.model_files import DEFAULT_LIMITS, Limits, load_model_file
from foretail.models.mlflow.store import (
    answered,
    connected,
    first_line,
    locked,
    out_of_reach,
    settled,
    store_exists,
    usable,
)
from foretail.models.mlflow.tracking import (
    EMPTY,
    ENSEMBLE_FILE,
    ENSEMBLE_TAG,
    MODEL_NAME,
    NETWORK_FILE,
    NETWORK_TAG,
    RegisteredModel,
    create_version,
    point_alias,
)

if TYPE_CHECKING:
    from foretail.models.drop.network import Network

MODEL_ADDRESS = re.compile(
    r"models:/(?P<name>[^/@]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+))"
    r"|models:/(?P<model>m-\w+)"
    r"|runs:/(?P<run>\w+)(?:/(?P<path>.+))?"
)

_LOGGED = {ENSEMBLE_FILE: ENSEMBLE_TAG, NETWORK_FILE: NETWORK_TAG}
"""Files that Foretail logs with a run, and the tag with the hash of each."""

_ALIAS = "SELECT version FROM registered_model_aliases WHERE workspace = 'default' AND name = ? AND alias = ?"


class NoLineage(ForetailError):
    """No tracked run tells what a model was trained on."""


@dataclass(frozen=True)
class UsedDataset:
    """A dataset that a run was given."""

    name: str  #: as the run shows it
    context: str  #: what it served for: ``train``, ``validation``, ``test``
    content_sha256: str  #: identity of its rows
    traffic_sha256: str  #: identity of the traffic behind them
    location: str = field(default="", compare=False)  #: folder in which it was then


@dataclass(frozen=True)
class Lineage:
    """Origin of an ensemble."""

    runs: tuple[str, ...]  #: tracked runs that made it, the newest first
    datasets: tuple[UsedDataset, ...]  #: what these were given, and what the network was given that it imitates

    def given(self, traffic_sha256: str, content_sha256: str = "") -> UsedDataset | None:
        """Dataset with these rows or this traffic that trained, tuned or gave it its threshold; None without one."""
        same = (
            one for one in self.datasets if content_sha256 == one.content_sha256 or traffic_sha256 == one.traffic_sha256
        )
        return next((one for one in same if one.context != "test"), None)


def load_ensemble(address: str, uri: str, **reading: Any) -> Ensemble:
    """Load trees as :func:`load_drop_predictor`, with the same `reading`; ForetailError also on a network."""
    model = load_drop_predictor(address, uri, **reading)
    if not isinstance(model, Ensemble):
        raise not_trees(address)
    return model


def not_trees(model: str) -> ForetailError:
    """Return the refusal of a network where only trees will do."""
    return ForetailError(
        f"{model} holds a neural network, not trees: train predictor=boosted_trees on the same datasets, or fit a "
        "forest to its decisions (docs/guide/export.md)"
    )


def load_drop_predictor(
    address: str,
    uri: str,
    features: Sequence[FeatureInput] | None = None,
    allow_pickle: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> Ensemble | Network:
    """Load a drop predictor from MLflow: what Foretail logged, else trees of scikit-learn or XGBoost.

    ForetailError on another form of address, when there is no such model, or when it cannot be read.

    Parameters
    ----------
    address : str
        ``models:/NAME@ALIAS``, ``models:/NAME/VERSION``, ``models:/MODEL_ID``, ``runs:/RUN_ID`` or
        ``runs:/RUN_ID/PATH``. A model that Foretail saved stands for the ensemble of its run.
    uri : the tracking store
    features : see :func:`foretail.models.ensemble.model_files.load_model_file`
    allow_pickle : whether to open a scikit-learn model that was saved as a pickle, which runs any code that it holds
    limits : of reading a model that Foretail did not log
    """
    match = MODEL_ADDRESS.fullmatch(address)
    if match is None:
        raise ForetailError(
            f"{address!r} is not a model address: write models:/NAME@ALIAS, models:/NAME/VERSION or runs:/RUN_ID/PATH"
        )
    if not store_exists(uri):
        raise ForetailError(f"{address} has no model in {uri}, which is not there: train and register the model first")
    named = match["alias"] not in (None, "latest")  # which MLflow itself resolves
    if named and answered(uri, _ALIAS, match["name"], match["alias"]) == []:  # before MLflow is imported
        raise ForetailError(f"{address} has no model in {uri} (there is no such alias): {_remedy(match)}")
    with tempfile.TemporaryDirectory() as folder, connected(uri) as mlflow:
        try:
            place, wanted = _artifact_address(mlflow, uri, match)
            path = Path(mlflow.artifacts.download_artifacts(place, dst_path=folder))
        except Exception as error:  # every store brings exception types of its own
            if (unreachable := out_of_reach(uri, error)) is not None:
                raise unreachable from error
            raise ForetailError(
                f"{address} has no model in {uri} ({first_line(error).rstrip('.')}): {_remedy(match)}"
            ) from error
        if path.is_dir():
            path = _model_file(path, address)
        try:
            model = (
                _network(path) if path.name == NETWORK_FILE else load_model_file(path, features, allow_pickle, limits)
            )
        except ForetailError as error:
            raise ForetailError(str(error).replace(str(path), address)) from None
        if wanted not in (None, model.sha256):
            kind = "ensemble" if isinstance(model, Ensemble) else "network"
            raise ForetailError(
                f"{address} is not the {kind} {wanted[:12]} that its run logged, so it was altered or damaged: train "
                f"the model again"
            )
        return model


def _remedy(address: re.Match[str]) -> str:
    if address["alias"]:
        return (
            "point the alias at a model: foretail train moves tracking.alias, foretail promote champion and challenger"
        )
    return "train and register the model first"


def _network(path: Path) -> Network:
    from foretail.models.drop.network import Network  # its packages are an extra

    return Network.load(path)


def _artifact_address(mlflow: ModuleType, store: str, match: re.Match[str]) -> tuple[str, str | None]:
    """Return where the model of an address lies, and its hash: the model of its run if Foretail logged one there."""
    client = mlflow.MlflowClient(store)
    run: str | None = match["run"]
    own = run is None or match["path"] in (None, MODEL_NAME, *_LOGGED)  # any other path means what it says
    if match["alias"]:
        run = client.get_model_version_by_alias(match["name"], match["alias"]).run_id
    elif match["version"]:
        run = client.get_model_version(match["name"], match["version"]).run_id
    elif match["model"]:
        run = client.get_logged_model(match["model"]).source_run_id
    artifacts = {item.path for item in client.list_artifacts(run)} if run and own else set()
    for file, tag in _LOGGED.items():
        if file in artifacts:
            of_run = client.get_run(run)
            if of_run.info.lifecycle_stage == "deleted":
                lasts = f"until mlflow gc removes its files (mlflow runs restore --run-id {run} keeps them)"
                Reading(match.string, guesses=(f"it counts although its run is deleted in MLflow, {lasts}",)).tell()
            return f"runs:/{run}/{file}", of_run.data.tags.get(tag)
    return match.string if match["run"] is None or match["path"] else f"{match.string}/{MODEL_NAME}", None


def logged_ensembles(uri: str) -> Iterator[tuple[str, str | None]]:
    """Yield every run of a store that logged trees or a network, and what is wrong with them; None if they are whole.

    ForetailError when the store cannot be used.
    """
    with mlflow_at(uri) as mlflow:
        runs = mlflow.search_runs(search_all_experiments=True, output_format="list")
        for run in runs:
            for file in (file for file, tag in _LOGGED.items() if tag in run.data.tags):
                try:
                    load_drop_predictor(f"runs:/{run.info.run_id}/{file}", uri)
                except ForetailError as error:
                    yield run.info.run_id, str(error)
                else:
                    yield run.info.run_id, None


def _model_file(folder: Path, address: str) -> Path:
    """Return the model's own file in a downloaded MLflow model."""
    from mlflow.models import Model

    if not any(folder.iterdir()):
        raise ForetailError(f"the files of {address} are gone from its store: restore its artifacts, or train again")
    try:
        flavors = Model.load(str(folder)).flavors
    except Exception as error:  # MLflow raises whatever parsing its YAML raises
        raise ForetailError(
            f"{address} is not an MLflow model ({first_line(error)}): give the address of a logged model or of one file"
        ) from error
    for flavor, key in (("xgboost", "data"), ("sklearn", "pickled_model")):
        name = flavors.get(flavor, {}).get(key)
        if name is not None:
            path = (folder / str(name)).resolve()
            if not path.is_relative_to(folder.resolve()):
                raise ForetailError(f"{address} points outside its own folder ({name}): log the model again")
            return path
    raise ForetailError(
        f"{address} has flavors {', '.join(sorted(flavors))}, but Foretail reads xgboost and sklearn: log the model "
        f"with one of these"
    )


def lineage(sha256: str, uri: str, tag: str = ENSEMBLE_TAG) -> Lineage:
    """Return what an ensemble, or under another tag a network, came from.

    NoLineage when no tracked run made it, or one does not say what it was given. ForetailError when the store cannot be
    used.

    Parameters
    ----------
    sha256 : of the model
    uri : the tracking store
    tag : under which runs have that hash
    """
    runs = _makers(uri, tag, sha256)
    if not runs:
        raise NoLineage(
            f"no run in {uri} made the {tag.removesuffix('_sha256')} {sha256[:12]}, so that nobody knows what it was "
            f"trained on: train it with tracking, and give the model as the run wrote it"
        )
    datasets = [dataset for run in runs for dataset in _used(run)]
    return Lineage(tuple(run.run_id for run in runs), tuple(dict.fromkeys(datasets)))


def run_tags(run_id: str, uri: str) -> dict[str, str]:
    """Return the tags of a run."""
    with mlflow_at(uri) as mlflow:
        return dict(mlflow.MlflowClient(uri).get_run(run_id).data.tags)


_ARTIFACTS_OF_RUN = "SELECT artifact_uri FROM runs WHERE run_uuid = ? AND lifecycle_stage = 'active'"


def run_document(run_id: str, name: str, uri: str) -> Any:
    """Return a JSON artifact of a run; ForetailError when it has none of that name."""
    for (folder,) in answered(uri, _ARTIFACTS_OF_RUN, run_id) or ():
        file = Path(unquote(folder.removeprefix("file://")), name)
        if folder.startswith("file:///") and file.is_file():  # else MLflow looks for it
            return _document(run_id, name, file.read_text)
    with mlflow_at(uri) as mlflow:
        return _document(run_id, name, partial(mlflow.artifacts.load_text, f"runs:/{run_id}/{name}"))


def _document(run_id: str, name: str, read: Callable[[], str]) -> Any:
    try:
        return parse_json(read())
    except Exception as error:  # of MLflow too, which may not be loaded
        raise ForetailError(f"the run {run_id} has no {name} ({first_line(error)}): train the model again") from error


@dataclass(frozen=True)
class _Maker:
    """A run that made a model."""

    run_id: str
    datasets: Sequence[tuple[str, ...]]  #: name, context and source in JSON of each that it was given


_RUNS_WITH_TAG = """
    SELECT run_uuid FROM tags JOIN runs USING (run_uuid) JOIN experiments USING (experiment_id)
    WHERE key = ? AND tags.value = ? AND runs.lifecycle_stage = 'active' AND experiments.lifecycle_stage = 'active'
    ORDER BY start_time DESC
"""
_DATASETS_OF_RUN = """
    SELECT datasets.name, coalesce(input_tags.value, ''), dataset_source FROM inputs
    JOIN datasets ON source_id = dataset_uuid
    LEFT JOIN input_tags ON inputs.input_uuid = input_tags.input_uuid AND input_tags.name = 'mlflow.data.context'
    WHERE destination_type = 'RUN' AND destination_id = ? ORDER BY inputs.rowid
"""


def _makers(uri: str, tag: str, value: str) -> list[_Maker]:
    """Return the runs of all experiments with a tag, the newest first."""
    if (runs := answered(uri, _RUNS_WITH_TAG, tag, value)) is not None:
        datasets = [answered(uri, _DATASETS_OF_RUN, run) for (run,) in runs]
        if None not in datasets:
            return [
                _Maker(run, [(name, context, source) for name, context, source in given or ()])
                for (run,), given in zip(runs, datasets, strict=True)
            ]
    with mlflow_at(uri) as mlflow:
        tracked = mlflow.search_runs(
            search_all_experiments=True,
            filter_string=f"tags.{tag} = '{value}'",
            order_by=["attributes.start_time DESC"],
            output_format="list",
        )
    return [
        _Maker(
            run.info.run_id,
            [
                (
                    item.dataset.name,
                    next((one.value for one in item.tags if one.key == "mlflow.data.context"), ""),
                    item.dataset.source,
                )
                for item in run.inputs.dataset_inputs
            ],
        )
        for run in tracked
    ]


def _used(run: _Maker) -> Iterator[UsedDataset]:
    if not run.datasets:
        raise NoLineage(f"the run {run.run_id} names no dataset that it was given: train the model again")
    for name, context, text in run.datasets:
        try:
            source = parse_json(text)
            yield UsedDataset(name, context, source["sha256"], source["traffic_sha256"], source["uri"])
        except (ValueError, KeyError, TypeError) as error:
            raise NoLineage(
                f"the run {run.run_id} does not say by hashes what its dataset {name} holds: train the model again"
            ) from error


@contextmanager
def mlflow_at(uri: str) -> Iterator[ModuleType]:
    """Yield MLflow, pointed at a store, and turn whatever the store raises into one sentence."""
    with connected(uri) as mlflow, usable(uri):
        yield mlflow


_VERSION_AT_ALIAS = """
    SELECT version FROM registered_model_aliases JOIN model_versions USING (workspace, name, version)
    WHERE workspace = 'default' AND name = ? AND alias = ? AND run_id = ? AND current_stage <> 'Deleted_Internal'
"""


def alias_holder(name: str, alias: str, uri: str) -> str | None:
    """Return the version that an alias of a registered model points at; None when there is no such model or alias.

    ForetailError when the version is deleted, or the registry cannot be used.
    """
    if not store_exists(uri):
        return None
    with mlflow_at(uri) as mlflow:
        client = mlflow.MlflowClient(uri)
        model = _known(client.get_registered_model, name)
        version = None if model is None else model.aliases.get(alias)
        if version is None:
            return None
        if _known(client.get_model_version, name, version) is None:
            raise ForetailError(
                f"models:/{name}@{alias} points at version {version}, which is deleted: delete the alias in MLflow, "
                f"or point it at another version"
            )
        return str(version)


def _known(find: Callable[..., Any], *what: str) -> Any:
    """Return what the registry has; None where there is no such thing."""
    from mlflow.exceptions import MlflowException

    try:
        return find(*what)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None


def version_tags(name: str, version: str, uri: str) -> dict[str, str]:
    """Return the tags of a version of a registered model."""
    with mlflow_at(uri) as mlflow:
        return dict(mlflow.MlflowClient(uri).get_model_version(name, version).tags)


def register_model(
    name: str, alias: str, run_id: str, uri: str, description: str | None = None, tags: Mapping[str, str] = EMPTY
) -> RegisteredModel:
    """Point an alias at the version of a run's model, which becomes the newest version when it is none yet.

    ForetailError when the run saved no model, or the registry refuses the name or the alias.

    Parameters
    ----------
    name, alias : of the registered model, which is created when missing
    run_id : a run that saved its model
    uri : the tracking store
    description : of a new version
    tags : of a new version
    """
    if rows := answered(uri, _VERSION_AT_ALIAS, name, alias, run_id):
        version = str(rows[0][0])
        return RegisteredModel(name, version, alias, version)
    with mlflow_at(uri) as mlflow, locked(uri):
        client = mlflow.MlflowClient(uri)
        try:
            version = _version_of(client, name, [run_id]) or _new_version(
                client, name, [run_id], uri, description, tags
            )
            return point_alias(client, name, alias, version)
        except mlflow.exceptions.MlflowException as error:
            raise ForetailError(
                f"MLflow refuses to register {name!r} as {alias!r} ({first_line(error)}): "
                f"choose another tracking.registered_model or tracking.alias"
            ) from error


@dataclass(frozen=True)
class Version:
    """A version of a registered model and the aliases that point at it."""

    name: str
    version: str
    aliases: tuple[str, ...]


_VERSIONS_OF_RUN = """
    SELECT name, version, group_concat(alias) FROM model_versions
    LEFT JOIN registered_model_aliases USING (workspace, name, version)
    WHERE workspace = 'default' AND run_id = ? AND current_stage <> 'Deleted_Internal' GROUP BY name, version
"""


def versions_of(runs: Sequence[str], uri: str) -> tuple[Version, ...]:
    """Return the versions of the models that runs saved, the newest first."""
    rows = [answered(uri, _VERSIONS_OF_RUN, run) for run in runs]
    if None not in rows:  # no alias has a comma
        known = [(name, version, (aliases or "").split(",")) for row in rows for name, version, aliases in row or ()]
    else:
        with mlflow_at(uri) as mlflow:
            client = mlflow.MlflowClient(uri)
            known = [
                (one.name, one.version, client.get_model_version(one.name, one.version).aliases)
                for run in runs
                for one in client.search_model_versions(f"run_id = '{run}'")
            ]
    versions = (Version(name, str(version), tuple(sorted(filter(None, aliases)))) for name, version, aliases in known)
    return tuple(sorted(versions, key=lambda one: -int(one.version)))


@dataclass(frozen=True)
class NamedVersion:
    """A version of a registered model that an alias points at."""

    version: str
    aliases: tuple[str, ...]
    created: str  #: in UTC, to the minute
    description: str
    tags: Mapping[str, str]


def named_versions(name: str, uri: str) -> list[NamedVersion]:
    """Return the versions of a registered model with an alias, the newest first; none where there is no such model."""
    if not store_exists(uri):
        return []
    with mlflow_at(uri) as mlflow:
        client = mlflow.MlflowClient(uri)
        model = _known(client.get_registered_model, name)
        aliases = {} if model is None else model.aliases
        versions = [client.get_model_version(name, version) for version in sorted(set(map(str, aliases.values())))]
    return [
        NamedVersion(
            str(one.version),
            tuple(sorted(alias for alias, version in aliases.items() if str(version) == str(one.version))),
            datetime.fromtimestamp(one.creation_timestamp / 1000, UTC).strftime("%Y-%m-%d %H:%M"),
            one.description or "",
            dict(one.tags),
        )
        for one in sorted(versions, key=lambda one: -int(one.version))
    ]


def give_back(name: str, alias: str, version: str, wanted_tag: str, uri: str) -> RegisteredModel:
    """Point an alias at a version that has a tag, and ``previous_<alias>`` at the version that held it.

    ForetailError when there is no such version, it lacks the tag, or it holds the alias already.
    """
    with mlflow_at(uri) as mlflow, locked(uri):
        client = mlflow.MlflowClient(uri)
        try:
            tags = client.get_model_version(name, version).tags
        except mlflow.exceptions.MlflowException as error:
            raise ForetailError(f"models:/{name}/{version} is not there ({first_line(error)}): give another") from error
        if wanted_tag not in tags:
            raise ForetailError(
                f"models:/{name}/{version} never passed a gate: foretail promote model=models:/{name}/{version}"
            )
        holder = alias_holder(name, alias, uri)
        if holder == version:
            raise ForetailError(f"models:/{name}@{alias} is version {version} already: nothing to give back")
        if holder is not None:
            point_alias(client, name, f"previous_{alias}", holder)
        return point_alias(client, name, alias, version)


def move_alias(
    name: str,
    alias: str,
    ensemble: Ensemble,
    runs: Sequence[str],
    holder: str | None,
    tags: Mapping[str, str],
    uri: str,
) -> RegisteredModel:
    """Point an alias at a version that holds `ensemble`, and ``previous_<alias>`` at the version that held it.

    The version is the newest that one of `runs` has, else it is registered now. The alias itself moves last: whatever
    stops this before, its holder stays. ForetailError when another version holds the alias by now, no version can be
    made, or the registry refuses.

    Parameters
    ----------
    name, alias : of the registered model, which is created when missing
    runs : ``Lineage.runs``
    holder : the version that :func:`alias_holder` named when the decision was made
    tags : tags of the version
    uri : str
        The tracking store. Of an SQLite file the lock is held meanwhile; a server has no lock, so that two that move
        an alias there in the same instant are told apart by their tags only.
    """
    with mlflow_at(uri) as mlflow, locked(uri):
        client = mlflow.MlflowClient(uri)
        now = alias_holder(name, alias, uri)
        if now != holder:
            raise ForetailError(
                f"models:/{name}@{alias} has moved from version {holder or 'none'} to {now or 'none'} meanwhile: "
                f"promote against that one"
            )
        version = _version_of(client, name, runs) or _new_version(client, name, runs, uri)
        if load_ensemble(f"models:/{name}/{version}", uri).sha256 != ensemble.sha256:
            raise ForetailError(
                f"models:/{name}/{version} no longer holds the ensemble {ensemble.sha256[:12]} that its run made: "
                f"train the model again"
            )
        for key, value in tags.items():
            settled(client.set_model_version_tag, name, version, key, value)
        if holder is not None:
            point_alias(client, name, f"previous_{alias}", holder)
        return point_alias(client, name, alias, version)


def _version_of(client: Any, name: str, runs: Sequence[str]) -> str | None:
    matching = [
        int(version.version)
        for run in runs
        for version in client.search_model_versions(f"run_id = '{run}'")
        if version.name == name
    ]
    return str(max(matching)) if matching else None


def _new_version(
    client: Any,
    name: str,
    runs: Sequence[str],
    uri: str,
    description: str | None = None,
    tags: Mapping[str, str] = EMPTY,
) -> str:
    for run in runs:
        outputs = client.get_run(run).outputs
        if outputs is not None and outputs.model_outputs:
            return create_version(client, name, run, outputs.model_outputs[0].model_id, description, tags)
    raise ForetailError(f"none of the runs {', '.join(runs)} in {uri} saved its model: train it again")
