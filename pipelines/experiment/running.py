"""One experiment from its settings to its files: tracked in MLflow, drawn, written and registered."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretail.configs.schema.experiment import ExperimentSettings
from foretail.core.summary import Summarised
from foretail.models.mlflow.tracking import ENSEMBLE_FILE, TrackedRun
from foretail.models.mlflow.versions import RegisteredModel
from foretail.models.scoring.figure_style import FIGURE_KINDS
from foretail.pipelines.errors import PointsFailed
from foretail.pipelines.experiment.declaration import Experiment, Learned, Run, Settings, Shown
from foretail.pipelines.runs.points import points_failed, write_files
from foretail.pipelines.runs.result import Table, plain
from foretail.pipelines.runs.store import Store
from foretail.pipelines.tracking.identity import register_trained
from foretail.pipelines.tracking.runs import address, run_note, tracked

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class ExperimentResult(Summarised):
    """A finished experiment."""

    settings: ExperimentSettings
    shown: Shown
    folder: Path  #: of the run
    files: Sequence[Path]  #: in it
    tracked: Mapping[str, str] | None  #: run and server in MLflow, or None
    registered: RegisteredModel | None  #: the version of what it learned, or None

    def verdict(self) -> list[str]:
        """Conclusions of the experiment."""
        return list(self.shown.verdict)

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        shown, learned = self.shown, self.shown.learned
        model = {} if learned is None else {"ensemble_sha256": learned.ensemble.sha256, "registered": self.registered}
        return {
            "experiment": self.settings.experiment,
            "size": self.settings.size,
            "rows": shown.rows.to_dict("records"),
            **shown.details,
            **model,
            "files": [str(path.relative_to(self.folder)) for path in self.files],
            "captions": {stem_of(self.settings, name): drawn.caption for name, drawn in shown.figures.items()}
            | dict(shown.captions),
            "failed": dict(shown.failed),
            "tracked": self.tracked,
        }

    def tables(self) -> list[Table]:
        """Its tables, with all notes below the last."""
        *others, last = self.shown.tables
        notes = (*last.notes, *self.shown.notes, *run_note(self.tracked))
        return [*others, dataclasses.replace(last, notes=notes)]

    def failure(self) -> PointsFailed | None:
        """One sentence that names the points that failed, if any did."""
        return points_failed(self.shown.failed, self.shown.points) if self.shown.failed else None


def run_experiment(experiment: Experiment[Settings], settings: Settings, run_dir: Path) -> ExperimentResult:
    """Find, write and track; what the store has is not measured again."""
    store, tracking = Store(settings.store_dir), settings.tracking
    run: AbstractContextManager[TrackedRun | None] = nullcontext()
    if tracking.enabled and not experiment.tracks_itself:
        run = tracked(tracking, store, dataclasses.asdict(settings), f"{settings.experiment} {settings.size}")
    with run as logged:
        shown = experiment.find(settings, Run(run_dir, store, logged))
        files = _written(settings, shown, run_dir)
        where = shown.tracked if logged is None else address(logged)
        registered = None if logged is None else _logged(logged, settings, shown.learned, files)
        result = ExperimentResult(settings, shown, run_dir, files, where, registered)
        if logged is not None:
            logged.log_document(plain(result.document()), f"{settings.experiment}.json")
    return result


def stem_of(settings: ExperimentSettings, figure: str) -> str:
    """How the files of a figure are called."""
    return f"{settings.experiment}_{figure}" if figure else settings.experiment


def _written(settings: ExperimentSettings, shown: Shown, run_dir: Path) -> list[Path]:
    """Write the rows, every figure with its numbers, further frames, and the model."""
    files: dict[str, pd.DataFrame | Figure] = {f"{settings.experiment}.parquet": shown.rows, **shown.frames}
    for name, drawn in shown.figures.items():
        stem = stem_of(settings, name)
        files |= {f"{stem}.{kind}": drawn.figure for kind in FIGURE_KINDS}
        files |= {} if drawn.numbers is None else {f"{stem}.csv": drawn.numbers}
    written = [*write_files(run_dir, files), *shown.files]
    if shown.learned is not None:
        shown.learned.ensemble.save(run_dir / ENSEMBLE_FILE)
        written.append(run_dir / ENSEMBLE_FILE)
    return written


def _logged(
    run: TrackedRun, settings: ExperimentSettings, learned: Learned | None, files: Sequence[Path]
) -> RegisteredModel | None:
    """Log the files, and what was learned, which is registered."""
    for path in files:
        run.log_file(path)
    if learned is None:
        return None
    learned.log(run)
    run.log_metrics(dict(learned.metrics))
    run.log_model(learned.ensemble)
    features = ",".join(item.name for item in learned.ensemble.features)
    tags = {"ensemble_sha256": learned.ensemble.sha256, "features": features}
    return register_trained(settings.tracking, address(run), learned.description, tags)
