"""Where runs are tracked, and where the points of an experiment are measured."""

from __future__ import annotations

from dataclasses import dataclass

from foretail.configs.schema.fields import setting

GATED_ALIASES = ("champion", "challenger")


"""Aliases of a registered model that only the gate of ``foretail promote`` moves."""


@dataclass
class Tracking:
    """MLflow."""

    enabled: bool = setting(True, "log to MLflow")
    uri: str | None = setting(None, "tracking server; null: MLFLOW_TRACKING_URI, else an SQLite file beside the store")
    experiment: str = setting("foretail", "name of the MLflow experiment")
    registered_model: str | None = setting("foretail-drop", "name in the model registry; null = do not register")
    alias: str = setting(
        "candidate", "alias that moves to the newly registered version; champion and challenger move by promote only"
    )
    run_name: str | None = setting(None, "name of the run; null lets MLflow choose")
    sweep_id: str | None = setting(None, "runs of one sweep share this tag")
    parent_run_id: str | None = setting(None, "MLflow run of the study inside which this one is shown")


@dataclass
class Launcher:
    """Where the points of an experiment are measured."""

    name: str = setting("local", "on this machine, or on a Ray cluster of which it is a part", one_of=("local", "ray"))
    address: str = setting("127.0.0.1:6379", "ray: HOST:PORT of the cluster's head, as ray start names it")
