"""``--multirun``: one MLflow run around all jobs, a table of them at the end, and the best model registered.

Hydra calls :class:`Sweep`, which ``configs/stage.yaml`` names; in a joblib sweep the jobs run in other processes, so
they hear of the run around them by an environment variable. Hydra loads this module in every command, so models and
MLflow are imported where a sweep uses them.
"""

from __future__ import annotations

import os
import shlex
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from foretail.configs.schema.tracking import SWEEP_RUN, Tracking
from foretail.core.digest import check_folder
from foretail.core.errors import ForetailError
from foretail.core.json_text import parse_json
from foretail.pipelines.runs.ending import StageFailed
from foretail.pipelines.runs.result import RESULT_FILE, Cell, Table, show

CLOSE = 0.95
"""Share of the best score that a simpler model may have."""
CLOSE_SENT = 0.999
"""The same of packets sent, in % of LQD's, where policies without a model differ by a few percent."""


@dataclass(frozen=True)
class Job:
    """A finished job of a sweep."""

    folder: Path
    overrides: tuple[str, ...]
    document: Mapping[str, Any]  #: its ``result.json``

    @classmethod
    def of(cls, folder: Path, document: Mapping[str, Any]) -> Job:
        """The job of a folder, by its result."""
        return cls(folder, tuple(shlex.split(document["command"])[2:]), document)

    @property
    def number(self) -> str:
        """Its folder's name."""
        return self.folder.name

    @property
    def leaves(self) -> int | None:
        """Leaves of its model, whose cost to a switch is a path of tests to each; None where it is no trees."""
        from foretail.models.ensemble.ensemble import Ensemble
        from foretail.models.mlflow.tracking import ENSEMBLE_FILE

        file = self.folder / ENSEMBLE_FILE
        return sum(len(tree.leaves) for tree in Ensemble.load(file).trees) if file.is_file() else None

    def settings(self, swept: Sequence[str], seeds: bool = True) -> str:
        """Its overrides of the names that the sweep varies, with its seeds or without."""
        own = [one for one in self.overrides if one.partition("=")[0] in swept]
        return " ".join(one for one in own if seeds or not one.partition("=")[0].endswith("seed"))

    def score(self, name: str) -> float | None:
        """A score by ``side/region/name``; None where the job has none."""
        replay = {"whole": self.document.get("validation_replay")}
        score: Any = {**(self.document.get("scores") or {}), "validation_replay": replay}
        for part in name.split("/"):
            score = score.get(part) if isinstance(score, Mapping) else None
        return float(score) if isinstance(score, (int, float)) else None


