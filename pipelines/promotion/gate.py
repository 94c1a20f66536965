"""The gate of promotions: scores on runs that a model never saw, against who holds the alias, and proven exports."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretail.configs.schema.model_stages import ExportConfig, PromoteConfig
from foretail.configs.schema.targets import P4Target
from foretail.configs.schema.tracking import Tracking
from foretail.core.errors import ForetailError
from foretail.export.c.build import PredictorLibrary
from foretail.export.folder import CERTIFICATE
from foretail.export.proof import Certificate
from foretail.features.catalog import training_columns
from foretail.features.dataset.reader import Dataset
from foretail.features.dataset.schema import traffic_sha256
from foretail.features.rows.labelled_rows import row_batches
from foretail.features.rows.splits import Selection
from foretail.models.ensemble.cells import Cells
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.scorers import POLICY
from foretail.models.mlflow.registry import Lineage
from foretail.models.mlflow.tracking import ENSEMBLE_FILE
from foretail.models.scoring.metrics import Score
from foretail.pipelines.comparison.predictions import check_inputs
from foretail.pipelines.comparison.statistics import PairedDifference, interval_text, mean_interval
from foretail.pipelines.data.collecting import CollectedRun
from foretail.pipelines.exporting.deciding import decider_of
from foretail.pipelines.exporting.predictor import NAME, export_drop_predictor
from foretail.pipelines.runs.notes import ASKED, LABELLED_QUEUES
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import file_digest
from foretail.pipelines.training.scores import judge_run
from foretail.sim_bridge.open_loop.baselines import Baseline
from foretail.sim_bridge.open_loop.baselines import judged as baselines_on
from foretail.sim_bridge.open_loop.scores import SENT

JUDGED_BY = {"asked_f1": "F1 of the asked region", "sent": "bytes sent, in % of LQD's,"}
P4_FIGURES = ("rows", "expanded_rows", "tcam_bits", "sram_bits", "stages")
_OF_BASELINE = ("title", "sent_percent_of_lqd", "recovered_loss")
_CELLS = 100_000
_TIMED_ROWS = 50_000
_ROUNDS = 5


@dataclass(frozen=True)
class Check:
    """One condition of the gate."""

    name: str  #: such as ``asked_f1`` or ``c``
    passed: bool  #: whether it holds
    reason: str  #: what was found, in a sentence
    difference: PairedDifference | None = None  #: of scores, paired by run, where it judges scores
    margin: float | None = None  #: how far the difference may lie below 0; None where it has to lie above
    figures: Mapping[str, Any] | None = None  #: what an export costs, where it judges one


@dataclass(frozen=True)
class HeldOutScores:
    """A model on one held-out run."""

    asked_f1: float | None  #: by which the gate judges; None of a model that did not learn labels
    sent: float  #: by which the gate judges: bytes that are sent while the model decides, in % of LQD's
    accepted: float  #: the same of always accepting
    recovered_loss: float | None  #: of the same bytes; None where always accepting loses nothing
    baselines: Sequence[Mapping[str, Any]]  #: tuned policies on this run, the best first
    scores: Mapping[str, Mapping[str, Score]]  #: by region and name


@dataclass(frozen=True)
class Judging:
    """Opponents of a judgement: the model that is judged, and the one it is judged against."""

    model: Ensemble  #: the candidate
    lineage: Lineage  #: what it came from
    holder: Ensemble | None  #: who holds the alias, if anybody does
    holder_lineage: Lineage | None  #: what that came from
    against: str  #: in sentences, such as ``champion, version 3`` or ``always accepting``


@dataclass(frozen=True)
class Judged:
    """Result of a judge."""

    checks: tuple[Check, ...]  #: of the gate
    held_out: Sequence[Mapping[str, Any]]  #: a document for every run, JSON-like
    datasets: Sequence[Dataset]  #: whose rows the exported C decides once more
    tables: tuple[Table, ...]  #: for the reader
    card: Callable[[Mapping[str, Any]], str]  #: makes the model card from the document of the promotion
    collected: tuple[CollectedRun, ...] = ()  #: held-out runs that came from the scenario


def refuse_seen(datasets: Sequence[Dataset], lineage: Lineage, whose: str) -> None:
    """Raise ForetailError when a model was trained or chosen on one of the datasets, or on traffic of one."""
    for dataset in datasets:
        used = lineage.given(traffic_sha256(dataset.manifest), dataset.manifest.content_sha256)
        if used is not None and used.content_sha256 == dataset.manifest.content_sha256:
            raise ForetailError(
                f"{dataset.path} is not a held-out run: {whose} was given it as {used.name}: leave it out"
            )
        if used is not None:
            raise ForetailError(
                f"{dataset.path} is not a held-out run: its scenario and seed are those of {used.name}, which {whose} "
                f"was given: leave it out"
            )


def refuse_unfit(datasets: Sequence[Dataset]) -> None:
    """Raise ForetailError unless the datasets are several different runs that can be replayed."""
    seen: dict[str, Dataset] = {}
    for dataset in datasets:
        dataset.require_trace()
        if not dataset.is_trace:
            raise ForetailError(
                f"{dataset.path} has rows without times and sizes, which cannot be replayed: leave it out"
            )
        traffic = traffic_sha256(dataset.manifest)
        if traffic in seen:
            raise ForetailError(
                f"{dataset.path} and {seen[traffic].path} are runs of one scenario and seed, which would count twice: "
                f"name one of them"
            )
        seen[traffic] = dataset
    if len(datasets) < 2:
        raise ForetailError("one held-out run gives no interval: name at least two datasets, or seeds")


def held_out_scores(model: Ensemble, dataset: Dataset, whose: str, baselines: Sequence[Baseline] = ()) -> HeldOutScores:
    """Score a model on a whole run, in which it decides, and baselines beside it."""
    manifest = dataset.manifest
    check_inputs(model, manifest.cell_bytes, manifest.average_shift, f"the dataset {dataset.path} gives {whose}")
    columns = training_columns([item.name for item in model.features], own_queues=False)
    judged = judge_run(model, dataset, columns, decider_of(model))
    scores = judged.rows.scores(max(switch.ports for switch in manifest.switches))
    replay, learned_labels = judged.replay, POLICY not in model.origin
    f1, sent = scores["asked"]["f1"] if learned_labels else None, replay.sent_percent_of_lqd
    if sent is None or (learned_labels and f1 is None):
        raise ForetailError(
            f"{dataset.path} cannot tell predictors apart, because Credence never asks where LQD drops: hold out a "
            "congested run"
        )
    beside = baselines_on([dataset], baselines, judged.replay.lqd_bytes, judged.replay.accept_bytes)
    accepted = 100 * replay.accept_bytes / replay.lqd_bytes
    return HeldOutScores(f1, sent, accepted, replay.recovered_loss, beside, scores)


def compare(
    name: str, candidate: Sequence[HeldOutScores], holder: Sequence[HeldOutScores] | None, margin: float, against: str
) -> Check | None:
    """Compare scores, paired by run, with the holder's; without one they have to be above always accepting.

    Passed is what holds for the whole 95 % interval. None where one of
    the two models has no such score.
    """
    if any(getattr(run, name) is None for run in (*candidate, *(holder or ()))):
        return None
    if holder is None:
        baseline = [run.accepted if name == "sent" else 0.0 for run in candidate]
    else:
        baseline = [getattr(run, name) for run in holder]
    difference = mean_interval([getattr(run, name) - base for run, base in zip(candidate, baseline, strict=True)])
    low = -np.inf if difference.low is None else difference.low
    passed = bool(low > 0 if holder is None else low >= -margin)
    wanted = "has to lie above 0" if holder is None else f"must not lie below {-margin:.3g}"
    reason = f"{JUDGED_BY[name]} against {against}: {interval_text(difference)}, which {wanted}"
    return Check(name, passed, reason, difference, None if holder is None else margin)


def compare_with_tuned(candidate: Sequence[HeldOutScores], chosen_on: str) -> Check:
    """Compare what is sent, paired by run, with the best tuned policy, more than which the model has to send."""
    best = [run.baselines[0] for run in candidate]
    pairs = zip(candidate, best, strict=True)
    difference = mean_interval([run.sent - one["sent_percent_of_lqd"] for run, one in pairs])
    reason = (
        f"{JUDGED_BY['sent']} against {best[0]['title']}, tuned on {chosen_on}: {interval_text(difference)}, which has "
        f"to lie above 0"
    )
    return Check("tuned_baseline", difference.low is not None and difference.low > 0, reason, difference)


def check_export(
    target: str, model: Ensemble, datasets: Sequence[Dataset], folder: Path, config: PromoteConfig
) -> Check:
    """Export a model into ``folder/<target>``, where it is proven, and read, hash and run again what was written."""
    source, out = folder / ENSEMBLE_FILE, folder / target
    model.save(source)
    settings = ExportConfig(
        model=str(source),
        target=target,
        name=NAME,
        out=str(out),
        max_cells=config.max_cells,
        budget_seconds=config.budget_seconds,
        p4=P4Target(profile=config.p4_profile),
        tracking=Tracking(enabled=False),
        store_dir=config.store_dir,
    )
    try:
        result = export_drop_predictor(settings, folder, model)
        certificate = _verified_certificate(out, model)
        figures: dict[str, Any] = {
            "method": certificate.method,
            "cells": certificate.cells,
            "trees": result.predictor.trees,
            "leaves": result.predictor.leaves,
            "vote_bits": certificate.vote_bits,
            "order": certificate.order,
            "rounding": certificate.rounding,
            "float_decides_otherwise": certificate.float_decides_otherwise,
            "bytes": {name: (out / name).stat().st_size for name in certificate.outputs},
            "tool": certificate.tool,
        }
        ran = "read back from its text"
        if target == "c":
            figures |= _run_c(out, model, datasets)
            ran = f"run again on {figures['rows_run']:,} rows"
        elif result.report is not None:
            chosen = result.report["chosen"]
            figures |= {name: chosen.get(name) for name in P4_FIGURES}
            figures["profile"] = result.report["profile"]["name"]
    except ForetailError as error:
        return Check(target, False, str(error))
    return Check(
        target, True, f"proven equal by {certificate.method} on {certificate.cells:,} cells, and {ran}", figures=figures
    )


def _verified_certificate(folder: Path, model: Ensemble) -> Certificate:
    """The certificate of an export, once it speaks of this model and of the files that are there."""
    certificate = Certificate.load(folder / CERTIFICATE)
    emitted = Ensemble.load(folder / ENSEMBLE_FILE)
    if (certificate.model_sha256, certificate.ir_sha256) != (model.sha256, emitted.sha256):
        raise ForetailError(f"{folder / CERTIFICATE} is about another model: report this as a bug")
    for name, digest in certificate.outputs.items():
        if file_digest(folder / name) != digest:
            raise ForetailError(f"{folder / name} is not the file that was proven: report this as a bug")
    return certificate


def _run_c(folder: Path, model: Ensemble, datasets: Sequence[Dataset]) -> dict[str, Any]:
    """Run the library as it lies there on every held-out row and on cells of the model, and time it."""
    library = PredictorLibrary(folder / f"{NAME}.so")
    if library.ir_sha256 != Ensemble.load(folder / ENSEMBLE_FILE).sha256:
        raise ForetailError(f"{library.path} states another ensemble: report this as a bug")
    columns = training_columns([item.name for item in model.features], own_queues=False)
    points = Cells.of(model).sample(_CELLS, np.random.default_rng(0))
    _compare_decisions(library, model, points)
    rows_run, timed = len(points), points
    for position, dataset in enumerate(datasets):
        for rows in row_batches((Selection(dataset),), columns):
            _compare_decisions(library, model, rows.x)
            rows_run += len(rows)
            if position == 0 and timed is points:
                timed = rows.x[:_TIMED_ROWS].astype(np.int64)
    times = [library.nanoseconds(timed) for _ in range(_ROUNDS)]
    single, batch = (statistics.median(kind) for kind in zip(*times, strict=True))
    return {"rows_run": rows_run, "nanoseconds": {"single": single, "batch": batch}, "timed_rows": len(timed)}


def _compare_decisions(
    library: PredictorLibrary, model: Ensemble, x: np.ndarray[Any, np.dtype[np.integer[Any]]]
) -> None:
    expected = model.exceeds(x)
    for name, score in (("score", library.score_each), ("score_batch", library.score)):
        wrong = np.flatnonzero((score(x) > library.default_tau) != expected)
        if wrong.size:
            point = dict(zip((item.name for item in model.features), x[wrong[0]].tolist(), strict=True))
            raise ForetailError(f"the exported C ({name}) decides otherwise than the model at {point}")


def held_out_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """The held-out runs of a promotion's document, a row each: scores of the model and of the present holder."""
    shown = ("asked_f1", "sent", "recovered_loss")
    return Table(
        "Held-out runs",
        (
            *("scenario", "seed", "rows", "drops", "asked F1", "holder's", SENT, "holder's"),
            *("recovered loss", "holder's", "tuned policy", SENT, "recovered loss"),
        ),
        tuple(
            (
                run["scenario"],
                str(run["seed"]),
                run["rows"],
                run["drops"],
                *(run[who] and run[who][name] for name in shown for who in ("candidate", "holder")),
                *(best[key] for best in run["candidate"]["baselines"][:1] for key in _OF_BASELINE),
            )
            for run in runs
        ),
        (ASKED, f"F1 is on {LABELLED_QUEUES}; all else is sent while the model decides"),
    )
