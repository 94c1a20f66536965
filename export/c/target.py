"""The C target: a header-only predictor, a library around it for the simulators, and a self-test.

One prediction is nested ``if`` statements (``branches``) or an AND of leaf masks (``bitvector``); many are predicted
one after the other (``rows``) or with a row per SIMD lane (``lanes``). Branches win on traces, whose packets repeat the
path of the one before; bitvectors take the same time for every packet. Without a measurement bitvectors and lanes are
taken: at most twice the time of branches on a trace, a quarter of it where branches cannot be predicted
(``python -m benchmarks export_c``).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from foretail.export.c.build import PredictorLibrary, compile_library, run_program, vector_widths
from foretail.export.c.reader import read_c
from foretail.export.c.shapes import MAX_LANE_LEAVES, Bitvectors, Trees
from foretail.export.c.text import Batch, Header, Single, render_library, render_selftest
from foretail.export.c.tuning import Tuning, tune
from foretail.export.folder import CERTIFICATE, ENSEMBLE, check_folder, check_name, write_export
from foretail.export.passes.passes import lower
from foretail.export.proof.equivalence import MAX_CELLS, Certificate, Lowered, ProofError, Run, prove
from foretail.features.errors import ForetailError
from foretail.models.ensemble.boxes import leaf_boxes
from foretail.models.ensemble.cells import Cells
from foretail.models.ensemble.ensemble import Ensemble

__all__ = ["ExportResult", "export_c", "prove_c", "render_c"]

TUNING = "tuning.json"
_SELFTEST_ROWS = 256


@dataclass(frozen=True)
class ExportResult:
    """The files of one export.

    Attributes
    ----------
    header : Path
        Header-only C99 and C++ predictor.
    source : Path
        Library source with the predictor ABI; includes `header`.
    library : Path
        The shared object built from `source`, the one that was proven.
    selftest : Path
        Program with inputs and their scores.
    certificate : Path
        What was proven, JSON.
    ir : Path
        The ensemble with its votes.
    tuning : Path or None
        The measurements, where there were any.
    """

    header: Path
    source: Path
    library: Path
    selftest: Path
    certificate: Path
    ir: Path
    tuning: Path | None = None


def export_c(
    ensemble: Ensemble | Lowered,
    out_dir: Path,
    name: str = "drop_predictor",
    *,
    shape: Single | Literal["auto"] = "auto",
    batch: Batch | Literal["auto"] = "auto",
    tune_rows: npt.NDArray[np.int64] | None = None,
    any_tau: bool = True,
    max_cells: int = MAX_CELLS,
) -> ExportResult:
    """Write, build, try and prove the C predictor of an ensemble; nothing is written when the proof fails.

    Parameters
    ----------
    ensemble : Ensemble or Lowered
        See :func:`lower`.
    out_dir : Path
        Created, or replaced when it holds an earlier export.
    name : str
        Prefix of files and C names: a lower-case letter, then lower-case letters, digits and underscores.
    shape : {'auto', 'branches', 'bitvector'}
        Code of one prediction; ``auto``: the fastest on `tune_rows`, or bitvectors where their tables stay small.
    batch : {'auto', 'rows', 'lanes'}
        Code of many; ``auto``: the fastest on `tune_rows`, or lanes.
    tune_rows : int64[rows, features], optional
        Rows of a trace in the order of arrival.
    any_tau, max_cells
        See :func:`lower`.

    Raises
    ------
    ProofError
        When the compiled code differs from the model; the message names an input.
    ForetailError
        On an unsafe name, no compiler, a form that cannot hold the model, or an `out_dir` that holds something else.
    """
    check_name(name)
    check_folder(out_dir)
    lowered = lower(ensemble, any_tau, max_cells)
    voted = lowered.ensemble
    tuning = None
    if tune_rows is not None:
        tuning = tune(candidates(voted, name, shape, batch), voted.checked_inputs(tune_rows))
        shape, batch = tuning.single, tuning.batch
    texts = render_c(voted, name, shape=shape, batch=batch)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / f"{name}.so"
        certificate = prove_c(lowered, texts, library, max_cells=max_cells, tuning=tuning)
        files = {file: text.encode("ascii") for file, text in texts.items()}
        files[library.name] = library.read_bytes()
    if tuning is not None:
        files[TUNING] = tuning.to_json().encode("ascii")
    write_export(out_dir, files, certificate, voted)
    return ExportResult(
        header=out_dir / f"{name}.h",
        source=out_dir / f"{name}.c",
        library=out_dir / f"{name}.so",
        selftest=out_dir / f"{name}_selftest.c",
        certificate=out_dir / CERTIFICATE,
        ir=out_dir / ENSEMBLE,
        tuning=out_dir / TUNING if tuning is not None else None,
    )


def render_c(
    ensemble: Ensemble,
    name: str = "drop_predictor",
    *,
    shape: Single | Literal["auto"] = "auto",
    batch: Batch | Literal["auto"] = "auto",
) -> dict[str, str]:
    """Return the generated files, name -> text: ``<name>.h``, ``<name>.c`` and ``<name>_selftest.c``.

    Equal ensembles and settings give equal texts. The ensemble must have votes.
    """
    check_name(name)
    header = _header(ensemble, name, shape, batch)
    rows = _selftest_rows(ensemble)
    return {
        f"{name}.h": header.text(),
        f"{name}.c": render_library(name, ensemble.features),
        f"{name}_selftest.c": render_selftest(name, rows, ensemble.score(rows)),
    }


def prove_c(
    lowered: Lowered | Ensemble,
    texts: Mapping[str, str],
    library: Path,
    *,
    max_cells: int = MAX_CELLS,
    tuning: Tuning | None = None,
) -> Certificate:
    """Read the exported C back, compile and try it, and prove it equal to the ensemble on all inputs.

    The library takes the widest SIMD code that this CPU has; the plain C and the narrower SIMD code are built and run
    on their own, without much optimisation, because large models take a compiler seconds.

    Parameters
    ----------
    lowered : Lowered or Ensemble
        With votes.
    texts : mapping of str to str
        What :func:`render_c` returned.
    library : Path
        Where the proven binary is left, named as the caller wants it.
    max_cells : int
        Above so many cells the proof is by boxes.
    tuning : Tuning, optional
        Becomes part of the certificate's outputs.

    Raises
    ------
    ProofError
        With the input at which the two differ; `library` is then worthless.
    ForetailError
        Without a compiler.
    """
    lowered = Lowered.of(lowered)
    ensemble = lowered.ensemble
    name = next(file[: -len(".h")] for file in texts if file.endswith(".h"))
    header = _stated(ensemble, name, texts[f"{name}.h"])
    read = read_c(header, texts[f"{name}.h"], texts[f"{name}.c"])
    runs: dict[str, Run] = {}
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="ascii")
        source = folder / f"{name}.c"
        tool = compile_library(source, library)
        predictor = PredictorLibrary(library)
        _check_info(ensemble, predictor)
        runs["score"], runs["score_batch"] = predictor.score_each, predictor.score
        for vector in _variants(header):
            compile_library(source, folder / f"{vector}.so", "-O1", f"-D{name.upper()}_VECTOR={vector}")
            variant = PredictorLibrary(folder / f"{vector}.so")
            if vector == 0:
                runs["score in plain C"] = variant.score_each
            else:
                runs[f"score_batch in {vector} bits"] = variant.score
        outputs = {file: text.encode("ascii") for file, text in texts.items()}
        outputs[library.name] = library.read_bytes()
        if tuning is not None:
            outputs[TUNING] = tuning.to_json().encode("ascii")
        certificate = prove(
            lowered,
            target="c",
            outputs=outputs,
            read=read,
            runs=runs,
            tool=f"{tool}; ran {', '.join(runs)}",
            max_cells=max_cells,
        )
        if run_program(folder / f"{name}_selftest.c") != 0:
            raise ProofError("the self-test of the exported C fails: nothing is exported, report this as a bug")
    return certificate


def _header(ensemble: Ensemble, name: str, shape: Single | Literal["auto"], batch: Batch | Literal["auto"]) -> Header:
    trees = Trees.of(ensemble)
    bitvectors = None
    if shape != "branches":
        try:
            bitvectors = Bitvectors.of(ensemble)
        except ForetailError:
            if shape == "bitvector":
                raise
    if batch == "auto":
        batch = "lanes" if trees.leaves <= MAX_LANE_LEAVES else "rows"
    single: Single = "branches" if bitvectors is None else "bitvector"
    return Header(
        name=name,
        features=ensemble.features,
        default_tau=_default_tau(ensemble),
        ir_sha256=ensemble.sha256,
        single=single,
        batch=batch,
        tree_count=len(ensemble.trees),
        trees=trees if single == "branches" or batch == "lanes" else None,
        bitvectors=bitvectors,
        output=ensemble.output,
    )


def candidates(
    ensemble: Ensemble, name: str, shape: Single | Literal["auto"], batch: Batch | Literal["auto"]
) -> dict[tuple[Single, Batch], Header]:
    """Return a header for every pair of forms that the settings leave open and that can hold the model."""
    found = {}
    for single in ("branches", "auto") if shape == "auto" else (shape,):
        for many in ("rows", "auto") if batch == "auto" else (batch,):
            header = _header(ensemble, name, single, many)
            found[header.single, header.batch] = header
    return found


def _stated(ensemble: Ensemble, name: str, text: str) -> Header:
    """Return what a header must state about the ensemble, in the forms that it says it has."""
    single: Single = "bitvector" if " * One prediction: bitvector." in text else "branches"
    batch: Batch = "lanes" if ". Many: lanes." in text else "rows"
    return Header(
        name=name,
        features=ensemble.features,
        default_tau=_default_tau(ensemble),
        ir_sha256=ensemble.sha256,
        single=single,
        batch=batch,
        tree_count=len(ensemble.trees),
        trees=None,
        bitvectors=None,
        output=ensemble.output,
    )


def _variants(header: Header) -> tuple[int, ...]:
    """Return the vector widths whose code the library does not run on this CPU: plain C, and all but the widest."""
    lanes = vector_widths()[:-1] if header.batch == "lanes" else ()
    return (0, *lanes) if header.single == "bitvector" else lanes


def _selftest_rows(ensemble: Ensemble) -> npt.NDArray[np.int64]:
    """Return extreme inputs, corners of leaves and points of cells, int64[<= 256, features]."""
    corners = np.concatenate([leaf_boxes(tree, ensemble.features).corners for tree in ensemble.trees])
    random = np.random.default_rng(0)
    chosen = random.permutation(len(corners))[: _SELFTEST_ROWS // 2]
    sampled = Cells.of(ensemble).sample(_SELFTEST_ROWS // 2 - 2, random)
    top = [(1 << feature.bits) - 1 for feature in ensemble.features]
    return np.concatenate([[[0] * len(top), top], corners[chosen], sampled]).astype(np.int64)


def _default_tau(ensemble: Ensemble) -> int:
    if ensemble.default_tau is None:
        raise ForetailError("the ensemble has no integer votes: run foretail.export.with_votes on it first")
    return ensemble.default_tau


def _check_info(ensemble: Ensemble, predictor: PredictorLibrary) -> None:
    stated = (predictor.features, predictor.default_tau, predictor.ir_sha256)
    if stated != (tuple((f.name, f.params) for f in ensemble.features), ensemble.default_tau, ensemble.sha256):
        raise ProofError(
            "the exported library states other features, tau or ensemble: nothing is exported, report this"
        )
