"""How a drop predictor leaves Foretail, whatever the target: render, read back, run, prove, and only then write."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from foretail.core.digest import DIGEST_FILE
from foretail.core.errors import ForetailError
from foretail.core.plugins import require, running
from foretail.core.summary import Summarised
from foretail.export.folder import CERTIFICATE, ENSEMBLE, check_folder, check_name, write_export
from foretail.export.passes import lower
from foretail.export.proof import MAX_CELLS, Certificate, Lowered, ProofError, ReadBack, Run, prove
from foretail.models.ensemble.effort import Effort
from foretail.models.ensemble.ensemble import Ensemble

Files = Mapping[str, bytes]
"""File name -> content."""


@dataclass(frozen=True)
class Rendered:
    """The files that a target makes of an ensemble."""

    files: Files  #: what is proven, or stands in the certificate with what is
    #: further files, which no proof covers: reports, and programs around the predictor
    unproven: Files = field(default_factory=dict)
    report: str | None = None  #: name of the file, JSON, that has the target's own figures


@dataclass(frozen=True)
class Loaded:
    """The functions of rendered files, and how to run them; nothing but these files is known here."""

    read: Mapping[str, ReadBack]  #: name of a code path -> what its text says
    runs: Mapping[str, Run]  #: name of an entry point -> function from int64[rows, inputs] to the scores, int64[rows]
    tool: str  #: what built or runs them
    built: Files = field(default_factory=dict)  #: files that were built from them, and are what runs
    passes: bool = True  #: whether a test that is among them passes


class Target(Protocol):
    """One form in which predictors are exported, with its settings."""

    @property
    def name(self) -> str:
        """Name in certificates and settings."""
        ...

    def render(self, lowered: Lowered, prefix: str, max_cells: int) -> Rendered:
        """Write the files of a lowered model, their names beginning with `prefix`; equal models give equal files.

        Nothing can prove a form of the text that needs more than `max_cells` cells.
        """
        ...

    def load(self, ensemble: Ensemble, files: Files) -> Loaded:
        """Read the files of `ensemble` back and make them run; ProofError when they hold what is not written here."""
        ...


@dataclass(frozen=True, repr=False)
class ExportResult(Summarised):
    """An export on disk."""

    folder: Path  #: holds the target's files, ``certificate.json`` and ``ensemble.json``
    prefix: str  #: of the names of the target's files
    certificate: Certificate  #: what was proven
    ensemble: Ensemble  #: what was emitted, with its votes
    report: dict[str, Any]  #: what the target says beside the proof, JSON-like; empty when it says nothing

    def file(self, end: str) -> Path:
        """Return the file whose name is the prefix and `end`, such as ``.so``."""
        return self.folder / f"{self.prefix}{end}"


def export(
    model: Ensemble | Lowered,
    target: Target,
    out_dir: Path,
    prefix: str = "drop_predictor",
    *,
    any_tau: bool = True,
    max_cells: int = MAX_CELLS,
    effort: Effort | None = None,
) -> ExportResult:
    """Write, run and prove the predictor of a model; nothing is written when the proof fails.

    ProofError when what was written differs from the model; the message names an input. ForetailError on an unsafe
    name, a model that the target cannot hold, a missing tool, or an `out_dir` that holds something else.

    Parameters
    ----------
    model : see :func:`lower`
    out_dir : created, or replaced when it holds an earlier export
    prefix : of files and names in the code: a lower-case letter, then lower-case letters, digits and underscores
    any_tau, max_cells, effort : see :func:`lower`; `effort` watches plan and proof as well
    """
    if not isinstance(model, Ensemble | Lowered):
        raise ForetailError(
            f"export takes an Ensemble, not a {type(model).__name__}: make one of a fitted estimator by "
            "foretail.api.from_estimator(estimator, inputs)"
        )
    check_name(prefix)
    check_folder(out_dir)
    effort = effort or Effort()
    lowered = lower(model, any_tau, max_cells, effort)
    with running(target, "render"), effort.step("code written"):
        rendered = target.render(lowered, prefix, max_cells)
    require(target, isinstance(rendered, Rendered), "render must return Rendered", f"a {type(rendered).__name__}")
    require(target, bool(rendered.files), "render must give a file that is proven", "none")
    _require_files(target, {**rendered.unproven, **rendered.files})
    known = rendered.report is None or rendered.report in {**rendered.unproven, **rendered.files}
    require(target, known, "the report must be one of the files", repr(rendered.report))
    certificate, proven = prove_files(lowered, target, rendered.files, max_cells, effort)
    ensemble = lowered.ensemble
    files = {**proven, **rendered.unproven, ENSEMBLE: ensemble.to_json().encode("ascii")}
    write_export(out_dir, files, certificate)
    report = {} if rendered.report is None else json.loads(files[rendered.report])
    return ExportResult(out_dir, prefix, certificate, ensemble, report)


def _require_files(target: Target, files: Files) -> None:
    """Raise PluginError on a file of a target from outside that would lie elsewhere, or that is Foretail's own."""
    for name, content in files.items():
        plain = isinstance(name, str) and re.fullmatch(r"\w[\w.+-]{0,200}", name, re.ASCII) is not None
        require(target, plain, "a file must have a name of letters, digits and . + - _, without a folder", repr(name))
        require(
            target,
            name not in (CERTIFICATE, ENSEMBLE, DIGEST_FILE),
            "a file must not have the name of one that Foretail writes itself",
            name,
        )
        require(target, isinstance(content, bytes), f"{name} must be bytes", f"a {type(content).__name__}")


def prove_files(
    lowered: Lowered | Ensemble,
    target: Target,
    files: Files,
    max_cells: int = MAX_CELLS,
    effort: Effort | None = None,
) -> tuple[Certificate, Files]:
    """Read rendered files back and prove them equal to what was lowered, on all inputs.

    The ensemble has votes. Above `max_cells` cells the proof is by boxes; `effort` watches the enumerations. ProofError
    with the input at which the two differ, or what the files have that they should not have.

    Returns the certificate and what is proven: `files`, and those that were built from them.
    """
    lowered, effort = Lowered.of(lowered), effort or Effort()
    with running(target, "load"), effort.step("code built"):
        loaded = target.load(lowered.ensemble, files)
        proven = {**files, **loaded.built}
        all_read = bool(loaded.read) and bool(loaded.runs)
        require(target, all_read, "load must tell what it reads and how that runs", "nothing")
        _require_files(target, loaded.built)
    with running(target, "what load returned"):
        certificate = prove(
            lowered,
            target=target.name,
            outputs=proven,
            read=loaded.read,
            runs=loaded.runs,
            tool=loaded.tool,
            max_cells=max_cells,
            effort=effort,
        )
    if not loaded.passes:  # after the proof, which names an input
        raise ProofError(f"the self-test of the exported {target.name.upper()} fails: nothing is exported, report this")
    return certificate, proven