class Sweep(Callback):
    """Callback before and after the jobs of a sweep."""

    running: ClassVar[ExitStack | None] = None
    """Closes the run around the jobs of this process's sweep."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Open the run around the jobs."""
        from foretail.pipelines.runs.store import Store
        from foretail.pipelines.tracking.runs import tracked

        tracking = _tracking(config)
        if tracking is not None:
            try:
                _require_score(tracking.best_by, config)
            except ForetailError as error:
                raise StageFailed(error) from error
        if tracking is None or not tracking.enabled or tracking.parent_run_id is not None:
            return
        swept = list(OmegaConf.to_container(config.hydra.overrides.task) or [])
        Sweep.running = ExitStack()
        try:
            run = Sweep.running.enter_context(
                tracked(
                    tracking,
                    Store(config.store_dir),
                    {"overrides": swept},
                    f"{config.hydra.job.name} sweep " + " ".join(map(str, _swept(swept))),
                )
            )
        except ForetailError as error:
            raise StageFailed(error) from error  # Hydra makes a warning of every Exception of a callback
        os.environ[SWEEP_RUN] = run.run_id

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print what the jobs came to, and register the best."""
        tracking = _tracking(config)
        try:
            jobs = finished_jobs(Path(config.hydra.sweep.dir))
            named = [override.partition("=")[0] for override in _swept(config.hydra.overrides.task)]
            show([summary(jobs, named, tracking)])
        except ForetailError as error:
            raise StageFailed(error) from error
        finally:
            self.close()

    @classmethod
    def close(cls) -> None:
        """End the run around the jobs, if there is one: failed when called while an error passes."""
        os.environ.pop(SWEEP_RUN, None)
        running, cls.running = cls.running, None
        if running is not None:
            running.close()


def finished_jobs(folder: Path) -> list[Job]:
    """The jobs below the folder of a sweep, in their order."""
    varied = []
    for path in folder.glob(f"*/{RESULT_FILE}"):
        check_folder(path.parent, "run its stage again")
        document = parse_json(path.read_text(encoding="utf-8"))
        varied.append(Job.of(path.parent, document))
    return sorted(varied, key=lambda job: (len(job.number), job.number))


def summary(jobs: Sequence[Job], swept: Sequence[str], tracking: Tracking | None) -> Table:
    """The table of a sweep; its best job is registered and named below."""
    score = None if tracking is None else tracking.best_by
    table = sweep_table(jobs, swept, score)
    scored = means_over_seeds(jobs, swept, score)
    best = max(scored, key=lambda one: one[0])[1] if scored else None
    where = (
        [] if best is None else [f"It is in {best.folder}; foretail report run={best.folder.parent} shows all jobs."]
    )
    return replace(table, notes=(*table.notes, *where, *_register_best(scored, score, tracking)))


def sweep_table(jobs: Sequence[Job], swept: Sequence[str], score: str | None) -> Table:
    """All jobs, reused ones included, with the score that chooses and what it costs; below them what they come to."""
    from foretail.pipelines.tracking.loading import SHOWN_DIGITS

    columns: dict[str, list[Cell]] = {
        "job": [job.number for job in jobs],
        "settings": [job.settings(swept) for job in jobs],
        str(score): [job.score(score) if score else None for job in jobs],
        "mean over seeds": _shown_means(jobs, swept, score),
        "leaves": [job.leaves for job in jobs],
        "ensemble": [str(job.document.get("ensemble_sha256") or "")[:SHOWN_DIGITS] or None for job in jobs],
        "reused": [{"True": "yes", "False": "no"}.get(str(job.document.get("reused"))) for job in jobs],
    }
    known = {name: cells for name, cells in columns.items() if any(cell is not None for cell in cells)}
    rows = tuple(zip(*known.values(), strict=True))
    return Table("Sweep", tuple(known), rows, tuple(sweep_verdict(jobs, swept, score)))


def sweep_verdict(jobs: Sequence[Job], swept: Sequence[str], score: str | None) -> list[str]:
    """The best job, and the one with the fewest leaves that comes close to it, in a sentence each."""
    scored = means_over_seeds(jobs, swept, score)
    if not scored:
        return []
    highest, best = max(scored, key=lambda one: one[0])  # of equals the first
    of_best = f" with {best.leaves:,} leaves" if best.leaves else ""
    means = " in the mean over seeds" if any(_shown_means(jobs, swept, score)) else ""
    first = f"Of {len(scored)} jobs the best by {score}{means} is job {best.number}: {highest:.4g}{of_best}."
    near = CLOSE_SENT if str(score).endswith("sent_percent_of_lqd") else CLOSE
    close = [(job.leaves, place) for place, (other, job) in enumerate(scored) if job.leaves and other >= near * highest]
    if not close or best.leaves is None or min(close)[0] >= best.leaves:
        return [first]
    fewest, place = min(close)
    other, job = scored[place]
    return [first, f"Job {job.number} comes within {100 * (1 - near):.3g} % of it with {fewest:,} leaves: {other:.4g}."]


def means_over_seeds(jobs: Sequence[Job], swept: Sequence[str], score: str | None) -> list[tuple[float, Job]]:
    """Every job that has the score, with the mean over the jobs that differ from it in seeds alone."""
    if score is None:
        return []
    values: dict[str, list[float]] = {}
    for job in jobs:
        if (value := job.score(score)) is not None:
            values.setdefault(job.settings(swept, seeds=False), []).append(value)
    return [
        (statistics.fmean(values[job.settings(swept, seeds=False)]), job)
        for job in jobs
        if job.score(score) is not None
    ]


def _shown_means(jobs: Sequence[Job], swept: Sequence[str], score: str | None) -> list[Cell]:
    """The mean over seeds of each job, where jobs differ in seeds alone."""
    means = {job.number: mean for mean, job in means_over_seeds(jobs, swept, score)}
    groups = [job.settings(swept, seeds=False) for job in jobs]
    return [means.get(job.number) if groups.count(group) > 1 else None for job, group in zip(jobs, groups, strict=True)]


def _require_score(name: str, config: DictConfig) -> None:
    """Raise ForetailError before the first job on a score that no job will have."""
    from foretail.models.scoring.metrics import Confusion
    from foretail.sim_bridge.open_loop.scores import SENT_SCORES

    place, _, score = name.rpartition("/")
    of_labels = (*Confusion(1, 1, 1, 1).scores(2), "average_precision")
    known: dict[str, Sequence[str]] = {f"validation/{region}": of_labels for region in ("whole", "asked")}
    known["validation_replay/whole"] = ("eta", *SENT_SCORES)
    if score not in known.get(place, ()):
        raise ForetailError(
            f"tracking.best_by = {name} is no score of a job: choose from "
            + ", ".join(f"{where}/{one}" for where, ones in known.items() for one in ones)
        )
    if place == "validation_replay/whole" and config.get("split", {}).get("name") == "by_time":
        raise ForetailError(
            f"tracking.best_by = {name} lets models decide in whole runs, and split=by_time cuts them: give "
            "tracking.best_by=validation/asked/f1"
        )


def _register_best(scored: Sequence[tuple[float, Job]], score: str | None, tracking: Tracking | None) -> list[str]:
    from foretail.models.mlflow.registry import register_model
    from foretail.pipelines.tracking.loading import version_description

    if tracking is None or not tracking.enabled or tracking.registered_model is None:
        return []
    models = [(value, job) for value, job in scored if job.document.get("ensemble_sha256")]
    if not models:
        return ["no job has an ensemble and the score tracking.best_by, so that no alias moved"] if scored else []
    highest, best = max(models, key=lambda one: one[0])  # of equals the first
    run = best.document["tracked"]
    registered = register_model(
        tracking.registered_model,
        tracking.alias,
        run["run_id"],
        run["uri"],
        version_description(
            f"Best of {len(scored)} jobs by {score}, {highest:.4g}: {' '.join(best.overrides)}",
            best.document["datasets"],
            best.document["scores"],
        ),
        {"ensemble_sha256": best.document["ensemble_sha256"]},
    )
    return [registered.sentence()]


def _swept(overrides: Sequence[Any]) -> list[str]:
    parser = OverridesParser.create()
    return [str(text) for text in overrides if parser.parse_override(str(text)).is_sweep_override()]


def _tracking(config: DictConfig) -> Tracking | None:
    if "tracking" not in config:
        return None
    settings = OmegaConf.to_object(config.tracking)
    return settings if isinstance(settings, Tracking) else None
