"""Tracking of training runs in MLflow: what was trained, on which data, with which scores.

Everything is logged explicitly; autologging costs seconds per run and pickles. Without a tracking server runs go to
an SQLite file. Models are saved with skops, never pickled, and what Foretail itself loads back is the ensemble's JSON.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure

from foretail.features.errors import ForetailError
from foretail.models.ensemble import Ensemble, FeatureInput
from foretail.models.metrics import Confusion, Score, rank
from foretail.models.model_files import load_model_file

__all__ = ["RegisteredModel", "TrackedRun", "load_ensemble", "run_exists", "track", "tracking_uri"]

DEFAULT_URI = "sqlite:///outputs/mlflow.db"
MODEL_ADDRESS = re.compile(
    r"models:/(?P<name>[^/@]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+))"
    r"|models:/(?P<model>m-\w+)"
    r"|runs:/(?P<run>\w+)(?:/(?P<path>.+))?"
)

_ENSEMBLE_FILE = "ensemble.json"
_MODEL_NAME = "model"
_PARAMS_PER_BATCH = 100
_PARAM_LENGTH = 6000
_DIGEST_LENGTH = 36  # what MLflow's database has room for; the full hash is in the dataset's source
# Types of a scikit-learn forest that skops does not know as harmless by itself.
_TRUSTED_TYPES = ["sklearn.tree._tree.Tree"]


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

    def log_dataset(self, name: str, content_sha256: str, location: str, rows: int, drops: int, context: str) -> None:
        """Record a dataset as an input of the run.

        Parameters
        ----------
        name : str
            Name to show.
        content_sha256 : str
            The manifest's content hash; MLflow's digest is its first 36 digits.
        location : str
            Folder or address of the dataset.
        rows, drops : int
            Labelled rows used in this context, and drops among them.
        context : str
            What it served for, such as ``training``, ``validation`` or ``test``.
        """
        from mlflow.entities import Dataset, DatasetInput, InputTag
        from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

        dataset = Dataset(
            name=name,
            digest=content_sha256[:_DIGEST_LENGTH],
            source_type="foretail",
            source=json.dumps({"uri": location, "sha256": content_sha256}),
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

    def log_ensemble(self, ensemble: Ensemble) -> None:
        """Log the ensemble as artifact ``ensemble.json`` and its hash as the tag ``ensemble_sha256``."""
        _mlflow().log_text(ensemble.to_json(), _ENSEMBLE_FILE)
        _mlflow().set_tag("ensemble_sha256", ensemble.sha256)

    def log_file(self, path: Path, folder: str | None = None) -> None:
        """Log a file as an artifact, in `folder` of the run if given."""
        _mlflow().log_artifact(str(path), folder)

    def log_nested(
        self, name: str, params: Mapping[str, Any], metrics: Mapping[str, float], tags: Mapping[str, str] | None = None
    ) -> None:
        """Log a finished run inside this one, such as a point of a sweep.

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
        client.set_terminated(run_id)

    def log_model(
        self,
        estimator: object,
        features: Sequence[FeatureInput],
        registered_model: str | None = None,
        alias: str = "champion",
    ) -> RegisteredModel | None:
        """Save a fitted scikit-learn estimator with skops and, with `registered_model`, register it under an alias.

        :func:`load_ensemble` finds the run's ensemble through the registered version; log it as well.

        Parameters
        ----------
        estimator : scikit-learn classifier
            ``RandomForest.forest_``.
        features : sequence of FeatureInput
            Its columns, for the model's signature.
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
        import sklearn
        import skops
        from mlflow.models import ModelSignature
        from mlflow.types import ColSpec, DataType, Schema

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # MLflow, on the type hints of its own chat types
            import mlflow.pyfunc
            import mlflow.sklearn
        signature = ModelSignature(
            inputs=Schema([ColSpec(DataType.integer, feature.name) for feature in features]),
            outputs=Schema([ColSpec(DataType.boolean)]),
        )
        info = mlflow.sklearn.log_model(
            estimator,
            name=_MODEL_NAME,
            signature=signature,
            serialization_format="skops",
            skops_trusted_types=_TRUSTED_TYPES,
            pip_requirements=[f"scikit-learn=={sklearn.__version__}", f"skops=={skops.__version__}"],
        )
        if registered_model is None:
            return None
        client = mlflow.MlflowClient(self.uri)
        try:
            _create_registered_model(client, registered_model)  # log_model could, but announces it on stderr
            version = str(
                client.create_model_version(
                    registered_model, info.model_uri, self.run_id, await_creation_for=0, model_id=info.model_id
                ).version
            )
            if alias.lower() != "latest":
                client.set_registered_model_alias(registered_model, alias, version)
        except mlflow.exceptions.MlflowException as error:
            raise ForetailError(
                f"MLflow refuses to register {registered_model!r} as {alias!r} ({_first_line(error)}): "
                f"choose another tracking.registered_model or tracking.alias"
            ) from error
        return RegisteredModel(registered_model, version, alias)


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
) -> Iterator[TrackedRun]:
    """Open a run, log the resolved config, and close it: FINISHED, FAILED on an exception, KILLED on Ctrl-C.

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

    Raises
    ------
    ForetailError
        When the tracking store cannot be used.
    """
    address = tracking_uri(uri)
    mlflow = _mlflow()
    with _address_set(mlflow, address):
        try:
            experiment_id = _experiment_id(mlflow, address, experiment)
            run = mlflow.start_run(experiment_id=experiment_id, run_name=run_name, tags=dict(tags or {}))
        except Exception as error:  # every store brings exception types of its own
            raise ForetailError(
                f"MLflow cannot use {address} ({_first_line(error)}): set MLFLOW_TRACKING_URI or tracking.uri to a "
                f"store that works, or choose tracking=off"
            ) from error
        status = "FAILED"
        try:
            mlflow.log_dict(dict(config), "config.json")
            params = [(name[:250], text[:_PARAM_LENGTH]) for name, text in _flat(config)]
            for start in range(0, len(params), _PARAMS_PER_BATCH):
                mlflow.log_params(dict(params[start : start + _PARAMS_PER_BATCH]))
            yield TrackedRun(run.info.run_id, experiment_id, address)
            status = "FINISHED"
        except KeyboardInterrupt:
            status = "KILLED"
            raise
        except Exception as error:
            mlflow.set_tag("error", f"{type(error).__name__}: {_first_line(error)}")
            raise
        finally:
            mlflow.end_run(status)


def load_ensemble(
    address: str,
    uri: str | None = None,
    features: Sequence[FeatureInput] | None = None,
    allow_pickle: bool = False,
) -> Ensemble:
    """Load a drop predictor from MLflow: an ensemble that Foretail logged, else a model of scikit-learn or XGBoost.

    Parameters
    ----------
    address : str
        ``models:/NAME@ALIAS``, ``models:/NAME/VERSION``, ``models:/MODEL_ID``, ``runs:/RUN_ID`` or
        ``runs:/RUN_ID/PATH``. A model that Foretail saved stands for the ensemble of its run.
    uri : str, optional
        See :func:`tracking_uri`.
    features : sequence of FeatureInput, optional
        See :func:`foretail.models.model_files.load_model_file`.
    allow_pickle : bool
        Whether to open a scikit-learn model that was saved as a pickle, which runs any code that it holds.

    Raises
    ------
    ForetailError
        On another form of address, when there is no such model, or when it cannot be read.
    """
    match = MODEL_ADDRESS.fullmatch(address)
    if match is None:
        raise ForetailError(
            f"{address!r} is no model address: write models:/NAME@ALIAS, models:/NAME/VERSION or runs:/RUN_ID/PATH"
        )
    store = tracking_uri(uri)
    mlflow = _mlflow()
    with tempfile.TemporaryDirectory() as folder, _address_set(mlflow, store):
        try:
            path = Path(mlflow.artifacts.download_artifacts(_artifact_address(mlflow, store, match), dst_path=folder))
        except Exception as error:  # every store brings exception types of its own
            raise ForetailError(
                f"{address} has no model in {store} ({_first_line(error)}): train and register the model first"
            ) from error
        if path.is_dir():
            path = _model_file(path, address)
        try:
            return load_model_file(path, features, allow_pickle)
        except ForetailError as error:
            raise ForetailError(str(error).replace(str(path), address)) from None


def _artifact_address(mlflow: ModuleType, store: str, match: re.Match[str]) -> str:
    """Return where the model of an address lies: the ensemble of its run if Foretail logged one there."""
    client = mlflow.MlflowClient(store)
    run: str | None = match["run"]
    own = run is None or match["path"] in (None, _MODEL_NAME)  # any other path means what it says
    if match["alias"]:
        run = client.get_model_version_by_alias(match["name"], match["alias"]).run_id
    elif match["version"]:
        run = client.get_model_version(match["name"], match["version"]).run_id
    elif match["model"]:
        run = client.get_logged_model(match["model"]).source_run_id
    if run and own and any(item.path == _ENSEMBLE_FILE for item in client.list_artifacts(run)):
        return f"runs:/{run}/{_ENSEMBLE_FILE}"
    return match.string if match["run"] is None or match["path"] else f"{match.string}/{_MODEL_NAME}"


def _model_file(folder: Path, address: str) -> Path:
    """Return the model's own file in a downloaded MLflow model."""
    from mlflow.models import Model

    try:
        flavors = Model.load(str(folder)).flavors
    except Exception as error:  # MLflow raises whatever parsing its YAML raises
        raise ForetailError(
            f"{address} is no MLflow model ({_first_line(error)}): give the address of a logged model or of one file"
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


def run_exists(run_id: str, uri: str) -> bool:
    """Return whether the tracking store at `uri` still has the run; also False when the store cannot be used."""
    mlflow = _mlflow()
    try:
        return str(mlflow.MlflowClient(uri).get_run(run_id).info.lifecycle_stage) == "active"
    except mlflow.exceptions.MlflowException:
        return False


def _mlflow() -> ModuleType:
    """Import MLflow, which takes a second and would otherwise report its use to its makers and talk on stderr."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    import mlflow

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return mlflow


@contextmanager
def _address_set(mlflow: ModuleType, address: str) -> Iterator[None]:
    """Point MLflow's process-wide state at `address`, and put it back."""
    before, variable = mlflow.get_tracking_uri(), os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.set_tracking_uri(address)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before)
        if variable is None:
            os.environ.pop("MLFLOW_TRACKING_URI", None)
        else:
            os.environ["MLFLOW_TRACKING_URI"] = variable


