"""MLflow runs of stages and experiments, as ``tracking`` configures them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from foretail.configs.schema.tracking import Tracking
from foretail.models.mlflow.store import tracking_uri
from foretail.models.mlflow.tracking import TrackedRun, track
from foretail.pipelines.runs.store import Store


@contextmanager
def tracked(
    tracking: Tracking,
    store: Store,
    settings: Mapping[str, Any],
    name: str | None = None,
    tags: Mapping[str, str] | None = None,
    run_id: str | None = None,
    params: Mapping[str, Any] | None = None,
) -> Iterator[TrackedRun]:
    """A run with `settings` logged, called `name` unless ``tracking.run_name`` says otherwise.

    A job of a sweep has its number before its name, and as the tag ``job``. Parameters are those of
    :func:`foretail.models.mlflow.tracking.track`; runs of one sweep share the tag of ``tracking.sweep_id``.
    """
    swept = {} if tracking.sweep_id is None else {"sweep_id": tracking.sweep_id}
    if (job := _job()) is not None:
        swept["job"], name = job, None if name is None else f"job {job}: {name}"
    with track(
        tracking.experiment,
        settings,
        uri=tracking_uri(tracking.uri, store.folder.parent),
        run_name=tracking.run_name or name,
        tags={**swept, **(tags or {})},
        parent_run_id=tracking.parent_run_id,
        run_id=run_id,
        params=params,
    ) as run:
        yield run


def _job() -> str | None:
    """The number of the job that runs in a sweep, which its folder has too; None outside of one."""
    if not HydraConfig.initialized() or HydraConfig.get().mode != RunMode.MULTIRUN:
        return None
    return str(HydraConfig.get().job.num)


def run_note(tracked: Mapping[str, Any] | None) -> tuple[str, ...]:
    """A note below a table that says which run in MLflow has it; none where there is no run."""
    if tracked is None:
        return ()
    here = f"sqlite:///{Path.cwd()}/"
    return (f"MLflow run {tracked['run_id']} in {tracked['uri'].removeprefix(here)}",)


def address(run: TrackedRun) -> dict[str, str]:
    """Address of a run in MLflow, for ``result.json``."""
    return {"run_id": run.run_id, "experiment_id": run.experiment_id, "uri": run.uri}
