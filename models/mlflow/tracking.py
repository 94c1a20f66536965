"""Tracking of training runs in MLflow: what was trained, on which data, with which scores.

Everything is logged explicitly; autologging costs seconds per run and pickles. A model is saved as its ensemble's
JSON, whatever framework trained it; nothing is pickled.
"""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from foretail.core.digest import write_digest
from foretail.core.errors import ForetailError, without_passwords
from foretail.core.json_text import flat
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.mlflow.store import (
    answered,
    connected,
    create_store,
    first_line,
    imported,
    locked,
    require_own_artifacts,
    settled,
    sqlite_file,
    store_exists,
    unusable,
    usable,
)
from foretail.models.scoring.figure_style import panels, styled
from foretail.models.scoring.metrics import Confusion, Score, rank

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from foretail.models.drop.network import Network


ENSEMBLE_FILE, NETWORK_FILE = "ensemble.json", "model.onnx"
OUTCOME_FILE = "outcome.json"
MODEL_NAME = "model"
MODEL_SHA256 = "foretail_sha256"
"""Key of the model's hash in the metadata of MLflow's copy."""
EMPTY: Mapping[str, str] = MappingProxyType({})

_LOADER = "foretail.models.mlflow.ensemble_flavor"


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


def save_model(model: Ensemble | Network, file: Path) -> str:
    """Save a model, which `file` holds, with the active run as an MLflow model, and return its id."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

    signature = ModelSignature(
        inputs=Schema([ColSpec(DataType.long, feature.name) for feature in model.features]),
        outputs=Schema([ColSpec(DataType.boolean)]),
    )
    with warnings.catch_warnings():
        # MLflow, on the type hints of its own chat types, and on examples, without which a signature will do.
        warnings.simplefilter("ignore", UserWarning)
        import mlflow.pyfunc

        return str(
            mlflow.pyfunc.log_model(
                name=MODEL_NAME,
                loader_module=_LOADER,
                data_path=str(file),
                signature=signature,
                metadata={MODEL_SHA256: model.sha256},
                pip_requirements=[f"foretail=={metadata.version('foretail')}"],
            ).model_id
        )


def point_alias(client: Any, name: str, alias: str, version: str) -> RegisteredModel:
    """Point an alias at a version: the one place where aliases move. ``latest`` is MLflow's own, the newest version."""
    if alias.lower() == "latest":
        return RegisteredModel(name, version, alias)
    before = client.get_registered_model(name).aliases.get(alias)
    if before is None or str(before) != version:
        settled(client.set_registered_model_alias, name, alias, version)
    return RegisteredModel(name, version, alias, None if before is None else str(before))


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


@styled
def write_figures(
    folder: Path,
    split: str,
    region: str,
    lqd_drop: npt.ArrayLike,
    predicted_drop: npt.ArrayLike,
    score: npt.ArrayLike,
) -> None:
    """Write both figures and their numbers into a folder.

    Parameters
    ----------
    split, region : which rows these are; they name the files ``<split>_<region>_*``
    lqd_drop, predicted_drop : bool array [rows], LQD's decision and the prediction
    score : int64 or float64 array [rows], what the predictions were cut from
    """
    import pandas as pd

    confusion = Confusion.count(lqd_drop, predicted_drop)
    ranking = rank(lqd_drop, score)
    curve = pd.DataFrame({"score": ranking.score, "true_positives": ranking.tp, "false_positives": ranking.fp})
    drops = confusion.tp + confusion.fn
    curve["precision"] = curve.true_positives / (curve.true_positives + curve.false_positives)
    curve["recall"] = curve.true_positives / drops if drops else np.nan
    title = f"{split}, {region}: {confusion.rows:,} rows, {drops:,} drops"
    stem = folder / f"{split}_{region}"
    counts = {"tp": confusion.tp, "fp": confusion.fp, "tn": confusion.tn, "fn": confusion.fn}
    Path(f"{stem}_confusion.json").write_text(json.dumps(counts) + "\n", encoding="ascii")
    curve.to_parquet(f"{stem}_precision_recall.parquet", index=False)
    _confusion_figure(confusion, title).savefig(f"{stem}_confusion.png", dpi=120)
    _curve_figure(curve, confusion, title).savefig(f"{stem}_precision_recall.png", dpi=120)


