"""Tracking of training runs in MLflow: what was trained, on which data, with which scores.

Everything is logged explicitly; autologging costs seconds per run and pickles. Without a tracking server runs go to
an SQLite file. A model is saved as its ensemble's JSON, whatever framework trained it; nothing is pickled.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.colors import FuncNorm
from matplotlib.figure import Figure
from sklearn.metrics import ConfusionMatrixDisplay, PrecisionRecallDisplay

from foretail.features.errors import ForetailError
from foretail.features.staging import writing
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.scoring.metrics import Confusion, Score, rank

__all__ = [
    "ENSEMBLE_FILE",
    "ENSEMBLE_TAG",
    "MODEL_NAME",
    "NETWORK_TAG",
    "TEACHER_TAG",
    "RegisteredModel",
    "TrackedRun",
    "connected",
    "create_version",
    "first_line",
    "locked",
    "nest",
    "run_exists",
    "track",
    "tracking_uri",
]

DEFAULT_URI = "sqlite:///outputs/mlflow.db"

ENSEMBLE_FILE = "ensemble.json"
MODEL_NAME = "model"
ENSEMBLE_TAG, NETWORK_TAG, TEACHER_TAG = "ensemble_sha256", "network_sha256", "teacher_sha256"
"""Tags of a run: the model that it trained, and the network that this model imitates."""

_LOADER = "foretail.models.mlflow.ensemble_flavor"
_PARAMS_PER_BATCH = 100
_PARAM_LENGTH = 6000
_DIGEST_LENGTH = 36  # what MLflow's database has room for; the full hash is in the dataset's source
_REUSED_TAG = "reused_run_id"


@dataclass(frozen=True)
class RegisteredModel:
    """A version in the model registry: `name`, `version`, and the alias that now points at it."""

    name: str
    version: str
    alias: str


class TrackedRun:
    """A run in progress, made by :func:`track`.

    Attributes
    ----------
    run_id, experiment_id, uri : str
        Where MLflow keeps the run.
    """

    def __init__(self, run_id: str, experiment_id: str, uri: str) -> None:
        self.run_id = run_id
        self.experiment_id = experiment_id
        self.uri = uri

    def log_dataset(
        self,
        name: str,
        content_sha256: str,
        traffic_sha256: str,
        location: str,
        rows: int,
        drops: int,
        context: str,
    ) -> None:
        """Record a dataset as an input of the run.

        Parameters
        ----------
        name : str
            Name to show. MLflow keeps one dataset per name and hash, so the context becomes part of it: else a run
            that is cut in time would keep one of its three sides.
        content_sha256 : str
            The manifest's content hash; MLflow's digest is its first 36 digits.
        traffic_sha256 : str
            Identity of the offered traffic, ``foretail.features.dataset.manifest.traffic_sha256``.
        location : str
            Folder or address of the dataset.
        rows, drops : int
            Labelled rows used in this context, and drops among them.
        context : str
            What it served for: ``train``, ``validation``, ``test`` or ``held-out``.
        """
        from mlflow.entities import Dataset, DatasetInput, InputTag
        from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

        dataset = Dataset(
            name=f"{name} {context}",
            digest=content_sha256[:_DIGEST_LENGTH],
            source_type="foretail",
            source=json.dumps({"uri": location, "sha256": content_sha256, "traffic_sha256": traffic_sha256}),
            profile=json.dumps({"rows": rows, "drops": drops}),
        )
        tag = InputTag(MLFLOW_DATASET_CONTEXT, context)
        _mlflow().MlflowClient(self.uri).log_inputs(self.run_id, [DatasetInput(dataset, [tag])])

    def log_scores(self, split: str, scores: Mapping[str, Mapping[str, Score]]) -> None:
        """Log scores of a split, region -> name -> value, as metrics ``split/region/name``; None only in the JSON."""
        mlflow = _mlflow()
        flat = {f"{split}/{region}/{name}": v for region, named in scores.items() for name, v in named.items()}
        mlflow.log_metrics({name: float(value) for name, value in flat.items() if value is not None})
        mlflow.log_text(json.dumps(scores, indent=2, allow_nan=False) + "\n", f"scores/{split}.json")

    def log_figures(
        self,
        split: str,
        region: str,
        lqd_drop: npt.ArrayLike,
        predicted_drop: npt.ArrayLike,
        score: npt.ArrayLike,
    ) -> None:
        """Log the confusion matrix and the precision-recall curve as figures, with the numbers behind them.

        Parameters
        ----------
        split, region : str
            Which rows these are; they name the files ``figures/<split>_<region>_*``.
        lqd_drop, predicted_drop : bool array [rows]
            LQD's decision and the prediction.
        score : int64 or float64 array [rows]
            What the predictions were cut from.
        """
        confusion = Confusion.count(lqd_drop, predicted_drop)
        ranking = rank(lqd_drop, score)
        curve = pd.DataFrame({"score": ranking.score, "true_positives": ranking.tp, "false_positives": ranking.fp})
        drops = confusion.tp + confusion.fn
        curve["precision"] = curve.true_positives / (curve.true_positives + curve.false_positives)
        curve["recall"] = curve.true_positives / drops if drops else np.nan
        title = f"{split}, {region}: {confusion.rows:,} rows, {drops:,} drops"
        with tempfile.TemporaryDirectory() as folder:
            stem = Path(folder) / f"{split}_{region}"
            counts = {"tp": confusion.tp, "fp": confusion.fp, "tn": confusion.tn, "fn": confusion.fn}
            Path(f"{stem}_confusion.json").write_text(json.dumps(counts) + "\n", encoding="ascii")
            curve.to_parquet(f"{stem}_precision_recall.parquet", index=False)
            _confusion_figure(confusion, title).savefig(f"{stem}_confusion.png", dpi=120)
            _curve_figure(curve, confusion, title).savefig(f"{stem}_precision_recall.png", dpi=120)
            _mlflow().log_artifacts(folder, "figures")

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags of the run."""
        _mlflow().set_tags(dict(tags))

    def log_metrics(self, metrics: Mapping[str, float]) -> None:
        """Log finite numbers by name."""
        _mlflow().log_metrics(dict(metrics))

    def log_document(self, document: Mapping[str, Any], name: str) -> None:
        """Log a JSON-like document as an artifact."""
        _mlflow().log_text(json.dumps(document, indent=1, allow_nan=False) + "\n", name)

    def log_file(self, path: Path, folder: str | None = None) -> None:
        """Log a file as an artifact, in `folder` of the run if given."""
        _mlflow().log_artifact(str(path), folder)

    def log_nested(
        self,
        name: str,
        params: Mapping[str, Any],
        metrics: Mapping[str, float],
        tags: Mapping[str, str] | None = None,
        failed: bool = False,
    ) -> TrackedRun:
        """Log a finished run inside this one, such as a point of a sweep, and return it.

        Parameters
        ----------
        name : str
            Name of the inner run.
        params : mapping of str to JSON value
            Its parameters.
        metrics : mapping of str to finite float
            Its results.
        tags : mapping, optional
            Its tags.
        failed : bool
            Its status is FAILED, not FINISHED.
        """
        import mlflow.entities
        from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

        client = _mlflow().MlflowClient(self.uri)
        run_id = client.create_run(
            self.experiment_id, run_name=name, tags={MLFLOW_PARENT_RUN_ID: self.run_id, **(tags or {})}
        ).info.run_id
        now = int(1000 * time.time())
        client.log_batch(
            run_id,
            metrics=[mlflow.entities.Metric(key, value, now, 0) for key, value in metrics.items()],
            params=[mlflow.entities.Param(key, text) for key, text in _flat(params)],
        )
        client.set_terminated(run_id, "FAILED" if failed else "FINISHED")
        return TrackedRun(run_id, self.experiment_id, self.uri)

    def inside(self, tag: str) -> frozenset[str]:
        """Return the values of a tag of the runs inside this one; those that were never finished are deleted."""
        from mlflow.entities import RunStatus
        from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

        client = _mlflow().MlflowClient(self.uri)
        found, page = set(), None
        while page != "":
            runs = client.search_runs(
                [self.experiment_id], f"tags.`{MLFLOW_PARENT_RUN_ID}` = '{self.run_id}'", page_token=page
            )
            for run in runs:
                if tag in run.data.tags and run.info.status == RunStatus.to_string(RunStatus.RUNNING):
                    client.delete_run(run.info.run_id)
                elif tag in run.data.tags:
                    found.add(run.data.tags[tag])
            page = runs.token or ""
        return frozenset(found)

    def log_model(
        self, ensemble: Ensemble, registered_model: str | None = None, alias: str = "candidate"
    ) -> RegisteredModel | None:
        """Save the model that the run trained and, with `registered_model`, register it under an alias.

        It is ``ensemble.json``, once as an artifact of the run, with the tag ``ensemble_sha256``, and once inside an
        MLflow model that ``mlflow.pyfunc`` loads where Foretail is installed.

        Parameters
        ----------
        ensemble : Ensemble
            Of any :class:`foretail.models.drop.predictor.TreePredictor`.
        registered_model : str, optional
            Name in the registry; None saves the model with the run only.
        alias : str
            Moves to the new version; ``latest`` is MLflow's own and always names the newest.

        Raises
        ------
        ForetailError
            When the registry refuses the name or the alias.
        """
        import mlflow
        from mlflow.models import ModelSignature
        from mlflow.types import ColSpec, DataType, Schema

        mlflow.log_text(ensemble.to_json(), ENSEMBLE_FILE)
        mlflow.set_tag(ENSEMBLE_TAG, ensemble.sha256)
        signature = ModelSignature(
            inputs=Schema([ColSpec(DataType.long, feature.name) for feature in ensemble.features]),
            outputs=Schema([ColSpec(DataType.boolean)]),
        )
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            # MLflow, on the type hints of its own chat types, and on examples, without which a signature will do.
            warnings.simplefilter("ignore", UserWarning)
            import mlflow.pyfunc

            ensemble.save(Path(folder) / ENSEMBLE_FILE)
            info = mlflow.pyfunc.log_model(
                name=MODEL_NAME,
                loader_module=_LOADER,
                data_path=str(Path(folder) / ENSEMBLE_FILE),
                signature=signature,
                pip_requirements=[f"foretail=={metadata.version('foretail')}"],
            )
        if registered_model is None:
            return None
        client = mlflow.MlflowClient(self.uri)
        try:
            version = create_version(client, registered_model, self.run_id, info.model_id)
            if alias.lower() != "latest":
                client.set_registered_model_alias(registered_model, alias, version)
        except mlflow.exceptions.MlflowException as error:
            raise ForetailError(
                f"MLflow refuses to register {registered_model!r} as {alias!r} ({first_line(error)}): "
                f"choose another tracking.registered_model or tracking.alias"
            ) from error
        return RegisteredModel(registered_model, version, alias)


