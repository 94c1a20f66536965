"""Demand predictors for other programs: C in integers with a proven error bound, and ONNX."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from importlib import metadata
from pathlib import Path
from typing import Any

from foretail.core.errors import ForetailError
from foretail.export.c.build import find_compiler
from foretail.export.demand.c_code import FixedLinear, fixed_point, prove_header, render_header
from foretail.export.folder import check_folder, check_name, digests, encoded, in_json, write_export
from foretail.export.proof import at_most
from foretail.models.demand.predictor import DemandPredictor
from foretail.models.demand.predictor_file import name_of, to_json

__all__ = ["PREDICTOR", "TARGETS", "DemandCertificate", "export_demand", "fixed_point"]

PREDICTOR = "predictor.json"

TARGETS: Mapping[str, tuple[str, ...]] = {
    "seasonal": ("c",),
    "linear_entries": ("c", "onnx"),
    "boosted_entries": ("c",),
    "low_rank": ("onnx",),
    "history_attention": ("onnx",),
}
"""By the name of the predictor."""


@dataclass(frozen=True)
class DemandCertificate:
    """The facts known about an exported demand predictor, and the files that they are about."""

    target: str  #: {'c', 'onnx'}
    kind: str  #: name of the predictor
    #: ``bound``: `error_uplinks` is proven for every history in range. ``histories``: compared on random ones
    method: str
    predictor_sha256: str  #: of ``predictor.json``, the predictor that was given
    outputs: dict[str, str]  #: file name -> SHA-256
    tool: str  #: what built or ran it
    #: C: a decimal; no entry is farther from the predictor's own, before the projection into the hose model
    error_uplinks: str | None = None
    #: C: bounds of what adds up to it, by source, in uplinks: inputs, weights, result, float64
    parts: dict[str, str] = field(default_factory=dict)
    fraction_bits: int | None = None  #: C: integers are in units of ``2**-fraction_bits`` uplinks
    largest_uplinks: str | None = None  #: C: the history that the bound is for has no value above; None: any history
    trees: dict[str, Any] | None = None  #: C of trees: the certificate that they equal their ensemble on every input
    #: ONNX: the largest difference of an entry that was met, relative to the largest value of history and prediction
    relative_difference: float | None = None
    tolerance: float | None = None  #: ONNX: the largest allowed

    def to_json(self) -> str:
        return in_json("foretail.demand_certificate", 1, asdict(self))


def export_demand(
    predictor: DemandPredictor,
    target: str,
    out_dir: Path,
    name: str = "demand_predictor",
    *,
    max_error_uplinks: float = 1e-3,
    largest_uplinks: float = 64.0,
) -> DemandCertificate:
    """Write a trained demand predictor as C or ONNX, read it back and compare; nothing is written when that fails.

    ProofError when what was written differs from the predictor. ForetailError on an unsafe name, a target that the
    predictor does not have, an error that C cannot keep, a missing compiler or package, or an `out_dir` that holds
    something else.

    Parameters
    ----------
    target : {'c', 'onnx'}
    out_dir : Path
        Created, or replaced when it holds an earlier export; gets the target's files, ``predictor.json`` and
        ``certificate.json``.
    name : prefix of files and C names: a lower-case letter, then lower-case letters, digits and underscores
    max_error_uplinks, largest_uplinks : C: see :func:`fixed_point`
    """
    check_name(name)
    check_folder(out_dir)
    stored = to_json(predictor).encode("ascii")
    kind = name_of(predictor)
    if kind not in TARGETS:
        raise ForetailError(f"the demand predictor {kind} has no target: export one of {', '.join(TARGETS)}")
    if target not in TARGETS[kind]:
        raise ForetailError(f"{kind} has no target {target}: export it with target={' or '.join(TARGETS[kind])}")
    if target == "c":
        files, known = _in_c(predictor, name, max_error_uplinks, largest_uplinks)
    else:
        files, known = _in_onnx(predictor, name)
    files[PREDICTOR] = stored
    certificate = DemandCertificate(
        target=target,
        kind=kind,
        predictor_sha256=hashlib.sha256(stored).hexdigest(),
        outputs=digests(files),
        **known,
    )
    write_export(out_dir, files, certificate)
    return certificate


def _in_c(
    predictor: DemandPredictor, name: str, max_error_uplinks: float, largest_uplinks: float
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the files, and what the certificate says of C."""
    fixed = fixed_point(predictor, max_error_uplinks, largest_uplinks)
    texts = render_header(fixed, name_of(predictor), name)
    trees = prove_header(fixed, texts, name)
    linear = isinstance(fixed, FixedLinear)
    return encoded(texts), {
        "method": "bound",
        "error_uplinks": at_most(fixed.errors.total),
        "parts": {part: at_most(bound) for part, bound in vars(fixed.errors).items()},
        "fraction_bits": fixed.fraction_bits,
        "largest_uplinks": str(float(Fraction(fixed.largest, 1 << fixed.fraction_bits))) if linear else None,
        "trees": None if trees is None else asdict(trees),
        "tool": find_compiler()[0],
    }


def _in_onnx(predictor: DemandPredictor, name: str) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the file, and what the certificate says of ONNX."""
    from foretail.export.demand import onnx_graph  # its packages are an extra

    content = onnx_graph.render_graph(predictor, name)
    return {f"{name}.onnx": content}, {
        "method": "histories",
        "relative_difference": onnx_graph.compare_graph(content, predictor),
        "tolerance": onnx_graph.TOLERANCE,
        "tool": f"onnxruntime {metadata.version('onnxruntime')}",
    }