def _confusion_figure(confusion: Confusion, title: str) -> Figure:
    from matplotlib.colors import FuncNorm
    from sklearn.metrics import ConfusionMatrixDisplay

    figure = _figure(title)
    (axes,) = figure.axes
    counts = np.array([[confusion.tn, confusion.fp], [confusion.fn, confusion.tp]])
    scale = FuncNorm((np.log1p, np.expm1), vmin=0)  # drops are rare: a linear scale shows one dark corner
    shown = ConfusionMatrixDisplay(counts).plot(
        ax=axes, cmap="Blues", values_format=",", colorbar=False, im_kw={"norm": scale}
    )
    for text, count in zip(shown.text_.flat, counts.flat, strict=True):  # it chooses for a linear scale
        text.set_color("white" if np.log1p(count) > np.log1p(counts.max()) / 2 else "black")
    axes.set(xlabel="prediction", xticklabels=["accept", "drop"], ylabel="LQD", yticklabels=["transmits", "drops"])
    return figure


def _curve_figure(curve: pd.DataFrame, confusion: Confusion, title: str) -> Figure:
    from sklearn.metrics import PrecisionRecallDisplay

    figure = _figure(title)
    (axes,) = figure.axes
    PrecisionRecallDisplay(curve["precision"].to_numpy(), curve["recall"].to_numpy()).plot(ax=axes)
    if confusion.precision is not None and confusion.recall is not None:
        axes.plot([confusion.recall], [confusion.precision], "o", label="operating point")
        axes.legend()
    axes.set(xlabel="recall", xlim=(0, 1), ylabel="precision", ylim=(0, 1.02), aspect="auto")
    return figure


def _figure(title: str) -> Figure:
    figure, (axes,) = panels(1, inches=(4.2, 3.6), grid="")
    axes.set_title(title, fontsize="small")
    return figure


ENSEMBLE_TAG, NETWORK_TAG = "ensemble_sha256", "network_sha256"
"""Tags of a run: the model that it trained."""

_PARAMS_PER_BATCH = 100
_PARAM_LENGTH = 6000
_DIGEST_LENGTH = 36  # what MLflow's database has room for; the full hash is in the dataset's source
_REUSED_TAG = "reused_run_id"


class TrackedRun:
    """A run in progress, made by :func:`track`.

    Attributes
    ----------
    run_id, experiment_id, uri : where MLflow keeps the run
    model_id : MLflow's id of the model that the run saved, if it has; scores logged later belong to it too
    """

    def __init__(self, run_id: str, experiment_id: str, uri: str) -> None:
        self.run_id = run_id
        self.experiment_id = experiment_id
        self.uri = uri
        self.model_id: str | None = None

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
        content_sha256 : the manifest's content hash; MLflow's digest is its first 36 digits
        traffic_sha256 : identity of the offered traffic, ``foretail.features.dataset.schema.traffic_sha256``
        location : folder or address of the dataset
        rows, drops : labelled rows used in this context, and drops among them
        context : what it served for: ``train``, ``validation``, ``test`` or ``held-out``
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
        settled(imported().MlflowClient(self.uri).log_inputs, self.run_id, [DatasetInput(dataset, [tag])])

    def log_scores(self, split: str, scores: Mapping[str, Mapping[str, Score]]) -> None:
        """Log scores of a split, region -> name -> value, as metrics ``split/region/name``; None only in the JSON."""
        mlflow = imported()
        flat = {f"{split}/{region}/{name}": v for region, named in scores.items() for name, v in named.items()}
        metrics = {name: float(value) for name, value in flat.items() if value is not None}
        mlflow.log_metrics(metrics, model_id=self.model_id)
        mlflow.log_text(json.dumps(scores, indent=2, allow_nan=False) + "\n", f"scores/{split}.json")

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags of the run."""
        imported().set_tags(dict(tags))

    def log_metrics(self, metrics: Mapping[str, float]) -> None:
        """Log finite numbers by name."""
        imported().log_metrics(dict(metrics))

    def log_document(self, document: Mapping[str, Any], name: str) -> None:
        """Log a JSON-like document as an artifact."""
        imported().log_text(without_passwords(json.dumps(document, indent=1, allow_nan=False)) + "\n", name)

    def log_file(self, path: Path, folder: str | None = None) -> None:
        """Log a file as an artifact, in `folder` of the run if given."""
        imported().log_artifact(str(path), folder)

    def log_nested(
        self,
        name: str,
        params: Mapping[str, Any],
        metrics: Mapping[str, float],
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Log a finished run inside this one, such as a point of a sweep.

        Parameters
        ----------
        name : name of the inner run
        params : its parameters, JSON values
        metrics : its results, finite
        tags : its tags
        """
        client = imported().MlflowClient(self.uri)
        run_id = _create_inside(client, self.experiment_id, self.run_id, name, tags or {}, metrics, _flat(params))
        client.set_terminated(run_id)

    def log_figures(
        self, split: str, region: str, lqd_drop: npt.ArrayLike, predicted_drop: npt.ArrayLike, score: npt.ArrayLike
    ) -> None:
        """Log what :func:`write_figures` writes, in ``figures/``."""
        with tempfile.TemporaryDirectory() as folder:
            write_figures(Path(folder), split, region, lqd_drop, predicted_drop, score)
            imported().log_artifacts(folder, "figures")

    def log_model(self, model: Ensemble | Network) -> None:
        """Save the model that the run trained.

        It is ``ensemble.json`` or ``model.onnx``, once as an artifact of the run, with the tag ``ensemble_sha256`` or
        ``network_sha256``, and once inside an MLflow model that ``mlflow.pyfunc`` loads where Foretail is installed.
        :func:`foretail.models.mlflow.registry.register_model` gives it a version.
        """
        name, tag = (ENSEMBLE_FILE, ENSEMBLE_TAG) if isinstance(model, Ensemble) else (NETWORK_FILE, NETWORK_TAG)
        mlflow = imported()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / name
            model.save(file)
            mlflow.log_artifact(str(file))
            mlflow.set_tag(tag, model.sha256)
            self.model_id = save_model(model, file)

    def uses_model(self, run_ids: Sequence[str]) -> None:
        """Record the newest model that one of the runs saved as an input of this run, which MLflow shows on both."""
        from mlflow.entities import LoggedModelInput

        client = imported().MlflowClient(self.uri)
        for run_id in run_ids:
            outputs = client.get_run(run_id).outputs
            if outputs is not None and outputs.model_outputs:
                model_id = outputs.model_outputs[0].model_id
                settled(client.log_inputs, self.run_id, models=[LoggedModelInput(model_id)])
                self.model_id = model_id
                return


