"""Versions of registered models, and the aliases that point at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from foretail.core.errors import ForetailError
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.registry import load_ensemble, mlflow_at
from foretail.models.mlflow.store import answered, first_line, locked, settled, store_exists

EMPTY: Mapping[str, str] = MappingProxyType({})

_VERSION_AT_ALIAS = """
    SELECT version FROM registered_model_aliases JOIN model_versions USING (workspace, name, version)
    WHERE workspace = 'default' AND name = ? AND alias = ? AND run_id = ? AND current_stage <> 'Deleted_Internal'
"""


@dataclass(frozen=True)
class RegisteredModel:
    """A version in the model registry, and the alias that points at it now."""

    name: str
    version: str
    alias: str
    before: str | None = None  #: the version that the alias pointed at before, if any; `version` itself when it stayed

    def sentence(self) -> str:
        """Say where the alias points, and whether it moved."""
        was = {None: "", self.version: ", as before"}.get(self.before, f"; before: version {self.before}")
        return f"models:/{self.name}@{self.alias} is version {self.version} now{was}"


def point_alias(client: Any, name: str, alias: str, version: str) -> RegisteredModel:
    """Point an alias at a version: the one place where aliases move. ``latest`` is MLflow's own, the newest version."""
    if alias.lower() == "latest":
        return RegisteredModel(name, version, alias)
    before = client.get_registered_model(name).aliases.get(alias)
    if before is None or str(before) != version:
        settled(client.set_registered_model_alias, name, alias, version)
    return RegisteredModel(name, version, alias, None if before is None else str(before))


def alias_holder(name: str, alias: str, uri: str) -> str | None:
    """Return the version that an alias of a registered model points at; None when there is no such model or alias.

    ForetailError when the version is deleted, or the registry cannot be used.
    """
    if not store_exists(uri):
        return None
    with mlflow_at(uri) as mlflow:
        client = mlflow.MlflowClient(uri)
        try:
            version = client.get_registered_model(name).aliases.get(alias)
        except mlflow.exceptions.MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        if version is None:
            return None
        try:
            client.get_model_version(name, version)
        except mlflow.exceptions.MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            raise ForetailError(
                f"models:/{name}@{alias} points at version {version}, which is deleted: delete the alias in MLflow, "
                f"or point it at another version"
            ) from error
        return str(version)


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


def versions_of(runs: Sequence[str], uri: str) -> tuple[Version, ...]:
    """Return the versions of the models that runs saved, the newest first."""
    with mlflow_at(uri) as mlflow:
        client = mlflow.MlflowClient(uri)
        matching = [
            Version(one.name, str(one.version), tuple(sorted(client.get_model_version(one.name, one.version).aliases)))
            for run in runs
            for one in client.search_model_versions(f"run_id = '{run}'")
        ]
    return tuple(sorted(matching, key=lambda one: -int(one.version)))


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
        try:
            aliases = client.get_registered_model(name).aliases
        except mlflow.exceptions.MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return []
            raise
        newest_first = sorted({int(version) for version in aliases.values()}, reverse=True)
        versions = [client.get_model_version(name, str(version)) for version in newest_first]
    return [
        NamedVersion(
            str(one.version),
            tuple(sorted(alias for alias, version in aliases.items() if str(version) == str(one.version))),
            datetime.fromtimestamp(one.creation_timestamp / 1000, UTC).strftime("%Y-%m-%d %H:%M"),
            one.description or "",
            dict(one.tags),
        )
        for one in versions
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


def create_version(
    client: Any, name: str, run_id: str, model_id: str, description: str | None = None, tags: Mapping[str, str] = EMPTY
) -> str:
    """Make a logged model a new version of a registered one, which is created when missing; return the version."""
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)  # log_model could, but announces it on stderr
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":  # asking first would race with other jobs of a sweep
            raise
    address = f"models:/{model_id}"
    return str(
        settled(
            *(client.create_model_version, name, address, run_id),
            tags=dict(tags),
            description=description,
            await_creation_for=0,
            model_id=model_id,
        ).version
    )
