"""Promoting a model: the gate, by scores on unseen runs and proven exports, and the alias as the last step."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from foretail.configs.schema.model_stages import ExportConfig, PromoteConfig
from foretail.configs.schema.targets import P4Target
from foretail.configs.schema.tracking import Tracking
from foretail.core.digest import file_digest
from foretail.core.errors import ForetailError
from foretail.core.files import staged_files
from foretail.core.summary import Summarised
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
from foretail.models.mlflow.registry import (
    Lineage,
    NoLineage,
    alias_holder,
    lineage,
    load_ensemble,
    move_alias,
    run_document,
    run_tags,
    version_tags,
)
from foretail.models.mlflow.store import tracking_uri
from foretail.models.mlflow.tracking import ENSEMBLE_FILE, OUTCOME_FILE, RegisteredModel, TrackedRun
from foretail.models.scoring.metrics import Score
from foretail.pipelines.comparison.statistics import PairedDifference, interval_text, mean_interval
from foretail.pipelines.data.collecting import CollectedRun, dataset_table
from foretail.pipelines.data.inputs import dataset_columns, given_runs, open_datasets
from foretail.pipelines.errors import GateRefused
from foretail.pipelines.exporting.network import check_inputs, decider_of
from foretail.pipelines.exporting.predictor import NAME, export_drop_predictor
from foretail.pipelines.promotion.model_card import CARD_FILE, held_out_table, model_card, short_card
from foretail.pipelines.runs.notes import say_if_silent
from foretail.pipelines.runs.result import Table, json_text, plain
from foretail.pipelines.runs.store import Store
from foretail.pipelines.settings.compose import differing
from foretail.pipelines.tracking.loading import HERE, TRAINED, chosen_in, load_model
from foretail.pipelines.tracking.runs import address, describe_dataset, log_dataset, refuse_traffic, run_note, tracked
from foretail.pipelines.training.scores import judge_run
from foretail.sim_bridge.open_loop.baselines import Baseline, sent_by, tuned, worth_of

JUDGED_BY = {"asked_f1": "F1 of the asked region", "sent": "bytes sent, in % of LQD's,"}
P4_FIGURES = ("rows", "expanded_rows", "tcam_bits", "sram_bits", "stages")
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
class Judged:
    """A model and the holder of the alias on held-out runs."""

    checks: tuple[Check, ...]  #: of the gate
    held_out: Sequence[Mapping[str, Any]]  #: a document for every run, JSON-like
    datasets: Sequence[Dataset]  #: whose rows the exported C decides once more
    outcome: Mapping[str, Any] | None  #: of the training; None of a model from elsewhere
    collected: tuple[CollectedRun, ...]  #: held-out runs that came from the scenario


def refuse_seen(datasets: Sequence[Dataset], lineage: Lineage, whose: str) -> None:
    """Raise ForetailError when a model was trained or chosen on one of the datasets, or on traffic of one."""
    runs = [(str(one.path), traffic_sha256(one.manifest), one.manifest.content_sha256) for one in datasets]
    refuse_traffic(runs, lineage, whose)


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
    beside = worth_of(baselines, sent_by(baselines, [dataset]), replay.lqd, replay.accept)
    accepted = 100 * replay.accept / replay.lqd
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


HELD_OUT = "held-out"
GATE_FILE = "gate.json"
GATE_RUN_TAG = "gate_run_id"
OWN_TAG = "model_of_ones_own"
"""Tag of a run that registered a model from elsewhere: where it came from."""


@dataclass(frozen=True, repr=False)
class PromoteResult(Summarised):
    """Findings of the gate, and what came of them."""

    gate: Mapping[str, Any]  #: model, holder, checks and scores by run, JSON-like
    checks: tuple[Check, ...]  #: the conditions
    promoted: RegisteredModel | None  #: the version that holds the alias now; None when the gate refused
    shown: tuple[Table, ...]  #: tables of the held-out runs
    collected: tuple[CollectedRun, ...]  #: held-out runs that came from the scenario
    tracked: Mapping[str, Any]  #: the run in MLflow

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        return {
            **self.gate,
            "promoted": None if self.promoted is None else asdict(self.promoted),
            "collected": [asdict(run) for run in self.collected],
            "tracked": self.tracked,
        }

    def verdict(self) -> list[str]:
        """Decision of the gate, and the first check that failed, or the first of all."""
        check = next((check for check in self.checks if not check.passed), self.checks[0])
        first = f"On {len(self.gate['held_out'])} held-out runs, {check.reason.rstrip('.')}."
        if self.promoted is None:
            failed = ", ".join(check.name for check in self.checks if not check.passed)
            return [f"The gate refused the model for {failed}.", first]
        model = self.gate["model"]
        now = f"models:/{model['name']}@{model['alias']} is version {self.promoted.version} now"
        return [f"The gate let the model pass: {now}.", first]

    def tables(self) -> list[Table]:
        """Held-out scores and the gate."""
        model = self.gate["model"]
        address = f"models:/{model['name']}@{model['alias']}"
        outcome = (
            f"{address} stays with {_version(self.gate['gate']['holder_version'])}"
            if self.promoted is None
            else f"{address} is version {self.promoted.version} now"
        )
        gate = Table(
            "Gate",
            ("check", "passed", "found"),
            tuple((check.name, "yes" if check.passed else "no", check.reason) for check in self.checks),
            (outcome, *run_note(self.tracked)),
        )
        return [*self.shown, gate]

    def failure(self) -> GateRefused | None:
        """Why the alias did not move; None when it did."""
        if self.promoted is not None:
            return None
        failed = "; ".join(f"{check.name} ({check.reason.rstrip('.')})" for check in self.checks if not check.passed)
        return GateRefused(
            f"the gate refused {failed}: {self.gate['model']['alias']} stays with "
            f"{_version(self.gate['gate']['holder_version'])}"
        )


def _judge(
    config: PromoteConfig,
    store: Store,
    candidate: Ensemble,
    origin: Lineage,
    holder: Ensemble | None,
    against: str,
) -> Judged:
    """Judge a model by its scores on held-out runs, paired with the holder's by run."""
    uri = tracking_uri(config.tracking.uri, store.folder.parent)
    outcome = None if OWN_TAG in run_tags(origin.runs[0], uri) else run_document(origin.runs[0], OUTCOME_FILE, uri)
    collected, datasets = given_runs(config, config.seeds)
    refuse_unfit(datasets)
    refuse_seen(datasets, origin, "the model")
    if holder is not None:
        refuse_seen(datasets, lineage(holder.sha256, uri), f"the {against},")
    baselines, chosen_on = () if outcome is None else chosen_in(outcome), TRAINED
    if outcome is None:
        baselines = tuned([Dataset.open(one.location) for one in origin.datasets if one.context == "train"])
    if not baselines:
        baselines, chosen_on = tuned(datasets), HERE
    scores = [held_out_scores(candidate, dataset, "the model", baselines) for dataset in datasets]
    for dataset, one in zip(datasets, scores, strict=True):
        say_if_silent("the model", str(dataset.path), one.scores["whole"])
    theirs = None if holder is None else [held_out_scores(holder, each, f"the {config.to}") for each in datasets]
    compared = (
        compare("asked_f1", scores, theirs, config.f1_margin, against),
        compare("sent", scores, theirs, config.sent_margin_percent, against),
        compare_with_tuned(scores, chosen_on) if config.baseline == "tuned" else None,
    )
    held_out: list[dict[str, Any]] = plain(
        [
            {
                **describe_dataset(Selection(dataset), HELD_OUT),
                "candidate": asdict(mine),
                "holder": None if theirs is None else asdict(theirs[place]),
            }
            for place, (dataset, mine) in enumerate(zip(datasets, scores, strict=True))
        ]
    )
    return Judged(tuple(check for check in compared if check is not None), held_out, datasets, outcome, collected)