def create_version(client: Any, name: str, run_id: str, model_id: str) -> str:
    """Make a logged model a new version of a registered one, which is created when missing; return the version."""
    _create_registered_model(client, name)  # log_model could, but announces it on stderr
    address = f"models:/{model_id}"
    return str(client.create_model_version(name, address, run_id, await_creation_for=0, model_id=model_id).version)


def tracking_uri(uri: str | None = None) -> str:
    """Return `uri`, else ``MLFLOW_TRACKING_URI``, else the SQLite file ``outputs/mlflow.db`` of the current folder."""
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI


@contextmanager
def track(
    experiment: str,
    config: Mapping[str, Any],
    *,
    uri: str | None = None,
    run_name: str | None = None,
    tags: Mapping[str, str] | None = None,
    parent_run_id: str | None = None,
    run_id: str | None = None,
) -> Iterator[TrackedRun]:
    """Open a run, log the resolved config, and close it: FINISHED, FAILED on an exception, KILLED on Ctrl-C.

    A study opens one, and every run that it makes meanwhile names it as parent.

    Parameters
    ----------
    experiment : str
        Created when missing; beside an SQLite file its artifacts go to ``mlartifacts/``.
    config : mapping
        Resolved settings, JSON values in nested mappings; logged as ``config.json`` and, flattened with dots, as
        params.
    uri : str, optional
        See :func:`tracking_uri`.
    run_name : str, optional
        MLflow invents one without it.
    tags : mapping, optional
        Tags of the run, such as ``sweep_id``.
    parent_run_id : str, optional
        The run inside which this one is shown; in the same store, whatever its experiment.
    run_id : str, optional
        A run to go on with, whose params stay as they are.

    Raises
    ------
    ForetailError
        When the tracking store cannot be used, or has no such parent.
    """
    address = tracking_uri(uri)
    with connected(address) as mlflow:
        try:
            experiment_id = _experiment_id(mlflow, address, experiment)
            if parent_run_id is not None:
                _require_run(mlflow.MlflowClient(address), parent_run_id, address)
            run = mlflow.start_run(
                run_id=run_id,
                experiment_id=experiment_id,
                run_name=run_name,
                nested=parent_run_id is not None,
                parent_run_id=parent_run_id,
                tags=dict(tags or {}),
            )
        except ForetailError:
            raise
        except Exception as error:  # every store brings exception types of its own
            raise ForetailError(
                f"MLflow cannot use {address} ({first_line(error)}): set MLFLOW_TRACKING_URI or tracking.uri to a "
                f"store that works, or choose tracking=off"
            ) from error
        status = "FAILED"
        try:
            mlflow.log_dict(dict(config), "config.json")
            params = [(name[:250], text[:_PARAM_LENGTH]) for name, text in _flat({} if run_id else config)]
            for start in range(0, len(params), _PARAMS_PER_BATCH):
                mlflow.log_params(dict(params[start : start + _PARAMS_PER_BATCH]))
            yield TrackedRun(run.info.run_id, experiment_id, address)
            status = "FINISHED"
        except KeyboardInterrupt:
            status = "KILLED"
            raise
        except Exception as error:
            mlflow.set_tag("error", f"{type(error).__name__}: {first_line(error)}")
            raise
        finally:
            mlflow.end_run(status)


