"""Drop predictors exported, proven and measured; the library that simulators load comes from the store."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretail.configs.schema.model_stages import ExportConfig
from foretail.configs.schema.targets import P4Banks
from foretail.core.code import code_digest
from foretail.core.errors import ForetailError
from foretail.core.plugins import TARGET_GROUP, loaded, offered, package_of, running
from foretail.core.summary import Summarised
from foretail.export.c.build import find_compiler
from foretail.export.c.target import C
from foretail.export.folder import CERTIFICATE
from foretail.export.onnx.target import Onnx
from foretail.export.p4.encoding import Frame
from foretail.export.p4.profile import load_profile
from foretail.export.p4.target import P4
from foretail.export.proof import Certificate
from foretail.export.sonic.target import Sonic
from foretail.export.target import Target, export
from foretail.features.catalog import training_columns
from foretail.features.dataset.reader import Dataset
from foretail.models.drop.thresholds.alpha_tree import require_alpha_tree, within_exponents
from foretail.models.ensemble.effort import Effort
from foretail.models.ensemble.ensemble import ColumnInput, Ensemble, FeatureInput
from foretail.models.ensemble.model_files import Limits
from foretail.models.mlflow.registry import not_trees
from foretail.models.mlflow.tracking import ENSEMBLE_FILE, ENSEMBLE_TAG
from foretail.pipelines.data.inputs import column_inputs, dataset_columns, feature_inputs, open_dataset
from foretail.pipelines.runs.progress import StageProgress
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Key, Store
from foretail.pipelines.tracking.loading import load_predictor
from foretail.sim_bridge.imports.sonic.config import read_config

if TYPE_CHECKING:
    from foretail.models.drop.network import Network

EXPORT = "export"

NAME = "drop_predictor"


@dataclass(frozen=True)
class ExportedPredictor:
    """A proven predictor on disk."""

    folder: Path  #: holds the target's files, certificate.json and ensemble.json
    name: str  #: prefix of the target's files
    certificate: Certificate  #: what was proven
    trees: int  #: size of what was emitted
    leaves: int  #: size of what was emitted
    reused: bool  #: it was in the store
    seconds: float  #: wall time of passes, export and proof, now or earlier

    @property
    def library(self) -> Path:
        """The shared object for the simulators, of ``target=c``."""
        return self.folder / f"{self.name}.so"

    @property
    def made_of(self) -> tuple[str, str]:
        """Tag and hash under which MLflow knows the model."""
        return ENSEMBLE_TAG, self.certificate.ir_sha256


@dataclass(frozen=True, repr=False)
class ExportResult(Summarised):
    """Result of ``export``: the predictor, and what the target reports beside the proof."""

    predictor: ExportedPredictor
    report: dict[str, Any] | None

    def document(self) -> dict[str, Any]:
        return {"export": asdict(self.predictor), "report": self.report}

    def verdict(self) -> list[str]:
        """Sentences: what is proven of the code, and how large the model is."""
        certificate, size = self.predictor.certificate, self.predictor
        where = (
            "on every input"
            if certificate.rounding is None
            else "wherever its sum is not within rounding of the threshold"
        )
        return [
            f"The {certificate.target.upper()} code decides as the model does {where}: proven by {certificate.method}, "
            f"of which there are {certificate.cells if certificate.boxes is None else certificate.boxes:,}.",
            f"It has {size.trees} tree{'s' if size.trees > 1 else ''} with {size.leaves:,} leaves, and votes of "
            f"{certificate.vote_bits} bit{'s' if certificate.vote_bits > 1 else ''}.",
        ]

    def tables(self) -> list[Table]:
        """Size and proof, then the target's own."""
        described = {"c": tuning_table, "p4": p4_tables}.get(self.predictor.certificate.target)
        return [export_table(self.predictor), *(described(self.report) if described and self.report else ())]


def given_model(config: ExportConfig) -> Ensemble | Network:
    """The drop predictor of ``config.model``, as the settings describe and limit it."""
    limits = Limits(**vars(config.model_limits))
    store = Store(config.store_dir)
    inputs, rows = declared_inputs(config), None
    if inputs is not None and config.columns and config.dataset is not None:
        rows, _ = model_rows(inputs, open_dataset(config.dataset))
    return load_predictor(config.model, config.tracking, store, inputs, config.allow_pickle, limits, rows)