def promote_model(config: PromoteConfig, run_dir: Path) -> PromoteResult:
    """Judge ``config.model`` and, when it passes, move the alias; card, gate and exports go to the run folder.

    The registry changes when all else is tracked: whatever stops this before, the alias stays where it was. What stops
    it after that costs its files alone: the same promotion again judges against the former holder, and writes them.
    """
    store, name, alias = Store(config.store_dir), str(config.tracking.registered_model), config.to
    uri = tracking_uri(config.tracking.uri, store.folder.parent)
    candidate, origin = _candidate(config, store, uri)
    version = alias_holder(name, alias, uri)
    holder = None if version is None else load_ensemble(f"models:/{name}/{version}", uri)
    held = None
    if version is not None and holder is not None and holder.sha256 == candidate.sha256:
        held = RegisteredModel(name, version, alias)
        version = _former_holder(held, config, uri)
        held = replace(held, before=version)
        holder = None if version is None else load_ensemble(f"models:/{name}/{version}", uri)
    against = "always accepting" if version is None else f"{alias}, version {version}"
    judged = _judge(config, store, candidate, origin, holder, against)
    table = held_out_table(judged.held_out)
    with staged_files(run_dir) as folder:
        targets = ("c", "p4")[: 1 + config.p4]
        checks = (
            *judged.checks,
            *(check_export(target, candidate, judged.datasets, folder, config) for target in targets),
        )
        gate = _document(config, candidate, origin, version, judged.held_out, checks)
        if judged.outcome is None:
            card = short_card(gate, candidate, table)
        else:
            settings = run_document(origin.runs[0], "config.json", uri)
            card = model_card({**gate, "outcome": judged.outcome, "config": settings})
        (folder / CARD_FILE).write_text(card, encoding="utf-8")
        tags = _tags(candidate, checks)
        name_of_run = f"promote to {alias}"
        with tracked(config.tracking, store, asdict(config), name_of_run, tags, params=differing(config)) as run:
            for described in judged.held_out:
                log_dataset(run, described)
            _log(run, gate, checks, folder)
            promoted = held
            if held is None and all(check.passed for check in checks):
                tags = {GATE_RUN_TAG: run.run_id, "model_card": f"runs:/{run.run_id}/{CARD_FILE}"}
                promoted = move_alias(name, alias, candidate, origin.runs, version, tags, uri)
        if promoted is None:  # of what is refused the card is kept, and no export
            for exported in set(folder.iterdir()) - {folder / CARD_FILE}:
                shutil.rmtree(exported) if exported.is_dir() else exported.unlink()
    shown = (*([dataset_table(judged.collected)] if judged.collected else []), table)
    return PromoteResult(gate, checks, promoted, shown, judged.collected, address(run))