def run_exists(run_id: str, uri: str) -> bool:
    """Return whether the tracking store at `uri` still has the run; also False when the store cannot be used."""
    mlflow = _mlflow()
    try:
        return str(mlflow.MlflowClient(uri).get_run(run_id).info.lifecycle_stage) == "active"
    except mlflow.exceptions.MlflowException:
        return False


def nest(run_id: str, parent_run_id: str, uri: str) -> None:
    """Show a finished run inside another one as well, as a study does with a model that it found in the store.

    MLflow gives a run one parent, so this is a copy of name, params, metrics and inputs with the tag `reused_run_id`.
    A run that is there already, or was made there, is not shown twice.

    Parameters
    ----------
    run_id, parent_run_id : str
        Runs of the tracking store at `uri`.

    Raises
    ------
    ForetailError
        When the store has no such parent.
    """
    from mlflow.entities import Metric, Param
    from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

    client = _mlflow().MlflowClient(uri)
    parent = _require_run(client, parent_run_id, uri)
    run = client.get_run(run_id)
    if run.data.tags.get(MLFLOW_PARENT_RUN_ID) == parent_run_id:
        return
    inside = f"tags.`{MLFLOW_PARENT_RUN_ID}` = '{parent_run_id}' AND tags.`{_REUSED_TAG}` = '{run_id}'"
    if client.search_runs([parent.info.experiment_id], inside, max_results=1):
        return
    tags = {MLFLOW_PARENT_RUN_ID: parent_run_id, _REUSED_TAG: run_id}
    copy = client.create_run(parent.info.experiment_id, run_name=run.info.run_name, tags=tags).info.run_id
    now = int(1000 * time.time())
    client.log_batch(copy, metrics=[Metric(name, value, now, 0) for name, value in run.data.metrics.items()])
    params = [Param(name, text) for name, text in run.data.params.items()]
    for start in range(0, len(params), _PARAMS_PER_BATCH):
        client.log_batch(copy, params=params[start : start + _PARAMS_PER_BATCH])
    if run.inputs.dataset_inputs:
        client.log_inputs(copy, run.inputs.dataset_inputs)
    client.set_terminated(copy)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, else its type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def locked(address: str) -> Iterator[None]:
    """Hold the lock of an SQLite store, whose folder is made when missing; a server has none that we could hold."""
    if not address.startswith("sqlite:///"):
        yield
        return
    file = Path(address.removeprefix("sqlite:///")).resolve()
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = (file.parent / f".{file.name}.lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _mlflow() -> ModuleType:
    """Import MLflow, which takes a second and would otherwise report its use to its makers and talk on stderr."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    import mlflow

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return mlflow


@contextmanager
def connected(address: str) -> Iterator[ModuleType]:
    """Yield MLflow, its process-wide state pointed at `address`, and put that back."""
    mlflow = _mlflow()
    before, variable = mlflow.get_tracking_uri(), os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.set_tracking_uri(address)
    try:
        yield mlflow
    finally:
        mlflow.set_tracking_uri(before)
        if variable is None:
            os.environ.pop("MLFLOW_TRACKING_URI", None)
        else:
            os.environ["MLFLOW_TRACKING_URI"] = variable


def _experiment_id(mlflow: ModuleType, address: str, name: str) -> str:
    artifacts = None
    if address.startswith("sqlite:///"):
        artifacts = (Path(address.removeprefix("sqlite:///")).resolve().parent / "mlartifacts").as_uri()
    with locked(address):  # jobs of one sweep start together, and two of them must not both create the tables
        return _found_or_created(mlflow.MlflowClient(address), name, artifacts)


def _require_run(client: Any, run_id: str, address: str) -> Any:
    from mlflow.exceptions import MlflowException

    try:
        return client.get_run(run_id)
    except MlflowException as error:
        raise ForetailError(
            f"{address} has no parent run {run_id} ({first_line(error)}): set tracking.parent_run_id to a run there"
        ) from error


def _found_or_created(client: Any, name: str, artifacts: str | None) -> str:
    found = client.get_experiment_by_name(name)
    return str(found.experiment_id if found else client.create_experiment(name, artifacts))


def _create_registered_model(client: Any, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":  # asking first would race with other jobs of a sweep
            raise


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value)


def _confusion_figure(confusion: Confusion, title: str) -> Figure:
    figure = Figure(figsize=(4.2, 3.6), layout="constrained")
    axes = figure.subplots()
    counts = np.array([[confusion.tn, confusion.fp], [confusion.fn, confusion.tp]])
    scale = FuncNorm((np.log1p, np.expm1))  # drops are rare: a linear scale shows one dark corner
    shown = ConfusionMatrixDisplay(counts).plot(
        ax=axes, cmap="Blues", values_format=",", colorbar=False, im_kw={"norm": scale}
    )
    for text, count in zip(shown.text_.flat, counts.flat, strict=True):  # it chooses for a linear scale
        text.set_color("white" if np.log1p(count) > np.log1p(counts.max()) / 2 else "black")
    axes.set(xlabel="prediction", xticklabels=["accept", "drop"], ylabel="LQD", yticklabels=["transmits", "drops"])
    axes.set_title(title, fontsize="small")
    return figure


def _curve_figure(curve: pd.DataFrame, confusion: Confusion, title: str) -> Figure:
    figure = Figure(figsize=(4.2, 3.6), layout="constrained")
    axes = figure.subplots()
    PrecisionRecallDisplay(curve["precision"].to_numpy(), curve["recall"].to_numpy()).plot(ax=axes)
    if confusion.precision is not None and confusion.recall is not None:
        axes.plot([confusion.recall], [confusion.precision], "o", label="operating point")
        axes.legend()
    axes.set(xlabel="recall", xlim=(0, 1), ylabel="precision", ylim=(0, 1.02), aspect="auto")
    axes.set_title(title, fontsize="small")
    return figure