@contextmanager
def track(
    experiment: str,
    config: Mapping[str, Any],
    *,
    uri: str,
    params: Mapping[str, Any] | None = None,
    run_name: str | None = None,
    tags: Mapping[str, str] | None = None,
    parent_run_id: str | None = None,
) -> Iterator[TrackedRun]:
    """Open a run, log the resolved config, and close it: FINISHED, FAILED on an exception, KILLED on Ctrl-C.

    A study opens one, and every run that it makes meanwhile names it as parent. ForetailError when the tracking store
    cannot be used, or has no such parent.

    Parameters
    ----------
    experiment : created when missing; beside an SQLite file its artifacts go to ``mlartifacts/``
    config : resolved settings, JSON values in nested mappings; logged as ``config.json``
    uri : the tracking store
    params : settings to show as params, flattened with dots; all of `config` without it
    run_name : MLflow invents one without it
    tags : tags of the run, such as ``sweep_id``
    parent_run_id : the run inside which this one is shown; in the same store, whatever its experiment
    """
    create_store(uri)
    with connected(uri) as mlflow:
        with usable(uri, ", or choose tracking=off"):
            experiment_id = _experiment_id(mlflow, uri, experiment)
            if parent_run_id is not None:
                _require_run(mlflow.MlflowClient(uri), parent_run_id, uri)
            run = mlflow.start_run(
                experiment_id=experiment_id,
                run_name=None if run_name is None else without_passwords(run_name),
                nested=parent_run_id is not None,
                parent_run_id=parent_run_id,
                tags=dict(tags or {}),
            )
        status = "FAILED"
        try:
            mlflow.log_text(without_passwords(json.dumps(config, indent=2)), "config.json")
            shown = config if params is None else params
            texts = [(name[:250], text[:_PARAM_LENGTH]) for name, text in _flat(shown)]
            for start in range(0, len(texts), _PARAMS_PER_BATCH):
                mlflow.log_params(dict(texts[start : start + _PARAMS_PER_BATCH]))
            tracked = TrackedRun(run.info.run_id, experiment_id, uri)
            yield tracked
            _write_digests(tracked)
            status = "FINISHED"
        except KeyboardInterrupt:
            status = "KILLED"
            raise
        except mlflow.exceptions.MlflowException as error:  # a server that has gone, a full disk
            raise unusable(uri, error, ", or choose tracking=off") from error
        except Exception as error:
            with usable(uri, ", or choose tracking=off"):
                mlflow.set_tag("error", without_passwords(f"{type(error).__name__}: {first_line(error)}"))
            raise
        finally:
            # An interrupt in the middle of a write leaves the store locked by this very process.
            with (
                suppress(ForetailError) if status == "KILLED" else nullcontext(),
                usable(uri, ", or choose tracking=off"),
            ):
                mlflow.end_run(status)


def _write_digests(run: TrackedRun) -> None:
    """Write the digest of the artifacts of the active run, and of the model that it logged, where they are files."""
    mlflow = imported()
    places = [mlflow.get_artifact_uri()]
    if run.model_id is not None:
        places.append(mlflow.get_logged_model(run.model_id).artifact_location)
    for place in map(urlsplit, places):
        folder = Path(unquote(place.path))
        if place.scheme in ("", "file") and folder.is_dir():
            write_digest(folder)