def _experiment_id(mlflow: ModuleType, address: str, name: str) -> str:
    if not address.startswith("sqlite:///"):
        return _found_or_created(mlflow.MlflowClient(address), name, None)
    file = Path(address.removeprefix("sqlite:///")).resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    # Jobs of one sweep start together, and two of them must not both create the tables or the experiment.
    with (file.parent / f".{file.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _found_or_created(mlflow.MlflowClient(address), name, (file.parent / "mlartifacts").as_uri())


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


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _confusion_figure(confusion: Confusion, title: str) -> Figure:
    figure = Figure(figsize=(4.2, 3.6), layout="constrained")
    axes = figure.subplots()
    counts = np.array([[confusion.tn, confusion.fp], [confusion.fn, confusion.tp]])
    axes.imshow(np.log1p(counts), cmap="Blues")  # drops are rare: a linear scale shows one dark corner
    dark = np.log1p(counts) > np.log1p(counts).max() / 2
    for row in range(2):
        for column in range(2):
            color = "white" if dark[row, column] else "black"
            axes.text(column, row, f"{counts[row, column]:,}", ha="center", va="center", color=color)
    axes.set_xticks([0, 1], ["accept", "drop"])
    axes.set_yticks([0, 1], ["transmits", "drops"])
    axes.set_xlabel("prediction")
    axes.set_ylabel("LQD")
    axes.set_title(title, fontsize="small")
    return figure


def _curve_figure(curve: pd.DataFrame, confusion: Confusion, title: str) -> Figure:
    figure = Figure(figsize=(4.2, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.step(curve["recall"], curve["precision"], where="post")
    if confusion.precision is not None and confusion.recall is not None:
        axes.plot([confusion.recall], [confusion.precision], "o", label="operating point")
        axes.legend()
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("recall")
    axes.set_ylabel("precision")
    axes.set_title(title, fontsize="small")
    return figure