def _candidate(config: PromoteConfig, store: Store, uri: str) -> tuple[Ensemble, Lineage]:
    """The model with what trained it; one of the user's own is registered with ``config.trained_on``."""
    runs = open_datasets(config.trained_on)
    inputs = dataset_columns(runs[0]) if runs else None
    candidate = load_model(str(config.model), config.tracking, store, inputs=inputs)
    try:
        return candidate, lineage(candidate.sha256, uri)
    except NoLineage as error:
        if not runs:
            raise ForetailError(f"{error}, or say what trained it: trained_on=[RUNS]") from None
    with tracked(config.tracking, store, asdict(config), f"model {config.model}", {OWN_TAG: str(config.model)}) as run:
        for dataset in runs:
            log_dataset(run, describe_dataset(Selection(dataset), "train"))
        run.log_model(candidate)
    return candidate, lineage(candidate.sha256, uri)


def _former_holder(held: RegisteredModel, config: PromoteConfig, uri: str) -> str | None:
    """Return the version that this very promotion took an alias from; ForetailError when another one gave it."""
    gate_run = version_tags(held.name, held.version, uri).get(GATE_RUN_TAG)
    if gate_run is None or run_document(gate_run, "config.json", uri) != json.loads(json_text(asdict(config))):
        raise ForetailError(
            f"models:/{held.name}@{held.alias} is this very model already, version {held.version}: nothing to promote"
        )
    former: str | None = run_document(gate_run, GATE_FILE, uri)["gate"]["holder_version"]
    return former


def _document(
    config: PromoteConfig,
    candidate: Ensemble,
    origin: Lineage,
    version: str | None,
    held_out: Sequence[Mapping[str, Any]],
    checks: Sequence[Check],
) -> dict[str, Any]:
    """Document of what was judged, and of the findings."""
    document: dict[str, Any] = plain(
        {
            "model": {
                "name": config.tracking.registered_model,
                "alias": config.to,
                "address": config.model,
                "ensemble_sha256": candidate.sha256,
                "trees": len(candidate.trees),
                "leaves": sum(len(tree.leaves) for tree in candidate.trees),
            },
            "lineage": asdict(origin),
            "gate": {
                "passed": all(check.passed for check in checks),
                "holder_version": version,
                "checks": [asdict(check) for check in checks],
            },
            "held_out": held_out,
        }
    )
    return document


def _tags(candidate: Ensemble, checks: Sequence[Check]) -> dict[str, str]:
    verdicts = {True: "passed", False: "refused"}
    return {
        "candidate_sha256": candidate.sha256,
        "gate": verdicts[all(check.passed for check in checks)],
        **{f"gate.{check.name}": verdicts[check.passed] for check in checks},
    }


def _log(run: TrackedRun, gate: Mapping[str, Any], checks: Sequence[Check], folder: Path) -> None:
    run.log_document(gate, GATE_FILE)
    run.log_file(folder / CARD_FILE)
    for check in checks:
        if check.difference is not None:
            difference = asdict(check.difference)
            run.log_metrics({f"gate/{check.name}/{key}": float(difference[key]) for key in ("mean", "low", "high")})
        elif check.figures is not None:
            run.log_file(folder / check.name / "certificate.json", check.name)


def _version(version: str | None) -> str:
    return "nobody" if version is None else f"version {version}"
