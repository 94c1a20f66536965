"""The C target: a header-only predictor of nested integer comparisons, and a library around it for the simulators."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import jinja2

from foretail.export.build import predictor_abi
from foretail.export.equivalence import prove_c
from foretail.export.votes import with_votes
from foretail.features.errors import ForetailError
from foretail.models.ensemble import Ensemble, Tree

__all__ = ["ExportResult", "export_c", "render_c"]


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
    certificate : Path
        What was proven, JSON.
    ir : Path
        The ensemble with its votes.
    """

    header: Path
    source: Path
    library: Path
    certificate: Path
    ir: Path


def export_c(ensemble: Ensemble, out_dir: Path, name: str = "drop_predictor") -> ExportResult:
    """Write, build and prove the C predictor of an ensemble; nothing is written when the proof fails.

    Parameters
    ----------
    ensemble : Ensemble
        With or without votes; without, :func:`with_votes` gives it some.
    out_dir : Path
        Created, or replaced when it holds an earlier export.
    name : str
        Prefix of files and C names: a lower-case letter, then lower-case letters, digits and underscores.

    Raises
    ------
    ProofError
        When the compiled code differs from the model; the message names an input.
    ForetailError
        On an unsafe name, no compiler, more than 10**8 cells, or an `out_dir` that holds something else.
    """
    if out_dir.exists() and not (
        out_dir.is_dir() and (not any(out_dir.iterdir()) or (out_dir / "certificate.json").is_file())
    ):
        raise ForetailError(f"{out_dir} exists and is no earlier export: choose another folder")
    voted = ensemble if ensemble.vote_bits is not None else with_votes(ensemble)
    texts = render_c(voted, name)
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    staging = out_dir.parent / f".{out_dir.name}.{os.getpid()}.tmp"
    try:
        staging.mkdir()
        certificate = prove_c(voted, texts, staging / f"{name}.so")
        for file, text in texts.items():
            (staging / file).write_text(text, encoding="ascii")
        voted.save(staging / "ensemble.json")
        (staging / "certificate.json").write_text(certificate.to_json(), encoding="ascii")
        _replace(out_dir, staging)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return ExportResult(
        header=out_dir / f"{name}.h",
        source=out_dir / f"{name}.c",
        library=out_dir / f"{name}.so",
        certificate=out_dir / "certificate.json",
        ir=out_dir / "ensemble.json",
    )


def render_c(ensemble: Ensemble, name: str = "drop_predictor") -> dict[str, str]:
    """Return the generated files, name -> text: ``<name>.h`` and ``<name>.c``; the ensemble must have votes."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name) or name == "foretail_predictor":
        raise ForetailError(
            f"{name!r} cannot prefix C names: use lower-case letters, digits and underscores, a letter first, "
            f"not foretail_predictor"
        )
    if ensemble.default_tau is None:
        raise ForetailError("the ensemble has no integer votes: run foretail.export.with_votes on it first")
    values = {
        "name": name,
        "features": ensemble.features,
        "default_tau": ensemble.default_tau,
        "sha256": ensemble.sha256,
        "trees": ["\n".join(_statements(tree)) for tree in ensemble.trees],
        "abi": predictor_abi(),
    }
    return {f"{name}.{kind}": _environment().get_template(f"predictor.{kind}.j2").render(values) for kind in ("h", "c")}


def c_string(text: str) -> str:
    """Return a C string literal; raise ForetailError on anything but letters, digits and ``_=,.+-``."""
    if not re.fullmatch(r"[A-Za-z0-9_=,.+-]*", text):
        raise ForetailError(f"{text!r} cannot be written into C: use letters, digits and _=,.+- only")
    return f'"{text}"'


def _statements(tree: Tree, node: int = 0, indent: str = "  ") -> Iterator[str]:
    assert tree.votes is not None
    if tree.feature[node] < 0:
        if node == 0:
            yield f"{indent}(void)x;"
        yield f"{indent}return INT64_C({tree.votes[node]});"
        return
    yield f"{indent}if (x[{tree.feature[node]}] <= {tree.cut[node]}) {{"
    yield from _statements(tree, int(tree.left[node]), indent + "  ")
    yield f"{indent}}} else {{"
    yield from _statements(tree, int(tree.right[node]), indent + "  ")
    yield f"{indent}}}"


@cache
def _environment() -> jinja2.Environment:
    templates = resources.files(__package__) / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (templates / name).read_text(encoding="ascii")),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # C, not HTML; names are checked by c_string and at the ensemble's door
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["c_string"] = c_string
    return environment


def _replace(out_dir: Path, staging: Path) -> None:
    """Put `staging` in the place of `out_dir`; a folder cannot be renamed over one with files in it."""
    if not out_dir.exists():
        staging.rename(out_dir)
        return
    old = out_dir.parent / f".{out_dir.name}.{os.getpid()}.old"
    out_dir.rename(old)
    staging.rename(out_dir)
    shutil.rmtree(old)