def export_drop_predictor(config: ExportConfig, run_dir: Path, model: Ensemble | None = None) -> ExportResult:
    """Export, run and prove trees into `config.out`, or into a folder of the target's name in the run.

    `model`: the trees of ``config.model``, where they are read already.
    """
    if config.c.tune and config.dataset is None:
        raise ForetailError("c.tune=true needs rows to measure on: set dataset=FOLDER")
    if config.c.tune and config.target != "c":
        raise ForetailError(f"c.tune=true is for target=c, not {config.target}: leave it out")
    if config.c.input_bits:
        raise ForetailError(f"c.input_bits is for networks, and {config.model} is none: leave it out")
    given = model or given_model(config)
    if not isinstance(given, Ensemble):
        raise not_trees(config.model)
    out = Path(config.out) if config.out is not None else run_dir / config.target
    started = time.monotonic()
    if config.target == "sonic":
        sonic = config.sonic
        require_alpha_tree(given, config.model)
        given = within_exponents(given, sonic.smallest_dynamic_th, sonic.largest_dynamic_th, sonic.nearest)
    target = target_of(config, given)
    with StageProgress() as progress:
        done = export(
            given,
            target,
            out,
            config.name or NAME,
            any_tau=config.any_tau,
            max_cells=config.max_cells,
            effort=Effort(config.budget_seconds, progress.update),
        )
    predictor = _described(out, done.prefix, False, time.monotonic() - started)
    return ExportResult(predictor, done.report or None)


def export_to_store(ensemble: Ensemble, store: Store) -> ExportedPredictor:
    """The C predictor of `ensemble` from the store, exported now when it is not there."""
    key = library_key("ensemble", ensemble.sha256)

    def build(folder: Path) -> None:
        with StageProgress() as progress:
            export(ensemble, C(), folder / EXPORT, NAME, effort=Effort(report=progress.update))

    entry = store.get_or_build(key, build)
    return _described(entry.path / EXPORT, NAME, entry.reused, entry.seconds)


def library_key(kind: str, sha256: str) -> Key:
    """The key of the C library of a model, an ensemble or a network."""
    depends_on = {
        kind: sha256,
        "compiler": find_compiler(),
        "machine": platform.machine(),
        "system": platform.system(),
        "code": code_digest("export.c", "export.network"),
    }
    return Key(EXPORT, depends_on)


def declared_inputs(config: ExportConfig) -> tuple[FeatureInput, ...] | None:
    """The inputs that the settings declare, one by one or by their names in a dataset.

    A dataset alone declares all its columns, of which those are taken that the model names. None without any.
    """
    if config.inputs and config.columns:
        raise ForetailError("both inputs and columns are given: describe the model's columns by one of them")
    if config.inputs:
        return tuple(
            FeatureInput(item.name, "".join(item.params.split()), item.bits)
            if item.column is None
            else ColumnInput(item.name, "".join(item.params.split()), item.bits, item.column)
            for item in config.inputs
        )
    if config.columns and config.dataset is None:
        raise ForetailError("columns are names in a dataset: set dataset=FOLDER, or describe each in inputs")
    if config.dataset is None:
        return None
    dataset = open_dataset(config.dataset)
    return column_inputs(config.columns, [dataset]) if config.columns else dataset_columns(dataset)


def model_rows(features: Sequence[FeatureInput], dataset: Dataset) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The inputs of a model as a dataset has them, in arrival order, int64[rows, features], and the labels."""
    names = [item.name for item in features]
    described = feature_inputs(names, [dataset])
    for mine, theirs in zip(features, described, strict=True):
        if mine.params != theirs.params:
            raise ForetailError(
                f"{dataset.path} has feature {mine.name} with {theirs.params or 'no parameters'}, but the model with "
                f"{mine.params or 'none'}: give a dataset of the model's arithmetic"
            )
    columns = list(training_columns(names, own_queues=not dataset.is_trace))
    frame = dataset.frame([*columns, "lqd_drop"])
    return frame[columns].to_numpy(np.int64), frame["lqd_drop"].to_numpy(np.bool_)


def _c(config: ExportConfig, model: Ensemble) -> Target:
    rows = None
    if config.c.tune and config.dataset is not None:
        rows, _ = model_rows(model.features, open_dataset(config.dataset))
    return C(config.c.shape, config.c.batch, rows)  # type: ignore[arg-type]  # the settings allow only its names


def _p4(config: ExportConfig, model: Ensemble) -> Target:
    p4 = config.p4
    profile = p4.profile or ("tofino" if p4.arch == "tna" else "v1model")
    if p4.arch not in (None, arch := load_profile(profile).arch):
        raise ForetailError(f"p4.arch={p4.arch}, but the P4 profile {profile} is for {arch}: leave one of them out")
    frame = None if p4.banks.trees is None else frame_for(model, p4.banks.trees, p4.banks)
    settings = (p4.encoding, p4.decision, p4.entries, profile, p4.bmv2, p4.control, p4.compile, frame)
    return P4(*settings, max_rows=p4.max_rows)  # type: ignore[arg-type]


def frame_for(model: Ensemble, trees: int, banks: P4Banks) -> Frame:
    """The sizes of a program with banks for models of these features."""
    return Frame({feature.name: feature.params for feature in model.features}, trees, banks.words, banks.rows)


def _sonic(config: ExportConfig, model: Ensemble) -> Target:
    sonic = config.sonic
    return Sonic(sonic.pool, sonic.size_bytes, None if sonic.config is None else read_config(Path(sonic.config)))


TARGETS: dict[str, Callable[[ExportConfig, Ensemble], Target]] = {
    "c": _c,
    "p4": _p4,
    "onnx": lambda config, model: Onnx(),
    "sonic": _sonic,
}
"""The target of a model, as the settings have it."""


def target_of(config: ExportConfig, model: Ensemble) -> Target:
    """The target of the settings: Foretail's own, or what an installed package offers, which has no settings."""
    if config.target in TARGETS:
        return TARGETS[config.target](config, model)
    point = offered(TARGET_GROUP, TARGETS)[config.target]
    make = loaded(point)
    with running(make, "its constructor"):
        made: Target = make()
    if getattr(made, "name", None) != config.target or not (hasattr(made, "render") and hasattr(made, "load")):
        raise ForetailError(
            f"{config.target} of the package {package_of(point)} is not a Target of that name: give it the name "
            f"{config.target!r}, render and load"
        )
    return made