def run_exists(run_id: str, uri: str) -> bool:
    """Return whether the tracking store at `uri` still has the run; also False when the store cannot be used."""
    if (rows := answered(uri, "SELECT lifecycle_stage FROM runs WHERE run_uuid = ?", run_id)) is not None:
        return rows == [("active",)]
    if not store_exists(uri):
        return False
    mlflow = imported()
    try:
        return str(mlflow.MlflowClient(uri).get_run(run_id).info.lifecycle_stage) == "active"
    except mlflow.exceptions.MlflowException:
        return False


def tagged_run(tag: str, value: str, uri: str) -> str | None:
    """Return the newest finished run of all experiments with a tag; None when there is none."""
    with connected(uri) as mlflow, usable(uri):
        runs = mlflow.search_runs(
            search_all_experiments=True,
            filter_string=f"tags.{tag} = '{value}' AND attributes.status = 'FINISHED'",
            order_by=["attributes.start_time DESC"],
            max_results=1,
            output_format="list",
        )
    return str(runs[0].info.run_id) if runs else None


def nest(run_id: str, parent_run_id: str, uri: str) -> None:
    """Show a finished run inside another one as well, as a study does with a model that it found in the store.

    MLflow gives a run one parent, so this is a copy of name, params, metrics and inputs with the tag `reused_run_id`.
    A run that is there already, or was made there, is not shown twice. `run_id`, `parent_run_id`: runs of the tracking
    store at `uri`. ForetailError when the store has no such parent.
    """
    from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

    client = imported().MlflowClient(uri)
    parent = _require_run(client, parent_run_id, uri)
    run = client.get_run(run_id)
    if run.data.tags.get(MLFLOW_PARENT_RUN_ID) == parent_run_id:
        return
    inside = f"tags.`{MLFLOW_PARENT_RUN_ID}` = '{parent_run_id}' AND tags.`{_REUSED_TAG}` = '{run_id}'"
    if client.search_runs([parent.info.experiment_id], inside, max_results=1):
        return
    experiment, data = parent.info.experiment_id, run.data
    tags, params = {_REUSED_TAG: run_id}, data.params.items()
    copy = _create_inside(client, experiment, parent_run_id, run.info.run_name, tags, data.metrics, params)
    if run.inputs.dataset_inputs:
        settled(client.log_inputs, copy, run.inputs.dataset_inputs)
    client.set_terminated(copy)


def _create_inside(
    client: Any,
    experiment_id: str,
    parent_run_id: str,
    name: str,
    tags: Mapping[str, str],
    metrics: Mapping[str, float],
    params: Iterable[tuple[str, str]],
) -> str:
    """Create a run that is shown inside another one, not yet finished, and return its id."""
    from mlflow.entities import Metric, Param
    from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

    tags = {MLFLOW_PARENT_RUN_ID: parent_run_id, **tags}
    run_id = str(client.create_run(experiment_id, run_name=name, tags=tags).info.run_id)
    now = int(1000 * time.time())
    client.log_batch(run_id, metrics=[Metric(key, value, now, 0) for key, value in metrics.items()])
    every = [Param(key, text) for key, text in params]
    for start in range(0, len(every), _PARAMS_PER_BATCH):
        client.log_batch(run_id, params=every[start : start + _PARAMS_PER_BATCH])
    return run_id


def _experiment_id(mlflow: ModuleType, address: str, name: str) -> str:
    file = sqlite_file(address)
    artifacts = None if file is None else (file.parent / "mlartifacts").as_uri()
    with locked(address):  # jobs of one sweep start together, and two of them must not both create the experiment
        number = _found_or_created(mlflow.MlflowClient(address), name, artifacts)
    require_own_artifacts(address, name)
    return number


def _require_run(client: Any, run_id: str, address: str) -> Any:
    from mlflow.exceptions import MlflowException

    try:
        return client.get_run(run_id)
    except MlflowException as error:
        raise ForetailError(
            f"{address} has no parent run {run_id} ({first_line(error)}): set tracking.parent_run_id to a run there"
        ) from error


def _found_or_created(client: Any, name: str, artifacts: str | None) -> str:
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            kind = {"mlflow.experimentKind": "custom_model_development"}  # which of MLflow's pages open first
            return str(client.create_experiment(name, artifacts, tags=kind))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # a server has no lock: another job was faster
                raise
        experiment = client.get_experiment_by_name(name)
    return str(experiment.experiment_id)


def _flat(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in flat(config):
        yield name, without_passwords(value if isinstance(value, str) else json.dumps(value))