def _described(folder: Path, name: str, reused: bool, seconds: float) -> ExportedPredictor:
    emitted = Ensemble.load(folder / ENSEMBLE_FILE)
    return ExportedPredictor(
        folder=folder,
        name=name,
        certificate=Certificate.load(folder / CERTIFICATE),
        trees=len(emitted.trees),
        leaves=sum(len(tree.leaves) for tree in emitted.trees),
        reused=reused,
        seconds=seconds,
    )


def export_table(predictor: ExportedPredictor) -> Table:
    """Size and proof of an exported predictor."""
    certificate = predictor.certificate
    if certificate.rounding is not None:
        covers = "any tau, to the framework's rounding"
    else:
        covers = "any tau" if certificate.order else f"tau in {certificate.taus}"
    row = {
        "trees": predictor.trees,
        "leaves": predictor.leaves,
        "proven by": certificate.method,
        "cells": certificate.cells,
        "covers": covers,
        "vote bits": certificate.vote_bits,
        "float differs on": certificate.float_decides_otherwise,
        "seconds": predictor.seconds,
        "folder": f"{predictor.folder}{' (reused)' if predictor.reused else ''}",
    }
    return Table.of_rows(f"{certificate.target.upper()} predictor", [row])


def tuning_table(tuning: dict[str, Any]) -> tuple[Table, ...]:
    """Costs of every form of the C code on the user's rows."""
    rows = tuple(
        (entry, form, nanoseconds, "chosen" if form == tuning[entry] else "")
        for entry, forms in tuning["nanoseconds"].items()
        for form, nanoseconds in forms.items()
    )
    note = f"thread CPU time, medians of {tuning['rounds']} rounds over {tuning['rows']:,} rows of the dataset"
    return (Table("Forms of the C code", ("call", "form", "ns per row", ""), rows, (note,)),)


def p4_tables(report: dict[str, Any]) -> tuple[Table, ...]:
    """The tables that were chosen, and what else was considered."""
    chosen, profile = report["chosen"], report["profile"]
    columns = ("rows", "expanded_rows", "key_bits", "data_bits", "tcam_bits", "sram_bits")
    totals = tuple(chosen.get(column) for column in columns)
    build = report["compiled"]
    compiled = build and (
        f"{build['program']} compiled by {build['compiler']}: {build['stages']} stages, {build['tables']} tables, "
        f"{build['tcam_blocks']} TCAM and {build['sram_blocks']} SRAM blocks, {build['phv_bits']} bits of PHV",
    )
    resources = Table(
        f"P4 tables on {profile['name']}",
        ("table", "key", *(column.replace("_", " ") for column in columns)),
        (
            *((t["name"], t["kind"], *(t[column] for column in columns)) for t in report["tables"]),
            ("total", "", *totals),
        ),
        (
            f"longest chain {chosen['longest_chain']} tables, {chosen['stages']} stages, score of "
            f"{report['score_bits']} bits",
            *(compiled or ()),
            profile["note"],
        ),
    )
    columns = ("rows", "expanded_rows", "tcam_bits", "sram_bits", "stages", "cost")
    considered = Table(
        "Considered",
        ("decision", "feature tables", *(column.replace("_", " ") for column in columns), "fits"),
        tuple(
            (c["decision"], c["feature_tables"], *(c[column] for column in columns), "yes" if c["fits"] else "no")
            for c in report["considered"]
        ),
        (report["reason"],),
    )
    return resources, considered
